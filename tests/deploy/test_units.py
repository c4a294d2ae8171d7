"""Units that nobody declares: found together, with noise, paid for once, the same everywhere, whatever crashes."""

import json
import random

import numpy as np
import pytest
from harness import Village, simulated

from archipel import Federation, PaoFed
from archipel.algorithms.fedavg import FedAvg
from archipel.bundle import load
from archipel.clients import Clients
from archipel.deploy.units import FILE
from archipel.deploy.view import view_of
from archipel.deployment import Deployment
from archipel.errors import BadInput
from archipel.node import named_leaves
from archipel.privacy.gaussian import epsilon_of
from archipel.privacy.policy import Privacy
from archipel.problems import units
from archipel.problems.own import Files
from archipel.topology import Peers

NAMES, SIZES = ("ann", "bob", "cleo", "dora"), (60, 80, 100, 40)
RANGES = {"a": [-20, 60], "b": [0, 4], "d": [-100, 100]}
PRICE = 0.02


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder a client; one value of b lies outside of its range."""
    base, draw = tmp_path_factory.mktemp("units"), np.random.default_rng(5)
    for name, size in zip(NAMES, SIZES):
        a, b = draw.normal(14, 6, size), draw.uniform(0, 4, size)
        b[0] = 1000.0
        rows = np.c_[a, b, 3 * a - 2 * np.minimum(b, 4) + draw.normal(0, 1, size)]
        (base / name).mkdir()
        lines = "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist())
        (base / name / "readings.csv").write_text("a,b,d\n" + lines)
    return base


def problem(base, **keys):
    keys = {"scale": "private", "ranges": RANGES, "price": PRICE} | keys
    return Files(data=str(base / "{name}" / "readings.csv"), target="d", columns=("a", "b"), **keys)


def described(base, algorithm=None, privacy=None, **keys):
    return Federation(
        problem(base, **keys), algorithm or PaoFed(step=0.1, portion=1), rounds=12, clients=Clients(NAMES),
        privacy=privacy or Privacy(epsilon=4.0, clip=1.0), engine="plain",
    )  # fmt: skip


def village(federation, base, **deploy):
    """Every node from its own folder."""
    federation = federation.with_(deploy=Deployment(**{"pace": "replay"} | deploy))
    return Village(federation, view=lambda name: view_of(federation, name, base=base / name), **deploy)


def clipped(base, federation):
    """What everyone's training rows say, clipped, with NumPy alone."""
    openly = federation.with_(problem=problem(base, scale={}, ranges={}, standardise=False), privacy=None)
    source = openly.with_(algorithm=FedAvg()).setup().task.source
    table = np.c_[source.x, source.y][:, [0, 1, -1]]
    low, high = np.array(list(RANGES.values())).T
    return np.clip(table, low, high)


def units_of(village, name):
    """As they survive a power cut."""
    found = json.loads(village.hosts[name].disk.survives(FILE))
    return [found[column][what] for what in ("center", "spread") for column in RANGES]


ALGORITHMS = {
    "samples once": (PaoFed(step=0.1, portion=1), Privacy(epsilon=4.0, clip=1.0)),
    "clients": (PaoFed(step=0.1, portion=1), Privacy(rho=0.5, clip=1.0, unit="client")),
}


@pytest.mark.parametrize("case", ALGORITHMS)
def test_deployed_it_ends_with_the_simulations_model(case, folders):
    made = described(folders, *ALGORITHMS[case])
    deployed, engine = village(made, folders), simulated(made)
    deployed.run()
    for role, table in engine.instance.plan.tables.items():
        for number, name in enumerate(deployed.roster.names[role]):
            mine = dict(named_leaves(deployed.nodes[name].player.me))
            for path, theirs in named_leaves(table):
                np.testing.assert_allclose(mine[path], theirs[number], rtol=0, atol=1e-6, err_msg=f"{name} {path}")
    frame = engine.instance.task.frame
    for name in deployed.hosts:
        found = np.array(units_of(deployed, name))
        assert found[:2].tolist() == frame.center.tolist() and found[3:5].tolist() == frame.spread.tolist()
    for name in NAMES:
        paid = deployed.nodes[name].account.total(deployed.nodes[name].player.me)
        assert paid == pytest.approx(engine.instance.plan.accountant.paid(engine.instance.plan.tables).rho[0], rel=1e-9)
        assert deployed.charges(name)[0] == pytest.approx(PRICE, rel=1e-9)


@pytest.mark.parametrize("unit", ["sample", "client"])
def test_without_noise_units_are_those_of_all_clipped_rows(unit, folders):
    made = described(folders, privacy=Privacy(noise=1e-3, clip=1.0, unit=unit), price=1e12)
    rows = clipped(folders, made)
    owners = np.repeat(range(4), np.diff(made.setup().task.source.starts)) if unit == "client" else np.zeros(len(rows))
    if unit == "client":  # each client's means count the same
        mean = np.mean([rows[owners == k].mean(0) for k in range(4)], axis=0)
        square = np.mean([(rows[owners == k] ** 2).mean(0) for k in range(4)], axis=0)
    else:
        mean, square = rows.mean(0), (rows**2).mean(0)
    frame = made.setup().task.frame
    np.testing.assert_allclose(frame.center, mean[:2], rtol=1e-5)
    np.testing.assert_allclose(frame.spread, np.sqrt(square - mean**2)[:2], rtol=1e-4)
    np.testing.assert_allclose(
        [frame.target_center, frame.target_spread], [mean[2], np.sqrt(square - mean**2)[2]], rtol=1e-4
    )


