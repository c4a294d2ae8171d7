"""Where a deployment ends every node has a model that can be used: the server the global one, each peer its own."""

import numpy as np
import pytest
from harness import Village

from archipel import Federation, Linear, PaoFed, Privacy, Synthetic
from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.pgfl import Pgfl
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.bundle import load
from archipel.problems.clustered import Related
from archipel.topology import Peers, Servers, Star

RELATED = Related(clients=5, tasks=2, size=4, samples=(2, 6), test=9)
STORED = Linear(clients=4, size=3, samples=20, test=20)
TABLE = {
    "star": Federation(Synthetic(clients=4, features=12, test=9), PaoFed(step=0.2, portion=3), rounds=12),
    "clusters": Federation(RELATED, FedAvg(batch=2), Star(clusters=2), rounds=6),
    "servers": Federation(STORED, FedAvg(step=0.05), Servers(servers=2, shape="ring"), rounds=6),
    "graph": Federation(RELATED, Pgfl(tau=0.3), Servers(servers=2, shape="ring", clusters=2), rounds=6),
    "peers": Federation(STORED, ZcdpNfl(), Peers(shape="ring"), privacy=Privacy(epsilon=4.0, clip=1.0), rounds=6),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_node_keeps_what_it_learned(name, tmp_path):
    federation = TABLE[name].with_(engine="plain")
    village = Village(federation)
    village.run()
    found = {}
    for node, host in village.hosts.items():
        content = host.disk.open("model.npz").read()
        assert host.disk.survives("model.npz") == content, "a power cut takes nothing of it"
        (tmp_path / f"{node}.npz").write_bytes(content)
        found[node] = load(tmp_path / f"{node}.npz")
    whole = federation.run()
    models = whole.models[0]
    rows = np.random.default_rng(2).standard_normal((7, *federation.setup().task.frame.inputs))
    whole.save(tmp_path / "run")
    simulated = load(tmp_path / "run" / "model.npz")
    for member in village.roster.members:
        mine = found[member.name]
        assert mine.told["round"] == federation.rounds and mine.told["digest"] == village.federation.digest()
        if member.role == "server":
            wanted = models["servers"][[member.number]] if "servers" in models else models["server"]
            assert np.array_equal(
                mine.weights["server" if "server" in mine.weights else "servers"].reshape(wanted.shape), wanted
            )
            assert "clients" not in mine.weights
            continue
        assert mine.names == (member.name,)
        assert np.array_equal(mine.model(), models["clients"][member.number])
        assert np.array_equal(mine.predict(rows), simulated.predict(rows, client=member.number))
        rho = [row[3] for row in whole.rows if row[2] == "rho.node" and row[4] == str(member.number)]
        assert (mine.told["paid"] or {}).get("worst", {}).get("rho") == (pytest.approx(rho[-1]) if rho else None)


def test_a_node_that_is_not_done_has_no_model_yet():
    village = Village(TABLE["peers"].with_(engine="plain"))
    village.until(lambda: village.nodes["client-0"].player.round >= 2)
    assert not village.hosts["client-0"].disk.open("model.npz").read()


def test_a_node_with_its_own_data_alone_knows_what_stands_around_its_model(tmp_path):
    """The server sees nobody's data; its bundle reads rows as the simulation's does, from what the description says."""
    from archipel.clients import Clients
    from archipel.deploy.view import view_of
    from archipel.problems.own import Files

    draw, names = np.random.default_rng(1), ("ann", "bob", "cleo")
    for name in names:
        (tmp_path / name).mkdir()
        rows = draw.normal(10, 5, (12, 3))
        lines = [",".join([*map(str, row), ward]) for row, ward in zip(rows.tolist(), draw.choice(["e", "w"], 12))]
        (tmp_path / name / "readings.csv").write_text("\n".join(["a,b,c,ward", *lines]) + "\n")
    units = {name: {"center": 10.0, "spread": 5.0, "unit": f"k{name}"} for name in "abc"}
    problem = Files(
        data=str(tmp_path / "{name}" / "readings.csv"), target="c", columns=("b", "ward", "a"), scale=units, features=9,
        categories={"ward": ["e", "w"]},
    )  # fmt: skip
    federation = Federation(
        problem,
        PaoFed(step=0.1, portion=2, force=True),
        clients=Clients(names=names),
        rounds=5,
        every=5,
        engine="plain",
    )
    federation.run().save(tmp_path / "run")
    simulated = load(tmp_path / "run" / "model.npz")
    asked = {"a": [11.0, 9.0], "b": [8.0, 12.5], "ward": ["w", "e"]}
    for name in ("server", *names):
        view = view_of(federation, name, base=tmp_path)
        me = view.me._replace(model=simulated.model(None if name == "server" else name))
        (tmp_path / "node.npz").write_bytes(view.learned.packed(me, 5, None))
        found = load(tmp_path / "node.npz")
        assert (
            found.frame.unit == "kc"
            and found.frame.units == {"a": "ka", "b": "kb", "c": "kc"}
            and found.told["digest"] == simulated.told["digest"]
        )
        assert np.array_equal(found.predict(asked), simulated.predict(asked, None if name == "server" else name))
