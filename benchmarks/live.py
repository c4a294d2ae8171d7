"""What a live page costs a run while somebody looks, and how soon a round is seen.

    python benchmarks/live.py            # prints JSON; some five minutes

The same run with a viewer, who asks for the page and follows the events in a process of its own, and without a page,
in turns; seconds of the processor of the whole process, the page's threads among them. On a machine that others use
these differ by more than a page costs: what the page's threads took is told by itself.
"""

import json
import statistics
import subprocess
import sys
import time

from archipel import Federation, Linear, PaoFed, Peers, Privacy, Synthetic, ZcdpNfl
from archipel.report.live import Live, Simulated

TIMES = 9
RUNS = {  # each some ten seconds of a core
    "256 devices, 400 measurements": Federation(
        Synthetic(clients=256), PaoFed(), rounds=60_000, every=150
    ),
    "100 private peers, each measured in 1,000 rounds": Federation(
        Linear(clients=100, size=200, samples=50), ZcdpNfl(), Peers(mean_degree=6.0),
        privacy=Privacy(epsilon=2.0, clip=1.0), rounds=1000, every=1,
    ),
}  # fmt: skip
VIEWER = """
import json, sys, time, urllib.request
address = sys.argv[1]
page = ""
while 'id="data"' not in page:
    time.sleep(0.05)
    page = urllib.request.urlopen(address).read().decode()
since = page.split('"live":"')[1].split('"')[0].replace(" ", "+")
for line in urllib.request.urlopen(address + "events?since=" + since):
    if line.startswith(b'data: {"charts'):
        print(json.loads(line[6:])["charts"][0]["series"][0]["x"]["rounds"][-1], time.time(), flush=True)
"""


def alone(federation):
    begun = time.process_time()
    federation.run()
    return time.process_time() - begun


def watched(federation):
    """Seconds, and how late the rounds were seen."""
    view, ended = Simulated(federation, "live"), {}
    live, page = Live(view), []
    answer = live.server.RequestHandlerClass.do_GET
    live.server.RequestHandlerClass.do_GET = lambda self: (answer(self), page.append(time.thread_time()))
    viewer = subprocess.Popen([sys.executable, "-c", VIEWER, live.address], stdout=subprocess.PIPE, text=True)
    begun = time.process_time()
    federation.run(progress=lambda done, *_: ended.setdefault(done, time.time()), watch=view.watch)
    spent = time.process_time() - begun
    live.close()
    seen = [tuple(map(float, line.split())) for line in viewer.communicate()[0].splitlines()]
    late = [
        next(at for n, at in seen if n >= round) - end
        for round, end in ended.items()
        if seen and seen[0][0] < round <= seen[-1][0] and round % federation.every == 0
    ]
    return spent, max(late, default=0.0), len(seen), 100 * sum(page) / spent


def measured(federation, times=TIMES):
    federation.with_(rounds=federation.every).run()  # compiles
    pairs = [(alone(federation), *watched(federation)) for _ in range(times)]
    more = [100 * (pair[1] / pair[0] - 1) for pair in pairs]
    return {
        "seconds alone": round(statistics.median(pair[0] for pair in pairs), 2),
        "percent more, quartiles": [round(q, 2) for q in statistics.quantiles(more, n=4)],
        "percent of the page's threads, quartiles": [
            round(q, 2) for q in statistics.quantiles((pair[4] for pair in pairs), n=4)
        ],
        "latest round seen after, seconds": [round(pair[2], 2) for pair in pairs],
        "events": statistics.median(pair[3] for pair in pairs),
    }


if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    print(json.dumps({name: measured(one, times) for name, one in RUNS.items()}, indent=1))
