"""The page while a run goes on: what is measured is there within a second of its end."""

import json
import threading
import time
import urllib.error
import urllib.request

import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.errors import BadInput
from archipel.live import Live

LONG = Federation(Synthetic(clients=20, features=16, test=20), PaoFed(portion=2), rounds=3000, every=50, engine="plain")


def test_a_run_can_be_watched_while_it_goes_on():
    live, met = Live(LONG, "watched"), {}

    def play():
        met["result"] = LONG.run(watch=live.watch)
        live.close()

    thread = threading.Thread(target=play)
    thread.start()
    while live.result() is None:
        time.sleep(0.05)
    page = urllib.request.urlopen(live.address, timeout=10).read().decode()
    assert "<h1>watched</h1>" in page and '"live":true' in page
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(live.address + "etc/passwd", timeout=10)
    rounds = []
    with urllib.request.urlopen(live.address + "events", timeout=30) as events:
        for line in events:
            if line.startswith(b'data: {"charts'):
                told = json.loads(line[6:])
                rounds.append(told["charts"][0]["series"][0]["x"]["rounds"][-1])
                assert "numbers" in told["cards"]
    thread.join()
    assert len(rounds) >= 2 and rounds == sorted(rounds) and rounds[-1] == 3000
    assert met["result"].final("updates") > 0


def test_a_port_that_is_taken_is_a_sentence():
    live = Live(LONG, "first")
    try:
        with pytest.raises(BadInput, match=r"--page = \d+: expected a port that is free"):
            Live(LONG, "second", live.server.server_address[1])
    finally:
        live.close()
