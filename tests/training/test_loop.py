"""The loop on tiny sets: it learns, goes on exactly where it stopped, and says what is wrong."""

from __future__ import annotations

import errno
import itertools
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from geoskip.data import Split
from geoskip.data.locks import try_lock
from geoskip.inference import save_pretrained
from geoskip.meshes import write_mesh
from geoskip.records.files import read_manifest, temporary_name
from geoskip.records.os_errors import explain_os_error
from geoskip.training import checkpoint, loop
from geoskip.training.config import resolve
from geoskip.training.cuda_graphs import random_states
from geoskip.training.loop import train
from geoskip.training.progress import Lines, MetricsWriter, Progress, read_metrics
from geoskip.training.run import CONFIG, CONTEXT, EVALUATION, LOCK, METRICS, MODEL, RECORD, Run, RunError
from geoskip.training.session import Diverged, Sampler, Session
from geoskip.training.signals import Interrupted
from geoskip.training.tasks import Evaluation, make_task
from geoskip.training.tasks.reconstruction import Reconstruction
from tests.records.windows import simulate_windows
from tests.training import sets

TASKS = ["reconstruction", "correspondence", "classification"]


def run(config: Any, folder: Path, data: Any = None, **options: Any) -> Run:
    task = make_task(config, sets.data(config.task) if data is None else data)
    return train(config, folder, task=task, **options)


def weights(found: Run) -> dict[str, torch.Tensor]:
    return Run.open(found.folder).weights[0]


def equal(one: Run, other: Run) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_stops_goes_on_bitwise(task: str, tmp_path: Path) -> None:
    """In the middle of an epoch, and at its end; dropout draws what it would have drawn."""
    config = sets.config(task, optim={"batch_size": 3 if task == "correspondence" else 4})
    whole = run(config, tmp_path / "whole")
    for steps in (1, 2, 1):
        run(config, tmp_path / "parts", stop_after=steps)
    parts = run(config, tmp_path / "parts")
    assert equal(whole, parts)
    assert whole.record.curves == parts.record.curves
    assert whole.record.metrics == parts.record.metrics


def test_in_another_order_the_weights_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = sets.config()
    whole = run(config, tmp_path / "whole")
    run(config, tmp_path / "parts", stop_after=4)
    monkeypatch.setattr(Sampler, "order", lambda self, epoch: torch.arange(self.num_items))
    assert not equal(whole, run(config, tmp_path / "parts"))


def test_without_the_generators_state_dropout_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = sets.config("classification")
    whole = run(config, tmp_path / "whole")
    run(config, tmp_path / "parts", stop_after=4)
    monkeypatch.setattr("geoskip.training.session.set_random_states", lambda states, device: None)
    assert not equal(whole, run(config, tmp_path / "parts"))


def test_seeds_differ_and_the_same_seed_does_not(tmp_path: Path) -> None:
    one, other, third = (run(sets.config(seed=seed), tmp_path / str(place)) for place, seed in enumerate((0, 1, 0)))
    assert not equal(one, other)
    assert equal(one, third)


@pytest.mark.parametrize("task", TASKS)
def test_the_loss_goes_down(task: str, tmp_path: Path) -> None:
    found = run(sets.config(task, skip="affine", optim={"epochs": 30, "lr": 1e-2, "batch_size": 2}), tmp_path)
    losses = [loss for _, loss in found.record.curves["loss"]]
    assert losses[-1] < 0.8 * losses[0]


def test_affine_skips_beat_plain_convolutions(tmp_path: Path) -> None:
    spheres = sets.meshes(count=100, subdivisions=2, num_test=20)
    errors = {}
    for skip in ("none", "affine"):
        shape = {"channels": [12, 16], "latent": 8}
        config = sets.config(skip=skip, kernel_size=3, model=shape, optim={"epochs": 8, "lr": 1e-2, "batch_size": 8})
        found = run(config, tmp_path / skip, spheres)
        errors[skip] = found.record.metrics["mean_mm"]
    assert errors["affine"] < 0.8 * errors["none"]


def test_a_finished_run_is_not_trained_again_unless_it_is_made_longer(tmp_path: Path) -> None:
    config = sets.config()
    first = run(config, tmp_path)
    before = (tmp_path / "record.json").read_bytes()
    run(config, tmp_path)
    assert (tmp_path / "record.json").read_bytes() == before
    longer = replace(config, optim=replace(config.optim, epochs=5))
    assert run(longer, tmp_path).record.steps == 15
    assert equal(Run.open(tmp_path), run(longer, tmp_path / "at once"))
    assert first.folder == tmp_path


