"""Four parts on a topology: who keeps what, and the turns that are taken.

- `star`: the server tells its clients, they act, it mixes;
- `servers`: the same at each server, and then servers mix among themselves;
- `peers`: everyone acts, and mixes with its neighbours;
- `digraph`: the same over links that go one way, where means are pushed.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.parts import (
    NONE,
    LearnPiece,
    MixPiece,
    Node,
    Place,
    ProtectPiece,
    Settings,
    SharePiece,
    acting,
    empty,
    start_of,
)
from archipel.parts.fits import check_part, needs_method, piece_of
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


def composed(setup: Setup, parts: Parts) -> Plan:
    """The plan of four parts on whatever topology the setup has."""
    size, dtype, graph = setup.task.size, setup.dtype, setup.graph
    check_part("protect", parts.protect)
    at_mix, many = parts.protect.where == "mix", (graph.clients, graph.servers)
    if parts.protect.where == "sample":
        needs_method("learn", parts.learn, "sensitivity", "setup")
    if at_mix:
        parts = parts._replace(protect=replace(parts.protect, asked=parts.asked))
    protect = piece_of("protect", parts.protect, ProtectPiece, *many, setup=setup, learn=parts.learn)
    learn = piece_of("learn", parts.learn, LearnPiece, *many, setup=setup, protect=protect)
    if protect.accountant is not None and protect.norm is None:  # of the data as they are: nobody pays for it
        learn = learn._replace(norm=None)
    share = piece_of("share", parts.share, SharePiece, *many, setup=setup)
    if learn.read_by in share.needs and parts.protect.where == "word":
        right = f'"at-sample": others are told a {learn.read_by}, and this part protects models'
        raise BadInput("algorithm.protect.kind", "at-word", right)
    if protect.bounded is not None or protect.summed is not None:
        refuse_noised(parts, share)
    if protect.bounded is not None:
        share = share._replace(fold=protect.bounded(share.fold))
    asks = None
    if parts.ask is not None:
        check_part("ask", parts.ask)
        asks = parts.ask.make(setup, share, learn)
        share, learn = asks.share, asks.learn
    pushes = not graph.servers and not is_mutual(graph)
    if share.of_change and not graph.servers:
        right = '"portions", or "whole" with change = false: changes alone never bring peers together'
        raise BadInput("algorithm.share.kind", type(parts.share).__name__, right)
    rows = graph.servers or graph.clients
    heard = int(np.bincount(graph.server).max()) if graph.servers else most_heard(graph.across)
    # what a server draws has weights of its own, so its model counts for the rest
    place = Place(rows, heard, not graph.servers or asks is not None, pushes, share.of_change, size, dtype)
    check_part("mix", parts.mix)
    if pushes:
        needs_method("mix", parts.mix, "one_way", "")
    mixing = parts.mix.one_way() if pushes else parts.mix
    mix = piece_of("mix", mixing, MixPiece, rows, graph.servers, setup=setup, share=share, place=place)
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
        mix = mix._replace(finish=acting.merging_noised(mix.finish, protect.at_mix))
    if protect.summed is not None:
        mix = protect.summed(mix)
    if learn.shared is not None and setup.start is not None:
        raise BadInput("--from", "weights", "a complete state: what this learn part plays are sums of all gradients")
    if learn.shared is not None:
        write, tell = (acting.viewing(way, learn.shared) for way in (share.write, share.tell))
        share = share._replace(write=write, tell=tell)
        written = acting.viewing(mix.write, learn.shared) if mix.write else None
        mix = mix._replace(finish=acting.merging_shared(mix.finish, learn.shared, learn.settle), write=written)
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
    return mix._replace(finish=acting.merging_inside(mix.finish, learn.project))


def check_pairs(pieces: Pieces, parts: Parts) -> None:
    """Parts that only come in pairs: what one reads, the other keeps."""
    for name, needs in (("share", pieces.share.needs), ("mix", pieces.mix.needs)):
        for field in set(needs) - set(pieces.learn.state._fields):
            reader = type(getattr(parts, name)).__name__
            right = f"one that keeps the {field} {reader} reads"
            raise BadInput("algorithm.learn.kind", type(parts.learn).__name__, right)
    read_by = pieces.learn.read_by
    if read_by and read_by not in pieces.share.needs + pieces.mix.needs:
        wrong = f"{type(parts.share).__name__} and {type(parts.mix).__name__}"
        raise BadInput("algorithm.mix.kind", wrong, f"parts that read the {read_by} {type(parts.learn).__name__} keeps")


def is_mutual(graph: Any) -> bool:
    """Whether links go both ways, with equal weights, all the time."""
    return len(graph.across) == 1 and not graph.one_way


def keeps_before(setup: Setup, pieces: Pieces) -> bool:
    """Whether anyone asks what a model was before a round's learning."""
    return setup.attack is not None or any(piece.before for piece in pieces)


