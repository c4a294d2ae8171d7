"""Masked words on the network: sums to the bit whoever drops, nothing of a word to be read, liars named, its bytes."""

import logging
import random
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from harness import Village, assert_same, simulated
from scipy import stats

from archipel import Environment, Federation, Linear
from archipel.algorithms.fedavg import FedAvg
from archipel.deploy import masked, wire
from archipel.deploy.grow import why_fixed
from archipel.deploy.masked import PROOF, WORD, Masks
from archipel.deploy.torture.run import play
from archipel.deploy.view import view_of
from archipel.deployment import Deployment
from archipel.errors import BadInput
from archipel.parts.mix.mean import Mean
from archipel.parts.protect.summed import Summed
from archipel.parts.share.whole import Whole
from archipel.privacy.coding import unpacked
from archipel.privacy.excess import later
from archipel.privacy.policy import Privacy
from archipel.privacy.secure_aggregation import Masker, add_from, public
from archipel.topology import Servers

CHANGES = {"share": Whole(change=True), "mix": Mean(0)}


def federation(clients=6, size=4, rounds=5, environment=None, dropping=0.34, **policy):
    return Federation(
        Linear(clients=clients, size=size, samples=8), FedAvg(protect=Summed(dropping=dropping), **CHANGES),
        environment=environment or Environment(), rounds=rounds,
        privacy=Privacy(**{"epsilon": 4.0, "unit": "client", "clip": 0.5} | policy),
    )  # fmt: skip


def quorum(made, share=0.5):
    return Village(made, pace="quorum", quorum=share, deadline=5.0, patience=1e6)


class Noted(NamedTuple):
    words: Any  # (round, client) -> a word before it is masked
    sums: Any  # round -> who is in it, and the sum as it came out of its masks
    used: Any  # round -> the sum without the noise that it does not need
    seeds: Any  # (round, client) -> of all its excess


@pytest.fixture
def noted(monkeypatch):
    found = Noted({}, {}, {}, {})
    mask, opened, take_off = Masker.mask, Masks.open, masked.unmasked

    def masking(self, values, n):
        found.words[n, self.number] = values.astype(int)
        return mask(self, values, n)

    def act(self, me, data, said, settings, moment):
        came = masked_act(self, me, data, said, settings, moment)
        found.seeds[moment.round, moment.node] = self.seed
        return came

    def opening(self, me, inbox, settings, moment):
        true = self.own

        def merge(me, heard, settings, moment):
            found.used[moment.round] = heard.total.copy(), np.flatnonzero(inbox.there * self.held.there).tolist()
            true.merge(me, heard, settings, moment)

        def unmasking(*given):
            total, wrong = take_off(*given)
            found.sums[moment.round] = np.flatnonzero(self.held.there).tolist(), total
            return total, wrong

        monkeypatch.setattr(masked, "unmasked", unmasking)
        self.own = true._replace(merge=merge)
        opened(self, me, inbox, settings, moment)
        self.own = true

    masked_act = Masks.mask
    monkeypatch.setattr(Masker, "mask", masking)
    monkeypatch.setattr(Masks, "mask", act)
    monkeypatch.setattr(Masks, "open", opening)
    return found


def check_sums(noted, prime):
    """Sums are those of the integers of who is in them, to the bit."""
    for n, (who, total) in noted.sums.items():
        assert np.array_equal(total, sum(noted.words[n, k] for k in who) % prime), n
    return len(noted.sums)


def check_excess(noted, excess, prime):
    """Less the parts of noise that such a sum does not need, of those who answered, drawn part by part."""
    for n, (total, answered) in noted.used.items():
        who, rest = noted.sums[n]
        rest, seeds = rest.astype(int), {k: noted.seeds[n, k] for k in answered}
        for part, (below, deviation) in enumerate(zip(excess.below, excess.deviations)):
            for seed in seeds.values() if len(who) >= below else ():
                one = np.zeros(len(rest), int)
                add_from(one, deviation, later(seed, part))
                rest -= one
        assert np.array_equal(total % prime, rest % prime), n
    return len(noted.used)


