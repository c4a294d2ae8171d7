"""W2, ten clients that train a CNN of 1.66 million weights on 600 pictures each, here and in other frameworks.

    python benchmarks/w2.py                            # ours and bare PyTorch, on one thread and on all cores, in turn
    python benchmarks/w2.py flower=PYTHON nvflare=PYTHON fedlab=PYTHON

PYTHON is an interpreter that has the framework (flwr[simulation], nvflare, fedlab) and torch. Every one plays ROUNDS
rounds in a process of its own, on all cores, with one thread of PyTorch for each; they take turns, REPEATS times. A
round's seconds are those between the ends of two; its processor's are of the process and all that it started. Medians.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

CLIENTS, SAMPLES, BATCH, STEP = 10, int(os.environ.get("W2_SAMPLES", "600")), 50, 0.05
ROUNDS, REPEATS = int(os.environ.get("W2_ROUNDS", "4")), int(os.environ.get("W2_REPEATS", "3"))
NET = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))
"""
RUNNING = """
import sys; sys.path[:0] = {paths}
import nvflare.client as flare, w2
w2.one_thread()
flare.init()
net, mine = w2.net(), int(flare.get_site_name().split("-")[1]) - 1
while flare.is_running():
    told = flare.receive()
    if told is None or not told.params:
        break
    if mine == 0:
        w2.mark()
    net.load_state_dict(w2.tensors(told.params))
    w2.train(net, *w2.data(mine))
    params = dict((name, value.numpy()) for name, value in net.state_dict().items())
    flare.send(flare.FLModel(params=params))
"""


def net():
    sys.path.append(os.path.dirname(os.environ["W2_NET"]))
    from net import Net

    return Net()


def one_thread():
    import torch

    torch.set_num_threads(1)


def tensors(params):
    import torch

    return {name: torch.as_tensor(value) for name, value in params.items()}


def data(client):
    """A client's pictures."""
    import numpy as np
    import torch

    whole = np.load(os.environ["W2_DATA"])
    mine = slice(client * SAMPLES, (client + 1) * SAMPLES)
    return torch.from_numpy(whole["x"][mine]).float() / 255, torch.from_numpy(whole["y"][mine])


def train(module, x, y):
    """One epoch, as everyone writes it."""
    import torch

    for rows in torch.randperm(len(y)).split(BATCH):
        loss = torch.nn.functional.cross_entropy(module(x[rows]), y[rows])
        module.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            for p in module.parameters():
                p.add_(p.grad, alpha=-STEP)


def mark():
    """A round is over: when, and what everything that was started for this run has used of the processor."""
    used, tick = 0.0, os.sysconf("SC_CLK_TCK")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"W2_RUN={os.environ['W2_RUN']}".encode() in (process / "environ").read_bytes():
                used += sum(map(int, (process / "stat").read_text().rsplit(")", 1)[1].split()[11:15])) / tick
        except OSError:
            continue
    with open(os.environ["W2_MARKS"], "a") as file:
        file.write(f"{time.time()} {used}\n")


def ours():
    from archipel.algorithms.deep import FedAvgDeep
    from archipel.federation import Federation
    from archipel.problems.deep import Deep

    problem = Deep(data=os.environ["W2_DATA"], model=os.environ["W2_NET"] + ":Net", clients=CLIENTS)
    federation = Federation(problem, FedAvgDeep(STEP, BATCH), rounds=ROUNDS + 1)
    engine = federation.engine_of(federation.instance(1))
    for n in range(ROUNDS + 1):
        engine.advance(n, n + 1)
        mark()


def bare():
    import torch

    module, everyone = net(), [data(k) for k in range(CLIENTS)]
    start = {name: value.clone() for name, value in module.state_dict().items()}
    for _ in range(ROUNDS + 1):
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for mine in everyone:
            module.load_state_dict(start)
            train(module, *mine)
            for name, value in module.state_dict().items():
                total[name].add_(value, alpha=1 / CLIENTS)
        start = total
        mark()


