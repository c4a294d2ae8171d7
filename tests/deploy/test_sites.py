"""What a site's owner does: approve, run, read the log; and what the server's owner sees."""

import json
import math
import os
import re
import sys
import time
import tomllib
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from harness import Village
from processes_here import Process, archipel
from test_replay import TABLE
from test_rules import epsilon_spent

from archipel import Federation, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy import wire
from archipel.deploy.machine import Machine
from archipel.deploy.metrics import Metrics, exposition
from archipel.deploy.node import open_node
from archipel.deploy.post import LATEST, LOG
from archipel.deploy.proxy import free_port
from archipel.deploy.real import read_status
from archipel.deploy.view import view_of
from archipel.describe import write_toml
from archipel.errors import BadInput
from archipel.policy import Policy, approval_of, approve, policy_path, read_policy
from archipel.problems.networked import Regression
from archipel.topology import Peers
from commands import typed
from waiting import wait_until

DESCRIPTION = """
rounds = 30
[problem]
kind = "synthetic"
clients = 2
features = 8
test = 5
[algorithm]
kind = "pao-fed"
[privacy]
epsilon = 4.0
clip = 1.0
[deploy]
patience = 600.0
deadline = 600.0
status = 0.2
durable = false
[deploy.addresses]
server = "127.0.0.1:PORT"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "federation.toml").write_text(DESCRIPTION.replace("PORT", str(free_port())))
    return tmp_path


# --- the file ---------------------------------------------------------------------------------------------------------


def hash_of(federation, name="client-0"):
    return approval_of(federation, view_of(federation, name).digest)


def test_a_changed_description_is_another_one():
    """Every key that changes what leaves, what it costs or how long it goes on; not where things lie."""
    federation = Federation(Synthetic(clients=2, features=8), PaoFed(), rounds=5)
    table = tomllib.loads(federation.to_toml())
    seen = {hash_of(federation)}
    changes = [("rounds", 6), ("seed", 3), ("problem.features", 9), ("algorithm.step", 0.1), ("deploy.pace", "clock")]
    changes += [
        ("deploy.data", "mqtt://there/topic"),
        ("privacy.epsilon", 1.0),
        ("privacy.epsilon", 2.0),
        ("privacy.clip", 0.5),
    ]
    for key, value in changes:
        changed = tomllib.loads(write_toml(table))
        section, _, name = key.rpartition(".")
        (changed.setdefault(section, {}) if section else changed)[name] = value
        if section == "privacy":
            changed["privacy"].setdefault("clip", 1.0)
            changed["privacy"].setdefault("epsilon", 3.0)
        seen.add(hash_of(Federation.from_table(changed)))
    assert len(seen) == len(changes) + 1
    more = federation.with_(problem=Synthetic(clients=3, features=8))
    assert hash_of(more) == hash_of(federation)  # what leaves here, and to whom, stays
    ring = {n: Federation(Regression(clients=n), ZcdpNfl(), Peers(shape="ring"), rounds=5) for n in (3, 4)}
    assert hash_of(ring[3]) != hash_of(ring[4])  # here it does not
    elsewhere = {
        **table,
        "deploy": {**table["deploy"], "state": "there", "keys": "here", "addresses": {"server": "a:1"}},
    }
    assert hash_of(Federation.from_table(elsewhere)) == hash_of(federation)


def test_the_code_of_a_users_own_part_is_part_of_what_is_approved(tmp_path):
    """Another algorithm under the same name is another one."""
    code = "from archipel import PaoFed\n\n\nclass Mine(PaoFed):\n    pass\n"
    (tmp_path / "mine.py").write_text(code)
    text = DESCRIPTION.replace('"pao-fed"', '"mine.py:Mine"').replace("PORT", "1000")
    (tmp_path / "federation.toml").write_text(text)
    before = hash_of(Federation.load(tmp_path / "federation.toml"))
    (tmp_path / "mine.py").write_text(code + "\n# and more\n")
    assert hash_of(Federation.load(tmp_path / "federation.toml")) != before


@pytest.mark.parametrize(
    "text",
    [
        "",
        '# ours\nhours = "22:00-06:00"\n[privacy]\nepsilon = 2.0\n',
        'approved = [\n  "aa",  # the first\n]\nleaves = ["models", "samples"]\n',
        'rounds = 5\napproved = ["aa", "bb"] # two\n[privacy]\nrho = 0.1\n',
    ],
)
def test_approving_adds_a_line_and_leaves_the_rest(tmp_path, text):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    before = read_policy(path)
    for _ in range(2):
        approve(path, "cc")
        after = read_policy(path)
        assert after == Policy(**{**vars(before), "approved": (*before.approved, "cc")})
    assert all(line in path.read_text() for line in text.splitlines() if "approved" not in line and "aa" not in line)


def test_a_policy_that_cannot_be_read_is_a_sentence(tmp_path):
    path = tmp_path / "policy.toml"
    for text, key in (
        ('leave = ["models"]', "policy.leave"),
        ('leaves = ["model"]', "policy.leaves"),
        ('hours = "10 to 12"', "policy.hours"),
        ("[privacy]\nepsilon = 1.0\nrho = 1.0", "policy.privacy.rho"),
        ("[privacy]\nepsilon = -1.0", "policy.privacy.epsilon"),
        ("bytes_a_day = -5", "policy.bytes_a_day"),
        ("approved = 3", "policy.approved"),
    ):
        path.write_text(text)
        with pytest.raises(BadInput, match=key.replace(".", r"\.")):
            read_policy(path)


def test_where_a_policy_is_looked_for(tmp_path):
    """Beside the description, or as given; never where a description says."""
    description = tmp_path / "federation.toml"
    assert policy_path(None, description) is None
    with pytest.raises(BadInput, match="--policy"):
        policy_path(tmp_path / "policy.toml", description)
    (tmp_path / "policy.toml").write_text("")
    assert policy_path(None, description) == tmp_path / "policy.toml"
    text = DESCRIPTION.replace("PORT", "1000").replace("status = 0.2", 'policy = "other.toml"')
    description.write_text(text)
    with pytest.raises(BadInput, match=r"deploy\.policy"):
        Federation.load(description)


# --- the commands -----------------------------------------------------------------------------------------------------


def test_a_site_approves_runs_and_reads_what_left(folder):
    """From the question to the log: one site has rules, the others have none; the server sees all three."""
    assert typed("keys", "federation.toml", cwd=folder).returncode == 0
    site = folder / "site-1"
    site.mkdir()
    rules = site / "policy.toml"
    rules.write_text('leaves = ["models", "status"]\n[privacy]\nepsilon = 8.0\ndelta = 1e-5\n')
    refused = archipel("node", "federation.toml", "--name", "client-1", "--policy", rules, cwd=folder)
    assert refused.returncode == 2 and "policy.approved = []: expected" in refused.stderr
    no = typed("approve", "federation.toml", "--policy", rules, "--name", "client-1", cwd=folder, given="n\n")
    assert no.returncode == 1 and read_policy(rules).approved == ()
    yes = typed("approve", "federation.toml", "--policy", rules, "--name", "client-1", "--yes", cwd=folder)
    assert yes.returncode == 0, yes.stderr
    for said in ("to server, at most once a round: models (4 x values, 1 x start), 32 bytes; 960 bytes in all",
                 "one sample replaced by another: epsilon at most 4 at delta = 1e-05", "enforced",
                 "policy.privacy.epsilon = 8 at delta = 1e-05"):  # fmt: skip
        assert said in yes.stdout
    port = free_port()

    def started(*words):
        command = (sys.executable, "-m", "archipel", "node", "federation.toml", "--name")
        return Process(*command, *map(str, words), cwd=folder)

    with started("client-0", "--metrics", f"127.0.0.1:{port}") as first:
        state = folder / "state" / "client-0"
        wait_until(lambda: read_status(state), state)
        metrics, health = asked(port, "metrics"), json.loads(asked(port, "health"))
        server, second = started("server", "--log", "json"), started("client-1", "--policy", rules)
        with server, second:
            assert [node.end() for node in (server, first, second)] == [0, 0, 0], [
                server.words,
                first.words,
                second.words,
            ]
    assert 'archipel_rounds{node="client-0"} 30' in metrics and health["well"] is True
    assert all(json.loads(line)["level"] == "info" for line in server.words)
    assert "no policy: the site has no rules" in first.words[0] and "under" in second.words[0]
    assert "all 30 rounds are over" in second.words[-1]
    log = json.loads(typed("log", site, "--json", cwd=folder).stdout)
    assert {row["what"] for row in log["left"]} <= {"models", "notes", "status"}
    words = next(row for row in log["left"] if row["what"] == "models")
    assert words["bytes"] == 32 * words["frames"] and words["to"] == "server"
    (paid,) = log["paid"]
    status = json.loads(typed("status", folder / "state" / "server", "--json", cwd=folder).stdout)[0]
    known = status["neighbours"]
    assert known["client-1"]["paid"] == pytest.approx(paid["rho"], rel=1e-9) and known["client-0"]["skipped"] == 0
    described = Federation.load(folder / "federation.toml")
    again = open_node(described, "server", folder, None, described.deploy.addresses)
    for name, one in again.status()["neighbours"].items():
        assert all(one[key] == known[name][key] for key in ("seen", "round", "bytes", "paid", "skipped"))
    again.close()
    shown = typed("status", folder / "state", cwd=folder).stdout
    assert all(name in shown for name in ("server", "client-0", "client-1"))
    readable = typed("log", site, cwd=folder).stdout
    together = float(
        re.search(r"Together, for a sample \(replace-one\): epsilon ([\d.]+) at delta = 1e-05", readable)[1]
    )
    assert together == pytest.approx(epsilon_spent(paid["rho"], 1e-5), rel=1e-3)
    assert "models" in readable and "Paid by client-1" in readable and "8 at delta" in readable
    (folder / "federation.toml").write_text(
        (folder / "federation.toml").read_text().replace("rounds = 30", "rounds = 31")
    )
    changed = archipel("node", "federation.toml", "--name", "client-1", "--policy", rules, cwd=folder)
    assert changed.returncode == 2 and "policy.approved" in changed.stderr


def test_a_server_has_one_open_port_and_a_client_none(folder):
    """While they talk, and wait for a third who does not come."""
    path = folder / "federation.toml"
    path.write_text(path.read_text().replace("[deploy]", '[deploy]\npace = "replay"'))
    assert typed("keys", "federation.toml", cwd=folder).returncode == 0
    command = [sys.executable, "-m", "archipel", "node", "federation.toml", "--name"]
    with Process(*command, "server", cwd=folder) as server, Process(*command, "client-1", cwd=folder) as client:
        state = folder / "state" / "client-1"
        wait_until(lambda: read_status(state).get("heard"), state)
        address = tomllib.loads(path.read_text())["deploy"]["addresses"]["server"]
        assert open_ports(server) == [int(address.rpartition(":")[2])] and open_ports(client) == []


def open_ports(node):
    """The ports at which a process can be reached, by TCP or UDP."""
    folder, found = f"/proc/{node.process.pid}", []
    mine = set()
    for number in os.listdir(f"{folder}/fd"):
        with suppress(OSError):
            mine.add(os.readlink(f"{folder}/fd/{number}"))
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"{folder}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = words = line.split()
            if f"socket:[{words[9]}]" in mine and (table.startswith("udp") or state == "0A"):
                found.append(int(local.rpartition(":")[2], 16))
    return found


def asked(port, what):
    """What a node answers that is there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=600) as answer:
        return answer.read().decode()


