"""What all tests share: kernels are kept between runs, bounds are checked, and drawn examples are the same every time.

With ARCHIPEL_EXPLORE=1 they are drawn anew: a failure that is found so becomes an example of its own.
"""

import gc
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ARCHIPEL_BOUNDSCHECK", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))  # for what tests share: `reference`
settings.register_profile("same", derandomize=not os.environ.get("ARCHIPEL_EXPLORE"), deadline=None)
settings.load_profile("same")


def pytest_collection_modifyitems(items):
    """The longest file first and the shortest last: no core waits in the end for what another one does."""
    items.sort(key=lambda item: "test_torture" not in item.nodeid)


def pytest_collection_finish():
    """Thousands of tests are no garbage: looking through them again and again took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def nothing_large_is_left(request):
    """A long test may leave gigabytes in cycles, which nobody would look for soon."""
    yield
    if request.node.get_closest_marker("long"):
        gc.collect()


@pytest.fixture(autouse=True)
def no_node_functions_of_others():
    """Kernels are kept by the files of all node functions: with a test's own among them, later ones are made anew."""
    yield
    from archipel.node import KERNELS

    KERNELS[:] = [function for function in KERNELS if function.__module__.startswith("archipel.")]


@pytest.fixture
def archipel(folder, monkeypatch, capsys):
    """The command line in this process, in a test's own folder: its status and what it printed."""
    from archipel.cli import main

    def call(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["archipel", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return SimpleNamespace(status=ended.value.code or 0, **capsys.readouterr()._asdict())

    return call
