"""What an update really costs on the wire, counted by a proxy between client and server."""

import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.deploy import post
from archipel.deploy.node import Node
from archipel.deploy.proxy import Proxy, free_port
from archipel.deploy.sources import source_of
from archipel.deploy.view import view_of
from archipel.deployment import Deployment

pytest.importorskip("zenoh")


@pytest.mark.parametrize(
    "deploy", [Deployment(pace="clock", period=0.04), Deployment(pace="quorum")], ids=["clock", "quorum"]
)
def test_an_update_of_four_parameters_of_two_hundred(deploy, monkeypatch):
    """At most 48 bytes up, framing included, and as many down with its acknowledgement."""
    for name in ("FIRST", "SOONEST", "LATEST"):  # nothing gets lost here, and a slow machine is no loss
        monkeypatch.setattr(post, name, 600.0)
    problem = Synthetic(clients=1, features=200, test=10, samples=(5000,), horizon=5000)
    federation = Federation(problem, PaoFed(step=0.1, portion=4), rounds=5000, deploy=deploy)
    port = free_port()
    proxy = Proxy(port)
    server = joined(federation, "server", "client-0", [f"tcp/127.0.0.1:{port}"], [])
    client = joined(federation, "client-0", "server", [], [f"tcp/127.0.0.1:{proxy.port}"])
    stop = threading.Event()
    threads = [threading.Thread(target=node.run, args=(stop.is_set, 30.0), daemon=True) for node in (server, client)]
    for thread in threads:
        thread.start()
    marks, end = [], time.monotonic() + 60
    while len(marks) < 6 and time.monotonic() < end:
        time.sleep(0.001)
        if client.player.messages[1] >= 10 * (len(marks) + 1):
            marks.append((client.player.messages[1], proxy.up, proxy.down))
    stop.set()
    for thread in threads:
        thread.join(10)
    for node in (server, client):
        node.close()
    proxy.close()
    assert len(marks) == 6 and server.office.traffic["sent again"] == client.office.traffic["sent again"] == 0
    # the median of stretches: in a round that a loaded machine misses, a question is asked without an update
    parts = [[y - x for x, y in zip(one, two)] for one, two in pairwise(marks)]
    up, down = (median(part[way] / part[0] for part in parts) for way in (1, 2))
    print(f"{deploy.pace}: {up:.1f} bytes up, {down:.1f} down an update")
    assert up <= 48 and down <= 48
    assert up >= 12 + 20 + 8  # a proxy that counts


def joined(federation, name, other, listen, call):
    """A node on the loopback interface, without TLS."""
    from archipel.deploy.zenoh_link import ZenohLink, bare_config

    view = view_of(federation, name)
    link = ZenohLink(name, [other], bare_config(listen, call, view.vocabulary.largest))
    return Node(view, link, federation.deploy, None, source_of(view, "", Path()))
