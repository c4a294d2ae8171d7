"""Checks that every algorithm passes, ours and yours: `check_algorithm(federation)` raises where one fails.

>>> from archipel import Federation, PaoFed, Synthetic
>>> from archipel.testing import check_algorithm
>>> check_algorithm(Federation(Synthetic(clients=6, features=8, test=20), PaoFed(step=0.2), rounds=12))
"""

from typing import Any

import numpy as np

from archipel.federation import PRECISIONS, Federation
from archipel.node import emptied, leaves, mapped, named_leaves
from archipel.turns import Tell

TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
SCRATCH = ".room."  # in the name of an array that is written before it is read: what is left there may hang on a tie


def check_algorithm(federation: Federation, parallel: bool = False) -> None:
    """One definition, every engine, the same models; and what the design asks of an algorithm."""
    instance, plain = check_engines_agree(federation, parallel)
    check_telling_changes_nothing(federation)
    check_hearing_is_a_fold(federation)
    check_traffic(federation, instance, plain)


def played(federation: Federation, engine: str) -> tuple[Any, Any]:
    """The instance and the engine after all rounds."""
    instance = federation.instance()
    player = federation.with_(engine=engine).engine_of(instance)
    player.advance(0, federation.rounds)
    return instance, player


def check_engines_agree(federation: Federation, parallel: bool) -> tuple[Any, Any]:
    """The compiled run matches the plain one: to 1e-10 in float64, to 1e-4 in float32; threads never change a bit.

    Returns the plain run's instance and engine.
    """
    precision = federation.precision or federation.algorithm.precision
    slow, plain = played(federation, "plain")
    quick, serial = played(federation, "serial")
    for role, table in slow.plan.tables.items():
        for (name, a), b in zip(named_leaves(table), leaves(quick.plan.tables[role])):
            if SCRATCH in name:
                continue
            differ = a != b  # a limit may be infinite in both
            gap = float(np.max(np.abs(a[differ].astype(float) - b[differ].astype(float)), initial=0.0))
            size = max(1.0, float(np.max(np.abs(a.astype(float)), initial=0.0)))
            assert gap <= TOLERANCE[precision] * size, f"{role}.{name}: plain and compiled differ by {gap:.3g}"
    assert plain.messages == serial.messages, f"messages: plain {plain.messages}, compiled {serial.messages}"
    assert plain.updates == serial.updates, f"updates: plain {plain.updates}, compiled {serial.updates}"
    if parallel and not slow.plan.plain_only:
        threaded, _ = played(federation, "parallel")
        for role, table in quick.plan.tables.items():
            for (name, a), b in zip(named_leaves(table), leaves(threaded.plan.tables[role])):
                assert np.array_equal(a, b), f"{role}.{name}: the number of threads changes it"
    return slow, plain


def check_telling_changes_nothing(federation: Federation) -> None:
    """A node that tells its receivers something does not change by it."""
    instance, _ = played(federation.with_(rounds=min(3, federation.rounds)), "plain")
    for turn in instance.plan.turns:
        if isinstance(turn, Tell):
            from archipel.draws import key_of
            from archipel.node import Moment, row

            teller = row(instance.plan.tables[turn.sender], 0)
            before = mapped(np.array, teller)
            word = emptied(turn.word)
            turn.tell(teller, word, instance.plan.settings, Moment(0, 1, key_of(1, 0, 1), 0, 1, True, 1.0))
            assert all(map(np.array_equal, leaves(before), leaves(teller))), (
                f"{turn.tell.__name__} changes the {turn.sender}"
            )


def check_hearing_is_a_fold(federation: Federation) -> None:
    """Messages, settings and tables are numbers of fixed shapes, so that a device can refuse what does not fit."""
    instance = federation.instance()
    for turn in instance.plan.turns:
        assert all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in leaves(turn.word)), turn
    for table in instance.plan.tables.values():
        rows = {len(array) for array in leaves(table)}
        assert len(rows) == 1, f"{type(table).__name__}: every array has one row a node, found {rows}"
    assert instance.plan.parameters.keys() == set(range(len(instance.plan.turns))), (
        "parameters: one number for each turn"
    )
    dtype = PRECISIONS[federation.precision or federation.algorithm.precision]
    for value in leaves(instance.plan.settings):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert value.dtype in (dtype, np.float64), f"settings: an array of {value.dtype}, expected {dtype}"


def check_traffic(federation: Federation, instance: Any, engine: Any) -> None:
    """The traffic counter of a run equals what its messages weigh."""
    result = federation.with_(engine="plain").run()
    weighed = sum(count * instance.plan.weight(i) for i, count in enumerate(engine.messages))
    assert result.total("bytes") == weighed, f"counted {result.total('bytes')} bytes, the messages weigh {weighed}"
