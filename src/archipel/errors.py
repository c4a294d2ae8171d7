"""Errors that are sentences for the person who caused them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any


class BadInput(ValueError):
    """Something in the description, the data or a message is not right. The command line exits with status 2.

    The sentence names the key, the value that was given and what would be right.

    >>> print(BadInput("algorithm.step", -0.4, "a positive number"))
    algorithm.step = -0.4: expected a positive number.
    """

    def __init__(self, key: str, value: Any, right: str):
        self.key, self.value, self.right = key, value, right
        self.findings: tuple[BadInput, ...] = (self,)  # more where a description has several
        super().__init__(f"{key} = {as_written(value)}: expected {right}.")

    def __reduce__(self) -> Any:
        """So that it can come from another process."""
        return BadInput, (self.key, as_written(self.value), self.right), {"findings": self.findings, "args": self.args}

    def __str__(self) -> str:
        return "\n".join(str(one.args[0]) for one in self.findings)


class Findings:
    """Everything that is wrong, collected before anything is refused.

    >>> found = Findings()
    >>> for number in (1, -2, -3):
    ...     with found:
    ...         if number < 0:
    ...             raise BadInput("step", number, "a positive number")
    >>> found.refuse()
    Traceback (most recent call last):
    archipel.errors.BadInput: step = -2: expected a positive number.
    step = -3: expected a positive number.
    """

    def __init__(self) -> None:
        self.all: list[BadInput] = []

    def __enter__(self) -> "Findings":
        return self

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> bool:
        if isinstance(problem, BadInput):
            self.add(problem)
        return isinstance(problem, BadInput)

    def add(self, problem: BadInput) -> None:
        self.all.extend(problem.findings)

    def refuse(self) -> None:
        """Raise what was found, if anything was: the first, with the others beside it."""
        if self.all:
            first = self.all[0]
            first.findings = tuple(self.all)
            raise first


class Missing(RuntimeError):
    """A data set or an optional package that is not on this machine, or cannot be read; the sentence says why."""


@contextmanager
def reading() -> Iterator[None]:
    """What is read before anything begins: where that fails, a sentence, and not another try."""
    try:
        yield
    except OSError as problem:
        raise Missing(of_file(problem)) from problem


def of_file(problem: OSError) -> str:
    """What the system says of a file or a folder, as a sentence.

    >>> of_file(PermissionError(13, "Permission denied", "nord/log.csv"))
    'nord/log.csv: Permission denied.'
    """
    where = f"{problem.filename}: " if problem.filename else ""
    return f"{where}{problem.strerror or problem}."


class Diverged(RuntimeError):
    """A run whose numbers grew beyond all bounds; the sentence says where and what to change."""


def as_written(value: Any) -> str:
    """A value as a person would write it in the description, not longer than a line.

    >>> as_written("star"), as_written(True), as_written(0.4)
    ('"star"', 'true', '0.4')
    """
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 120 else text[:58] + "..." + text[-59:]  # the end of a path says which file it is


def spoken(number: float) -> str:
    """A number as a person reads it: four digits, and no powers of ten where they are not needed.

    >>> spoken(110812.3), spoken(0.012349), spoken(3.0), spoken(1e-7)
    ('110,812', '0.01235', '3', '1e-07')
    """
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.4g}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The words that are known, the nearest one first.

    >>> did_you_mean("pao-fde", ["fedavg", "pao-fed"])
    '"pao-fed" (known: fedavg, pao-fed)'
    """
    names = sorted(known)
    near = get_close_matches(word, names, 1)
    listed = ", ".join(names)
    return f'"{near[0]}" (known: {listed})' if near else f"one of {listed}"
