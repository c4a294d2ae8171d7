"""The hospital's story, with a network whose words go in pieces."""

import pytest
from processes_here import processes_in

from archipel import FedAvg, Federation, Linear
from archipel.deploy.torture import story
from archipel.deploy.torture.simulation import Simulation, Watcher
from archipel.deployment import Deployment


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


def test_a_link_on_which_a_piece_takes_long_carries_little_twice():
    """Four pieces and four bytes; each takes 12 seconds. Less than a fifth more than the link needs for bare words."""
    problem = Linear(clients=2, features=10_000, samples=8, test=8)
    deploy = Deployment(pace="quorum", deadline=1e6, patience=20.0)  # less than a word takes: nor is the last one lost
    federation = Federation(problem, FedAvg(step=1e-9), rounds=4, every=4, precision="float32", deploy=deploy)
    traffic, speed = story.Traffic(), 833.0
    world = Simulation(federation, 1, traffic)
    world.speed, world.piece = speed, 10_000
    world.start_all()
    world.run(1e6, lambda: story.over(world))
    server = world.hosts["server"].last
    word = server.view.vocabulary.widest
    assert server.view.vocabulary.pieces(1) == 5 and server.player.round == 4
    updates = [world.hosts[f"client-{k}"].last.player.updates for k in range(2)]
    assert updates == [4, 4]
    assert world.time < 1.2 * 4 * 2 * word / speed + 60, (world.time, 8 * word / speed)
    assert traffic.again < 0.25 * traffic.bytes, (traffic.again, traffic.bytes)


@pytest.mark.long
def test_it_is_told_by_real_processes_too(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("zenoh")
    from archipel.deploy import hospital

    told = hospital.tell(tmp_path)
    print("\n".join(f"{what}: {value}" for what, value in told.rows(told)))
    assert told.reached == hospital.ROUNDS and told.lost == 0 and len(told.happened) == 5
    assert 0 < told.updates[story.LEAVES] < hospital.ROUNDS
    assert told.words < told.links < 2 * told.words
    assert not processes_in(tmp_path)
