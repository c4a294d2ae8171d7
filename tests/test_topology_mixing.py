"""How graphs mix, and graphs that change: rates by closed form, weights that are never lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.topology import Digraph, Peers, matrix
from archipel.topology import connectivity as conn
from archipel.topology.connectivity import algebraic_connectivity, laplacian, unreached
from archipel.topology.links import metropolis, present_only, receiver_keeps, sender_keeps
from reference.mixing import mixing_rate

seeds = st.integers(0, 2**63)


def edge_set(links):
    return set(zip(links.receivers.tolist(), links.senders.tolist()))


# --- weights and rates --------------------------------------------------------------------------------------


@given(st.integers(2, 30), seeds)
def test_metropolis_is_doubly_stochastic(clients, seed):
    links = Peers(mean_degree=2 * (clients - 1) / clients).build(clients, seed).links()
    mix = matrix(metropolis(links))
    assert np.allclose(mix.sum(0), 1) and np.allclose(mix.sum(1), 1) and np.allclose(mix, mix.T)
    assert (np.diag(mix) > 0).all()


def test_rates_have_their_closed_forms():
    """Ring: Laplacian 2 - 2 cos(2 pi / n), Metropolis (1 + 2 cos(2 pi / n)) / 3; complete: n and 0."""
    for clients in (7, 12):
        ring, full = Peers("ring").build(clients, 0).links(), Peers("complete").build(clients, 0).links()
        turn = np.cos(2 * np.pi / clients)
        assert algebraic_connectivity(ring) == pytest.approx(2 - 2 * turn, abs=1e-12)
        assert mixing_rate(metropolis(ring)) == pytest.approx((1 + 2 * turn) / 3, abs=1e-12)
        assert algebraic_connectivity(full) == pytest.approx(clients)
        assert mixing_rate(metropolis(full)) < 1e-7
    assert algebraic_connectivity(Peers("none", force=True).build(4, 0).links()) == 0


def test_large_graphs_have_the_rates_of_the_dense_form(monkeypatch):
    peers = Peers(mean_degree=4).build(300, 0).links()
    dense = algebraic_connectivity(peers)
    monkeypatch.setattr(conn, "DENSE", 10)
    assert algebraic_connectivity(peers) == pytest.approx(dense, rel=1e-8)


def test_mixing_rate_is_the_rate_of_mixing():
    sequence = Digraph(mean_degree=2, shares="random", phases=3).build(30, 1).across
    values = np.random.default_rng(0).standard_normal(30)
    mass = np.ones(30)
    spread = []
    for n in range(240):
        weights = matrix(sequence[n % 3])
        values, mass = weights @ values, weights @ mass
        spread.append(np.ptp(values / mass))
    measured = (spread[69] / spread[9]) ** (1 / 60)  # later, rounding is all that is left
    assert measured == pytest.approx(mixing_rate(*sequence), rel=0.03)
    assert values / mass == pytest.approx(np.random.default_rng(0).standard_normal(30).mean(), abs=1e-12)


def test_laplacian_counts_degrees():
    links = Peers("grid").build(7, 0).links()
    assert (laplacian(links).sum(1) == 0).all()
    assert np.diag(laplacian(links)).tolist() == links.degree.tolist()


# --- changing graphs ----------------------------------------------------------------------------------------


@given(st.integers(2, 12), seeds, st.data())
def test_who_opts_out_keeps_its_weight(clients, seed, data):
    links = Digraph(mean_degree=1, shares="random").build(clients, seed).links()
    present = np.array(data.draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
    thin = sender_keeps(links, present_only(links, present))
    dense = matrix(thin)
    assert np.allclose(dense.sum(0), 1)
    for k in np.flatnonzero(~present):
        assert dense[k, k] == pytest.approx(1) and thin.degree[k] == 0
        assert np.count_nonzero(dense[:, k]) == 1
    both = np.outer(present, present) & ~np.eye(clients, dtype=bool)
    assert (dense[both] == matrix(links)[both]).all()
    turned = receiver_keeps(links, present_only(links, present))
    assert np.allclose(matrix(turned).sum(1), matrix(links).sum(1))


def test_fading_links_come_and_go_at_their_rate():
    graph = Digraph(mean_degree=5, phases=40, fade=0.3, opt_out=0.1, window=10).build(200, 0)
    assert len(graph.across) == 40
    share = np.mean([len(links.senders) / 1000 for links in graph.across])
    # a link is there with probability 0.7 * 0.9^2; both ends' absences make the mean vary by less than 0.02
    assert share == pytest.approx(0.7 * 0.81, abs=0.02)
    assert all(np.allclose(matrix(links).sum(0), 1) for links in graph.across)
    assert graph.links(41) is graph.across[1]
    assert len({len(links.senders) for links in graph.across}) > 5


def test_random_graphs_are_drawn_anew_in_each_phase():
    graph = Digraph(phases=3).build(20, 0)
    assert len({frozenset(edge_set(links)) for links in graph.across}) == 3
    assert all(unreached(links) is None for links in graph.across)


def test_a_sequence_must_be_connected_within_its_window():
    fading = Digraph("ring", phases=4, fade=0.5)
    with pytest.raises(BadInput, match=r"topology.window = 1: expected rounds within which everyone reaches everyone"):
        fading.build(10, 0)
    assert len(Digraph("ring", phases=4, fade=0.5, force=True).build(10, 0).across) == 4
    for window in range(2, 40):
        try:
            graph = Digraph("ring", phases=40, fade=0.5, window=window).build(10, 0)
        except BadInput:
            continue
        assert conn.window_that_fails(graph.across, window) is None
        return
    pytest.fail("a ring that fades by half is connected within some window")
