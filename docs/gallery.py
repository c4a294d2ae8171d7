"""Measure all figures anew (`--quick`), for the gallery: python docs/gallery.py [NAME ...] writes docs/gallery.json.

What was measured is kept with its verdicts and enough points to draw it; `make docs` draws it.
"""

import dataclasses
import json
import math
import sys
import time
from pathlib import Path

from archipel.figures.gallery import GALLERY, reproduce

FILE = Path(__file__).with_name("gallery.json")
POINTS = 60  # of a curve


def thinned(values, points=POINTS):
    """Some of many, the first and the last among them, with five digits."""
    step = max(1, -(-len(values) // points))
    kept = list(range(0, len(values), step))
    kept += [len(values) - 1] if len(values) and kept[-1] != len(values) - 1 else []
    return [float(f"{float(values[i]):.5g}") if math.isfinite(values[i]) else None for i in kept]


def measured(name):
    begun = time.process_time()
    figure = dataclasses.asdict(reproduce(name, quick=True))
    figure["series"] = {key: [thinned(x), thinned(y)] for key, (x, y) in figure["series"].items()}
    del figure["numbers"]
    return figure | {"cpu_seconds": round(time.process_time() - begun, 1)}


if __name__ == "__main__":
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    aliases = GALLERY.aliases()
    wanted = sys.argv[1:] or [name for name in GALLERY if name not in aliases]
    for name in wanted:
        found[name] = measured(name)
        FILE.write_text(json.dumps(found, indent=0, allow_nan=False) + "\n")
        print(name, f"{found[name]['cpu_seconds']} s", [claim["holds"] for claim in found[name]["claims"]], flush=True)
