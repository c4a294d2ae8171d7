"""Steps on the last samples, against a loop that says so, and against plain online steps."""

from types import SimpleNamespace

import numpy as np
import pytest

from archipel import Federation, Linear, PaoFed
from archipel.errors import BadInput
from archipel.parts.learn.online import Steps
from archipel.parts.learn.replay import Memory, Replay, recall
from archipel.parts.protect.sample import AtSample
from archipel.privacy.policy import Privacy

STREAM = Linear(clients=4, size=6, samples=40)


def test_a_memory_of_three_against_a_list():
    draw = np.random.default_rng(3)
    memory = Memory(np.zeros((3, 5)), np.zeros((3, 1)), np.zeros(1, np.int64))
    me = SimpleNamespace(model=np.zeros(5), learn=memory)
    settings = SimpleNamespace(learn=Steps(0.1, 0))
    model, past = np.zeros(5), []
    for _ in range(11):
        x, y = draw.standard_normal(5), draw.standard_normal()
        past = [(x, y), *past][:3]  # the newest first
        for features, target in past:
            model = model + 0.1 * (target - features @ model) * features
        recall(me, SimpleNamespace(features=x, target=np.array([y])), settings, None)
        np.testing.assert_allclose(me.model, model, rtol=1e-12)


def test_a_memory_of_one_is_an_online_step():
    plain = Federation(STREAM, PaoFed(step=0.05), rounds=30, engine="plain", precision="float64")
    recalled = plain.with_(algorithm=PaoFed(step=0.05, learn=Replay(0.05, 1)))
    assert np.array_equal(plain.run().models[0]["clients"], recalled.run().models[0]["clients"])


def test_a_sample_in_several_steps_is_not_protected_by_paying_once():
    private = PaoFed(learn=Replay(0.1, 3), protect=AtSample())
    with pytest.raises(BadInput, match="at-word"):
        Federation(STREAM, private, privacy=Privacy(epsilon=1.0, clip=1.0)).instance()
