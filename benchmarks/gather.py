"""How many times NumPy a digraph could have: its neighbours' words, read and added up, and nothing else.

    python benchmarks/gather.py     # prints a line for each way to lay them out; half a minute

A random digraph of 100,000 peers, 100 weights, ten links each, as the bench has it. Whoever mixes must read ten words
an update; here no draw, no step, no projection and no message is beside that. Rows may lie as they are, or in blocks of
columns small enough for a cache. Seconds of the processor, the best of five, beside NumPy's whole round in turn.
"""

from functools import partial

import numba
import numpy as np

from archipel.bench.cases import CASES, bare_peers
from archipel.bench.measuring import timed

PEERS, WEIGHTS = 100_000, 100
BLOCKS = (1, 4, 5, 10, 20)


@numba.njit(fastmath=True, error_model="numpy")
def added(words, models, starts, senders, weights):
    """models[b, k] = the weighted sum of what k hears, block of columns by block."""
    for b in range(words.shape[0]):
        for k in range(words.shape[1]):
            mine = models[b, k]
            mine[:] = 0.0
            for e in range(starts[k], starts[k + 1]):
                theirs, weight = words[b, senders[e]], weights[e]
                for j in range(mine.shape[0]):
                    mine[j] += weight * theirs[j]


def works():
    """What is compared, each for one round."""
    case = CASES["digraph"]
    instance = case.federation(PEERS).with_(rounds=1000, every=1000).instance()
    links = instance.links["peer", "peer"][0]
    routes = links.starts, links.senders, np.asarray(links.weights, float)
    made = {"NumPy, a whole round": case.rendition(instance).step}
    bare = bare_peers(instance)
    made["the bare kernel"] = lambda: bare(1)
    for blocks in BLOCKS:
        words = np.random.default_rng(1).standard_normal((blocks, PEERS, WEIGHTS // blocks))
        made[f"words alone, {blocks} blocks"] = partial(added, words, np.zeros_like(words), *routes)
    return made


def main():
    made = works()
    for work in made.values():
        work()
    best = {name: min(timed(work) for _ in range(5)) for name, work in made.items()}
    numpy = best["NumPy, a whole round"]
    for name, seconds in best.items():
        print(f"{name}: {1e6 * seconds / PEERS:.2f} microseconds an update, {numpy / seconds:.1f} x NumPy")


if __name__ == "__main__":
    main()