def test_what_the_rules_forbid_is_not_written(folder):
    (folder / "policy.toml").write_text('to = ["other"]\nrounds = 10\n')
    found = typed("approve", "federation.toml", "--yes", cwd=folder)
    assert found.returncode == 2 and read_policy(folder / "policy.toml").approved == ()
    assert "policy.to" in found.stderr and "policy.rounds" in found.stderr
    nowhere = typed("status", "nowhere", cwd=folder)
    assert nowhere.returncode == 2 and "state/server" in nowhere.stderr
    assert "Nothing has left" in typed("log", ".", cwd=folder).stdout


def test_who_has_no_rules_yet_is_told_where_they_would_be(tmp_path):
    text = 'rounds = 3\n[problem]\nkind = "linear"\nclients = 2\n[algorithm]\nkind = "fedavg"\n'
    (tmp_path / "federation.toml").write_text(f'{text}[deploy.addresses]\nserver = "127.0.0.1:7447"\n')
    found = typed("approve", "federation.toml", "--yes", cwd=tmp_path)
    assert found.returncode == 2 and '"samples" among them' in found.stderr
    assert "There are no rules yet (policy.toml): of what is named above, only models may leave." in found.stdout
    (tmp_path / "policy.toml").write_text('leaves = ["models", "samples"]\n')
    found = typed("approve", "federation.toml", "--yes", cwd=tmp_path)
    assert found.returncode == 0 and "no rules" not in found.stdout


