"""Writes docs/performance.md with its picture from one run of `archipel bench`.

    python benchmarks/performance.py docs/performance.md               # measures, some minutes
    python benchmarks/performance.py docs/performance.md bench.json    # of a run with --json

Where JAX is installed (pip install "jax[cpu]") the row W1 is also played with it, beside ours, in one process.
"""

import json
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from archipel.bench import CASES, measure

HEAD = """# How fast, and what bounds it

`make bench` writes this page. Every row is measured in one process, on one thread, in seconds of the processor, against

- the same work as a person would write it in vectorised NumPy and sparse SciPy (`src/archipel/bench/renditions.py`);
- the bare arithmetic (`src/archipel/bench/kernels.py`): compiled loops over the same tables, without draws,
  absences, delays, messages or an engine.

An *update* is a round of one client that has something to learn; of networks, a step of one client. Ratios are what
to look at. The machine of this run had two cores, and nothing else to do; kernels that compiled in less than a second
were in the cache.

![Updates a second of the processor](performance.svg)

| row | clients | updates/s | x NumPy | x the bare kernel's time | peak MB | compiling, s of CPU |
|---|---:|---:|---:|---:|---:|---:|
"""
TAIL = """
For `deep` the columns are: steps a second, x one client after the other, and x the time of bare PyTorch by hand.

## What bounds each row

Profiled, most rows waited for memory: the star for rows of clients that come after some that have nothing new, gossip
for its neighbours' words (two thirds of its time), W1 for its samples (half of it). What comes next is known, so it is
asked of memory ahead of time; and draws are made for 128 nodes at a time, in loops that vectorise. On a star a client
that is away plays its rounds later, in one go, while its model is in the cache: a third of the bytes (an
estimate, not measured). What is left of
the star over its bare kernel are draws, an exponential a sample, and clients that have nothing new. The bare kernel
draws nothing and goes through all models in their order; the same loop over those five of eight clients that have a
sample in a round takes 1.35 to 1.45 times as long from 100,000 clients on, without a draw: that is what rounds one by
one cannot go below, and why they are not played one by one.

"""


HELD = """How many times NumPy is possible? SciPy's sparse product is compiled too, and both wait for memory. At the
larger size no cache holds the tables from one round to the next. So an update has to move, at the pace of a plain copy
in the same run, at least: one's samples; one's model, read and written, of zCDP-NFL a dual too; of PGFL its factors
without padding, its moment, and its dual, read and written; of a digraph what its loss leans to, and the model, read
and written. Neighbours' words are taken to be in the cache, and arithmetic and draws to take no time: nothing is faster
than NumPy by more than this. Of a digraph that says little: 80 MB of words at random are more than a cache has. To
read ten of them an update and add them up, with nothing beside it, takes 0.7 to 1.7 microseconds in seven layouts, rows
as they are or blocks of columns, where NumPy's whole round takes 3.7 (`benchmarks/gather.py`, quiet): 10 x NumPy would
be 0.37; 5.3 was the most. Beside it, what the bare kernel moves, every neighbour's word included."""


LARGE = """A million clients for 2,000 rounds of the article's setting, one command on two cores with nothing else to
do: 2 min 25 s by the clock, 277 of the processor, 1,055 MB, 8.8 million updates a second. Ten million for 100 rounds:
1 min 44 s, 9.0 GB, 7.3 million updates a second; beside each other, on a core each, ten million take 1.27 times as long
an update as 100,000 (60 rounds, the first touch of all memory included). Memory does not depend on rounds. A million on
a Dask cluster of workers of one core each: 5.10 million updates a second with one, 8.22 with two, 1.61 times as many
over 500 rounds, 1.58 to 1.60 over 200, and the same model to the byte. PGFL's 10,000 clients at 100
servers play 200 rounds in 0.8 s. On two threads, by the clock: 8.2 to 8.5 million updates a second with 256 clients,
9.8 with 1,000, 10.5 to 11.2 with 10,000, 10.6 to 11.0 with 100,000.

W2, ten clients that train a CNN of 1.66 million weights (`benchmarks/w2.py`), on two cores with nothing else to do, all
in one run, medians of four rounds in seconds: by the clock ours 2.95, bare PyTorch on two threads 3.00, Flower 3.35,
NVFlare 4.86, FedLab 5.83, bare PyTorch on one thread 5.97; of the processor ours 5.77, bare on two threads 5.80, FedLab
5.83, bare on one 5.97, Flower 6.27, NVFlare 6.46. Large networks train on a thread a core, with the bits of one after
the other."""


