"""A federation of networks does what bare PyTorch does, and clipping what Opacus does: `benchmarks/deep.py`, which also
measures what that costs.
"""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "deep.py"


@pytest.fixture
def benchmark():
    spec = importlib.util.spec_from_file_location("deep_benchmark", SCRIPT)
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield code
    torch.set_num_threads(before)


@pytest.mark.long
def test_a_round_of_ten_clients_is_that_of_bare_pytorch(benchmark, tmp_path):
    found = benchmark.rounds("cnn", 1, tmp_path)
    assert found["models_apart"] < 1e-2  # the same batches and arithmetic, in single precision


@pytest.mark.long
@pytest.mark.parametrize("widths", [(8, 16, 32), (32, 64, 512)])
def test_clipped_gradients_are_those_of_opacus(benchmark, widths):
    pytest.importorskip("opacus")
    assert benchmark.clipping(widths, 1)["sums_apart"] < 1e-4
