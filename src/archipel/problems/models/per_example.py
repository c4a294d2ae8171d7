"""Each example's own gradient, clipped, summed: what record-level privacy needs and autograd does not give.

Two ways, held equal by a test. *By layers*: where all parameters sit in linear and convolution layers, each
used once, an example's gradient is a product of what went into the layer and what came back to it; one pass
back gives both, and the norms of linear layers need no gradient at all (Goodfellow, 2015; Bu et al., ICML
2023). That a module's layers do give it is tried on samples that are drawn, one by one: a module may mix samples, lay
them out in another order, or use a weight beside its layer, and then what is clipped would not be one example's.
*By example*: `torch.func`, for any other module.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from archipel.errors import BadInput

CHUNK = 256  # examples at a time: what they need stays in the cache
TRIED = 3  # samples on which layers are compared with one example after another
LARGEST = 64_000_000  # numbers of per-example gradients that are kept at a time


class Norm(NamedTuple):
    """How long a gradient is: `length` of the sum of the parts' `size`, each a number an example.

    The size of an outer product is that of its factors, multiplied, in both.
    """

    size: Callable[[Any], Any]
    length: Callable[[Any], Any]


L1 = Norm(lambda rows: rows.abs().sum(1), lambda sizes: sizes)
L2 = Norm(lambda rows: rows.square().sum(1), lambda sizes: sizes.sqrt())
NORMS = {1: L1, 2: L2}


def clipped_sums(network: Any, x: Any, y: Any, bound: float, norm: Norm = L2) -> list[Any]:
    """The sum over examples of their clipped gradients, one tensor a parameter."""
    summed = by_layers if network.layered else by_example
    chunk = CHUNK if network.layered else max(1, min(CHUNK, LARGEST // network.size))
    totals = [p.new_zeros(p.shape) for p in network.parameters]
    for begin in range(0, len(x), chunk):
        part = slice(begin, begin + chunk)
        for total, more in zip(totals, summed(network, x[part], y[part], bound, norm)):
            total.add_(more.reshape(total.shape))
    return totals


def factors(sizes: Any, bound: float, norm: Norm) -> Any:
    """min(1, bound / norm), a hair less against rounding; an example without a norm counts nothing."""
    import torch

    room = 1 - (1e-5 if sizes.dtype == torch.float32 else 1e-12)
    scale = (bound * room / norm.length(sizes)).clamp(max=1.0)
    return torch.where(torch.isfinite(sizes), scale, torch.zeros_like(scale))


def check_losses(losses: Any) -> None:
    """A model that returns NaN is no model: say so, at the client where it happens."""
    import torch

    if not (math.isfinite(losses.item()) if losses.dim() == 0 else torch.isfinite(losses).all()):
        raise BadInput(
            "problem.model",
            "NaN or infinite answers",
            "finite ones; a smaller step, or a model that is sound",
        )


# --- any module ---------------------------------------------------------------------------------------------


def by_example(network: Any, x: Any, y: Any, bound: float, norm: Norm) -> list[Any]:
    """The sums of what `written_down` has."""
    gradients, scale = written_down(network, x, y, bound, norm)
    return [scale @ g for g in gradients]


def written_down(network: Any, x: Any, y: Any, bound: float, norm: Norm) -> tuple[list[Any], Any]:
    """Every example's gradient, one tensor a parameter, and what clips it: vmap over grad, or one by one."""
    import torch
    from torch.func import functional_call, grad_and_value, vmap

    def loss(parameters: dict[str, Any], one: Any, label: Any) -> Any:
        return network.loss(functional_call(network.module, parameters, (one[None],)), label[None])

    parameters = {name: p.detach() for name, p in network.module.named_parameters()}
    try:
        by_name, losses = vmap(grad_and_value(loss), in_dims=(None, 0, 0))(parameters, x, y)
        found = list(by_name.values())
    except Exception:  # an operation that cannot be mapped over
        found, losses = one_by_one(network, x, y)
    check_losses(losses)
    gradients = [g.reshape(len(x), -1) for g in found]
    scale = factors(sum(norm.size(g) for g in gradients), bound, norm)
    return [torch.nan_to_num(g, 0.0, 0.0, 0.0) for g in gradients], scale


