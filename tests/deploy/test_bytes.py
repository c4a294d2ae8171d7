"""What an update really costs on the wire, counted by a proxy between client and server."""

import threading
import time
from pathlib import Path

import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.deploy.node import Node
from archipel.deploy.part import part_of
from archipel.deploy.proxy import Proxy, free_port
from archipel.deploy.sources import source_of
from archipel.deployment import Deployment

pytest.importorskip("zenoh")


@pytest.mark.parametrize(
    "deploy", [Deployment(pace="clock", period=0.05), Deployment(pace="quorum")], ids=["clock", "quorum"]
)
def test_an_update_of_four_parameters_of_two_hundred(deploy):
    """At most 48 bytes up, framing included, and as many down with its acknowledgement."""
    from archipel.deploy.zenoh_link import ZenohLink, bare_config

    problem = Synthetic(clients=1, features=200, test=10, samples=(2000,), horizon=2000)
    rounds = 70 if deploy.pace == "clock" else 400
    federation = Federation(problem, PaoFed(step=0.1, portion=4), rounds=rounds, deploy=deploy)
    port = free_port()
    proxy = Proxy(port)
    nodes = []
    for name, other, listen, call in (
        ("server", "client-0", [f"tcp/127.0.0.1:{port}"], []),
        ("client-0", "server", [], [f"tcp/127.0.0.1:{proxy.port}"]),
    ):
        part = part_of(federation, name)
        link = ZenohLink(name, [other], bare_config(listen, call, part.vocabulary.largest))
        nodes.append(Node(part, link, deploy, None, source_of(part, "", Path())))
    server, client = nodes
    stop = threading.Event()
    threads = [threading.Thread(target=node.run, args=(stop.is_set, 30.0), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while client.player.messages[1] < 10 and time.monotonic() < end:
        time.sleep(0.001)
    first = client.player.messages[1], proxy.up, proxy.down
    while not client.player.finished and client.player.messages[1] < rounds - 10 and time.monotonic() < end:
        time.sleep(0.001)
    last = client.player.messages[1], proxy.up, proxy.down
    stop.set()
    for thread in threads:
        thread.join(10)
    for node in nodes:
        node.close()
    proxy.close()
    updates, up, down = (b - a for a, b in zip(first, last))
    assert updates >= 30 and server.office.traffic["sent again"] == client.office.traffic["sent again"] == 0
    print(f"{deploy.pace}: {up / updates:.1f} bytes up, {down / updates:.1f} down an update, over {updates}")
    assert up / updates <= 48 and down / updates <= 48
    assert up / updates >= 12 + 20 + 8  # a proxy that counts
