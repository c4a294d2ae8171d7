"""Models that stay in a region: what words and mixes may leave is projected back, or refused."""

import numpy as np
import pytest

from archipel import Delay, Drifting, Environment, Federation
from archipel.algorithms.dp_fedavg import DpFedAvg
from archipel.algorithms.mirror import MirrorDescent, PublishedMirrorDescent
from archipel.environment import Attack
from archipel.errors import BadInput
from archipel.parts.mix.buffered import Buffered
from archipel.parts.mix.by_age import ByAge
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.optimiser import Adam, Momentum
from archipel.parts.mix.robust import GeometricMedian, Krum, Median, TrimmedMean
from archipel.parts.mix.vote import Vote
from archipel.parts.share.portions import Portions
from archipel.parts.share.quantised import Quantised
from archipel.parts.share.signs import Signs
from archipel.parts.share.top_k import TopK
from archipel.parts.share.whole import Whole
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_engines_agree
from archipel.topology import Peers, Servers, Star

APART = Drifting(clients=6, size=4, loss="linear", lean=1.0)
LATE = Environment(availability=0.7, delay=Delay(delta=0.5, limit=3))
STAR, SERVERS, PEERS = Star(), Servers(servers=3, shape="complete"), Peers("ring")
ENTROPY = {"region": "simplex", "map": "entropy", "step": 0.8}
INSIDE = {
    "ball": lambda models: np.linalg.norm(models, axis=1) <= 1 + 1e-12,
    "box": lambda models: (np.abs(models) <= 1 + 1e-12).all(1),
    "simplex": lambda models: (models >= -1e-12).all(1) & (np.abs(models.sum(1) - 1) <= 1e-12),
}


def made(algorithm, topology, environment=None):
    return Federation(APART, algorithm, topology, environment or Environment(), rounds=25)


def everyone(federation):
    """The models of all nodes after each round."""
    instance = federation.instance()
    engine = PlainEngine(instance)
    for n in range(federation.rounds):
        engine.advance(n, n + 1)
        yield np.concatenate([table.model for table in instance.plan.tables.values()])


@pytest.mark.parametrize("region", ["ball", "box", "simplex"])
@pytest.mark.parametrize(
    ("topology", "parts"),
    [
        (STAR, {"mix": Median()}),
        (SERVERS, {"mix": TrimmedMean(share=0.4)}),
        (PEERS, {"mix": Median()}),
        (STAR, {"mix": Momentum(over=Mean(0))}),
        (PEERS, {"mix": Momentum(over=Mean(0))}),
        (SERVERS, {"mix": Adam(1.0, over=Mean(0))}),
        (STAR, {"mix": Mean(3), "share": Whole(True)}),
        (PEERS, {"mix": Mean(3)}),
        (STAR, {"mix": Buffered(2, 3.0), "share": Whole(True)}),
        (STAR, {"mix": Vote(0.5), "share": Whole(True)}),
        (STAR, {"mix": ByAge(0.9, False, 3)}),
    ],
    ids=lambda given: type(given).__name__ if not isinstance(given, dict) else type(given["mix"]).__name__,
)
def test_whatever_the_mix_models_stay_in_the_region(topology, parts, region):
    algorithm = MirrorDescent(region=region, step=2.0, decay=0.2, **parts)
    for models in everyone(made(algorithm, topology, LATE)):
        assert INSIDE[region](models).all()


@pytest.mark.parametrize("topology", [STAR, SERVERS])
@pytest.mark.parametrize("mix", [None, Mean(3), Median(), Momentum(over=Mean(0))])
def test_steps_that_a_server_takes_end_in_the_region_too(mix, topology):
    for models in everyone(made(DpFedAvg(step=2.0, decay=0.2, mix=mix), topology, LATE)):
        assert INSIDE["ball"](models).all()


def test_words_that_would_leave_the_region_are_refused():
    shares = {"ball": [Portions(2), Signs(0.3), TopK(2), Quantised(4)], "box": [Signs(0.3), TopK(2), Quantised(4)]}
    for region, found in (*shares.items(), ("simplex", shares["ball"])):
        for share in found:
            with pytest.raises(BadInput, match=rf"algorithm\.share\.kind .*would leave the {region}"):
                made(MirrorDescent(region=region, share=share, mix=Mean(0)), STAR).instance()
    for kind in (MirrorDescent(share=Portions(2), mix=Mean(0)), PublishedMirrorDescent(share=Portions(2), mix=Mean(0))):
        with pytest.raises(BadInput, match="would leave the"):
            made(kind, PEERS).instance()


@pytest.mark.parametrize("mix", [Median(), TrimmedMean(), Momentum(over=Mean(0)), Adam(over=Mean(0)), ByAge(1, False)])
def test_entropy_has_no_way_back(mix):
    with pytest.raises(BadInput, match=r"algorithm\.mix\.kind .*would leave the simplex"):
        made(MirrorDescent(**ENTROPY, mix=mix), STAR).instance()


@pytest.mark.parametrize(("topology", "share"), [(STAR, Whole(True)), (PEERS, Whole())])
def test_what_is_late_would_leave_the_simplex(topology, share):
    """Late changes are of another model; late models among peers have weights that add up to more than one."""
    with pytest.raises(BadInput, match=r"algorithm\.mix\.limit = 2: .*leave the simplex"):
        made(MirrorDescent(**ENTROPY, share=share, mix=Mean(2)), topology).instance()
    made(MirrorDescent(**ENTROPY, share=share, mix=Mean(0)), topology).instance()


@pytest.mark.parametrize(
    "parts", [{}, {"mix": Krum()}, {"mix": GeometricMedian()}, {"mix": ByAge()}, {"mix": Mean(0), "share": Whole(True)}]
)
def test_means_of_whole_models_stay_inside_by_themselves(parts):
    """And what is anywhere may be said in parts; so may models of a box, whose parameters are free one by one."""
    for models in everyone(made(MirrorDescent(**ENTROPY, **parts), STAR, LATE)):
        assert INSIDE["simplex"](models).all()
    made(MirrorDescent(region="anywhere", step=0.1, share=TopK(2), mix=Mean(0)), STAR).instance()
    for models in everyone(made(MirrorDescent(region="box", step=2.0, share=Portions(2), mix=Mean(0)), PEERS)):
        assert INSIDE["box"](models).all()


def test_engines_agree_on_the_way_back():
    check_engines_agree(made(MirrorDescent(step=2.0, decay=0.2, mix=Median()), SERVERS, LATE), parallel=False)


@pytest.mark.parametrize("topology", [STAR, PEERS])
@pytest.mark.parametrize("kind", ["sign-flip", "gaussian"])
def test_lies_do_not_lead_out_of_a_region(topology, kind):
    attacked = Environment(attack=Attack(share=0.4, kind=kind, strength=20.0))
    for models in everyone(made(MirrorDescent(region="ball"), topology, attacked)):
        assert INSIDE["ball"](models).all()
    with pytest.raises(BadInput, match=r"environment\.attack\.kind .* expected \"labels\": what liars say"):
        made(MirrorDescent(**ENTROPY), topology, attacked).instance()
