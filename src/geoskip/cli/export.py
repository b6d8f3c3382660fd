"""``geoskip export``: a trained model for others to use."""

from pathlib import Path
from typing import Annotated, Any

import typer


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.", show_default=False)],
    program: Annotated[bool, typer.Option("--program", help="Also a torch.export program, model.pt2.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also model.onnx (needs the extra export).")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a trained model: model.safetensors, config.json and their checksums, all that from_pretrained needs."""
    from geoskip.inference.pretrained import CONFIG, WEIGHTS, load
    from geoskip.records.files import MANIFEST, mark_unfinished, unfinished_files

    names = [CONFIG, WEIGHTS, MANIFEST, *["model.pt2"] * program, *["model.onnx"] * onnx]
    replaceable = unfinished_files(output)
    if not force and (there := [name for name in names if (output / name).exists() and name not in replaceable]):
        raise typer.BadParameter(f"{output} has {', '.join(there)} already; --force replaces them", param_hint="-o")
    trained = load(run)
    if program or onnx:
        from geoskip.inference.export import program_of

        program_of(trained)  # what cannot be a program is said before anything is written
    with mark_unfinished(output, names):
        _write(output, trained, program, onnx)


def _write(output: Path, trained: Any, program: bool, onnx: bool) -> None:
    from geoskip.inference.pretrained import save_pretrained
    from geoskip.records.files import add_to_manifest

    for path in save_pretrained(output, trained):
        typer.echo(f"wrote {path}")
    if program:
        from geoskip.inference.export import export_program

        export_program(output / "model.pt2", trained)
        add_to_manifest(output, ["model.pt2"])
        typer.echo(f"wrote {output / 'model.pt2'}")
    if onnx:
        from geoskip.inference.export import export_onnx

        difference = export_onnx(output / "model.onnx", trained)
        add_to_manifest(output, ["model.onnx"])
        checked = "" if difference is None else f" (onnxruntime agrees to {difference:.0e})"
        typer.echo(f"wrote {output / 'model.onnx'}{checked}")
