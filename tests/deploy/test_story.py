"""The hospital's story, with a network whose words go in pieces."""

import pytest

from archipel.deploy.torture import story


def test_it_ends_by_itself_and_nothing_is_lost():
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    federation = story.hospital(70_000, 8)
    told = story.tell(federation)
    print("\n".join(f"{what}: {value}" for what, value in told.rows()))
    assert told.word > 1 << 18, "its words go in pieces"
    assert told.rounds == 8 and told.lost == 0 and len(told.happened) == 5
    assert 0 < told.sites[story.LEAVES] < 8 and told.kept == 0
    assert told.again < 40e6, "pieces to see who is back, and a word or two: it does not depend on the network's size"
    assert 2 * story.CUT < told.seconds < told.calm + 2 * story.CUT + 600
