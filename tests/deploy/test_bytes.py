"""What an update really costs on the wire, counted by a proxy between client and server."""

import threading
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from harness import Village

from archipel import Federation, PaoFed, Synthetic
from archipel.deploy import exchange, post
from archipel.deploy.assemble import FRAMING
from archipel.deploy.node import Node
from archipel.deploy.proxy import Proxy, free_port
from archipel.deploy.real import RealWorld
from archipel.deploy.sources import source_of
from archipel.deploy.view import view_of
from archipel.deployment import Deployment

PROBLEM = Synthetic(clients=1, features=200, test=10, samples=(5000,), horizon=5000)
FEDERATION = Federation(PROBLEM, PaoFed(step=0.1, portion=4), rounds=5000)


@pytest.mark.parametrize("deploy", [{"pace": "clock"}, {"pace": "quorum"}], ids=["clock", "quorum"])
def test_an_update_of_four_parameters_of_two_hundred(deploy):
    """At most 48 bytes up, framing included, and as many down with its acknowledgement."""
    village = Village(FEDERATION.with_(rounds=200), **deploy)
    village.run()
    updates = village.nodes["client-0"].player.messages[1]
    for who in ("client-0", "server"):
        sent = [len(data) + FRAMING for sender, _, data in village.seen.sent if sender == who]
        print(f"{deploy['pace']}: {sum(sent) / updates:.1f} bytes an update from {who}")
        assert updates >= 198 and sum(sent) / updates <= 48


def test_the_framing_is_what_a_proxy_counts(monkeypatch):
    """Zenoh over TCP, with a proxy between the two: frames are as long as `FRAMING` says."""
    pytest.importorskip("zenoh")
    monkeypatch.setattr(exchange, "FIRST", 60.0)
    for name in ("SOONEST", "LONGEST", "LATEST"):  # nothing gets lost here, and a slow machine is no loss
        monkeypatch.setattr(post, name, 600.0)
    federation = FEDERATION.with_(deploy=Deployment(pace="quorum"))
    port = free_port()
    proxy = Proxy(port)
    server = joined(federation, "server", "client-0", [f"tcp/127.0.0.1:{port}"], [])
    client = joined(federation, "client-0", "server", [], [f"tcp/127.0.0.1:{proxy.port}"])
    marks: list[tuple[int, int, int]] = []

    def seen() -> bool:
        """Called between two beats of the client: writes down what every ten updates took."""
        if client.player.messages[1] >= 10 * (len(marks) + 1):
            marks.append((client.player.messages[1], proxy.up, proxy.down))
        return len(marks) == 6

    serving = threading.Thread(target=server.run, args=(lambda: len(marks) == 6,), daemon=True)
    serving.start()
    client.run(seen)
    serving.join()
    for node in (server, client):
        node.close()
    proxy.close()
    assert server.office.traffic["sent again"] == client.office.traffic["sent again"] == 0
    parts = [[y - x for x, y in zip(one, two)] for one, two in pairwise(marks)]
    up, down = (median(part[way] / part[0] for part in parts) for way in (1, 2))
    print(f"{up:.1f} bytes up, {down:.1f} down an update")
    assert 12 + 20 + 8 <= up <= 48 and down <= 48


def joined(federation, name, other, listen, call):
    """A node on the loopback interface, without TLS."""
    from archipel.deploy.zenoh_link import ZenohLink, bare_config

    view = view_of(federation, name)
    link = ZenohLink(name, [other], bare_config(listen, call, view.vocabulary.largest))
    return Node(view, RealWorld(link), federation.deploy, source_of(view, "", Path()))