def test_a_finished_run_without_checkpoints_is_left_as_it_is(tmp_path: Path) -> None:
    config = sets.config()
    done = run(config, tmp_path)
    shutil.rmtree(done.checkpoints)
    before = {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.is_file()}
    run(config, tmp_path)
    assert {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.is_file()} == before
    longer = replace(config, optim=replace(config.optim, epochs=config.optim.epochs + 1))
    with pytest.raises(RunError, match="without checkpoints, so it cannot be extended to"):
        run(longer, tmp_path)
    with pytest.raises(RunError, match=r"optim\.lr: the run in .* was started with"):
        run(replace(config, optim=replace(config.optim, lr=0.5)), tmp_path)
    assert {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.is_file()} == before


def test_a_run_cannot_be_shortened(tmp_path: Path) -> None:
    """The results would be those of more epochs than the configuration says."""
    config = sets.config()
    shorter = replace(config, optim=replace(config.optim, epochs=1))
    run(config, tmp_path / "unfinished", stop_after=5)
    run(config, tmp_path / "finished")
    before = (tmp_path / "finished" / RECORD).read_bytes()
    for folder in ("unfinished", "finished"):
        with pytest.raises(RunError, match=r"optim\.epochs: .* more than the 3 steps of 1 epoch"):
            run(shorter, tmp_path / folder)
    assert (tmp_path / "finished" / RECORD).read_bytes() == before
    shutil.rmtree(tmp_path / "finished" / "checkpoints")
    with pytest.raises(RunError, match=r"without checkpoints, so it cannot be extended to optim\.epochs 1"):
        run(shorter, tmp_path / "finished")


def test_a_finished_run_is_evaluated_again_on_other_test_items(tmp_path: Path) -> None:
    config = sets.config()
    run(config, tmp_path)
    (tmp_path / EVALUATION).write_text("of all test items")
    fewer = run(replace(config, test_items=1), tmp_path)
    assert fewer.record.steps == 9
    at_once = run(replace(config, test_items=1), tmp_path / "at once").record
    assert fewer.record.metrics == at_once.metrics
    assert Run.open(tmp_path).config.test_items == 1
    assert not (tmp_path / EVALUATION).exists()
    before = (tmp_path / RECORD).read_bytes()
    run(replace(config, test_items=1, evaluate_every=1), tmp_path)
    assert (tmp_path / RECORD).read_bytes() == before


def test_a_finished_run_does_not_pass_for_one_on_other_data(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("right", "moved", "wrong")]
    for folder, seed in zip(folders, (0, 0, 1), strict=True):
        folder.mkdir()
        data = sets.meshes(seed=seed)
        for item in range(len(data)):
            write_mesh(data.mesh(item), folder / f"{item:02d}.ply")
    right, moved, wrong = (sets.config(data=str(folder), data_options={"unit_mm": 100.0}) for folder in folders)
    finished = train(right, tmp_path / "run")
    with pytest.raises(ValueError, match=f"the data of {folders[2]} are not those that the run was trained on"):
        train(wrong, tmp_path / "run")
    assert train(moved, tmp_path / "run").record.metrics == finished.record.metrics
    assert Run.open(tmp_path / "run").config.data == str(folders[1])


def test_a_finished_run_does_not_pass_for_one_on_other_data_in_memory(tmp_path: Path) -> None:
    config = sets.config()
    run(config, tmp_path)
    with pytest.raises(ValueError, match="the data of tiny are not those that the run was trained on"):
        run(config, tmp_path, sets.meshes(seed=1))
    run(config, tmp_path)


