"""A user's own files: what is read, and what is refused with file and line."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput, Missing
from archipel.problems import files
from reference.own_files import read


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def refusal(folder, **more):
    with pytest.raises(BadInput) as error:
        read(folder, **more)
    return str(error.value)


def test_a_csv_per_client_is_read_in_the_order_of_the_names(tmp_path):
    write(tmp_path, boat="depth,warm,y\n1,2,3\n4,5,6\n", ann="depth,warm,y\n7,8,9\n")
    everyone = read(tmp_path)
    assert everyone.names == ("ann", "boat") and everyone.columns == ("depth", "warm")
    np.testing.assert_array_equal(everyone.x, [[7, 8], [1, 2], [4, 5]])
    np.testing.assert_array_equal(everyone.y, [9, 3, 6])
    np.testing.assert_array_equal(everyone.starts, [0, 1, 3])
    assert everyone.x.dtype == everyone.y.dtype == np.float64 and everyone.starts.dtype == np.int64


def test_columns_are_matched_by_name_and_may_be_chosen(tmp_path):
    write(tmp_path, a="y,deep,place\n1,2,oslo\n", b="place,deep,y\nrome,3,4\n")
    everyone = read(tmp_path, columns=["deep"])
    np.testing.assert_array_equal(everyone.x, [[2], [3]])
    np.testing.assert_array_equal(everyone.y, [1, 4])
    write(tmp_path, a="y,deep,wide\n1,2,5\n", b="wide,deep,y\n6,3,4\n")
    np.testing.assert_array_equal(read(tmp_path).x, [[2, 5], [3, 6]])


def test_the_text_may_have_a_mark_quotes_blank_lines_and_windows_ends(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf"x","y"\r\n1.5,"2"\r\n\r\n -3e2 ,4\r\n')
    client = files.read_client(tmp_path / "a.csv")
    np.testing.assert_array_equal(client.x, [[1.5], [-300]])
    np.testing.assert_array_equal(client.y, [2, 4])


@settings(max_examples=40, deadline=None)
@given(
    table=st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
        min_size=1,
        max_size=10,
    ),
)
def test_numbers_survive_csv_and_npz_exactly(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exact")
    rows = np.array(table)
    lines = [",".join(map(repr, map(float, row))) for row in rows]
    write(folder, a="p,q,y\n" + "\n".join(lines))
    np.savez(folder / "b.npz", x=rows[:, :2], y=rows[:, 2], columns=np.array(["p", "q"]))
    everyone = read(folder)
    for x, y in everyone:
        np.testing.assert_array_equal(x, rows[:, :2])
        np.testing.assert_array_equal(y, rows[:, 2])


def test_npz_files_by_pattern(tmp_path):
    for k in range(3):
        np.savez(tmp_path / f"sensor-{k}.npz", x=np.full((k + 1, 2), k, np.float32), y=np.full((k + 1, 1), k))
    (tmp_path / "notes.txt").write_text("not data")
    everyone = read(tmp_path / "sensor-*.npz")
    assert everyone.names == ("sensor-0", "sensor-1", "sensor-2")
    np.testing.assert_array_equal(everyone.sizes, [1, 2, 3])
    np.testing.assert_array_equal(everyone.owner, everyone.y)
    np.savez(tmp_path / "sensor-3.npz", x=np.arange(2), y=np.zeros(2))
    assert read(tmp_path / "sensor-3.npz").x.shape == (2, 1)


@pytest.mark.parametrize(
    "text, words",
    [
        ("x,y\n1,2\n3,n/a\n", ["a.csv, line 3, column y: 'n/a'", "a number"]),
        ("x,y\n1,2\n,4\n", ["line 3, column x: ''", "a number"]),
        ("x,y\n1,2\n\nnan,4\n", ["line 4, column x: 'nan'", "finite"]),
        ("x,y\n1,inf\n", ["line 2, column y: 'inf'", "finite"]),
        ("x,y\n1,2\n12_5,4\n", ["line 3, column x: '12_5'", "number"]),  # Python takes it for 125
        ("x,y\n1,2\n1,2,3\n", ["line 3, with 3 cells", "2 cells"]),
        ("x,y\n1\n", ["line 2, with 1 cells", "2 cells"]),
        ("x,x,y\n1,2,3\n", ["column 2: 'x'", "name of its own"]),
        ("x,,y\n1,2,3\n", ["column 2: ''", "name of its own"]),
        ("x,why\n1,2\n", ["problem.target", "a column of a.csv", "why, x"]),
        ("y\n1\n", ["at least one column beside the target"]),
        ("x,y\n", ["a.csv", "at least one sample"]),
        ("", ["a.csv", "at least one sample"]),
    ],
)
def test_what_is_wrong_in_a_csv_is_named(tmp_path, text, words):
    said = refusal(write(tmp_path, a=text))
    assert all(word in said for word in words), said


def test_text_that_is_none_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,\xff\n")
    assert "UTF-8" in refusal(tmp_path)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"x": np.ones((2, 2))}, 'an array "y"'),
        ({"x": np.ones((2, 2)), "y": np.ones(3)}, "one row of x for each target"),
        ({"x": np.ones((2, 2)), "y": np.ones((2, 2))}, "one row of x for each target"),
        ({"x": np.ones((2, 2)), "y": np.array(["a", "b"])}, "numbers"),
        ({"x": np.array([[1, 2], [3, np.nan]]), "y": np.ones(2)}, "a.npz, x, row 1 (from 0)"),
        ({"x": np.ones((2, 2)), "y": np.array([-np.inf, 1])}, "a.npz, y, row 0 (from 0)"),
        ({"x": np.ones((0, 2)), "y": np.ones(0)}, "at least one sample"),
        ({"x": np.array([[1, None]]), "y": np.ones(1)}, "arrays of numbers"),
        ({"x": np.ones((2, 2)), "y": np.ones(2), "columns": np.array(["p"])}, "a name for each of 2 columns"),
    ],
)
def test_what_is_wrong_in_an_npz_is_named(tmp_path, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    assert words in refusal(tmp_path)


def test_a_torn_npz_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 and no more")
    assert "npz" in refusal(tmp_path)
    np.save(tmp_path / "single.npy", np.ones((2, 2)))
    (tmp_path / "single.npy").rename(tmp_path / "a.npz")
    assert "npz" in refusal(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"")
    assert "npz" in refusal(tmp_path)


def test_clients_that_do_not_fit_together_are_refused(tmp_path):
    write(tmp_path, a="x,y\n1,2\n", b="z,y\n1,2\n")
    said = refusal(tmp_path)
    assert "b.csv" in said and "a.csv" in said and "x, z" in said
    for name, width in (("c", 2), ("d", 3)):
        np.savez(tmp_path / f"{name}.npz", x=np.ones((1, width)), y=np.ones(1))
    assert "d.npz" in refusal(tmp_path / "*.npz")
    write(tmp_path, c="x,y\n1,2\n")
    assert "c.csv and c.npz" in refusal(tmp_path)


def test_columns_that_are_not_there_are_refused(tmp_path):
    write(tmp_path, a="deep,y\n1,2\n")
    assert '"deep"' in refusal(tmp_path, columns=["dep"])
    assert "without the target" in refusal(tmp_path, columns=["y"])
    np.savez(tmp_path / "a.npz", x=np.ones((1, 2)), y=np.ones(1))
    assert "without names" in refusal(tmp_path / "a.npz", columns=["deep"])


def test_what_is_wrong_in_the_same_way_with_many_files_is_said_once(tmp_path):
    """A misspelt column made a line for each of 256 clients."""
    for k in range(60):
        (tmp_path / f"c{k:02}.csv").write_text("a,b,y\n1,2,3\n")
    for how, words in (
        (files.Reading(columns=("aa",)), 'a column of c00.csv, "a" (known: a, b, y), and of 59 more.'),
        (files.Reading(columns=("a", "y")), "inputs only, without the target y."),
        (files.Reading(target="z"), "a column of c00.csv, one of a, b, y, and of 59 more."),
    ):
        with pytest.raises(BadInput) as problem:
            files.read_all(tmp_path, how)
        assert len(problem.value.findings) == 1 and str(problem.value).endswith(words)
    for k in range(60):
        (tmp_path / f"c{k:02}.csv").write_text("a,b,y\n1,x,3\n")
    with pytest.raises(BadInput) as problem:
        files.read_all(tmp_path, files.Reading())
    assert len(problem.value.findings) == 41 and '"20 lines more"' in str(problem.value)


def test_nothing_to_read_is_refused(tmp_path):
    assert "problem.data" in refusal(tmp_path)
    assert "problem.data" in refusal(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="exists"):
        files.read_client(tmp_path / "gone.csv")
    with pytest.raises(BadInput, match="ends in"):
        files.read_client(tmp_path / "a.xlsx")


def test_a_fraction_is_held_out_or_other_files_are(tmp_path):
    rows = "".join(f"{i},{i}\n" for i in range(10))
    write(tmp_path, a="x,y\n" + rows, b="x,y\n" + rows)
    train, test = files.read_split(tmp_path, 0.3, hold="last")
    np.testing.assert_array_equal(test.y, [7, 8, 9] * 2)
    train, test = files.read_split(tmp_path, 0.3, seed=1)
    np.testing.assert_array_equal(train.sizes, [7, 7])
    assert not np.array_equal(test.of(0)[1], test.of(1)[1])
    later = tmp_path / "later"
    later.mkdir()
    write(later, a="y,x\n5,6\n")
    train, test = files.read_split(tmp_path, str(later))
    assert train.names == ("a", "b") and test.names == ("a",)
    np.testing.assert_array_equal(test.x, [[6]])


def test_test_files_that_are_learnt_from_are_refused(tmp_path):
    write(tmp_path, a="x,y\n1,2\n", b="x,y\n1,2\n")
    with pytest.raises(BadInput, match=r"problem\.test.*unlike b\.csv"):
        files.read_split(tmp_path, str(tmp_path / "b.csv"))
    with pytest.raises(BadInput, match=r"problem\.test"):
        files.read_split(tmp_path, 1.5)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Missing, match="pip install pyarrow"):
        read(tmp_path)


def test_parquet_tables_are_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def store(**columns):
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")

    store(deep=[1, 2], y=[3.0, 4.0], place=["oslo", "rome"])
    client = files.read_client(tmp_path / "a.parquet", columns=["deep"])
    np.testing.assert_array_equal(client.x, [[1], [2]])
    np.testing.assert_array_equal(client.y, [3, 4])
    assert "column place" in refusal(tmp_path)
    store(deep=[1.0, float("inf")], y=[3.0, 4.0])
    assert "column deep, row 1" in refusal(tmp_path)
    store(deep=[1, None], y=[3.0, 4.0])
    assert "column deep" in refusal(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert "a parquet file" in refusal(tmp_path)
