"""What a run leaves behind when it ends."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from geoskip import __version__
from geoskip.records import RunRecord, write_record
from geoskip.records.manifest import list_files
from geoskip.records.samples import write_samples
from geoskip.training.devices import device_words
from geoskip.training.naming import method_name, row_name
from geoskip.training.run import CONFIG, CONTEXT, METRICS, MODEL, RECORD, SAMPLES, Run, RunError
from geoskip.training.session import Session, named_for
from geoskip.training.tasks import Evaluation

PACKAGES = ("torch", "triton", "numpy")


def finish(session: Session, run: Run) -> RunRecord:
    """Evaluate on the test and validation items; store samples, weights, the record and their checksums, in this order.

    A run is complete when its manifest lists the record. The seconds are those of training alone.
    """
    seconds, model, task = session.elapsed, session.learner.model, session.task
    task.epoch = session.sampler.epoch
    found, metrics = Evaluation({}), dict[str, float]()
    if len(task.part("validation")):
        found = task.evaluate(model, "validation")
        metrics |= named_for("validation", found.metrics)
    if session.config.test and task.num_test:
        found = task.evaluate(model)
        metrics |= found.metrics
    if shown := min(task.num_samples, len(task.part(task.final))):
        write_samples(run.folder / SAMPLES, task.samples(model, shown, task.final))
    run.write_model(model, session.step)
    _check_complete(run, bool(shown))
    record = RunRecord(
        name=method_name(session.config),
        row=row_name(session.config),
        config=session.config.to_json(),
        seed=session.config.seed,
        parameters=sum(parameter.numel() for parameter in session.learner.parameters),
        steps=session.step,
        epochs=session.step / session.sampler.num_batches,
        seconds=seconds,
        device=_words(session),
        versions=versions(),
        metrics=metrics,
        curves={**_curves(session), **found.curves},
    )
    write_record(run.folder / RECORD, record)
    list_files(run.folder, [*[SAMPLES] * bool(shown), RECORD])
    return record


def _check_complete(run: Run, has_samples: bool) -> None:
    """RunError unless everything but the record is on the disk: files can be removed while a run is training."""
    names = (CONFIG, CONTEXT, METRICS, MODEL, *([SAMPLES] if has_samples else []))
    if missing := [name for name in names if not (run.folder / name).is_file()]:
        raise RunError(
            f"{run.folder}: {', '.join(missing)} was removed while the run was training. Start the same command again: "
            "it continues from the last checkpoint"
        )


def _curves(session: Session) -> dict[str, list[tuple[float, float]]]:
    curves = {"loss": session.curve, **session.measures}
    return {name: [(float(epoch), value) for epoch, value in curve] for name, curve in curves.items()}


def versions() -> dict[str, str]:
    """Of Python and of the packages that figures depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    # On the path without having been installed, it has no metadata.
    return {**found, "geoskip": __version__}


def _words(session: Session) -> str:
    words = device_words(session.learner.device)
    return words if session.group.size == 1 else f"{session.group.size} × {words}"
