"""What a federation of networks costs beside bare PyTorch, and clipping beside Opacus: `benchmarks/deep.py`, held."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "deep.py"
DEARER = 1.15


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
def test_a_round_of_ten_clients_costs_what_bare_pytorch_costs(benchmark, tmp_path):
    found = benchmark.rounds("cnn", 7, tmp_path)
    assert found["ratio"] <= DEARER, found
    assert found["models_apart"] < 1e-2  # the same batches and arithmetic, in single precision


@pytest.mark.long
@pytest.mark.parametrize(("widths", "repeats"), [((8, 16, 32), 15), ((32, 64, 512), 4)])
def test_clipping_costs_no_more_than_opacus(benchmark, widths, repeats):
    pytest.importorskip("opacus")
    found = benchmark.clipping(widths, repeats)
    assert found["ratio"] <= DEARER, found
    assert found["sums_apart"] < 1e-4
