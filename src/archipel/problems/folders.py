"""Data of clients that have names: each one's files are its own, and at a site nobody else's are opened.

What others have is empty here, so that everyone's tables have the same rows, and a client's own row is the same
wherever it is built.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from archipel.clients import People
from archipel.errors import BadInput, Findings
from archipel.loading import is_of_file, load
from archipel.problems.cells import label_of
from archipel.problems.files import KEY, READERS, Client, Reading, as_it_is, found_at, settled
from archipel.problems.splits.shards import Shards, join


def read_people(
    people: People, data: str, how: Reading, width: tuple[int, ...], columns: tuple[str, ...] = (), key: str = KEY
) -> dict[str, Client]:
    """The samples of everyone who can be seen here, of inputs of a shape that is declared."""
    words = {name: np.zeros(0, object) for name in how.aside}
    nobody = Client(np.zeros((0, *width)), np.zeros(0), columns, aside=words)
    found, clients = Findings(), dict[str, Client]()
    for number, name in enumerate(people.names):
        with found:
            client = read_own(people, data, how, name, key) if people.sees(name) else nobody
            if client.x.shape[1:] != width:
                right = f"inputs of shape {width}, as the description says"
                raise BadInput(KEY, f"{name}, with inputs of shape {client.x.shape[1:]}", right)
            if people.samples and people.sees(name) and len(client.y) != people.samples[number]:
                right = f"{len(client.y)}, as many as its files have: who weighs by them must know"
                raise BadInput("clients.samples", f"{people.samples[number]} of {name}", right)
            clients[name] = client._replace(y=told_apart(name, client.y, how.positive)) if how.labels else client
    found.refuse()
    return clients


def together(clients: Mapping[str, Client]) -> Shards:
    """Clients that were read, as one table."""
    columns = next(iter(clients.values())).columns
    return join([(client.x, client.y) for client in clients.values()], clients, columns)


def read_own(people: People, data: str, how: Reading, name: str, key: str = KEY) -> Client:
    """All files of a client, in the order of their paths; or what a function of the user's says it has."""
    if is_of_file(data):
        if how.aside:
            raise BadInput("problem.group", how.aside[0], "none: what a function makes has no columns beside x and y")
        return from_function(load(data, KEY), name, how.labels)
    place = people.place(data, name)
    paths = sorted(path for path in found_at(place) if path.suffix.lower() in READERS and path.is_file())
    if not paths:
        raise BadInput(key, str(place), f"files of {name} there that end in {', '.join(READERS)}")
    found, parts = Findings(), list[Client]()
    for path in paths:
        with found:
            parts.append(as_it_is(path, how))
    found.all = [BadInput(one.key, f"{name}: {one.value}", one.right) for one in found.all]
    found.refuse()
    x, y = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    aside = {column: np.concatenate([part.aside[column] for part in parts]) for column in how.aside}
    whole = Client(x, y, parts[0].columns, sum(part.incomplete for part in parts), aside)
    return settled(whole, name, how)


def from_function(make: Any, name: str, labels: bool = False) -> Client:
    """What a user's function of the client's name returns: arrays (x, y), or a `torch.utils.data.Dataset` of pairs."""
    made = make(name)
    if not (isinstance(made, tuple) and len(made) == 2):
        pairs = [made[i] for i in range(len(made))]
        made = tuple(np.array([np.asarray(pair[side]) for pair in pairs]) for side in (0, 1))
    x = np.asarray(made[0], float)
    y = np.array([label_of(cell) for cell in made[1]], object) if labels else np.asarray(made[1], float)
    if x.ndim < 2 or y.shape != (len(x),) or not len(y):
        right = "a function that returns arrays x and y, a row of x for each y, or a data set of such pairs"
        raise BadInput(KEY, f"{make.__name__}({name!r}): x {x.shape}, y {y.shape}", right)
    return Client(x, y, ())


def told_apart(name: str, labels: Any, positive: str) -> Any:
    """Two labels as -1 and 1: who sees one client's cannot tell which there are, so the one that counts is declared."""
    kinds, one = sorted(set(labels.tolist())), label_of(positive)
    if len(kinds) > 2 or (len(kinds) == 2 and one not in kinds):
        right = f"two classes, of which {one} is one"
        raise BadInput("problem.target", f"{name}: {', '.join(kinds[:5])}", right)
    return np.where(labels == one, 1.0, -1.0)


def with_data(shards: Shards) -> Shards | None:
    """Those who have samples, alone; None where nobody has."""
    there = np.flatnonzero(shards.sizes)
    if not len(there):
        return None
    starts = np.concatenate([[0], np.cumsum(shards.sizes[there])])
    return Shards(shards.x, shards.y, starts, tuple(shards.names[k] for k in there.tolist()), shards.columns)
