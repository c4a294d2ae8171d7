"""A node's ledger and its checkpoint: a ledger that is behind was tampered with, one that is ahead is not."""

import pytest
from harness import Village
from test_replay import TABLE

from archipel.privacy.journal import Damaged


def played(name, folder):
    """A federation, one of whose nodes was killed after three charges."""
    village = Village(TABLE[name], folder)
    who = village.roster.names["peer" if name == "zcdp-nfl" else "client"][0]
    while village.nodes[who].account.count() < 3:
        for node in village.nodes.values():
            node.turn(longest=0.0)
    village.kill(who)
    return village, who, folder / who / "ledger.journal"


@pytest.mark.parametrize("name", ["zcdp-nfl", "pldp-fl"])
@pytest.mark.parametrize("keep", [0, 2], ids=["gone", "cut"])
def test_a_ledger_behind_its_checkpoint_is_refused(name, keep, tmp_path):
    village, who, ledger = played(name, tmp_path)
    lines = ledger.read_bytes().splitlines(True)
    ledger.write_bytes(b"".join(lines[:keep]))
    with pytest.raises(Damaged, match=r"has \d charges, the checkpoint \d+: restore it"):
        village.start(who)


@pytest.mark.parametrize("name", ["zcdp-nfl", "pldp-fl"])
def test_without_checkpoints_a_kept_ledger_is_taken_up(name, tmp_path):
    """What the guide says to do to start anew: nothing that was spent is forgotten."""
    village, who, ledger = played(name, tmp_path)
    paid = village.nodes[who].account.total(None)
    for file in ("checkpoint.a", "checkpoint.b", "rows"):
        (ledger.parent / file).unlink()
    village.start(who)
    assert village.nodes[who].player.round == 0 and village.nodes[who].account.total(None) == paid > 0
