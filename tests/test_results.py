"""Results in a notebook: short to look at, kind about mistakes."""

import pytest

import archipel
from archipel import Federation, Linear, PaoFed, Peers, Synthetic, ZcdpNfl
from archipel.errors import BadInput

SMALL = Federation(Synthetic(clients=6, features=8, test=10), PaoFed(portion=2), rounds=40, every=20, engine="plain")


@pytest.fixture(scope="module")
def result():
    return SMALL.run(2)


def test_a_result_is_one_line_and_its_page_in_a_notebook(result):
    assert len(repr(result)) < 120 and "mse" in repr(result) and "2 seeds" in repr(result)
    assert result._repr_html_().startswith("<iframe srcdoc=") and "&lt;h1&gt;" in result._repr_html_()


def test_mistakes_are_sentences(result):
    with pytest.raises(BadInput, match='metric = "msee": expected "mse"'):
        result.final("msee")
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(BadInput, match=r"seeds = .*: expected a whole number, at least 1"):
            SMALL.run(seeds=wrong)


def test_measurements_are_a_frame_and_a_picture(result):
    pandas = pytest.importorskip("pandas")
    frame = result.frame()
    assert isinstance(frame, pandas.DataFrame) and set(frame["seed"]) == {1, 2}
    pytest.importorskip("matplotlib").use("agg")
    (line,) = result.plot("mse").lines
    assert list(line.get_xdata()) == [0, 20, 40]


def test_clients_have_the_names_of_the_ledger(tmp_path):
    named = Federation(Linear(clients=3, size=2, samples=5, test=5), ZcdpNfl(), Peers(shape="ring"), rounds=4, every=4)
    rows = named.with_(engine="plain").run().named_rows()
    assert {row[4] for row in rows if row[2] == "mse.node"} == {"client-0", "client-1", "client-2"}


def test_every_class_comes_from_the_package_itself():
    for name in (
        "PaoFed",
        "MultiKrum",
        "Attack",
        "ZcdpNfl",
        "Pgfl",
        "Files",
        "Deep",
        "Peers",
        "Digraph",
        "Privacy",
        "Environment",
    ):
        assert name in dir(archipel) and isinstance(getattr(archipel, name), type)
    with pytest.raises(AttributeError):
        _ = archipel.Nothing


def test_whoever_waits_at_a_prompt_sees_a_bar_and_a_script_is_silent(monkeypatch):
    import sys
    from contextlib import contextmanager

    from archipel import federation

    seen = []

    @contextmanager
    def bar(name):
        yield lambda done, total, what: seen.append((name, done, total))

    monkeypatch.setattr(federation, "progress_bar", bar)
    SMALL.run()
    assert seen == []
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    SMALL.run()
    assert seen[-1] == ("pao-fed", 40, 40)
