"""A bundle as ONNX: rows in the user's units in, what `predict` says out. Linear, Fourier and torch models.

The input `rows` is in double precision, so that units with large numbers lose nothing; a model itself runs in its own.
Of labels the output is the probability of the one that stands for 1, of classes the probability of each.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from archipel.bundle import Bundle
from archipel.errors import BadInput, Missing
from archipel.problems.frame import CLASS, LABEL

OPSET = 17
OUTPUT = {LABEL: "probability", CLASS: "probabilities"}


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
    graph = Graph(onnx)
    if frame.network is None:
        linear(graph, frame, bundle.model(client))
    else:
        network(graph, frame, bundle.module(client, module))
    graph.cast(np.float64)
    if frame.predicts == LABEL:
        graph.add("Sigmoid")
    elif frame.predicts == CLASS:
        graph.add("Softmax", axis=1)
    else:
        graph.add("Mul", np.float64(frame.target_spread))
        graph.add("Add", np.float64(frame.target_center))
    name = OUTPUT.get(frame.predicts, "prediction")
    graph.nodes[-1].output[0] = name
    double = onnx.TensorProto.DOUBLE
    comes = onnx.helper.make_tensor_value_info("rows", double, ["n", *frame.inputs])
    shape = ["n", frame.network["answers"]] if frame.predicts == CLASS and frame.network else ["n"]
    goes = onnx.helper.make_tensor_value_info(name, double, shape)
    made = onnx.helper.make_graph(graph.nodes, "archipel", [comes], [goes], graph.constants)
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="archipel")
    model.ir_version = 8
    told = {"columns": frame.columns, "target": frame.target, "unit": frame.unit, "labels": frame.labels}
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in told.items()})
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def linear(graph: Graph, frame: Any, weights: Any) -> None:
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


def network(graph: Graph, frame: Any, module: Any) -> None:
    """The layers of a sequence, with the units of its inputs before them."""
    from torch import nn

    told, dtype = frame.network, np.dtype(np.float32)
    graph.add("Div", np.float64(told["top"] * told["spread"]))
    graph.add("Sub", np.float64(told["center"] / told["spread"]))
    graph.cast(dtype)
    for layer in module if isinstance(module, nn.Sequential) else [module]:
        if isinstance(layer, nn.Linear):
            bias = layer.bias if layer.bias is not None else layer.weight.new_zeros(layer.out_features)
            graph.add("MatMul", array_of(layer.weight).T)
            graph.add("Add", array_of(bias))
        elif isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
            weights = [array_of(p) for p in (layer.weight, layer.bias) if p is not None]
            graph.add(
                "Conv", *weights, strides=layer.stride, pads=[*layer.padding] * 2, dilations=layer.dilation,
                group=layer.groups, kernel_shape=layer.kernel_size,
            )  # fmt: skip
        elif isinstance(layer, nn.MaxPool2d) and not layer.return_indices:
            sides = {"kernel_shape": pair(layer.kernel_size), "strides": pair(layer.stride)}
            more = {
                "pads": pair(layer.padding) * 2,
                "dilations": pair(layer.dilation),
                "ceil_mode": int(layer.ceil_mode),
            }
            graph.add("MaxPool", **sides, **more)
        elif isinstance(layer, nn.Flatten) and layer.start_dim == 1:
            graph.add("Flatten", axis=1)
        elif isinstance(layer, nn.ReLU | nn.Tanh | nn.Sigmoid | nn.Identity):
            graph.add({nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid"}.get(type(layer), "Identity"))
        else:
            right = "an nn.Sequential of Linear, Conv2d, MaxPool2d, Flatten, ReLU, Tanh, Sigmoid; others by torch.onnx"
            raise BadInput("module", type(layer).__name__, right)
    if frame.predicts != CLASS:
        graph.add("Squeeze", np.array([1], np.int64))


def array_of(parameter: Any) -> Any:
    return parameter.detach().numpy().astype(np.float32)


def pair(side: Any) -> list[int]:
    return [side, side] if isinstance(side, int) else list(side)
