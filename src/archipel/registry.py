"""The names that descriptions use. A new algorithm, problem or part is one file and one line here.

A kind may also be a class of a user's own file, "my_parts.py:TrimmedMean", a path from the folder of the description.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from archipel.describe import as_table, choose
from archipel.errors import BadInput, Findings
from archipel.loading import is_of_file, load
from archipel.topology import TOPOLOGIES


class Names(Mapping[str, type]):
    """Names and where their classes live. A class is loaded when it is asked for: a run loads only what it uses."""

    def __init__(self, homes: dict[str, str]):
        self.homes = homes

    def __getitem__(self, name: str) -> type:
        module, _, cls = self.homes[name].partition(":")
        found: type = getattr(import_module(module), cls)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)


ALGORITHMS = Names(
    {
        "composed": "archipel.algorithms.composed:Algorithm",
        "pao-fed": "archipel.algorithms.online:PaoFed",
        "pao-fed-replay": "archipel.algorithms.online:PaoFedReplay",
        "pso-fed": "archipel.algorithms.online:PsoFed",
        "online-fedsgd": "archipel.algorithms.online:OnlineFedSgd",
        "online-fed": "archipel.algorithms.online:OnlineFed",
        "sign-sgd": "archipel.algorithms.sign_sgd:SignSgd",
        "pldp-fl": "archipel.algorithms.pldp_fl:PldpFl",
        "zcdp-nfl": "archipel.algorithms.zcdp_nfl:ZcdpNfl",
        "dp-nfl": "archipel.algorithms.zcdp_nfl:DpNfl",
        "zcdp-grad-nfl": "archipel.algorithms.zcdp_nfl:ZcdpGradNfl",
        "p-admm": "archipel.algorithms.zcdp_nfl:PAdmm",
        "pgfl": "archipel.algorithms.pgfl:Pgfl",
        "gfl": "archipel.algorithms.pgfl:Gfl",
        "clusterfl": "archipel.algorithms.pgfl:ClusterFl",
        "nfl": "archipel.algorithms.npfl:Nfl",
        "npfl": "archipel.algorithms.npfl:Npfl",
        "npfl-rl": "archipel.algorithms.npfl:NpflRl",
        "mirror-descent": "archipel.algorithms.mirror:MirrorDescent",
        "saddle-mirror-descent": "archipel.algorithms.mirror:SaddleMirrorDescent",
        "lagrangian-descent": "archipel.algorithms.mirror:LagrangianDescent",
        "dual-averaging": "archipel.algorithms.mirror:DualAveraging",
        "online-gradient-descent": "archipel.algorithms.mirror:OnlineGradientDescent",
        "online-push-sum": "archipel.algorithms.mirror:OnlinePushSum",
        "published-mirror-descent": "archipel.algorithms.mirror:PublishedMirrorDescent",
        "dp-fedavg": "archipel.algorithms.dp_fedavg:DpFedAvg",
        "fedavg": "archipel.algorithms.fedavg:FedAvg",
        "fedprox": "archipel.algorithms.fedavg:FedProx",
        "scaffold": "archipel.algorithms.fedavg:Scaffold",
        "fedavgm": "archipel.algorithms.fedavg:FedAvgM",
        "fedadam": "archipel.algorithms.fedavg:FedAdam",
        "fedbuff": "archipel.algorithms.fedavg:FedBuff",
        "gossip": "archipel.algorithms.gossip:Gossip",
        "fedavg-deep": "archipel.algorithms.deep:FedAvgDeep",
        "mirror-deep": "archipel.algorithms.deep:MirrorDeep",
        "dp-fedavg-deep": "archipel.algorithms.deep:DpFedAvgDeep",
    }
)

PROBLEMS = Names(
    {
        "synthetic": "archipel.problems.synthetic:Synthetic",
        "linear": "archipel.problems.linear:Linear",
        "regression": "archipel.problems.networked:Regression",
        "calcofi": "archipel.problems.measured:Calcofi",
        "beijing-air": "archipel.problems.measured:BeijingAir",
        "beijing-stations": "archipel.problems.clustered:BeijingStations",
        "related": "archipel.problems.clustered:Related",
        "pictures": "archipel.problems.clustered:Pictures",
        "drifting": "archipel.problems.drifting:Drifting",
        "growing-mean": "archipel.problems.drifting:GrowingMean",
        "files": "archipel.problems.own:Files",
        "deep": "archipel.problems.deep:Deep",
    }
)


LEARNS = Names(
    {
        "online-step": "archipel.parts.learn.online:OnlineStep",
        "gradient": "archipel.parts.learn.gradient:Gradient",
        "epochs": "archipel.parts.learn.epochs:Epochs",
        "controlled-epochs": "archipel.parts.learn.scaffold:ControlledEpochs",
        "replay": "archipel.parts.learn.replay:Replay",
        "mirror-step": "archipel.parts.learn.mirror:MirrorStep",
        "saddle-step": "archipel.parts.learn.mirror:SaddleStep",
        "queue-step": "archipel.parts.learn.mirror:QueueStep",
        "dual-average": "archipel.parts.learn.dual_averaging:DualAverage",
        "deep-epochs": "archipel.parts.learn.deep:Epochs",
        "gradient-step": "archipel.parts.learn.deep:GradientStep",
        "dp-sgd": "archipel.parts.learn.deep:DpSgd",
    }
)

PROTECTS = Names(
    {
        "openly": "archipel.parts.protect.openly:Openly",
        "at-sample": "archipel.parts.protect.sample:AtSample",
        "at-gradient": "archipel.parts.protect.gradient:AtGradient",
        "correlated": "archipel.parts.protect.correlated:Correlated",
        "at-word": "archipel.parts.protect.word:AtWord",
        "at-mix": "archipel.parts.protect.mix:AtMix",
        "in-turn": "archipel.parts.protect.in_turn:InTurn",
        "individual": "archipel.parts.protect.individual:Individual",
        "summed": "archipel.parts.protect.summed:Summed",
        "at-batch": "archipel.parts.protect.batch:AtBatch",
        "personal": "archipel.parts.protect.personal:Personal",
    }
)

SHARES = Names(
    {
        "whole": "archipel.parts.share.whole:Whole",
        "portions": "archipel.parts.share.portions:Portions",
        "signs": "archipel.parts.share.signs:Signs",
        "top-k": "archipel.parts.share.top_k:TopK",
        "quantised": "archipel.parts.share.quantised:Quantised",
    }
)

MIXES = Names(
    {
        "mean": "archipel.parts.mix.mean:Mean",
        "by-samples": "archipel.parts.mix.by_samples:BySamples",
        "by-age": "archipel.parts.mix.by_age:ByAge",
        "momentum": "archipel.parts.mix.optimiser:Momentum",
        "adam": "archipel.parts.mix.optimiser:Adam",
        "buffered": "archipel.parts.mix.buffered:Buffered",
        "clusters": "archipel.parts.mix.clusters:Clusters",
        "controls": "archipel.parts.mix.controls:Controls",
        "push-sum": "archipel.parts.mix.push_sum:PushSum",
        "vote": "archipel.parts.mix.vote:Vote",
        "plain": "archipel.parts.mix.plain:Plain",
        "median": "archipel.parts.mix.robust:Median",
        "trimmed-mean": "archipel.parts.mix.robust:TrimmedMean",
        "krum": "archipel.parts.mix.robust:Krum",
        "multi-krum": "archipel.parts.mix.robust:MultiKrum",
        "geometric-median": "archipel.parts.mix.robust:GeometricMedian",
        "centred-clipping": "archipel.parts.mix.robust:CentredClipping",
    }
)

ASKS = Names({"drawn": "archipel.parts.ask.drawn:Drawn"})

FAMILIES = {"learn": LEARNS, "protect": PROTECTS, "share": SHARES, "mix": MIXES, "ask": ASKS}
USERS: dict[type, str] = {}  # classes of users' files, and how descriptions name them


def kind_of(part: Any) -> str:
    """The name of a part in descriptions.

    >>> from archipel import PaoFed
    >>> kind_of(PaoFed())
    'pao-fed'
    """
    cls = type(part)
    if cls in USERS:
        return USERS[cls]
    home = f"{cls.__module__}:{cls.__qualname__}"
    named = [item for names in (ALGORITHMS, PROBLEMS, *FAMILIES.values()) for item in names.homes.items()]
    named += [(name, f"{kind.__module__}:{kind.__qualname__}") for name, kind in TOPOLOGIES.items()]
    return next((name for name, place in named if place == home), cls.__name__)


def read(kinds: Mapping[str, type], table: Any, section: str, default: str = "") -> Any:
    """What a section describes: its kind, a name or a class of a user's file, with the parts that it is made of."""
    kind: Any = table.get("kind", default) if isinstance(table, dict) else None
    if is_of_file(kind):
        found = load(kind, f"{section}.kind")
        if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
            raise BadInput(f"{section}.kind", kind, "a class under @dataclass(frozen=True), whose fields are its keys")
        file, _, name = kind.rpartition(":")
        USERS[found] = f"{Path(file).expanduser()}:{name}"
        kinds = {kind: found}
    if not isinstance(kind, str) or kind not in kinds:
        return choose(kinds, table, section, default)  # which says what is wrong
    table, found = dict(table), Findings()
    for name, family in families_of(kinds[kind]).items():
        with found:
            if name in table:
                table[name] = read(FAMILIES[family], table[name], f"{section}.{name}")
    found.refuse()
    return choose(kinds, table, section, default)


def families_of(cls: Any) -> dict[str, str]:
    """The fields of a part that are parts, and of which family."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return {field.name: field.metadata["family"] for field in fields if "family" in field.metadata}


def described(part: Any) -> dict[str, Any]:
    """A part as a table, as `read` takes it."""
    table = {"kind": kind_of(part)} | as_table(part)
    inner = {name: getattr(part, name) for name in families_of(type(part))}
    return table | {name: described(mine) for name, mine in inner.items() if mine is not None}
