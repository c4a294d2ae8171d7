"""PyTorch modules as learners: the module's parameters are views of the flat vector that a node holds.

PyTorch is an optional extra and is imported when a network is built, not before.
"""

import copy
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput, Missing, did_you_mean
from archipel.loading import load
from archipel.problems.models.per_example import NORMS, check_losses, clipped_sums, layers_of
from archipel.problems.models.side_by_side import Stack

SMALL = 16  # pixels a side, below which pictures are too small for 5 x 5 windows without a border
EVALUATED = 500  # samples at a time when a model is scored
_building = threading.Lock()  # PyTorch's initial weights come from a generator that all threads share


def torch_or_sentence() -> Any:
    """PyTorch, or one sentence that says what to install."""
    try:
        import torch
    except ImportError:
        raise Missing("Deep models need PyTorch: pip install 'archipel[deep]'.") from None
    return torch


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: it splits sums by threads, so that else their number would change results.

    Seeds and devices go side by side; the number is the calling thread's own, and is what it was afterwards.
    """
    torch = torch_or_sentence()
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- the models that come along -----------------------------------------------------------------------------


def cnn(shape: tuple[int, ...], answers: int, widths: tuple[int, ...] = (), activation: str = "relu") -> Any:
    """Two convolution layers, each with max-pooling, and two linear ones.

    The shape of the PLDP paper's and of the dissertation's section 5.5, whose widths are (32, 64, 512).
    """
    nn = torch_or_sentence().nn
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise BadInput(
            "problem.model",
            "cnn",
            f"pictures of 4 x 4 pixels or more, not data of shape {shape}; mlp takes that",
        )
    first, second, hidden = checked_widths("cnn", widths or (8, 16, 32), 3)
    bend = activation_of(activation)
    window, border = (5, 0) if min(shape[1:]) >= SMALL else (3, 1)
    sides = [((side - window + 1 + 2 * border) // 2 - window + 1 + 2 * border) // 2 for side in shape[1:]]
    return nn.Sequential(
        nn.Conv2d(shape[0], first, window, padding=border),
        bend(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, window, padding=border),
        bend(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * sides[0] * sides[1], hidden),
        bend(),
        nn.Linear(hidden, answers),
    )


def mlp(shape: tuple[int, ...], answers: int, widths: tuple[int, ...] = (), activation: str = "relu") -> Any:
    """Linear layers with nonlinearities between them; `widths` are those of the hidden ones."""
    nn = torch_or_sentence().nn
    bend = activation_of(activation)
    hidden = checked_widths("mlp", widths or (32,), len(widths) or 1)
    sizes = (int(np.prod(shape)), *hidden)
    layers: list[Any] = [nn.Flatten()]
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), bend()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], answers))


MODELS: dict[str, Callable[..., Any]] = {"cnn": cnn, "mlp": mlp}


def activation_of(name: str) -> Any:
    """relu, or tanh, whose bounded answers suit clipped gradients (Papernot et al., AAAI 2021)."""
    nn = torch_or_sentence().nn
    known = {"relu": nn.ReLU, "tanh": nn.Tanh}
    if name not in known:
        raise BadInput("problem.activation", name, did_you_mean(name, known))
    return known[name]


def checked_widths(model: str, widths: tuple[int, ...], count: int) -> tuple[int, ...]:
    if len(widths) != count or min(widths) < 1:
        raise BadInput("problem.widths", widths, f"{count} positive whole numbers for {model}")
    return widths


def from_file(model: str, shape: tuple[int, ...], answers: int) -> Any:
    """A user's own module, "my_model.py:Net": built from nothing, or from (shape of a sample, answers)."""
    torch = torch_or_sentence()
    build = load(model, "problem.model", "my_model.py:Net", anew=True)  # its weights may be drawn while it is run
    needed = [
        p for p in inspect.signature(build).parameters.values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL
    ]
    if len(needed) not in (0, 2):
        raise BadInput("problem.model", model, "a module built from nothing, or from (shape, answers)")
    try:
        module = build(shape, answers) if needed else build()
    except Exception as problem:
        right = f"a {model.rpartition(':')[2]} that can be built ({type(problem).__name__}: {problem})"
        raise BadInput("problem.model", model, right) from problem
    if not isinstance(module, torch.nn.Module):
        raise BadInput("problem.model", model, f"a torch.nn.Module, not {type(module).__name__}")
    return module


