"""Bad inputs by chance: descriptions, files, flags and arguments that a seed makes wrong in some way.

A case is (name, must, argv): `must` says whether it has to be refused; what is only odd may be accepted.
"""

import dataclasses
import io
import random
import shlex

import numpy as np

from archipel.describe import keys_of, mentions, toml
from archipel.registry import ALGORITHMS, PROBLEMS
from archipel.topology import TOPOLOGIES

SMALL = [
    {"problem": {"kind": "synthetic", "clients": 4, "features": 8, "test": 5}, "algorithm": {"kind": "pao-fed"}},
    {"problem": {"kind": "files", "data": "good/*.csv"}, "algorithm": {"kind": "fedavg"}},
    {"problem": {"kind": "files", "data": "good/*.csv", "hold": "last"}, "algorithm": {"kind": "online-fed"}},
    {"problem": {"kind": "linear", "clients": 4, "size": 3, "samples": 8, "test": 8}, "algorithm": {"kind": "zcdp-nfl"},
     "topology": {"kind": "peers", "shape": "ring"}, "privacy": {"epsilon": 2.0, "clip": 1.0}},
    {"problem": {"kind": "drifting", "clients": 4}, "algorithm": {"kind": "mirror-descent"},
     "topology": {"kind": "digraph"}},
    {"problem": {"kind": "synthetic", "clients": 4, "features": 8, "test": 5}, "algorithm": {"kind": "pao-fed"},
     "environment": {"availability": [0.5, 0.25], "delay": {"delta": 0.2, "limit": 3}}},
]  # fmt: skip
STRANGE = [
    "",
    " ",
    "\u200b",
    "Ünïcødé ☃",
    "a" * 300,
    "../../etc",
    "-",
    "0",
    "nan",
    "1e999",
    "[1]",
    "{}",
    "%s%n",
    "\t",
    "'",
]
HUGE = [10**30, -(10**30), 2**63, 10**400, -1]
FLOATS = [float("nan"), float("inf"), -float("inf"), -1e308]
ODD = [0.0, -0.0, 5e-324, 1e-300, 1e-12, 1.0, 0.999999999, 2.0, 1e6, 1e18, 1e300, -1.0]
# Nothing between: ten million samples are not wrong, only much work for plain Python.
ODD_WHOLE = [0, 1, 2, 3, 7, 64, 100, 1000, 10**9, 2**31, 2**40, 10**15, 2**62, -1]
KINDS = {"problem": PROBLEMS, "algorithm": ALGORITHMS, "topology": TOPOLOGIES}


