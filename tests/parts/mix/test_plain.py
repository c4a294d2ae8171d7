"""Plain mixing: for whole models among peers, whose weights sum to one; everything else is refused."""

import numpy as np
import pytest

from archipel import FedAvg, Federation, Linear
from archipel.combinations import cell
from archipel.errors import BadInput
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.optimiser import Momentum
from archipel.parts.mix.plain import Plain
from archipel.parts.share.portions import Portions
from archipel.simulate.plain import PlainEngine
from archipel.topology import Digraph, Peers, Servers, Star

DATA = Linear(clients=6, size=4, samples=12)


def made(topology, **parts):
    return Federation(DATA, FedAvg(**parts), topology, rounds=10, precision="float64").instance()


@pytest.mark.parametrize("topology", [Star(), Servers(servers=2, shape="complete")])
@pytest.mark.parametrize("mix", [Plain(), Momentum(over=Plain())])
def test_a_server_would_add_up_models_and_never_divide(mix, topology):
    with pytest.raises(BadInput, match=r"algorithm\.mix\.kind .*would be added up"):
        made(topology, mix=mix)
    assert "would be added up" in cell("fedavg", "star", mix="plain").why_not


@pytest.mark.parametrize("topology", [Peers("ring"), Digraph()])
def test_what_a_portion_does_not_say_is_not_zero(topology):
    with pytest.raises(BadInput, match=r"algorithm\.share\.kind .*what is not said as zero"):
        made(topology, mix=Plain(), share=Portions(2))


def test_among_peers_who_are_all_there_it_is_the_mean():
    """Rows of Metropolis weights sum to one, so nothing has to be divided; a portion of all parameters is whole."""
    tables = []
    for parts in ({"mix": Mean(0)}, {"mix": Plain(0)}, {"mix": Plain(0), "share": Portions(4)}):
        instance = made(Peers("ring"), **parts)
        PlainEngine(instance).advance(0, 10)
        tables.append(instance.plan.tables["peer"].model)
    np.testing.assert_allclose(tables[1], tables[0], atol=1e-13)
    np.testing.assert_allclose(tables[2], tables[0], atol=1e-13)
