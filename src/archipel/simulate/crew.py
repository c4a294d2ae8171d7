"""Threads that play a stretch of rounds together, without leaving their kernel.

A queue takes tens of microseconds to tell a thread what to do, as long as a round of a few hundred clients takes. So a
crew is told once for a whole stretch. Its leader opens one step after the other; whoever is free takes a part of the
open one, and the leader goes on when all parts are done. A helper that has no core, on a busy machine, takes none: the
leader plays them all, and waits for nobody who has not begun.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from archipel.node import kernel

ALONE, LEADER, HELPER = 0, 1, 2
OPEN, DONE, FAILED = 0, 8, 16  # places of a gate, each in its own line of the cache
PLACES = 16  # of OPEN, which say how many parts of a step are taken
NOTHING, OVER = (1 << PLACES) - 1, -1  # in OPEN: no part is free; there will be none
LOOKS = 2000  # until others may have the core: a few microseconds
GIVE_WAY = "archipel_give_way"
_system: Any = ctypes.CDLL(None).sched_yield if os.name == "posix" else ctypes.CDLL("kernel32").SwitchToThread
llvmlite.binding.add_symbol(GIVE_WAY, ctypes.cast(_system, ctypes.c_void_p).value)


def gate_of() -> Any:
    """Where a crew sees what is to be done."""
    return np.zeros(24, np.int64)


# --- what threads see of each other ---------------------------------------------------------------------------------


def on_gate(work: Callable[..., Any]) -> Any:
    """An operation on a place of a gate that all threads see whole, and in its order."""

    def typed(_context: Any, gate: Any, place: Any, *given: Any) -> Any:
        def made(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = arrayobj.make_array(signature.args[0])(context, builder, value=args[0])
            whole = [context.cast(builder, arg, kind, types.int64) for arg, kind in zip(args[1:], signature.args[1:])]
            return work(builder, builder.gep(array.data, whole[:1]), *whole[1:])

        return types.int64(gate, place, *given), made

    return typed


@intrinsic
def seen(context: Any, gate: Any, place: Any) -> Any:
    return on_gate(lambda builder, at: builder.load_atomic(at, "seq_cst", 8))(context, gate, place)


@intrinsic
def add(context: Any, gate: Any, place: Any, value: Any) -> Any:
    return on_gate(lambda builder, at, value: builder.atomic_rmw("add", at, value, "seq_cst"))(
        context, gate, place, value
    )


@intrinsic
def put(context: Any, gate: Any, place: Any, value: Any) -> Any:
    return on_gate(lambda builder, at, value: builder.atomic_rmw("xchg", at, value, "seq_cst"))(
        context, gate, place, value
    )


@intrinsic
def replaced(context: Any, gate: Any, place: Any, old: Any, new: Any) -> Any:
    """Whether `old` was there; then `new` is."""

    def work(builder: Any, at: Any, old: Any, new: Any) -> Any:
        was = builder.cmpxchg(at, old, new, "seq_cst", "seq_cst")
        return builder.zext(builder.extract_value(was, 1), ir.IntType(64))

    return on_gate(work)(context, gate, place, old, new)


@intrinsic
def give_way(_context: Any) -> Any:
    """Others may have the core first."""

    def made(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        called = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), []), GIVE_WAY)
        builder.call(called, [])
        return context.get_dummy_value()

    return types.none(), made


# --- a stretch ------------------------------------------------------------------------------------------------------


@kernel
def following(role: Any, at: Any, part: Any, first: Any, end: Any, shares: Any, gate: Any) -> Any:
    """The step and the part of it to play after part `part` of step `at`, before `first` none; OVER if there is none.

    The leader looks for parts of the step that is open until all are done, and opens the next one.
    """
    steps, looks = shares.shape[0], 0
    parts = shares[at % steps] if at >= first and role != ALONE else 1
    if parts > 1:
        add(gate, DONE, 1)
    while role == HELPER or parts > 1:
        free = seen(gate, OPEN)
        if free == OVER or seen(gate, FAILED):
            return OVER, 0
        step, other = free >> PLACES, free & NOTHING
        if other < shares[step % steps]:
            if replaced(gate, OPEN, free, free + 1):
                return step, other
        elif role == LEADER and seen(gate, DONE) >= parts:
            break
        else:
            looks += 1
            if looks > LOOKS:
                give_way()
    at += 1
    while role == ALONE and at < end and part >= shares[at % steps]:
        at += 1
    if at >= end:
        put(gate, OPEN, OVER)
        return OVER, 0
    if role == LEADER:
        part = 0
        if shares[at % steps] > 1:
            put(gate, DONE, 0)
            put(gate, OPEN, (at << PLACES) + 1)  # the first part is the leader's
    return at, part


def in_turn(steps: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    """The step of a number.

    Written out, as steps and their tables differ in type; in one function, as each takes its time to compile.
    """
    lines = [f"    if which == {i}: step_{i}(n, part, parts, board, args[{i}])" for i in range(len(steps))]
    names: dict[str, Any] = {f"step_{i}": step for i, step in enumerate(steps)} | {"__name__": __name__}
    exec("\n".join(["def play(n, which, part, parts, board, args):", *lines]), names)
    return kernel(names["play"])


@cache
def advancing(steps: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    """Rounds `first` to `last` - 1. `shares` says how many parts each step has: ALONE plays one of them, a crew all."""
    play, many = in_turn(steps), len(steps)

    def advance(first, last, role, part, shares, gate, board, args):
        begin, end = first * many, last * many
        at = begin - 1
        while True:
            at, part = following(role, at, part, begin, end, shares, gate)
            if at < 0:
                break
            which = at % many
            play(at // many, which, part, shares[which], board, args)

    return advance
