"""What a device learns from: a CSV file that grows, a user's generator, an MQTT topic."""

import queue
import threading
from pathlib import Path

import numpy as np
import pytest
from broker import Broker
from harness import Village

from archipel import Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.clients import Clients, People
from archipel.deploy.node import open_node
from archipel.deploy.outside import GeneratorSource, SampleSource
from archipel.deploy.sources import source_of
from archipel.deploy.store import Halted
from archipel.deploy.view import view_of
from archipel.deployment import Deployment
from archipel.errors import BadInput, Missing
from archipel.problems.networked import Regression
from archipel.problems.own import Files
from archipel.topology import Peers

LATEST = 600  # seconds: only what hangs takes so long


def line_view():
    """A client of a linear problem with two inputs."""
    return view_of(Federation(Linear(clients=2, size=2, samples=10, test=5), OnlineFed(step=0.1), rounds=9), "client-0")


class Waiting(queue.Queue):
    """Where a source finds what came from outside: whoever looks waits until there is something."""

    def empty(self):
        return False

    def get_nowait(self):
        return self.get(timeout=LATEST)


def waiting(source):
    """The source, not polled but waited for."""
    source.box = Waiting(getattr(source.box, "maxsize", 0))
    return source


def test_a_csv_file_that_grows(tmp_path):
    path = tmp_path / "sensor.csv"
    path.write_text("a,target,b\n1,10,2\n\n3,30,")
    source = source_of(line_view(), "sensor.csv", tmp_path)
    fresh, data = source.look(None)
    assert fresh and data.features.tolist() == [1, 2] and data.target[0] == 10
    assert not source.ready(), "a row that is not written to its end"
    with path.open("a") as file:
        file.write("4\n5,50,6\n")
    kept = source.state()
    assert source.look(None)[1].features.tolist() == [3, 4]
    again = source_of(line_view(), "sensor.csv", tmp_path)
    again.restore(kept)
    assert again.look(None)[1].features.tolist() == [3, 4], "after a crash it goes on where the checkpoint was"
    assert again.look(None)[1].features.tolist() == [5, 6] and not again.look(None)[0]


def test_a_csv_file_whose_header_comes_later_and_whose_target_is_last(tmp_path):
    path = tmp_path / "client-0.csv"
    path.write_text("a,b")
    source = source_of(line_view(), "{name}.csv", tmp_path)
    assert not source.ready()
    path.write_text("a,b,c\n1,2,3\n")
    fresh, data = source.look(None)
    assert fresh and data.features.tolist() == [1, 2] and data.target[0] == 3


def test_rows_that_are_not_samples_are_skipped_and_counted(tmp_path, caplog):
    path = tmp_path / "sensor.csv"
    path.write_bytes("a,target,b\n1,x,2\n1,2\n1,nan,2\n\xff,1,2\n7,8,9\n1,,2\n".encode("latin-1"))
    source = source_of(line_view(), "sensor.csv", tmp_path)
    fresh, data = source.look(None)
    assert fresh and data.features.tolist() == [7, 9] and data.target[0] == 8
    assert source.skipped == 4 and caplog.text.count("not a sample") == 1
    assert not source.ready() and source.skipped == 5
    again = source_of(line_view(), "sensor.csv", tmp_path)
    again.restore(source.state())
    assert not again.ready() and again.skipped == 5, "what was counted is not counted again"


def test_files_that_are_not_there_or_shrink_are_said(tmp_path):
    with pytest.raises(BadInput, match="a CSV file with a header"):
        source_of(line_view(), "nowhere.csv", tmp_path)
    path = tmp_path / "sensor.csv"
    path.write_text("a,target,b\n1,10,2\n1,10,2\n")
    source = source_of(line_view(), "sensor.csv", tmp_path)
    assert source.look(None)[0]
    path.write_text("a,target,b\n")
    with pytest.raises(BadInput, match="only grows"):
        source.look(None)


def test_a_users_generator(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def samples(name):\n    for i in range(5):\n        yield None\n        yield [i, len(name)], 2.0 * i\n"
    )
    source = waiting(source_of(line_view(), "mine.py:samples", tmp_path))
    assert [source.look(None)[1].features.tolist() for _ in range(3)] == [[0, 8], [1, 8], [2, 8]]
    again = waiting(source_of(line_view(), "mine.py:samples", tmp_path))
    again.restore(source.state())
    assert again.look(None)[1].features.tolist() == [3, 8], "what was used before a crash is skipped"
    assert again.look(None)[0] and not again.look(None)[0] and again.over
    with pytest.raises(BadInput, match="a class or function of"):
        source_of(line_view(), "mine.py:nothing", tmp_path)
    with pytest.raises(BadInput, match="2 finite inputs"):
        source.sample_of(np.ones(3), 1.0)


