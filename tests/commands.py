"""The command line in this process: a new one takes a second to begin, and is tested where it is what is tested."""

import contextlib
import io
import subprocess
import sys
from unittest import mock


def typed(*arguments, cwd=".", given=""):
    """A command to its end, as from a terminal in a folder: its status and what it printed, as `subprocess` has it."""
    from archipel.cli import main

    words, out, err = ["archipel", *map(str, arguments)], io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdin", io.StringIO(given)),
    ):
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())
