"""The names that descriptions use. A new algorithm or problem is one file and one line here."""

from typing import Any

from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.fedavg_deep import DpFedAvgDeep, FedAvgDeep
from archipel.algorithms.npfl import Nfl, Npfl, NpflRl
from archipel.algorithms.online_fed import OnlineFed, OnlineFedSgd
from archipel.algorithms.p_admm import PAdmm
from archipel.algorithms.pao_fed import PaoFed, PsoFed
from archipel.algorithms.pgfl import ClusterFl, Gfl, Pgfl
from archipel.algorithms.pldp_fl import PldpFl
from archipel.algorithms.sign_sgd import SignSgd
from archipel.algorithms.zcdp_nfl import DpNfl, ZcdpGradNfl, ZcdpNfl
from archipel.problems.clustered import BeijingStations, Pictures, Related
from archipel.problems.deep import Deep
from archipel.problems.linear import Linear
from archipel.problems.measured import BeijingAir, Calcofi, Files
from archipel.problems.networked import Regression
from archipel.problems.synthetic import Synthetic
from archipel.topology import TOPOLOGIES

ALGORITHMS: dict[str, type] = {
    "pao-fed": PaoFed,
    "pso-fed": PsoFed,
    "online-fedsgd": OnlineFedSgd,
    "online-fed": OnlineFed,
    "sign-sgd": SignSgd,
    "pldp-fl": PldpFl,
    "zcdp-nfl": ZcdpNfl,
    "dp-nfl": DpNfl,
    "zcdp-grad-nfl": ZcdpGradNfl,
    "p-admm": PAdmm,
    "pgfl": Pgfl,
    "gfl": Gfl,
    "clusterfl": ClusterFl,
    "nfl": Nfl,
    "npfl": Npfl,
    "npfl-rl": NpflRl,
    "fedavg": FedAvg,
    "fedavg-deep": FedAvgDeep,
    "dp-fedavg-deep": DpFedAvgDeep,
}

PROBLEMS: dict[str, type] = {
    "synthetic": Synthetic,
    "linear": Linear,
    "regression": Regression,
    "calcofi": Calcofi,
    "beijing-air": BeijingAir,
    "beijing-stations": BeijingStations,
    "related": Related,
    "pictures": Pictures,
    "files": Files,
    "deep": Deep,
}


def kind_of(part: Any) -> str:
    """The name of a part in descriptions.

    >>> kind_of(PaoFed())
    'pao-fed'
    """
    for kinds in (ALGORITHMS, PROBLEMS, TOPOLOGIES):
        for name, cls in kinds.items():
            if type(part) is cls:
                return name
    return type(part).__name__
