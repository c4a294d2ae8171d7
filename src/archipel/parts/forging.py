"""Lies: what clients that attack say in place of what they learned. See `environment.Attack`.

A change of a model is the model less what it was before the round's learning; where something else is shared in its
place, of that. A liar's word is written by the share part as everyone's, of a model that changed as it wants others to
believe; its own model stays as it is.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import LIE, key_of, normal
from archipel.errors import BadInput
from archipel.node import Moment, assign, fill, kernel, row
from archipel.parts import LearnPiece
from archipel.turns import Setup

SILENT = -4  # in `lates`: said nothing this round


class Lies(NamedTuple):
    """Who lies, how hard, and room for what they know."""

    liar: Any  # (clients,)
    strength: Any  # (1,)
    fan_out: Any  # (phases, clients): how many hear a client
    mean: Any
    deviation: Any
    model: Any


class Forge(NamedTuple):
    """What a turn with liars needs."""

    run: Any  # (n, seed, nodes, words, lates, lies, settings)
    write: Any  # of the share part
    kind: str
    attack: Lies
    shared: Any  # (me) -> me with what lies are about as its model


@kernel
def flipped(change: Any, mean: Any, deviation: Any, strength: Any, key: Any, j: Any) -> Any:
    return -strength * change


@kernel
def scaled(change: Any, mean: Any, deviation: Any, strength: Any, key: Any, j: Any) -> Any:
    return strength * change


@kernel
def random(change: Any, mean: Any, deviation: Any, strength: Any, key: Any, j: Any) -> Any:
    return strength * normal(key, LIE, j)


@kernel
def a_little(change: Any, mean: Any, deviation: Any, strength: Any, key: Any, j: Any) -> Any:
    return mean - strength * deviation


@kernel
def against(change: Any, mean: Any, deviation: Any, strength: Any, key: Any, j: Any) -> Any:
    return -strength * mean


LIES = {
    "sign-flip": flipped,
    "scaled": scaled,
    "gaussian": random,
    "a-little-is-enough": a_little,
    "inner-product": against,
    "labels": scaled,
}


@kernel
def the_model(me: Any) -> Any:
    """Lies are about the model itself."""
    return me


@cache
def knowing(shared: Any) -> Any:
    @kernel
    def learn_of(nodes: Any, lates: Any, lies: Any) -> None:
        """The mean of what honest clients changed, and its deviation, parameter by parameter."""
        fill(lies.mean, 0)
        fill(lies.deviation, 0)
        honest = 0
        for k in range(lates.shape[0]):
            if lates[k] != SILENT and lies.liar[k] == 0:
                honest += 1
                me = shared(row(nodes, k))
                for j in range(lies.mean.shape[0]):
                    lies.mean[j] += me.model[j] - me.before[j]
        if honest == 0:
            return
        for j in range(lies.mean.shape[0]):
            lies.mean[j] /= honest
        for k in range(lates.shape[0]):
            if lates[k] != SILENT and lies.liar[k] == 0:
                me = shared(row(nodes, k))
                for j in range(lies.mean.shape[0]):
                    away = me.model[j] - me.before[j] - lies.mean[j]
                    lies.deviation[j] += away * away
        for j in range(lies.mean.shape[0]):
            lies.deviation[j] = math.sqrt(lies.deviation[j] / honest)

    return learn_of


@cache
def forging(write: Any, lie: Any, shared: Any) -> Any:
    learn_of = knowing(shared)

    @kernel
    def forge(n: Any, seed: Any, nodes: Any, words: Any, lates: Any, lies: Any, settings: Any) -> None:
        learn_of(nodes, lates, lies)
        phase = n % lies.fan_out.shape[0]
        for k in range(lates.shape[0]):
            if lies.liar[k] > 0 and lates[k] != SILENT:
                node, key = row(nodes, k), key_of(seed, k, n)
                me = shared(node)
                assign(lies.model, me.model)
                for j in range(lies.mean.shape[0]):
                    change = me.model[j] - me.before[j]
                    change = lie(change, lies.mean[j], lies.deviation[j], lies.strength[0], key, j)
                    me.model[j] = me.before[j] + change
                write(row(words, k), node, settings, Moment(k, n, key, -1, lies.fan_out[phase, k], True, 1.0))
                assign(me.model, lies.model)

    return forge


def forge_of(setup: Setup, write: Any, learn: LearnPiece) -> Forge | None:
    """What a turn needs in which some clients lie; nothing if everyone is honest."""
    attack, size, dtype, clients = setup.attack, setup.task.size, setup.dtype, setup.task.clients
    if attack is None:
        return None
    if learn.read_by:
        right = f'"labels", of strength 1: others are told a {learn.read_by}, and lies are about models'
        raise BadInput("environment.attack.kind", attack.kind, right)
    if learn.region and learn.project is None and learn.shared is None:
        right = f'"labels": what liars say may be outside of the {learn.region}, and entropy has no way back'
        raise BadInput("environment.attack.kind", attack.kind, right)
    phases = [np.ones(clients, np.int64)]
    if not setup.graph.servers:
        phases = [np.bincount(links.senders, minlength=clients) for links in setup.graph.across]
    room = [np.zeros(size, dtype) for _ in range(3)]
    lies = Lies(attack.liars(clients, setup.seed), np.array([attack.force], dtype), np.stack(phases), *room)
    shared = learn.shared or the_model
    return Forge(forging(write, LIES[attack.kind], shared), write, attack.kind, lies, shared)
