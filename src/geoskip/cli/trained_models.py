"""``geoskip evaluate``, ``apply`` and ``export``: what to do with a trained model."""

import json
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.console import print_table
from geoskip.cli.options import AsJson, Axis, Device, Force, MovedData, OutputFolder, RunFolder, UpAxis, parse_integers


def evaluate(
    run: RunFolder,
    data: MovedData = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder to write to.", show_default="that of the run")
    ] = None,
    device: Device = "auto",
    samples: Annotated[int, typer.Option(min=1, help="Number of test items in the pictures.")] = 4,
    pictures: Annotated[bool, typer.Option(help="Draw pictures, too.")] = True,
    up: UpAxis = Axis.y,
    as_json: AsJson = False,
) -> None:
    """Evaluate a trained run on its test items. Writes evaluation.json and pictures."""
    from geoskip.report.picture_grids import write_pictures
    from geoskip.report.runs import describe_task
    from geoskip.training.devices import choose_device
    from geoskip.training.evaluation import evaluate_run
    from geoskip.training.run import CONFIG, EVALUATION, PICTURES, RECORD, Run

    if output is not None and (output / CONFIG).exists():
        raise ValueError(f"{output}: contains a run or an exported model; choose another folder with -o")
    opened, folder = Run.open(run, data), output or run
    evaluated = evaluate_run(opened, device=choose_device(device), samples=samples, folder=folder)
    evaluation, task = evaluated.evaluation, evaluated.task
    files = [folder / EVALUATION]
    if not as_json:  # before the pictures, which need matplotlib
        metrics = describe_task(task.config.task, list(evaluation.metrics)).metrics
        rows = [(metric.label, f"{evaluation.metrics[metric.key]:.3f}") for metric in metrics]
        step = "" if (opened.folder / RECORD).exists() else f"; step {opened.weights[1]:,} of an unfinished run"
        caption = f"{len(task.split_items(task.final_split))} {task.final_split} items{step}"
        print_table(["metric", "value"], rows, title=str(run), caption=caption)
    if pictures:
        class_names = getattr(task.data, "class_names", ())
        arrays, curves = evaluation.arrays, evaluation.curves
        files += write_pictures(folder / PICTURES, evaluated.samples, curves, arrays, class_names, up.value)
    if as_json:
        entries = {"metrics": dict(evaluation.metrics), "files": [str(path) for path in files]}
        typer.echo(json.dumps(entries, indent=1))
        return
    for path in files:
        # The picture itself has no legend.
        note = " (vertices without a label are blue-gray)" if path.name == "matches.png" else ""
        typer.echo(f"wrote {path}{note}")


def _load(folder: Path, device: str = "cpu") -> Any:
    """The trained model of a run or an export, with a note if its training is not finished."""
    from geoskip.training.pretrained import load
    from geoskip.training.run import RECORD, is_exported

    trained = load(folder, device)
    if not is_exported(folder) and not (folder / RECORD).exists():
        typer.echo(f"{folder}: the run is not finished; these are its latest weights")
    return trained


class CodeFormat(StrEnum):
    """File format of latent codes."""

    npy = "npy"
    json = "json"


