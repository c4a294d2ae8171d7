"""A node asks the world through one door: no clock, file, thread or network is used behind its back."""

import ast
from pathlib import Path

import pytest

import archipel.deploy

FOLDER = Path(archipel.deploy.__file__).parent
REAL = {"real.py", "zenoh_link.py", "outside.py", "metrics.py"}  # the real world
PROCESSES = {"fleet.py", "processes.py", "run_node.py", "chaos.py", "proxy.py", "watch.py", "assemble.py", "keys.py"}
PROCESSES |= {"hospital.py"}  # a story of real processes
PROCESSES |= {"many.py"}  # many seeds on all processors
PROCESSES |= {"disk.py"}  # a simulated disk, which keeps what is large in real files
BANNED = {"time", "datetime", "os", "io", "threading", "queue", "socket", "select", "selectors", "signal", "subprocess"}
BANNED |= {"zenoh", "random", "secrets", "shutil", "tempfile", "multiprocessing", "asyncio", "fcntl"}
TOUCHES = {"read_bytes", "read_text", "write_bytes", "write_text", "unlink", "mkdir", "touch", "rename", "exists"}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_nothing_goes_around_the_door(path):
    if path.name in REAL | PROCESSES:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {name.name.split(".")[0] for name in node.names} & BANNED, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in BANNED, ast.unparse(node)
        elif isinstance(node, ast.Call):
            called = node.func
            assert not (isinstance(called, ast.Name) and called.id == "open"), ast.unparse(node)
            assert not (isinstance(called, ast.Attribute) and called.attr in TOUCHES), ast.unparse(node)


def test_the_exceptions_exist():
    assert {path.name for path in FOLDER.rglob("*.py")} >= REAL | PROCESSES