@pytest.mark.parametrize("code", ["import no_such_sensor", "def samples(name:"], ids=["import", "syntax"])
def test_a_users_file_that_does_not_load_is_said(code, tmp_path):
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(BadInput, match=r"mine\.py.*that Python can load \((ModuleNotFound|Syntax)Error"):
        source_of(line_view(), "mine.py:samples", tmp_path)


def test_a_generator_that_waits_for_its_sensor_does_not_hold_the_node_up():
    sensed = threading.Event()

    def slowly(name):
        sensed.wait(LATEST)
        yield [1, 2], 3

    source = GeneratorSource(line_view(), slowly)
    assert not source.ready()
    sensed.set()


def test_generators_that_fail_are_said_and_what_is_no_sample_is_skipped():
    def failing(name):
        raise OSError("no such sensor")
        yield

    def strange(name):
        yield from (3, ([1, 2, 3], 4), ([1, "x"], 4), ([5, 6], 7), ([8, 9], 10))

    with pytest.raises(Halted, match="failing failed with OSError: no such sensor"):
        waiting(GeneratorSource(line_view(), failing)).look(None)
    source = waiting(GeneratorSource(line_view(), strange))
    assert source.look(None)[1].features.tolist() == [5, 6] and source.skipped == 3
    again = waiting(GeneratorSource(line_view(), strange))
    again.restore(source.state())
    assert again.look(None)[1].features.tolist() == [8, 9]


@pytest.mark.parametrize("ends", [True, False], ids=["all data is used", "the server is done"])
def test_a_node_without_further_data_still_ends(ends):
    """Its last rounds go by without it; where it waits for data, it ends when the server says that all is over."""

    class Five(SampleSource):
        """Five samples, and then none: for good, or for now."""

        def fetch(self):
            if self.taken == 5:
                self.over = ends
                return None
            return [0.1 * self.taken, 1, 0, 1], 0.2 * self.taken

    problem = Synthetic(clients=2, features=6, test=5)
    village = Village(Federation(problem, PaoFed(step=0.2), rounds=20), pace="quorum", deadline=0.1)
    client = village.nodes["client-0"].player
    client.source = Five(client.view)
    village.run()
    assert client.updates == 5
    assert np.any(client.me.model != 0)


def test_data_that_comes_one_by_one_needs_an_algorithm_that_learns_so(tmp_path):
    view = view_of(Federation(Regression(clients=3), ZcdpNfl(), Peers(shape="ring"), rounds=3), "client-0")
    for missing in ("sensor.csv", "nowhere", "nothing.py:samples"):
        with pytest.raises(BadInput, match=f'deploy.data = "{missing}": expected a folder or a file that is there'):
            source_of(view, missing, tmp_path)
    (tmp_path / "sensor.csv").write_text("a,target,b\n")
    with pytest.raises(BadInput, match=r'deploy.data = "sensor\.csv": .*sample by sample'):
        source_of(view, "sensor.csv", tmp_path)


@pytest.mark.parametrize("data", ["", "sensor.csv"], ids=["stored", "a stream"])
def test_data_that_cannot_be_read_when_a_node_starts_end_it_for_good(data, tmp_path, monkeypatch):
    """In the words of `archipel check`; a Missing ends with status 2."""
    (tmp_path / "sensor.csv").write_text("a,target,b\n")
    deploy = Deployment(data=data, addresses={"server": "127.0.0.1:7447"})
    federation = Federation(Linear(clients=2, size=2, samples=10, test=5), OnlineFed(step=0.1), deploy=deploy)

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied", "sensor.csv")

    monkeypatch.setattr(*((Path, "open") if data else ("archipel.deploy.view.instance_at",)), denied)
    monkeypatch.setattr("archipel.deploy.keys.check", lambda *_: None)
    with pytest.raises(Missing, match=r"^sensor\.csv: Permission denied\.$"):
        open_node(federation, "client-0", tmp_path, None, deploy.addresses)


# --- MQTT -----------------------------------------------------------------------------------------------------------


def test_an_mqtt_topic(tmp_path, caplog):
    pytest.importorskip("paho.mqtt")
    with Broker() as broker:
        source = waiting(source_of(line_view(), f"mqtt://127.0.0.1:{broker.port}/room/{{name}}", tmp_path))
        try:
            assert broker.subscribed.wait(LATEST), "it subscribes"
            assert broker.topics == ["room/client-0"] and broker.name == "archipel-client-0"
            for message in ("1,2,3", "who goes there", "1,2,3,4", "nan,1,2", "", "4,5,6"):
                broker.publish("room/client-0", message)
            seen = [source.look(None)[1] for _ in range(2)]
            assert [(*data.features.tolist(), data.target[0]) for data in seen] == [(1, 2, 3), (4, 5, 6)]
            assert source.skipped == 4 and caplog.text.count("not a sample") == 1
        finally:
            source.client.loop_stop()


