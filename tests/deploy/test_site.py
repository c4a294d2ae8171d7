"""One site, one budget: over federations, over crashes, over processes; and a log of what left that misses nothing."""

import json
import multiprocessing
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace

import pytest
from harness import Village, assert_same, simulated
from spending import TERMS, ledger_of, spend
from test_replay import TABLE
from test_rules import Judged, epsilon_spent

from archipel import Federation, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy import left, wire
from archipel.deploy.left import Left
from archipel.deploy.site import LEDGER, Both
from archipel.deploy.torture.disk import SimulatedDisk
from archipel.deploy.torture.simulation import EPOCH
from archipel.deploy.view import view_of
from archipel.disk import SharedFolder
from archipel.errors import BadInput
from archipel.policy import CONTENTS, Limits, Policy, approval_of
from archipel.privacy.journal import Damaged, parse
from archipel.privacy.ledger import Charge, Ledger, Terms
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Gaussian, from_json, rho_of
from archipel.problems.networked import Regression
from archipel.topology import Peers

PRIVATE = Federation(
    Regression(clients=3), ZcdpNfl(), Peers(shape="ring"), privacy=Privacy(epsilon=2.0, clip=1.0), rounds=6
)


def site_charges(disk):
    """(node, zCDP) of every charge in a site's ledger."""
    entries = parse(disk.open(LEDGER).read(), LEDGER)[0]
    return [(entry["node"], rho_of(from_json(entry["release"])) * entry["times"]) for entry in entries]


def allowing(federation, name, **further):
    """A policy that approves a description, and lets everything leave that nothing else forbids."""
    approval = approval_of(federation, view_of(federation, name).digest)
    return Policy(approved=(approval,), **({"leaves": tuple(CONTENTS)} | further))


@pytest.mark.parametrize("name", ["pao-fed-c2", "zcdp-nfl", "pldp-fl", "pgfl"])
def test_a_policy_that_allows_changes_nothing_and_logs_every_byte(name):
    village = Judged(TABLE[name], 0, pace="replay")
    limits = Limits(rho=1e6, assumed=True) if TABLE[name].instance().plan.accountant else Limits()
    policies = {n: allowing(village.federation, n, privacy=limits) for n in village.hosts}
    village.begin(policies)
    village.run()
    assert_same(village, simulated(TABLE[name]))
    for host in village.hosts.values():
        (log,) = [inode.now for file, inode in host.site.names.items() if file.endswith(".left")]
        logged, tapped = Counter(), Counter()
        for entry in left.read(log):
            if "to" in entry:
                logged[entry["to"], entry["what"] == "notes"] += entry["bytes"]
                assert EPOCH <= entry["first"] <= entry["last"] <= EPOCH + village.world.time
        for _, to, data in village.left[host.name]:
            tapped[to, data[0] & 15 not in (wire.WORD, wire.TOLD, wire.STATUS)] += len(data)
        assert logged == tapped


def costs_of(federation):
    """What a node of a federation pays in each round when nothing limits it."""
    village = Judged(federation, federation.seed, pace="quorum", deadline=2.0)
    village.begin({})
    village.run()
    return village.charges(village.roster.members[0].name)


def at_site(federation, site, limits):
    """A village whose first node is of a site with a limit."""
    village = Judged(federation, federation.seed, pace="quorum", deadline=2.0)
    host = village.hosts[village.roster.members[0].name]
    host.policy, host.site = allowing(village.federation, host.name, privacy=limits), site
    for other in village.hosts.values():
        village.world.start(other)
    return village, host


def words_of(village, host):
    """The rounds of which a node's word has left."""
    frames = village.left[host.name]
    return sorted({int.from_bytes(d[8:12], "little") for _, _, d in frames if d[0] & 15 == wire.WORD})


