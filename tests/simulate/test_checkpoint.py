"""What was killed and resumed ends with the bits of a run without a break; more rounds go on from a finished one."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Files, Linear, PaoFed, Privacy, Synthetic
from archipel.algorithms.deep import MirrorDeep
from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.mirror import MirrorDescent
from archipel.algorithms.pgfl import Pgfl
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.bundle import costs, load
from archipel.combinations import GRAPHS, cell
from archipel.errors import BadInput
from archipel.parts.protect.in_turn import InTurn
from archipel.parts.protect.mix import AtMix
from archipel.problems.clustered import Related
from archipel.problems.drifting import Drifting
from archipel.problems.networked import Regression
from archipel.registry import ALGORITHMS
from archipel.report.page import privacy_words
from archipel.simulate import run
from archipel.simulate.checkpoint import Keep
from archipel.topology import Digraph, Peers, Servers, Star

FILES = ("metrics.csv", "models.npz", "ledger.json")
ROUGH = Environment(availability=0.7, delay=Delay(delta=0.5, limit=4))
STREAM = Synthetic(clients=6, features=12, test=20, horizon=40, samples=(10, 40))
PLAIN = {"rounds": 30, "every": 5, "engine": "plain"}
PRIVATE = Privacy(epsilon=4.0, clip=1.0)
DRIFTING = Drifting(clients=5, size=4, loss="logistic", space="simplex", drift=0.5)
FAMILIES = {
    "star": Federation(STREAM, PaoFed(step=0.2, portion=3, limit=4), environment=ROUGH, **PLAIN),
    "private star": Federation(STREAM, PaoFed(step=0.2, portion=3), environment=ROUGH, privacy=PRIVATE, **PLAIN),
    "stored": Federation(Linear(clients=5, size=4, samples=20, test=20), FedAvg(step=0.05), environment=ROUGH, **PLAIN),
    "peers": Federation(Regression(clients=5), ZcdpNfl(), Peers(shape="ring"), privacy=PRIVATE, **PLAIN),
    "servers": Federation(
        Related(clients=6, tasks=2, size=4, samples=(2, 6), test=5), Pgfl(some=2, tau=0.3),
        Servers(servers=3, shape="ring", clusters=2), **PLAIN,
    ),
    "digraph": Federation(
        DRIFTING, MirrorDescent(region="simplex", map="entropy", floor=0.01, limit=3),
        Digraph(phases=4, fade=0.2, window=8), ROUGH, PRIVATE, **PLAIN,
    ),
    "regret": Federation(
        Drifting(clients=5, size=4, loss="squared"), MirrorDescent(), Digraph(phases=4, window=8), **PLAIN
    ),
}  # fmt: skip


def saved(federation, folder, keep=None, seeds=1, theory=None):
    folder.mkdir(parents=True, exist_ok=True)
    federation.run(seeds, theory=theory, keep=keep or Keep(folder)).save(folder)
    return folder


def assert_same(one, two):
    for name in FILES:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


class Stopped(Exception):
    pass


def broken(federation, folder, monkeypatch, after=1, theory=None, start=None):
    """Run until a checkpoint is written, and no further."""
    left, write = [after], run.save

    def once(*given):
        write(*given)
        left[0] -= 1
        if left[0] == 0:
            raise Stopped

    folder.mkdir(parents=True, exist_ok=True)
    with monkeypatch.context() as patched:
        patched.setattr(run, "save", once)
        with pytest.raises(Stopped):
            federation.run(theory=theory, keep=Keep(folder, 0.0, start=start))
    return folder


def topologies_of(kind, half):
    """That a kind runs on, every second one: beginning with another one for each kind."""
    known = [topology for topology in GRAPHS if cell(kind, topology).federation is not None]
    shift = sorted(ALGORITHMS).index(kind) % len(known)
    return (known[shift:] + known[:shift])[half::2]


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", sorted(ALGORITHMS))
def test_every_kind_goes_on_where_it_was_stopped_on_every_topology(kind, half, tmp_path, monkeypatch):
    """Every kind of the registry, on each topology that it runs on; late messages and absences where it takes them."""
    for topology in topologies_of(kind, half):
        found = cell(kind, topology).federation
        federation = found.with_(every=2, engine="plain")
        late = federation.with_(environment=ROUGH)
        try:
            late.instance()
            federation = late
        except BadInput:
            pass
        whole = saved(federation, tmp_path / f"{topology} whole", theory={})
        part = broken(federation, tmp_path / topology, monkeypatch, 2, {})
        assert_same(saved(federation, part, Keep(part, 0.0, resume=True), theory={}), whole)


@pytest.mark.parametrize("engine", ["auto", "parallel"])
def test_compiled_runs_go_on_too(engine, tmp_path, monkeypatch):
    federation = FAMILIES["star"].with_(engine=engine)
    part = broken(federation, tmp_path / "part", monkeypatch, after=3)
    assert_same(saved(federation, part, Keep(part, resume=True)), saved(federation, tmp_path / "whole"))


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from archipel.simulate import run, checkpoint
from archipel.cli import main

left, write, savez, during = int(sys.argv[1]), run.save, np.savez, sys.argv[2] == "during"

def half(file, **arrays):
    savez(file, **arrays)
    file.flush()
    os.ftruncate(file.fileno(), file.tell() // 2)
    os.kill(os.getpid(), signal.SIGKILL)

def save(*given):
    global left
    left -= 1
    if left == 0 and during:
        np.savez = half
    write(*given)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

run.save = save
sys.argv = ["archipel", *sys.argv[3:]]
main()
"""


