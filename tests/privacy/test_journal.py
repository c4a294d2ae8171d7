"""The durable ledger: crashes at every byte, damage, full disks, a killed process."""

import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archipel import disk
from archipel.errors import BadInput
from archipel.privacy.journal import Damaged, open_ledger
from archipel.privacy.ledger import Assumption, EpsilonBudget, Overspent, Terms, ZcdpBudget
from archipel.privacy.releases import Gaussian, Laplace, Sampled, Zcdp

TERMS = Terms("sample", "add-remove", (Assumption("clipped", "enforced"),))
BUDGET = ZcdpBudget(100.0)
releases = st.one_of(
    st.builds(Gaussian, st.floats(0, 1)),
    st.builds(Laplace, st.floats(0, 1)),
    st.builds(Zcdp, st.floats(0, 1)),
    st.builds(Sampled, st.floats(0.1, 1), st.builds(Gaussian, st.floats(0, 1))),
)
anywhere = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def opened(path, budget=BUDGET, terms=TERMS):
    return open_ledger(path, "client 3", terms, budget)


def fill(path, entries):
    """Charge, and note the size of the file after each charge returned."""
    ledger, sizes = opened(path), []
    for n, release in enumerate(entries):
        ledger.charge(n, release)
        sizes.append(path.stat().st_size)
    ledger.journal.close()
    return ledger, sizes


@anywhere
@given(st.lists(releases, max_size=8))
def test_reloading_gives_the_same_ledger(tmp_path, entries):
    path = tmp_path / "ledger"
    path.unlink(missing_ok=True)
    before, _ = fill(path, entries)
    after = opened(path)
    assert after.charges == before.charges and after.rho() == before.rho() and after.history() == before.history()
    after.journal.close()


@settings(anywhere, max_examples=40)
@given(
    st.lists(releases, min_size=1, max_size=5),
    st.floats(0, 1),
    st.sampled_from([b"", b"\0" * 40, b'{"rou', b"\xff\x01"]),
)
def test_a_crash_at_any_byte_forgets_nothing_that_returned(tmp_path, entries, where, tail):
    path = tmp_path / "ledger"
    path.unlink(missing_ok=True)
    _, sizes = fill(path, entries)
    content = path.read_bytes()
    cut = round(where * len(content))
    path.write_bytes(content[:cut] + tail)
    survived = sum(size <= cut for size in sizes)
    ledger = opened(path)
    assert [c.release for c in ledger.charges] == entries[:survived]
    ledger.charge(99, Gaussian(0.5))  # life goes on, and so does the file
    ledger.journal.close()
    again = opened(path)
    assert [c.release for c in again.charges] == [*entries[:survived], Gaussian(0.5)]
    again.journal.close()


def test_blocks_that_were_never_written_read_as_zeros(tmp_path):
    path = tmp_path / "ledger"
    _, sizes = fill(path, [Gaussian(0.1), Gaussian(0.2)])
    content = bytearray(path.read_bytes())
    content[sizes[0] : sizes[0] + 20] = b"\0" * 20
    path.write_bytes(content)
    ledger = opened(path)
    assert [c.release for c in ledger.charges] == [Gaussian(0.1)]
    ledger.journal.close()


@anywhere
@given(st.data())
def test_damage_anywhere_else_is_refused(tmp_path, data):
    path = tmp_path / "ledger"
    path.unlink(missing_ok=True)
    fill(path, [Gaussian(0.1), Laplace(0.2), Gaussian(0.3)])
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 2))
    content[at] ^= data.draw(st.sampled_from([1, 4, 64]))
    path.write_bytes(content)
    with pytest.raises(Damaged, match="checksum"):
        opened(path)


