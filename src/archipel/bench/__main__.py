"""A row, in a process of its own: python -m archipel.bench star 10000."""

import json
import sys

from archipel.bench.deep import deep
from archipel.bench.measuring import measured

what, size = sys.argv[1], int(sys.argv[2])
print(json.dumps(deep(size) if what == "deep" else measured(what, size)))