# --- seeing it --------------------------------------------------------------------------------------------------------


def test_prometheus_reads_the_numbers_of_every_role():
    """Its own parser, for a server, a client that pays and a peer; names may hold quotes and the like."""
    parser = pytest.importorskip("prometheus_client.parser")
    village = Village(TABLE["zcdp-nfl"].with_(rounds=5))
    village.run()
    for node in (*village.nodes.values(), SimpleNamespace(status=lambda: odd(village))):
        status = node.status()
        found = {family.name: family for family in parser.text_string_to_metric_families(exposition(status))}
        samples = {(s.name, *sorted(s.labels.items())): s.value for f in found.values() for s in f.samples}
        name = ("node", status["name"])
        assert samples["archipel_round", name] == status["round"]
        assert samples["archipel_bytes_total", name, ("way", "out")] == status["traffic"]["bytes out"]
        assert samples["archipel_paid_rho", name] == status["paid"] > 0
        assert found["archipel_bytes"].type == "counter" and found["archipel_round"].type == "gauge"
        near = {dict(key[1:])["neighbour"] for key in samples if key[0] == "archipel_neighbour_up"}
        assert near == set(status["neighbours"])


def test_a_node_has_a_page_of_its_own_and_a_server_one_of_all_machines():
    federation = Federation(Synthetic(clients=3, features=8, samples=(20,), horizon=20), PaoFed(), rounds=20)
    village = Village(federation)
    village.run()
    for name, others in (("server", 3), ("client-1", 1)):
        node = village.nodes[name]
        view = Machine(SimpleNamespace(latest=node.status()))
        told = view.news("")
        assert view.stamp() == (20, others, node.status()["bytes"]) and told["lead"] == "Round 20 of 20: done."
        assert [row[0] for row in told["clients"]["rows"]] == list(node.status()["neighbours"])
        assert f"<h1>{name}</h1>" in view.page() and "Refused" in told["cards"]