AWAY = Environment(availability=0.8)


@pytest.mark.parametrize("environment", [Environment(), AWAY], ids=["there", "away"])
def test_a_replay_ends_with_the_simulations_bits(environment, noted):
    made = federation(environment=environment)
    village = Village(made)
    village.run()
    assert_same(village, simulated(made))
    assert check_sums(noted, 2**24 - 3) > 0


def test_so_it_does_at_each_server_of_a_graph():
    made = federation(clients=12, environment=AWAY).with_(topology=Servers(servers=3, shape="ring"))
    village, engine = Village(made), simulated(made)
    village.run()
    assert_same(village, engine)
    models = engine.instance.plan.tables["server"].model
    assert np.abs(models).min() > 0 and made.instance().plan.masks.clients == 4


def test_so_it_does_when_nodes_are_killed_and_letters_get_lost():
    draw, made = random.Random(3), federation(environment=AWAY)
    village = Village(made)
    village.lossy(loss=0.05, repeat=0.05, late=0.05)

    def each(who):
        if draw.random() < 0.06 and sum(host.lives for host in village.hosts.values()) < 40:
            village.kill_soon(who, draw.random())

    village.run(each)
    assert sum(host.lives for host in village.hosts.values()) > 12
    assert_same(village, simulated(made))


@pytest.mark.parametrize("seed", range(4))
def test_sums_are_exact_with_a_third_dropping_at_any_point(seed, noted):
    """Three of nine are killed at moments of their own, some for good, and the rounds go on."""
    draw, made = random.Random(seed), federation(clients=9, rounds=6)
    village = quorum(made)
    for name in draw.sample(sorted(set(village.hosts) - {"server"}), 3):
        village.world.at(draw.uniform(0.2, 1.2), village.kill, name, draw.choice([4.0, 1e9]))
    village.until(lambda: village.nodes["server"].player.finished)
    counts = [len(who) for who, _ in noted.sums.values()]
    assert check_sums(noted, 2**24 - 3) >= 5 and min(counts) >= 6
    assert any(count < 9 for count in counts)
    assert check_excess(noted, made.instance().plan.masks.excess, 2**24 - 3) >= 5


