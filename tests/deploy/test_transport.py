"""One suite for every transport: whatever the network does, each letter arrives once and in order."""

import heapq
import itertools
import random
import time
from typing import Any

import numpy as np
import pytest

from archipel.deploy import exchange, post, wire, zenoh_link
from archipel.deploy.post import PostOffice
from archipel.deploy.proxy import free_port
from archipel.deploy.real import RealWorld
from archipel.deploy.wire import Vocabulary
from archipel.parts.share.portions import Portion
from archipel.turns import Tell, Turn

WORD = Portion(np.zeros(4, np.float32), np.zeros(1, np.uint32))
TURNS = (Tell("s", "c", None, None, WORD), Turn("c", "s", None, None, None, WORD, None))
VOCABULARY = Vocabulary(TURNS, 200, 1_000_000)
DIGEST = b"the same"
LATEST = 600  # seconds: only what hangs takes so long


class VirtualNetwork:
    """Two nodes in this process, with a clock of their own: two milliseconds pass whenever one of them waits."""

    def __init__(self) -> None:
        self.time = 0.0
        self.boxes: dict[str, list[tuple[str, bytes]]] = {}

    def join(self, name: str) -> Any:
        self.boxes[name] = []
        return VirtualLink(self, name)

    def world(self, link: Any) -> Any:
        return VirtualWorld(self, link)

    def now(self) -> float:
        return self.time


class VirtualLink:
    def __init__(self, network: VirtualNetwork, name: str):
        self.network, self.name, self.box = network, name, network.boxes[name]

    def send(self, to: str, data: bytes) -> None:
        if to in self.network.boxes:
            self.network.boxes[to].append((self.name, data))

    def receive(self) -> tuple[str, bytes] | None:
        return self.box.pop(0) if self.box else None

    def wait(self, seconds: float) -> bool:
        self.network.time += seconds
        return bool(self.box)

    def close(self) -> None:
        self.network.boxes.pop(self.name, None)


class VirtualWorld(RealWorld):
    def __init__(self, network: VirtualNetwork, link: Any):
        super().__init__(link)
        self.network = network

    def now(self) -> float:
        return self.network.time


class ZenohNetwork:
    """Two nodes that talk through the loopback interface."""

    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        pytest.importorskip("zenoh")
        self.endpoint = f"tcp/127.0.0.1:{free_port()}"

    def join(self, name: str) -> Any:
        from archipel.deploy.zenoh_link import ZenohLink, bare_config

        listens = name == "a"
        config = bare_config([self.endpoint] if listens else [], [] if listens else [self.endpoint], 1 << 20)
        return ZenohLink(name, ["b" if listens else "a"], config)

    def world(self, link: Any) -> Any:
        return RealWorld(link)


class Faulty:
    """A link that loses, repeats, delays and so reorders what it is given, by a seed."""

    def __init__(self, network: Any, link: Any, seed: int, loss: float = 0.0, repeat: float = 0.0, delay: float = 0.0):
        self.network, self.link, self.random = network, link, random.Random(seed)
        self.loss, self.repeat, self.delay = loss, repeat, delay
        self.later: list[tuple[float, int, str, bytes]] = []
        self.order = itertools.count()

    def send(self, to: str, data: bytes) -> None:
        for _ in range(2 if self.random.random() < self.repeat else 1):
            if self.random.random() >= self.loss:
                due = self.network.now() + self.random.random() * self.delay
                heapq.heappush(self.later, (due, next(self.order), to, data))
        self.deliver()

    def deliver(self) -> None:
        """Hand over what is due."""
        while self.later and self.later[0][0] <= self.network.now():
            _, _, to, data = heapq.heappop(self.later)
            self.link.send(to, data)

    def receive(self) -> tuple[str, bytes] | None:
        self.deliver()
        return self.link.receive()

    def wait(self, seconds: float) -> bool:
        self.deliver()
        return self.link.wait(seconds)

    def close(self) -> None:
        self.link.close()


NETWORKS = {"virtual": VirtualNetwork, "zenoh": ZenohNetwork}


@pytest.fixture(params=list(NETWORKS))
def network(request: Any) -> Any:
    return NETWORKS[request.param]()


