"""The gallery's numbers: python docs/gallery.py FOLDER gathers what `archipel reproduce ... --out FOLDER` wrote.

docs/gallery.json keeps of each figure its verdicts and enough points to draw it; `make docs` draws it.
"""

import json
import sys
from datetime import date
from pathlib import Path

FILE = Path(__file__).with_name("gallery.json")
POINTS = 60  # of a curve


def thinned(values, points=POINTS):
    """Some of many, the first and the last among them, with five digits."""
    kept = sorted({*range(0, len(values), -(-len(values) // points or 1)), len(values) - 1}) if values else []
    return [None if values[i] is None else float(f"{values[i]:.5g}") for i in kept]


def gathered(folder):
    """What was measured of each figure, by name; metrics.json is the latest once more."""
    from archipel import __version__ as version

    found = {}
    for path in sorted(Path(folder).rglob("*.json")):
        figure = json.loads(path.read_text())
        if path.name != "metrics.json" and "claims" in figure:
            figure.pop("numbers", None)
            figure |= {"date": date.fromtimestamp(path.stat().st_mtime).isoformat(), "version": version}
            for curve in figure["series"].values():
                curve.update({axis: thinned(curve[axis]) for axis in ("x", "y")})
            found[figure["figure"]] = figure
    return found


if __name__ == "__main__":
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps(known | gathered(sys.argv[1]), indent=0, sort_keys=True) + "\n")