def build(model: str, shape: tuple[int, ...], answers: int, seed: int, *own: Any) -> Any:
    """A module by its name or file, with the initial weights of a seed. `own` is for the models that come along."""
    torch = torch_or_sentence()
    with _building, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if ":" in Path(model).name:
            return from_file(model, shape, answers)
        name = Path(model).name  # a description's own folder may stand before it
        if name not in MODELS:
            raise BadInput("problem.model", model, did_you_mean(name, [*MODELS, "my_model.py:Net"]))
        return MODELS[name](shape, answers, *own)


# --- a module as a learner ----------------------------------------------------------------------------------


class Units(NamedTuple):
    """What is done to inputs when a batch is taken: (x / top - center) / spread."""

    top: float = 1.0
    center: float = 0.0
    spread: float = 1.0

    def apply(self, x: Any) -> Any:
        if self.top * self.spread != 1:
            x = x / (self.top * self.spread)
        return x if self.center == 0 else x - self.center / self.spread


class Network:
    """A module and its loss. `model` is always a flat vector, of which the parameters become views."""

    def __init__(self, module: Any, loss: Callable[..., Any], x: Any, units: Units, dtype: Any, name: str = "model"):
        torch = torch_or_sentence()
        self.dtype = torch.from_numpy(np.zeros(1, dtype)).dtype
        self.module, self.loss, self.units = module.to(self.dtype).eval(), loss, units
        refuse_hidden_state(module, name)
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        if not self.parameters or len(self.parameters) != len(list(module.parameters())):
            raise BadInput("problem.model", name, "parameters that all learn (requires_grad)")
        self.shapes = [p.shape for p in self.parameters]
        self.sizes = [p.numel() for p in self.parameters]
        self.size = sum(self.sizes)
        self.first = torch.cat([p.detach().flatten() for p in self.parameters]).numpy()
        self.bound = 0
        self.stack: Stack | None = None
        self.sample = x[:1]
        with torch.no_grad():
            self.layered = layers_of(module, self.scaled(x[:2]))

    def start(self) -> Any:
        """The initial weights, a copy."""
        return self.first.copy()

    def views(self, vector: Any) -> list[Any]:
        """A flat vector as tensors of the parameters' shapes, without a copy."""
        import torch
        from torch._utils import _unflatten_dense_tensors

        return list(_unflatten_dense_tensors(torch.from_numpy(vector), self.parameters))  # a call, not two a parameter

    def bind(self, model: Any) -> None:
        """Let the parameters be views of this vector."""
        if model.ctypes.data != self.bound:
            for parameter, view in zip(self.parameters, self.views(model)):
                parameter.data = view
            self.bound = model.ctypes.data

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """No gradients of parameters while the block runs: only those of layers' outputs are wanted."""
        self.module.requires_grad_(False)
        try:
            yield
        finally:
            self.module.requires_grad_(True)

    def scaled(self, x: Any) -> Any:
        return self.units.apply(x.to(self.dtype))

    def batch(self, data: Any, rows: Any) -> tuple[Any, Any]:
        """The samples of a batch, scaled."""
        import torch

        rows = torch.from_numpy(rows)
        return self.scaled(data.x[rows]), data.y[rows]

    def slopes(self, model: Any, data: Any, rows: Any) -> tuple[Any, Any]:
        """The mean loss of a batch, and its gradient by parameters."""
        import torch

        self.bind(model)
        x, y = self.batch(data, rows)
        loss = self.loss(self.module(x), y)
        found = loss.detach()
        check_losses(found)
        return found, torch.autograd.grad(loss, self.parameters, materialize_grads=True)  # some may do nothing

    def gradient(self, out: Any, model: Any, data: Any, rows: Any) -> float:
        """out = the mean gradient over a batch; returns the mean loss."""
        import torch

        with one_thread():
            loss, slopes = self.slopes(model, data, rows)
            torch.cat([slope.flatten() for slope in slopes], out=torch.from_numpy(out))
            return float(loss)

    def descend(self, model: Any, data: Any, rows: Any, step: float) -> None:
        """model -= step * mean gradient, in place."""
        import torch

        with one_thread():
            _, slopes = self.slopes(model, data, rows)
            with torch.no_grad():
                torch._foreach_add_(self.parameters, slopes, alpha=-float(step))

    def clipped_sum(self, out: Any, model: Any, data: Any, rows: Any, bound: float, norm: int = 2) -> None:
        """out = the sum over a batch of each example's gradient, scaled to norm `bound` at most: L2, or L1."""
        self.bind(model)
        with one_thread():
            for view, total in zip(self.views(out), clipped_sums(self, *self.batch(data, rows), bound, NORMS[norm])):
                view.copy_(total)

    def together(self, asks: Sequence[Any]) -> bool:
        """Many clients' asks at once, where that is quicker; see `side_by_side`."""
        with one_thread():
            if self.stack is None:
                self.stack = Stack(self, self.scaled(self.sample))
            return self.stack.answer(asks)

    def twins(self, count: int) -> list["Network"]:
        """Copies for threads. None where a module cannot be copied, draws, or looks at more than its parameters.

        A copy is believed if it answers to the bit as the module does, while that one has no parameters.
        """
        import torch

        start = self.start()
        with one_thread(), torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            try:
                own = self.looked_at(start)
                self.bind(np.full_like(start, np.nan))
                made = [self.twin() for _ in range(count)]
                alike = all(torch.equal(own, twin.looked_at(start)) for twin in made)
            except Exception:  # whatever a user's module may raise
                return []
            finally:
                self.bind(start)
            return made if alike and torch.equal(before, torch.get_rng_state()) else []

    def twin(self) -> "Network":
        made = copy.copy(self)
        made.module, made.layered = copy.deepcopy((self.module, self.layered))
        made.parameters, made.bound, made.stack = list(made.module.parameters()), 0, None
        return made

    def looked_at(self, model: Any) -> Any:
        """The answers to a sample, and their slopes."""
        import torch

        self.bind(model)
        answers = self.module(self.scaled(self.sample))
        slopes = torch.autograd.grad(answers.sum(), self.parameters, materialize_grads=True)
        return torch.cat([each.detach().flatten() for each in (answers, *slopes)])

    def answers(self, model: Any, x: Any) -> Any:
        """The module's answers to many samples."""
        import torch

        self.bind(np.ascontiguousarray(model))
        with one_thread(), torch.no_grad():
            parts = [self.module(self.scaled(x[i : i + EVALUATED])) for i in range(0, len(x), EVALUATED)]
            return torch.cat(parts)


def answers_of(module: Any, told: Mapping[str, Any], x: Any, precision: str) -> Any:
    """The answers of a module that stands by itself to samples in a user's units, as an array."""
    torch = torch_or_sentence()
    units = Units(float(told["top"]), float(told["center"]), float(told["spread"]))
    with one_thread(), torch.no_grad():
        parts = [
            module(units.apply(torch.from_numpy(np.ascontiguousarray(x[i : i + EVALUATED], precision))))
            for i in range(0, len(x), EVALUATED)
        ]
    return torch.cat(parts).numpy()


def refuse_hidden_state(module: Any, name: str) -> None:
    """What a flat vector does not carry, or a seed does not settle, is no part of a model here."""
    from torch import nn

    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats:
            right = f"no {type(layer).__name__}, whose statistics are not parameters; GroupNorm fits"
            raise BadInput("problem.model", name, right)
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise BadInput("problem.model", name, "no dropout: it draws from a generator that no seed of ours settles")
