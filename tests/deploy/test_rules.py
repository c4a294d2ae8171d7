"""A policy that forbids is never overruled: every byte that leaves is looked at by a slow reading of the rules."""

import random
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import combinations

import pytest
from harness import Village
from scipy.stats import norm
from test_replay import TABLE

from archipel import Federation
from archipel.algorithms.deep import DpFedAvgDeep
from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.npfl import NpflRl
from archipel.deploy import node, real, wire
from archipel.deploy.gate import Gate
from archipel.deploy.left import Left
from archipel.deploy.permit import permit
from archipel.deploy.site import SiteLedger
from archipel.deploy.torture import simulation
from archipel.deploy.torture.disk import SimulatedDisk
from archipel.deploy.torture.families import families
from archipel.deploy.torture.run import play
from archipel.deploy.torture.simulation import EPOCH, Host
from archipel.deploy.view import view_of
from archipel.node import named_leaves
from archipel.policy import CONTENTS, Limits, Policy, approval_of, contents_of
from archipel.problems.clustered import Related
from archipel.problems.linear import Linear
from archipel.topology import Peers

ROUNDS = 6
STORED = Linear(clients=3, size=4, samples=20, test=5)
OFFERED = {name: one.with_(rounds=ROUNDS) for name, one in families().items()} | {
    "fedavg": Federation(STORED, FedAvg(batch=5), rounds=ROUNDS),
    "central": Federation(STORED, DpFedAvgDeep(batch=10, asked=0.9), rounds=3),
    "personal": Federation(
        Related(clients=6, tasks=2, size=4, samples=(2, 6), test=5), NpflRl(), Peers(shape="ring", clusters=2), rounds=4
    ),
}
SAYS = {  # what the fields of words are, read off the papers once more
    "models": "values start places bits packed largest models known common control weight mass asked chance stamp",
    "clusters": "cluster",
    "samples": "samples share",
    "losses": "norm loss",
}
MEANING = {field: what for what, fields in SAYS.items() for field in fields.split()}
SENTENCE = re.compile(r"policy\.(approved|leaves|to|rounds|bytes_a_day|privacy\.\w+) = .*?: expected ")


@pytest.mark.parametrize("name", TABLE)
def test_what_every_kind_says_is_known(name):
    for turn in TABLE[name].instance().plan.turns:
        fields = [path for path, _ in named_leaves(turn.word)]
        assert contents_of(fields) == {MEANING[path.split(".")[-1]] for path in fields}


def open_hours(policy, clock):
    """Whether a moment lies within the hours, minute by minute."""
    if not policy.hours:
        return True
    begin, end = policy.hours.split("-")
    now = datetime.fromtimestamp(clock, UTC).strftime("%H:%M")
    return begin <= now < end if begin < end else (now >= begin or now < end)


@pytest.mark.parametrize("hours", ["22:00-06:00", "08:15-17:45", "00:00-00:00", "23:59-00:01", ""])
def test_hours_by_the_minute(hours):
    policy = Policy(hours=hours)
    for minute in range(0, 1440, 7):
        clock = EPOCH + 60 * minute
        wait = policy.wait(clock)
        assert (wait == 0) == open_hours(policy, clock)
        assert wait == 0 or (open_hours(policy, clock + wait) and not open_hours(policy, clock + wait - 1))


def epsilon_spent(rho, delta):
    """The epsilon of Gaussian noise (Balle and Wang, 2018), by bisection."""
    mu, low, high = (2 * rho) ** 0.5, 0.0, 1e4
    if mu == 0:
        return 0.0
    for _ in range(100):
        middle = (low + high) / 2
        above = norm.cdf(mu / 2 - middle / mu) - norm.cdf(-mu / 2 - middle / mu) * 2.718281828459045 ** min(middle, 700)
        low, high = (middle, high) if above > delta else (low, middle)
    return high


