"""What the paper on personalised local privacy says of participations and of lambda, where only tests need it."""

from typing import Any

import numpy as np

from archipel.theory.pldp import Course


def matching_tradeoff(course: Course) -> float:
    """The lambda with which (6) is the part of (5) that depends on q: S^2 E sqrt(K R)."""
    return course.sensitivity**2 * course.local_steps * float(np.sqrt(course.draws * course.rounds))


LOGISTIC = 1.702  # the normal distribution function at x is about the logistic one at 1.702 x


def lemma_1(total_draws: int, chance: Any, excess: float, logistic: float = LOGISTIC) -> Any:
    """(4): how often a client is drawn in T draws, exceeded with probability delta''' (`excess`) at most.

    The paper does not give its k; its form is that of the logistic stand-in for the normal quantile.
    """
    chance = np.asarray(chance, float)
    deviation = np.sqrt(total_draws * chance * (1 - chance))
    return total_draws * chance + np.log((1 - excess) / excess) * deviation / logistic


def likely_participations(rounds: int, draws: int, chance: Any, excess: float) -> Any:
    """In how many rounds a client takes part, exceeded with a probability of at most `excess`: exact.

    A client that is drawn twice in a round answers once: it takes part with probability 1 - (1 - q_i)^K.
    """
    from scipy.stats import binom

    takes_part = -np.expm1(draws * np.log1p(-np.asarray(chance, float)))
    return binom.isf(excess, rounds, takes_part).astype(np.int64)
