"""Ledgers: nothing overspent, nothing forgotten, and said plainly."""

import contextlib
import json
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.privacy.accounting import PLD, merged, record
from archipel.privacy.ledger import (
    Assumption,
    EpsilonBudget,
    Ledger,
    Overspent,
    Terms,
    ZcdpBudget,
)
from archipel.privacy.releases import Gaussian, Laplace, Sampled, Zcdp, as_json, from_json

TERMS = Terms("sample", "add-remove", (Assumption("gradients clipped to 1", "enforced"),))
gaussians = st.builds(Gaussian, st.floats(0.001, 0.5))


@settings(max_examples=40, deadline=None)
@given(st.lists(gaussians, max_size=30), st.floats(0.01, 3), st.booleans())
def test_a_budget_is_never_overspent(releases, size, in_zcdp):
    budget = ZcdpBudget(size / 10) if in_zcdp else EpsilonBudget(size, 1e-5)
    ledger = Ledger("0", TERMS, budget)
    for n, release in enumerate(releases):
        before = ledger.history()
        if ledger.affords(release):
            ledger.charge(n, release)
            assert ledger.history() == before + release
        else:
            with pytest.raises(Overspent, match="silent"):
                ledger.charge(n, release)
            assert ledger.history() == before
            spent = (before + release).rho() if in_zcdp else (before + release).epsilon(1e-5).epsilon
            assert spent > size / 10 if in_zcdp else spent > size * (1 - 1e-6)
    spent = ledger.rho() * 10 if in_zcdp else ledger.epsilon(1e-5).epsilon
    assert spent <= size * (1 + 1e-11)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), gaussians, st.integers(1, 3)), max_size=20), st.randoms())
def test_the_order_of_charges_does_not_matter(charges, random):
    shuffled = charges[:]
    random.shuffle(shuffled)
    one, other = Ledger("0", TERMS), Ledger("0", TERMS)
    for charge in charges:
        one.charge(*charge)
    for charge in shuffled:
        other.charge(*charge)
    assert one.rho() == other.rho() == one.history().rho() and one.history() == other.history()


def test_a_mixed_ledger_stops_where_the_loss_distribution_says():
    budget = EpsilonBudget(1.0, 1e-4)
    ledger = Ledger("0", TERMS, budget)
    ledger.charge(0, Gaussian(0.1))
    count = 0
    while count < 1000 and ledger.affords(Laplace(0.05)):
        ledger.charge(count, Laplace(0.05))
        count += 1
    history = record(Gaussian(0.1)) + record(Laplace(0.05)) * count
    assert ledger.history() == history and ledger.epsilon(1e-4).method == PLD
    assert history.epsilon(1e-4).epsilon <= 1.0 < (history + Laplace(0.05)).epsilon(1e-4).epsilon
    assert count > 20  # what adding up pure epsilons would allow


def test_terms_and_budgets_say_unit_relation_and_what_is_assumed():
    assumed = Terms("client", "replace-one", (*TERMS.assumptions, Assumption("features bounded by 1", "assumed")))
    a, b = json.loads(json.dumps([TERMS.as_json(), assumed.as_json()]))
    assert a["guarantee"] == "enforced" and b["guarantee"] == "assumed"
    assert (b["unit"], b["relation"]) == ("client", "replace-one")
    assert ZcdpBudget(1.0).as_json() == {"rho": 1.0} and EpsilonBudget(1.0, 1e-5).as_json()["delta"] == 1e-5


def test_releases_are_read_as_they_were_written():
    ledger = Ledger("b", TERMS)
    ledger.charge(4, Sampled(0.5, Gaussian(0.2), TERMS.relation), times=3)
    ledger.charge(5, Gaussian(0.5))
    plain = json.loads(json.dumps([[as_json(release), times] for release, times in ledger.history().counts]))
    assert merged((from_json(release), times) for release, times in plain) == ledger.history()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: EpsilonBudget(-1.0, 1e-5),
        lambda: EpsilonBudget(1.0, 0.0),
        lambda: EpsilonBudget(1.0, 1.0),
        lambda: ZcdpBudget(-0.1),
        lambda: ZcdpBudget(float("inf")),
        lambda: Terms("household", "replace-one"),
        lambda: Terms("sample", "swap"),
        lambda: Terms("sample", "replace-one", (Assumption("bounded", "hoped"),)),
        lambda: Ledger("0", TERMS).charge(0, Sampled(0.5, Gaussian(1.0), "replace-one")),
        lambda: Ledger("0", TERMS).charge(0, Gaussian(1.0), times=0),
        lambda: Ledger("0", TERMS).charge(0, Zcdp(float("inf"))),
    ],
)
def test_wrong_terms_are_refused(wrong):
    with pytest.raises(BadInput, match="expected"):
        wrong()


def test_threads_together_do_not_overspend():
    ledger = Ledger("0", TERMS, ZcdpBudget(0.1))

    def work():
        for n in range(50):
            with contextlib.suppress(Overspent):
                ledger.charge(n, Gaussian(0.1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.history() == record(Gaussian(0.1)) * 20


def test_a_device_keeps_its_ledger_with_numpy_alone(tmp_path):
    """No SciPy, Numba or dp-accounting: an epsilon budget, Gaussian releases, a file."""
    program = (
        "import sys\n"
        "for name in ('scipy', 'numba', 'dp_accounting', 'opendp', 'matplotlib'): sys.modules[name] = None\n"
        "from archipel.privacy import audit, bounding, calibration, account, journal, noise\n"
        "from archipel.privacy.ledger import EpsilonBudget, Overspent, Terms\n"
        "from archipel.privacy.releases import Gaussian\n"
        "mu = 1 / float(calibration.first_sigma(calibration.gaussian_budget(1.0, 1e-5), [1.0] * 10, 1.0))\n"
        "ledger = journal.open_ledger(sys.argv[1], 'd', Terms('sample', 'replace-one'), EpsilonBudget(1.0, 1e-5))\n"
        "for n in range(10): ledger.charge(n, Gaussian(mu))\n"
        "assert not ledger.affords(Gaussian(mu)) and 0.999 < ledger.epsilon(1e-5).epsilon <= 1\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "ledger")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
