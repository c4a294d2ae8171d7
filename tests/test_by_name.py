"""Budgets, groups, availability and samples by clients' names, whatever the order of the names."""

import numpy as np
import pytest

from archipel import Environment, Federation, Linear, PaoFed, Peers, Privacy, Synthetic, ZcdpNfl
from archipel.errors import BadInput

PEERS = Federation(
    Linear(clients=3, size=2, samples=5, test=5), ZcdpNfl(), Peers(shape="ring"),
    privacy=Privacy(epsilon=1.0, clip=1.0), rounds=4, every=4, engine="plain",
)  # fmt: skip


def budgets(epsilon):
    private = PEERS.with_(privacy=Privacy(epsilon=epsilon, clip=1.0))
    return [node["budget"]["epsilon"] for node in private.run().ledgers[0]["nodes"]]


def test_budgets_by_name_are_those_of_a_list():
    named = {"client-2": 3.0, "client-0": 1.0, "client-1": 2.0}
    assert budgets(named) == budgets((1.0, 2.0, 3.0)) == [1.0, 2.0, 3.0]
    assert budgets({"client-1": 2.0, "others": 0.5}) == [0.5, 2.0, 0.5]


def test_a_description_with_names_is_written_and_read_again(tmp_path):
    private = PEERS.with_(privacy=Privacy(epsilon={"client-1": 2.0, "others": 0.5}, clip=1.0))
    (tmp_path / "f.toml").write_text(private.to_toml())
    assert Federation.load(tmp_path / "f.toml").privacy == private.privacy


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        ({"client-9": 1.0, "others": 2.0}, r'privacy\.epsilon\.client-9 = 1\.0: expected a client\'s name: "client-'),
        ({"client-0": 1.0}, "none for client-1, client-2"),
        ({"client-0": -1.0, "others": 2.0}, r"privacy\.epsilon\.client-0 = -1\.0: expected a positive"),
        ({"client-0": "much", "others": 2.0}, r"privacy\.epsilon\.client-0 = \"much\": expected a number"),
        ({"client-0": True, "others": 2.0}, r"privacy\.epsilon\.client-0"),
        ({}, "a number for each client"),
    ],
)
def test_wrong_names_and_numbers_are_sentences(epsilon, said):
    with pytest.raises(BadInput, match=said):
        PEERS.with_(privacy=Privacy(epsilon=epsilon, clip=1.0)).setup()


def test_who_is_there_and_in_which_group_by_name():
    stream = Federation(Synthetic(clients=3, features=4, test=5), PaoFed(portion=2), rounds=4)
    for environment in (
        Environment(availability={"client-1": 0.25, "others": 0.5}),
        Environment(availability=(0.5, 0.25), groups={"client-1": 1, "others": 0}),
    ):
        chance = stream.with_(environment=environment).instance().conditions.chance
        np.testing.assert_array_equal(chance, [[0.5, 0.25, 0.5]])
    with pytest.raises(BadInput, match=r"environment\.groups\.clien"):
        stream.with_(environment=Environment(availability=(0.5, 0.25), groups={"clien": 1})).instance()


def test_samples_by_name():
    from archipel.clients import Clients

    assert Clients(names=("b", "a"), samples={"a": 1, "b": 2}).samples == (2, 1)
    for wrong in ({"a": 0, "b": 1}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1.5, "b": 1}):
        with pytest.raises(BadInput, match=r"clients\.samples"):
            Clients(names=("b", "a"), samples=wrong)


def test_models_have_the_clients_names(tmp_path):
    result = PEERS.run()
    result.save(tmp_path)
    with np.load(tmp_path / "models.npz") as models:
        assert models["names"].tolist() == ["client-0", "client-1", "client-2"]
        assert len(models["names"]) == len(models["clients"])