def killed(description, folder, after=3, when="after", *options):
    """A process that kill -9 ends at some checkpoint, or in the middle of writing it."""
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(after), when, "run", str(description), "--out", str(folder)]
        + ["--checkpoint", "0", *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not (folder / "metrics.csv").exists()
    return folder


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.mark.parametrize("family", [*FAMILIES, "deep", pytest.param("own budgets", marks=pytest.mark.long)])
def test_a_run_that_was_killed_ends_with_the_bits_of_one_that_was_not(family, folder, archipel):
    if family in FAMILIES:
        federation = FAMILIES[family]
    else:
        pytest.importorskip("torch")
        federation = cell("fedavg-deep" if family == "deep" else "pldp-fl", "star").federation.with_(every=1)
    (folder / "f.toml").write_text(federation.to_toml())
    killed(folder / "f.toml", folder / "part")
    said = archipel("run", "f.toml", "--out", "part", "--resume")
    assert said.status == 0 and "Going on after" in said.err
    assert archipel("run", "f.toml", "--out", "whole").status == 0
    assert_same(folder / "part", folder / "whole")


def test_a_checkpoint_that_a_kill_cut_short_is_not_there(folder, archipel):
    """What is on disk is the one before it; before the first there is none, and the run begins."""
    (folder / "f.toml").write_text(FAMILIES["stored"].to_toml())
    saved(FAMILIES["stored"], folder / "whole")
    for after, said in ((3, "Going on after 10 rounds"), (1, "")):
        killed(folder / "f.toml", folder / str(after), after, "during")
        ended = archipel("run", "f.toml", "--out", str(after), "--resume")
        assert ended.status == 0 and said in ended.err and (said or "Going on" not in ended.err)
        assert_same(folder / str(after), folder / "whole")


def test_all_seeds_go_on(folder, archipel):
    (folder / "f.toml").write_text(FAMILIES["star"].to_toml())
    killed(folder / "f.toml", folder / "part", 7, "after", "--seeds", "3")
    assert archipel("run", "f.toml", "--out", "part", "--resume", "--seeds", "3").status == 0
    assert_same(folder / "part", saved(FAMILIES["star"], folder / "whole", seeds=3))
    assert sorted(path.name for path in (folder / "part").glob("checkpoint*")) == [
        "checkpoint-2.npz", "checkpoint-3.npz", "checkpoint.npz",
    ]  # fmt: skip


def test_what_ctrl_c_stops_goes_on(tmp_path):
    federation = FAMILIES["star"]
    calls = []

    def progress(done, total, what):
        calls.append(done)
        if done == 15:
            signal.raise_signal(signal.SIGINT)  # for the main thread, which waits for this one

    (tmp_path / "part").mkdir()
    stopped = federation.run(progress=progress, keep=Keep(tmp_path / "part"))
    if not stopped.interrupted:  # it was done before the main thread looked
        assert calls[-1] == 30
    assert_same(
        saved(federation, tmp_path / "part", Keep(tmp_path / "part", resume=True)),
        saved(federation, tmp_path / "whole"),
    )


def test_other_data_are_another_run(tmp_path):
    (tmp_path / "data").mkdir()
    x = np.random.default_rng(3).standard_normal((30, 2))
    for name in "abc":
        np.savez(tmp_path / "data" / f"{name}.npz", x=x, y=x @ [1.0, -2.0])
    federation = Federation(Files(data=str(tmp_path / "data")), FedAvg(step=0.05), **PLAIN)
    saved(federation, tmp_path / "out")
    np.savez(tmp_path / "data" / "b.npz", x=x, y=x @ [1.0, -2.5])
    with pytest.raises(BadInput, match="which have changed"):
        federation.run(keep=Keep(tmp_path / "out", resume=True))


def test_a_large_state_is_kept_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LARGE", 100)
    saved(FAMILIES["stored"], tmp_path / "not")
    saved(FAMILIES["stored"], tmp_path / "asked", Keep(tmp_path / "asked", 1e6))
    assert not (tmp_path / "not" / "checkpoint.npz").exists() and (tmp_path / "asked" / "checkpoint.npz").exists()


# --- more rounds ----------------------------------------------------------------------------------------------------

NOISED = Privacy(noise=0.5, clip=1.0)  # the same in every round, however many there are


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("done", [200, 203])
def test_200_rounds_and_100_more_are_300(family, done, tmp_path):
    """To the bit, with the ledger; also where the first run ended between two measurements."""
    federation = FAMILIES[family].with_(rounds=300, every=20)
    if federation.privacy is not None:
        federation = federation.with_(privacy=NOISED)
    if family == "peers":  # else they fit the number of rounds
        federation = federation.with_(algorithm=ZcdpNfl(penalty=1.0, step=0.1, decay=0.5))
    if family in ("servers", "digraph", "regret"):
        federation = federation.with_(rounds=30, every=4)
        done = done // 10
    first = saved(federation.with_(rounds=done), tmp_path / "first")
    more = saved(federation, tmp_path / "more", Keep(tmp_path / "more", start=first / "model.npz"))
    whole = saved(federation, tmp_path / "whole")
    assert_same(more, whole)
    assert (more / "model.npz").read_bytes() == (whole / "model.npz").read_bytes()


def test_a_ledger_goes_on_and_refuses_what_its_budget_does_not_cover(tmp_path):
    """Noise for 20 rounds of an epsilon: 20 more find an account that is spent, and nobody says another word."""
    federation = FAMILIES["peers"].with_(rounds=20)
    first = saved(federation, tmp_path / "first")
    more = federation.with_(rounds=40).run(keep=Keep(start=first / "model.npz"))
    spent = [node["spent"]["epsilon"] for node in more.ledger()["seeds"][0]["nodes"]]
    before = [node["spent"]["epsilon"] for node in load(first / "model.npz").told["paid"]["nodes"]]
    assert all(a <= b <= 4.0 for a, b in zip(before, spent)) and min(before) > 3.9


@pytest.mark.parametrize(
    ("algorithm", "privacy"),
    [
        (FedAvg(asked=0.5, protect=AtMix()), Privacy(epsilon=2.0, clip=0.1, unit="client", relation="add-remove")),
        (FedAvg(protect=InTurn(every=2)), Privacy(epsilon=2.0, clip=0.1, unit="client")),
        (MirrorDeep("gaussian", epsilon=2.0, batch=5), None),
        (MirrorDeep("laplace", epsilon=2.0, batch=5), None),
        (MirrorDeep("published", epsilon=2.0, batch=5), None),
    ],
    ids=["at-mix", "in-turn", "at-batch", "at-batch, laplace", "at-batch, published"],
)
def test_more_rounds_do_not_make_cheaper_what_was_paid(algorithm, privacy, tmp_path):
    """The noise is that of the rounds that were planned first, whatever is planned later; so is what it costs."""
    problem = Linear(clients=5, size=4, samples=20, test=20)
    topology = Star() if privacy else Peers(shape="ring")
    federation = Federation(problem, algorithm, topology, privacy=privacy, rounds=4, every=4, engine="plain")
    first = saved(federation, tmp_path / "first")
    more = federation.with_(rounds=16).run(keep=Keep(start=first / "model.npz"))
    before, after = load(first / "model.npz").told["paid"]["nodes"], more.ledger()["seeds"][0]["nodes"]
    for was, now in zip(before, after):
        rounds = now["releases"] / was["releases"]  # published noise has no budget, and goes on
        assert now["spent"]["rho"] == pytest.approx(rounds * was["spent"]["rho"], rel=1e-9) and rounds in (1, 4)
        assert now["spent"]["epsilon"] >= was["spent"]["epsilon"] * (1 - 1e-9) > 1.9


def test_streams_of_files_keep_their_horizon(tmp_path):
    """Arrivals follow the rounds of the first run where the description names no horizon, and that is said."""
    draw = np.random.default_rng(3)
    (tmp_path / "data").mkdir()
    for name in "abc":
        x = draw.standard_normal((30, 2))
        np.savez(tmp_path / "data" / f"{name}.npz", x=x, y=x @ [1.0, -2.0])
    open_end = Federation(Files(data=str(tmp_path / "data")), PaoFed(step=0.1, portion=1), **(PLAIN | {"rounds": 40}))
    first = saved(open_end, tmp_path / "first")
    with pytest.warns(UserWarning, match=r"Samples go on arriving over 40 rounds.*problem\.horizon"):
        open_end.with_(rounds=60).run(keep=Keep(start=first / "model.npz"))
    settled = open_end.with_(problem=Files(data=str(tmp_path / "data"), horizon=50))
    first = saved(settled, tmp_path / "second")
    more = saved(settled.with_(rounds=60), tmp_path / "more", Keep(tmp_path / "more", start=first / "model.npz"))
    assert_same(more, saved(settled.with_(rounds=60), tmp_path / "whole"))


# --- weights --------------------------------------------------------------------------------------------------------


def test_weights_are_where_another_federation_starts(tmp_path):
    problem = Linear(clients=5, size=4, samples=20, test=20)
    first = saved(Federation(problem, FedAvg(step=0.05), **PLAIN), tmp_path / "first")
    learned = load(first / "model.npz")
    star = Federation(problem, FedAvg(step=0.01), **PLAIN)
    again = star.run(keep=Keep(start=first / "model.npz"))
    at_first = [row[3] for row in again.rows if row[1:3] == (0, "mse")]
    assert at_first == [star.setup().task.score({"server": learned.model()}, 0)["mse"]]
    peers = Federation(problem, FedAvg(step=0.01), Peers(shape="ring"), **PLAIN).run(
        keep=Keep(start=first / "model.npz")
    )
    assert (
        peers.rows[0][3] < 0.9 * Federation(problem, FedAvg(step=0.01), Peers(shape="ring"), **PLAIN).run().rows[0][3]
    )


def test_clusters_start_in_the_middle_of_their_clients_weights(tmp_path):
    """They start near what was learned, not at zero."""
    problem = Linear(clients=6, size=4, samples=20, test=20)
    clustered = Federation(problem, FedAvg(step=0.05), Star(clusters=2), **PLAIN)
    first = saved(clustered, tmp_path / "first")
    setup = Keep(start=first / "model.npz").begun(clustered, clustered.setup())
    mix = clustered.instance(setup=setup).plan.tables["server"].mix
    learned = load(first / "model.npz").weights["clients"]
    for q in range(2):
        mean = learned[setup.graph.cluster == q].mean(0)
        assert np.abs(mean).max() > 0.1
        np.testing.assert_allclose(mix.model[0, q], mean, atol=1e-12)
        np.testing.assert_allclose(mix.mean[0, q], mean, atol=1e-12)
    other = clustered.with_(algorithm=FedAvg(step=0.01, tau=0.1))
    begun, anew = other.run(keep=Keep(start=first / "model.npz")), other.run()
    assert begun.rows[0][3] < 0.5 * anew.rows[0][3] and begun.final("mse") < anew.final("mse")


def test_what_was_paid_for_weights_is_not_forgotten(tmp_path, monkeypatch):
    first = saved(FAMILIES["private star"], tmp_path / "first")
    other = FAMILIES["private star"].with_(algorithm=PaoFed(step=0.1, portion=3))
    ledger = other.run(keep=Keep(start=first / "model.npz")).ledger()["seeds"][0]
    assert ledger["before"]["worst"] == load(first / "model.npz").told["paid"]["worst"]
    part = broken(other, tmp_path / "part", monkeypatch, 2, start=first / "model.npz")
    assert other.run(keep=Keep(part, resume=True)).ledger()["seeds"][0] == ledger


@pytest.mark.parametrize("between", [FAMILIES["private star"].privacy, None])
def test_weights_of_weights_have_paid_for_all_of_them(between, tmp_path):
    """A second run's model said what that run alone had paid: of two runs at epsilon 4 a third knew of one."""
    first = saved(FAMILIES["private star"], tmp_path / "first")
    other = FAMILIES["private star"].with_(algorithm=PaoFed(step=0.1, portion=3))
    second = other.with_(privacy=between).run(keep=Keep(start=first / "model.npz"))
    second.save(tmp_path / "second")
    third = other.with_(algorithm=PaoFed(step=0.1, portion=4)).run(keep=Keep(start=tmp_path / "second/model.npz"))
    ledger = third.ledger()["seeds"][0]
    worst = load(first / "model.npz").told["paid"]["worst"]
    own = "epsilon = 4" if between else "what nobody bounds"
    assert ledger["before"]["before"]["worst"] == worst and worst["epsilon"] == pytest.approx(4)
    assert costs(ledger["before"]) == [own, "epsilon = 4"]
    assert f"had cost {own}, and before that epsilon = 4" in privacy_words(ledger)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"problem": Synthetic(clients=6, features=13, test=20, horizon=40, samples=(40,))}, "one of 13, as here"),
        ({"seed": 5}, "a model of the same features"),
        ({"problem": Linear(clients=6, size=12, samples=20), "algorithm": FedAvg()}, "a model of the same features"),
    ],
)
def test_weights_that_mean_something_else_are_refused(change, said, tmp_path):
    first = saved(FAMILIES["star"], tmp_path / "first")
    with pytest.raises(BadInput, match=said):
        FAMILIES["star"].with_(**change).run(keep=Keep(start=first / "model.npz"))


