"""The row of networks."""

import tempfile
from typing import Any

import numpy as np

from archipel.bench.measuring import REPEATS, peak_mb, timed


def deep(clients: int) -> dict[str, Any]:
    """A network of 2,410 weights: side by side, one by one, and bare PyTorch as everyone writes it."""
    try:
        import torch
    except ImportError:
        return {}
    from archipel import Federation
    from archipel.algorithms.deep import FedAvgDeep
    from archipel.problems.deep import Deep

    torch.set_num_threads(1)
    draw, each, batch = np.random.default_rng(0), 60, 10
    x, y = draw.integers(0, 256, (clients * each, 64), np.uint8), draw.integers(0, 10, clients * each)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", x=x, y=y, x_test=x[:10], y_test=y[:10])
        problem = Deep(data=f"{folder}/data.npz", model="mlp", clients=clients)
        federation = Federation(problem, FedAvgDeep(0.05, batch), rounds=100)
        instances = {name: federation.with_(engine=name).instance() for name in ("auto", "plain")}
    engines = {name: federation.with_(engine=name).engine_of(made) for name, made in instances.items()}
    module, source = instances["auto"].task.learner.module, instances["auto"].task.source
    start, done = [p.detach().clone() for p in module.parameters()], dict.fromkeys([*engines, "bare"], 0)

    def play(name: str) -> None:
        engines[name].advance(done[name], done[name] + 1)
        done[name] += 1

    def bare() -> None:
        total = [torch.zeros_like(p) for p in start]
        own = [p.clone().requires_grad_() for p in start]
        for k in range(clients):
            for p, first in zip(own, start):
                p.data.copy_(first)
            order = torch.randperm(each) + int(source.starts[k])
            for rows in order.split(batch):
                answers = torch.func.functional_call(module, dict(zip(names, own)), (source.x[rows].float() / 255,))
                slopes = torch.autograd.grad(torch.nn.functional.cross_entropy(answers, source.y[rows]), own)
                torch._foreach_add_([p.data for p in own], slopes, alpha=-0.05)
            torch._foreach_add_(total, [p.data for p in own], alpha=1 / clients)
        start[:] = total

    names = [name for name, _ in module.named_parameters()]
    works = {"auto": lambda: play("auto"), "plain": lambda: play("plain"), "bare": bare}
    best = {name: min(timed(work) for _ in range(REPEATS + 2)) for name, work in works.items()}
    steps = clients * each // batch
    return {
        "row": "deep",
        "clients": clients,
        "updates_per_s": round(steps / best["auto"]),
        "numpy_updates_per_s": round(steps / best["plain"]),
        "kernel_updates_per_s": round(steps / best["bare"]),
        "times_numpy": round(best["plain"] / best["auto"], 2),
        "times_kernel": round(best["auto"] / best["bare"], 2),
        "peak_mb": round(peak_mb()),
        "compile_s": 0.0,
        "bound": "the overhead of a call, shared by all clients; steps, beside one client by one and bare PyTorch",
    }
