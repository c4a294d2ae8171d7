"""The page while a run goes on: what is measured is there within a second of its end."""

import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.errors import BadInput
from archipel.report import news
from archipel.report.live import Live, Simulated
from archipel.simulate.run import Recorder

LONG = Federation(Synthetic(clients=20, features=16, test=20), PaoFed(portion=2), rounds=150, every=50, engine="plain")
LATEST = 600  # seconds: only what hangs takes so long


def test_a_run_can_be_watched_while_it_goes_on(monkeypatch):
    """It goes on past its first and its second measurement when those have been seen."""
    view, met = Simulated(LONG, "watched"), {}
    reached, seen = ({n: threading.Event() for n in (0, 50)} for _ in range(2))
    measure = Recorder.measure

    def measured(self, *given):
        measure(self, *given)
        if self.done in seen:
            reached[self.done].set()
            assert seen[self.done].wait(LATEST)

    monkeypatch.setattr(Recorder, "measure", measured)
    monkeypatch.setattr("archipel.report.live.PATIENCE", LATEST)
    live = Live(view)

    def play():
        met["result"] = LONG.run(watch=view.watch)
        live.close()

    thread = threading.Thread(target=play)
    thread.start()
    assert reached[0].wait(LATEST)
    page = urllib.request.urlopen(live.address, timeout=LATEST).read().decode()
    since = re.search(r'"live":"([0-9 ]+)"', page)[1]
    assert "<h1>watched</h1>" in page
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(live.address + "etc/passwd", timeout=LATEST)
    rounds = []
    with urllib.request.urlopen(f"{live.address}events?since={since}", timeout=LATEST) as events:
        seen[0].set()
        for line in events:
            if line.startswith(b'data: {"charts'):
                told = json.loads(line[6:])
                rounds.append(told["charts"][0]["series"][0]["x"]["rounds"][-1])
                assert "numbers" in told["cards"]
                seen[50].set()
    thread.join()
    assert len(rounds) >= 2 and rounds[0] == 50 and rounds == sorted(rounds) and rounds[-1] == 150
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
        return urllib.request.urlopen(request, timeout=LATEST).status
    except urllib.error.HTTPError as problem:
        return problem.code


def test_beyond_loopback_only_who_has_the_token_is_let_in():
    view = SimpleNamespace(stamp=lambda: 1, page=lambda: "<p>secret", news=lambda since: {})
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
    live = Live(SimpleNamespace(stamp=lambda: 1, page=lambda: "", news=lambda since: {}))
    try:
        assert live.address.startswith("http://127.0.0.1:") and asked(live.address) == 200
        assert asked(live.address, Host="evil.example") == 403
    finally:
        live.close()


def test_while_nobody_looks_nothing_is_computed():
    told = []
    view = SimpleNamespace(
        stamp=lambda: 1, page=lambda: told.append("page") or "", news=lambda since: told.append("news")
    )
    live = Live(view)
    live.close()
    assert told == []


# --- news are what is new ---------------------------------------------------------------------------------------------


class Played(Simulated):
    """A run that was played before and is shown again up to some measurements, by seed."""

    def __init__(self, whole):
        super().__init__(SMALL, "again")
        seeds = {seed: [row for row in whole.rows if row[0] == seed] for seed in (1, 2)}
        self.recorders = [SimpleNamespace(rows=rows, done_rows=0, graph=whole.graph) for rows in seeds.values()]
        self.each = len(self.recorders[0].rows) // 9  # rows of a measurement

    def show(self, *measurements):
        for recorder, many in zip(self.recorders, measurements):
            recorder.done_rows = many * self.each


SMALL = Federation(
    Synthetic(clients=4, features=8, test=10), PaoFed(portion=2), rounds=40, every=5, engine="plain"
)  # fmt: skip


@pytest.fixture(scope="module")
def whole():
    return SMALL.run(2)


def points(told):
    """Every value that a page draws, by its curve, its kind and its round."""
    return {
        (i, j, kind, n): value
        for i, chart in enumerate(told["charts"])
        for j, one in enumerate(chart["series"])
        for kind in ("mean", "low", "high")
        for n, value in zip(one["x"]["rounds"], one[kind])
    }


def test_news_are_few_and_make_up_the_whole(whole):
    view, since, seen = Played(whole), "", {}
    for shown in ((1, 0), (4, 3), (9, 3), (9, 9)):  # a seed that is ahead, one that catches up
        view.show(*shown)
        told = view.news(since)
        seen |= points(told)
        assert points(news(view.result())) == seen
        since = view.stamp()
    assert len(points(told)) < len(seen) and told["cards"] == news(view.result())["cards"]
    assert len(points(view.news(since))) == len(seen) // 9  # nothing is new but the last round
    assert points(view.news("99999999 0")) == points(view.news("1")) == seen  # by another run: everything


@pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here")
def test_a_browser_puts_news_into_its_curves(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("archipel.report.live.LOOK", 0.05)
    view = Played(whole)
    live = Live(view)
    page, steps = view.page, iter([(5, 4), (9, 9)])
    keep = "<script>const P=JSON.parse;JSON.parse=(t)=>window.kept?P(t):window.kept=P(t);"
    keep += "setInterval(()=>document.body.dataset.kept=JSON.stringify(kept.charts),20)</script><main>"
    view.page = lambda: page().replace("<main>", keep)

    def stamp(real=view.stamp):
        found = real()
        if since.is_set() and view.recorders[1].done_rows < len(view.recorders[1].rows):
            view.show(*next(steps))
        elif since.is_set():
            live.ended.set()
        return found

    since, tell = threading.Event(), view.news
    view.news = lambda known: since.set() or tell(known)
    view.show(3, 3)
    first, view.page = view.page(), lambda: first
    view.show(4, 4)
    view.stamp = stamp
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--virtual-time-budget=20000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    run = subprocess.run(["chromium", *flags, live.address], capture_output=True, text=True, timeout=LATEST)
    live.close()
    kept = json.loads(re.search(r'data-kept="(.*?)"', run.stdout)[1].replace("&quot;", '"'))
    assert 'data-over="true"' in run.stdout
    assert points({"charts": kept}) == points(news(view.result()))