def test_an_exported_model_is_not_overwritten_by_a_run(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", run(sets.config(), tmp_path / "run").trained())
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    with pytest.raises(RunError, match="model: contains an exported model; choose another folder"):
        run(sets.config(), tmp_path / "model")
    assert {name: (tmp_path / "model" / name).read_bytes() for name in before} == before


def test_another_configuration_does_not_go_on(tmp_path: Path) -> None:
    run(sets.config(), tmp_path, stop_after=1)
    with pytest.raises(RunError, match=r"optim\.lr: the run in .* was started with 0\.001, not 0\.1"):
        run(sets.config(optim={"lr": 0.1}), tmp_path)


def test_never_refuses_a_folder_that_holds_a_run(tmp_path: Path) -> None:
    run(sets.config(), tmp_path, stop_after=1)
    with pytest.raises(RunError, match="contains a run"):
        run(sets.config(), tmp_path, resume="never")
    run(sets.config(), tmp_path / "new", resume="never", stop_after=1)


def test_a_checkpoint_can_be_named(tmp_path: Path) -> None:
    config = sets.config(checkpoint_every=2, keep=9)
    whole = run(config, tmp_path / "whole")
    again = run(config, tmp_path / "again", resume=tmp_path / "whole" / "checkpoints" / "step-00000004")
    assert equal(whole, again)


def test_another_set_does_not_go_on(tmp_path: Path) -> None:
    run(sets.config(), tmp_path, stop_after=1)
    with pytest.raises(ValueError, match="with 10 training items, but the data have 8"):
        run(sets.config(), tmp_path, sets.meshes(12))


def test_other_data_of_the_same_size_do_not_go_on(tmp_path: Path) -> None:
    run(sets.config(), tmp_path, stop_after=1)
    before = (tmp_path / "context.safetensors").read_bytes()
    with pytest.raises(ValueError, match="not those that the run was trained on: deviation, mean differ"):
        run(sets.config(), tmp_path, sets.meshes(seed=1))
    assert (tmp_path / "context.safetensors").read_bytes() == before


def test_a_signal_during_the_evaluation_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is complete then, but a caller with several must not start the next."""
    config = sets.config()
    task = make_task(config, sets.meshes())
    true = Reconstruction.evaluate

    def disturbed(self: Reconstruction, model: torch.nn.Module) -> Evaluation:
        signal.raise_signal(signal.SIGINT)
        return true(self, model)

    monkeypatch.setattr(Reconstruction, "evaluate", disturbed)
    with pytest.raises(Interrupted, match="is complete") as stopped:
        train(config, tmp_path, task=task)
    assert stopped.value.code == 130
    assert Run.open(tmp_path).record.steps == 9


def test_a_fault_names_step_and_items_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    config = sets.config(checkpoint_every=1)
    spheres = sets.meshes()
    task: Any = make_task(config, spheres)
    second = Sampler(10, 4, 0).batch(1)
    task.data.shapes.verts[task.train[second[0]]] = float("nan")
    with pytest.raises(Diverged, match=r"step 2 \(epoch 1; .*sphere") as fault:
        train(config, tmp_path, task=task)
    assert task.names[int(second[0])] in str(fault.value)
    kept = Run.open(tmp_path).checkpoint
    assert kept is not None
    assert kept.name == "step-00000001"


def test_the_metrics_have_a_line_for_each_epoch_and_the_figures_at_the_end(tmp_path: Path) -> None:
    found = run(sets.config(), tmp_path)
    *epochs, last = read_metrics(tmp_path / METRICS)
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    assert [line["lr"] for line in epochs] == pytest.approx([1e-3 * 0.99**epoch for epoch in range(3)])
    assert last["mean_mm"] == found.record.metrics["mean_mm"]


def test_metrics_are_kept_up_to_the_step_without_half_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n{"step": 3, "lo')
    writer = MetricsWriter(path, step=1)
    writer.write(2, {"loss": 5.0})
    writer.close()
    assert read_metrics(path) == [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 5.0}]


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("function", ["write_record", "add_to_manifest"])
def test_a_run_that_is_killed_at_its_end_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: int
) -> None:
    """The last line of the metrics is there once, and the manifest lists everything."""
    complete = run(sets.config(), tmp_path / "complete")
    calls, original = itertools.count(1), getattr(loop, function)

    def killed(*arguments: Any) -> None:
        if next(calls) == call:
            raise LookupError
        original(*arguments)

    with monkeypatch.context() as patch, suppress(LookupError):
        patch.setattr(loop, function, killed)
        run(sets.config(), tmp_path / "killed")
    again = run(sets.config(), tmp_path / "killed")

    def lines(found: Run) -> list[dict[str, Any]]:
        return [line | {"seconds": 0.0} for line in read_metrics(found.folder / METRICS)]

    assert lines(again) == lines(complete)
    assert read_manifest(again.folder).keys() == read_manifest(complete.folder).keys()


def test_a_run_that_is_killed_before_it_removes_old_checkpoints_removes_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sets.config(checkpoint_every=1, keep=1)
    total = run(config, tmp_path / "complete").record.steps
    original = checkpoint.prune_checkpoints

    def killed(folder: Path, step: int, keep: int) -> None:
        if step == total:
            raise LookupError
        original(folder, step, keep)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "prune_checkpoints", killed)
        with pytest.raises(LookupError):
            run(config, tmp_path / "killed")
    assert len(list((tmp_path / "killed" / "checkpoints").iterdir())) == 2
    run(config, tmp_path / "killed")
    assert [path.name for path in (tmp_path / "killed" / "checkpoints").iterdir()] == [f"step-{total:08d}"]


def test_tensorboard_is_written_by_option(tmp_path: Path) -> None:
    run(sets.config(), tmp_path, tensorboard=True, stop_after=3)
    assert list((tmp_path / "tensorboard").iterdir())


def test_progress_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "first_seconds", 0.0)
    monkeypatch.setattr(Lines, "seconds", 0.0)
    run(sets.config(), tmp_path, stop_after=4, progress=Lines())
    run(sets.config(), tmp_path, progress=Lines())
    shown = capsys.readouterr().err
    assert "step 4 of 9, epoch 2, loss" in shown
    assert "resuming after step 4 of 9" in shown
    assert "steps/s" in shown


def test_a_set_without_test_items_trains_too(tmp_path: Path) -> None:
    assert run(sets.config(), tmp_path, sets.meshes(num_test=0)).record.metrics == {}


def test_fewer_items_can_be_chosen(tmp_path: Path) -> None:
    task = make_task(sets.config(train_items=4, test_items=2), sets.meshes())
    assert (task.num_items, task.num_test) == (4, 2)
    assert task.names == ["sphere 000", "sphere 002", "sphere 005", "sphere 007"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_trains_and_goes_on_bitwise(precision: str, tmp_path: Path) -> None:
    config = sets.config(precision=precision)
    whole = run(config, tmp_path / "whole")
    run(config, tmp_path / "parts", stop_after=4)
    assert equal(whole, run(config, tmp_path / "parts"))
    assert not equal(whole, run(sets.config(), tmp_path / "float32"))


def poison(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[int], bool] = lambda step: True) -> None:
    """Make the gradients of some steps NaN while the loss stays finite."""
    true, calls = Reconstruction.loss, iter(range(10**6))

    def loss(self: Reconstruction, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        found = true(self, model, batch)
        if is_bad(next(calls)):
            found.register_hook(lambda gradient: gradient * float("nan"))
        return found

    monkeypatch.setattr(Reconstruction, "loss", loss)


@pytest.mark.parametrize(("epochs", "every"), [(10, 0), (10, 1), (2, 0), (1, 1)])
def test_fp16_with_bad_gradients_at_every_step_is_a_fault(
    epochs: int, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No scale makes NaN finite: neither a long run nor one that ends before the scale is 1 may pass for trained."""
    config = sets.config(precision="fp16", optim={"epochs": epochs}, checkpoint_every=every)
    poison(monkeypatch)
    with pytest.raises(Diverged, match=r"step \d+ \(epoch \d+; sphere .*not finite"):
        run(config, tmp_path)
    assert not (tmp_path / "record.json").exists()
    assert not (tmp_path / "model.safetensors").exists()
    with pytest.raises(Diverged):
        run(config, tmp_path)


def test_fp16_with_one_bad_batch_in_every_epoch_is_a_fault_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, lambda step: step % 3 == 1)
    with pytest.raises(Diverged, match=r"step (\d+) ") as fault:
        run(sets.config(precision="fp16", optim={"epochs": 100}, checkpoint_every=4), tmp_path)
    step = int(str(fault.value).split()[1])
    assert step % 3 == 2
    kept = Run.open(tmp_path).checkpoint
    assert kept is not None
    assert int(kept.name.removeprefix("step-")) < step


