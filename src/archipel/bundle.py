"""A model one can use: weights and all that stands around them, in one file, `model.npz`.

    import archipel

    model = archipel.load("model.npz")
    model.predict([{"temperature": 11.5, "depth": 40}])  # in the units of the data it was learned from

It is an npz without pickle: arrays, and one text (`archipel.json`) with what is not an array. Reading one and
predicting needs NumPy alone; a network needs PyTorch. What is read is not trusted: sizes, types and shapes are checked,
and no code that it names is run.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from archipel import __version__
from archipel.errors import BadInput, did_you_mean
from archipel.problems.frame import CLASS, LABEL, NUMBER, Frame
from archipel.problems.models.fourier import World

FORMAT = 1
TEXT = "archipel.json"
WEIGHTS, FRAME = "weights.", "frame."
ARRAYS = ("center", "spread", "directions", "phases", "scale")  # of a frame
PLAIN = tuple(name for name in Frame._fields if name not in (*ARRAYS, "world"))
MOST = 1 << 24  # numbers: clients' own models beside a server's are left out where there are more
SHOWN = 5  # names that a sentence has
NOT_ONE = "a model.npz that archipel wrote"


class Bundle:
    """What was learned, with what it takes to use it."""

    def __init__(self, told: dict[str, Any], weights: dict[str, Any], frame: Frame | None):
        self.told, self.weights, self.frame = told, weights, frame

    def __repr__(self) -> str:
        return f"<{self.told['what']}, after {self.told['round']:,} rounds: {', '.join(self.weights)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The clients whose own models are in it."""
        many = len(self.weights["clients"]) if "clients" in self.weights else 0
        return tuple(self.told["names"]) or tuple(f"client-{k}" for k in range(many))

    def model(self, client: str | int | None = None) -> Any:
        """The weights: the server's, or a client's own, by its name or number."""
        own = self.weights.get("clients")
        if client is None and "server" in self.weights:
            return self.weights["server"]
        if own is None:
            right = "none: clients' own models are not in this file"
            raise BadInput("client", "(none)" if client is None else client, right)
        if client is None and len(own) == 1:
            return own[0]
        if isinstance(client, int) and 0 <= client < len(own):
            return own[client]
        if client not in self.names:
            few = self.names if client is not None and len(self.names) <= 50 else ()
            shown = ", ".join(self.names[:SHOWN]) + (", ..." if len(self.names) > SHOWN else "")
            right = did_you_mean(str(client), few) if few else f"one of {len(own):,} clients ({shown})"
            raise BadInput(
                "client", "(none)" if client is None else client, f"{right}: everyone has a model of its own"
            )
        return own[self.names.index(str(client))]

    # --- what it says -------------------------------------------------------------------------------------------------

    def answers(self, rows: Any, client: str | int | None = None, module: Any = None) -> Any:
        """What the model itself answers, in the units of the run: a number a row, or of a network one a class."""
        frame = self.framed()
        x = frame.table(rows)
        if frame.network is not None:
            from archipel.problems.models.networks import answers_of

            found = answers_of(self.module(client, module), frame.network, x, frame.precision)
            return found[:, 0] if frame.predicts == NUMBER else found
        features = frame.mapped(x)
        return features @ self.model(client).astype(features.dtype)

    def predict(self, rows: Any, client: str | int | None = None, module: Any = None) -> Any:
        """Predictions in the user's own units; labels, where the target is one of several."""
        frame, answers = self.framed(), self.answers(rows, client, module)
        if frame.predicts == LABEL:
            return np.where(answers > 0, frame.labels[1], frame.labels[0])
        if frame.predicts == CLASS:
            return np.argmax(answers, 1)
        return answers.astype(float) * frame.target_spread + frame.target_center

    def probabilities(self, rows: Any, client: str | int | None = None, module: Any = None) -> Any:
        """Of the label that stands for 1 (`frame.labels[1]`), for each row; of a network, of every class."""
        frame, answers = self.framed(), self.answers(rows, client, module).astype(float)
        if frame.predicts == NUMBER:
            raise BadInput("probabilities", frame.target, "a target that is a label; this one is a number: predict")
        if frame.predicts == LABEL:
            return np.exp(-np.logaddexp(0.0, -answers))
        likely = np.exp(answers - answers.max(1, keepdims=True))
        return likely / likely.sum(1, keepdims=True)

    def framed(self) -> Frame:
        """What stands around the weights; some problems have nothing to predict."""
        if self.frame is None:
            right = "a model of a problem that predicts something; of this one there are only the weights"
            raise BadInput("model", self.told["what"], right)
        return self.frame

    # --- networks -----------------------------------------------------------------------------------------------------

    def state_dict(self, client: str | int | None = None) -> dict[str, Any]:
        """The weights of a network as PyTorch wants them: `module.load_state_dict(model.state_dict())`."""
        network = self.framed().network
        if network is None:
            raise BadInput("state_dict", self.told["what"], "a network; this is a linear model: model()")
        torch, found, at = torch_here(), dict[str, Any](), 0
        flat = np.ascontiguousarray(self.model(client))
        for name, shape in network["parameters"]:
            size = int(np.prod(shape))
            found[name] = torch.from_numpy(flat[at : at + size].reshape(shape).copy())
            at += size
        return found

    def module(self, client: str | int | None = None, module: Any = None) -> Any:
        """The network with its weights: one that comes along, or a `module` of the user's own, which is filled."""
        network, weights = self.framed().network, self.state_dict(client)
        assert network is not None
        if module is None:
            from archipel.problems.models.networks import MODELS, build

            if network["own"] or network["model"] not in MODELS:
                right = "module=..., the network itself: a file says its name, and never runs it"
                raise BadInput("module", network["model"], right)
            own = tuple(network["widths"]), network["activation"]
            with torch_here().device("meta"):  # shapes only: a file may claim any width
                module = build(network["model"], tuple(self.framed().inputs), network["answers"], 0, *own)
        try:
            module.load_state_dict(weights, assign=True)
        except RuntimeError as problem:
            said = str(problem).splitlines()[0]
            raise BadInput("module", type(module).__name__, f"the network of this file ({said})") from None
        return module.to(next(iter(weights.values())).dtype).eval()