def test_a_line_taken_out_is_noticed(tmp_path):
    path = tmp_path / "ledger"
    fill(path, [Gaussian(0.1), Gaussian(0.1), Gaussian(0.1)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(Damaged):
        opened(path)


def test_the_line_is_on_disk_before_charge_returns(tmp_path, monkeypatch):
    path, synced = tmp_path / "ledger", []
    ledger = opened(path)
    real = disk.force
    monkeypatch.setattr(disk, "force", lambda file: (synced.append(path.read_bytes()), real(file)))
    ledger.charge(0, Gaussian(0.25))
    assert synced and b"0.25" in synced[-1]
    ledger.journal.close()


def test_a_full_disk_charges_nothing_and_leaves_the_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    ledger = opened(path)
    ledger.charge(0, Gaussian(0.1))
    real, left = os.pwrite, [10]

    def small(file, line, at):
        if not left[0]:
            raise OSError(28, "No space left on device")
        written = real(file, line[: left[0]], at)
        left[0] -= written
        return written

    monkeypatch.setattr(disk.os, "pwrite", small)
    with pytest.raises(OSError, match="space"):
        ledger.charge(1, Gaussian(0.2))
    assert [c.release for c in ledger.charges] == [Gaussian(0.1)]
    monkeypatch.undo()
    ledger.charge(2, Gaussian(0.3))
    ledger.journal.close()
    assert [c.release for c in opened(path).charges] == [Gaussian(0.1), Gaussian(0.3)]


def test_a_write_that_cannot_be_undone_silences_the_node(tmp_path, monkeypatch):
    ledger = opened(tmp_path / "ledger")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "force", fail)
    with pytest.raises(OSError):
        ledger.charge(0, Gaussian(0.1))
    monkeypatch.undo()
    with pytest.raises(Damaged, match="anew"):
        ledger.charge(1, Gaussian(0.1))
    ledger.journal.close()


def test_the_budget_counts_what_an_earlier_life_spent(tmp_path):
    path, budget = tmp_path / "ledger", EpsilonBudget(1.0, 1e-5)
    ledger = opened(path, budget)
    count = 0
    while count < 10_000 and ledger.affords(Gaussian(0.1)):
        ledger.charge(count, Gaussian(0.1))
        count += 1
    ledger.journal.close()
    again = opened(path, budget)
    with pytest.raises(Overspent):
        again.charge(count, Gaussian(0.1))
    again.journal.close()
    more = opened(path, EpsilonBudget(2.0, 1e-5))  # its owner may raise it; what was spent stays spent
    more.charge(count, Gaussian(0.1))
    assert len(more.charges) == count + 1
    more.journal.close()


def test_what_was_once_assumed_stays_assumed(tmp_path):
    path = tmp_path / "ledger"
    loose = Terms("sample", "add-remove", (Assumption("clipped", "assumed"),))
    ledger = opened(path, terms=loose)
    ledger.charge(0, Gaussian(0.1))
    ledger.journal.close()
    for terms in (TERMS, Terms("sample", "add-remove")):
        again = opened(path, terms=terms)
        assert again.terms.how == "assumed"
        again.journal.close()


def test_another_node_or_unit_is_refused_and_so_is_a_second_process(tmp_path):
    path = tmp_path / "ledger"
    ledger = opened(path)
    with pytest.raises(BadInput, match="no other process"):
        opened(path)
    ledger.journal.close()
    with pytest.raises(BadInput, match="client 3"):
        open_ledger(path, "client 4", TERMS)
    with pytest.raises(BadInput, match="sample"):
        open_ledger(path, "client 3", Terms("client", "add-remove"))


def test_a_killed_process_forgets_nothing_it_announced(tmp_path):
    path = tmp_path / "ledger"
    program = (
        "import sys; from archipel.privacy.journal import open_ledger;"
        "from archipel.privacy.ledger import Terms;"
        "from archipel.privacy.releases import Gaussian;"
        "l = open_ledger(sys.argv[1], 'client 3', Terms('sample', 'add-remove'))\n"
        "for n in range(10**6): l.charge(n, Gaussian(0.01)); print(n, flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) >= 20:
            break
    process.kill()  # wherever it is by now
    announced = max([int(line), *(int(rest) for rest in process.stdout.read().split("\n")[:-1])])
    process.wait()
    ledger = open_ledger(path, "client 3", Terms("sample", "add-remove"))
    assert [c.round for c in ledger.charges][: announced + 1] == list(range(announced + 1))
    assert len(ledger.charges) <= announced + 2
    ledger.journal.close()