def test_the_page_of_all_machines_says_who_is_away_who_left_and_what_waits():
    federation = Federation(Synthetic(clients=3, features=8, samples=(20,), horizon=20), PaoFed(), rounds=20)
    village = Village(federation, pace="quorum", deadline=5.0, status=1.0)
    village.until(lambda: village.nodes["server"].player.round >= 5)
    village.world.hosts["client-2"].leaves = True
    village.kill("client-2", 0.0)
    village.until(lambda: village.nodes["server"].office.neighbours["client-2"].left)
    village.world.links = {("client-0", "server"): lambda delay, key: []}
    server = village.nodes["server"]
    village.until(lambda: server.player.round >= 15)
    told = Machine(SimpleNamespace(latest=server.status())).news("")["clients"]
    rows = {row[0]: dict(zip(told["columns"], row)) for row in told["rows"]}
    letters = server.office.neighbours["client-0"].letters
    assert rows["client-0"]["letters waiting"] == len(letters) > 0
    assert rows["client-0"]["bytes waiting"] == sum(len(letter.body) for letter in letters) > 0
    assert rows["client-0"]["round"] < 15 <= rows["client-1"]["round"] + 1
    assert rows["client-2"]["is"] == "gone for good" and rows["client-2"]["letters waiting"] == 0
    assert rows["client-1"]["is"] == "heard" and rows["client-1"]["updates"] > 0
    assert rows["client-1"]["bytes from it"] > rows["client-0"]["bytes from it"] > 0


def odd(village):
    """A status with a name that must be escaped."""
    status = village.nodes["client-0"].status()
    return status | {"name": 'a "b" \\ c', "faults": {"another\nline": 3}}


