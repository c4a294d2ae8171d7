"""How many private peer updates a second a directed graph takes: 10,000 peers of degree 10, 100 parameters.

    python benchmarks/mirror.py                 # both cores
    python benchmarks/mirror.py --algorithm dual-averaging
    python benchmarks/mirror.py --map entropy --mechanism gaussian --engine serial

An update is a round of one peer: draw a sample, clip and noise its gradient, a mirror step, say it, mix what ten said.
"""

import argparse
import json
import time

from archipel import Federation
from archipel.privacy.policy import Privacy
from archipel.problems.drifting import Drifting
from archipel.registry import ALGORITHMS
from archipel.topology import Digraph


def federation_of(asked: argparse.Namespace) -> Federation:
    simplex = {"region": "simplex", "map": "entropy"} if asked.map == "entropy" else {}
    problem = Drifting(clients=asked.peers, size=asked.size, loss="linear", space="simplex" if simplex else "ball")
    privacy = Privacy(mechanism=asked.mechanism, epsilon=1.0, clip=2.0)
    algorithm = ALGORITHMS[asked.algorithm](**simplex)
    return Federation(problem, algorithm, Digraph(mean_degree=asked.degree), privacy=privacy, rounds=asked.rounds + 2)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("peers", 10_000), ("degree", 10), ("size", 100), ("rounds", 60)):
        reader.add_argument(f"--{name}", type=int, default=value)
    reader.add_argument("--algorithm", choices=("mirror-descent", "dual-averaging"), default="mirror-descent")
    reader.add_argument("--map", choices=("euclidean", "entropy"), default="euclidean")
    reader.add_argument("--mechanism", choices=("laplace", "gaussian"), default="laplace")
    reader.add_argument("--engine", choices=("parallel", "serial"), default="parallel")
    asked = reader.parse_args()
    federation = federation_of(asked)
    instance = federation.instance()
    engine = federation.with_(engine=asked.engine).engine_of(instance)
    engine.advance(0, 2)  # compiles, and warms up
    begun = time.perf_counter()
    engine.advance(2, asked.rounds + 2)
    seconds = time.perf_counter() - begun
    done = asked.peers * asked.rounds
    print(json.dumps(vars(asked) | {"updates": done, "seconds": round(seconds, 3), "a_second": round(done / seconds)}))


if __name__ == "__main__":
    main()
