"""The names that descriptions use. A new algorithm or problem is one file and one line here."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

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
        "pao-fed": "archipel.algorithms.online:PaoFed",
        "pso-fed": "archipel.algorithms.online:PsoFed",
        "online-fedsgd": "archipel.algorithms.online:OnlineFedSgd",
        "online-fed": "archipel.algorithms.online:OnlineFed",
        "sign-sgd": "archipel.algorithms.sign_sgd:SignSgd",
        "pldp-fl": "archipel.algorithms.pldp_fl:PldpFl",
        "zcdp-nfl": "archipel.algorithms.zcdp_nfl:ZcdpNfl",
        "dp-nfl": "archipel.algorithms.zcdp_nfl:DpNfl",
        "zcdp-grad-nfl": "archipel.algorithms.zcdp_nfl:ZcdpGradNfl",
        "p-admm": "archipel.algorithms.p_admm:PAdmm",
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
        "fedavg-deep": "archipel.algorithms.fedavg_deep:FedAvgDeep",
        "mirror-deep": "archipel.algorithms.mirror_deep:MirrorDeep",
        "dp-fedavg-deep": "archipel.algorithms.fedavg_deep:DpFedAvgDeep",
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
        "files": "archipel.problems.measured:Files",
        "deep": "archipel.problems.deep:Deep",
    }
)


def kind_of(part: Any) -> str:
    """The name of a part in descriptions.

    >>> from archipel import PaoFed
    >>> kind_of(PaoFed())
    'pao-fed'
    """
    cls = type(part)
    home = f"{cls.__module__}:{cls.__qualname__}"
    named = [*ALGORITHMS.homes.items(), *PROBLEMS.homes.items()]
    named += [(name, f"{kind.__module__}:{kind.__qualname__}") for name, kind in TOPOLOGIES.items()]
    return next((name for name, place in named if place == home), cls.__name__)