def test_a_budget_over_two_federations_is_one_budget():
    """The second federation pays from what the first has left; together they never exceed it, and say so."""
    first, second = PRIVATE.with_(seed=1), PRIVATE.with_(seed=2)
    costs = costs_of(first), costs_of(second)
    limit = sum(costs[0]) + sum(costs[1][:3]) * 1.001
    site, limits = SimulatedDisk("site", True), Limits(rho=limit, assumed=True)
    village, host = at_site(first, site, limits)
    village.world.run(60.0)
    assert words_of(village, host) == [0, 1, 2, 3, 4, 5] and host.done
    village, host = at_site(second, site, limits)
    village.world.run(60.0)
    assert words_of(village, host) == [0, 1, 2]
    assert host.sentence.startswith(f"policy.privacy.rho = {limit}: expected more") and "round 3" in host.sentence
    assert sum(cost for _, cost in site_charges(site)) == pytest.approx(sum(costs[0]) + sum(costs[1][:3]), rel=1e-12)


def test_two_federations_at_once_share_an_epsilon_budget():
    """Side by side, turn by turn: what left of both is within the site's (epsilon, delta), by a closed form."""
    site, limits = SimulatedDisk("site", True), Limits(epsilon=2.2, delta=1e-5, assumed=True)
    both = [PRIVATE.with_(seed=seed) for seed in (1, 2)]
    costs = [costs_of(federation) for federation in both]
    villages = [at_site(federation, site, limits) for federation in both]
    for _ in range(4000):
        for village, _ in villages:
            village.world.run(village.world.time + 0.01)
    words = [words_of(*village) for village in villages]
    paid = sum(cost for own, rounds in zip(costs, words) for cost in own[: len(rounds)])
    assert min(map(len, words)) >= 1 and sum(map(len, words)) == len(site_charges(site))
    assert epsilon_spent(paid, 1e-5) <= 2.2
    for (_, host), own, rounds in zip(villages, costs, words):
        assert "policy.privacy.epsilon = 2.2: expected more" in host.sentence
        assert epsilon_spent(paid + own[len(rounds)], 1e-5) > 2.2