def test_kinds_that_keep_more_than_weights_say_so(tmp_path):
    first = saved(FAMILIES["peers"], tmp_path / "first")
    (first / "checkpoint.npz").unlink()
    with pytest.raises(BadInput, match="zcdp-nfl goes on from a complete state only"):
        FAMILIES["peers"].run(keep=Keep(start=first / "model.npz"))


# --- mistakes -------------------------------------------------------------------------------------------------------


def test_mistakes_are_sentences(folder, archipel):
    (folder / "f.toml").write_text(FAMILIES["stored"].to_toml())
    assert archipel("run", "f.toml", "--out", "done").status == 0
    said = archipel("run", "f.toml", "--out", "done", "--resume", "--rounds", "10")
    assert said.status == 2 and "rounds = 10: expected at least 30" in said.err
    (folder / "g.toml").write_text(FAMILIES["stored"].with_(seed=9).to_toml())
    said = archipel("run", "g.toml", "--out", "done", "--resume")
    assert said.status == 2 and "a checkpoint of this description" in " ".join(said.err.split())
    said = archipel("run", "f.toml", "--out", "new", "--from", "nowhere.npz")
    assert said.status == 2 and "a file that exists" in said.err
    whole = (folder / "done" / "checkpoint.npz").read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"PK" + whole[50:]):
        (folder / "done" / "checkpoint.npz").write_bytes(broken)
        said = archipel("run", "f.toml", "--out", "done", "--resume")
        assert said.status == 2 and "remove it to begin anew" in " ".join(said.err.split())


