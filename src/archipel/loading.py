"""A user's own Python files: "my_parts.py:TrimmedMean" is the class TrimmedMean of my_parts.py."""

import hashlib
import importlib.util
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

from archipel.errors import BadInput, did_you_mean

OWN = ("archipel_user_", "archipel_model_")  # how modules of users' files are called
REFUSED = "Node functions cannot use this"  # how notes of the compiler begin
IN_KERNEL = "in a compiled node function"  # and those of what happened in a kernel, which knows no lines


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
        module = executed(path, f"{OWN[1]}{path.stem}") if anew else module_of(path)
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
    name = f"{OWN[0]}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
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


def blamed(problem: BaseException) -> str:
    """What went wrong in a user's own file, as a sentence; nothing if it went wrong elsewhere."""
    own = any(name.startswith(OWN) for name in sys.modules)
    notes, said = getattr(problem, "__notes__", []), f"{type(problem).__name__}: {problem}"
    for note in notes:
        if own and note.startswith(REFUSED):
            return str(note)
    frames = list(traceback.walk_tb(problem.__traceback__))
    mine = [(at.f_code, line) for at, line in frames if str(at.f_globals.get("__name__")).startswith(OWN)]
    if mine:
        code, line = mine[-1]
        said = f"{Path(code.co_filename).name}, line {line}, in {code.co_name}: {said}"
    elif not own or not any(note.startswith(IN_KERNEL) for note in notes):
        return ""
    return f"{', '.join([said, *notes])}."
