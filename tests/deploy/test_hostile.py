"""Who must not take part cannot, and ten thousand hostile messages change nothing."""

import random
import time
from collections import Counter

import numpy as np
import pytest
from harness import Village, assert_same, simulated
from test_replay import TABLE

from archipel.deploy import keys, wire
from archipel.deploy.proxy import free_port
from archipel.deploy.wire import tag


def hostile(draw, node, overheard, vocabulary):
    """One hostile message, of a kind that chance chooses: to whom, and the bytes."""
    to = draw.choice(list(node.office.neighbours))
    other = node.office.neighbours[to]
    mark = tag(node.office.mine, other.theirs)
    turn = draw.randrange(len(vocabulary.words))
    size = vocabulary.words[turn].size
    kind = draw.randrange(9)
    if kind == 0:
        return to, draw.randbytes(draw.randrange(80))
    if kind == 1:  # wrong sizes
        wrong = draw.choice([n for n in range(size + 40) if n not in (0, size)])
        return to, wire.pack(vocabulary.words[turn].kind, turn, False, mark, other.next_out, 0, 0, bytes(wrong))
    if kind == 2:  # NaN, infinity
        first = vocabulary.words[turn].fields[0]
        bad = np.zeros(first.shape, first.dtype)
        bad[draw.randrange(len(bad))] = draw.choice([np.nan, np.inf, -np.inf])
        bad = bad.tobytes() + bytes(size - first.end)
        return to, wire.pack(vocabulary.words[turn].kind, turn, False, mark, other.next_out, 0, 0, bad)
    if kind == 3:  # another version
        return to, bytes([draw.choice([0x02, 0x12, 0xF2])]) + draw.randbytes(31)
    if kind == 4 and overheard:  # a replay
        return draw.choice(overheard)
    if kind == 5:  # from another life
        return to, wire.pack(vocabulary.words[turn].kind, turn, True, mark ^ 1, other.next_out, 0, 3, bytes(size))
    if kind == 6:  # oversize
        return to, bytes(100_000)
    if kind == 7:  # far beyond the window, or an acknowledgement of what was never sent
        acked = other.next_in
        seq, ack = (other.next_out + 5000, acked) if draw.random() < 0.5 else (0, acked + 20_000)
        return to, wire.pack(wire.QUIET, turn, False, mark, seq, ack, 3)
    return to, wire.pack(draw.randrange(len(wire.KINDS), 16), 1, False, mark, other.next_out, 0, 3)  # no such kind


@pytest.mark.parametrize("name", ["pao-fed-c2", "zcdp-nfl"])
def test_ten_thousand_hostile_messages(name, caplog):
    """They are counted and logged once a kind; the model is the simulation's, the ledgers too."""
    village = Village(TABLE[name])
    draw, sent, spoken = random.Random(1), [0], village.seen.sent

    def each(who):
        """Someone else also speaks, in the node's own name."""
        node = village.hosts[who].node
        if sent[0] >= 10_000 or node is None or not all(other.theirs for other in node.office.neighbours.values()):
            return
        overheard = [(to, data) for sender, to, data in spoken[-200:] if sender == who]
        for _ in range(60):
            to, data = hostile(draw, node, overheard, node.view.vocabulary)
            village.world.at(village.world.time, village.world.deliver, who, to, data)
            sent[0] += 1

    village.run(each)
    assert_same(village, simulated(TABLE[name]))
    faults = sum((node.office.faults for node in village.nodes.values()), start=Counter())
    wanted = ["too short", "wrong size", "NaN or infinity", "another version", "from another life", "oversize"]
    wanted += ["beyond the window", "acknowledges what was never sent", "unknown kind"]
    assert sent[0] >= 10_000 and all(faults[fault] > 100 for fault in wanted), (sent, faults)
    assert sum(node.office.traffic["repeats"] for node in village.nodes.values()) > 100
    assert sum(faults.values()) > 6000
    logged = [record for record in caplog.records if "refused" in record.message]
    assert len(logged) <= len(faults) * len(village.nodes)