def apply(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of an exported model.", show_default=False)],
    files: Annotated[list[Path], typer.Argument(help="Meshes; latent codes to decode; images to classify.")],
    output: OutputFolder,
    do: Annotated[
        str | None,
        typer.Option(
            help="reconstruct, encode, decode, interpolate, transfer or classify.",
            show_default="what the model was trained for",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Number of meshes of an interpolation, including both ends.", show_default="8"),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels of the target's vertices to transfer: .npy, .json or text.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="HEIGHT,WIDTH to which images are scaled.")] = None,
    latents: Annotated[CodeFormat | None, typer.Option(help="File format of latent codes.", show_default="npy")] = None,
    mesh_format: Annotated[
        str | None,
        typer.Option(
            "--format", help="File format of meshes: ply, obj, off, stl, gltf or glb.", show_default="that of the input"
        ),
    ] = None,
    device: Device = "auto",
    force: Force = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip files that cannot be used; the exit code is then 1.")
    ] = False,
) -> None:
    """Apply a trained model to files: reconstruct, encode, decode, interpolate, transfer labels, classify."""
    pixels = None if size is None else parse_integers("--size", size, "28,28 (HEIGHT,WIDTH)")
    if pixels is not None and len(pixels) != 2:
        raise typer.BadParameter(f"expected HEIGHT,WIDTH in pixels, got {size!r}", param_hint="--size")
    from geoskip.inference.apply import find_action
    from geoskip.inference.user_files import BadFiles, Outputs
    from geoskip.records.os_errors import explain_out_of_memory
    from geoskip.training.devices import choose_device

    trained, outputs = _load(run, choose_device(device)), Outputs(output, force)
    action = find_action(trained, do)
    options = {
        "--format": ("mesh_format", mesh_format and "." + mesh_format.lower().lstrip(".")),
        "--latents": ("code_format", latents and f".{latents.value}"),
        "--steps": ("steps", steps),
        "--labels": ("labels", labels),
        "--size": ("size", pixels and tuple(pixels)),
    }
    parameters = signature(action).parameters
    given: dict[str, Any] = {"skip_bad": skip_bad} if "skip_bad" in parameters else {}
    for flag, (name, value) in options.items():
        if value is not None:
            if name not in parameters:
                raise ValueError(f"{flag}: has no effect on {action.__name__}; leave it out")
            given[name] = value
    try:
        with outputs, explain_out_of_memory(f"with {len(files):,} files", "Give fewer files at a time"):
            applied = action(trained, files, outputs, **given)
    except BadFiles as bad:
        for fault in (*bad.faults, bad.summary):
            typer.echo(f"geoskip: {' '.join(fault.split())}", err=True)
        raise typer.Exit(2) from bad
    for name, message in applied.messages:
        typer.echo(f"{name}: {message}")
    for fault in applied.skipped:
        typer.echo(f"skipped: {' '.join(fault.split())}", err=True)
    count = len(applied.written)
    skipped = f"; skipped {len(applied.skipped):,} of {len(files):,} inputs" if applied.skipped else ""
    typer.echo(f"wrote {count} {'file' if count == 1 else 'files'} in {output}{skipped}")
    if skipped:
        raise typer.Exit(1)


def export(
    run: RunFolder,
    output: OutputFolder,
    program: Annotated[bool, typer.Option("--program", help="Also write a torch.export program, model.pt2.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx (needs the extra: export).")] = False,
    force: Force = False,
) -> None:
    """Export a trained model as model.safetensors and config.json, for geoskip.inference.from_pretrained."""
    from geoskip.inference import programs
    from geoskip.records.files import MANIFEST, add_to_manifest, mark_unfinished, unfinished_files
    from geoskip.training import pretrained
    from geoskip.training.run import CONTEXT

    if (output / CONTEXT).exists():
        raise ValueError(f"{output}: contains a run; choose another folder with -o")
    names = [pretrained.CONFIG, pretrained.WEIGHTS, MANIFEST, *["model.pt2"] * program, *["model.onnx"] * onnx]
    replaceable = unfinished_files(output)
    if not force and (existing := [name for name in names if (output / name).exists() and name not in replaceable]):
        raise typer.BadParameter(f"{output} contains {', '.join(existing)}; --force overwrites them", param_hint="-o")
    trained = _load(run)
    if program or onnx:
        programs.program_of(trained)  # fails before anything is written
    with mark_unfinished(output, names):
        for path in pretrained.save_pretrained(output, trained):
            typer.echo(f"wrote {path}")
        if program:
            programs.export_program(output / "model.pt2", trained)
            add_to_manifest(output, ["model.pt2"])
            typer.echo(f"wrote {output / 'model.pt2'}")
        if onnx:
            difference = programs.export_onnx(output / "model.onnx", trained)
            add_to_manifest(output, ["model.onnx"])
            checked = "" if difference is None else f" (onnxruntime agrees to {difference:.0e})"
            typer.echo(f"wrote {output / 'model.onnx'}{checked}")
