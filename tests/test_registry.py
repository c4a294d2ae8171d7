"""Names lead to classes, and classes back to their names."""

import subprocess
import sys

import pytest

from archipel.registry import ALGORITHMS, PROBLEMS


@pytest.mark.parametrize("kinds", [ALGORITHMS, PROBLEMS])
def test_every_name_leads_to_the_class_that_says_it_lives_there(kinds):
    for name, home in kinds.homes.items():
        assert f"{kinds[name].__module__}:{kinds[name].__qualname__}" == home


def test_only_what_is_asked_for_is_loaded():
    script = "import sys; from archipel.registry import ALGORITHMS; ALGORITHMS['pao-fed']; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "archipel.algorithms.online" in loaded
    assert not {"archipel.algorithms.pgfl", "archipel.problems.deep", "scipy", "numba", "torch"} & set(loaded)