def described(table):
    """The text of a description."""
    text = ["rounds = 2", "every = 1", 'engine = "plain"']
    text += [f"{key} = {toml(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for name, part in table.items():
        if isinstance(part, dict):
            text.append(f"[{name}]")
            text += [f"{key} = {inline(value)}" for key, value in part.items()]
    return "\n".join(text) + "\n"


def inline(value):
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return toml(value)


class Raw(str):
    """Text that stands in a description as it is."""


def wrong_value(hint, chance):
    """A value of a type that a field does not know, and whether that is sure."""
    options = [Raw("1979-05-27"), Raw("07:32:00"), Raw("1979-05-27T07:32:00Z"), [[[[]]]], {"no": {"such": [1]}}]
    plain = {bool: True, int: 3, float: 1.5, str: "no such word", dict: {"no": 1}, tuple: [1]}
    fits = {kind for kind in plain if mentions(hint, kind) or (kind is int and mentions(hint, float))}
    fits |= {kind for kind in (tuple, dict) if kind.__name__ in str(hint)}  # a list of numbers is a list
    options += [value for kind, value in plain.items() if kind not in fits]
    if not fits & {tuple, dict} and not dataclasses.is_dataclass(hint) and "Any" not in str(hint):
        return chance.choice(options), True
    return chance.choice(options[:3]), True


def broken_description(chance):
    """A good description with one thing wrong in it."""
    table = {key: dict(value) for key, value in chance.choice(SMALL).items()}
    section = chance.choice([name for name in table if name in KINDS])
    cls = KINDS[section][table[section]["kind"]]
    fields = {name: known for name, known in keys_of(cls).items() if name not in ("kind",)}
    way = chance.choice(["key", "type", "type", "number", "odd", "odd", "kind", "section", "strange"])
    if way == "key":
        name = chance.choice(list(fields) or ["step"])
        typo = name[:-1] + chance.choice("xyzq") if len(name) > 2 else name + "q"
        if typo in fields:
            typo += "q"
        table[section][typo] = 1
        return f"{section}.{typo}", True, table
    if way in ("type", "number") and fields:
        name = chance.choice(list(fields))
        hint, right = fields[name]
        if way == "type":
            value, must = wrong_value(hint, chance)
        else:
            must = not (right.infinite and mentions(hint, float)) and not mentions(hint, dict)
            numeric = mentions(hint, int) or mentions(hint, float)
            value = chance.choice(HUGE[:4] if not mentions(hint, float) else FLOATS[:1])
            must = must and numeric and "Any" not in str(hint)
        table[section][name] = value
        return f"{section}.{name} = {str(value)[:40]}", must, table
    numeric = [name for name, (hint, _) in fields.items() if mentions(hint, int) or mentions(hint, float)]
    if way == "odd" and numeric:  # within what a type knows, and maybe within the range: refused or survived
        name = chance.choice(numeric)
        table[section][name] = chance.choice(ODD if mentions(fields[name][0], float) else ODD_WHOLE)
        return f"{section}.{name} = {table[section][name]}", False, table
    if way == "kind":
        table[section]["kind"] = chance.choice([*STRANGE, 3, True, [1], {"a": 1}])
        return f"{section}.kind", True, table
    if way == "section":
        name = chance.choice(["problm", "algorithms", "Topology", "privcy", "clients2", "\u00e9"])
        table[f'"{name}"' if not name.isascii() else name] = {"x": 1}
        return f"[{name}]", True, table
    name = chance.choice(list(fields) or ["kind"])
    table[section][name] = chance.choice(STRANGE)
    return f"{section}.{name} = {table[section][name]!r}", False, table


def broken_text(chance):
    """Something that is no description at all."""
    good = described(chance.choice(SMALL))
    ways = {
        "cut": good[: chance.randrange(5, len(good) - 5)].rsplit("\n", 1)[0] + "\n[prob",
        "twice": good + "[problem]\nkind = 'synthetic'\n",
        "nested": "x = " + "[" * 4000 + "]" * 4000,
        "dots": "a." * 3000 + "b = 1\n",
        "bytes": bytes(chance.randrange(256) for _ in range(200)),
        "utf-16": good.encode("utf-16"),
        "nul": good.replace("2", "\0", 1),
        "empty": "",
        "list": "[[problem]]\nkind = 'synthetic'\n[[problem]]\nkind = 'linear'\n",
        "number": "problem = 3\nalgorithm = 4\n",
        "long": f'x = "{"y" * 200_000}"\n',
    }
    way = chance.choice(list(ways))
    return way, ways[way]


def broken_table(chance):
    """A client's file that cannot be learned from: its name, its content, and whether it must be refused."""
    rows = [f"{k},{k * 0.5},{k + 1}" for k in range(8)]
    good = ["a,b,y", *rows]
    at = chance.randrange(1, len(good))
    word = chance.choice(["abc", "1e999", "--1", "0x1F", "1,2,3,4", "NaN", "inf", '"', "1;2"])
    archive = io.BytesIO()
    way = chance.choice(
        ["cell", "header", "empty", "only", "ragged", "bytes", "npz", "object", "shape", "twice", "huge"]
    )
    if way == "cell":
        cells = good[at].split(",")
        cells[chance.randrange(3)] = word
        good[at] = ",".join(cells)
    elif way == "header":
        good[0] = chance.choice(["a,b,z", "a,a,y", "a,,y", "y", "a b y", "a,b,Y"])
    elif way == "empty":
        return "c9.csv", b"", True
    elif way == "only":
        good = good[:1]
    elif way == "ragged":
        good[at] += ",7"
    elif way == "twice":
        good.insert(at, good[0])
    elif way == "huge":
        good[at] = f"1e300,{'9' * 400},1"
    elif way == "bytes":
        return "c9.csv", b"a,b,y\n1,2,\xff\xfe\n", True
    elif way == "npz":
        return "c9.npz", chance.choice([b"", b"PK", b"PK\x03\x04" + bytes(40)]), True
    elif way == "object":
        np.savez(archive, x=np.array([{"a": 1}], object), y=np.ones(1))
        return "c9.npz", archive.getvalue(), True
    else:
        three, six = np.ones(3), np.ones((3, 2))
        made = [(six, np.ones(4)), (np.ones(()), np.ones(())), (np.ones((0, 2)), np.ones(0)), (six + 1j, three)]
        made += [
            (np.ones((3, 5)), three),
            (np.array(["a"] * 6).reshape(3, 2), three),
            (six, six),
            (six * np.nan, three),
        ]
        x, y = chance.choice(made)
        np.savez(archive, x=x, y=y)
        return "c9.npz", archive.getvalue(), True
    return "c9.csv", "\n".join(good).encode() + b"\n", True


COMMANDS = """
run good.toml --rounds -3|run good.toml --rounds abc|run good.toml --rounds 1e3
run good.toml --rounds 9999999999999999999999|run good.toml --seeds 0|run good.toml --seeds nan
run good.toml --out ''|run good.toml --out good.toml|run good.toml --page 99999
run good.toml --page no.such.host.invalid:1|run good.toml --page x:y:z|run good.toml --log nobody:here
run good.toml --log ''|run good.toml --checkpoint -1|run good.toml --checkpoint nan|run good.toml --from nowhere.npz
run good.toml --from good.toml|run good.toml --from good|run good.toml --on tcp://|run good.toml --on cloud
run good.toml --record ''|run good.toml --record good|run good.toml --no-such-flag|run nowhere.toml|run good
run good/c0.csv|run|run ''|check nowhere.toml|check good.toml --name nobody|compare good.toml nowhere.toml|compare
list nothing|explain no-such-key|explain problem..|explain ☃|reproduce no/figure|reproduce ''
reproduce pao-fed/|bench --only nothing|predict nowhere.npz good/c0.csv|predict good.toml good/c0.csv
predict good/c0.csv good|export nowhere.npz|privacy nowhere.toml|privacy good/c0.csv|audit good.toml --epsilon x
sweep good.toml algorithm.step=|sweep good.toml algorithm.step=1:0|sweep good.toml nothing=1,2
sweep good.toml algorithm.step=0.1:1:lgo|sweep good.toml algorithm.step|sweep good.toml =1,2
sweep good.toml algorithm.step=a,b|sweep good.toml algorithm.step=-1,2 --trials 1
sweep good.toml algorithm.step=nan:1|sweep good.toml rounds=0:5 --trials x|sweep good.toml|new good|new ''
up nowhere.toml|up good.toml --rounds -1|node good.toml --name nobody|node nowhere.toml --name x|keys nowhere.toml
torture --seeds -1|torture --seed -1|torture --trace|torture --story war
approve nowhere.toml|status nowhere.toml|log nowhere|no-such-command
--no-such-flag
"""
FLAGS = [shlex.split(line) for line in COMMANDS.strip().replace("\n", "|").split("|")]
FLAGS += [["run", "good.toml", "--out", "a\0b"], ["new", "a\0b"]]


def prepared(here):
    """A folder with a good description and three good files."""
    (here / "good").mkdir(parents=True)
    for c in range(3):
        (here / "good" / f"c{c}.csv").write_text("a,b,y\n" + "".join(f"{k},{k * k % 7},{k + 1}\n" for k in range(8)))
    (here / "good.toml").write_text(described(SMALL[1]))
    return here


def cases(seed, count, folder):
    """So many cases; their files are in the folder, each in one of its own, beside good ones."""
    chance = random.Random(seed)
    for k in range(count):
        here = prepared(folder / f"case-{k}")
        way = chance.choice(["description"] * 5 + ["text", "table", "table", "flags", "flags"])
        if way == "description":
            name, must, table = broken_description(chance)
            (here / "bad.toml").write_text(described(table), encoding="utf-8")
            yield here, f"{k}: {name}", must, ["run", "bad.toml", "--out", "out"]
        elif way == "text":
            name, text = broken_text(chance)
            (here / "bad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
            yield here, f"{k}: text {name}", True, [chance.choice(["check", "run", "privacy"]), "bad.toml"]
        elif way == "table":
            name, content, must = broken_table(chance)
            (here / "good" / name).write_bytes(content)
            (here / "good.toml").write_text(described(SMALL[1] | {"problem": {"kind": "files", "data": "good"}}))
            yield here, f"{k}: {name} {content[:60]!r}", must, [chance.choice(["check", "run"]), "good.toml"]
        else:
            argv = chance.choice(FLAGS)
            yield here, f"{k}: {argv}", True, argv