def test_fp16_skips_steps_that_only_overflowed_and_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, lambda step: step < 4)
    found = run(sets.config(precision="fp16"), tmp_path)
    assert found.record.steps == 9
    assert [line["skipped_steps"] for line in read_metrics(tmp_path / METRICS)[:3]] == [3, 4, 4]


def test_the_record_says_what_was_run(tmp_path: Path) -> None:
    config = sets.config(skip="affine")
    record = run(config, tmp_path).record
    assert (record.name, record.row) == ("Aff-MoNet", "Aff-MoNet M=2")
    assert record.config == config.to_json()
    assert (record.steps, record.epochs) == (9, 3.0)
    session = Session(config, make_task(config, sets.meshes()))
    assert record.parameters == sum(p.numel() for p in session.learner.model.parameters())
    assert {"python", "torch"} <= record.versions.keys()


def test_recording_states_are_those_of_the_device() -> None:
    assert random_states(torch.device("cpu")).keys() == {"cpu"}
    assert resolve("reconstruction").device == "auto"


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    refused = r"process \d+ on .* is training in it"
    with try_lock(tmp_path / LOCK, timeout=0.0), pytest.raises(RunError, match=refused):
        run(sets.config(), tmp_path)
    assert run(sets.config(), tmp_path).record.steps == 9


