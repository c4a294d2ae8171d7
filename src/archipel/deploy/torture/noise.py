"""Privacy noise that a seed decides and no key foretells: drawn again, it is other noise, as on a device."""

from collections import deque
from typing import Any

import numpy as np

from archipel.deploy.torture.chance import mix
from archipel.privacy.noise import DISCRETE, LAPLACE


class SeededSource:
    """In place of opendp and the system. What it gives is written down, so that a reference can be given the same."""

    def __init__(self, seed: int):
        self.seed, self.count = seed, 0
        self.drawn: list[Any] = []
        self.again: deque[Any] | None = None  # what a reference is given

    def fresh(self) -> Any:
        self.count += 1
        return np.random.Generator(np.random.Philox(key=mix(self.seed, self.count, 5)))

    def sum(self, values: Any, law: int, scale: float) -> Any:
        if self.again is not None:
            return values + self.again.popleft()
        draw = self.fresh()
        noise = draw.laplace(0.0, scale, len(values)) if law == LAPLACE else draw.normal(0.0, scale, len(values))
        noise = np.rint(noise) if law == DISCRETE else noise
        self.drawn.append(noise)
        return values + noise

    def bits(self, count: int) -> int:
        if self.again is not None:
            return int(self.again.popleft())
        found = int.from_bytes(self.fresh().bytes(count // 8), "little")
        self.drawn.append(found)
        return found