def one_by_one(network: Any, x: Any, y: Any) -> tuple[list[Any], Any]:
    """Every example's gradient, and its loss, by as many passes."""
    import torch

    slopes, losses = [], []
    for one, label in zip(x, y):
        try:
            loss = network.loss(network.module(one[None]), label[None])
            slopes.append(torch.autograd.grad(loss, network.parameters, materialize_grads=True))
        except Exception as problem:  # whatever a user's module may raise
            said = (str(problem).splitlines() or [type(problem).__name__])[0]
            right = f"one that takes each sample alone, as their gradients are clipped one by one ({said})"
            raise BadInput("problem.model", type(network.module).__name__, right) from problem
        losses.append(loss.detach())
    return [torch.stack(parts) for parts in zip(*slopes)], torch.stack(losses)


# --- linear and convolution layers --------------------------------------------------------------------------


def layers_of(module: Any, x: Any) -> list[Any]:
    """The layers in which all parameters sit, if each is linear or a convolution and used once; else none.

    None too if they do not give each example's own gradient.
    """
    from torch import nn

    layers = [m for m in module.modules() if next(m.parameters(recurse=False), None) is not None]
    owned = [id(p) for m in layers for p in m.parameters(recurse=False)]
    plain = all(type(m) is nn.Linear or (type(m) is nn.Conv2d and plain_convolution(m)) for m in layers)
    if not plain or len(set(owned)) != len(owned):
        return []
    calls: list[Any] = []
    hooks = [m.register_forward_hook(lambda m, inputs, out: calls.append(m)) for m in layers]
    try:
        module(x)
    except Exception:  # it does not fit the data: that is said elsewhere
        return []
    finally:
        for hook in hooks:
            hook.remove()
    once = sorted(map(id, calls)) == sorted(map(id, layers))
    return layers if once and gives_gradients(module, layers, x) else []


def gives_gradients(module: Any, layers: list[Any], x: Any) -> bool:
    """Whether the layers give the gradient that each of some samples has alone, where weights and samples are drawn."""
    import torch

    draw = torch.Generator().manual_seed(1)
    tried = torch.rand((TRIED, *x.shape[1:]), generator=draw, dtype=x.dtype)
    parameters = list(module.parameters())
    before = [p.data for p in parameters]
    try:
        for p in parameters:
            p.data = p.data + 0.1 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
        with torch.enable_grad():
            probe = torch.randn(module(tried[:1]).shape, generator=draw, dtype=x.dtype)
            apart = [torch.autograd.grad((probe * module(one[None])).sum(), parameters) for one in tried]
            module.requires_grad_(False)
            trace = traced(layers, lambda: (probe * module(tried)).flatten(1).sum(1), x)
        alone = torch.stack([torch.cat([slope.flatten() for slope in slopes]) for slopes in apart])
        shares = [share_of(layer, trace.inputs[layer], trace.returned[layer], L2) for layer in layers]
        found = [
            torch.cat([total.flatten() for _, weighted in shares for total in weighted(only)])
            for only in torch.eye(TRIED, dtype=x.dtype)
        ]
        sizes = sum(size for size, _ in shares)
    except Exception:  # whatever a user's module may raise
        return False
    finally:
        module.requires_grad_(True)
        for p, data in zip(parameters, before):
            p.data = data
    return close(torch.stack(found), alone) and close(sizes, L2.size(alone))


def close(found: Any, right: Any) -> bool:
    """But for rounding."""
    import torch

    if found.shape != right.shape:
        return False
    return bool(torch.isfinite(right).all()) and bool((found - right).abs().max() <= 1e-3 * right.abs().max())


def plain_convolution(layer: Any) -> bool:
    return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


