"""The page while a run goes on: what is measured is there within a second of its end."""

import json
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.errors import BadInput
from archipel.live import Live, Simulated

LONG = Federation(Synthetic(clients=20, features=16, test=20), PaoFed(portion=2), rounds=3000, every=50, engine="plain")


def test_a_run_can_be_watched_while_it_goes_on():
    view, met = Simulated(LONG, "watched"), {}
    live = Live(view)

    def play():
        met["result"] = LONG.run(watch=view.watch)
        live.close()

    thread = threading.Thread(target=play)
    thread.start()
    while view.stamp() is None:
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
    live = Live(Simulated(LONG, "first"))
    try:
        with pytest.raises(BadInput, match=r'--page = "\d+": expected a port that is free'):
            Live(Simulated(LONG, "second"), str(live.server.server_address[1]))
    finally:
        live.close()
    for wrong in ("70000", "-1", "web", "127.0.0.1:", "0.0.0.0"):
        with pytest.raises(BadInput, match="--page"):
            Live(Simulated(LONG, "third"), wrong)


def asked(address, **headers):
    try:
        request = urllib.request.Request(address, headers=headers)
        return urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as problem:
        return problem.code


def test_beyond_loopback_only_who_has_the_token_is_let_in():
    view = SimpleNamespace(stamp=lambda: 1, page=lambda: "<p>secret", news=dict)
    live = Live(view, "0.0.0.0:0")
    try:
        plain, _, token = live.address.partition("?token=")
        here = plain.replace("0.0.0.0", "127.0.0.1")
        assert len(token) > 20 and asked(here + "?token=" + token) == 200
        for wrong in ("", "?token=", "?token=" + token[:-1], "events", "?other=" + token):
            assert asked(here + wrong) == 403
    finally:
        live.close()


def test_on_loopback_a_page_of_elsewhere_that_leads_here_is_not_answered():
    live = Live(SimpleNamespace(stamp=lambda: 1, page=lambda: "", news=dict))
    try:
        assert live.address.startswith("http://127.0.0.1:") and asked(live.address) == 200
        assert asked(live.address, Host="evil.example") == 403
    finally:
        live.close()


def test_while_nobody_looks_nothing_is_computed():
    told = []
    view = SimpleNamespace(stamp=lambda: 1, page=lambda: told.append("page") or "", news=lambda: told.append("news"))
    live = Live(view)
    live.close()
    assert told == []