def drawn_policy(draw, federation, view):
    """A policy that allows much, and forbids something about as often as not."""
    approval = approval_of(federation, view.digest)
    changed = federation.with_(rounds=federation.rounds + 1)
    other = approval_of(changed, view_of(changed, view.member.name).digest)
    neighbours = view.roster.neighbours(view.member.name)

    def some(allowing, forbidding):
        return draw.choice(forbidding if draw.random() < 0.1 else allowing)

    limit = some([{}, {"rho": 100.0}, {"epsilon": 50.0}], [{"rho": 0.01}, {"rho": 0.1}, {"epsilon": 0.5}])
    noisy = view.plan.accountant is not None and view.plan.accountant.role == view.member.role
    if noisy:
        planned = float(view.plan.accountant.forecast().rho[view.member.number])
        limit = draw.choice([{}, {"rho": 0.5 * planned}, {"rho": planned}, {"epsilon": 0.5}, {"epsilon": 3.0}])
    elif draw.random() < 0.8:
        limit = {}
    return Policy(
        approved=tuple(some([[approval], [other, approval]], [[other], []])),
        leaves=tuple(some([list(CONTENTS), list(CONTENTS)[:4]], [["models"], ["status"], list(CONTENTS)[1:]])),
        to=tuple(some([[], neighbours, [*neighbours, "elsewhere"]], [neighbours[1:], ["elsewhere"]])),
        rounds=some([0, federation.rounds], [federation.rounds - 1]),
        hours=some(["", "22:00-22:30", "22:14-23:00", "22:00-22:14"], ["23:00-01:00", "06:00-07:00"]),
        bytes_a_day=some([0, 10**6, 1500], [300, 20]),
        bytes_a_second=some([0, 10**6, 200], [10]),
        privacy=Limits(**limit, assumed=draw.random() < 0.8),
    )


def refusals(policy, federation, view, piece):
    """The keys for which a node must not begin, by a plain reading of the rules."""
    found, role, turns = set(), view.member.role, view.plan.turns
    if approval_of(federation, view.digest) not in policy.approved:
        found.add("approved")
    if policy.rounds and federation.rounds > policy.rounds:
        found.add("rounds")
    if policy.to and not set(view.roster.neighbours(view.member.name)) <= set(policy.to):
        found.add("to")
    mine = [turn for turn in turns if turn.sender == role]
    fields = [path.split(".")[-1] for turn in mine for path, _ in named_leaves(turn.word)]
    if not {MEANING[field] for field in fields} <= set(policy.leaves):
        found.add("leaves")
    sizes = [12 + sum(array.nbytes for _, array in named_leaves(turn.word)) for turn in mine]
    sizes = [size if size - 12 <= piece else 12 + 8 + piece for size in sizes]  # number and checksum of a piece
    if 0 < policy.bytes_a_day < max(sizes, default=0):
        found.add("bytes_a_day")
    limit, accountant = policy.privacy.rho or policy.privacy.epsilon, view.plan.accountant
    pays = accountant is not None and accountant.role == role
    if limit and view.has_data and not pays:
        found.add("privacy.rho" if policy.privacy.rho else "privacy.epsilon")
    elif limit and pays and not policy.privacy.assumed:
        rests = federation.deploy.pace == "replay" or any(h.how == "assumed" for h in accountant.terms.assumptions)
        found |= {"privacy.assumed"} if rests else set()
    return found


