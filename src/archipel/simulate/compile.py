"""The bridge from node functions to compiled kernels, and the only place that knows Numba's traps.

1. Kernels close over plain functions made callable with `register_jitable`: those hit the cache in a new process.
2. An edited callee would load a stale kernel silently: a hash of all sources is part of the cache folder's name.
3. Serial and parallel builds share a cache key: `build` puts the option into a closure cell.
4. uint64 times a literal becomes int64: `draws.u64` is overloaded, and a test compares bits with plain Python.
5. An array times a Python float is float64 here and float32 in NumPy: algorithms cast settings to the model's type.
6. Errors are silent or 39 lines long: `engine.rehearse` runs one plain round on a few nodes before compiling, and
   with ARCHIPEL_BOUNDSCHECK=1, as in the tests, kernels check their indices.
7. No nested tuples inside prange: arguments stay flat, and `row`, `clear` and `copied` are overloads.
8. prange from two Python threads aborts: serial kernels for seeds side by side, parallel ones for one large run.
9. fastmath with `nnan` and `ninf` assumes there is no NaN: both are left out.
10. Matrix loops are slow in plain Python: the verbs of `archipel.node` have a NumPy form and a loop.
11. A call passes every array of a record as nine numbers, which costs more than what most node functions do: all of
    them are inlined by force.
"""

import hashlib
import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable
from numba.np.arrayobj import make_array

from archipel import draws, node

MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}
INLINE = {"forceinline": True}
PACKAGE = Path(__file__).resolve().parents[1]
LOADED = time.time()
KEPT_CACHES = 6
NO_KERNELS = {"figures", "deploy", "theory"}  # folders without node functions


def copied(record: Any) -> Any:
    """A record of arrays of the same shapes, for scratch."""
    return type(record)(*[np.zeros_like(array) for array in record])


def sources() -> list[Path]:
    """Every file whose edit could change a kernel: the package's, and those of users' node functions."""
    files = {path for path in PACKAGE.rglob("*.py") if not NO_KERNELS & set(path.relative_to(PACKAGE).parts)}
    for function in node.KERNELS:
        file = inspect.getsourcefile(function)
        if file and Path(file).is_file():  # not what was typed at a prompt
            files.add(Path(file).resolve())
    return sorted(files)


def stamp() -> str:
    """A hash of all those files; one of this process alone where a file is no longer what may have been loaded."""
    checked = os.environ.get("ARCHIPEL_BOUNDSCHECK", "")
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {sys.version_info} {checked}".encode())
    for path in sources():
        digest.update(path.read_bytes())
        if path.stat().st_mtime > LOADED:
            digest.update(f"{os.getpid()} {LOADED}".encode())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Where kernels are kept: $ARCHIPEL_CACHE, or the user's cache."""
    home = os.environ.get("ARCHIPEL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "archipel"
    return Path(home).expanduser() / "kernels"


def prepare_cache() -> Path:
    """Name the folder after the sources, and forget the oldest ones."""
    folder = cache_folder() / stamp()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        for old in sorted(folder.parent.iterdir(), key=lambda p: p.stat().st_mtime)[:-KEPT_CACHES]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError:  # a read-only home: kernels are compiled anew each time
        pass
    numba.config.CACHE_DIR = str(folder)
    return folder


@overload(draws.u64, strict=False, jit_options=INLINE)
def _u64(x: Any) -> Any:
    return lambda x: np.uint64(x)


@overload(node.row, strict=False, jit_options=INLINE)
def _row(table: Any, k: Any) -> Any:
    body = ", ".join(f"table[{i}][k]" for i in range(len(table)))
    space = {"cls": table.instance_class}
    exec(f"def impl(table, k):\n    return cls({body},)", space)
    return space["impl"]


@overload(node.clear, strict=False, jit_options=INLINE)
def _clear(record: Any) -> Any:
    space: dict[str, Any] = {}
    body = "\n".join(f"    record[{i}][...] = 0" for i in range(len(record)))
    exec(f"def impl(record):\n{body or '    pass'}", space)
    return space["impl"]


@intrinsic
def _unowned(typing: Any, array: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = make_array(array)(context, builder, value=args[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    return array(array), codegen


def lent(record: Any) -> Any:
    """The same arrays without reference counts, for the time of a call: counting costs more than the arithmetic.

    Views of such an array, a row of it say, are not counted either. Whoever calls the kernel holds the arrays.
    """
    return record


@overload(lent, strict=False, jit_options=INLINE)
def _lent(record: Any) -> Any:
    parts = (f"unowned(record[{i}])" if is_array(part) else f"record[{i}]" for i, part in enumerate(record))
    space = {"cls": record.instance_class, "unowned": _unowned}
    exec(f"def impl(record):\n    return cls({', '.join(parts)},)", space)
    return space["impl"]


def is_array(kind: Any) -> bool:
    return isinstance(kind, numba.types.Array)


@overload(copied, strict=False)
def _copied(record: Any) -> Any:
    body = ", ".join(f"np.zeros_like(record[{i}])" for i in range(len(record)))
    space = {"cls": record.instance_class, "np": np}
    exec(f"def impl(record):\n    return cls({body},)", space)
    return space["impl"]


_enabled: set[Any] = set()


def _bind(plain: Callable[..., Any], loop: Callable[..., Any]) -> None:
    """The loop stands in for the NumPy verb in compiled code."""
    names = ", ".join(inspect.signature(loop).parameters)
    overload(plain, strict=False, jit_options={"fastmath": MATH} | INLINE)(
        eval(f"lambda {names}: loop", {"loop": loop})
    )


def enable() -> None:
    """Make every node function that is marked by now callable from kernels."""
    for function in draws.DRAWS:
        if function not in _enabled:
            register_jitable(**INLINE)(function)  # exact arithmetic: the same bits as plain Python
            _enabled.add(function)
    for plain, loop in node.FAST.items():
        if plain not in _enabled:
            _bind(plain, loop)
            _enabled.add(plain)
    for function in node.KERNELS:
        if function not in _enabled:
            math = set() if function in node.EXACT else MATH  # left out, it would be the caller's
            register_jitable(fastmath=math, **INLINE)(function)
            _enabled.add(function)


def build(function: Callable[..., Any], parallel: bool) -> Callable[..., Any]:
    """Compile a driver. It must close over a cell that differs between serial and parallel, see trap 3."""
    options = {"parallel": parallel, "nogil": True, "fastmath": MATH, "cache": True}
    if os.environ.get("ARCHIPEL_BOUNDSCHECK"):
        options["boundscheck"] = True
    return numba.njit(**options)(function)
