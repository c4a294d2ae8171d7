"""Many clients' networks at once: one call of `torch.func.vmap` in place of one of autograd for each client.

Only the way forth is mapped; gradients are those of the sum of all losses, in which each client's model is in its own.
For small networks what a call costs is what a step costs; for large ones it is the arithmetic, and nothing is gained.
Which it is follows from the arithmetic of a batch, counted once, and not from a stopwatch: results do not depend on how
busy a machine is. `MOST_WORK` and `MOST_SIZE` were measured. A module that cannot be mapped over goes one by one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from archipel.problems.models.learners import ClippedSum, Descend
from archipel.problems.models.per_example import NORMS, factors, share_of

MOST_WORK = 3_500_000  # floating-point operations forth, of one client's batch, up to which it is worth it
MOST_SIZE = 40_000  # parameters up to which it is
CACHED = 500_000  # numbers in the models that go together: they and their gradients stay in the cache
WRITTEN = 16_000_000  # numbers of per-example gradients that are kept at a time


@contextmanager
def mapped_only() -> Iterator[None]:
    """What cannot be mapped over is an error, and not a slow loop inside of PyTorch."""
    import torch

    _functorch: Any = torch._C._functorch
    before = _functorch._is_vmap_fallback_enabled()
    _functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        _functorch._set_vmap_fallback_enabled(before)


def gathered(parts: Sequence[Any], rows: Any) -> Any:
    """Of each part its rows; at once, where all parts lie in one tensor."""
    import torch

    base = parts[0]._base
    if base is None or any(part._base is not base for part in parts):
        return torch.stack([part[torch.from_numpy(few)] for part, few in zip(parts, rows)])
    offsets = np.array([part.storage_offset() for part in parts])
    starts = (offsets - base.storage_offset()) // base.stride(0)
    return base[torch.from_numpy(rows + starts[:, None])]


class Stack:
    """A network whose parameters have one dimension more, of clients."""

    def __init__(self, network: Any, sample: Any):
        self.network = network
        self.names = [name for name, _ in network.module.named_parameters()]
        self.shapes: dict[Any, Any] = {}  # of the layers' outputs, for one sample
        self.work = self.counted(sample)  # floating-point operations of one sample, forth

    def counted(self, sample: Any) -> float:
        """Of linear layers and convolutions by their shapes; of others by PyTorch's counter, a second's import."""
        import torch

        def keep(layer: Any, inputs: Any, out: Any) -> None:
            self.shapes[layer] = out.shape[1:]

        layers = self.network.layered
        hooks = [layer.register_forward_hook(keep) for layer in layers]
        try:
            with torch.no_grad():
                if not layers:
                    return self.by_counter(sample)
                self.network.module(sample)
        except Exception:  # it does not fit the data: that is said elsewhere
            return float("inf")
        finally:
            for hook in hooks:
                hook.remove()
        return float(sum(2 * self.shapes[layer].numel() * layer.weight[0].numel() for layer in layers))

    def by_counter(self, sample: Any) -> float:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self.network.module(sample)
        return float(counter.get_total_flops()) or float("inf")

    def answer(self, asks: Sequence[Any]) -> bool:
        """Answer all, or nobody: what is not finite, and what cannot be mapped over, is for one by one."""
        longest = max(len(ask.rows) for ask in asks)
        if self.work * longest > MOST_WORK or self.network.size > MOST_SIZE:
            return False
        many = max(1, CACHED // self.network.size)
        if isinstance(asks[0], ClippedSum) and not self.network.layered:
            many = max(1, min(many, WRITTEN // (self.network.size * longest)))
        try:
            with mapped_only():
                found = [self.some(asks[i : i + many]) for i in range(0, len(asks), many)]
        except Exception:  # an operation that cannot be mapped over
            self.work = float("inf")
            return False
        if not all(np.isfinite(losses).all() and np.isfinite(rows).all() for losses, rows in found):
            return False
        for ask, row in zip(asks, (row for _, rows in found for row in rows)):
            (ask.model if isinstance(ask, Descend) else ask.out)[:] = row
        return True

    def some(self, asks: Sequence[Any]) -> tuple[Any, Any]:
        """Of a few: their losses, and (clients, size) what they asked for."""
        import torch
        from torch.func import vmap

        models = np.stack([ask.model for ask in asks])
        parameters, first = self.views(models), asks[0]
        x, y, counted = self.batches(asks)
        if isinstance(first, ClippedSum):
            summed = self.by_layers if self.network.layered else self.by_example
            losses, slopes = summed(parameters, x, y, counted, first.bound, NORMS[first.norm])
        else:
            leaves = [part.requires_grad_() for part in parameters.values()]
            losses = vmap(self.loss)(parameters, x, y)
            slopes = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
        if isinstance(first, Descend):
            with torch.no_grad():
                torch._foreach_add_(leaves, slopes, alpha=-float(first.step))
            return losses.detach().numpy(), models
        return losses.detach().numpy(), torch.cat([slope.reshape(len(asks), -1) for slope in slopes], 1).numpy()

    def views(self, models: Any) -> dict[str, Any]:
        """Parameters by their names, without a copy, each with a row a client."""
        import torch

        parts = torch.from_numpy(models).split(self.network.sizes, 1)
        return {
            name: part.view(len(models), *shape) for name, part, shape in zip(self.names, parts, self.network.shapes)
        }

    def batches(self, asks: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Everyone's batch, as long as the longest; and which samples are there."""
        import torch

        most = max(len(ask.rows) for ask in asks)
        counts = np.array([len(ask.rows) for ask in asks])
        if counts.min() == most:
            rows = np.stack([ask.rows for ask in asks])
        else:
            rows = np.stack([np.resize(ask.rows, most) for ask in asks])
        x, y = (gathered(parts, rows) for parts in zip(*(ask.data for ask in asks)))
        counted = (np.arange(most) < counts[:, None]).astype(asks[0].model.dtype)
        return self.network.scaled(x), y, torch.from_numpy(counted)

    def loss(self, parameters: Any, x: Any, y: Any, **how: Any) -> Any:
        from torch.func import functional_call

        return self.network.loss(functional_call(self.network.module, parameters, (x,)), y, **how)

    # --- per-example clipping: (losses, the sums of clipped gradients, a tensor a parameter) ------------------

    def by_layers(self, parameters: Any, x: Any, y: Any, counted: Any, bound: float, norm: Any) -> tuple[Any, Any]:
        """From what goes into each layer and comes back to it, as `per_example.by_layers`."""
        import torch
        from torch.func import vmap

        layers = self.network.layered
        still = [x.new_zeros((*x.shape[:2], *self.shapes[layer]), requires_grad=True) for layer in layers]
        losses, into = vmap(self.watched)(parameters, x, y, still)
        back = torch.autograd.grad(losses.sum(), still)

        def summed(into: Any, back: Any, counted: Any) -> Any:
            shares = [share_of(layer, a, b, norm) for layer, a, b in zip(layers, into, back)]
            scale = counted * factors(sum(size for size, _ in shares), bound, norm)
            return [total for _, weighted in shares for total in weighted(scale)]

        return losses, vmap(summed)([a.detach() for a in into], list(back), counted)

    def watched(self, parameters: Any, x: Any, y: Any, moved: Any) -> tuple[Any, Any]:
        """Each example's loss, with layers' outputs moved, and what went into the layers."""
        into: dict[int, Any] = {}

        def keep(i: int) -> Any:
            def hook(layer: Any, inputs: Any, out: Any) -> Any:
                into[i] = inputs[0]
                return out + moved[i]

            return hook

        hooks = [layer.register_forward_hook(keep(i)) for i, layer in enumerate(self.network.layered)]
        try:
            losses = self.loss(parameters, x, y, reduction="none")
        finally:
            for hook in hooks:
                hook.remove()
        return losses, [into[i] for i in range(len(hooks))]

    def by_example(self, parameters: Any, x: Any, y: Any, counted: Any, bound: float, norm: Any) -> tuple[Any, Any]:
        """For any module, as `per_example.by_example`."""
        from torch.func import grad_and_value, vmap

        def one(parameters: Any, x: Any, y: Any) -> Any:
            return self.loss(parameters, x[None], y[None])

        def summed(parameters: Any, x: Any, y: Any, counted: Any) -> tuple[Any, Any]:
            found, losses = vmap(grad_and_value(one), in_dims=(None, 0, 0))(parameters, x, y)
            slopes = [slope.reshape(len(x), -1) for slope in found.values()]
            scale = counted * factors(sum(norm.size(slope) for slope in slopes), bound, norm)
            return losses, [scale @ slope for slope in slopes]

        found: tuple[Any, Any] = vmap(summed)(parameters, x, y, counted)
        return found