def jax_w1(repeats=5):
    """W1 in JAX, rounds in a scan, and ours: updates a second of the processor."""
    try:
        import jax
        from jax import numpy as jnp
    except ImportError:
        return {}
    federation = CASES["w1"].federation(256).with_(rounds=400, every=400, engine="serial")
    instance = federation.instance()
    engine = federation.engine_of(instance)
    source = instance.task.source
    x = jnp.asarray(source.x.reshape(400, 256, -1))
    y = jnp.asarray(source.y.reshape(400, 256))

    @jax.jit
    def run(model):
        def step(model, sample):
            features, target = sample
            error = target - features @ model
            return (model + jnp.float32(0.001) * error[:, None] * features).mean(0), None

        return jax.lax.scan(step, model, (x, y))[0]

    start = jnp.zeros(200, jnp.float32)
    run(start).block_until_ready()
    engine.advance(0, 0)
    best = {"ours": 0.0, "jax": 0.0}
    for _ in range(repeats):
        for name, work in (("ours", lambda: engine.advance(0, 400)), ("jax", lambda: run(start).block_until_ready())):
            begun = time.process_time()
            work()
            best[name] = max(best[name], 400 * 256 / (time.process_time() - begun))
    return best


def picture(rows, path):
    """Bars of a row: NumPy, ours, the bare kernel."""
    plt.rcParams["svg.hashsalt"] = "archipel"
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(rows) + 1))
    places = np.arange(len(rows))[::-1]
    for shift, key, label in (
        (0.27, "numpy_updates_per_s", "NumPy"),
        (0.0, "updates_per_s", "archipel"),
        (-0.27, "kernel_updates_per_s", "bare kernel"),
    ):
        axes.barh(places + shift, [row[key] for row in rows], 0.25, label=label)
    axes.set_yticks(places, [f"{row['row']}, {row['clients']:,}" for row in rows])
    axes.set_xscale("log")
    axes.set_xlabel("updates a second of the processor")
    axes.legend(loc="lower right")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def wanted(rows):
    """What is wanted, and where it is reached: the larger size of each row."""
    last = {row["row"]: row for row in rows}
    lines = ["", "", "## What is wanted", "", "| row | wanted | measured |", "|---|---|---|"]
    for name, row in last.items():
        kernel, numpy = row["times_kernel"], row["times_numpy"]
        if name == "star":
            lines.append(f"| {name} | at most 1.5 x the bare kernel's time | {kernel} |")
        elif name == "deep":
            lines.append(f"| {name} | 8 x one by one, at most 1.05 x bare PyTorch's time | {numpy}, {kernel} |")
        elif name.endswith(", private"):
            share = last[name.removesuffix(", private")]["updates_per_s"] / row["updates_per_s"]
            lines.append(f"| {name} | at most 3 x the time without noise | {share:.2f} |")
        elif name != "w1":
            lines.append(f"| {name} | at most 2.5 x the bare kernel's time, 10 x NumPy | {kernel}, {numpy} |")
    head = "| row | bytes an update must move | a copy | no rendition is more than | measured | the bare kernel moves |"
    lines += ["", HELD, "", head, "|---|" + "---:|" * 5]
    for name, row in last.items():
        if "times_numpy_at_most" in row:
            pace = row["moved"] * row["kernel_updates_per_s"] / 1e9
            most, here = row["times_numpy_at_most"], row["times_numpy"]
            cells = (f"{row['least']:,}", f"{row['copied_gb_s']} GB/s", f"{most} x NumPy", f"{here} x")
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {row['moved']:,} bytes, {pace:.1f} GB/s |")
    return "\n".join(lines)


def page(rows, jax):
    """The text."""
    keys = ("row", "clients", "updates_per_s", "times_numpy", "times_kernel", "peak_mb", "compile_s")
    lines = []
    for row in rows:
        cells = (f"{row[key]:,}" if isinstance(row[key], int) else str(row[key]) for key in keys)
        lines.append("| " + " | ".join(cells) + " |")
    bounds = {row["row"]: row["bound"] for row in rows}
    text = HEAD + "\n".join(lines) + "\n" + TAIL + "\n".join(f"- **{row}**: {bound}." for row, bound in bounds.items())
    if jax:
        share = jax["ours"] / jax["jax"]
        text += (
            f"\n\nW1 in JAX, rounds in a `scan`: {jax['jax']:,.0f} updates a second of the processor, ours beside it "
            f"{jax['ours']:,.0f}, {share:.2f} of it. JAX never writes a client's model down; here everyone has one, "
            "says it in a message, and may be late or away."
        )
    return text + wanted(rows) + "\n\n" + LARGE + "\n"


def main():
    path = Path(sys.argv[1])
    found = json.loads(Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else measure(quick=False, progress=note)
    picture(found["rows"], path.with_suffix(".svg"))
    path.write_text(page(found["rows"], jax_w1()))


def note(done, total, what):
    print(f"{done} of {total}: {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