def nodes(setup: Setup, pieces: Pieces, parts: Parts, mix: Any) -> Node:
    """The table of those that have data."""
    learn, protect, share, _ = pieces
    table, keeps = start_of(parts.learn, setup), keeps_before(setup, pieces)
    before = start_of(parts.learn, setup) if keeps else np.zeros((len(table), 0), table.dtype)
    return Node(table, before, learn.state, protect.state, share.state, mix, empty(len(table)))


def turn_of(setup: Setup, pieces: Pieces, ends: tuple[str, str], finish: Any, settle: Any, lift: Any) -> Turn:
    """Those that have data learn and say something of it; who hears them mixes."""
    learn, protect, share, mix = pieces
    write, begin = mix.write or share.write, acting.beginning(learn, keeps_before(setup, pieces))
    acts = protect.word, write, begin, settle, lift, protect.rebase or acting.forget
    return Turn(
        *ends, acting.acting(learn.learn, *acts), mix.hear, finish, mix.word or share.word, mix.inbox,
        forge_of(setup, write, learn), acting.side_by_side(learn, *acts), mix.adds,
    )  # fmt: skip


def plan_of_peers(setup: Setup, pieces: Pieces, parts: Parts) -> Plan:
    learn, protect, share, mix = pieces
    settle = acting.as_learned if learn.weighs or mix.settle is None else mix.settle
    lift = mix.lift if protect.rebase and settle is not acting.as_learned else acting.forget
    finish = acting.merging_openly(mix.finish, protect.rebase) if protect.rebase else mix.finish
    turn, table = turn_of(setup, pieces, ("peer", "peer"), finish, settle, lift), nodes(setup, pieces, parts, mix.state)
    return Plan(
        {"peer": table}, (turn,), settings_of(pieces, NONE, 1.0), {0: share.parameters + mix.more}, mix.late,
        accountant=protect.accountant, weigh=metropolis if is_mutual(setup.graph) else None,
        plain_only=learn.plain_only,
    )  # fmt: skip


def plan_of_servers(setup: Setup, pieces: Pieces, parts: Parts, asks: Any) -> Plan:
    learn, protect, share, mix = pieces
    graph, size = setup.graph, setup.task.size
    take = (acting.taking_openly if protect.rebase else acting.taking)(mix.take or share.take)
    if learn.shared is not None:
        take = acting.taking_shared(share.take, learn.shared, learn.settle)
    tell = acting.telling(mix.tell or share.tell, protect.every) if asks is None else asks.tell
    turns: tuple[Any, ...] = (
        Tell("server", "client", tell, take, mix.told or share.told),
        turn_of(setup, pieces, ("client", "server"), mix.finish, acting.as_learned, acting.forget),
    )
    parameters = {0: share.told_parameters + mix.more, 1: share.parameters + mix.more}
    across: Any = None
    if graph.servers > 1:
        place = Place(graph.servers, most_heard(graph.across), True, False, False, size, setup.dtype)
        whole = Whole().make(setup)
        needs_method("mix", parts.mix, "across", "")
        given = {"setup": setup, "share": whole, "place": place}
        mixed = piece_of("mix", parts.mix.across(), MixPiece, graph.servers, graph.servers, **given)
        across = inside(mixed, learn._replace(read_by=""), whole, parts, place)
        write, finish = whole.write, across.finish
        if learn.shared is not None:
            write = acting.viewing(write, learn.shared)
            finish = acting.merging_shared(finish, learn.shared, learn.settle)
        merge = acting.merging_across(finish)
        turns += (Turn("server", "server", acting.speaking(write), across.hear, merge, whole.word, across.inbox),)
        parameters[2] = size
    settings = settings_of(pieces, across.settings if across else NONE, parts.asked if asks is None else asks.settings)
    model, nothing = start_of(parts.learn, setup, "servers"), empty(graph.servers)
    before = model.copy() if mix.before else model[:, :0].copy()
    states = [nothing if piece.server_state is None else piece.server_state for piece in (learn, protect, share)]
    server = Node(
        model, before, states[0], states[1], states[2], mix.state, across.state if across else nothing
    )  # fmt: skip
    tables = {"client": nodes(setup, pieces, parts, empty(setup.task.clients)), "server": server}
    return Plan(
        tables, turns, settings, parameters, mix.late, accountant=protect.accountant,
        weigh=metropolis if graph.servers > 1 else None, plain_only=learn.plain_only, masks=protect.masks,
        trusted=parts.protect.where == "mix", both_ends=mix.both_ends,
    )  # fmt: skip


def settings_of(pieces: Pieces, across: Any, asked: Any) -> Settings:
    learn, protect, share, mix = (piece.settings for piece in pieces)
    return Settings(learn, protect, share, mix, across, asked, int(pieces.learn.alone))
