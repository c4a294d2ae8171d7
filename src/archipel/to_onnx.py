"""A bundle as ONNX: rows in the user's units in, what `predict` says out. Linear, Fourier and torch models.

The input `rows` is in double precision, so that units with large numbers lose nothing; a model itself runs in its own.
Of labels the output is the probability of the one that stands for 1, of classes the probability of each.
"""

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from archipel.bundle import Bundle
from archipel.errors import BadInput, Missing
from archipel.problems.frame import CLASS, LABEL, NUMBER

OPSET = 17
IR = 8  # of the file format: what runtimes of that time read
OUTPUT = {NUMBER: "prediction", LABEL: "probability", CLASS: "probabilities"}


class Graph:
    """Nodes one after the other: each takes what the last one gave."""

    def __init__(self, onnx: Any):
        self.helper, self.tensors = onnx.helper, onnx.numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.last = "rows"

    def add(self, kind: str, *constants: Any, **settings: Any) -> None:
        """A node, with arrays beside what comes in."""
        names = []
        for array in constants:
            names.append(f"c{len(self.constants)}")
            self.constants.append(self.tensors.from_array(np.ascontiguousarray(array), names[-1]))
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, [self.last, *names], [name], **settings))
        self.last = name

    def cast(self, dtype: Any) -> None:
        self.add("Cast", to=self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def onnx_here() -> Any:
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise Missing("ONNX needs its own package: pip install 'archipel[onnx]'.") from None
    return onnx


def save(bundle: Bundle, path: Path, client: str | int | None = None, module: Any = None) -> None:
    """Write the model of the server, or of a client, and check it."""
    onnx, frame = onnx_here(), bundle.framed()
    if frame.network is None:
        model = linear(onnx, frame, bundle.model(client))
    else:
        model = onnx.load_model_from_string(network(frame, bundle.module(client, module)))
    told = {
        "columns": frame.columns,
        "target": frame.target,
        "unit": frame.unit,
        "units": frame.units,
        "labels": frame.labels,
    }
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in told.items()})
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def linear(onnx: Any, frame: Any, weights: Any) -> Any:
    """A linear model, or one of random Fourier features, with what stands around it."""
    graph = Graph(onnx)
    product(graph, frame, weights)
    graph.cast(np.float64)
    if frame.predicts == LABEL:
        graph.add("Sigmoid")
    else:
        graph.add("Mul", np.float64(frame.target_spread))
        graph.add("Add", np.float64(frame.target_center))
    name, double = OUTPUT[frame.predicts], onnx.TensorProto.DOUBLE
    graph.nodes[-1].output[0] = name
    comes = onnx.helper.make_tensor_value_info("rows", double, ["n", *frame.inputs])
    goes = onnx.helper.make_tensor_value_info(name, double, ["n"])
    made = onnx.helper.make_graph(graph.nodes, "archipel", [comes], [goes], graph.constants)
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="archipel")
    model.ir_version = IR
    return model


def product(graph: Graph, frame: Any, weights: Any) -> None:
    """(x - center) / spread, random Fourier features, one product. A constant input is what is added."""
    dtype, (width,) = np.dtype(frame.precision), frame.inputs
    graph.add("Sub", np.asarray(frame.center, float))
    graph.add("Div", np.asarray(frame.spread, float))
    if frame.world is not None:  # ONNX's cosine is in single precision
        directions, phases, dtype = frame.world.directions, frame.world.phases, np.dtype(np.float32)
        phases = phases + directions[width:].sum(0)
        graph.cast(dtype)
        graph.add("MatMul", directions[:width].astype(dtype))
        graph.add("Add", phases.astype(dtype))
        graph.add("Cos")
        graph.add("Mul", np.asarray(frame.world.scale, dtype))
        graph.add("MatMul", weights.astype(dtype))
        return
    graph.cast(dtype)
    graph.add("MatMul", weights[:width].astype(dtype))
    if frame.constant:
        graph.add("Add", weights[width].astype(dtype))


def network(frame: Any, module: Any) -> bytes:
    """A torch module between the units of its inputs and of what it predicts, by PyTorch's own exporter."""
    import torch

    from archipel.problems.models.networks import Units

    told = frame.network
    units = Units(float(told["top"]), float(told["center"]), float(told["spread"]))

    class Framed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module.to(torch.float32)

        def forward(self, rows: Any) -> Any:
            answers = self.module(units.apply(rows).to(torch.float32)).to(torch.float64)
            return torch.softmax(answers, 1) if frame.predicts == CLASS else answers[:, 0]

    file, names = io.BytesIO(), ("rows", OUTPUT[frame.predicts])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", DeprecationWarning)  # the newer exporter needs more packages
        try:
            torch.onnx.export(
                Framed().eval(), (torch.zeros(2, *frame.inputs, dtype=torch.float64),), file, dynamo=False,
                opset_version=OPSET, input_names=names[:1], output_names=names[1:],
                dynamic_axes={name: {0: "n"} for name in names},
            )  # fmt: skip
        except RuntimeError as problem:
            said = str(problem).splitlines()[0]
            raise BadInput("module", type(module).__name__, f"a network that ONNX can say ({said})") from problem
    return file.getvalue()
