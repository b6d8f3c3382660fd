"""``geoskip train``: train a network on one of the paper's tasks or on your own."""

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.console import log_to_stderr
from geoskip.cli.options import AsJson, Device, given_options, with_data_flags
from geoskip.data.catalog import BUILT_IN, FOLDERS, OPTIONS


def _command(
    task_name: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="reconstruction, correspondence, classification, or your own task as module:Name.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help="The same as TASK.", show_default=False)] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(BUILT_IN)}, superpixels (as mnist), a path, or your own data set as module:Name.",
            show_default="faces, bodies or superpixels, depending on the task",
        ),
    ] = None,
    operator: Annotated[
        str, typer.Option(help="cheb, feast, gcn, gin, monet, spiral, spline, or your own as module:Name.")
    ] = "monet",
    skip: Annotated[str, typer.Option(help="none, residual, affine, polynomial, or your own as module:Name.")] = "none",
    kernel_size: Annotated[
        int | None,
        typer.Option(help="Kernel size, the paper's M.", show_default="9, 10 or 25, depending on the task"),
    ] = None,
    pseudo: Annotated[str, typer.Option(help="Pseudo-coordinates by position or by degree.")] = "position",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the run.", show_default="runs/ and the names of its settings"),
    ] = None,
    init_from: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Start from the weights of this run or exported model.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of initial values, dropout and the order of the data.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Number of epochs.", show_default="the paper's")] = None,
    validation: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=0.99,
            help="Fraction of the training items (meshes: by subfolder) to set aside and evaluate during training.",
        ),
    ] = 0.0,
    evaluate_every: Annotated[
        int | None,
        typer.Option(min=0, help="Epochs between evaluations; 0 for none.", show_default="a tenth of the epochs"),
    ] = None,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="float32; or bf16 or fp16 for mixed precision.")] = "float32",
    tf32: Annotated[bool, typer.Option("--tf32", help="Allow TensorFloat-32 in matrix products.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting as KEY=VALUE, such as optim.lr=1e-4.")
    ] = None,
    resume: Annotated[
        str,
        typer.Option(
            help="auto: resume if the folder contains an unfinished run; never: fail if it contains a run; or the path "
            "of a checkpoint."
        ),
    ] = "auto",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to TensorBoard.")] = False,
    capture: Annotated[bool, typer.Option(help="Capture the training step as a CUDA graph.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show settings, steps and estimated memory.")] = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Train a network with the paper's settings by default. The same command resumes an interrupted run."""
    from geoskip.training.config import override, resolve

    if (task is None) == (task_name is None):
        given_tasks = "no task" if task is None else "a task and --task"
        message = f"got {given_tasks}; name one: reconstruction, correspondence, classification or module:Name"
        raise typer.BadParameter(message, param_hint="TASK")
    chosen = given_options(OPTIONS.values(), options, OWN_PARAMETERS)
    given: dict[str, Any] = {
        "data": data,
        "data_options": chosen,
        "operator": operator,
        "skip": skip,
        "kernel_size": kernel_size,
        "pseudo": pseudo,
        "init_from": init_from,
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
    if leads and not as_json:
        _show_config(config, folder)
    if not dry_run:
        _train(config, folder, leads, as_json, resume=resume, tensorboard=tensorboard, capture=capture)
    elif leads:
        _show_plan(config, as_json)


# An option of a data set that is named like one of these gets the prefix data-.
OWN_PARAMETERS = tuple(entry.name for entry in signature(_command).parameters.values())
OF_PATHS = {option.name for folder in FOLDERS.values() for option in folder.options}
train = with_data_flags(
    _command,
    OPTIONS.values(),
    panel="Options of your own files (of others: geoskip data make NAME --help)",
    hidden=OPTIONS.keys() - OF_PATHS,
)


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
    # Only the name of module:Name: file names must not contain colons on Windows.
    task, *method = [name.rpartition(":")[2] for name in names]
    parts = [task, data, *method]
    size = [] if config.kernel_size is None else [f"m{config.kernel_size}"]
    pseudo = ["degree"] if config.pseudo == "degree" else []
    source = [] if config.init_from is None else ["from", Path(config.init_from).name]
    return "-".join([*parts, *size, *pseudo, *source, f"seed{config.seed}"])


def _show_config(config: Any, folder: Path) -> None:
    settings = {**config.flat(), "folder": folder}
    width = max(map(len, settings))
    for name, value in settings.items():
        typer.echo(f"{name:<{width}}  {'none' if value is None else value}")


def _show_plan(config: Any, as_json: bool) -> None:
    from geoskip.training.tasks import make_task

    task = make_task(config)
    if config.init_from is not None:
        from geoskip.training.fine_tuning import initial_weights
        from geoskip.training.pretrained import load

        initial_weights(task, load(config.init_from))
    planned = plan(task)
    if as_json:
        typer.echo(json.dumps({"config": config.to_json(), **planned}, indent=1))
        return
    parts = dict(planned["parameters"])
    typer.echo(f"parameters: {parts.pop('all'):,} ({', '.join(f'{name} {count:,}' for name, count in parts.items())})")
    items, steps = planned["items"], planned["steps"]
    typer.echo(f"items: {items['train']:,} for training, {items['test']:,} for testing")
    typer.echo(f"steps: {steps['per_epoch']:,} per epoch, {steps['all']:,} in total")
    memory = {name: f"{size / 1e6:,.0f} MB" for name, size in planned["memory"].items()}
    total = memory.pop("all")
    typer.echo(f"estimated memory on CUDA: {total} ({', '.join(f'{name} {size}' for name, size in memory.items())})")


def plan(task: Any) -> dict[str, Any]:
    """Parameters by part of the model, steps, and estimated bytes of memory."""
    import torch

    from geoskip.training.memory import estimate_step_memory, tensors_in

    def count(module: Any) -> int:
        return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)

    def num_bytes(tensors: Any) -> int:
        # Each tensor once. Tensors without memory have no address.
        distinct = {tensor.data_ptr() or id(tensor): tensor for tensor in tensors}
        return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())

    model, optim = task.meta_model(), task.config.optim
    parts = {name: count(module) for name, module in model.named_children()}
    per_epoch = optim.steps_per_epoch(task.num_items)
    # First, because it packs the graphs, which are kept with the data.
    step = estimate_step_memory(task)
    # What the first batch creates is kept with the data.
    task.batch(torch.arange(1))
    # Weights and both moments of Adam; gradients are part of the step.
    memory = {"weights": 12 * count(model) + num_bytes(model.buffers()), "data": num_bytes(tensors_in(vars(task)))}
    return {
        "items": {"train": task.num_items, "test": task.num_test},
        "parameters": {"all": count(model), **{name: size for name, size in parts.items() if size}},
        "steps": {"per_epoch": per_epoch, "all": per_epoch * optim.epochs},
        "memory": {**memory, "step": step, "all": sum(memory.values()) + step},
    }


def _show_record(record: Any, folder: Path, as_json: bool, finished_before: bool) -> None:
    if as_json:
        entries = {"folder": str(folder), "steps": record.steps, "metrics": dict(record.metrics)}
        typer.echo(json.dumps(entries, indent=1))
        return
    figures = ", ".join(f"{name} {value:.4g}" for name, value in record.metrics.items()) or "no test items"
    typer.echo(
        f"{record.row}, {record.parameters:,} parameters, {record.steps:,} steps, {record.seconds:.1f} s: {figures}"
    )
    typer.echo(f"{folder}: already finished, nothing to do" if finished_before else f"wrote {folder}")
