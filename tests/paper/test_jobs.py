"""Jobs: where their records lie, and which records count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.reproduction import duration, remaining_seconds
from geoskip.paper.running import Job, config_key, finished, stored_runs
from geoskip.records import write_record
from tests.paper.runs import job_of, kept, record_of, row_named

MONET = row_named("table1", "MoNet M=9")
GCN = row_named("table2", "GCN")


def test_a_job_is_plain_json() -> None:
    job = job_of(row_named("table3", "Aff-FeaStNet† M=25"), seed=2)
    assert Job.from_json(job.to_json()) == job


def test_a_record_counts_once_it_is_there(tmp_path: Path) -> None:
    job = job_of(MONET)
    assert finished(job, tmp_path) is None
    record = kept(job, tmp_path, mean_mm=0.5)
    assert finished(job, tmp_path) == record
    assert finished(replace(job, seed=1), tmp_path) is None
    assert finished(replace(job, schedule="full"), tmp_path) is None


def test_a_record_of_another_recipe_does_not_count(tmp_path: Path) -> None:
    job = job_of(MONET)
    config = job.config()
    for other in (
        replace(config, optim=replace(config.optim, epochs=3)),
        replace(config, skip="affine"),
        replace(config, seed=1),
        replace(config, tf32=True),
    ):
        write_record(job.record_path(tmp_path), replace(record_of(job, {}), config=other.to_json()))
        assert finished(job, tmp_path) is None
    write_record(job.record_path(tmp_path), replace(record_of(job, {}), config={"made": "by another version"}))
    assert finished(job, tmp_path) is None


def test_where_it_ran_does_not_matter(tmp_path: Path) -> None:
    job = job_of(MONET)
    elsewhere = replace(job.config(), device="cuda:1", evaluate_every=3, checkpoint_every=7, keep=9)
    assert config_key(elsewhere) == config_key(job.config())
    write_record(job.record_path(tmp_path), replace(record_of(job, {}), config=elsewhere.to_json()))
    assert finished(job, tmp_path) is not None


def test_a_setting_that_came_later_keeps_old_records(tmp_path: Path) -> None:
    """What a record does not name has its default."""
    job = job_of(MONET)
    record = record_of(job, {})
    older = {key: value for key, value in record.config.items() if key not in ("tf32", "data_options")}
    write_record(job.record_path(tmp_path), replace(record, config=older))
    assert finished(job, tmp_path) is not None


def test_a_damaged_record_does_not_count(tmp_path: Path) -> None:
    job = job_of(MONET)
    kept(job, tmp_path, mean_mm=0.5)
    job.record_path(tmp_path).write_text("{")
    assert finished(job, tmp_path) is None


def test_another_recipe_has_another_folder(tmp_path: Path) -> None:
    """So that it is never continued."""
    job = job_of(MONET)
    assert job.folder(tmp_path) == job.folder(tmp_path)
    assert len({job_of(MONET, seed).folder(tmp_path) for seed in range(3)}) == 3
    assert job.folder(tmp_path).name.startswith("faces-short-0-")


def test_records_are_found_by_seed(tmp_path: Path) -> None:
    for seed in (0, 10, 2):
        kept(job_of(MONET, seed), tmp_path, mean_mm=0.5)
    kept(job_of(MONET, 0, "full"), tmp_path, mean_mm=0.4)
    (job_of(MONET).record_path(tmp_path).parent / "faces-short-notes.json").write_text("{}")
    kept(job_of(MONET, 0, "first20", "mixed-faces"), tmp_path, mean_mm=0.4)
    groups = stored_runs(EXPERIMENTS["table1"].rows, tmp_path)
    assert list(groups) == [("faces", "full"), ("faces", "short"), ("mixed-faces", "first20")]
    assert list(groups["faces", "short"]) == [MONET]
    assert list(groups["faces", "short"][MONET]) == [0, 2, 10]


def test_remaining_time() -> None:
    """A row costs what it cost before, an unknown one what its task costs, others what all cost."""
    aff = row_named("table1", "Aff-MoNet M=9")
    done = {
        job_of(MONET): record_of(job_of(MONET), {}, seconds=100.0),
        job_of(GCN): record_of(job_of(GCN), {}, 20.0),
    }
    assert remaining_seconds([job_of(MONET, 1)], done) == 100
    assert remaining_seconds([job_of(aff)], done) == 100
    assert remaining_seconds([job_of(row_named("correspondence", "GCN"))], done) == 60
    assert remaining_seconds([job_of(MONET, seed) for seed in (1, 2, 3, 4)], done, processes=2) == 200
    assert remaining_seconds([job_of(MONET, 1)], done, processes=8) == 100
    assert remaining_seconds([job_of(MONET)], {}) is None
    assert remaining_seconds([], done) == 0


def test_time_in_words() -> None:
    assert [duration(seconds) for seconds in (4.4, 150.0, 3590.0, 3600.0, 7190.0, 7500.0)] == [
        "4 s",
        "2 min",
        "1 h 0 min",
        "1 h 0 min",
        "2 h 0 min",
        "2 h 5 min",
    ]