def test_a_letter_that_is_not_the_senders_business_is_thrown_away():
    """A client cannot answer for the server, ask for others or speak twice in a round."""
    village = Village(TABLE["pao-fed-c2"])
    server = village.nodes["server"]
    mailbox = server.player.mailbox
    mailbox.sort(0, wire.Frame(wire.TOLD, 0, False, 0, 0, 0, 3, bytes(20)))
    mailbox.sort(0, wire.Frame(wire.HERE, 1, False, 0, 0, 0, 3, b""))
    mailbox.sort(0, wire.Frame(wire.OVER, 0, False, 0, 0, 0, 3, b""))  # it can take its own leave
    assert mailbox.left.sum() == 1 and mailbox.left[0]
    assert mailbox.faults["not its turn"] == 2 and not mailbox.told and not mailbox.over
    for _ in range(2):
        mailbox.sort(1, wire.Frame(wire.WORD, 1, False, 0, 0, 0, 3, bytes(20)))
    assert mailbox.faults["said twice in a round"] == 1 and len(mailbox.words[1]) == 1


# --- certificates ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    pytest.importorskip("zenoh")
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    keys.make(ours, {"server": ["127.0.0.1"], "a": [], "b": []})
    keys.make(theirs, {"a": []})
    for suffix in (".pem", ".key"):  # b's certificate under a's name
        (ours / f"thief{suffix}").write_bytes((ours / f"b{suffix}").read_bytes())
    (theirs / "authority.pem").write_bytes((ours / "authority.pem").read_bytes())
    return ours, theirs


def client(folder, certificate, name, endpoint):
    """Someone who says to be `name`, with some certificate or none."""
    from archipel.deploy.zenoh_link import ZenohLink, bare_config, tls

    settings = bare_config([], [endpoint], 1000) | tls(folder, certificate)
    if certificate == "none":
        settings["transport/link/tls"] = {"root_ca_certificate": str(folder / "authority.pem"), "enable_mtls": False}
    return ZenohLink(name, ["server"], settings)


def test_only_who_has_a_certificate_speaks_and_only_as_itself(authorities):
    from archipel.deploy.zenoh_link import ZenohLink, access, bare_config, tls

    ours, theirs = authorities
    endpoint = f"tls/127.0.0.1:{free_port()}"
    settings = bare_config([endpoint], [], 1000) | tls(ours, "server") | access("server", ["a", "b"])
    server = ZenohLink("server", ["a", "b"], settings)
    links = {
        "itself": client(ours, "a", "a", endpoint),
        "without a certificate": client(ours, "none", "a", endpoint),
        "another authority's": client(theirs, "a", "a", endpoint),
        "b as a": client(ours, "thief", "a", endpoint),
    }
    heard, told, end = Counter(), {}, time.monotonic() + 600
    while time.monotonic() < end and (heard["a", b"itself"] < 20 or "itself" not in told):
        for who, link in links.items():
            link.send("server", who.encode())
            if (found := link.receive()) is not None:
                told[who] = found
        server.send("a", b"for a")
        server.wait(0.05)
        while (found := server.receive()) is not None:
            heard[found] += 1
    for link in (*links.values(), server):
        link.close()
    assert set(heard) == {("a", b"itself")} and heard["a", b"itself"] >= 20
    assert told == {"itself": ("server", b"for a")}


def test_a_listener_with_another_nodes_certificate_is_not_taken_for_the_server(authorities):
    """It has a certificate of the right authority, but not for this address."""
    from archipel.deploy.zenoh_link import ZenohLink, bare_config, tls

    ours, _ = authorities
    endpoint = f"tls/127.0.0.1:{free_port()}"
    impostor = ZenohLink("server", ["a"], bare_config([endpoint], [], 1000) | tls(ours, "b"))
    a = client(ours, "a", "a", endpoint)
    careless = bare_config([], [endpoint], 1000) | tls(ours, "a")
    careless["transport/link/tls"]["verify_name_on_connect"] = False
    trusting, heard, end = ZenohLink("a", ["server"], careless), 0, time.monotonic() + 600
    while heard < 20 and time.monotonic() < end:  # as often as whoever does not look at the address hears it
        impostor.send("a", b"trust me")
        heard += trusting.wait(0.05) and trusting.receive() is not None
        assert a.receive() is None
    for link in (a, trusting, impostor):
        link.close()
    assert heard == 20


def test_an_edge_that_does_not_exist_carries_nothing():
    village = Village(TABLE["zcdp-nfl"])
    names = [member.name for member in village.roster.members]
    apart = [(a, b) for a in names for b in names if a != b and (a, b) not in village.world.edges]
    assert apart
    a, b = apart[0]
    village.nodes[a].world.link.send(b, b"psst")
    assert village.world.refused == [(a, b)]
    village.nodes[b].office.arrived(a, b"psst")
    assert village.nodes[b].office.faults["from a stranger"] == 1