def test_what_was_paid_for_another_kind_of_promise_cannot_be_added():
    site = SimulatedDisk("site", True)
    ledger_of(site, Terms("client", "replace-one")).charge(1, Charge(0, Gaussian(0.1), 1))
    with pytest.raises(BadInput, match=r"policy\.privacy\.rho = 1\.0: .*one kind of promise"):
        ledger_of(site, TERMS, rho=1.0).charge(2, Charge(0, Gaussian(0.1), 1))
    ledger_of(site, TERMS).charge(2, Charge(0, Gaussian(0.1), 1))  # without a limit there is nothing to add up
    assert len(site_charges(site)) == 2


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("most", [30, pytest.param(10**6, marks=pytest.mark.long)], ids=["some points", "every point"])
def test_a_crash_at_any_point_never_forgets_what_left(power, most):
    """A node of a site ends at any write: the site has paid for all that left, and at most once more for each life."""
    federation = PRIVATE.with_(rounds=3)

    def played(point):
        village = Judged(federation, 0, pace="quorum", deadline=2.0)
        name = village.roster.members[0].name
        host = village.hosts[name]
        host.policy = allowing(village.federation, name, privacy=Limits(rho=100.0, assumed=True))
        host.site = SimulatedDisk("site", True)
        host.powerless, host.back, host.crash_in = power, 0.1, point
        village.world.restarts = True
        for other in village.hosts.values():
            village.world.start(other)
        village.world.run(120.0, lambda: all(h.done for h in village.hosts.values()))
        left_over, host.crash_in = host.crash_in, 0
        words = {data[:2] + data[8:] for _, _, data in village.left[name] if data[0] & 15 == wire.WORD}
        paid = site_charges(host.site)
        assert len(words) <= len(paid) <= len(words) + 2 * (host.lives - 1) and host.done
        assert len(village.charges(name)) <= len(paid) and host.lives == (1 if point == far else 2)
        return left_over

    far = 10**9
    points = far - played(far)
    assert points > 100
    for point in sorted({1 + k * points // most for k in range(most)} if most < points else range(1, points)):
        played(point)


def test_an_older_copy_of_a_nodes_ledger_does_not_make_the_site_forget():
    """Charges 1 to 3, then the node's own file is put back as it was after 1: the site counts on."""
    site, lines = SimulatedDisk("site", True), []
    own = SimpleNamespace(entries=[], write=lines.append, append=lambda charge: lines.append({"charge": charge}))
    charges = [Charge(n, Gaussian(0.1), 1) for n in range(5)]
    both = Both(own, ledger_of(site, TERMS), [])
    for charge in charges[:3]:
        both.append(charge)
    assert len(site_charges(site)) == 3
    older = SimpleNamespace(entries=lines[:2], write=lines.append, append=lambda charge: None)
    again = Both(older, ledger_of(site, TERMS), charges[:1])
    again.append(charges[1])
    assert len(site_charges(site)) == 4 and lines[-1]["from"] == 1
    alone = SimpleNamespace(entries=[lines[-1]], write=lines.append, append=lambda charge: None)
    Both(alone, ledger_of(site, TERMS), charges[:5])  # two of them, 2 and 3, were charged without the site's knowledge
    assert len(site_charges(site)) == 4 + 3


def test_what_a_ledger_was_charged_before_there_was_a_policy_counts():
    """A node that ran without rules and then has some: the site takes up what was paid."""
    federation = PRIVATE.with_(deploy=Village(PRIVATE, pace="quorum").federation.deploy)
    village = Judged(federation, 0, pace="quorum", deadline=2.0)
    name = village.roster.members[0].name
    host = village.hosts[name]
    for other in village.hosts.values():
        village.world.start(other)
    village.until(lambda: host.node.player.round >= 3)
    village.kill(name)
    before = len(village.charges(name))
    assert before >= 3
    host.policy = allowing(village.federation, name, privacy=Limits(rho=100.0, assumed=True))
    host.site = SimulatedDisk("site", True)
    village.world.start(host)
    assert len(site_charges(host.site)) == before


# --- processes --------------------------------------------------------------------------------------------------------


def test_processes_that_charge_at_once_share_the_budget(tmp_path):
    """250 releases of zCDP 0.0002 fit into 0.05, however three processes share them."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=spend, args=(tmp_path, name, answers)) for name in "abc"]
    for process in processes:
        process.start()
    found = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    assert sum(done for done, _ in found) == 250
    assert all("policy.privacy.rho = 0.05: expected more" in said for _, said in found)
    assert len(parse((tmp_path / LEDGER).read_bytes(), LEDGER)[0]) == 250


def test_a_ledger_that_is_taken_away_while_nodes_run_is_missed(tmp_path):
    """Who removes or cuts the site's ledger does not make it forget: nothing more is charged to it."""
    ledger = ledger_of(SharedFolder(tmp_path), TERMS, rho=1.0)
    for n in range(3):
        ledger.charge(1, Charge(n, Gaussian(0.1), 1))
    whole = (tmp_path / LEDGER).read_bytes()
    for content in (b"", whole[:-40], whole[: whole.index(b"\n") + 1]):
        (tmp_path / LEDGER).unlink()
        (tmp_path / LEDGER).write_bytes(content)
        with pytest.raises(Damaged, match=r"ledger\.journal: .*Restore it"):
            ledger.charge(1, Charge(3, Gaussian(0.1), 1))
        assert (tmp_path / LEDGER).read_bytes() == content
    (tmp_path / LEDGER).write_bytes(whole)
    ledger.charge(1, Charge(3, Gaussian(0.1), 1))
    assert len(parse((tmp_path / LEDGER).read_bytes(), LEDGER)[0]) == 4


# --- the log ----------------------------------------------------------------------------------------------------------


def test_a_log_stays_small_and_forgets_nothing():
    disk = SimulatedDisk("site", True)
    log, sent = Left(disk, "a.left"), Counter()
    for day in range(3000):
        for to in ("server", "peer"):
            log.note(86400.0 * day + 60, to, "models", day, 10 + day % 7)
            sent[to] += 10 + day % 7
    found = [entry for entry in left.read(disk.open("a.left").read()) if "to" in entry]
    assert len(found) <= left.MOST and len(disk.open("a.left").read()) <= (left.MOST + 2) * left.WIDTH
    for to, size in sent.items():
        mine = [entry for entry in found if entry["to"] == to]
        assert sum(entry["bytes"] for entry in mine) == size and sum(entry["frames"] for entry in mine) == 3000
        assert sorted(mine, key=lambda e: e["first"])[0]["rounds"][0] == 0 and mine[-1]["rounds"][1] == 2999
    assert [e for e in left.read(disk.open("a.left").read()) if "to" in e] == Left(disk, "a.left").entries


@pytest.mark.parametrize("power", [False, True])
def test_a_days_allowance_survives_any_end(power):
    """Lives that end without a word: all together they never take more than a day has."""
    disk, used = SimulatedDisk("site", True), 0
    for life in range(200):
        log = Left(disk, "a.left")
        for _ in range(life % 5):
            if log.room(20_000, 1000) >= 7:
                log.take(20_000, 7, 1000)
                used += 7
        if power:
            disk.lose_power(life)
        elif life % 3:
            log.close()
    assert 500 < used <= 1000 - Left(disk, "a.left").room(20_000, 1000)
    assert Left(disk, "a.left").room(20_001, 1000) == 1000  # another day
    with pytest.raises(ValueError, match="1001 bytes"):
        Left(disk, "a.left").take(20_002, 1001, 1000)
    json.dumps(left.read(disk.open("a.left").read()))


def test_a_days_allowance_survives_a_power_cut_while_a_node_starts():
    """Whatever it was doing to the log: what was taken is not given back."""
    for point in range(1, 20):
        for key in range(40):
            disk = SimulatedDisk("site", True)
            Left(disk, "a.left").take(20_000, 900, 1000)
            left_to_do = [point]

            def ends(left_to_do=left_to_do):
                left_to_do[0] -= 1
                if left_to_do[0] == 0:
                    raise KeyboardInterrupt

            disk.point = ends
            with suppress(KeyboardInterrupt):
                Left(disk, "a.left")
            disk.point = lambda: None
            disk.lose_power(key)
            assert Left(disk, "a.left").room(20_000, 1000) <= 100, (point, key)
    assert left_to_do[0] > 0  # the last of them came to no end


def test_hours_and_bandwidth_only_delay():
    """Half an hour a day and a thin line: the federation gets through, later."""
    federation = Federation(Synthetic(clients=1, features=8, samples=(8,), horizon=8), PaoFed(step=0.2), rounds=8)
    village = Judged(federation, 0, pace="quorum", deadline=3600.0, patience=3600.0)
    rules = {"hours": "22:20-22:40", "bytes_a_second": 60}
    village.begin({"client-0": allowing(village.federation, "client-0", **rules)})
    village.world.run(3600.0, lambda: village.hosts["client-0"].done)
    frames = village.left["client-0"]
    assert village.hosts["client-0"].done and len(frames) > 3
    assert all(EPOCH + 400 <= clock <= EPOCH + 1600 for clock, _, _ in frames)  # 22:20 to 22:40


def test_a_ledger_joins_only_once():
    """A node that starts again goes on under the same number."""
    site, lines = SimulatedDisk("site", True), []
    own = SimpleNamespace(entries=[], write=lines.append, append=lambda charge: None)
    both = Both(own, ledger_of(site, TERMS), [])
    both.append(Charge(0, Gaussian(0.1), 1))
    own.entries = list(lines)
    again = Both(own, ledger_of(site, TERMS), [Charge(0, Gaussian(0.1), 1)])
    assert again.number == both.number and len(lines) == 1 and len(site_charges(site)) == 1
    assert Ledger("x", TERMS).journal is None
