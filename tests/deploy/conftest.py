"""Lets the tests of this folder share `harness`, `processes_here` and `broker`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
