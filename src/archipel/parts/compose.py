"""Four parts on a topology: who keeps what, and the turns that are taken.

- `star`: the server tells its clients, they act, it mixes;
- `servers`: the same at each server, and then servers mix among themselves;
- `peers`: everyone acts, and mixes with its neighbours;
- `digraph`: the same over links that go one way, where means are pushed.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.parts import (
    NONE,
    Empty,
    LearnPiece,
    MixPiece,
    Node,
    Place,
    ProtectPiece,
    Settings,
    SharePiece,
    empty,
    start_of,
)
from archipel.parts.acting import (
    acting,
    as_learned,
    beginning,
    forget,
    merging_across,
    merging_inside,
    merging_noised,
    merging_openly,
    merging_shared,
    side_by_side,
    speaking,
    taking,
    taking_openly,
    taking_shared,
    telling,
    viewing,
)
from archipel.parts.forging import forge_of
from archipel.parts.mix.mean import Mean
from archipel.parts.share.whole import Whole
from archipel.topology.links import metropolis, places_of
from archipel.turns import Plan, Setup, Tell, Turn


class Parts(NamedTuple):
    """What an algorithm is made of, as it is described."""

    learn: Any
    protect: Any
    share: Any
    mix: Any
    asked: float = 1.0  # chance that a server asks a client that is there
    ask: Any = None  # how a server asks instead


class Pieces(NamedTuple):
    """The same, made for a setup."""

    learn: LearnPiece
    protect: ProtectPiece
    share: SharePiece
    mix: MixPiece


# --- plans ----------------------------------------------------------------------------------------------------------


def most_heard(phases: Any) -> int:
    """How many senders a receiver ever hears, at most."""
    places = places_of([(links.starts, links.senders) for links in phases])
    return 1 + max((int(place.max(initial=-1)) for place in places), default=-1)


def piece_of(family: str, part: Any, kind: type, **given: Any) -> Any:
    """What a part makes of these; a class of a user's file may be no such part."""
    piece = part.make(*given.values()) if takes(getattr(part, "make", None), len(given)) else None
    if not isinstance(piece, kind):
        right = f"a part whose make({', '.join(given)}) returns a {kind.__name__} of archipel.parts"
        raise BadInput(f"algorithm.{family}.kind", type(part).__name__, right)
    return piece