def test_an_mqtt_topic_in_json(tmp_path):
    """By the names of the columns, in raw units."""
    pytest.importorskip("paho.mqtt")
    with Broker() as broker:
        view = raw_view(tmp_path)
        source = waiting(source_of(view, f"mqtt://127.0.0.1:{broker.port}/room", tmp_path))
        try:
            assert broker.subscribed.wait(LATEST)
            for message in ('{"temperature": 18, "place": "bay", "salinity": 32}', '{"temperature": 1}', "0,sea,30"):
                broker.publish("room", message)
            seen = [source.look(None)[1] for _ in range(2)]
            assert [(*data.features.tolist(), data.target[0]) for data in seen] == [(1, 0, 1, 1), (-2, 1, 0, 0)]
            assert source.skipped == 1
        finally:
            source.client.loop_stop()


def test_mqtt_addresses_and_its_package(tmp_path):
    try:
        import paho.mqtt  # noqa: F401
    except ImportError:
        with pytest.raises(Missing, match="paho-mqtt"):
            source_of(line_view(), "mqtt://broker/room/{name}", tmp_path)
        return
    for wrong in ("mqtt://", "mqtt://broker", "mqtt://broker:x/topic"):
        with pytest.raises(BadInput, match="an address and a topic"):
            source_of(line_view(), wrong, tmp_path)


# --- raw units ------------------------------------------------------------------------------------------------------


def raw_view(tmp_path, features=0, **problem):
    """A buoy of a federation whose columns and units are declared; its samples come from outside."""
    keys = {
        "target": "salinity", "columns": ("temperature", "place"), "categories": {"place": ["sea", "bay"]},
        "scale": {"temperature": {"center": 12, "spread": 6}, "salinity": {"center": 30, "spread": 2}},
    }  # fmt: skip
    files = Files(data=str(tmp_path / "{name}.csv"), features=features, **keys | problem)
    clients = Clients(("buoy-1", "buoy-2"))
    federation = Federation(files, OnlineFed(step=0.1), rounds=9, clients=clients, precision="float64")
    return view_of(federation.with_(deploy=Deployment(data="live.csv")), "buoy-2", base=tmp_path)


def test_a_growing_file_in_raw_units_is_scaled_as_declared(tmp_path):
    """Columns in any order and more of them, words, another separator: (x - center) / spread, by hand."""
    path = tmp_path / "live.csv"
    path.write_text("salinity;note;place;temperature\n31,5;x;bay;18\n29;y;pond;3\n30;z;sea;9\n")
    view = raw_view(tmp_path)
    source = source_of(view, "live.csv", tmp_path)
    seen = [source.look(None)[1] for _ in range(2)]
    assert [(*data.features.tolist(), data.target[0]) for data in seen] == [(1.0, 0, 1, 0.75), (-0.5, 1, 0, 0.0)]
    assert source.skipped == 1, "nobody said that there are ponds"
    path.write_text("salinity,place,depth\n")
    with pytest.raises(BadInput, match="a header with a column temperature"):
        source_of(view, "live.csv", tmp_path).look(None)


def test_raw_rows_pass_through_the_features_of_the_problem(tmp_path):
    """As the samples of the same files do in a simulation."""
    path = tmp_path / "live.csv"
    path.write_text("temperature,place,salinity\n18,sea,31\n7.5,bay,33\n")
    ours = source_of(raw_view(tmp_path, features=7), "live.csv", tmp_path)
    for name in ("buoy-1", "buoy-2"):
        (tmp_path / f"{name}.csv").write_text(path.read_text() + "1,sea,2\n" * 3)
    files = Files(
        data=str(tmp_path / "{name}.csv"), features=7, target="salinity", columns=("temperature", "place"),
        categories={"place": ["sea", "bay"]}, test=0.2, hold="last",
        scale={"temperature": {"center": 12, "spread": 6}, "salinity": {"center": 30, "spread": 2}},
    )  # fmt: skip
    task = files.task(1, 9, np.float64, "stored", People(("buoy-1", "buoy-2")))
    for row in range(2):
        data = ours.look(None)[1]
        np.testing.assert_allclose(data.features, task.source.x[row], rtol=0, atol=1e-12)
        assert data.target[0] == task.source.y[row]


def test_generators_and_labels_by_the_names_of_columns(tmp_path):
    view = raw_view(
        tmp_path, target="ill", columns=("temperature",), loss="logistic", positive="yes",
        scale={"temperature": {"center": 12, "spread": 6}}, categories={},
    )  # fmt: skip

    def samples(name):
        yield {"temperature": 18, "other": 1}, "yes"
        yield [6], "no"
        yield {"depth": 3}, "no"
        yield [0], ""
        yield ["24"], " yes "

    source = waiting(GeneratorSource(view, samples))
    seen = [source.look(None)[1] for _ in range(3)]
    assert [(*data.features.tolist(), data.target[0]) for data in seen] == [(1, 1, 1), (-1, 1, -1), (2, 1, 1)]
    assert source.skipped == 2