def torch_here() -> Any:
    from archipel.problems.models.networks import torch_or_sentence

    return torch_or_sentence()


# --- in a file ------------------------------------------------------------------------------------------------------


def packed(told: dict[str, Any], models: dict[str, Any], frame: Frame | None) -> bytes:
    """A bundle as bytes."""
    file = io.BytesIO()
    write(file, told, models, frame)
    return file.getvalue()


def write(file: IO[bytes], told: dict[str, Any], models: dict[str, Any], frame: Frame | None) -> None:
    """A bundle into a file; `told` is what is known of the run, see `about`."""
    left = {"told", *told.get("without", ())}  # beside what was told last, what has no noise
    arrays: Any = {WEIGHTS + name: np.asarray(model) for name, model in models.items() if name not in left}
    own = models.get("clients")
    if "server" in models and own is not None and own.size > MOST and "clients" not in left:
        del arrays[f"{WEIGHTS}clients"]
    text = {"format": FORMAT, "archipel": __version__, **told}
    if frame is not None:
        world = frame.world or World(np.zeros((0, 0)), np.zeros(0), 1.0)
        found = {**frame._asdict(), **world._asdict()}
        arrays |= {FRAME + name: np.asarray(found[name]) for name in ARRAYS}
        text["frame"] = {name: found[name] for name in PLAIN}
    arrays[TEXT] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    np.savez(file, **arrays)


def about(
    federation: Any, task: Any, seed: int, round: int, names: Any = (), ledger: Any = None, before: Any = None
) -> dict[str, Any]:
    """What a bundle tells of the run that made it; of a ledger, what everyone has paid in the end.

    `before` is the same of the weights that the run started from, and in it of those that they came from.
    """
    paid: dict[str, Any] | None = None
    if ledger is not None:
        nodes = [{name: node[name] for name in ("node", "spent", "releases")} for node in ledger["nodes"]]
        paid = {name: ledger[name] for name in ("delta", "guarantee", "worst")} | {"nodes": nodes}
    if before is not None:
        paid = (paid or {"worst": {"epsilon": None}, "nodes": []}) | {"before": before}
    table = federation.table()
    what = f"{table['algorithm']['kind']} on {table['problem']['kind']}, {table['topology']['kind']}"
    told = {"what": what, "description": federation.to_toml(), "digest": federation.digest()}
    return told | {"seed": seed, "round": int(round), "size": task.size, "names": list(names), "paid": paid}


def costs(paid: Any) -> list[str]:
    """What weights have cost, and those that they were started from, in words: the last run's first."""
    found = []
    while isinstance(paid, dict):
        worst = paid.get("worst")
        known = worst if isinstance(worst, dict) else {}  # of a file that is not trusted
        shown = [
            f"{name} = {known[name]:.4g}" for name in ("epsilon", "rho") if isinstance(known.get(name), int | float)
        ]
        found.append(shown[0] if shown else "what nobody bounds")
        paid = paid.get("before")
    return found


