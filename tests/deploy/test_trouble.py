"""A missing peer, a busy port, an expired certificate, a full disk: one sentence, a status, no torn checkpoint."""

import resource
import signal
import socket
import sys

import pytest
from harness import simulated
from processes_here import Process, archipel, assert_same_files, deployed, processes_in
from test_replay import SMALL, TABLE

from archipel.deploy import keys
from archipel.deploy.proxy import free_port
from archipel.deploy.run_node import last_words
from archipel.deploy.store import Halted
from archipel.errors import BadInput
from archipel.privacy.ledger import Overspent
from waiting import wait_for_end, wait_until

pytest.importorskip("zenoh")

MEMBER = (sys.executable, "-m", "archipel.deploy.run_node")


@pytest.fixture
def described(tmp_path):
    """A description whose server listens here, with keys."""
    path, port = tmp_path / "federation.toml", free_port()
    text = TABLE["pao-fed-c2"].to_toml().replace("patience = 60.0", "patience = 1.0")
    path.write_text(text.replace("[deploy.addresses]", f'[deploy.addresses]\nserver = "127.0.0.1:{port}"'))
    names = ["server", *(f"client-{k}" for k in range(6))]
    keys.make(tmp_path / "keys", {name: ["127.0.0.1"] if name == "server" else [] for name in names})
    return path, port


def assert_one_sentence(node, status, said):
    assert node.end() == status, node.words
    sentences = [line for line in node.words if not line.startswith("20")]  # what happens has a date before it
    assert len(sentences) == 1 and said in node.words[-1], node.words


def test_nobody_answers(described):
    with Process(*MEMBER, described[0], "--name", "client-1") as node:
        assert_one_sentence(node, 1, "no answer from server for 1 seconds")


def test_a_busy_port(described):
    path, port = described
    with socket.create_server(("127.0.0.1", port)), Process(*MEMBER, path, "--name", "server") as node:
        assert_one_sentence(node, 2, "an address whose port no other program uses")


def test_an_expired_certificate(described):
    path, _ = described
    keys.make_certificate(path.parent / "keys", "client-2", [], days=-1)
    with Process(*MEMBER, path, "--name", "client-2") as node:
        assert_one_sentence(node, 2, "a certificate that is valid; this one expired on")


def test_the_servers_certificate_has_expired(described):
    """Its clients refuse it, and say that there is no answer."""
    path, port = described
    keys.make_certificate(path.parent / "keys", "server", ["127.0.0.1"], days=-1)
    from archipel.deploy.zenoh_link import ZenohLink, bare_config, tls

    settings = bare_config([f"tls/127.0.0.1:{port}"], [], 1000) | tls(path.parent / "keys", "server")
    link = ZenohLink("server", ["client-0"], settings)
    with Process(*MEMBER, path, "--name", "client-0") as node:
        assert_one_sentence(node, 1, "no answer from server for 1 seconds")
    link.close()


@pytest.mark.parametrize(
    "keep", [pytest.param(1500, marks=pytest.mark.long), 5000], ids=["no checkpoint fits", "later"]
)
def test_a_full_disk(keep, tmp_path, monkeypatch):
    """No file may grow beyond a size, as on a disk without room: one sentence. With room it goes on where it was.

    The description just fits. The status is 1, of who could not even begin too: systemd starts it again.
    """
    federation = SMALL["pao-fed-c2"].with_(rounds=40, every=1)
    everything = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (keep, everything[1]))
    try:
        with pytest.raises(Halted, match=r"ended with status 1: .*File too large") as halted:
            deployed(federation, tmp_path, pace="replay")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, everything)
    assert "\n" not in str(halted.value)
    _, result = deployed(federation, tmp_path, pace="replay")
    assert_same_files(tmp_path, simulated(federation), federation, result)


def test_a_wrong_name_and_a_missing_description(described):
    found = archipel("node", described[0], "--name", "client-9")
    assert found.returncode == 2 and "client-5" in found.stderr and found.stderr.count("\n") == 1
    found = archipel("node", described[0].parent / "nothing.toml", "--name", "server")
    assert found.returncode == 2 and found.stderr.count("\n") == 1


def test_nodes_end_when_whoever_started_them_is_killed(tmp_path):
    """kill -9 of `archipel up` leaves nobody behind; kill -9 of what starts the nodes neither."""
    path = tmp_path / "federation.toml"
    path.write_text(TABLE["pao-fed-c2"].with_(rounds=100_000).to_toml())
    with Process(sys.executable, "-m", "archipel", "up", path, "--out", tmp_path / "out") as up:
        nodes = [tmp_path / "out" / "nodes" / name for name in ("server", *(f"client-{k}" for k in range(6)))]
        wait_until(lambda: all((node / "status.json").exists() for node in nodes), *nodes)
        before = processes_in(tmp_path)
        assert len(before) >= 8
        up.process.send_signal(signal.SIGKILL)
        for pid in before:
            wait_for_end(pid)
        assert not processes_in(tmp_path)


def test_what_another_start_does_not_mend_ends_with_2(capsys, caplog):
    """systemd starts a node again after 1, and not after 2: a spent budget stays spent, a disk may not stay full."""
    with caplog.at_level("CRITICAL"):
        for problem, status in ((Overspent("Spent."), 2), (BadInput("a", 1, "2"), 2), (OSError(28, "Full"), 1)):
            assert last_words("client-0", problem, 1) == status
    assert "Spent." in capsys.readouterr().err + caplog.text