def bare_on_threads():
    """The same on all cores, a client a thread, each thread with a module of its own."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import local

    import torch

    everyone, mine = [data(k) for k in range(CLIENTS)], local()
    start = {name: value.clone() for name, value in net().state_dict().items()}

    def begin():
        one_thread()
        mine.net = net()

    def trained(pictures):
        mine.net.load_state_dict(start)
        train(mine.net, *pictures)
        return {name: value.clone() for name, value in mine.net.state_dict().items()}

    with ThreadPoolExecutor(os.cpu_count(), initializer=begin) as pool:
        for _ in range(ROUNDS + 1):
            total = {name: torch.zeros_like(value) for name, value in start.items()}
            for found in pool.map(trained, everyone):
                for name, value in found.items():
                    total[name].add_(value, alpha=1 / CLIENTS)
            start = total
            mark()


def flower():
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    def values(module):
        return [value.numpy() for value in module.state_dict().values()]

    class Client(NumPyClient):
        def __init__(self, client):
            self.client = client

        def fit(self, parameters, config):
            one_thread()
            module = net()
            module.load_state_dict(tensors(dict(zip(module.state_dict(), parameters))))
            train(module, *data(self.client))
            return values(module), SAMPLES, {}

    def server(context):
        strategy = FedAvg(
            fraction_evaluate=0.0, initial_parameters=ndarrays_to_parameters(values(net())),
            evaluate_fn=lambda *_: mark(),
        )  # fmt: skip
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS + 1))

    client = ClientApp(client_fn=lambda context: Client(int(context.node_config["partition-id"])).to_client())
    options = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(ServerApp(server_fn=server), client, CLIENTS, backend_config=options)


def nvflare():
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
    from nvflare.recipe import SimEnv

    folder = Path(os.environ["W2_NET"]).parent
    (folder / "client.py").write_text(RUNNING.format(paths=[str(Path(__file__).resolve().parent)]))
    script = str(folder / "client.py")
    recipe = FedAvgRecipe(model=net(), min_clients=CLIENTS, num_rounds=ROUNDS + 2, train_script=script)
    recipe.execute(SimEnv(num_clients=CLIENTS, num_threads=CLIENTS, workspace_root=str(folder / "nvflare")))


def fedlab():
    import torch
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler

    class Pictures:
        def get_dataloader(self, client, batch_size):
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data(client)), batch_size, shuffle=True)

    handler = SyncServerHandler(net(), ROUNDS + 1, sample_ratio=1.0)
    handler.num_clients = CLIENTS
    trainer = SGDSerialClientTrainer(net(), CLIENTS)
    trainer.setup_dataset(Pictures())
    trainer.setup_optim(1, BATCH, STEP)
    while not handler.if_stop:
        trainer.local_process(handler.downlink_package, handler.sample_clients())
        for upload in trainer.uplink_package:
            handler.load(upload)
        mark()


def measured(name, python, folder, run):
    """Seconds of the rounds of one run, and of the processor, without the first."""
    marks = folder / f"marks-{run}"
    given = {"W2_RUN": str(run), "W2_MARKS": str(marks), "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    given |= {"RAY_worker_niceness": "0"}  # else its workers give way to all others
    given |= {"W2_DATA": str(folder / "pictures.npz"), "W2_NET": str(folder / "net.py")}
    given |= {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    said = folder / f"{name}-{run}.log"
    with said.open("w") as log:
        command = [python, __file__, "--play", name]
        subprocess.run(command, env=os.environ | given, stdout=log, stderr=log, cwd=folder, check=False)
    if not marks.exists():
        sys.exit(f"{name} played no round:\n" + "\n".join(said.read_text().splitlines()[-5:]))
    ends = [tuple(map(float, line.split())) for line in marks.read_text().splitlines()]
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(ends)][-ROUNDS:]


def main():
    import numpy as np

    if sys.argv[1:2] == ["--play"]:
        one_thread()
        globals()[sys.argv[2]]()
        return
    here = dict.fromkeys(("bare", "bare_on_threads", "ours"), sys.executable)
    pythons = here | dict(given.split("=") for given in sys.argv[1:])
    found = {name: [] for name in pythons}
    with tempfile.TemporaryDirectory(dir=os.environ.get("W2_FOLDER")) as place:
        folder, draw = Path(place), np.random.default_rng(0)
        (folder / "net.py").write_text(NET)
        x, y = draw.integers(0, 256, (CLIENTS * SAMPLES, 1, 28, 28), np.uint8), draw.integers(0, 10, CLIENTS * SAMPLES)
        np.savez(folder / "pictures.npz", x=x, y=y, x_test=x[:10], y_test=y[:10])
        for repeat in range(REPEATS):
            for i, (name, python) in enumerate(pythons.items()):
                found[name] += measured(name, python, folder, os.getpid() * 1000 + 10 * repeat + i)
                print(name, [tuple(round(v, 2) for v in one) for one in found[name]], file=sys.stderr)
    middle = {name: [median(one[i] for one in rounds) for i in (0, 1)] for name, rounds in found.items()}
    keys = ("round_s", "processor_s", "x_bare", "x_bare_processor")
    for name, (wall, used) in middle.items():
        values = (wall, used, wall / middle["bare"][0], used / middle["bare"][1])
        print(name, json.dumps(dict(zip(keys, (round(value, 3) for value in values)))))


if __name__ == "__main__":
    main()