def check_frames(policy, view, frames):
    """Every frame that a node sent, at its moment: nothing that the rules do not let leave."""
    turns, days = view.plan.turns, Counter()
    largest = max((len(data) for _, _, data in frames), default=0)
    words = set()
    for clock, to, data in frames:
        kind, turn, number = data[0] & 15, data[1] & 0x7F, int.from_bytes(data[8:12], "little")
        assert to in (policy.to or view.roster.neighbours(view.member.name))
        assert open_hours(policy, clock), (policy.hours, clock)
        assert not policy.rounds or number <= policy.rounds
        if kind in (wire.WORD, wire.TOLD, wire.SOME):
            assert turns[turn].sender == view.member.role
            said = {MEANING[path.split(".")[-1]] for path, _ in named_leaves(turns[turn].word)}
            assert said <= set(policy.leaves)
            words.add((turn, number))
        elif kind == wire.STATUS:
            assert "status" in policy.leaves
        else:
            assert len(data) <= 40  # a note: it carries no data
        days[clock // 86400] += len(data)
    if policy.bytes_a_day:
        assert max(days.values(), default=0) <= policy.bytes_a_day
    if policy.bytes_a_second:
        total = [0]
        for _, _, data in frames:
            total.append(total[-1] + len(data))
        for i, j in combinations(range(len(frames)), 2):
            seconds = frames[j][0] - frames[i][0]
            assert total[j + 1] - total[i] <= policy.bytes_a_second * (seconds + 1) + 1e-3 + largest
    return words


def check_price(policy, view, words, charges):
    """What left was paid for, and what was paid is within the limit, by closed forms."""
    accountant = view.plan.accountant
    if not (policy.privacy.rho or policy.privacy.epsilon) or accountant is None or accountant.role != view.member.role:
        return
    if view.has_data:
        assert len(words) <= len(charges)
    spent = sum(charges)
    if policy.privacy.rho:
        assert spent <= policy.privacy.rho * (1 + 1e-9)
    elif not hasattr(accountant, "ledgers") and type(accountant).__name__ != "AlikeAccountant":  # all Gaussian
        assert epsilon_spent(spent, policy.privacy.delta) <= policy.privacy.epsilon * (1 + 1e-6)


class Judged(Village):
    """A village in which each node has a policy of its own, and every frame is kept with its moment."""

    def __init__(self, federation, seed, **deploy):
        self.left = {}
        super().__init__(federation, seed, **deploy)
        self.seen.sends = self.sends

    def sends(self, host, to, data):
        clock = EPOCH + self.world.time * host.rate + host.step
        self.left.setdefault(host.name, []).append((clock, to, data))

    def start(self, name):
        """Nodes begin when they have their rules."""

    def begin(self, policies):
        for name, policy in policies.items():
            self.hosts[name].policy = policy
            self.hosts[name].site = SimulatedDisk(f"site of {name}", True)
        for name in self.hosts:
            self.world.start(self.hosts[name])


def judge(seed):
    """A description, a policy for some of its nodes, and what came of it; each refusal with its key."""
    draw = random.Random(seed)
    federation = OFFERED[draw.choice(list(OFFERED))]
    pace = draw.choice(["quorum", "quorum", "replay"])
    status = draw.choice([0.0, 0.5])
    village = Judged(federation, seed, pace=pace, deadline=2.0, patience=600.0, status=status)
    federation = village.federation
    views = {name: view_of(federation, name, village.world.instance) for name in village.hosts}
    names = draw.sample(list(village.hosts), draw.choice([1, 2, len(village.hosts)]))
    policies = {name: drawn_policy(draw, federation, views[name]) for name in names}
    village.world.piece = draw.choice([wire.PIECE, wire.PIECE, 16])  # large words go in pieces
    village.begin(policies)
    village.world.run(600.0, lambda: all(host.done or host.node is None for host in village.hosts.values()))
    said, found = dict(village.seen.sentences), Counter()
    for name, policy in policies.items():
        frames, refused = village.left.get(name, []), refusals(policy, federation, views[name], village.world.piece)
        if refused:
            assert not frames, (seed, name, refused)
            keys = {match[1] for match in SENTENCE.finditer(said[name])}
            assert keys == refused, (seed, name, said[name])
            found.update(refused)
            continue
        words = check_frames(policy, views[name], frames)
        check_price(policy, views[name], words, village.charges(name))
        overspent = re.search(r"policy\.(privacy\.\w+) = .*: expected more", said.get(name, ""))
        found["overspent"] += bool(overspent)
        found["spoke"] += bool(frames)
        found["words"] += len(words)
    for name in set(village.hosts) - set(policies):
        found["free"] += bool(village.left.get(name))
    return found


@pytest.mark.parametrize("block", range(10))
def test_300_pairs_of_policy_and_description(block):
    total = Counter()
    for seed in range(30 * block, 30 * block + 30):
        total += judge(seed)
    assert total["spoke"] >= 5 and total["words"] >= 20  # else nothing was tried
    assert {"approved", "leaves", "to", "rounds"} <= set(total)


# --- do the pairs see what they should --------------------------------------------------------------------------------


def widened(**rules):
    """Start a node as if some rules were wider."""

    def start(policy, federation, view):
        wider = {key: value(federation, view) for key, value in rules.items()}
        return permit(Policy(**{**vars(policy), **wider}), federation, view)

    return start


def hurried(gate, size):
    gate.spare = 1e9
    return DUE(gate, size)


DUE = Gate.due
BROKEN = {
    "hours": lambda patch: patch.setattr(Policy, "wait", lambda policy, clock: 0.0),
    "bytes a day": lambda patch: (
        patch.setattr(Left, "room", lambda left, day, most: 10**9),
        patch.setattr(Left, "take", lambda left, day, size, most: None),
    ),
    "bytes a second": lambda patch: patch.setattr(Gate, "due", hurried),
    "the budget": lambda patch: patch.setattr(SiteLedger, "charge", lambda ledger, number, charge: None),
    "approval": lambda patch: patch.setattr(
        simulation, "permit", widened(approved=lambda f, view: (approval_of(f, view.digest),))
    ),
    "leaves": lambda patch: patch.setattr(simulation, "permit", widened(leaves=lambda f, view: tuple(CONTENTS))),
    "to": lambda patch: patch.setattr(simulation, "permit", widened(to=lambda f, view: ())),
    "rounds": lambda patch: patch.setattr(simulation, "permit", widened(rounds=lambda f, view: 0)),
    "the gate": lambda patch: patch.setattr(node, "Gate", lambda world, allowed: None),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_the_pairs_see_a_rule_that_is_not_kept(rule, monkeypatch):
    BROKEN[rule](monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(60):
            judge(seed)


def test_faults_of_all_kinds_under_a_policy(monkeypatch):
    """Torture, with rules at every node: all that is promised holds, and what left is paid for and in the log."""
    made, born = [], Host.__init__

    def governed(host, world, *given):
        born(host, world, *given)
        view = view_of(world.federation, host.name, world.instance)
        limits = Limits(rho=1e6, assumed=True) if view.plan.accountant else Limits()
        approval = approval_of(world.federation, view.digest)
        host.policy = Policy((approval,), tuple(CONTENTS), bytes_a_day=10**9, privacy=limits)
        host.site = SimulatedDisk(f"site of {host.label}", world.deploy.durable)
        made.append(host)

    monkeypatch.setattr(Host, "__init__", governed)
    for seed in (0, 1, 4, 7, 9, 14, 21, 31):
        outcome = play(seed)
        assert not outcome.wrong, outcome
    assert sum(any(name.endswith(".left") for name in host.site.names) for host in made) > 20


# --- rules that change while it runs --------------------------------------------------------------------------------

TIGHTER = {
    "leaves": ({"leaves": ("status",)}, "policy.leaves"),
    "approved": ({"approved": ()}, "policy.approved"),
    "to": ({"to": ("nobody",)}, "policy.to"),
    "rounds": ({"rounds": 5}, "policy.rounds"),
    "privacy": ({"privacy": Limits(rho=1e-9)}, "policy.privacy"),
}


@pytest.mark.parametrize("what", TIGHTER)
def test_rules_that_get_tighter_hold_from_the_next_moment_on(what):
    """Not a byte leaves after the site has changed its mind, and the node says which rule it was."""
    changes, key = TIGHTER[what]
    village = Judged(OFFERED["fedavg"].with_(rounds=50), 0, pace="quorum", deadline=2.0)
    name = village.roster.names["client"][0]
    approval = approval_of(village.federation, view_of(village.federation, name, village.world.instance).digest)
    policy = Policy(approved=(approval,), leaves=tuple(CONTENTS))
    village.begin({name: policy})
    host = village.hosts[name]
    village.until(lambda: host.last is not None and host.last.player.round >= 10)
    host.policy = Policy(**{**vars(policy), **changes})
    before = len(village.left[name])
    village.world.run(village.world.time + 60.0)
    assert host.node is None and len(village.left[name]) == before
    assert key in dict(village.seen.sentences)[name]


def test_rules_that_change_otherwise_hold_too():
    """Hours that begin later hold a node back, and it goes on within them."""
    village = Judged(OFFERED["fedavg"].with_(rounds=30), 0, pace="quorum", deadline=2.0, patience=1e6)
    name = village.roster.members[-1].name
    approval = approval_of(village.federation, view_of(village.federation, name, village.world.instance).digest)
    policy = Policy(approved=(approval,), leaves=tuple(CONTENTS))
    village.begin({name: policy})
    host = village.hosts[name]
    village.until(lambda: host.last is not None and host.last.player.round >= 5)
    hour = int((EPOCH + village.world.time) // 3600 % 24)
    host.policy = Policy(**{**vars(policy), "hours": f"{(hour + 2) % 24:02d}:00-{(hour + 3) % 24:02d}:00"})
    changed = EPOCH + village.world.time
    village.world.run(village.world.time + 4 * 3600.0)
    later = [clock for clock, _, _ in village.left[name] if clock > changed]
    assert later and all(int(clock // 3600 % 24) == (hour + 2) % 24 for clock in later)


def test_a_file_that_is_being_written_is_not_read_yet(tmp_path, monkeypatch):
    path, moment = tmp_path / "policy.toml", [100.0]
    monkeypatch.setattr(real.time, "monotonic", lambda: moment[0])
    path.write_text('leaves = ["models"]\n')
    world = real.RealWorld(None)
    world.policy = path
    found = []
    for text in (None, None, 'leaves = ["losses"]\n', 'leaves = ["losses", "status"]\n', None, None):
        if text:
            path.write_text(text)
        moment[0] += real.LOOK
        known = world.rules()
        found.append(known and known.leaves)
    assert found == [None, ("models",), ("models",), ("models",), ("losses", "status"), ("losses", "status")]
    path.unlink()
    for _ in range(2):
        moment[0] += real.LOOK
        known = world.rules()
    assert known == Policy()