def test_no_sample_moves_the_sums_by_more_than_the_noise_is_for():
    """By brute force over a grid: what one column of a sample can be moved by."""
    z = np.linspace(-1, 1, 401)
    points = np.stack([z, z**2], 1)
    moves = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert moves.max() == pytest.approx(2.0, abs=1e-12)
    alone = np.sqrt(1 + 3 * (points**2).sum(1).max())  # with its count, in three columns: added or removed
    assert alone <= 2 * np.sqrt(3)
    said = np.zeros(7)
    draws = np.stack([units.noised(said, PRICE, "sample", key) for key in range(4000)])
    assert draws.std() == pytest.approx(2 * np.sqrt(3) / np.sqrt(2 * PRICE), rel=0.02)
    assert not units.noised(said, PRICE, "client", 1)[0]


def test_the_target_is_paid_for_all_of_it_together(folders):
    """What is left for the rounds and what units cost are the whole epsilon, to the accountant."""
    made = described(folders, privacy=Privacy(epsilon=1.0, clip=1.0, unit="client"))
    forecast = made.instance().plan.accountant.forecast()
    assert forecast.epsilon == pytest.approx(np.ones(4), rel=1e-6) and forecast.releases.tolist() == [13] * 4
    openly = made.with_(problem=problem(folders, scale={n: {"center": 1, "spread": 2} for n in RANGES}, ranges={}))
    alone = openly.instance().plan.accountant.forecast()
    noise = [one.instance().plan.tables["client"].protect.noise[0, 0] for one in (made, openly)]
    assert noise[0] > noise[1] and alone.rho == pytest.approx(forecast.rho, rel=1e-6)
    assert epsilon_of(np.sqrt(2 * (12 * made.instance().plan.accountant.planned[0] / 12 + PRICE)), 1e-5) <= 1.0 + 1e-9
    with pytest.raises(BadInput, match=r"problem\.price"):
        described(folders, privacy=Privacy(rho=0.01, clip=1.0)).setup()


def test_what_crashes_in_the_middle_pays_once_and_says_one_thing(folders):
    made, lives = described(folders), 0
    for seed in range(1):
        draw = random.Random(seed)
        deployed = village(made, folders, pace="quorum", deadline=5.0, patience=1e6)

        def each(who, deployed=deployed, draw=draw):
            if deployed.nodes[who].player.round == 0 and draw.random() < 0.3 and deployed.hosts[who].lives < 5:
                deployed.kill_soon(who, draw.random())

        deployed.run(each)
        lives += sum(host.lives for host in deployed.hosts.values())
        found = [units_of(deployed, name) for name in deployed.hosts]
        assert all(one == found[0] for one in found)
        for name in NAMES:
            assert sum(np.isclose(deployed.charges(name), PRICE, rtol=1e-9)) == 1
    assert lives > 12


def test_a_server_that_lost_its_state_is_told_the_units_again(folders):
    made = described(folders)
    deployed = village(made, folders, pace="quorum", deadline=5.0, patience=1e6)
    deployed.until(lambda: deployed.nodes["server"].player.round >= 3)
    before = units_of(deployed, "server")
    deployed.kill("server")
    deployed.hosts["server"].disk.put({})
    deployed.start("server")
    deployed.run()
    assert units_of(deployed, "server") == before
    for name in NAMES:
        assert sum(np.isclose(deployed.charges(name), PRICE, rtol=1e-9)) == 1


def test_who_does_not_come_is_not_waited_for_and_gets_them_later(folders):
    made = described(folders).with_(rounds=40)
    federation = made.with_(deploy=Deployment(pace="quorum", quorum=0.5, deadline=5.0, patience=20.0))
    late = Village(
        federation, view=lambda name: view_of(federation, name, base=folders / name), first=("server", *NAMES[:3]),
        pace="quorum", quorum=0.5, deadline=5.0, patience=20.0,
    )  # fmt: skip
    late.until(lambda: late.nodes["server"].player.round >= 2)
    assert late.world.time >= 20.0
    late.start("dora")
    late.run()
    assert units_of(late, "dora") == units_of(late, "server")
    assert late.nodes["dora"].player.updates > 0


def test_the_model_predicts_in_the_units_that_were_found(folders, tmp_path):
    made = described(folders)
    deployed = village(made, folders)
    deployed.run()
    path = tmp_path / "model.npz"
    path.write_bytes(deployed.hosts["server"].disk.open("model.npz").read())
    centers, spreads = np.split(np.array(units_of(deployed, "server")), 2)
    model, row = deployed.nodes["server"].player.me.model, np.array([10.0, 2.0])
    by_hand = centers[2] + spreads[2] * (((row - centers[:2]) / spreads[:2]) @ model[:2])
    assert load(path).predict(row[None])[0] == pytest.approx(by_hand, rel=1e-6)  # single precision


REFUSED = {
    "no range": ({"ranges": {"a": [0, 1]}}, "problem.scale"),
    "an empty range": ({"ranges": RANGES | {"a": [3, 3]}}, "problem.ranges.a"),
    "no numbers": ({"ranges": RANGES | {"a": "low"}}, "problem.ranges.a"),
    "another column": ({"ranges": RANGES | {"z": [0, 1]}}, "problem.ranges.z"),
    "another word": ({"scale": "secret"}, "problem.scale"),
    "ranges for nothing": ({"scale": {}}, "problem.ranges"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_said(case, folders):
    keys, key = REFUSED[case]
    with pytest.raises(BadInput) as refused:
        problem(folders, **keys)
    assert refused.value.key == key


def test_where_nobody_pays_or_hears_everyone_it_is_refused(folders):
    made = described(folders)
    peers = made.with_(topology=Peers(shape="ring"))
    for other in (made.with_(privacy=None), made.with_(clients=Clients()), peers):
        with pytest.raises(BadInput, match=r"problem\.scale"):
            other.setup()
