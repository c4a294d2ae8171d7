"""What Numba's compiler works out over and over, worked out once. What it compiles stays the same.

Most of the time to compile a kernel is Numba's own Python. A third of that goes into these:

1. The type of `a * b` is found by trying every way to multiply that was ever declared, anew for every product in the
   code. Answers that depend on the types of the arguments alone are kept; so are the types of fields, and signatures of
   Python's functions, which every call of them works out.
2. Compiler options are compared and hashed as tables of all of them, though most are never set.
3. How long each variable lives is worked out after every change to a function, nine times, and used once.
4. Every use of an array looks for a way in which it might not be one, in all that was ever declared.
5. Every call of LLVM is announced to timers, two for each function that is being compiled around it.
6. Functions are searched for closures and array expressions, of which ours have none (`PASSES`).

All but the last stand in Numba's place only while a kernel of ours is compiled, and only in the versions that this was
tried with: others compile as Numba does by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import signature
from threading import RLock
from types import CodeType
from typing import Any

import numba
from numba.core import event, types, utils
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import TargetConfig
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import BaseContext
from numba.np import arrayobj

TRIED = numba.__version__.startswith("0.68.")
PASSES = {"InlineClosureLikes", "WithLifting", "NopythonRewrites"}

KEPT: tuple[dict[Any, Any], ...] = ({}, {}, {})  # while kernels are compiled
_signatures, _fields, _parameters = KEPT


def remembered(search: Callable[..., Any]) -> Callable[..., Any]:
    """A search for the signature of a call that remembers those of Numba's own operations. An `overload` is looked up
    each time: which of its compiled forms is meant depends on the options of the caller.
    """

    def found(self: Any, context: Any, args: Any, kws: Any) -> Any:
        key = self, context, args
        known = None if kws else _signatures.get(key)
        if known is not None:
            return known
        answer = search(self, context, args, kws)
        if answer is not None and not kws and self._impl_keys.get(answer.args) is self.typing_key:
            _signatures[key] = answer
        return answer

    return found


def fields(search: Callable[..., Any]) -> Callable[..., Any]:
    """A search for the type of a field that remembers it. A method is looked up each time, as an `overload` is."""

    def found(self: Any, kind: Any, name: str) -> Any:
        known = _fields.get((kind, name))
        if known is None:
            known = search(self, kind, name)
            if known is not None and not isinstance(known, types.Callable):
                _fields[kind, name] = known
        return known

    return found


def parameters(function: Any) -> Any:
    """The signature of a function."""
    if function not in _parameters:
        _parameters[function] = signature(function)
    return _parameters[function]


@cache
def defaults(kind: Any) -> dict[str, Any]:
    """All options of a kind as they are where nobody sets them."""
    return {name: option.default for name, option in kind.options.items()}


@cache
def hash_of(kind: Any) -> int:
    """The hash of options is that of their names: values need not have one."""
    return hash(tuple(sorted(kind.options)))


def values(self: Any) -> dict[str, Any]:
    kind: Any = type(self)
    return defaults(kind) | self._values


def hashed(self: Any) -> int:
    kind: Any = type(self)
    return hash_of(kind)


def same(self: Any, other: Any) -> Any:
    if not isinstance(other, TargetConfig):
        return NotImplemented
    return self._values == other._values or self.values() == other.values()


def when_asked(run: Callable[..., None]) -> Callable[..., None]:
    """How long variables of our functions live is found when it is looked at, which is once."""

    def processed(self: Any, emit_dels: bool = False, **more: Any) -> None:
        code = self.func_ir
        if emit_dels or code.is_generator or not code.func_id.modname.startswith("archipel."):
            run(self, emit_dels, **more)
            return
        code.blocks = canonicalize_cfg(code.blocks)
        code.variable_lifetime, code.generator_info = VariableLifetime(code.blocks), None

    return processed


def as_arrays(make: Callable[..., Any]) -> Callable[..., Any]:
    """The structure of an array's head, made once for each type; a plain array is only that."""

    @cache
    def made(kind: Any) -> Any:
        structure = make(kind)
        if type(kind) is types.Array:
            del structure._make_refs
        return structure

    return made


def unless_llvm(tell: Callable[..., None]) -> Callable[..., None]:
    def told(kind: str, *data: Any, **more: Any) -> None:
        if kind != "numba:llvm_lock":
            tell(kind, *data, **more)

    return told


def needless(function: Any, allocates: bool) -> set[str]:
    """The names of passes that would find nothing: a function without array expressions allocates nothing."""
    inner = any(isinstance(constant, CodeType) for constant in function.__code__.co_consts)
    return set() if inner or allocates else set(PASSES)


REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (BaseFunction, "get_call_type", remembered(BaseFunction.get_call_type)),
    (BaseContext, "resolve_getattr", fields(BaseContext.resolve_getattr)),
    (utils, "pysignature", parameters),
    (TargetConfig, "values", values),
    (TargetConfig, "__eq__", same),
    (TargetConfig, "__hash__", hashed),
    (PostProcessor, "run", when_asked(PostProcessor.run)),
    (arrayobj, "make_array", as_arrays(arrayobj.make_array)),
    (event, "start_event", unless_llvm(event.start_event)),
    (event, "end_event", unless_llvm(event.end_event)),
)
_one_at_a_time = RLock()


@contextmanager
def lighter() -> Iterator[None]:
    """Compile with these in place of Numba's own."""
    with _one_at_a_time:  # as Numba compiles anyway
        own = [(owner, name, getattr(owner, name)) for owner, name, _ in REPLACED]
        for owner, name, mine in REPLACED if TRIED else ():
            setattr(owner, name, mine)
        try:
            yield
        finally:
            for owner, name, theirs in own:
                setattr(owner, name, theirs)
            for kept in KEPT:
                kept.clear()
