"""How models are scored on held-out data."""

from typing import Any

import numpy as np

MANY = 1000  # more clients than this are scored by their first ones


def squared_error(models: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """The mean squared test error (40) of the server's model, or of each client's where there is no server.

    >>> squared_error({"server": np.array([2.0])}, np.array([[1.0], [2.0]]), np.array([2.0, 5.0]))
    {'mse': 0.5}
    """
    if "server" in models:
        return {"mse": float(np.mean((y - x @ models["server"].astype(x.dtype)) ** 2))}
    each = np.mean((y[:, None] - x @ models["clients"][:MANY].astype(x.dtype).T) ** 2, 0)
    return {"mse": float(each.mean()), "mse.node": each}


def accuracy(models: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """The share of right answers and the mean logistic loss, where targets are -1 and 1.

    >>> accuracy({"server": np.array([2.0])}, np.array([[1.0], [2.0]]), np.array([1.0, -1.0]))["accuracy"]
    0.5
    """
    if "server" in models:
        answers = x @ models["server"].astype(x.dtype)
        return {
            "accuracy": float(np.mean(np.where(answers > 0, 1, -1) == y)),
            "loss": float(np.mean(np.logaddexp(0, -y * answers))),
        }
    answers = x @ models["clients"][:MANY].astype(x.dtype).T
    each = np.mean(np.where(answers > 0, 1, -1) == y[:, None], 0)
    loss = np.mean(np.logaddexp(0, -y[:, None] * answers))
    return {"accuracy": float(each.mean()), "loss": float(loss), "accuracy.node": each}