class Trace:
    """What goes into each layer, and what comes back to it."""

    def __init__(self, layers: list[Any], start: Any):
        self.start = start  # a zero that needs a gradient: so that the first layers have one to pass back
        self.inputs: dict[Any, Any] = {}
        self.returned: dict[Any, Any] = {}
        self.hooks = [layer.register_forward_hook(self.keep) for layer in layers]

    def keep(self, layer: Any, inputs: Any, out: Any) -> Any:
        self.inputs[layer] = inputs[0].detach()
        if not out.requires_grad:
            out = out.add_(self.start)
        out.register_hook(lambda back: self.returned.__setitem__(layer, back))
        return out

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()


def traced(layers: list[Any], losses_of: Callable[[], Any], x: Any) -> Trace:
    """One pass forth, and back for the layers' outputs only: parameters ask for no gradients."""
    import torch

    start = x.new_zeros((), requires_grad=True)
    trace = Trace(layers, start)
    try:
        losses = losses_of()
    finally:
        trace.remove()
    check_losses(losses)
    torch.autograd.grad(losses.sum(), start)
    return trace


def by_layers(network: Any, x: Any, y: Any, bound: float, norm: Norm) -> list[Any]:
    """What the layers saw; then each layer's share of norms and sum."""
    import torch

    with network.frozen():
        trace = traced(network.layered, lambda: network.loss(network.module(x), y, reduction="none"), x)
    with torch.no_grad():
        shares = [share_of(layer, trace.inputs[layer], trace.returned[layer], norm) for layer in network.layered]
        sizes = sum(size for size, _ in shares)
        if not torch.isfinite(sizes).all():
            return by_example(network, x, y, bound, norm)
        scale = factors(sizes, bound, norm)
        return [total for _, weighted in shares for total in weighted(scale)]


def share_of(layer: Any, into: Any, back: Any, norm: Norm) -> tuple[Any, Any]:
    """The size of a layer's gradient for every example, and how to sum the gradients with weights."""
    from torch import nn

    if isinstance(layer, nn.Conv2d):
        back = back.flatten(2)
        return written_share(layer, back @ windows(layer, into).transpose(1, 2), back.sum(2), norm)
    if into.dim() == 2:
        return product_share(layer, into, back, norm)
    into, back = into.flatten(1, -2), back.flatten(1, -2)
    return written_share(layer, back.transpose(1, 2) @ into, back.sum(1), norm)


def windows(layer: Any, into: Any) -> Any:
    """The windows that a convolution looks at, as columns: `unfold` by strides, several times faster."""
    from torch.nn.functional import pad

    high, wide = layer.padding
    seen = pad(into, (wide, wide, high, high)) if high or wide else into
    for axis, (size, step, apart) in enumerate(zip(layer.kernel_size, layer.stride, layer.dilation)):
        seen = seen.unfold(2 + axis, (size - 1) * apart + 1, step)[..., ::apart]
    count = seen.shape[1] * seen.shape[4] * seen.shape[5]
    return seen.permute(0, 1, 4, 5, 2, 3).reshape(len(into), count, -1)


def written_share(layer: Any, weights: Any, biases: Any, norm: Norm) -> tuple[Any, Any]:
    """Where the gradient of an example is a sum over places: written down."""
    weights = weights.flatten(1)
    size = norm.size(weights)
    if layer.bias is None:
        return size, lambda scale: [scale @ weights]
    return size + norm.size(biases), lambda scale: [scale @ weights, scale @ biases]


def product_share(layer: Any, into: Any, back: Any, norm: Norm) -> tuple[Any, Any]:
    """A linear layer on vectors: the gradient is back into^T, so its norm is the product of theirs."""
    size = norm.size(back)
    if layer.bias is None:
        return size * norm.size(into), lambda scale: [(scale[:, None] * back).T @ into]
    return size * (1 + norm.size(into)), lambda scale: [(scale[:, None] * back).T @ into, scale @ back]