def takes(function: Any, arguments: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    return True


def composed(setup: Setup, parts: Parts) -> Plan:
    """The plan of four parts on whatever topology the setup has."""
    size, dtype, graph = setup.task.size, setup.dtype, setup.graph
    at_mix = parts.protect.where == "mix"
    if at_mix:
        parts = parts._replace(protect=replace(parts.protect, asked=parts.asked))
    protect = piece_of("protect", parts.protect, ProtectPiece, setup=setup, learn=parts.learn)
    learn = piece_of("learn", parts.learn, LearnPiece, setup=setup, protect=protect)
    share = piece_of("share", parts.share, SharePiece, setup=setup)
    if learn.read_by in share.needs and parts.protect.where == "word":
        right = f'"at-sample": others are told a {learn.read_by}, and this part protects models'
        raise BadInput("algorithm.protect.kind", "at-word", right)
    if protect.bounded is not None or protect.summed is not None:
        refuse_noised(parts, share)
    if protect.bounded is not None:
        share = share._replace(fold=protect.bounded(share.fold))
    asks = parts.ask.make(setup, share, learn) if parts.ask is not None else None
    if asks is not None:
        share, learn = asks.share, asks.learn
    pushes = not graph.servers and not is_mutual(graph)
    if share.of_change and not graph.servers:
        right = '"portions", or "whole" with change = false: changes alone never bring peers together'
        raise BadInput("algorithm.share.kind", type(parts.share).__name__, right)
    rows = graph.servers or graph.clients
    heard = int(np.bincount(graph.server).max()) if graph.servers else most_heard(graph.across)
    # what a server draws has weights of its own, so its model counts for the rest
    place = Place(rows, heard, not graph.servers or asks is not None, pushes, share.of_change, size, dtype)
    mixing = parts.mix.one_way() if pushes else parts.mix
    mix = piece_of("mix", mixing, MixPiece, setup=setup, share=share, place=place)
    if learn.weighted is not None and mix.weight is not None:
        learn = learn._replace(learn=learn.weighted(mix.weight), weighs=True)
    elif learn.weighted is not None and mix.settle is not None:
        right = "one that weighs nodes as a whole: these steps are divided by a node's weight"
        raise BadInput("algorithm.mix.kind", type(mixing).__name__, right)
    elif mix.weight is not None and mix.settle is None and not learn.weighs:
        right = "one whose steps are divided by its node's weight; or another mix"
        raise BadInput("algorithm.learn.kind", type(parts.learn).__name__, right)
    if learn.weighs and learn.weighted is None and "mass" not in mix.state._fields:
        right = '"push-sum": this learn part divides its steps by the mass that it carries'
        raise BadInput("algorithm.mix.kind", type(mixing).__name__, right)
    mix = inside(mix, learn, share, parts, place, setup.attack is not None)
    if at_mix:
        mix = mix._replace(finish=merging_noised(mix.finish, protect.at_mix))
    if protect.summed is not None:
        mix = protect.summed(mix)
    if learn.shared is not None and setup.start is not None:
        raise BadInput("--from", "weights", "a complete state: what this learn part plays are sums of all gradients")
    if learn.shared is not None:
        share = share._replace(write=viewing(share.write, learn.shared), tell=viewing(share.tell, learn.shared))
        written = viewing(mix.write, learn.shared) if mix.write else None
        mix = mix._replace(finish=merging_shared(mix.finish, learn.shared, learn.settle), write=written)
    if asks is not None and (mix.write is not None or mix.tell is not None):
        raise BadInput("algorithm.ask.kind", "drawn", "none: this mix has words of its own, which carry no share")
    if asks is not None and mix.unweighted:
        right = "one that takes words by their weights: clients that are drawn weigh as their chances say"
        raise BadInput("algorithm.mix.kind", type(mixing).__name__, right)
    pieces = Pieces(learn, protect, share, mix if asks is None else asks.mixed(mix))
    check_pairs(pieces, parts)
    return plan_of_servers(setup, pieces, parts, asks) if graph.servers else plan_of_peers(setup, pieces, parts)


def refuse_noised(parts: Parts, share: SharePiece) -> None:
    """Noise on a sum covers what one client can change in it, once."""
    if not share.of_change or not share.uniform:
        raise BadInput("algorithm.share.kind", "this one", '"whole" with change = true: a sum of changes is noised')
    if parts.ask is not None:
        raise BadInput("algorithm.ask.kind", "drawn", "none: a client that is drawn twice would be in the sum twice")
    if not isinstance(parts.mix, Mean) or parts.mix.by_samples or parts.mix.limit > 0:
        right = '"mean" with limit = 0 and without by_samples: a client must be in a sum once, and count as all others'
        raise BadInput("algorithm.mix", "this one", right)
    if parts.protect.where == "sum" and parts.asked < 1:
        raise BadInput("algorithm.asked", parts.asked, "1: who is not asked lacks in the sum like one who dropped")


def inside(
    mix: MixPiece, learn: LearnPiece, share: SharePiece, parts: Parts, place: Place, lies: bool = False
) -> MixPiece:
    """The mix, back in the region that models stay in where it may leave that; refused where there is no way back."""
    region = learn.region
    if region in share.leaves:
        right = f'"whole": what is made of some parameters, or of rounded ones, would leave the {region}'
        raise BadInput("algorithm.share.kind", type(parts.share).__name__, right)
    # a late change is of a model that is another by now; late models among peers add up to weights above one
    stale = mix.late > 0 and (share.of_change or (mix.adds and place.own))
    lies = lies and learn.project is not None
    if not region or not (region in mix.leaves or stale or lies or learn.read_by):
        return mix
    if learn.project is None and region in mix.leaves:
        right = f"another: what it makes would leave the {region}, and entropy has no way back"
        raise BadInput("algorithm.mix.kind", type(parts.mix).__name__, right)
    if learn.project is None:
        right = f"0: what is late would make models leave the {region}, and entropy has no way back"
        raise BadInput("algorithm.mix.limit", mix.late, right)
    return mix._replace(finish=merging_inside(mix.finish, learn.project))


def check_pairs(pieces: Pieces, parts: Parts) -> None:
    """Parts that only come in pairs: what one reads, the other keeps."""
    for name, needs in (("share", pieces.share.needs), ("mix", pieces.mix.needs)):
        for field in set(needs) - set(pieces.learn.state._fields):
            reader = type(getattr(parts, name)).__name__
            raise BadInput(
                "algorithm.learn.kind", type(parts.learn).__name__, f"one that keeps the {field} {reader} reads"
            )
    read_by = pieces.learn.read_by
    if read_by and read_by not in pieces.share.needs + pieces.mix.needs:
        wrong = f"{type(parts.share).__name__} and {type(parts.mix).__name__}"
        raise BadInput("algorithm.mix.kind", wrong, f"parts that read the {read_by} {type(parts.learn).__name__} keeps")


def is_mutual(graph: Any) -> bool:
    """Whether links go both ways, with equal weights, all the time."""
    return len(graph.across) == 1 and not graph.one_way


def nodes(pieces: Pieces, start: Callable[[], Any], mix: Any, across: Any, keeps: bool) -> Node:
    """The table of those that have data; `start` makes their models."""
    table = start()
    before = start() if keeps else np.zeros((len(table), 0), table.dtype)
    return Node(table, before, pieces.learn.state, pieces.protect.state, pieces.share.state, mix, across)


def keeps_before(pieces: Pieces) -> bool:
    return pieces.learn.before or pieces.protect.before or pieces.share.before or pieces.mix.before


def plan_of_peers(setup: Setup, pieces: Pieces, parts: Parts) -> Plan:
    learn, protect, share, mix = pieces
    write, word = (share.write, share.word) if mix.write is None else (mix.write, mix.word)
    settle = as_learned if learn.weighs or mix.settle is None else mix.settle
    keeps = keeps_before(pieces) or setup.attack is not None
    lift = mix.lift if protect.rebase and settle is not as_learned else forget
    acts = protect.word, write, beginning(learn, keeps), settle, lift, protect.rebase or forget
    settings = settings_of(pieces, NONE, 1.0)
    count = setup.task.clients
    table = nodes(pieces, partial(start_of, parts.learn, setup), mix.state, empty(count), keeps)
    finish = merging_openly(mix.finish, protect.rebase) if protect.rebase else mix.finish
    turn = Turn(
        "peer", "peer", acting(learn.learn, *acts), mix.hear, finish, word, mix.inbox,
        forge_of(setup, write, learn), side_by_side(learn, *acts),
    )  # fmt: skip
    weigh = metropolis if is_mutual(setup.graph) else None
    return Plan(
        {"peer": table}, (turn,), settings, {0: share.parameters + mix.more}, mix.late, accountant=protect.accountant,
        weigh=weigh, plain_only=learn.plain_only,
    )  # fmt: skip


def plan_of_servers(setup: Setup, pieces: Pieces, parts: Parts, asks: Any) -> Plan:
    learn, protect, share, mix = pieces
    graph, size, dtype = setup.graph, setup.task.size, setup.dtype
    keeps = keeps_before(pieces) or setup.attack is not None
    write = mix.write or share.write
    acts = protect.word, write, beginning(learn, keeps), as_learned, forget, protect.rebase or forget
    take = (taking_openly if protect.rebase else taking)(mix.take or share.take)
    told, forge = telling(mix.tell or share.tell, protect.every), forge_of(setup, write, learn)
    if learn.shared is not None:
        take = taking_shared(share.take, learn.shared, learn.settle)
    turns: tuple[Any, ...] = (
        Tell("server", "client", told if asks is None else asks.tell, take, mix.told or share.told),
        Turn(
            "client",
            "server",
            acting(learn.learn, *acts),
            mix.hear,
            mix.finish,
            mix.word or share.word,
            mix.inbox,
            forge,
            side_by_side(learn, *acts),
            mix.adds,
        ),
    )
    parameters = {0: share.told_parameters + mix.more, 1: share.parameters + mix.more}
    across: Any = None
    if graph.servers > 1:
        place = Place(graph.servers, most_heard(graph.across), True, False, False, size, dtype)
        whole = Whole().make(setup)
        across = inside(parts.mix.across().make(setup, whole, place), learn._replace(read_by=""), whole, parts, place)
        write, finish = whole.write, across.finish
        if learn.shared is not None:
            write, finish = viewing(write, learn.shared), merging_shared(finish, learn.shared, learn.settle)
        merge = merging_across(finish)
        turns += (Turn("server", "server", speaking(write), across.hear, merge, whole.word, across.inbox),)
        parameters[2] = size
    asked = parts.asked if asks is None else asks.settings
    settings = settings_of(pieces, across.settings if across else NONE, asked)
    count = setup.task.clients
    table = nodes(pieces, partial(start_of, parts.learn, setup), empty(count), empty(count), keeps)
    model = start_of(parts.learn, setup, "servers")
    nothing: Empty = empty(graph.servers)
    server = Node(
        model, model[:, :0].copy() if not mix.before else model.copy(),
        learn.server_state if learn.server_state is not None else nothing,
        protect.server_state if protect.server_state is not None else nothing,
        share.server_state if share.server_state is not None else nothing, mix.state,
        across.state if across else nothing,
    )  # fmt: skip
    return Plan(
        {"client": table, "server": server}, turns, settings, parameters, mix.late, accountant=protect.accountant,
        weigh=metropolis if graph.servers > 1 else None, plain_only=learn.plain_only, masks=protect.masks,
        trusted=parts.protect.where == "mix",
    )  # fmt: skip


def settings_of(pieces: Pieces, across: Any, asked: Any) -> Settings:
    alone = int(pieces.learn.alone)
    return Settings(
        pieces.learn.settings, pieces.protect.settings, pieces.share.settings, pieces.mix.settings, across, asked, alone
    )
