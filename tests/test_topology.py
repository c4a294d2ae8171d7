"""Graphs against SciPy, slow obvious searches and closed forms; a sentence for every bad file."""

import subprocess
import sys
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from archipel.draws import key_of, uniform
from archipel.errors import BadInput
from archipel.topology import (
    TOPOLOGIES,
    Digraph,
    Peers,
    Servers,
    Star,
    from_pairs,
    matrix,
    shapes,
)
from archipel.topology import connectivity as conn
from archipel.topology import links as lk
from archipel.topology.connectivity import components, unreached
from reference.mixing import mixing_rate

seeds = st.integers(0, 2**63)


@st.composite
def pair_lists(draw, most=12):
    """Any list of different one-way links, none from a node to itself."""
    nodes = draw(st.integers(1, most))
    all_pairs = [(r, s) for r in range(nodes) for s in range(nodes) if r != s]
    chosen = draw(st.lists(st.sampled_from(all_pairs), unique=True)) if all_pairs else []
    return nodes, chosen


def links_of(nodes, pairs):
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return from_pairs(nodes, ends[:, 0], ends[:, 1])


def sparse(links):
    nodes = len(links.own)
    return csr_matrix((np.ones(len(links.senders)), links.senders, links.starts), (nodes, nodes))


def reachable(nodes, pairs, root):
    """Who gets from root anywhere, sender to receiver: a slow search."""
    seen = {root}
    while True:
        more = {r for r, s in pairs if s in seen} - seen
        if not more:
            return seen
        seen |= more


def edge_set(links):
    return set(zip(links.receivers.tolist(), links.senders.tolist()))


# --- the compact form ---------------------------------------------------------------------------------------


@given(pair_lists())
def test_links_hold_exactly_the_pairs_sorted(case):
    nodes, pairs = case
    links = links_of(nodes, pairs)
    assert [(int(r), int(s)) for r, s in zip(links.receivers, links.senders)] == sorted(pairs)
    assert links.degree.tolist() == [sum(r == k for r, _ in pairs) for k in range(nodes)]
    assert links.starts.dtype == links.senders.dtype == np.int64
    assert links.weights.dtype == links.own.dtype == np.float64


def test_weights_follow_their_links_when_sorted():
    links = from_pairs(3, receivers=[2, 0, 1], senders=[1, 2, 0], weights=[0.1, 0.2, 0.3], own=[1, 2, 3])
    assert matrix(links).tolist() == [[1, 0, 0.2], [0.3, 2, 0], [0, 0.1, 3]]
    assert lk.given(links).tolist() == [0.3, 0.1, 0.2]
    assert lk.heard(links).tolist() == [0.2, 0.3, 0.1]


# --- in one piece -------------------------------------------------------------------------------------------


@given(pair_lists())
def test_components_agree_with_scipy(case):
    links = links_of(*case)
    count, label = connected_components(sparse(links), directed=False)
    ours = components(links)
    assert len(np.unique(ours)) == count
    assert len({(a, b) for a, b in zip(label.tolist(), ours.tolist())}) == count
    assert (components(links) == 0).all() == (count == 1)


@given(pair_lists())
def test_strong_connectivity_agrees_with_scipy_and_names_a_true_pair(case):
    nodes, pairs = case
    links = links_of(nodes, pairs)
    count, _ = connected_components(sparse(links), directed=True, connection="strong")
    assert (unreached(links) is None) == (count == 1)
    pair = conn.unreached(links)
    if pair:
        assert pair[1] not in reachable(nodes, pairs, pair[0])


@settings(max_examples=60)
@given(st.integers(2, 6), st.integers(1, 5), st.integers(1, 7), st.data())
def test_windows_agree_with_an_obvious_loop(nodes, period, window, data):
    all_pairs = [(r, s) for r in range(nodes) for s in range(nodes) if r != s]
    several = [data.draw(st.lists(st.sampled_from(all_pairs), unique=True)) for _ in range(period)]
    phases = [links_of(nodes, pairs) for pairs in several]

    def fails(first):
        union = {pair for n in range(first, first + window) for pair in several[n % period]}
        return any(reachable(nodes, union, root) != set(range(nodes)) for root in range(nodes))

    expected = [first for first in range(0, window * period, window) if fails(first)]
    found = conn.window_that_fails(phases, window)
    assert (found is None) == (not expected)
    if found:
        assert found[0] == expected[0]


