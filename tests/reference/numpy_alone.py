"""Loads bundles and predicts in an interpreter that has NumPy and the standard library, and nothing else."""

import json
import sys
from pathlib import Path


class Nothing:
    """Refuses every other package."""

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("numpy", "archipel") and not top.startswith("_"):
            raise ImportError(f"there is no {name} here")


def found(order):
    import numpy as np

    import archipel

    metric, rows, client = order["asked"]
    model = archipel.load(order["model"])
    if "x" in rows:
        rows, truth = np.array(rows["x"]), np.array(rows["y"])
    else:
        truth = np.array(rows["salinity"])
    frame = model.frame
    if metric == "answers":  # the error in standard units, in the precision of the run
        wanted = ((truth.astype(float) - frame.target_center) / frame.target_spread).astype(frame.precision)
        return float(np.mean((wanted - model.answers(rows)) ** 2))
    if metric == "accuracy":
        return float(np.mean(model.predict(rows) == truth))
    if metric == "loss":
        chance = model.probabilities(rows)
        return float(np.mean(-np.log(np.where(truth == frame.labels[1], chance, 1 - chance))))
    squared = float(np.mean((model.predict(rows, client) - truth.astype(float)) ** 2))
    return squared if metric == "mse" else squared**0.5


if __name__ == "__main__":
    sys.meta_path.insert(0, Nothing())
    print(json.dumps([found(order) for order in json.loads(Path(sys.argv[1]).read_text())]))
    assert not {"numba", "scipy", "torch", "matplotlib", "rich", "typer"} & set(sys.modules)
