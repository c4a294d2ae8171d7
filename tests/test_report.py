"""The page of a run: what it says, and what a real browser does with it."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from archipel import FedAvg, Federation, Files, Linear, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.privacy.policy import Privacy
from archipel.report.page import description, write_comparison, write_report
from archipel.results import Result
from archipel.topology import Peers, Servers

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SMALL = Federation(Synthetic(clients=6, features=8, test=10), PaoFed(portion=2), rounds=40, every=10, engine="plain")


def data_of(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    privacy = Privacy(epsilon=2.0, clip=1.0)
    result = Federation(
        Linear(clients=5, size=3, samples=10, test=10), ZcdpNfl(), Peers(shape="ring"), privacy=privacy, rounds=20,
        every=5, engine="plain",
    ).run(2)  # fmt: skip
    result.name = "five <b>wards"
    write_report(result, folder / "report.html")
    return folder / "report.html"


def test_a_page_says_what_it_is_and_what_was_promised(private):
    text = private.read_text()
    assert "<h1>five &lt;b&gt;wards</h1>" in text and "<b>wards" not in text
    assert "5 clients learn by zcdp-nfl among peers, from linear data, for 20 rounds, 2 seeds." in text
    assert "For a person" in text and "7.39 times" in text and "<b>enforced</b>" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_curves_have_bands_over_seeds_and_three_axes(private):
    data = data_of(private)
    curve = data["charts"][0]["series"][0]
    assert curve["band"] and set(curve["x"]) == {"rounds", "bytes", "privacy"}
    assert all(low <= mean <= high for low, mean, high in zip(curve["low"], curve["mean"], curve["high"]))
    assert data["clients"]["columns"][0] == "client" and len(data["clients"]["rows"]) == 5
    assert len(data["network"]["links"]) == 5


def test_defaults_are_grey_and_what_was_chosen_is_not():
    lines = description(SMALL.to_toml()).splitlines()
    assert any("class=default" in line and "horizon" in line for line in lines)
    assert any("class=default" not in line and "clients = 6" in line for line in lines)
    assert any('title="how many clients there are"' in line for line in lines)


def test_a_comparison_says_where_descriptions_differ(tmp_path):
    results = {"few": SMALL.run(), "many": SMALL.with_(algorithm=PaoFed(portion=4)).run()}
    write_comparison(results, tmp_path / "both.html")
    text = (tmp_path / "both.html").read_text()
    assert '<th scope="row">algorithm.portion</th><td>2</td><td>4</td>' in text
    assert [chart.get("axis") for chart in data_of(tmp_path / "both.html")["charts"]] == [None, "bytes"]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """Ten thousand clients, two of them with names that sort."""
    path = tmp_path_factory.mktemp("crowd") / "report.html"
    graph = Servers(servers=4, shape="ring").build(10_000, 1)
    draw = np.random.default_rng(0)
    rows = [(1, n, "mse", 1.0 / (n + 1), "") for n in (0, 5, 10)] + [
        (1, n, "updates", float(n), "") for n in (0, 5, 10)
    ]
    rows += [(1, n, "mse.node", float(v), str(k)) for n in (0, 5, 10) for k, v in enumerate(draw.random(10_000))]
    result = Result(SMALL.to_toml(), rows, [{"server": np.zeros(8)}], graph=graph, name="a crowd")
    write_report(result, path)
    return path


def test_ten_thousand_clients_fit(crowd):
    assert len(data_of(crowd)["clients"]["rows"]) == 10_000
    assert crowd.stat().st_size < 1_500_000


@pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")
@pytest.mark.parametrize("page", ["private", "crowd"])
def test_in_a_browser(page, request, tmp_path):
    """Drawn without an error; sorting, filtering, hiding, the logarithmic axis and another axis do what they say."""
    text = request.getfixturevalue(page).read_text()
    steps = """<script>
    const noted = {errors: []};
    addEventListener("error", (e) => noted.errors.push(e.message));
    addEventListener("load", () => setTimeout(() => {
      const all = (s) => [...document.querySelectorAll(s)];
      noted.drawn = all(".plot canvas").length;
      const column = () => all("#clients tbody tr").map((row) => +row.lastChild.textContent || 0);
      all("#clients th[scope=col] button").at(-1).click();
      noted.up = column();
      all("#clients th[scope=col] button").at(-1).click();
      noted.down = column();
      const find = document.querySelector("#filter");
      find.value = "client 77"; find.dispatchEvent(new Event("input"));
      noted.found = document.querySelector("#clients [role=status]").textContent;
      const hide = document.querySelector(".legend button"); hide.click();
      noted.hidden = hide.getAttribute("aria-pressed");
      hide.click();
      document.querySelector("#log0").click();
      const axis = document.querySelector("#axis0");
      if (axis) { axis.value = "bytes"; axis.dispatchEvent(new Event("change")); }
      const plot = document.querySelector(".plot");
      for (const key of ["ArrowRight", "+", "-", "0"]) plot.dispatchEvent(new KeyboardEvent("keydown", {key}));
      noted.again = all(".plot canvas").length;
      noted.network = all("#network svg circle").length;
      noted.outside = performance.getEntriesByType("resource").length;
      document.body.dataset.noted = JSON.stringify(noted);
    }, 300));
    </script>"""
    (tmp_path / "page.html").write_text(text.replace("<main>", steps + "<main>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--virtual-time-budget=5000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    run = subprocess.run(
        [CHROMIUM, *flags, f"file://{tmp_path / 'page.html'}"], capture_output=True, text=True, timeout=120
    )
    noted = json.loads(re.search(r'data-noted="(.*?)"', run.stdout)[1].replace("&quot;", '"'))
    assert noted["errors"] == [] and noted["outside"] == 0
    assert noted["drawn"] == noted["again"] == len(data_of(request.getfixturevalue(page))["charts"])
    assert noted["up"] == sorted(noted["up"]) and noted["down"] == sorted(noted["down"], reverse=True)
    assert noted["hidden"] == "false"
    assert noted["found"] == ("0 to 0 of 0" if page == "private" else "1 to 25 of 111")
    assert noted["network"] == (5 if page == "private" else 0)


@pytest.mark.long
@pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")
def test_bars_of_who_has_what_can_be_read_on_a_phone(tmp_path):
    """They were drawn a thousand wide and shrunk: their words had five pixels on a phone."""
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(12)))
    problem = Files(data=str(tmp_path / "*.csv"), target="y")
    result = Federation(problem, FedAvg(), rounds=2, engine="plain").run()
    write_report(result, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "with one server, from files, for 2 rounds." in text
    steps = """<script>addEventListener("load", () => setTimeout(() => {
      const bars = document.querySelector("#held svg");
      document.body.dataset.scale = bars.getBoundingClientRect().width / bars.viewBox.baseVal.width;
    }, 300));</script>"""
    (tmp_path / "page.html").write_text(text.replace("<main>", steps + "<main>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=500,900"]
    flags += ["--virtual-time-budget=1000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    run = subprocess.run(
        [CHROMIUM, *flags, f"file://{tmp_path / 'page.html'}"], capture_output=True, text=True, timeout=120
    )
    assert float(re.search(r'data-scale="(.*?)"', run.stdout)[1]) > 0.9
