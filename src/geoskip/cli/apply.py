"""``geoskip apply``: a trained model on one's own files."""

from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer


class Latents(StrEnum):
    """How latent codes are written."""

    npy = "npy"
    json = "json"


def apply(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or an exported model.", show_default=False)],
    files: Annotated[list[Path], typer.Argument(help="Meshes; latent codes to decode; images to classify.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.", show_default=False)],
    do: Annotated[
        str | None,
        typer.Option(
            help="reconstruct, encode, decode or interpolate; transfer; classify; else what the model was trained for.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Meshes of an interpolation, ends included.")] = 8,
    labels: Annotated[
        Path | None, typer.Option(help="Labels of the target's vertices to transfer: .npy, .json or text.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="HEIGHT,WIDTH that images are scaled to.")] = None,
    latents: Annotated[Latents, typer.Option(help="How latent codes are written.")] = Latents.npy,
    mesh_format: Annotated[
        str | None, typer.Option("--format", help="Of meshes: ply, obj, off, gltf, glb; else as the input.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out files that cannot be used; the exit code is then 1.")
    ] = False,
) -> None:
    """Use a trained model: reconstruct, encode, decode or interpolate meshes, transfer labels, classify images."""
    pixels = None if size is None else _size(size)
    from geoskip.inference.apply import find_action
    from geoskip.inference.files import BadFiles, Outputs
    from geoskip.inference.pretrained import load
    from geoskip.records.os_errors import explain_out_of_memory
    from geoskip.training.devices import choose_device

    trained, outputs = load(run, choose_device(device)), Outputs(output, force)
    action = find_action(trained, do)
    options: dict[str, Any] = {
        "mesh_format": None if mesh_format is None else "." + mesh_format.lower().lstrip("."),
        "code_format": f".{latents.value}",
        "steps": steps,
        "labels": labels,
        "size": pixels,
        "skip_bad": skip_bad,
    }
    options = {name: value for name, value in options.items() if name in signature(action).parameters}
    try:
        with outputs, explain_out_of_memory(f"with {len(files):,} files", "Give fewer files at a time"):
            applied = action(trained, files, outputs, **options)
    except BadFiles as bad:
        for fault in (*bad.faults, bad.summary):
            typer.echo(f"geoskip: {' '.join(fault.split())}", err=True)
        raise typer.Exit(2) from bad
    for name, message in applied.messages:
        typer.echo(f"{name}: {message}")
    for fault in applied.skipped:
        typer.echo(f"left out: {' '.join(fault.split())}", err=True)
    count = len(applied.written)
    wrote = f"wrote {count} {'file' if count == 1 else 'files'} in {output}"
    if applied.skipped:
        typer.echo(f"{wrote}; left out {len(applied.skipped):,} of {len(files):,} inputs")
        raise typer.Exit(1)
    typer.echo(wrote)


def _size(text: str) -> tuple[int, int]:
    try:
        height, width = (int(word) for word in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"HEIGHT,WIDTH in pixels, not {text!r}", param_hint="--size") from None
    return height, width