def load(path: str | Path) -> Bundle:
    """A model from a file that `archipel run`, `up` or `node` wrote."""
    path = Path(path)
    if not path.is_file():
        raise BadInput("model", str(path), "a file that exists, such as results/model.npz")
    arrays = read(path)
    told = text_of(arrays.pop(TEXT, None), path)
    weights = {n.removeprefix(WEIGHTS): a for n, a in arrays.items() if n.startswith(WEIGHTS)}
    for name, array in weights.items():
        if array.dtype.kind not in ("i" if name == "clusters" else "f") or array.ndim not in (1, 2, 3):
            raise BadInput("model", path.name, f"{NOT_ONE}: its {name} is no table of weights")
    if not {"server", "servers", "clients"} & set(weights):
        raise BadInput("model", path.name, f"{NOT_ONE}, with weights in it")
    try:
        frame = frame_of(told, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        raise BadInput("model", path.name, f"{NOT_ONE} ({problem})") from None
    names = told["names"]
    if names and "clients" in weights and len(names) != len(weights["clients"]):
        raise BadInput(
            "model", path.name, f"{NOT_ONE}: it has {len(names)} names for {len(weights['clients'])} clients"
        )
    size = frame.features if frame is not None and frame.network is None else told["size"]
    for name, array in weights.items():
        if name != "clusters" and (array.shape[-1] != size or not np.isfinite(array).all()):
            raise BadInput("model", path.name, f"{NOT_ONE}: {size} finite weights a model, not {name} {array.shape}")
    return Bundle(told, weights, frame)


def read(path: Path) -> dict[str, Any]:
    """The arrays of a file, as they are stored: nothing in it is larger than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
                raise ValueError("compressed")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, TypeError, EOFError, AttributeError, RuntimeError, MemoryError, zipfile.BadZipFile):
        raise BadInput("model", path.name, NOT_ONE) from None


def text_of(array: Any, path: Path) -> dict[str, Any]:
    """What a bundle says of itself."""
    try:
        told = json.loads(array.tobytes().decode())
        format, asked = told["format"], {"what": str, "names": list, "round": int, "seed": int, "digest": str}
        asked |= {"size": int, "description": str}
    except (AttributeError, ValueError, TypeError, KeyError, RecursionError):
        raise BadInput("model", path.name, NOT_ONE) from None
    if format != FORMAT:
        raise BadInput("model", f"{path.name}, format {format}", f"format {FORMAT}: another archipel wrote it")
    for name, kind in asked.items():
        if not isinstance(told.get(name), kind):
            raise BadInput("model", path.name, f"{NOT_ONE}: it does not say its {name}")
    return dict(told)


def frame_of(told: dict[str, Any], arrays: dict[str, Any]) -> Frame | None:
    """The frame of a bundle, with everything in its place."""
    if "frame" not in told:
        return None
    text, parts = told["frame"], {name: arrays[FRAME + name] for name in ARRAYS}
    if any(part.dtype.kind != "f" or not np.isfinite(part).all() for part in parts.values()):
        raise ValueError("numbers that are none")
    inputs, columns = tuple(int(n) for n in text["inputs"]), tuple(map(str, text["columns"]))
    width = int(np.prod(inputs))
    categories = {str(name): tuple(map(str, values)) for name, values in text["categories"].items()}
    if min(inputs) < 1 or (columns and inputs != (len(columns),)):
        raise ValueError("columns that do not fit its inputs")
    for name in ("center", "spread"):
        if parts[name].shape not in ((), inputs) or (name == "spread" and not (parts[name] > 0).all()):
            raise ValueError(f"its {name} does not fit its inputs")
    world = None
    if len(parts["phases"]):
        world = World(parts["directions"], parts["phases"], parts["scale"][()])
        fits = len(inputs) == 1 and world.directions.shape == (width + bool(text["constant"]), len(world.phases))
        if not fits or world.phases.ndim != 1 or parts["scale"].ndim:
            raise ValueError("features that do not fit its inputs")
    if text["precision"] not in ("float32", "float64") or text["predicts"] not in (NUMBER, LABEL, CLASS):
        raise ValueError("its predictions are of no kind that is known")
    labels, network = tuple(map(str, text["labels"])), text["network"]
    if text["predicts"] == LABEL and len(labels) != 2:
        raise ValueError("two labels are wanted")
    if network is not None:
        network = network_of(network, told["size"])
    return Frame(
        inputs, columns, parts["center"], parts["spread"], bool(text["constant"]), world, text["predicts"],
        str(text["target"]), float(text["target_center"]), float(text["target_spread"]), str(text["unit"]), labels,
        categories, text["precision"], {str(name): str(unit) for name, unit in text["units"].items()}, network,
        tuple(map(str, text.get("filled", ()))),
    )  # fmt: skip


def network_of(text: dict[str, Any], size: int) -> dict[str, Any]:
    """How a network is built, with everything in its place."""
    parameters = [(str(name), tuple(int(n) for n in shape)) for name, shape in text["parameters"]]
    numbers = {name: float(text[name]) for name in ("top", "center", "spread")}
    answers, widths = int(text["answers"]), tuple(int(n) for n in text["widths"])
    if not all(1 <= n <= size for n in (answers, *widths)):
        raise ValueError("layers that do not fit its weights")
    if sum(int(np.prod(shape)) for _, shape in parameters) != size or min(n for _, s in parameters for n in s) < 1:
        raise ValueError("a network that does not fit its weights")
    if not np.isfinite(list(numbers.values())).all() or numbers["top"] * numbers["spread"] <= 0:
        raise ValueError("a network without units")
    named = {"model": str(text["model"]), "own": bool(text["own"]), "activation": str(text["activation"])}
    return {**named, **numbers, "answers": answers, "widths": widths, "parameters": parameters}
