"""Waiting for what happens outside, without asking again and again; the time that is given is for what hangs."""

import ctypes
import os
import select

CHANGED = 0x8 | 0x80 | 0x100  # of inotify: a file was written to its end, moved here, made


def wait_until(holds, *folders, seconds=600.0):
    """Look again whenever the kernel says that something in one of these folders has changed."""
    kernel = ctypes.CDLL(None, use_errno=True)
    told = kernel.inotify_init1(os.O_CLOEXEC)
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            assert kernel.inotify_add_watch(told, os.fsencode(folder), CHANGED) >= 0, os.strerror(ctypes.get_errno())
        while not holds():
            assert select.select([told], [], [], seconds)[0], "nothing changes any more"
            os.read(told, 1 << 16)
    finally:
        os.close(told)


def wait_for_end(pid, seconds=600.0):
    """Of any process, whoever started it."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([process], [], [], seconds)[0], f"process {pid} does not end"
    finally:
        os.close(process)
