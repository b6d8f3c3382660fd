"""Trained models as programs that run without geoskip: those of ``torch.export``, and ONNX.

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
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import torch

from geoskip.kernels import use_path
from geoskip.records.files import atomic_write
from geoskip.training.tasks import Program, find_task
from geoskip.training.trained import Trained


def program_of(trained: Trained) -> Program:
    """The model as a function of one tensor; ValueError for a task that has none."""
    trained = trained.to("cpu")
    program = find_task(trained.config.task).program(trained.config, trained.model, trained.context)
    # Run once, so that graphs remember what operators derive from them (self-loops, Laplacians): a program then holds
    # the result, not the sorting that led to it, for which ONNX has no function.
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
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ImportError("exporting to ONNX needs onnx and onnxscript: pip install 'geoskip[export]'")
    program = program_of(trained)
    with _quiet():
        exported = torch.onnx.export(
            program.module,
            (program.example,),
            dynamo=True,
            dynamic_shapes=(program.dynamic or None,),
            input_names=["verts"],
            output_names=["verts_out" if program.dynamic else "scores"],
            verbose=False,
        )
        assert exported is not None
        data = exported.model_proto.SerializeToString()
    atomic_write(path, data)
    return _difference(path, program)


def _difference(path: Path, program: Program) -> float | None:
    if find_spec("onnxruntime") is None:
        return None
    onnxruntime = import_module("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    output = torch.from_numpy(session.run(None, {"verts": program.example.numpy()})[0])
    with torch.inference_mode():
        expected = program.module(program.example)
    return float((output - expected).abs().max() / expected.abs().max())


@contextmanager
def _quiet() -> Iterator[None]:
    """Trace the reference formulas, and hide the warnings of the exporters, such as that of a missing torchvision."""
    before = logging.root.manager.disable
    with use_path("reference"), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