@pytest.mark.parametrize("most", [12, pytest.param(10**6, marks=pytest.mark.long)], ids=["some points", "every point"])
def test_a_crash_at_any_point_changes_nothing(most):
    made = federation(clients=3, rounds=2)
    engine = simulated(made)

    def played(point):
        village = Village(made)
        for host in village.hosts.values():
            host.powerless, host.back = True, 0.1
        village.world.crash_at = point
        village.run()
        assert_same(village, engine)
        return village.world.points

    points = range(1, played(-1) + 1)
    for point in points[:: 1 + len(points) // most]:
        played(point)


@pytest.mark.parametrize("seed", range(3))
def test_sums_are_exact_when_anyone_is_killed_and_comes_back(seed, noted):
    """The server too; links lose and repeat, and rounds do not wait for who is away."""
    made = federation(clients=6, rounds=8)
    draw, village = random.Random(seed), quorum(made)
    village.lossy(loss=0.05, repeat=0.05, late=0.05)

    def each(who):
        if draw.random() < 0.03 and sum(host.lives for host in village.hosts.values()) < 40:
            village.kill_soon(who, draw.uniform(0.1, 8.0))

    village.seen.each = each
    village.until(lambda: village.nodes["server"].player.finished)
    assert sum(host.lives for host in village.hosts.values()) > 9
    assert check_sums(noted, 2**24 - 3) > 2
    assert check_excess(noted, made.instance().plan.masks.excess, 2**24 - 3) > 2


def test_a_torture_says_that_it_cannot_follow_masks():
    with pytest.raises(BadInput, match="said once"):
        play(0, federation().with_(deploy=Deployment(pace="quorum")))


@pytest.mark.parametrize(("step", "counted"), [(2, 6), (5, 9)], ids=["before its word", "before its answer"])
def test_who_drops_before_its_word_is_not_in_the_sum_and_who_drops_after_it_is(step, counted, noted):
    """Three of nine wait for the model, or for the list, of round 2, and are never heard again."""
    village, dropping = quorum(federation(clients=9, rounds=4), 1.0), {"client-1", "client-4", "client-8"}

    def each(who):
        player = village.nodes[who].player
        if who in dropping and (player.round, player.at) == (2, step):
            village.kill_soon(who, 1e9)

    village.seen.each = each
    village.until(lambda: village.nodes["server"].player.finished)
    assert check_sums(noted, 2**24 - 3) == 4 and len(noted.sums[2][0]) == counted and len(noted.sums[3][0]) == 6


def test_with_fewer_the_round_is_given_up_with_a_sentence(caplog, noted):
    village = quorum(federation(clients=6, rounds=4))
    village.until(lambda: village.nodes["server"].player.round == 1)
    for name in ("client-0", "client-1", "client-2"):
        village.kill(name)
    village.until(lambda: village.nodes["server"].player.finished)
    assert "is given up: 3 words, 4 are needed" in caplog.text
    assert check_sums(noted, 2**24 - 3) < 4


def test_a_seed_is_told_by_who_is_in_the_sum_and_says_nothing_of_what_stays(noted, monkeypatch):
    """Six of nine are listed, then all: what the others answer is no seed; a told one is on its sender's chain."""
    told = []
    answer = Masks.answer

    def answering(self, me, data, said, settings, moment):
        if moment.round == 1:
            self.listed[6:] = 0  # a server that lies about who is in its sum
        came = answer(self, me, data, said, settings, moment)
        told.append((moment.round, moment.node, bytes(said.seed)))
        return came

    monkeypatch.setattr(Masks, "answer", answering)
    made = federation(clients=9, rounds=2)
    village = quorum(made, 1.0)
    village.until(lambda: len(told) == 18)
    levels = len(made.instance().plan.masks.excess.below)
    for n, k, seed in told:
        assert seed == (noted.seeds[0, k] if n == 0 else bytes(32)), (
            "of a sum of all, everything; of one of few, nothing"
        )
    assert levels == 3 and len({seed for n, _, seed in told if n == 0}) == 9


# --- what is on the wire ---------------------------------------------------------------------------------------------


def said(village, kind=wire.WORD):
    """What clients said to the server, by turn, each once: (sender, round, body)."""
    found = defaultdict(dict)
    for sender, to, data in village.seen.sent:
        first, second, *_, n = wire.HEADER.unpack_from(data)
        if to == "server" and first & 15 == kind:
            found[second & 127][sender, n] = data[wire.HEADER.size :]
    return found


def test_who_reads_everything_sees_uniform_numbers():
    """Words of a model that hardly changes, without noise: what is masked is nearly all zeros."""
    made = federation(clients=6, size=300, rounds=2, epsilon=None, noise=0.0, clip=1e6)
    village = Village(made)
    village.run()
    code, found = made.instance().plan.masks, said(village)
    numbers = np.concatenate([unpacked(np.frombuffer(body, np.uint8), code) for body in found[WORD].values()])
    assert len(numbers) == 12 * (300 + code.corrected * code.rows)
    counts = np.bincount((numbers * np.uint64(64) // np.uint64(code.prime)).astype(int), minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert len({*found[WORD].values()}) == 12  # and no word twice
    inner = simulated(made).rounds.mails[WORD].words.values
    assert np.unique(inner).size < 200  # which the integers themselves are not: they are few


def test_beyond_set_up_a_client_sends_less_than_2_2_words_of_float32():
    """All frames with their headers, both ways, but for the model that is told anyway; a third drop half-way."""
    village = quorum(federation(clients=12, size=200, rounds=8), 1.0)
    village.until(lambda: village.nodes["server"].player.round == 2)
    village.seen.sent.clear()
    village.until(lambda: village.nodes["server"].player.round == 5)
    for name in sorted(set(village.hosts) - {"server"})[:4]:
        village.kill(name)
    village.until(lambda: village.nodes["server"].player.finished)
    total, words = 0, Counter()
    for _, _, data in village.seen.sent:
        first, second, *_ = wire.HEADER.unpack_from(data)
        if first & 15 != wire.TOLD or second & 127 != 0:
            total += len(data)
        words[first & 15, second & 127] += 1
    spoken = words[wire.WORD, WORD]
    assert spoken >= 12 * 3 + 8 * 2
    assert total / spoken / (wire.HEADER.size + 4 * 200) < 2.2


# --- who lies, and who loses its state -------------------------------------------------------------------------------


def lying(monkeypatch, who):
    answer = Masks.answer

    def lie(self, me, data, said, settings, moment):
        came = answer(self, me, data, said, settings, moment)
        if moment.node in who:
            said.pads[0] ^= 1
        return came

    monkeypatch.setattr(Masks, "answer", lie)


def test_a_client_that_lies_is_named_and_the_sum_is_right(monkeypatch, noted, caplog):
    lying(monkeypatch, {2})
    village = Village(federation())
    village.run()
    assert "what client-2 answered, or was dealt, does not fit: left out" in caplog.text
    assert check_sums(noted, 2**24 - 3) == 5


def test_two_that_lie_and_the_round_is_given_up(monkeypatch, noted, caplog):
    lying(monkeypatch, {2, 3})
    village = Village(federation(rounds=2))
    village.run()
    assert "is given up: what clients answered does not fit together" in caplog.text and not noted.sums


def test_a_server_that_makes_up_a_key_is_found_out(monkeypatch):
    """It could take the masks off the words of all who believe that its own key is client-2's."""
    notice = Masks.notice

    def lie(self):
        if self.keys and not self.player.view.has_data:
            own = public(bytes(31) + b"\7")
            self.keys[2] = own + self.player.world.vouch(self.claim(own)).ljust(PROOF, b"\0")
        notice(self)

    monkeypatch.setattr(Masks, "notice", lie)
    village = Village(federation())
    village.until(lambda: len(village.seen.sentences) == 6)
    believed = [sentence for name, sentence in village.seen.sentences if name != "client-2"]
    assert all("the key shown as client-2's is not signed by it: the server lies" in one for one in believed)
    assert not said(village)[WORD]


def test_a_server_that_lost_its_state_is_shown_the_keys_again(noted):
    village = quorum(federation(rounds=8))
    village.until(lambda: village.nodes["server"].player.round == 3)
    village.kill("server")
    village.hosts["server"].disk.put({})
    village.start("server")
    village.until(lambda: village.nodes["server"].player.finished)
    assert check_sums(noted, 2**24 - 3) >= 6


def test_a_client_that_lost_its_state_halts_with_a_sentence():
    village = quorum(federation(rounds=8))
    village.until(lambda: village.nodes["server"].player.round == 3)
    village.kill("client-1")
    village.hosts["client-1"].disk.put({})
    village.start("client-1")
    village.until(lambda: bool(village.seen.sentences))
    assert any("keys that cannot be" in sentence for _, sentence in village.seen.sentences)


def test_clients_pay_before_words_leave_what_a_simulation_says():
    made = federation()
    village = quorum(made)
    village.run()
    rho = simulated(made).instance.plan.tables["client"].protect.spent[:, 0]
    for k in range(6):
        assert sum(village.charges(f"client-{k}")) == pytest.approx(rho[k], rel=1e-9)
    assert "ledger.journal" not in village.hosts["server"].disk.copy()


def test_nobody_can_join_while_it_runs():
    made = federation().with_(deploy=Deployment(pace="quorum"))
    assert "made for as many" in why_fixed(made)
    assert not why_fixed(made.with_(algorithm=FedAvg()))


def test_a_clock_is_refused():
    with pytest.raises(BadInput, match="two answers"):
        view_of(federation().with_(deploy=Deployment(pace="clock")), "server")


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.WARNING)