class Node:
    """A node that counts: it posts the numbers 0, 1, 2, ... and writes down those it gets. It can be killed."""

    def __init__(self, network: Any, name: str, other: str, **faults: Any):
        self.network, self.name, self.other, self.faults = network, name, other, faults
        self.disk: Any = None
        self.life = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        seed = 100 * self.life + ord(self.name)
        self.link = Faulty(self.network, self.network.join(self.name), seed, **self.faults)
        self.office = PostOffice(self.network.world(self.link), {self.other: b""}, VOCABULARY, DIGEST)
        self.posted, self.got = 0, []
        if self.disk is not None:
            state, self.posted, got = self.disk
            self.office.restore(state)
            self.got = list(got)

    def kill(self) -> None:
        """All is gone but the last checkpoint."""
        self.link.close()
        self.start()

    def live(self, until: int, checkpoint: bool = True) -> None:
        self.link.wait(0.002)
        self.office.pump()
        taken = len(self.got)
        while self.office.waiting(self.other):
            self.got.append(self.office.take(self.other).round)
        if self.posted < until:
            self.office.post(self.other, wire.NOTHING, 0, self.posted)  # a kind that no later one supersedes
            self.posted += 1
        if checkpoint and (self.office.posted or len(self.got) > taken):
            self.disk = self.office.state(), self.posted, tuple(self.got)
            self.office.commit()


def converse(network: Any, count: int, kills: int = 0, **faults: Any) -> tuple[Node, Node]:
    """Two nodes post `count` numbers each; whatever happens, both get all of them, in order, once."""
    nodes = Node(network, "a", "b", **faults), Node(network, "b", "a", **faults)
    draw, end = random.Random(1), time.monotonic() + LATEST
    deaths = draw.sample(range(count), kills)
    step = 0
    while time.monotonic() < end:
        for node in nodes:
            node.live(count, checkpoint=draw.random() < 0.5 or node.posted >= count)
        if step in deaths:
            nodes[draw.randrange(2)].kill()
        step += 1
        if all(len(node.got) >= count and not node.office.neighbours[node.other].letters for node in nodes):
            break
    for node in nodes:
        node.link.close()
        assert node.got == list(range(count))
    return nodes


@pytest.fixture(autouse=True)
def impatient(monkeypatch: Any) -> None:
    """Loss is noticed after milliseconds here, and connections made anew, so that the suite is short."""
    monkeypatch.setattr(zenoh_link, "RETRY", zenoh_link.RETRY | {"period_init_ms": 10, "period_max_ms": 100})
    monkeypatch.setattr(exchange, "FIRST", 0.05)
    monkeypatch.setattr(post, "LONGEST", 0.1)
    monkeypatch.setattr(post, "SOONEST", 0.02)
    monkeypatch.setattr(exchange, "HELLO_EVERY", 0.02)
    monkeypatch.setattr(post, "TICK", 0.005)
    monkeypatch.setattr(post, "LATEST", 0.3)


def test_all_is_well(network, monkeypatch):
    monkeypatch.setattr(exchange, "FIRST", 60.0)
    for name in ("SOONEST", "LONGEST", "LATEST"):  # a slow machine is no loss
        monkeypatch.setattr(post, name, 60.0)
    a, _ = converse(network, 100)
    assert a.office.traffic["sent again"] == 0 and not a.office.faults


def test_loss(network):
    a, _ = converse(network, 40, loss=0.3)
    assert a.office.traffic["sent again"] > 0


def test_repeats(network):
    a, _ = converse(network, 100, repeat=0.5)
    assert a.office.traffic["repeats"] > 0


def test_delay_and_reordering(network):
    converse(network, 60, delay=0.02)


def test_all_at_once(network):
    converse(network, 60, loss=0.2, repeat=0.2, delay=0.01)


def test_restarts(network):
    a, b = converse(network, 100, kills=12, loss=0.1)
    assert a.life + b.life == 2 + 12


def test_garbage_and_oversize(network):
    """Among good letters: noise, frames of other versions, huge ones. They are counted, the rest arrives."""
    draw = random.Random(3)
    nodes = Node(network, "a", "b"), Node(network, "b", "a")
    end, wanted = time.monotonic() + LATEST, ("oversize", "another version", "from another life")
    while time.monotonic() < end and any(
        len(node.got) < 50 or min(node.office.faults[fault] for fault in wanted) <= 10 for node in nodes
    ):
        for node in nodes:
            node.live(50)
            node.link.send(node.other, draw.randbytes(draw.randrange(60)))
            node.link.send(node.other, wire.pack(wire.WORD, 1, False, 0, 0, 0, 0, bytes(20)))
            node.link.send(node.other, bytes(5000))
    for node in nodes:
        node.link.close()
        assert node.got == list(range(50))
        faults = node.office.faults
        assert faults["oversize"] > 10 and faults["another version"] > 10 and faults["from another life"] > 10, faults


def test_a_neighbour_with_an_empty_disk_is_a_new_one(network):
    a, b = Node(network, "a", "b"), Node(network, "b", "a")
    end = time.monotonic() + LATEST
    while time.monotonic() < end and (len(a.got) < 10 or len(b.got) < 10 or a.office.neighbours["b"].letters):
        a.live(10), b.live(10)
    assert a.got == b.got == list(range(10))
    b.disk = None
    b.kill()
    while time.monotonic() < end and (len(b.got) < 10 or len(a.got) < 20):
        a.live(20), b.live(10)
    assert a.got == [*range(10), *range(10)] and b.got == list(range(10, 20))
    assert a.office.traffic["neighbours that lost their disk"] == 1
    a.link.close(), b.link.close()