def test_a_node_that_has_stopped_looking_around_is_not_well():
    latest = {"time": time.time() - 3600, "round": 3, "rounds": 9}
    shown = Metrics("127.0.0.1:0", SimpleNamespace(latest=latest))
    try:
        with pytest.raises(urllib.error.HTTPError) as problem:
            urllib.request.urlopen(f"http://127.0.0.1:{shown.port}/health", timeout=600)
        assert problem.value.code == 503 and json.loads(problem.value.read())["well"] is False
        with pytest.raises(BadInput, match="--metrics"):
            Metrics(f"127.0.0.1:{shown.port}", None)
    finally:
        shown.close()
    with pytest.raises(BadInput, match="--metrics"):
        Metrics("9464", None)


def test_a_line_for_each_thing_that_happens(caplog):
    """Who was met, who fell silent and is back, and the end; a status only where it was asked for."""
    federation = Federation(Synthetic(clients=2, features=8, samples=(400,), horizon=400), PaoFed(), rounds=400)
    with caplog.at_level("INFO", LOG.name):
        village = Village(federation, pace="clock", period=1.0, patience=600.0)
        for node in village.nodes.values():
            node.report_every = 0.5
        village.until(lambda: village.nodes["server"].player.round > 20)
        village.world.links = {("client-0", "server"): lambda delay, key: []}
        village.until(lambda: village.nodes["client-0"].office.neighbours["server"].wait >= LATEST)
        village.until(lambda: village.nodes["client-0"].events.silent)
        village.world.links = {}
        village.run()
    lines = [record.getMessage() for record in caplog.records]
    for said in ("client-0: met server", "client-0: no answer from server", "client-0: server answers again",
                 "client-0: all 400 rounds are over", "server: met client-0, client-1"):  # fmt: skip
        assert any(line.startswith(said) for line in lines), (said, lines)
    assert sum("round" in line and "bytes sent" in line for line in lines) >= 3
    assert not any(data[0] & 15 == wire.STATUS for _, _, data in village.seen.sent)


def test_a_status_costs_28_bytes_and_only_where_it_is_asked_for():
    federation = Federation(Synthetic(clients=2, features=8, samples=(40,), horizon=40), PaoFed(), rounds=40)
    village = Village(federation, pace="clock", period=1.0, status=10.0)
    village.run()
    told = [(sender, len(data)) for sender, _, data in village.seen.sent if data[0] & 15 == wire.STATUS]
    assert {size for _, size in told} == {28} and {sender for sender, _ in told} == {"client-0", "client-1"}
    assert 6 <= len(told) <= 12
    known = village.nodes["server"].status()["neighbours"]["client-0"]
    assert known["updates"] > 20 and known["paid"] is None and known["skipped"] == 0


def test_what_is_shown_of_neighbours_outlives_a_restart_but_not_a_lost_disk():
    federation = Federation(Synthetic(clients=2, features=8, samples=(40,), horizon=40), PaoFed(), rounds=40)
    village = Village(federation, pace="clock", period=1.0, status=2.0)
    village.until(lambda: village.nodes["server"].player.round >= 20)
    before = json.loads(json.dumps(village.nodes["server"].status()))
    for disk, kept in ((None, True), ({}, False)):
        village.kill("server")
        if disk is not None:
            village.hosts["server"].disk.put(disk)
        village.start("server")
        server = village.nodes["server"]
        server.remember(before)
        known = server.status()["neighbours"]["client-0"]
        shown = {key: known.get(key) for key in ("seen", "round", "bytes", "updates", "paid", "skipped")}
        assert ({**before["neighbours"]["client-0"], **shown} == before["neighbours"]["client-0"]) is kept


@pytest.mark.parametrize("paid", [float("inf"), float("-inf"), float("nan"), 1e308])
def test_what_a_neighbour_says_of_itself_may_be_a_lie_and_harms_nothing(paid):
    """It is shown, as JSON and for Prometheus, and changes no round."""
    federation = Federation(Synthetic(clients=2, features=8, samples=(20,), horizon=20), PaoFed(), rounds=20)
    village = Village(federation, pace="clock", period=1.0, status=5.0)
    for name in ("client-0", "client-1"):
        village.nodes[name].account.total = lambda me: paid
    village.run()
    status = village.nodes["server"].status()
    assert status["neighbours"]["client-0"]["paid"] == (paid if abs(paid) <= 1e308 else None)
    json.dumps(status, allow_nan=False)
    assert "inf" not in exposition(status).lower().replace("client-0", "")


