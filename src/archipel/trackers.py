"""What a run measured, in the trackers that people already look at: each by its own API, each an extra.

archipel run federation.toml --log tensorboard:logs --log mlflow:sqlite:///mlflow.db
"""

import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from archipel.errors import BadInput, Missing, did_you_mean
from archipel.report.page import flattened

if TYPE_CHECKING:
    from archipel.results import Result


def log(result: "Result", where: str) -> None:
    """Write a result to a tracker, "name:place": a folder, an address or a project."""
    check(where)
    name, _, place = where.partition(":")
    TRACKERS[name][1](result, TRACKERS[name][0], place or "archipel")


def check(where: str) -> None:
    """Refuse a tracker that nobody knows, or that is not installed, before anything runs."""
    name = where.partition(":")[0]
    if name not in TRACKERS:
        raise BadInput("--log", where, did_you_mean(name, TRACKERS))
    library(TRACKERS[name][0])


def library(name: str) -> Any:
    """A tracker's own library, or a sentence."""
    try:
        return import_module(name)
    except ImportError:
        raise Missing(f"Logging there needs {name}: pip install {name.replace('mlflow', 'mlflow-skinny')}.") from None


def by_seed(result: "Result") -> Iterator[tuple[str, list[tuple[int, str, float]]]]:
    """A run's name and its (round, metric, value) for each seed; what is of one client has the client's name in it."""
    seeds: dict[int, list[tuple[int, str, float]]] = {}
    for seed, round, metric, value, node in result.named_rows():
        seeds.setdefault(seed, []).append((round, f"{metric}/{node}" if node else metric, value))
    for seed, rows in seeds.items():
        yield f"{result.name or 'federation'}-seed-{seed}", rows


def settings(result: "Result") -> dict[str, str]:
    return flattened(tomllib.loads(result.description))


def to_tensorboard(result: "Result", name: str, place: str) -> None:
    for run, rows in by_seed(result):
        with library(name).SummaryWriter(logdir=f"{place}/{run}") as writer:
            for round, metric, value in rows:
                writer.add_scalar(metric, value, round)


def to_mlflow(result: "Result", name: str, place: str) -> None:
    mlflow = library(name)
    mlflow.set_tracking_uri(place)
    mlflow.set_experiment("archipel")
    for run, rows in by_seed(result):
        with mlflow.start_run(run_name=run):
            mlflow.log_params(settings(result))
            for round, metric, value in rows:
                mlflow.log_metric(metric, value, step=round)


def to_project(result: "Result", name: str, place: str) -> None:
    """Weights & Biases, and Trackio, which has the same API."""
    tracker = library(name)
    for run, rows in by_seed(result):
        tracker.init(project=place, name=run, config=settings(result))
        rounds: dict[int, dict[str, float]] = {}
        for round, metric, value in rows:
            rounds.setdefault(round, {})[metric] = value
        for round, values in rounds.items():
            tracker.log(values, step=round)
        tracker.finish()


TRACKERS: dict[str, tuple[str, Callable[["Result", str, str], None]]] = {
    "tensorboard": ("tensorboardX", to_tensorboard),
    "mlflow": ("mlflow", to_mlflow),
    "trackio": ("trackio", to_project),
    "wandb": ("wandb", to_project),
}