def test_a_store_that_was_taken_for_gone_and_is_back_counts_anew():
    """Two nodes of one name, with two disks, then one of them again: what it says arrives."""
    network = VirtualNetwork()
    a, b = Node(network, "a", "b"), Node(network, "b", "a")
    end = time.monotonic() + LATEST

    def exchange(theirs, mine):
        """Until both have got the other's last number."""
        while time.monotonic() < end and (a.got[-1:] != [mine - 1] or b.got[-1:] != [theirs - 1]):
            a.live(theirs), b.live(mine)
        assert time.monotonic() < end

    exchange(10, 10)
    first = b.disk
    for disk, count in ((None, 11), (first, 20)):
        b.disk = disk
        b.kill()
        exchange(2 * count, count)
    assert not a.office.neighbours["b"].twice, "not so soon"


def test_another_description_is_refused(network):
    a, b = Node(network, "a", "b"), Node(network, "b", "a")
    b.office.digest = b"another!"
    end = time.monotonic() + LATEST
    while time.monotonic() < end and not a.office.faults["runs another description"]:
        a.live(5), b.live(5)
    for _ in range(20):
        a.live(5), b.live(5)
    assert not a.got and not b.got and a.office.faults["runs another description"] >= 1
    a.link.close(), b.link.close()


def test_an_older_state_learns_of_what_was_taken_of_it_before_it_says_anything_new():
    """Its neighbour has taken letters, has not saved that yet, and says something itself meanwhile."""
    network = VirtualNetwork()
    a, b = Node(network, "a", "b"), Node(network, "b", "a")
    for _ in range(50):
        a.live(2), b.live(2)
    a.live(3)
    older = a.disk
    a.live(4), a.live(5)
    b.live(3, checkpoint=False)
    assert b.office.took and b.got[-1] == 4
    a.disk = older
    a.kill()
    said = network.boxes["b"]
    for n in range(4):
        network.boxes["a"].append(("b", wire.pack(wire.ACK, 0, False, a.office.neighbours["b"].tags[1], 0, 3, 0)))
        a.live(20 + n)
    assert not a.office.neighbours["b"].heard and {wire.is_greeting(data) for _, data in said} == {True}
    b.office.pump()
    assert b.office.met, "answered when what was taken is saved"
    b.office.commit()
    b.live(3), a.live(20)
    assert a.office.neighbours["b"].ahead and not b.office.met


def test_after_a_restart_a_crowded_outbox_is_looked_through_to_its_first_letter_only():
    network = VirtualNetwork()
    a, b = Node(network, "a", "b"), Node(network, "b", "a")
    for _ in range(400):
        a.live(200), b.live(0)
    a.disk = a.office.state(), a.posted, tuple(a.got)
    assert not a.office.neighbours["b"].letters and a.office.neighbours["b"].acked == 200
    a.kill()
    for n in range(exchange.CROWDED + 20):
        a.office.post("b", wire.NOTHING, 0, n)
        a.office.commit()
    a.office.post("b", wire.QUIET, 1, n)
    assert len(a.office.neighbours["b"].letters) == exchange.CROWDED + 21


class Forked:
    """A link to all who have a name: what is sent waits in a list."""

    def __init__(self, ends):
        self.ends, self.sent = ends, []

    def send(self, to, data):
        self.sent += [(end, data) for end in self.ends[to]]


def test_two_nodes_of_one_name_are_noticed_and_do_not_greet_for_ever(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(post.LOG, "warning", lambda text, *given: said.append(text % given))
    monkeypatch.setattr(exchange, "HELLO_EVERY", 0.3)
    ends: dict[str, list[Any]] = {"a": [], "b": []}
    network, link = VirtualNetwork(), Forked(ends)
    for name, other in (("a", "b"), ("b", "a"), ("b", "a")):
        ends[name].append(PostOffice(network.world(link), {other: b""}, VOCABULARY, DIGEST))
    while network.time < 0.5:
        network.time += 0.001
        for office in (*ends["a"], *ends["b"]):
            office.tick()
        for _ in range(len(link.sent)):
            office, data = link.sent.pop(0)
            office.arrived("b" if office in ends["a"] else "a", data)
    assert sum(office.traffic["hellos"] for office in (*ends["a"], *ends["b"])) < 100
    assert [text.partition(",")[0] for text in said if "twice" in text] == ["b seems to run twice"]
