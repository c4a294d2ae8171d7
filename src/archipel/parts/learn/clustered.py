"""What a client of PGFL does, (4) and (5): a primal step towards its cluster's model, told noised, and its dual.

Gauthier et al., IEEE TSIPN 2023; comes in a pair with `mix.cluster_admm`. A client says v_k = w_k - phi_k / rho. In the
exact form the dual follows the model that was learned from, before it is said; as published, the server's answer to it.
"""

from functools import cache
from typing import Any, NamedTuple

from archipel.node import LEARNED, NOTHING, SAID, add_scaled, assign, fast, in_order, kernel


class Personal(NamedTuple):
    """What a client keeps of its server."""

    dual: Any  # phi_k
    base: Any  # w_{s,(q)}, as the server told it
    asked: Any  # (1,): whether the server wants to hear from it
    spoke: Any  # (1,): whether it did, this round
    cluster: Any  # (1,): as the server told it


class Primal(NamedTuple):
    penalty: Any  # rho
    change: Any  # the round from which clients have the data of their second segment
    radius: Any


@kernel
def reach(me: Any, settings: Any, moment: Any) -> Any:
    """(43): how far one unit moves the model."""
    return me.protect.change[0] / settings.learn.penalty


@in_order
def pull(out: Any, me: Any, settings: Any, segment: Any, squared: Any) -> None:
    """phi_k + rho w_s, and of a squared loss 2 X^T y / D."""
    dual, base, moment, penalty = me.mix.dual, me.mix.base, me.learn.data.moment[segment], settings.learn.penalty
    if squared:
        for j in range(out.shape[0]):
            out[j] = (dual[j] + penalty * base[j]) + moment[j]
    else:
        for j in range(out.shape[0]):
            out[j] = dual[j] + penalty * base[j]


@cache
def minimising(solve: Any, squared: bool, in_ball: bool) -> Any:
    @kernel
    def minimise(me: Any, data: Any, settings: Any, segment: Any, weight: Any) -> None:
        """What pulls is written where the model will be: no table beside it goes through memory. In a ball, where it
        is solved for again and again, it is kept.
        """
        pulled = me.learn.pull if in_ball else me.model
        pull(pulled, me, settings, segment, squared)
        solve(me.model, me.learn, data, pulled, weight, segment, settings.learn.radius)

    return minimise


@kernel
def follow(me: Any, told: Any, settings: Any) -> None:
    """(5): phi_k += rho (w_s - w_k), with what was told in place of w_k."""
    add_scaled(me.mix.dual, settings.learn.penalty, me.mix.base)
    add_scaled(me.mix.dual, -settings.learn.penalty, told)


@kernel
def say_after(said: Any, me: Any, told: Any, settings: Any) -> None:
    """As published, the dual follows when the server has answered; v_k = w_k - phi_k / rho."""
    assign(said, told)
    add_scaled(said, -1.0 / settings.learn.penalty, me.mix.dual)


def follow_and_say(said: Any, me: Any, told: Any, settings: Any) -> None:
    """The exact form: (5), then v_k."""
    follow(me, told, settings)
    say_after(said, me, told, settings)


@in_order
def follow_and_say_at_once(said: Any, dual: Any, base: Any, told: Any, penalty: Any, share: Any) -> None:
    """In one pass: nothing waits for what was just written."""
    for j in range(said.shape[0]):
        dual[j] = (dual[j] + penalty * base[j]) + (-penalty) * told[j]
        said[j] = told[j] + share * dual[j]


@fast(follow_and_say)
def follow_and_say_loop(said: Any, me: Any, told: Any, settings: Any) -> None:
    penalty = settings.learn.penalty
    follow_and_say_at_once(said, me.mix.dual, me.mix.base, told, penalty, -1.0 / penalty)


@cache
def openly(write: Any) -> Any:
    @kernel
    def say(me: Any, said: Any, scale: Any, settings: Any, moment: Any) -> None:
        """What others know is the model itself."""
        write(said.values, me, me.model, settings)

    return say


@cache
def noised(tell: Any, write: Any) -> Any:
    @kernel
    def say(me: Any, said: Any, scale: Any, settings: Any, moment: Any) -> None:
        """(12)."""
        tell(me, scale, settings, moment)
        write(said.values, me, me.protect.told, settings)

    return say


@cache
def acting(pay: Any, minimise: Any, say: Any) -> Any:
    @kernel
    def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
        """(4): argmin f_k(w) - <phi_k, w - w_s> + rho/2 ||w - w_s||^2; (12), and the summand of (8) or (13)."""
        me.mix.spoke[0] = 0
        if not moment.present or me.mix.asked[0] == 0:
            return NOTHING
        segment = 1 if moment.round >= settings.learn.change else 0
        minimise(me, data, settings, segment, me.learn.shrinkage[0] + settings.learn.penalty)
        scale = pay(me, settings, moment)
        if scale < 0.0:
            return LEARNED
        say(me, said, scale, settings, moment)
        me.mix.spoke[0] = 1
        return SAID

    return act


@kernel
def take_exact(me: Any, said: Any, settings: Any, moment: Any) -> None:
    """Keep the server's answer."""
    assign(me.mix.base, said.values)
    me.mix.asked[0] = said.asked[0]
    me.mix.cluster[0] = said.cluster[0]


@kernel
def take_published(me: Any, said: Any, settings: Any, moment: Any) -> None:
    """Keep the server's answer; who took part updates its dual, (5)."""
    take_exact(me, said, settings, moment)
    if me.mix.spoke[0] == 1:
        follow(me, me.protect.told, settings)


@kernel
def take_published_openly(me: Any, said: Any, settings: Any, moment: Any) -> None:
    """The same, where what was told is the model itself."""
    take_exact(me, said, settings, moment)
    if me.mix.spoke[0] == 1:
        follow(me, me.model, settings)
