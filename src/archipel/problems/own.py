"""A user's own data as a problem, looked at first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from archipel.clients import People
from archipel.describe import REQUIRED, key
from archipel.errors import BadInput
from archipel.problems import files, folders, look, units
from archipel.problems.cells import label_of
from archipel.problems.losses.online import ONLINE_LOSSES
from archipel.problems.losses.supervised import LOSSES
from archipel.problems.measured import UNCHANGED, framed, measured_task
from archipel.problems.models.fourier import fourier, mapped
from archipel.problems.networked import deviation
from archipel.problems.scoring.centralised import centralised
from archipel.problems.scoring.tested import Losses, Tested
from archipel.problems.splits.dealing import Split
from archipel.problems.splits.shards import Scaling, Shards, TrainTest, divide, hold_groups, remaining, standard
from archipel.problems.stored import played_again, streamed_task
from archipel.problems.task import MOST_COSINES, Problem, Task

MEANS = "the means that stand in missing cells do not depend on the sample that is protected"


@dataclass(frozen=True)
class Files(Problem):
    """A user's own data: one file a client (npz with x and y, csv or parquet with a named target).

    Units that are known, `center` and `scale`, cost no privacy; others are taken from everyone's data, and then every
    guarantee says `assumed`. With a table [clients] each client's files are its own, in a folder of its name (or where
    {name} stands), and nothing is taken from everyone's data: columns and units are declared.
    """

    takes_clients: ClassVar[bool] = True

    data: str = key(
        REQUIRED, 'the clients\' files: a folder, or a pattern such as "sensors/*.csv"; or file.py:function of a name'
    )
    target: str = key("y", "the column that is predicted")
    columns: tuple[str, ...] = key((), "the columns to predict from; none named: all but the target")
    inputs: tuple[str, ...] = key((), "the same as columns")
    unit: str = key("", 'the unit of the target, as in "mg/l", for reports')
    separator: str = key("", "what stands between the cells of a csv; none given: what its header has most of")
    missing: str = key(
        "refuse", "rows that lack a value: refused, left out, or filled", choices=("refuse", "skip", "mean")
    )
    categories: dict = key(dict, 'columns of words and their values, as in {ward = ["a", "b"]}; each becomes 0 and 1')
    positive: str = key("", "the label that counts as 1; none given: yes, true, 1, or the larger")
    test: float | str = key(
        0.2, "what models are tested on: a share of each client's samples, or other files", above=0, below=1,
        noun="a folder or pattern of files, or a share",
    )  # fmt: skip
    hold: str = key(
        "random", "what is held out for the test: samples of each client, its last ones, whole groups, or whole files",
        choices=("random", "last", "groups", "files"),
    )  # fmt: skip
    group: str = key("", "the column that says which samples belong together, where hold = groups; no input")
    split: Split = key(Split, "how all samples together are dealt to clients, where a file is not a client")
    loss: str = key(
        "squared", "what is minimised; a sample is a slope for linear, a point for distance, without a target",
        choices=tuple(ONLINE_LOSSES),
    )  # fmt: skip
    intercept: bool | None = key(None, "whether a model has a constant input; not given: where the loss is logistic")
    features: int = key(
        0, "how many random Fourier features inputs pass through; 0: none", at_least=0, at_most=MOST_COSINES
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)
    standardise: bool | None = key(
        None, "whether inputs (and a target that is a number) have mean 0 and deviation 1; not given: with a target"
    )
    center: dict = key(dict, "what is subtracted from a column, by its name; public, not taken from the data")
    scale: dict | str = key(
        dict, "what a column is divided by, by its name, or {unit, center, spread}, public; or private: found together"
    )
    ranges: dict = key(dict, 'where a column\'s values lie, [low, high], by its name; public, for scale = "private"')
    price: float = key(
        0.01, 'what a client pays for units, where scale = "private": zero-concentrated differential privacy',
        above=0, symbol="rho",
    )  # fmt: skip
    horizon: int = key(
        0, "the rounds over which a client's samples arrive in a stream; 0: those of the run", at_least=0, unit="rounds"
    )
    judged: str = key(
        "together", "tested on everyone's samples, or each client's own model on its own", choices=("together", "own")
    )
    regret: bool = key(False, "whether an online algorithm's regret is measured: the stream is played once more for it")
    reference: bool = key(
        False, "whether models are compared with the exact, centralised solution, where data are stored"
    )
    l1: float = key(0.0, "the weight of ||w||_1 beside the sum of the clients' mean losses", at_least=0)
    l2: float = key(0.0, "the weight of ||w||^2 beside the sum of the clients' mean losses", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs and self.columns:
            raise BadInput("problem.inputs", list(self.inputs), "either inputs or columns, which are the same")
        object.__setattr__(self, "columns", self.inputs or self.columns)
        object.__setattr__(self, "inputs", ())
        for name, values in self.categories.items():
            words = values if isinstance(values, list | tuple) else ()
            good = words and all(isinstance(word, str | int | float) for word in words) and len({*words}) == len(words)
            if not good:
                raise BadInput(f"problem.categories.{name}", values, 'its values, each once, as in ["east", "west"]')
        for name, value, wanted, when in (
            ("group", self.group, self.hold == "groups", 'hold = "groups"'),
            ("split.column", self.split.column, self.split.kind == "column", 'split.kind = "column"'),
        ):
            if bool(value) != wanted or (value and value in (*self.columns, self.target)):
                raise BadInput(f"problem.{name}", value, f"a column that is no input, with {when}; else none")
        if self.aims and self.standardise is None:
            object.__setattr__(self, "standardise", True)
        others = {"features": self.features, "intercept": self.intercept, "standardise": self.standardise}
        for name, needless in others.items():
            if not self.aims and needless:
                raise BadInput(f"problem.{name}", needless, f'none with loss = "{self.loss}": samples are as they are')
        if len(self.separator) > 1:
            raise BadInput("problem.separator", self.separator, "one character")
        if self.positive and self.loss != "logistic":
            raise BadInput("problem.positive", self.positive, 'none, or loss = "logistic": only labels have one')
        twice = [name for place, name in enumerate(self.columns) if name in self.columns[:place]]
        if twice:
            raise BadInput("problem.columns", twice[0], "each column once")
        units.check_ranges(self)
        for column, given in self.scale.items() if isinstance(self.scale, dict) else ():
            if isinstance(given, dict) and not set(given) <= {"unit", "center", "spread"}:
                raise BadInput(f"problem.scale.{column}", given, "a table of unit, center and spread")
            if isinstance(given, dict) and "center" in given and column in self.center:
                raise BadInput(f"problem.center.{column}", self.center[column], "one center for a column")
        for name, given in (("center", self.centers), ("scale", self.spreads)):
            for column, value in given.items():
                good = isinstance(value, int | float) and np.isfinite(value) and (name == "center" or value > 0)
                if isinstance(value, bool) or not good:
                    right = "a finite number" if name == "center" else "a positive number"
                    raise BadInput(f"problem.{name}.{column}", value, right)

    @property
    def finds_units(self) -> bool:
        return isinstance(self.scale, str)

    def of_columns(self, key: str) -> dict[str, Any]:
        """The unit, center or spread of the columns that say so in a table; a number alone is a spread."""
        scale = self.scale if isinstance(self.scale, dict) else {}
        tables = {name: given if isinstance(given, Mapping) else {"spread": given} for name, given in scale.items()}
        return {name: given[key] for name, given in tables.items() if key in given}

    @property
    def centers(self) -> dict[str, Any]:
        """What is subtracted from a column."""
        return self.center | self.of_columns("center")

    @property
    def spreads(self) -> dict[str, Any]:
        """What a column is divided by."""
        return self.of_columns("spread")

    @property
    def aims(self) -> bool:
        """Whether a sample has a target."""
        return self.loss in LOSSES

    @property
    def reading(self) -> files.Reading:
        """How the files are read."""
        labels, target = self.loss == "logistic", self.target if self.aims else ""
        aside = (self.group, self.split.column)
        return files.Reading(
            target, self.columns, self.separator, self.missing, labels, self.positive, self.words,
            tuple(dict.fromkeys(filter(None, aside))), {} if self.ranges else self.centers, True,
        )  # fmt: skip

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The values of the columns of words, as labels."""
        return {name: tuple(map(label_of, values)) for name, values in self.categories.items()}

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str, people: People | None = None) -> Task:
        """The files' samples, split into training and test."""
        for name, weight in (("l1", self.l1), ("l2", self.l2)):
            if weight > 0 and data_kind == "stream":
                raise BadInput(f"problem.{name}", weight, "0 for an algorithm that learns from a stream")
        if not self.aims and data_kind != "stream":
            right = f"{', '.join(LOSSES)}: this algorithm learns from stored data, not from a stream"
            raise BadInput("problem.loss", self.loss, right)
        if people is not None and self.split.kind != "none":
            raise BadInput("problem.split.kind", self.split.kind, "none: clients with names have data of their own")
        if people is None:
            found = files.read_all(self.data, self.reading)
            everyone = self.split.dealt(found, seed)
            train, test = files.split(everyone, self.data, self.test, self.reading, seed, self.hold, self.group)
            labels = files.labels(everyone, self.test, self.reading) if self.loss == "logistic" else ()
            clients = {path.stem: client for path, client in everyone.items()}
            given = {path.stem: client for path, client in found.items()}
        else:
            clients = given = self.read_apart(people)
            train, test = self.split_apart(people, clients, seed)
            labels = (f"not {self.positive}", self.positive) if self.loss == "logistic" else ()
        unit = self.unit or self.of_columns("unit").get(self.target, "")
        notes, listed = self.seen(clients, train, test, rounds, data_kind, given)
        plain = self.in_units(train, test, dtype, people is not None)
        data = self.with_intercept(plain)
        horizon = self.horizon or rounds
        if self.aims:
            task = measured_task(data, self.features, self.width, self.loss, seed, horizon, dtype, data_kind)
        else:
            task = streamed_task(data.train, unmeasured, None, horizon, dtype)._replace(loss=ONLINE_LOSSES[self.loss])
        told = () if people is not None or self.all_public(train) else task.assumed_public
        apart = (MEANS,) if self.missing == "mean" else ()
        score = self.scorer(data, seed, dtype, people).score if len(test.y) else unmeasured
        if self.aims:
            task = framed(
                task, inputs=train.x.shape[1:], columns=train.columns, constant=data is not plain, target=self.target,
                unit=unit, units=self.of_columns("unit"), labels=labels, categories=self.words,
                filled=self.known_means(train.columns, people is not None),
            )  # fmt: skip
        task = task._replace(
            regulariser=(float(self.l1), float(self.l2)), score=score, assumed_public=told, assumed_apart=apart,
            notes=notes, listed=listed, unit=unit, holdings=look.holdings(train, labels) if self.aims else None,
        )  # fmt: skip
        if self.reference or self.regret:
            task = self.measured_against(task, seed, data_kind, people)
        if people is None:
            return task._replace(declared=self.declared(train.columns))
        declared = (f"the names of {len(people.names)} clients", *self.declared(train.columns))
        declared += ("everyone's number of samples",) if people.samples else ()
        return task._replace(local_only=True, at=people.at, samples=self.left_to_learn(people), declared=declared)

    def measured_against(self, task: Task, seed: int, data_kind: str, people: People | None) -> Task:
        """With the regret of a stream, or the distance to the centralised solution of what is stored."""
        for name, wanted, kind in (("regret", self.regret, "stream"), ("reference", self.reference, "stored")):
            if wanted and (data_kind != kind or people is not None):
                right = f"false: this algorithm does not learn from {'a stream' if kind == 'stream' else 'stored data'}"
                apart = "false: nobody sees everyone's data"
                raise BadInput(f"problem.{name}", True, right if data_kind != kind else apart)
        if self.regret:
            return task._replace(oracle=played_again(task, seed))
        source, (l1, l2), tested = task.source, task.regulariser, task.score
        weight = np.repeat(1 / np.maximum(np.diff(source.starts), 1), np.diff(source.starts))
        exact = centralised(source.x.astype(float), source.y.astype(float), weight, self.loss, l1, l2)
        return task._replace(score=lambda models, round: tested(models, round) | deviation(models, exact))

    def declared(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """What the description makes public of the data, in words."""
        said = [f"the columns {', '.join(self.columns)} and {self.target}"] if self.columns else []
        given = [name for name in (*columns, self.target) if name in self.centers or name in self.spreads]
        what = "ranges, in which units are found with noise," if self.ranges else "units (center and spread)"
        said += [f"the {what} of {', '.join(given)}"] if given else []
        said += [f"the values of {name}: {', '.join(words)}" for name, words in self.words.items()]
        said += [f"that {self.target} = {self.positive} counts as 1"] if self.positive else []
        return tuple(said)

    # --- clients that keep their data to themselves -------------------------------------------------------------------

    def read_apart(self, people: People) -> dict[str, files.Client]:
        """Everyone's samples, as far as they can be seen here."""
        columns = self.made_columns()
        self.check_declared()
        clients = folders.read_people(people, self.data, self.reading, (len(columns),), columns)
        units.check_declared(self)  # after that: a column that is not there needs no units
        return clients

    def check_declared(self) -> None:
        """Refuse what would have to be taken from everyone's data."""
        apart = "nobody sees everyone's data"
        if not self.columns:
            raise BadInput("problem.columns", "(none)", f"the columns to predict from, by name: {apart}")
        if self.loss == "logistic" and not self.positive:
            raise BadInput("problem.positive", "(none)", f"the label that counts as 1: {apart}")

    def made_columns(self) -> tuple[str, ...]:
        """The inputs, where words have become columns of 0 and 1."""
        made: list[str] = []
        for name in self.columns:
            words = self.words.get(name)
            made += [name] if words is None else [f"{name}={word}" for word in words]
        return tuple(made)

    def split_apart(self, people: People, clients: Mapping[str, files.Client], seed: int) -> tuple[Shards, Shards]:
        """What is learned from and what is tested on: a share of each client's samples, or other files of its own."""
        everything = folders.together(clients)
        if self.hold == "files":
            raise BadInput("problem.hold", "files", "random, last or groups: each client tests on samples of its own")
        if self.hold == "groups" and not isinstance(self.test, str):
            return hold_groups(everything, [one.aside[self.group] for one in clients.values()], self.test, seed)
        if not isinstance(self.test, str):
            return divide(everything, self.test, self.hold, seed)
        columns, unknown = self.made_columns(), people._replace(samples=())
        apart = folders.read_people(unknown, self.test, self.reading, (len(columns),), columns, "problem.test")
        return everything, folders.together(apart)

    def left_to_learn(self, people: People) -> tuple[int, ...]:
        """Everyone's number of samples to learn from, where numbers are public."""
        if isinstance(self.test, str):
            return people.samples
        if self.hold == "groups" and people.samples:
            right = "random or last: how many samples whole groups leave is not known where numbers are public"
            raise BadInput("problem.hold", self.hold, right)
        return tuple(remaining(people.samples, self.test).tolist())

    # --- a look -------------------------------------------------------------------------------------------------------

    def seen(
        self,
        clients: Mapping[str, files.Client],
        train: Shards,
        test: Shards,
        rounds: int,
        data_kind: str,
        given: Mapping[str, files.Client],
    ) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        """What is to be said of the data, and a row for each client that has any here."""
        if (there := folders.with_data(train)) is None:
            return (), []
        train = there
        labels, left_out = self.loss == "logistic", files.left_out(self.data)
        said = look.remarks(train, self.reading.target, labels, left_out)
        incomplete = {name: client.incomplete for name, client in clients.items()}
        said += look.missing(given, self.missing, self.centers)
        used = train.sizes
        if data_kind == "stream":
            horizon = self.horizon or rounds
            used = (np.minimum(used, horizon) * min(rounds / horizon, 1.0)).astype(int)
            if used.sum() < train.sizes.sum():
                total = f"{used.sum():,} of {train.sizes.sum():,} rows to learn from"
                said.append(f"{total} will be used: a client sees at most one a round, for {rounds:,} rounds.")
        return tuple(said), look.table(train, test, incomplete, used, labels, self.aims)

    def all_public(self, shards: Shards) -> bool:
        """Whether no unit is taken from the data."""
        needed = set(shards.columns) | ({self.target} if self.loss != "logistic" else set())
        return not self.standardise or bool(shards.columns and needed <= set(self.centers) & set(self.spreads))

    def in_units(self, train: Shards, test: Shards, dtype: Any, declared: bool = False) -> TrainTest:
        """Both sets in the units of the run, which its precision can hold."""
        for given in (train, test):
            look.check_size(given, given, np.float64)
        for name in {**self.centers, **self.spreads}:
            if name not in (*train.columns, self.target):
                raise BadInput("problem.scale", name, f"a column: {', '.join((*train.columns, self.target))}")
        from_data = self.standardise and not declared
        inputs = standard(train.x, train.columns) if from_data else UNCHANGED
        target = standard(train.y) if from_data and self.loss != "logistic" else UNCHANGED
        if {**self.centers, **self.spreads}:
            inputs, target = self.public(inputs, train.columns), self.public(target, (self.target,), alone=True)
        data = TrainTest(train.scaled(inputs, target), test.scaled(inputs, target), inputs, target)
        for given, scaled in ((train, data.train), (test, data.test)):
            look.check_size(given, scaled, dtype, " in standard units" if self.standardise else "")
        return data

    def known_means(self, columns: tuple[str, ...], declared: bool = False) -> tuple[str, ...]:
        """The columns whose center may stand for a missing cell: the mean of the data, or one that is declared."""
        known = columns if self.standardise and not declared else self.centers
        return tuple(name for name in columns if self.missing == "mean" and name in known)

    def public(self, given: Scaling, columns: tuple[str, ...], alone: bool = False) -> Scaling:
        """The units that the user gave in place of those of the data."""
        mean = np.broadcast_to(np.asarray(given.mean, float), len(columns)).copy()
        deviation = np.broadcast_to(np.asarray(given.deviation, float), len(columns)).copy()
        for j, name in enumerate(columns):
            mean[j] = self.centers.get(name, mean[j])
            deviation[j] = self.spreads.get(name, deviation[j])
        return Scaling(mean[0], deviation[0]) if alone else Scaling(mean, deviation)

    def with_intercept(self, data: TrainTest) -> TrainTest:
        """A constant input more, where the model has an intercept."""
        wanted = self.loss == "logistic" and not self.features if self.intercept is None else self.intercept
        if not wanted:
            return data
        train, test = (
            Shards(
                np.c_[s.x, np.ones(len(s.y))], s.y, s.starts, s.names, (*s.columns, "(constant)") if s.columns else ()
            )
            for s in (data.train, data.test)
        )
        return TrainTest(train, test, data.inputs, data.target)

    def scorer(self, data: TrainTest, seed: int, dtype: Any, people: People | None = None) -> Any:
        """How models are scored: on everyone's test samples, or each client's on its own."""
        test, own = data.test, self.judged == "own"
        at_site = people is not None and people.site is not None
        if own and not at_site and (test.names != data.train.names or np.any(test.sizes == 0)):
            raise BadInput("problem.judged", "own", "test samples of every client that learns, and of nobody else")
        x = np.asarray(test.x, dtype)
        if not self.aims:
            return Losses(Shards(x, test.y, test.starts, test.names), ONLINE_LOSSES[self.loss])
        if self.features:
            x = mapped(fourier(x.shape[1], self.features, self.width, seed, dtype), x)
        shards = Shards(x, np.asarray(test.y, dtype), test.starts, test.names)
        unit = float(np.asarray(data.target.deviation))
        return Tested(shards, data.train.names, self.loss == "logistic", unit, own)


def unmeasured(models: dict[str, Any], round: int) -> dict[str, Any]:
    """There is nothing here to test models on."""
    return {}
