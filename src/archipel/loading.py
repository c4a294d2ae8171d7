"""A user's own Python files: "my_parts.py:TrimmedMean" is the class TrimmedMean of my_parts.py."""

import hashlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from archipel.errors import BadInput, did_you_mean


def is_of_file(name: Any) -> bool:
    """Whether a name is a thing of a user's file.

    >>> is_of_file("my_parts.py:TrimmedMean"), is_of_file("trimmed-mean")
    (True, False)
    """
    return isinstance(name, str) and ".py:" in name


def load(given: str, key: str, like: str = "my_parts.py:TrimmedMean", anew: bool = False) -> Any:
    """The thing that "file.py:name" names; `key` is where it was written. A file is run once, unless `anew`."""
    file, _, name = given.rpartition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise BadInput(key, given, f"a Python file that exists, as in {like}")
    try:
        module = executed(path, f"archipel_model_{path.stem}") if anew else module_of(path)
    except Exception as problem:
        right = f"{path.name} that Python can load ({type(problem).__name__}: {problem})"
        raise BadInput(key, given, right) from problem
    found = getattr(module, name, None)
    if not callable(found):
        known = [n for n, thing in vars(module).items() if callable(thing) and not n.startswith("_")]
        raise BadInput(key, given, f"a class or function of {path.name}: {did_you_mean(name, known)}")
    return found


@cache
def module_of(path: Path) -> Any:
    """A file as a module, once; its name is the same in every process, so that kernels are found in the cache."""
    name = f"archipel_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    return executed(path, name, sys.modules)


def executed(path: Path, name: str, known: dict[str, Any] | None = None) -> Any:
    """A file as a module of this name, which is in `known` while it is run, and from then on."""
    known = {} if known is None else known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    known[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del known[name]
        raise
    return module
