"""The hospital's story, with a network whose words go in pieces."""

import pytest

from archipel.deploy.torture import story
from archipel.deploy.torture.simulation import Watcher


def test_what_all_are_told_is_in_memory_once():
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    world = story.begun(story.hospital(70_000, 2), 1e5, Watcher())
    host = world.hosts["server"]

    def told() -> list[int]:
        """Where the words are that wait at the server."""
        neighbours = host.node.office.neighbours.values() if host.node else []
        return [id(letter.body) for other in neighbours for letter in other.letters if letter.body]

    world.run(60.0, lambda: len(told()) == story.SITES)
    assert len(told()) == story.SITES and len(set(told())) == 1
    world.kill(host, 1.0)
    world.run(world.time + 1.0)
    assert len(told()) == story.SITES and len(set(told())) == 1, "and after a restart"


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
