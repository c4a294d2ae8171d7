"""A user's own graphs: read as written, and a sentence for everything that is wrong."""

import numpy as np
import pytest

from archipel.errors import BadInput
from archipel.topology import Digraph, Peers, Servers, Star, matrix


@pytest.fixture
def csv(tmp_path):
    def write(text, name="graph.csv"):
        path = tmp_path / name
        path.write_text(text.replace(" ", "\n") + "\n")
        return str(path)

    return write


def pairs(links):
    return sorted(zip(links.receivers.tolist(), links.senders.tolist()))


def test_peers_by_number_and_by_name(csv):
    expected = [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert pairs(Peers(edges=csv("source,target 0,1 2,1")).build(3, 0).links()) == expected
    named = Peers(edges=csv("source,target pear,fig fig,apple")).build(3, 0)
    assert named.names == ("apple", "fig", "pear")
    assert pairs(named.links()) == expected
    ordered = Peers(edges=csv("source,target pear,fig fig,apple")).build(3, 0, names=["fig", "pear", "apple"])
    assert pairs(ordered.links()) == [(0, 1), (0, 2), (1, 0), (2, 0)]
    numbered = Peers(edges=csv("target,source 1,0 2,1")).build(3, 0, names=["a", "b", "c"])
    assert pairs(numbered.links()) == expected


def test_server_files_are_read_together(csv):
    graph = Servers(
        servers=2,
        clusters=2,
        edges=csv("source,target oslo,bergen", "servers.csv"),
        members=csv("client,server 0,oslo 1,oslo 2,bergen", "members.csv"),
        groups=csv("client,cluster 2,red 1,blue 0,red", "groups.csv"),
    ).build(3, 0)
    assert graph.server_names == ("bergen", "oslo") and graph.cluster_names == ("blue", "red")
    assert graph.server.tolist() == [1, 1, 0] and graph.cluster.tolist() == [1, 0, 1]
    assert pairs(graph.links()) == [(0, 1), (1, 0)]
    uneven = Servers(servers=2, shape="ring", members=csv("client,server 0,1 1,1 2,0")).build(3, 0)
    assert uneven.server.tolist() == [1, 1, 0]


def test_client_names_of_one_file_hold_in_the_next(csv):
    edges = csv("source,target c,a a,b", "edges.csv")
    graph = Peers(edges=edges, clusters=2, groups=csv("client,cluster b,0 a,1 c,1", "groups.csv")).build(3, 0)
    assert graph.cluster.tolist() == [1, 0, 1]
    star = Star(clusters=2, groups=csv("client,cluster y,0 x,1")).build(2, 0)
    assert star.names == ("x", "y") and star.cluster.tolist() == [1, 0]


def test_digraph_weights_as_written(csv):
    rows = "source,target,weight 0,0,0.2 0,1,0.5 0,2,0.3 1,0,0.2 1,1,0.4 1,2,0.4 2,0,0.8 2,1,0.1 2,2,0.1"
    graph = Digraph(edges=csv(rows)).build(3, 0)
    expected = np.array([[0.2, 0.2, 0.8], [0.5, 0.4, 0.1], [0.3, 0.4, 0.1]])  # dissertation 2.4
    assert (matrix(graph.links()) == expected).all()
    even = Digraph(edges=csv("source,target 0,1 1,2 2,0 0,2")).build(3, 0).links()
    assert matrix(even) == pytest.approx(np.array([[1 / 3, 0, 1 / 2], [1 / 3, 1 / 2, 0], [1 / 3, 1 / 2, 1 / 2]]))


def test_receivers_may_be_what_sums_to_one(csv):
    rows = "source,target,weight 0,1,0.9 1,1,0.1 1,0,0.4 0,0,0.6"
    graph = Digraph(edges=csv(rows), sums_to_one="receiver").build(2, 0)
    assert matrix(graph.links()).tolist() == [[0.6, 0.4], [0.9, 0.1]]
    with pytest.raises(BadInput, match=r"sum to one for each sender.*client 0 has 1.5 in phase 0"):
        Digraph(edges=csv(rows)).build(2, 0)


def test_phases_in_a_file_take_turns(csv):
    path = csv("source,target,weight,phase 0,1,0.5,0 0,0,0.5,0 1,0,0.3,1 1,1,0.7,1")
    graph = Digraph(edges=path, window=2).build(2, 0)
    assert matrix(graph.links(0)).tolist() == [[0.5, 0], [0.5, 1]]  # who has no rows keeps everything
    assert matrix(graph.links(3)).tolist() == [[1, 0.3], [0, 0.7]]
    with pytest.raises(
        BadInput, match=r"topology.window = 1: .* in rounds 0 to 0 nothing gets from client 1 to client 0"
    ):
        Digraph(edges=path).build(2, 0)
    with pytest.raises(BadInput, match=r"topology.phases = 3: expected 2, as in"):
        Digraph(edges=path, phases=3, window=2).build(2, 0)
    with pytest.raises(BadInput, match=r"topology.phases = 3: expected a multiple of 2"):
        Digraph(edges=path, phases=3, fade=0.1, window=9).build(2, 0)
    assert len(Digraph(edges=path, phases=40, fade=0.1, window=10).build(2, 0).across) == 40


BAD_PEERS = [
    ("source,target 0,1 1,1", r"no link from a client to itself \(line 3: 1,1\)"),
    (
        "source,target 0,1 1,2 1,0",
        r"each link once, as links go both ways; it repeats line 2 \(line 4: 1,0\)",
    ),
    ("source,target 0,1 1,3", r"a client from 0 to 2 in column target \(line 3: 1,3\)"),
    ("source,target 0,1 1,-1", r"a client from 0 to 2 in column target \(line 3: 1,-1\)"),
    ("source,target 0,1", r"a graph in one piece \(it has 2: nothing joins 0 and 2\), or force = true"),
    ("source,target a,b", r"3 different clients \(found 2\)"),
    ("source,target a,b b,c c,d", r"3 different clients \(found 4\)"),
    ("from,to 0,1", r"a header with the columns source, target \(found: from, to\)"),
    (
        "source,target,weight 0,1,1",
        r"a header with the columns source, target \(found: source, target, weight\)",
    ),
    ("source,target 0,1,5", r"2 cells in each row \(line 2: 0,1,5\)"),
    ("", r"a header with the columns source, target \(found: nothing\)"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD_PEERS)
def test_bad_edges_of_peers(csv, text, sentence):
    with pytest.raises(BadInput, match=r"topology.edges = .*graph.csv") as caught:
        Peers(edges=csv(text)).build(3, 0)
    assert caught.match(sentence)


def test_names_that_are_not_the_clients(csv):
    with pytest.raises(BadInput, match="a client from fig to nut in column target"):
        Peers(edges=csv("source,target fig,plum")).build(2, 0, names=["fig", "nut"])
    with pytest.raises(BadInput, match="the clients' names, such as fig, or numbers from 0 to 1"):
        Peers(edges=csv("source,target kiwi,plum")).build(2, 0, names=["fig", "nut"])
    with pytest.raises(BadInput, match="a different name for each client"):
        Peers().build(2, 0, names=["fig", "fig"])


def test_unreadable_files(tmp_path):
    with pytest.raises(BadInput, match="a CSV file that can be read"):
        Peers(edges=str(tmp_path / "none.csv")).build(3, 0)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00source")
    with pytest.raises(BadInput, match="a CSV file that can be read"):
        Peers(edges=str(tmp_path / "binary.csv")).build(3, 0)


BAD_DIGRAPHS = [
    (
        "source,target,weight 0,0,0.5 0,1,0.4 1,0,0.5 1,1,0.5",
        r"sum to one for each sender, own share \(a row 0,0\) included",
    ),
    ("source,target,weight 0,0,0.5 0,1,0.4 1,0,0.5 1,1,0.5", r"client 0 has 0.9 in phase 0"),
    ("source,target,weight 0,0,1.5 0,1,-0.5 1,0,1", r"not negative in column weight \(line 3: 0,1,-0.5\)"),
    ("source,target,weight 0,1,nan 1,0,1", r"not negative in column weight \(line 2: 0,1,nan\)"),
    ("source,target,weight 0,1,much 1,0,1", r"not negative in column weight \(line 2: 0,1,much\)"),
    ("source,target,weight 0,1,inf 1,0,1", r"not negative in column weight \(line 2: 0,1,inf\)"),
    ("source,target,weight 0,1,1 1,0,1", "an own share above zero"),
    ("source,target,weight,phase 0,1,1,0 1,0,1,1 0,0,1,1", "nothing gets from client 1 to client 0"),
    (
        "source,target,weight,phase 0,1,1,0 1,0,1,zero",
        r"a whole number from 0 in column phase \(line 3: 1,0,1,zero\)",
    ),
    ("source,target 0,1 1,0 0,0", r"a column weight, or no link from a client to itself \(line 4: 0,0\)"),
    ("source,target 0,1 1,0 0,1", r"each link once in a phase; it repeats line 2 \(line 4: 0,1\)"),
    ("source,target 0,1", "nothing gets from client 1 to client 0"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD_DIGRAPHS)
def test_bad_edges_of_digraphs(csv, text, sentence):
    with pytest.raises(BadInput, match=r"^topology.(edges|window) = ") as caught:
        Digraph(edges=csv(text)).build(2, 0)
    assert caught.match(sentence)


def test_own_shares_of_zero_are_fine_where_trips_have_no_common_length(csv):
    rows = "source,target,weight 0,1,0.5 0,2,0.5 1,2,1 2,0,1"  # trips of two and of three
    assert Digraph(edges=csv(rows)).build(3, 0).links().own.tolist() == [0, 0, 0]


BAD_SERVERS = [
    ({"edges": "source,target 0,1"}, "topology.edges", "a graph in one piece"),
    ({"edges": "source,target 0,1 1,5"}, "topology.edges", "a server from 0 to 2 in column target"),
    ({"edges": "source,target x,y"}, "topology.edges", "3 different servers"),
    (
        {"members": "client,server 0,0 1,1 2,2 0,1 3,1"},
        "topology.members",
        "each client in one server only; it repeats line 2",
    ),
    (
        {"members": "client,server 0,0 1,1 2,2"},
        "topology.members",
        "a server for every client .none for client 3",
    ),
    (
        {"members": "client,server 0,0 1,0 2,2 3,2"},
        "topology.members",
        "a client at every server .none at 1",
    ),
    (
        {"groups": "client,cluster 0,0 1,1 2,0"},
        "topology.groups",
        "a cluster for every client .none for client 3",
    ),
    (
        {"groups": "client,cluster 0,0 1,0 2,0 3,0"},
        "topology.groups",
        "at least one client in every cluster .none in 1",
    ),
    (
        {"groups": "client,cluster 0,0 1,0 2,0 3,2"},
        "topology.groups",
        "a cluster from 0 to 1 in column cluster",
    ),
]


@pytest.mark.parametrize(("texts", "key", "sentence"), BAD_SERVERS)
def test_bad_files_of_servers(csv, texts, key, sentence):
    paths = {name: csv(text, name + ".csv") for name, text in texts.items()}
    with pytest.raises(BadInput, match=sentence) as caught:
        Servers(servers=3, shape="ring", clusters=2, **paths).build(4, 0)
    assert caught.value.key == key


BAD_FIELDS = [
    (lambda: Peers(mean_degree=1.0), "topology.mean_degree", "at least 1.8 to join 10 nodes"),
    (lambda: Peers(mean_degree=9.5), "topology.mean_degree", "from 0 to 9"),
    (lambda: Peers(mean_degree=float("nan")), "topology.mean_degree", "at least 0"),
    (lambda: Peers("rnig"), "topology.shape", '"ring"'),
    (lambda: Peers(clusters=11), "topology.clusters", "from 1 to 10"),
    (lambda: Star(clusters=0), "topology.clusters", "at least 1"),
    (lambda: Servers(servers=0), "topology.servers", "at least 1"),
    (lambda: Servers(servers=11), "topology.servers", "at most as many servers as clients"),
    (lambda: Servers(servers=4, clients_per_server=3, shape="ring"), "topology.clients_per_server", "2.5, or 0"),
    (lambda: Servers(servers=4, shape="none"), "topology.shape", "one piece"),
    (lambda: Digraph(mean_degree=0.5), "topology.mean_degree", "at least 1"),
    (lambda: Digraph("grid"), "topology.shape", "known: complete, random, ring|one of complete, random, ring"),
    (lambda: Digraph(phases=0), "topology.phases", "from 1 to 10000"),
    (lambda: Digraph(window=0), "topology.window", "at least 1"),
    (lambda: Digraph(fade=1.0, phases=2), "topology.fade", "from 0 to below 1"),
    (lambda: Digraph(opt_out=-0.1, phases=2), "topology.opt_out", "from 0 to below 1"),
    (lambda: Digraph(fade=0.1), "topology.phases", "at least 2"),
    (lambda: Digraph("ring", phases=3), "topology.phases", "changes only with fade or opt_out"),
    (lambda: Digraph(shares="fair"), "topology.shares", "even, random"),
    (lambda: Digraph(sums_to_one="both"), "topology.sums_to_one", "receiver, sender"),
]


@pytest.mark.parametrize(("topology", "key", "sentence"), BAD_FIELDS)
def test_bad_fields(topology, key, sentence):
    with pytest.raises(BadInput, match=sentence) as caught:
        topology().build(10, 0)
    assert caught.value.key == key


@pytest.mark.parametrize("topology", [Star(), Peers(), Servers(), Digraph()])
def test_nobody_is_refused(topology):
    with pytest.raises(BadInput, match="at least 1 client"):
        topology.build(0, 0)
