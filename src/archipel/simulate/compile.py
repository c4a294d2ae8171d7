"""The bridge from node functions to compiled kernels, and the only place that knows Numba's traps.

1. Kernels close over plain functions made callable with `register_jitable`: those hit the cache in a new process.
2. An edited callee would load a stale kernel silently: a hash of all sources is part of the cache folder's name.
3. Functions that are only ever inlined would each be optimised and made machine code of, with all that they call: they
   are linked as they are (`Linked`), and only the driver is finished. That halves the time to compile. Counting
   references to arrays is a third of the rest: hardly one of ours makes any, so nothing counts (`_nrt`).
4. uint64 times a literal becomes int64: `draws.u64` is overloaded, and a test compares bits with plain Python.
5. An array times a Python float is float64 here and float32 in NumPy: algorithms cast settings to the model's type.
6. Errors are silent or 39 lines long: `engine.rehearse` runs one plain round on a few nodes before compiling, and
   with ARCHIPEL_BOUNDSCHECK=1, as in the tests, kernels check their indices.
7. A record is nine arguments an array, from function to function: it goes by its address, see `simulate.records`.
8. `a[:] = b` brings the formatting of an error message into a kernel, seconds of compiling each: use `assign`, `fill`.
9. fastmath with `nnan` and `ninf` assumes there is no NaN: both are left out.
10. Matrix loops are slow in plain Python: the verbs of `archipel.node` have a NumPy form and a loop.
11. A call of a node function costs more than what most of them do: all are inlined by force.
12. Numba looks for a kernel by pickles of what it closes over, and these are other bytes once Python has kept the byte
    code of a file: the second run compiled all over again. Ours are found by names (`Named`).
"""

import gc
import hashlib
import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.errors import NumbaError
from numba.core.serialize import dumps
from numba.extending import overload, register_jitable
from numba.np import linalg

from archipel import draws, node
from archipel.disk import cache_home
from archipel.loading import REFUSED
from archipel.simulate.lighter import lighter, needless

asked, linalg.ensure_blas = linalg.ensure_blas, lambda: None  # asked at import: all of SciPy, which no kernel needs
import numba.np.arraymath  # noqa: E402

linalg.ensure_blas = asked

MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}
PACKAGE = Path(__file__).resolve().parents[1]
LOADED = time.time()
KEPT_CACHES = 6  # and whatever was used within
DAY = 86_400  # seconds: who works on several versions, or with parts of several files, compiles each once
NO_KERNELS = {"figures", "deploy", "theory"}  # folders without node functions