def test_a_full_disk_is_told_wherever_it_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: MetricsWriter, step: int, values: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MetricsWriter, "write", full)
    with pytest.raises(OSError, match="No space left") as fault:
        run(sets.config(), tmp_path)
    assert explain_os_error(fault.value) == "the disk is full; make room"


def test_memory_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def large(self: Reconstruction, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(Reconstruction, "loss", large)
    with pytest.raises(ValueError, match=r"out of memory with batches of 4: .* Lower optim\.batch_size"):
        run(sets.config(), tmp_path)


def test_other_content_of_the_same_mean_does_not_go_on(tmp_path: Path) -> None:
    """Items in another order have the same mean and deviation, and are other data all the same."""
    data = replace(sets.meshes(), content="one")
    run(sets.config(), tmp_path, data, stop_after=1)
    with pytest.raises(ValueError, match="not those that the run was trained on: content differ"):
        run(sets.config(), tmp_path, replace(data, content="other"))
    # What does not say what it holds is compared by what can be seen of it, as ever.
    assert run(sets.config(), tmp_path, sets.meshes()).record.steps == 9


class Removing(Progress):
    """Removes something of the run when training has begun."""

    def __init__(self, path: Path, step: int) -> None:
        self.path, self.step = path, step

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        if step == self.step and self.path.is_dir():
            shutil.rmtree(self.path)
        elif step == self.step:
            self.path.unlink(missing_ok=True)


@pytest.mark.parametrize(("every", "step"), [(0, 1), (2, 8), (0, 9)])
def test_a_run_whose_folder_is_removed_does_not_succeed(tmp_path: Path, every: int, step: int) -> None:
    folder, config = tmp_path / "run", sets.config(checkpoint_every=every)
    with pytest.raises(RunError, match=r"run: the folder, or \.lock in it, was removed while a run was training"):
        run(config, folder, progress=Removing(folder, step))
    assert not (folder / RECORD).exists()
    assert run(config, folder).record.steps == 9
    assert (folder / CONFIG).is_file()


@pytest.mark.parametrize("name", [CONFIG, CONTEXT, METRICS])
def test_a_run_succeeds_only_if_every_file_is_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match=f"{name} was removed while the run was training. Start the same command"):
        run(sets.config(), tmp_path, progress=Removing(tmp_path / name, 9))
    assert not (tmp_path / RECORD).exists()
    assert run(sets.config(), tmp_path).record.steps == 9
    assert all((tmp_path / file).is_file() for file in (CONFIG, CONTEXT, METRICS, MODEL, RECORD))


@pytest.mark.parametrize("name", [CONFIG, CONTEXT, MODEL, RECORD])
def test_a_finished_run_that_lost_a_file_is_made_whole(tmp_path: Path, name: str) -> None:
    whole = weights(run(sets.config(), tmp_path))
    (tmp_path / name).unlink()
    again = weights(run(sets.config(), tmp_path))
    assert (tmp_path / name).is_file()
    assert all(torch.equal(again[key], whole[key]) for key in whole)


def test_training_removes_what_killed_processes_left(tmp_path: Path) -> None:
    """Even if there is nothing left to train."""
    config = sets.config()
    run(config, tmp_path)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    (tmp_path / temporary_name("evaluation.json")).write_bytes(b"half")
    (tmp_path / "checkpoints" / ".step-00000009.0123abcd").mkdir()
    run(config, tmp_path)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


class Hanging(Progress):
    """A terminal that is gone."""

    def start(self, total: int, done: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        raise OSError(errno.EIO, "Input/output error")

    def close(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_a_terminal_that_is_gone_does_not_end_a_run(tmp_path: Path) -> None:
    assert run(sets.config(), tmp_path, progress=Hanging()).record.steps == 9


def test_training_works_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_windows(monkeypatch)
    monkeypatch.delattr(signal, "SIGHUP")
    config = sets.config(checkpoint_every=2)
    run(config, tmp_path, stop_after=4)
    assert run(config, tmp_path).record.steps == 9


def test_what_the_evaluation_needs_is_known_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Geodesic distances need a package that is optional, unless they are in the cache."""
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "potpourri3d", None)
    config = sets.config("correspondence")
    with pytest.raises(ImportError, match=r"potpourri3d: pip install 'geoskip\[meshes\]"):
        train(config, tmp_path / "run", task=make_task(config, sets.data("correspondence")))
    assert not (tmp_path / "run" / CONFIG).exists()
    without_test = replace(sets.correspondences(), split=Split.leading(6, 6))
    train(config, tmp_path / "run", task=make_task(config, without_test))
    assert (tmp_path / "run" / RECORD).is_file()
