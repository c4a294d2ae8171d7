"""Where data sets are found, what comes from their owner, and what is said when there is none."""

import contextlib
import csv
import hashlib
import io
import itertools
import socket
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from archipel.errors import BadInput, Missing
from archipel.problems.datasets import catalogue, convert
from archipel.problems.datasets.catalogue import DATASETS, DataSet, File

PAYLOAD = bytes(range(256)) * 1000
SHA = "sha256:" + hashlib.sha256(PAYLOAD).hexdigest()


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A machine without data: an empty data folder and an empty cache."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("ARCHIPEL_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def owner():
    """A server on this machine that plays the owner; its paths misbehave in different ways."""

    class Owner(BaseHTTPRequestHandler):
        visits = 0

        def do_GET(self):
            type(self).visits += 1
            body = archive() if self.path == "/zip" else PAYLOAD
            if self.path == "/gone":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body[: len(body) // 2] if self.path == "/torn" else body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Owner)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.handler = Owner
    yield server
    server.shutdown()
    server.server_close()


def archive():
    """A zip archive with two members."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as zipped:
        for name in ("one.bin", "two.bin"):
            info = zipfile.ZipInfo(f"gzip/{name}", (2020, 1, 1, 0, 0, 0))
            zipped.writestr(info, name.encode())
    return memory.getvalue()


def register(monkeypatch, *files, **more):
    data = DataSet("toy", "a toy", "none", "nobody", "https://example.org/toy", files, **more)
    monkeypatch.setitem(DATASETS, "toy", data)
    return data


def leftovers(folder):
    return [p.name for p in folder.rglob("*") if p.is_file()]


def test_the_data_folder_comes_before_the_cache(empty, monkeypatch):
    data = register(monkeypatch, File("toy.npz"))
    assert not data.available()
    cached = catalogue.cache() / "toy.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"cached")
    assert catalogue.find("toy") == cached and data.available()
    (empty / "toy.npz").write_bytes(b"given")
    assert catalogue.find("toy") == empty / "toy.npz"


def test_without_a_data_folder_the_cache_serves(empty, monkeypatch):
    monkeypatch.delenv("ARCHIPEL_DATA")
    assert catalogue.data_folders() == [catalogue.cache(), catalogue.PACKAGED]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(catalogue.cache()) == "/home/someone/.cache/archipel"


def test_what_a_distribution_has_installed_is_found(empty, monkeypatch, tmp_path):
    """Debian's dataset-fashion-mnist puts its files into /usr/share/datasets/fashion-mnist."""
    assert str(catalogue.PACKAGED) == "/usr/share/datasets"
    monkeypatch.setattr(catalogue, "PACKAGED", tmp_path / "share")
    wanted = tmp_path / "share" / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    wanted.parent.mkdir(parents=True)
    wanted.write_bytes(b"packaged")
    data = catalogue.DATASETS["fashion-mnist"]
    assert catalogue.locate(data, data.files[1]) == wanted


def test_a_data_folder_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("ARCHIPEL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="ARCHIPEL_DATA"):
        catalogue.find("mnist")


def test_a_download_is_checked_kept_and_not_repeated(empty, owner, monkeypatch):
    register(monkeypatch, File("toy.npz", owner.address + "/", SHA))
    path = catalogue.find("toy")
    assert path == catalogue.cache() / "toy.npz" and path.read_bytes() == PAYLOAD
    assert catalogue.find("toy") == path and owner.handler.visits == 1
    assert leftovers(catalogue.cache()) == ["toy.npz"]


@pytest.mark.parametrize(
    "page, file, why",
    [
        ("/", {"digest": "sha256:" + "0" * 64}, "another sha256"),
        ("/", {"digest": "md5:" + "0" * 32}, "another md5"),
        ("/torn", {"digest": SHA}, "another sha256"),
        ("/gone", {"digest": SHA}, "Not Found"),
        ("/", {"digest": SHA, "megabytes": 0}, "larger than"),
        ("/", {"digest": SHA, "seconds": 600}, "more than 600 s"),  # an hour goes by between two looks at the clock
    ],
)
def test_a_download_that_goes_wrong_leaves_nothing_and_says_where_to_get_it(empty, owner, monkeypatch, page, file, why):
    register(monkeypatch, File("toy.npz", owner.address + page, **file))
    clock = itertools.count(0, 3600 if "more than" in why else 0)
    monkeypatch.setattr(catalogue, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(Missing) as error:
        catalogue.find("toy")
    assert why in str(error.value) and "get toy.npz from https://example.org/toy into" in str(error.value)
    assert leftovers(catalogue.cache()) == []


def test_without_network_one_sentence_says_where_to_get_it(empty, monkeypatch):
    with socket.socket() as closed:  # a port that nobody listens on
        closed.bind(("127.0.0.1", 0))
        register(monkeypatch, File("toy.npz", f"http://127.0.0.1:{closed.getsockname()[1]}/", SHA))
        with pytest.raises(Missing) as error:
            catalogue.find("toy")
    said = str(error.value)
    assert "toy" in said and str(empty) in said and said.endswith(".") and "\n" not in said


def test_members_of_one_archive_are_downloaded_once(empty, owner, monkeypatch):
    digest = "sha256:" + hashlib.sha256(archive()).hexdigest()
    files = [File(n, owner.address + "/zip", digest, f"gzip/{n}") for n in ("one.bin", "two.bin", "three.bin")]
    register(monkeypatch, *files, folders=("toys", ""))
    assert catalogue.find("toy", "one.bin").read_bytes() == b"one.bin"
    assert catalogue.find("toy", "two.bin").read_bytes() == b"two.bin"
    assert owner.handler.visits == 1
    with pytest.raises(Missing, match=r"three\.bin"):
        catalogue.find("toy", "three.bin")


def test_unknown_names_are_refused_with_the_nearest(empty):
    with pytest.raises(BadInput, match='"mnist"'):
        catalogue.find("mnits")
    with pytest.raises(BadInput, match="train-images"):
        catalogue.find("fashion-mnist", "train-image-idx3-ubyte.gz")
    with pytest.raises(BadInput, match="sklearn"):
        catalogue.find("digits")


def test_sets_that_cannot_be_downloaded_name_the_owners_archive(empty):
    for name in ("calcofi", "beijing-air"):
        with pytest.raises(Missing, match=r"zip \(it is converted at first use\) from https://"):
            catalogue.find(name)


def test_the_register_is_complete():
    for name, data in DATASETS.items():
        assert name == data.name and data.description and data.licence and data.citation
        assert data.page.startswith("https://") and (data.files or data.package)
        for file in data.files:
            assert not file.url or file.url.startswith("https://")
            method, _, digest = file.digest.partition(":")
            assert bool(file.url) == bool(digest)
            assert not digest or len(bytes.fromhex(digest)) == hashlib.new(method).digest_size
            assert file.url or data.archives
    assert set(convert.CONVERTERS) == {name for name, data in DATASETS.items() if data.archives}
    assert set(catalogue.ALIASES.values()) <= set(DATASETS)
    assert DATASETS["digits"].available()


# --- the owners' archives ---------------------------------------------------------------------------------


def table(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def test_beijing_is_made_of_the_owners_nested_archive(empty):
    draw = np.random.default_rng(0)
    inner, wanted = io.BytesIO(), {}
    with zipfile.ZipFile(inner, "w") as zipped:
        for station in ("Wanliu", "Dingling"):
            air = draw.integers(1, 100, (5, 11)).astype(float)
            rows = [
                {"No": i + 1, **dict(zip(convert.AIR, air[i])), "wd": convert.WINDS[i], "station": station}
                for i in range(5)
            ]
            rows[1]["PM2.5"] = "NA"
            rows[3]["wd"] = "NA"
            wanted[station] = air[[0, 2, 4]]
            zipped.writestr(f"PRSA_Data/PRSA_Data_{station}_20130301-20170228.csv", table(rows))
    with zipfile.ZipFile(empty / "beijing+multi+site+air+quality+data.zip", "w") as outer:
        outer.writestr("PRSA2017_Data_20130301-20170228.zip", inner.getvalue())
    assert DATASETS["beijing-air"].available()
    path = catalogue.find("beijing-air")
    assert path == catalogue.cache() / "beijing_air.npz"
    made = np.load(path)
    assert list(made["station_name"]) == ["Dingling", "Wanliu"]
    np.testing.assert_array_equal(made["X"], np.concatenate([wanted["Dingling"], wanted["Wanliu"]]))
    np.testing.assert_array_equal(made["hour_index"], [0, 2, 4] * 2)
    np.testing.assert_array_equal(made["wind_dir"], [0, 2, 4] * 2)
    np.testing.assert_array_equal(made["station_id"], [0] * 3 + [1] * 3)


def test_calcofi_is_made_of_the_owners_casts_and_bottles(empty):
    def cast(number, station, year):
        where = {"Lat_Dec": 33.5, "Lon_Dec": -120.0}
        return {"Cst_Cnt": number, "Sta_ID": station, "Year": year, "Quarter": 2, **where}

    def bottle(number, depth, **more):
        water = dict.fromkeys(convert.WATER, 5.0) | {"Depthm": depth} | more
        return {"Cst_Cnt": number, "Sta_ID": "unused", **water}

    places = [(9, "093.3 026.7", 2010), (7, "080.0 051.0", 2003), (8, "080.0 051.0", 1999), (6, "1 1", 2010)]
    casts = [cast(*place) for place in places]
    bottles = [
        bottle(9, 20),
        bottle(9, 10),
        bottle(7, 0),
        bottle(7, 5, O2ml_L=""),
        bottle(8, 0),
        bottle(6, 0),
    ]
    with zipfile.ZipFile(empty / "CalCOFI_Database_194903-202105_csv_16October2023.zip", "w") as zipped:
        zipped.writestr("194903-202105_Cast.csv", "\ufeff" + table(casts))
        zipped.writestr("194903-202105_Bottle.csv", table(bottles))
    made = np.load(catalogue.find("calcofi"))
    np.testing.assert_array_equal(made["cast_id"], [7, 9, 9])
    np.testing.assert_array_equal(made["Depthm"], [0, 10, 20])
    names = made["station_name"]
    assert len(names) == 66 and list(names[made["station_id"]]) == [
        "080.0 051.0",
        "093.3 026.7",
        "093.3 026.7",
    ]
    assert made["year"].tolist() == [2003, 2010, 2010] and made["lon"][0] == -120


@pytest.mark.parametrize("content", [b"not a zip", archive()])
def test_an_archive_that_is_not_the_owners_is_refused(empty, content):
    (empty / "PRSA2017_Data_20130301-20170228.zip").write_bytes(content)
    with pytest.raises(BadInput, match=r"datasets\.beijing-air"):
        catalogue.find("beijing-air")
    assert leftovers(catalogue.cache()) == []
