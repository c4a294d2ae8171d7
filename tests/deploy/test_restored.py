"""Devices that are replaced, states that are put back from a backup, and `archipel leave` as a command."""

import signal
import sys

import pytest
from harness import Village
from processes_here import Process, archipel
from test_guide import described, wait_for_status

from archipel import Federation, PaoFed, Synthetic
from archipel.privacy.policy import Privacy
from commands import typed

ROUNDS = 40
PROBLEM = Synthetic(clients=3, features=12, test=50, horizon=400, samples=(400,))
OPEN = Federation(PROBLEM, PaoFed(step=0.2, limit=4), rounds=ROUNDS)
PRIVATE = OPEN.with_(privacy=Privacy(rho=2.0, clip=1.0, unit="client"))


def begun(federation: Federation, n: int = 15) -> Village:
    here = Village(federation, pace="quorum", deadline=5.0)
    here.until(lambda: here.nodes["server"].player.round >= n)
    return here


def error(here: Village, name: str) -> float:
    """Of a node's model, as the problem scores it."""
    task = here.world.instance.task
    return float(task.score({"server": here.nodes[name].player.me.model}, ROUNDS)["mse"])


@pytest.fixture(scope="module")
def undisturbed() -> float:
    here = begun(OPEN)
    here.run()
    return error(here, "server")


# --- a replaced device ------------------------------------------------------------------------------------------------


def replaced(here: Village, name: str, kept: tuple[str, ...] = ()) -> None:
    """Another device of the same name, with an empty disk, but for what a person carried over."""
    here.kill(name)
    files = here.hosts[name].disk.copy()
    here.hosts[name].disk.put({file: files[file] for file in kept})
    here.start(name)


def test_a_replaced_device_goes_on_where_the_others_are(undisturbed):
    here = begun(OPEN)
    before = here.nodes["client-1"].player.updates
    replaced(here, "client-1")
    here.until(lambda: here.nodes["client-1"].player.updates > 3)
    assert here.nodes["client-1"].player.round >= 15, "not from the first round"
    here.run()
    server = here.nodes["server"]
    assert server.office.traffic["neighbours that lost their disk"] == 1
    assert before + here.nodes["client-1"].player.updates >= ROUNDS - 5 and not here.seen.sentences
    assert error(here, "server") == pytest.approx(undisturbed, rel=0.1)


def test_a_replaced_device_pays_on_from_the_ledger_that_was_carried_over():
    here = begun(PRIVATE)
    paid = here.nodes["client-1"].account.total(here.nodes["client-1"].player.me)
    replaced(here, "client-1", kept=("ledger.journal",))
    again = here.nodes["client-1"]
    assert paid > 0 and again.account.total(again.player.me) == pytest.approx(paid, rel=1e-12)
    here.run()
    total = again.account.total(again.player.me)
    assert paid < total <= 2.0 * (1 + 1e-9) and sum(here.charges("client-1")) == pytest.approx(total, rel=1e-9)


# --- yesterday's backup -----------------------------------------------------------------------------------------------


def test_a_server_from_yesterdays_backup_ends_with_the_others(undisturbed):
    """Its clients are ahead and count anew with it; what it had heard since is lost, nothing else."""
    here = begun(OPEN, 8)
    backup = here.hosts["server"].disk.copy()
    here.until(lambda: here.nodes["server"].player.round >= 30)
    here.kill("server")
    here.hosts["server"].disk.put(backup)
    here.start("server")
    assert here.nodes["server"].player.round < 10
    here.run()
    here.until(lambda: all(host.done for host in here.hosts.values()))
    assert here.nodes["server"].player.round == ROUNDS and not here.seen.sentences
    assert all(not other.letters for other in here.nodes["server"].office.neighbours.values())
    assert error(here, "server") < 2 * undisturbed


def test_a_private_client_from_yesterdays_backup_halts_with_the_reason():
    """It would release again, with other noise, what it was charged for once. A newer ledger stays what it is."""
    here = begun(PRIVATE, 8)
    disk = here.hosts["client-1"].disk
    backup = disk.copy()
    here.until(lambda: here.nodes["server"].player.round >= 20)
    charged = here.charges("client-1")
    here.kill("client-1")
    disk.put(backup | {"ledger.journal": disk.copy()["ledger.journal"]})
    here.start("client-1")
    here.until(lambda: bool(here.seen.sentences))
    assert "this state is older than what has left it" in here.seen.sentences[0][1]
    assert here.charges("client-1") == charged
    here.until(lambda: here.nodes["server"].player.finished)


def test_it_knows_by_itself_even_one_release_behind():
    """Nobody is there to tell it that the last word had left: the ledger does."""
    here = begun(PRIVATE, 8)
    disk, charged = here.hosts["client-1"].disk, len(here.charges("client-1"))
    backup = disk.copy()
    here.until(lambda: len(here.charges("client-1")) == charged + 1)
    for name in ("server", "client-1"):
        here.kill(name)
    disk.put(backup | {"ledger.journal": disk.copy()["ledger.journal"]})
    here.start("client-1")
    assert "this state is older than what has left it" in here.seen.sentences[0][1]


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_archipel_leave(tmp_path):
    """Three processes; one is stopped and leaves. The others end by themselves, and it cannot come back by mistake.

    It leaves before the last one is there, for which the round waits: it cannot be over sooner than that.
    """
    pytest.importorskip("zenoh")
    described(tmp_path, 400, deploy="durable = false\ndeadline = 3600.0")
    assert typed("keys", "federation.toml", cwd=tmp_path).returncode == 0

    def node(name: str) -> Process:
        return Process(sys.executable, "-m", "archipel", "node", "federation.toml", "--name", name, cwd=tmp_path)

    with node("server") as server:
        with node("client-1") as goes:
            wait_for_status(tmp_path, "client-1")
            goes.process.send_signal(signal.SIGTERM)
            assert goes.end() == 130
        left = archipel("leave", "federation.toml", "--name", "client-1", cwd=tmp_path)
        assert left.returncode == 0 and "client-1 has left." in left.stdout, left.stderr
        with node("client-0") as stays:
            assert [server.end(), stays.end()] == [0, 0], [server.words, stays.words]
    again = archipel("node", "federation.toml", "--name", "client-1", cwd=tmp_path)
    assert again.returncode == 2 and "client-1 has left this federation" in again.stderr, (
        "systemd does not start it again"
    )


def test_a_server_without_its_state_goes_on_with_clients_that_all_wait_for_it():
    """All was answered when it was lost; then everyone asks for a later round, and nobody reports for its first one."""
    here = Village(OPEN.with_(rounds=12), pace="quorum", deadline=5.0, first=())
    here.world.interval = 600.0  # seconds between a client's samples
    for name in here.hosts:
        here.start(name)
    clients = [here.hosts[name] for name in here.roster.names["client"]]

    def waiting():
        players = [host.last.player for host in clients if host.last]
        settled = [p.round >= 4 and p.at == 0 and not p.office.neighbours["server"].letters for p in players]
        return len(settled) == 3 and all(settled)

    here.until(waiting)
    here.kill("server")
    here.hosts["server"].disk.put({})
    here.start("server")
    here.run(seconds=24 * 3600.0)
    assert min(host.last.player.updates for host in clients) > 4, "they learned on"
