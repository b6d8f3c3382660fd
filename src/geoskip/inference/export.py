"""Trained models as programs that run without geoskip: ``torch.export``, and ONNX.

A program takes positions in the units of the training data and gives positions, or scores, back: normalization,
topology and pseudo-coordinates are inside. It is traced on the kernels' reference path, plain PyTorch, so that nothing
of geoskip's own operators is left in it; on large batches geoskip itself is faster. All operators and skips can be
traced. What cannot is a classifier of graphs: its graphs differ from item to item, and a program has a fixed one.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.graphs import Graph, RecordBuffers, attach
from geoskip.inference.predictors import Matcher, MeshCoder
from geoskip.kernels import use_path
from geoskip.operators import operator_info
from geoskip.records.files import atomic_write
from geoskip.shapes import Float
from geoskip.training.packed import own_scale, relative
from geoskip.training.trained import Trained


class ReconstructionProgram(nn.Module):
    """Positions to positions, ``[meshes, vertices, 3]``."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, coder: MeshCoder) -> None:
        super().__init__()
        self.model = coder.model
        self.register_buffer("mean", coder.mean)
        self.register_buffer("deviation", coder.deviation)

    def forward(self, verts: Float[Tensor, "meshes vertices 3"]) -> Float[Tensor, "meshes vertices 3"]:
        return self.model((verts - self.mean) / self.deviation) * self.deviation + self.mean


class MatchingProgram(nn.Module):
    """Positions of one mesh of the target's connectivity to scores of the target's vertices."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        self.model = matcher.model
        # Not ``graph``: a traced module has an attribute of that name.
        self.topology = RecordBuffers(matcher.graph(matcher.target))
        self.relative = operator_info(matcher.config.operator).uses_pseudo and matcher.config.pseudo == "position"

    def forward(self, verts: Float[Tensor, "vertices 3"]) -> Float[Tensor, "vertices targets"]:
        graph: Graph = self.topology()
        if self.relative:
            graph = attach(graph, relative(graph, verts, own_scale(graph, verts)))
        return self.model(verts, graph)


@dataclass(frozen=True)
class Program:
    """What is traced: a module, an example of its input, and which axes of that may have other lengths."""

    module: nn.Module
    example: Tensor
    dynamic: dict[int, Any]


def program_of(trained: Trained) -> Program:
    """The model as a function of positions alone; ValueError for a task that has none."""
    trained = trained.to("cpu")
    if trained.config.task == "reconstruction":
        coder = MeshCoder(trained)
        # Two, and different: an axis of length 1 would be taken for a constant.
        example = torch.stack([coder.mean, coder.mean + coder.deviation])
        return _warm(Program(ReconstructionProgram(coder).eval(), example, {0: torch.export.Dim("meshes", min=1)}))
    if trained.config.task == "correspondence":
        matcher = Matcher(trained)
        return _warm(Program(MatchingProgram(matcher).eval(), torch.tensor(matcher.target.verts).float(), {}))
    raise ValueError(
        "a classifier takes graphs that differ from item to item, and a program has one fixed graph: it cannot be "
        "exported as a program; share the folder with model.safetensors and config.json instead"
    )


def _warm(program: Program) -> Program:
    """Run once, so that graphs remember what operators derive from them (self-loops, Laplacians): a program then
    holds the result, not the sorting that led to it, for which ONNX has no function."""
    with torch.no_grad():
        program.module(program.example)
    return program


def export_program(path: Path, trained: Trained) -> torch.export.ExportedProgram:
    """Write the model as a ``torch.export`` program (``.pt2``), which ``torch.export.load`` reads."""
    program = program_of(trained)
    with _quiet():
        exported = torch.export.export(program.module, (program.example,), dynamic_shapes=(program.dynamic or None,))
        buffer = BytesIO()
        torch.export.save(exported, buffer)
    atomic_write(path, buffer.getvalue())
    return exported


def export_onnx(path: Path, trained: Trained) -> float | None:
    """Write the model as ONNX. Where onnxruntime is installed, run it there and return the largest difference from
    PyTorch's output, relative to its largest value; None where it is not."""
    _need_onnx()
    program = program_of(trained)
    with _quiet():
        made = torch.onnx.export(
            program.module,
            (program.example,),
            dynamo=True,
            dynamic_shapes=(program.dynamic or None,),
            input_names=["verts"],
            output_names=["verts_out" if program.dynamic else "scores"],
            verbose=False,
        )
        assert made is not None
        data = made.model_proto.SerializeToString()
    atomic_write(path, data)
    return _difference(path, program)


def _difference(path: Path, program: Program) -> float | None:
    if find_spec("onnxruntime") is None:
        return None
    onnxruntime = import_module("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {"verts": program.example.numpy()})[0])
    with torch.inference_mode():
        expected = program.module(program.example)
    return float((found - expected).abs().max() / expected.abs().max())


def _need_onnx() -> None:
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ImportError("exporting to ONNX needs onnx and onnxscript: pip install geoskip[export]")


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters warn and log about themselves (torchvision that is not there, and the like)."""
    before = logging.root.manager.disable
    with use_path("reference"), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
