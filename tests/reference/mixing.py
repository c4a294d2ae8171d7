"""How fast a graph mixes, by all of its eigenvalues."""

import numpy as np

from archipel.topology import matrix


def mixing_rate(*phases):
    """The factor by which disagreement shrinks in a round, in the long run. Below 1, mixing settles.

    The second largest modulus of an eigenvalue, of the weights of one graph or, per round, of the product
    over all phases.
    """
    product = np.eye(len(phases[0].own))
    for links in phases:
        product = matrix(links) @ product
    moduli = np.sort(np.abs(np.linalg.eigvals(product)))
    return float(moduli[-2] ** (1 / len(phases)))
