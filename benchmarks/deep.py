"""What a federation of networks costs beside bare PyTorch, and per-example clipping beside Opacus.

    python benchmarks/deep.py            # prints JSON; about a minute on two quiet cores

Both sides of a comparison take turns within one run, on one thread; the ratio is that of the best times, in
seconds of the processor. Opacus is optional: pip install --no-deps opacus opt_einsum.
"""

import copy
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from archipel.algorithms.deep import FedAvgDeep
from archipel.draws import key_of
from archipel.federation import Federation
from archipel.generators import shuffled_batches
from archipel.problems.deep import Deep, cross_entropy
from archipel.problems.models.networks import Network, Units, cnn
from archipel.problems.stored import Shard

CLIENTS, SAMPLES, BATCH, STEP = 10, 600, 50, 0.05

# W2's network: 1.66 million parameters, 5 x 5 windows with a border
WIDE = """
from torch import nn
def Net():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))
"""


def timed(work):
    """Seconds of this process on its one thread: what other processes do meanwhile does not count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def alternating(works, repeats):
    """Every work in turn, several times; all times, after one turn that warms up."""
    for work in works.values():
        work()
    times = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(timed(work))
    return times


def bare_round(module, source, n):
    """FedAvg as everyone writes it in PyTorch: the same batches, the same arithmetic."""
    start = {name: value.clone() for name, value in module.state_dict().items()}
    total = {name: torch.zeros_like(value) for name, value in start.items()}
    for k in range(CLIENTS):
        module.load_state_dict(start)
        x, y = (a[source.starts[k] : source.starts[k + 1]] for a in (source.x, source.y))
        for rows in shuffled_batches(len(y), BATCH, key_of(1, k, n), 0):
            rows = torch.from_numpy(rows)
            loss = nn.functional.cross_entropy(module(x[rows].float() / 255), y[rows])
            module.zero_grad(set_to_none=True)
            loss.backward()
            with torch.no_grad():
                for p in module.parameters():
                    p.add_(p.grad, alpha=-STEP)
        for name, value in module.state_dict().items():
            total[name].add_(value, alpha=1 / CLIENTS)
    module.load_state_dict(total)


def rounds(model, repeats, folder):
    """A round of 10 clients, one local epoch of 600 pictures each."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (CLIENTS * SAMPLES, 1, 28, 28), np.uint8)
    y = rng.integers(0, 10, CLIENTS * SAMPLES)
    np.savez(folder / "pictures.npz", x=x, y=y, x_test=x[:10], y_test=y[:10])
    problem = Deep(data=str(folder / "pictures.npz"), model=model, clients=CLIENTS)
    federation = Federation(problem, FedAvgDeep(STEP, BATCH), rounds=1000)
    instance = federation.instance(1)
    engine = federation.engine_of(instance)
    module, done = copy.deepcopy(instance.task.learner.module), {"ours": 0, "bare": 0}

    def ours():
        engine.advance(done["ours"], done["ours"] + 1)
        done["ours"] += 1

    def bare():
        bare_round(module, instance.task.source, done["bare"])
        done["bare"] += 1

    times = alternating({"bare": bare, "ours": ours}, repeats)
    flat = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    apart = float(np.abs(flat - instance.plan.tables["server"].model[0]).max())
    return summary(times, "bare") | {"parameters": instance.task.size, "models_apart": apart}


def clipping(widths, repeats, batch=256):
    """The sum of clipped gradients of a batch: ours and Opacus' hooks with the same clipping."""
    x, y = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    module = cnn((1, 28, 28), 10, widths)
    network = Network(copy.deepcopy(module), cross_entropy, x, Units(), np.float32)
    data, rows, model = Shard(x, y), np.arange(batch), network.start()
    out, theirs = np.zeros(network.size, np.float32), np.zeros(network.size, np.float32)
    works = {"ours": lambda: network.clipped_sum(out, model, data, rows, 1.0)}
    try:
        from opacus import GradSampleModule
    except ImportError:
        return {"opacus": "not installed"}
    hooked = GradSampleModule(module)

    def opacus():
        for p in hooked.parameters():
            p.grad_sample = p.grad = None
        nn.functional.cross_entropy(hooked(x), y).backward()
        samples = [p.grad_sample for p in hooked.parameters()]
        norms = torch.stack([g.reshape(len(g), -1).norm(2, dim=-1) for g in samples], dim=1).norm(2, dim=1)
        factors = (1.0 / (norms + 1e-6)).clamp(max=1.0)
        sums = [torch.einsum("i,i...", factors, g) for g in samples]
        theirs[:] = torch.cat([s.flatten() for s in sums]).numpy()

    times = alternating({"opacus": opacus, **works}, repeats)
    apart = float(np.abs(out - theirs).max() / np.abs(theirs).max())
    return summary(times, "opacus") | {"parameters": network.size, "sums_apart": apart}


def summary(times, reference):
    best = {name: min(values) for name, values in times.items()}
    medians = {name: float(np.median(values)) for name, values in times.items()}
    other = next(name for name in times if name != reference)
    return {
        "seconds": {name: round(value, 4) for name, value in best.items()},
        "ratio": round(best[other] / best[reference], 3),
        "ratio_of_medians": round(medians[other] / medians[reference], 3),
    }


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "wide.py").write_text(WIDE)
        found = {
            "round_small": rounds("cnn", 7, folder),
            "round_w2": rounds(str(folder / "wide.py:Net"), 2 if "--quick" in sys.argv else 3, folder),
            "clipping_8_16_32": clipping((8, 16, 32), 15),
            "clipping_32_64_512": clipping((32, 64, 512), 4),
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
