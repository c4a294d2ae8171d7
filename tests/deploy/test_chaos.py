"""kill -9, pauses and cut links at random moments: nothing of it shows in the end."""

import random
import time

import numpy as np
import pytest
from harness import Village, simulated
from processes_here import assert_same_files, deployed, processes_in
from test_replay import TABLE

from archipel import Federation, PaoFed, Synthetic
from archipel.deploy.assemble import read_rows
from archipel.deploy.chaos import Chaos
from archipel.deploy.torture.faults import Fault, Faults
from archipel.privacy.journal import FileJournal
from archipel.privacy.releases import from_json, rho_of

pytest.importorskip("zenoh")


class Spread(Chaos):
    """Faults in threes, spread over the first four fifths of a run, as it gets on."""

    def __init__(self, seed, faults, rounds):
        super().__init__(seed, faults)
        self.step = 0.8 * rounds / faults
        self.moments = []

    def look(self, fleet, statuses):
        now = time.monotonic()
        self.wake(fleet, now)
        rows = read_rows(fleet.nodes / fleet.roster.members[0].name)
        done, n = rows[-1]["round"] if rows else 0, len(fleet.orders)
        while self.done < self.faults and done >= 3 * (self.done // 3) * self.step and 2 * len(fleet.pids) > n:
            self.harm(fleet, now)
            self.moments.append(done)


def chaotic(name, tmp_path, faults, **changes):
    """A replay with faults: the run finishes with the simulation's model, so no update was lost or counted twice."""
    federation = TABLE[name].with_(**changes)
    chaos = Spread(7, faults, federation.rounds)
    _, result = deployed(federation, tmp_path, chaos.look, 600, True, pace="replay")
    assert chaos.done == faults and min(chaos.counts.values()) > 0, chaos.counts
    assert len(set(chaos.moments)) > faults / 5, chaos.moments
    engine = simulated(federation)
    assert_same_files(tmp_path, engine, federation, result)
    assert not processes_in(tmp_path)
    return engine


def assert_ledgers_hold_what_was_said(folder, engine):
    """Each peer's ledger is exactly what a simulation pays for the same words."""
    paid = engine.instance.plan.tables["peer"]
    for k, node in enumerate(sorted((folder / "out" / "nodes").iterdir())):
        journal = FileJournal(node / "ledger.journal")
        charges = [rho_of(from_json(entry["release"])) for entry in journal.entries if "release" in entry]
        journal.close()
        assert len(charges) == paid.protect.releases[k, 0] > 0
        assert sum(charges) == pytest.approx(paid.protect.spent[k, 0], rel=1e-9)


@pytest.mark.parametrize(("name", "faults", "rounds"), [("pao-fed-c2", 15, 600), ("zcdp-nfl", 9, 200)])
def test_some_faults(name, faults, rounds, tmp_path):
    """On a server, its clients and on peers with ledgers."""
    engine = chaotic(name, tmp_path, faults, rounds=rounds, every=10)
    if name == "zcdp-nfl":
        assert_ledgers_hold_what_was_said(tmp_path, engine)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "faults", "rounds"), [("pao-fed-c2", 250, 9000), ("zcdp-nfl", 150, 2500), ("pgfl", 100, 700)]
)
def test_five_hundred_faults(name, faults, rounds, tmp_path):
    """On all kinds of nodes: clients, servers and peers."""
    engine = chaotic(name, tmp_path, faults, rounds=rounds, every=10)
    if name == "zcdp-nfl":
        assert_ledgers_hold_what_was_said(tmp_path, engine)


@pytest.mark.long
def test_faults_cost_less_than_half_a_decibel():
    """Rounds by quorum, by a clock of our own: who is killed misses rounds, and is waited for until the deadline."""
    problem = Synthetic(clients=8, features=60, test=300, samples=(800,), horizon=800)
    federation = Federation(problem, PaoFed(step=0.4), rounds=800, every=800)
    calm = by_quorum(federation)
    calm.run()
    for seed in range(3):
        rough = by_quorum(federation)
        Faults(rough.world, harm(seed, rough.world, 0.8 * calm.world.time, 60))
        rough.run()
        assert rough.world.counts["faults"] > 40 and len({host.lives for host in rough.hosts.values()}) > 1
        lost = 10 * np.log10(error(rough) / error(calm))
        assert abs(lost) < 0.5, f"seed {seed}: {lost:.2f} dB"


def by_quorum(federation):
    return Village(federation, pace="quorum", quorum=0.7, deadline=0.5)


def harm(seed, world, until, count):
    """Kills, pauses and cut links of up to three seconds, which is some forty rounds."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        kind = draw.choice(("kill", "pause", "cut"))
        who, other = draw.choice(sorted(world.edges)) if kind == "cut" else (draw.choice(sorted(world.hosts)), "")
        found.append(Fault(until * draw.random(), kind, who, other, 3 * draw.random(), draw.randrange(40)))
    return found


def error(village):
    """How far off the models of all nodes are on new data."""
    models = village.federation.algorithm.models({role: village.table(role) for role in village.roster.names})
    return float(np.mean(village.federation.instance().task.score(models, village.federation.rounds)["mse"]))
