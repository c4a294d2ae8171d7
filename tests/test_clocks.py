"""No test asks the clock whether the code is right: none sleeps, and none ends by the clock within a minute."""

import ast
from pathlib import Path

import pytest
from hypothesis import settings

FILES = [path for path in Path(__file__).parent.rglob("*.py") if path != Path(__file__)]
SHORTEST = 60  # seconds
LIMITED = {"timeout", "seconds"}  # keywords of calls that give up
ROUNDS = {"deadline", "patience"}  # keys of descriptions that do, where processes play them


def calls(text):
    """The calls in a file, each with its name as it is written."""
    return [(ast.unparse(node.func), node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]


def faults(text):
    for name, call in calls(text):
        if name.split(".")[-1] == "sleep":
            yield f"{name} in line {call.lineno}"
        limited = LIMITED | ROUNDS if name == "deployed" else LIMITED
        for given in call.keywords:
            if given.arg in limited and isinstance(given.value, ast.Constant) and given.value.value < SHORTEST:
                yield f"{given.arg}={given.value.value} in line {call.lineno}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("time.sleep(1)", 1),
        ("run(['x'], timeout=30)", 1),
        ("run(['x'], timeout=600)", 0),
        ("wait_until(there)", 0),
        ("deployed(one, deadline=0.5)", 1),
        ("Village(one, deadline=0.5)", 0),
    ],
)
def test_what_is_looked_for_is_found(text, found):
    assert len(list(faults(text))) == found


def test_no_test_sleeps_or_gives_up_within_a_minute():
    assert len(FILES) > 100
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    looked_at = {
        path: text for path, text in texts.items() if any(word in text for word in ("sleep", *LIMITED, *ROUNDS))
    }
    assert {path.name: found for path, text in looked_at.items() if (found := list(faults(text)))} == {}


def test_drawn_examples_may_take_their_time():
    assert settings().deadline is None