@pytest.mark.parametrize(("length", "chord", "expected"), [(6, None, 6), (6, (0, 3), 2), (6, (0, 2), 1), (5, None, 5)])
def test_period_is_the_common_divisor_of_round_trips(length, chord, expected):
    pairs = [((k + 1) % length, k) for k in range(length)] + ([(chord[1], chord[0])] if chord else [])
    links = links_of(length, pairs)
    assert conn.period(links) == expected
    assert (mixing_rate(links._replace(weights=1 / np.bincount(links.senders)[links.senders])) > 1 - 1e-9) == (
        expected > 1
    )


# --- random graphs ------------------------------------------------------------------------------------------


@given(seeds, st.integers(0, 40), st.integers(0, 5))
def test_vectorised_draws_are_the_keyed_draws(seed, purpose, node):
    key = key_of(seed, node, 3)
    assert shapes.uniforms(key, purpose, 5).tolist() == [uniform(key, purpose, i) for i in range(5)]


@given(st.integers(2, 60), st.floats(0, 1), seeds)
def test_random_peers_are_connected_with_the_exact_number_of_edges(clients, fullness, seed):
    least = 2 * (clients - 1) / clients
    mean = least + fullness * (clients - 1 - least)
    links = Peers(mean_degree=mean).build(clients, seed).links()
    count, _ = connected_components(sparse(links), directed=False)
    assert count == 1
    assert len(links.senders) == 2 * round(clients * mean / 2)
    pairs = edge_set(links)
    assert len(pairs) == len(links.senders)
    assert all(r != s and (s, r) in pairs for r, s in pairs)
    assert (links.weights == 1).all()


@given(
    st.integers(2, 40),
    st.floats(0, 1),
    seeds,
    st.sampled_from(["even", "random"]),
    st.sampled_from(["sender", "receiver"]),
)
def test_random_digraphs_are_strong_and_sum_to_one(clients, fullness, seed, shares, end):
    mean = 1 + fullness * (clients - 2)
    topology = Digraph(mean_degree=mean, shares=shares, sums_to_one=end)
    links = topology.build(clients, seed).links()
    count, _ = connected_components(sparse(links), directed=True, connection="strong")
    assert count == 1
    assert len(edge_set(links)) == len(links.senders) == round(clients * mean)
    assert all(r != s for r, s in edge_set(links))
    dense = matrix(links)
    assert np.allclose(dense.sum(axis=0 if end == "sender" else 1), 1, atol=1e-14)
    assert (links.own > 0).all() and (links.weights > 0).all()


def test_every_tree_is_equally_likely():
    """Cayley: 16 labelled trees on four nodes."""
    counts = {}
    for seed in range(4000):
        tree = frozenset(frozenset(pair) for pair in shapes.random_tree(4, seed).tolist())
        counts[tree] = counts.get(tree, 0) + 1
    assert len(counts) == 16
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


@pytest.mark.parametrize(("total", "wanted", "taken"), [(10, 3, [0, 4]), (40, 2, [5])])
def test_extra_links_are_uniform_among_the_free_ones(total, wanted, taken):
    """One case is crowded and one is sparse: two ways to draw, one law."""
    counts = np.zeros(total)
    for seed in range(4000):
        drawn = shapes.distinct(total, wanted, np.array(taken), seed, 0)
        assert len(set(drawn.tolist())) == wanted
        counts[drawn] += 1
    assert counts[taken].sum() == 0
    # without replacement the counts spread a little less than the test expects: the bound still holds
    assert stats.chisquare(np.delete(counts, taken)).pvalue > 1e-4


@given(st.integers(0, 10**13))
def test_edge_numbers_and_pairs_are_one_to_one(code):
    low, high = shapes._edge_of(np.array([code]))[0].tolist()
    assert 0 <= low < high
    assert high * (high - 1) // 2 + low == code


def test_seeds_settle_the_graph():
    for topology in (
        Peers(mean_degree=4),
        Digraph(),
        Servers(clusters=3),
        Digraph(phases=3, fade=0.3, force=True),
    ):
        one, again, other = (topology.build(60, seed) for seed in (1, 1, 2))
        assert all((a == b).all() for a, b in zip(one.links(1), again.links(1)))
        assert edge_set(one.links(1)) != edge_set(other.links(1))