def test_a_site_that_cannot_be_written_to_is_a_sentence(folder):
    assert typed("keys", "federation.toml", cwd=folder).returncode == 0
    assert typed("approve", "federation.toml", "--yes", cwd=folder).returncode == 0
    (folder / "site").write_text("a file where a folder should be")
    found = archipel("node", "federation.toml", "--name", "client-0", cwd=folder)
    assert found.returncode == 2 and "policy = " in found.stderr and found.stderr.count("\n") == 1


# --- the page ---------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sites.md").read_text(encoding="utf-8")


def shown_after(command):
    """The commands, and what the page shows of their answers, line by line."""
    text = PAGE[PAGE.index(f"    {command}") :].split("\n\n    ", 1)[1].split("\n\n")[0]
    return [line.strip() for line in text.splitlines()]


def test_the_page_for_sites_shows_what_is_said(tmp_path):
    """Its policy is one, its description is answered as shown, its sentence is the code's, its commands are there."""
    draw = np.random.default_rng(1)
    for name in ("buoy-1", "buoy-2", "buoy-3"):
        rows = "".join(f"{a},{b},{a - b}\n" for a, b in draw.random((40, 2)))
        (tmp_path / f"{name}.csv").write_text("temperature,depth,salinity\n" + rows)
    (tmp_path / "federation.toml").write_text(
        'rounds = 500\n[problem]\nkind = "files"\ndata = "*.csv"\ntarget = "salinity"\nfeatures = 20\n'
        "[problem.scale]\n"
        + "".join(f"{name} = {{center = 0.0, spread = 1.0}}\n" for name in ("temperature", "depth", "salinity"))
        + '[algorithm]\nkind = "pao-fed"\n[privacy]\nepsilon = 4.0\nclip = 1.0\n'
    )
    command = re.search(r"    archipel (approve .*)", PAGE)[1].split()
    found = typed(*command, "--yes", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    said = [line.strip() for line in found.stdout.splitlines()]
    assert all(line in said for line in shown_after("archipel approve")), found.stdout
    rules = re.search(r"```toml\n# policy.toml\n(.*?)```", PAGE, re.DOTALL)[1]
    (tmp_path / "policy.toml").write_text(rules)
    assert typed(*command, "--yes", cwd=tmp_path).returncode == 0  # the page's budget covers the page's description
    deviation = math.sqrt(2 * 0.42774858)  # of a Gaussian mechanism with this zCDP; (epsilon, delta) in closed form
    phi = NormalDist().cdf

    def delta_at(epsilon):
        return phi(deviation / 2 - epsilon / deviation) - math.exp(epsilon) * phi(-deviation / 2 - epsilon / deviation)

    for budget, delta in (
        ("epsilon = 3.9\ndelta = 1e-5", 1e-5),
        ("epsilon = 4.0\ndelta = 1e-6", 1e-6),
        ("rho = 0.4", 0),
    ):
        (tmp_path / "policy.toml").write_text(f'leaves = ["models", "samples"]\n[privacy]\n{budget}\n')
        found = typed(*command, "--yes", cwd=tmp_path)
        assert found.returncode == 2 and read_policy(tmp_path / "policy.toml").approved == ()
        least = float(re.search(r"policy\.privacy\.\w+ = [\d.]+: expected at least ([\d.]+)", found.stderr)[1])
        assert (
            delta_at(least) == pytest.approx(delta, rel=1e-3) if delta else least == pytest.approx(0.42774858, rel=1e-4)
        )
    assert set(tomllib.loads(rules)) == {field.name for field in fields(Policy)}
    assert typed("explain", "policy", cwd=tmp_path).returncode == 0
    for line in re.findall(r"    archipel (\w+) ", PAGE):
        assert typed(line, "--help").returncode == 0
    sentence = re.search(r"`(policy\.leaves = [^`]*)`", PAGE)[1]
    right = '"losses" among them, which buoy-2 would say'
    assert sentence == str(BadInput("policy.leaves", ["models"], right))