class Linked(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function that is only ever inlined into others: linked, not optimised, never run by itself."""

    class Absent:
        """A code generator for which functions have no environment in memory."""

        def __init__(self, codegen: Any):
            self.codegen = codegen

        def __getattr__(self, name: str) -> Any:
            return getattr(self.codegen, name)

        def set_env(self, name: str, env: Any) -> None:
            pass

    @property
    def codegen(self) -> Any:
        return Linked.Absent(self._codegen)

    def _optimize_functions(self, module: Any) -> None:
        """Those that are defined here; Numba makes a list of passes for each that is only named, too."""
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)

    def finalize(self) -> None:
        """Link what it calls; leave the rest to who calls it."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class Called(Linked):
    """The same of a function that LLVM may inline or not."""

    def add_ir_module(self, module: Any) -> None:
        for function in module.functions:
            if not function.is_declaration:
                function.attributes.discard("alwaysinline")
        super().add_ir_module(module)


class Inlined(Compiler):  # type: ignore[misc]
    """Numba's compiler, for functions whose code is `Linked`."""

    library: type[Linked] = Linked

    def define_pipelines(self) -> Any:
        self.state.library = self.library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        pipelines, skipped = super().define_pipelines(), needless(self.state.func_id.func, self.state.flags.nrt)
        for pipeline in pipelines:
            pipeline.passes = [each for each in pipeline.passes if each[0].__name__ not in skipped]
        return pipelines


class Rare(Inlined):
    """Numba's compiler, for functions that are long and `Called`. They have the options of all others: what they call
    would be compiled once more for other options.
    """

    library = Called


CHECKED = {"boundscheck": True} if os.environ.get("ARCHIPEL_BOUNDSCHECK") else {}  # callees do not take it over
INLINE = {"forceinline": True, "no_cfunc_wrapper": True, "pipeline_class": Inlined, "_nrt": False} | CHECKED


def sources() -> list[Path]:
    """Every file whose edit could change a kernel: the package's, and those of users' node functions."""
    files = {path for path in PACKAGE.rglob("*.py") if not NO_KERNELS & set(path.relative_to(PACKAGE).parts)}
    for function in {function.__code__.co_filename: function for function in node.KERNELS}.values():
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
        if PACKAGE not in path.parents:  # kernels name their modules, and a user's is named after its place
            digest.update(str(path).encode())
        if path.stat().st_mtime > LOADED:
            digest.update(f"{os.getpid()} {LOADED}".encode())
    return digest.hexdigest()[:16]


UNREADABLE = (UnpicklingError, EOFError, ImportError, AttributeError, IndexError, KeyError, ValueError, TypeError)


class Named(FunctionCache):  # type: ignore[misc]
    """Kernels by the names of what they close over: what stands behind the names is in the folder's."""

    def load_overload(self, signature: Any, context: Any) -> Any:
        """What was torn by a crash, or names what is no longer there, is compiled anew."""
        try:
            return super().load_overload(signature, context)
        except UNREADABLE:
            self.flush()
            return None

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        name = hashlib.sha256(repr(described(self._py_func, {})).encode()).hexdigest()
        return signature, codegen.magic_tuple(), name


def described(value: Any, known: dict[int, int]) -> Any:
    """What is the same for the same value in every process; what has been met before is a number."""
    if value is None or isinstance(value, int | float | str | bytes | np.generic | np.dtype):
        return repr(value)
    if id(value) in known:
        return known[id(value)]
    known[id(value)] = len(known)
    if isinstance(value, type | FunctionType | ModuleType):
        name = value.__name__ if isinstance(value, ModuleType) else (value.__module__, value.__qualname__)
        return name, [described(each, known) for each in (behind(value) if isinstance(value, FunctionType) else ())]
    if isinstance(value, CodeType):
        return [described(each, known) for each in (value.co_code, value.co_names, value.co_consts)]
    if isinstance(value, tuple | list):
        return type(value).__qualname__, [described(each, known) for each in value]
    return hashlib.sha256(dumps(value)).hexdigest()


def behind(function: FunctionType) -> list[Any]:
    """What a function closes over; where no file says what it does, also that, and the names that it uses."""
    found = [function.__defaults__, *(cell.cell_contents for cell in function.__closure__ or ())]
    if not Path(function.__code__.co_filename).is_file():
        names = function.__code__.co_names
        found += [function.__code__, *(function.__globals__[name] for name in names if name in function.__globals__)]
    return found


def cache_folder() -> Path:
    """Where kernels are kept."""
    return cache_home() / "kernels"


def prepare_cache() -> Path:
    """Name the folder after the sources, and forget the oldest ones."""
    folder = cache_folder() / stamp()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        used = {old: old.stat().st_mtime for old in folder.parent.iterdir()}
        for old in sorted(used, key=lambda old: used[old])[:-KEPT_CACHES]:
            if used[old] < used[folder] - DAY:
                shutil.rmtree(old, ignore_errors=True)
    except OSError:  # a read-only home: kernels are compiled anew each time
        pass
    numba.config.CACHE_DIR = str(folder)
    return folder


@overload(draws.u64, strict=False, jit_options=INLINE)
def _u64(x: Any) -> Any:
    return lambda x: np.uint64(x)


_enabled: set[Any] = set()


def _bind(plain: Callable[..., Any], loop: Callable[..., Any]) -> None:
    """The loop stands in for the NumPy verb in compiled code."""
    names = ", ".join(inspect.signature(loop).parameters)
    overload(plain, strict=False, jit_options={"fastmath": math_of(loop)} | INLINE)(
        eval(f"lambda {names}: loop", {"loop": loop})
    )


def may_allocate(function: Callable[..., Any]) -> bool:
    """Whether a node function may make arrays of its own: users' may, and those of ours that say so; the others keep
    their scratch in the node's state.
    """
    return not function.__module__.startswith("archipel.") or "zeros" in function.__code__.co_names


def math_of(function: Callable[..., Any]) -> set[str]:
    """How the compiler may rearrange a node function's arithmetic."""
    if function in node.EXACT:
        return set()
    return {"contract"} if function in node.IN_ORDER else MATH


def enable() -> None:
    """Make every node function that is marked by now callable from kernels."""
    for function in draws.DRAWS:
        if function not in _enabled:
            # nothing here divides by zero; to look would keep loops from being vectorised
            options = {"error_model": "numpy", "pipeline_class": Rare if function in draws.MANY else Inlined}
            register_jitable(**INLINE | options)(function)
            _enabled.add(function)
    for plain, loop in node.FAST.items():
        if plain not in _enabled:
            _bind(plain, loop)
            _enabled.add(plain)
    for function in node.KERNELS:
        if function not in _enabled:
            math = math_of(function)  # left out, it would be the caller's
            pipeline = Rare if function in node.RARE else Inlined
            options = {"fastmath": math, "pipeline_class": pipeline, "_nrt": may_allocate(function)}
            register_jitable(**INLINE | options)(function)
            _enabled.add(function)


@contextmanager
def compiling() -> Iterator[None]:
    """With a lighter compiler, and no garbage collector: a seventh of the time went into looking at what it makes."""
    was = gc.isenabled()
    gc.disable()
    try:
        with lighter():
            yield
    finally:
        if was:
            gc.enable()


@lru_cache(maxsize=256)
def build(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a driver, once in a process."""
    enable()
    driver = numba.njit(nogil=True, fastmath=MATH, _nrt=False, **CHECKED)(function)
    driver._cache = Named(function)
    return driver


def innermost(text: str) -> str:
    """What the compiler stumbled over, of all that it says: what it said of the innermost function.

    >>> text = 'No play\\n  No step\\n    TypingError: Failed\\n    no q\\n    File "m.py", line 3\\n    During: x'
    >>> print(innermost(text))
    Node functions cannot use this (docs/new-algorithm.md says what they can):
    no q
    File "m.py", line 3
    """
    lines = text.split("\n")
    deep = [len(line) - len(line.lstrip()) for line in lines]
    files = [i for i, line in enumerate(lines) if line.lstrip().startswith('File "')]
    if not files:
        return ""
    at = max(files, key=lambda i: deep[i])
    begin = next((i + 1 for i in range(at, -1, -1) if "Error: Failed" in lines[i]), 0)
    end = next((i for i in range(at, len(lines)) if lines[i].lstrip().startswith("During:")), len(lines))
    said = "\n".join(line[deep[at] :] for line in lines[begin:end]).strip()
    return f"{REFUSED} (docs/new-algorithm.md says what they can):\n{said}"


def entry(driver: Any, *arguments: Any) -> Callable[..., Any]:
    """A driver, compiled by a call with such arguments, for them alone: to look at their types takes 50 us a call."""
    try:
        driver(*arguments)
    except NumbaError as problem:
        problem.add_note(innermost(str(problem)))
        raise
    made: Callable[..., Any] = driver.overloads[tuple(map(driver.typeof_pyval, arguments))].entry_point
    return made