def test_of_many_nodes_only_the_links_are_held_not_all_pairs():
    """Of 10,000 nodes there are 50 million pairs, and 50,000 links."""
    for topology in (Peers(mean_degree=10), Digraph(mean_degree=10), Peers("grid"), Digraph("ring")):
        tracemalloc.start()
        links = topology.build(10_000, 0).links()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(links.senders) >= 10_000 and peak < 50e6, (topology, peak)


# --- the other shapes ---------------------------------------------------------------------------------------


@given(st.integers(1, 40))
def test_fixed_shapes(clients):
    ring = edge_set(Peers("ring").build(clients, 0).links())
    expected = {((k + 1) % clients, k) for k in range(clients)} | {(k, (k + 1) % clients) for k in range(clients)}
    assert ring == {(a, b) for a, b in expected if a != b}
    everyone = edge_set(Peers("complete").build(clients, 0).links())
    assert everyone == {(a, b) for a, b in product(range(clients), repeat=2) if a != b}
    width = int(np.ceil(np.sqrt(clients)))
    grid = edge_set(Peers("grid").build(clients, 0).links())
    place = {k: divmod(k, width) for k in range(clients)}
    near = lambda a, b: abs(place[a][0] - place[b][0]) + abs(place[a][1] - place[b][1]) == 1  # noqa: E731
    assert grid == {(a, b) for a, b in product(range(clients), repeat=2) if near(a, b)}
    one_way = edge_set(Digraph("ring").build(clients, 0).links())
    assert one_way == {((k + 1) % clients, k) for k in range(clients) if clients > 1}


def test_no_edges_only_by_force():
    graph = Peers("none", force=True).build(5, 0)
    assert graph.links().degree.tolist() == [0] * 5
    with pytest.raises(
        BadInput,
        match=r'topology.shape = "none": expected a graph in one piece \(it has 5: nothing joins 0 and 1',
    ):
        Peers("none").build(5, 0)
    assert len(Peers(mean_degree=1, force=True).build(50, 0).links().senders) == 50


# --- the four topologies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_few_nodes_have_all_others_for_neighbours_unless_more_are_asked_for(nodes):
    for kind in (Peers, Digraph):
        (links,) = kind().build(nodes, 1).across
        assert len(links.senders) == nodes * (nodes - 1)
        with pytest.raises(BadInput, match=r"topology\.mean_degree = 3\.5"):
            kind(mean_degree=3.5).build(nodes, 1)


def test_star_and_servers_know_up_and_down():
    star = Star().build(4, 0)
    assert star.up().senders.tolist() == [0, 1, 2, 3] and star.up().degree.tolist() == [4]
    assert star.down().senders.tolist() == [0, 0, 0, 0] and star.servers == 1
    graph = Servers(servers=10, clients_per_server=15, clusters=3).build(150, 0)
    assert np.bincount(graph.server).tolist() == [15] * 10
    assert np.bincount(graph.cluster).tolist() == [50] * 3
    assert len(graph.links().senders) == 30
    up = graph.up()
    for s in range(10):
        assert graph.server[up.senders[up.starts[s] : up.starts[s + 1]]].tolist() == [s] * 15
    assert (graph.down().senders == graph.server).all()
    assert any(len(set(graph.cluster[graph.server == s].tolist())) == 3 for s in range(10))


@given(st.integers(1, 12), st.integers(0, 40), st.integers(1, 5), seeds)
def test_clients_and_clusters_are_spread_evenly(servers, more, clusters, seed):
    clients = max(servers, clusters) + more
    graph = Servers(servers=servers, shape="ring", clusters=clusters).build(clients, seed)
    for group, count in ((graph.server, servers), (graph.cluster, clusters)):
        sizes = np.bincount(group, minlength=count)
        assert len(sizes) == count and sizes.max() - sizes.min() <= 1


def test_names_in_the_registry():
    assert set(TOPOLOGIES) == {"star", "servers", "peers", "digraph"}


def test_a_device_builds_graphs_with_numpy_alone():
    code = (
        "import sys; from archipel.topology import Digraph, Peers, Servers; "
        "[kind().build(20, 0) for kind in (Digraph, Peers, Servers)]; "
        "assert not {'scipy', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