def test_a_folder_is_as_good_as_its_model(folder, archipel):
    (folder / "f.toml").write_text(FAMILIES["stored"].to_toml())
    assert archipel("run", "f.toml", "--out", "done", "--rounds", "15").status == 0
    assert archipel("run", "f.toml", "--out", "more", "--from", "done").status == 0
    assert_same(folder / "more", saved(FAMILIES["stored"], folder / "whole"))


def test_who_is_new_starts_from_the_common_model(tmp_path):
    """Clients are known by name: those of the first run at their own models, others where all together are."""
    draw = np.random.default_rng(3)
    for place, names in (("few", "abc"), ("more", "bcad")):
        (tmp_path / place).mkdir()
        for name in names:
            x = draw.standard_normal((30, 2))
            np.savez(tmp_path / place / f"{name}.npz", x=x, y=x @ [1.0, -2.0])
    few = Federation(
        Files(data=str(tmp_path / "few"), standardise=False), FedAvg(step=0.01), Peers(shape="ring"), **PLAIN
    )
    learned = load(saved(few.with_(rounds=2), tmp_path / "out") / "model.npz")
    more = few.with_(problem=Files(data=str(tmp_path / "more"), standardise=False))
    setup = Keep(start=tmp_path / "out" / "model.npz").begun(more, more.setup())
    assert setup.task.names == tuple("abcd")
    assert np.array_equal(setup.start["clients"][:3], learned.weights["clients"])
    assert np.array_equal(setup.start["clients"][3], learned.weights["clients"].mean(0))
    assert np.array_equal(more.instance(setup=setup).plan.tables["peer"].model, setup.start["clients"])
