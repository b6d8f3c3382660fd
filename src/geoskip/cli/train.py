"""``geoskip train``: one of the paper's three tasks, on its data or one's own."""

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.console import log_to_stderr
from geoskip.cli.options import given_options, with_data_flags
from geoskip.data.catalog import OPTIONS


def _command(
    task_name: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="reconstruction, correspondence or classification, or a task of your own as module:Name.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help="The same as TASK.", show_default=False)] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="faces, mixed-faces, moving-bodies or coma; bodies, remeshed-bodies or faust; "
            "superpixels, fashion-mnist or published-superpixels; or a path. "
            "Otherwise faces, bodies or superpixels, by task."
        ),
    ] = None,
    operator: Annotated[str, typer.Option(help="cheb, feast, gcn, gin, monet, spiral or spline.")] = "monet",
    skip: Annotated[str, typer.Option(help="none, residual, affine or polynomial.")] = "none",
    kernel_size: Annotated[int | None, typer.Option(help="The paper's M; otherwise 9, 10 or 25, by task.")] = None,
    pseudo: Annotated[str, typer.Option(help="Pseudo-coordinates from position or degree.")] = "position",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the run; otherwise runs/ and a name.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of initial values, dropout and the order of the data.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="As --set optim.epochs=….")] = None,
    validation: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=0.99,
            help="Share of the training items, by subject, that is evaluated during training instead of the test.",
        ),
    ] = 0.0,
    evaluate_every: Annotated[
        int | None,
        typer.Option(min=0, help="Epochs between evaluations during training, 0 for none; otherwise about ten."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, or mixed with bf16 or fp16.")] = "float32",
    tf32: Annotated[bool, typer.Option("--tf32", help="Allow TensorFloat-32 in products of matrices.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, as KEY=VALUE: optim.lr=1e-4, model.latent=8.")
    ] = None,
    resume: Annotated[
        str,
        typer.Option(
            help="auto: resume if the folder contains an unfinished run; never: fail if it contains a run; or the path "
            "of a checkpoint."
        ),
    ] = "auto",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write for TensorBoard, too.")] = False,
    capture: Annotated[bool, typer.Option(help="Capture the step on CUDA.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done and needed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what comes out as JSON.")] = False,
    **options: Any,
) -> None:
    """Train a network with the paper's settings by default. The same command resumes an interrupted run."""
    from geoskip.training.config import override, resolve

    if (task is None) == (task_name is None):
        raise typer.BadParameter("name one task, such as reconstruction", param_hint="TASK")
    chosen = given_options(OPTIONS.values(), options, OWN_PARAMETERS)
    given: dict[str, Any] = {
        "data": data,
        "data_options": chosen,
        "operator": operator,
        "skip": skip,
        "kernel_size": kernel_size,
        "pseudo": pseudo,
    }
    optim = None if epochs is None else {"epochs": epochs}
    machine = {"seed": seed, "device": device, "precision": precision, "tf32": tf32}
    config = resolve(task or task_name or "", **given, **machine, optim=optim, validation=validation)
    config = override(config, settings or [])
    every = max(1, config.optim.epochs // 10) if evaluate_every is None else evaluate_every
    # --set has the last word.
    config = replace(config, evaluate_every=config.evaluate_every or every)
    folder = output or Path("runs") / default_name(config)
    leads = os.environ.get("RANK", "0") == "0"
    if leads:
        _show_config(config, folder, as_json)
    if dry_run:
        if leads:
            _show_plan(config, as_json)
        return
    _train(config, folder, leads, as_json, resume=resume, tensorboard=tensorboard, capture=capture)


# A run's own options; those of data sets that are called the same are prefixed with data-.
OWN_PARAMETERS = tuple(entry.name for entry in signature(_command).parameters.values())
train = with_data_flags(_command, OPTIONS.values(), panel="Options of the data set, as for geoskip data make")


def _train(config: Any, folder: Path, leads: bool, as_json: bool, **options: Any) -> None:
    from geoskip.training.devices import LostProcess
    from geoskip.training.loop import train as run_loop
    from geoskip.training.progress import choose_progress
    from geoskip.training.signals import Interrupted

    before = _written(folder)
    try:
        with log_to_stderr() if leads else nullcontext():
            run = run_loop(config, folder, progress=choose_progress() if leads else None, **options)
    except (Interrupted, LostProcess) as error:
        if leads or isinstance(error, LostProcess):
            typer.echo(f"geoskip: {error}", err=True)
        raise typer.Exit(error.code if isinstance(error, Interrupted) else 1) from error
    if leads:
        _show_record(run.record, folder, as_json, finished_before=before is not None and before == _written(folder))


def _written(folder: Path) -> int | None:
    """When the run's record was written, if there is one."""
    from geoskip.training.run import RECORD

    return (folder / RECORD).stat().st_mtime_ns if (folder / RECORD).is_file() else None


def default_name(config: Any) -> str:
    """The default folder of a run: the same for the same command, so that the command resumes the run."""
    data = Path(config.data).stem if Path(config.data).suffix or "/" in config.data else config.data
    names = [config.task, *([] if config.skip == "none" else [config.skip]), config.operator]
    # Of module:Name the name alone: a colon is no part of a file name on Windows.
    task, *method = [name.rpartition(":")[2] for name in names]
    parts = [task, data, *method]
    size = [] if config.kernel_size is None else [f"m{config.kernel_size}"]
    pseudo = ["degree"] if config.pseudo == "degree" else []
    return "-".join([*parts, *size, *pseudo, f"seed{config.seed}"])


def _show_config(config: Any, folder: Path, as_json: bool) -> None:
    if as_json:
        return
    entries = config.to_json()
    flat = {key: value for key, value in entries.items() if not isinstance(value, dict)}
    flat |= {
        f"{key}.{name}": inner
        for key, value in entries.items()
        if isinstance(value, dict)
        for name, inner in value.items()
    }
    width = max(map(len, flat))
    for key, value in flat.items():
        typer.echo(f"{key:<{width}}  {'none' if value is None else value}")
    typer.echo(f"{'folder':<{width}}  {folder}")


def _show_plan(config: Any, as_json: bool) -> None:
    from geoskip.cli.plan import plan
    from geoskip.training.tasks import make_task

    found = plan(make_task(config))
    if as_json:
        typer.echo(json.dumps({"config": config.to_json(), **found}, indent=1))
        return
    parts = dict(found["parameters"])
    typer.echo(f"parameters: {parts.pop('all'):,} ({', '.join(f'{name} {count:,}' for name, count in parts.items())})")
    items, steps = found["items"], found["steps"]
    typer.echo(f"items: {items['train']:,} for training, {items['test']:,} for the test")
    typer.echo(f"steps: {steps['per_epoch']:,} an epoch, {steps['all']:,} in all")
    memory = {name: f"{size / 1e6:,.0f} MB" for name, size in found["memory"].items()}
    whole = memory.pop("all")
    typer.echo(f"memory on CUDA, about: {whole} ({', '.join(f'{name} {size}' for name, size in memory.items())})")


def _show_record(record: Any, folder: Path, as_json: bool, finished_before: bool) -> None:
    if as_json:
        typer.echo(
            json.dumps({"folder": str(folder), "steps": record.steps, "metrics": dict(record.metrics)}, indent=1)
        )
        return
    figures = ", ".join(f"{name} {value:.4g}" for name, value in record.metrics.items()) or "no test items"
    typer.echo(
        f"{record.row}, {record.parameters:,} parameters, {record.steps:,} steps, {record.seconds:.1f} s: {figures}"
    )
    typer.echo(f"{folder}: already finished, nothing to do" if finished_before else f"wrote {folder}")
