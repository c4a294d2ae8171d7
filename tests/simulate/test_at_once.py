"""A server that hears its clients before those of the next one act hears what it would hear after all of them."""

from archipel import Federation
from archipel.algorithms.pgfl import Pgfl
from archipel.problems.clustered import Related
from archipel.simulate import compiled, laid
from archipel.testing import check_engines_agree
from archipel.topology import Servers

PROBLEM = Related(clients=14, tasks=2, size=5, samples=(2, 6), test=5)


def test_heard_at_once_is_heard_in_turn(monkeypatch):
    federation = Federation(PROBLEM, Pgfl(some=2, tau=0.3), Servers(servers=4, clusters=2), rounds=8)
    assert laid.heard_at_once(federation.instance()) == 0, "too few servers for all threads"
    for module in (laid, compiled):
        monkeypatch.setattr(module, "SHARED", 2)
    assert laid.heard_at_once(federation.instance()) > 2
    check_engines_agree(federation, parallel=True)  # the plain engine plays step by step
