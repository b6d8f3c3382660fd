"""Coarsenings that are drawn in every epoch: what is stored is what was drawn, in place, and runs repeat bitwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from geoskip.data import GraphLevel, GraphSet, Split, superpixel_set
from geoskip.data.graph_sets import with_levels
from geoskip.graphs import gcn_edges, polar
from geoskip.kernels import use_path
from geoskip.training import random_coarsening
from geoskip.training.config import Config
from geoskip.training.evaluation import evaluate_run
from geoskip.training.loop import train
from geoskip.training.random_coarsening import Coarsening, DrawnStore
from geoskip.training.run import Run
from geoskip.training.session import Session, captured_step
from geoskip.training.tasks import make_task
from geoskip.training.tasks.classification import Classification
from tests.data.test_superpixels import blobs
from tests.training import sets
from tests.training.test_packed import ITEMS, same_pattern
from tests.training.test_steps import record_nothing

AUTHORS: dict[str, Any] = {"matchings": 1, "drawn": "epoch", "weight": "far"}
VARIANTS: list[dict[str, Any]] = [
    {},
    AUTHORS,
    {**AUTHORS, "matchings": 2},
    {**AUTHORS, "drawn": "frozen"},
    {**AUTHORS, "weight": "near"},
]


def config(coarsening: Mapping[str, Any] = AUTHORS, **given: Any) -> Config:
    return sets.config("classification", coarsening=coarsening, **given)


def task(coarsening: Mapping[str, Any] = AUTHORS, padded: bool = False, **given: Any) -> Classification:
    made = Classification(config(coarsening, **given), sets.graphs())
    made._stores["train"] = replace(made.store, padded=padded)
    return made


def drawn_store_of(made: Classification) -> DrawnStore:
    assert isinstance(made.store, DrawnStore)
    return made.store


def rebuilt(made: Classification, epoch: int) -> GraphSet:
    """The training graphs with the levels that the drawn clusters lead to, built the old way."""
    store = drawn_store_of(made)
    finest = made.data.levels[0].select(made.data.split.train)
    parts: list[list[Tensor]] = [[] for _ in range(made.num_levels - 1)]
    for levels, clusters in store.coarsener.draw(epoch):
        for depth, chosen in enumerate(clusters):
            parts[depth].append(chosen[levels[depth].real])
    built = with_levels(without_loops(finest), [torch.cat(part) for part in parts])
    stored = (replace(finest, clusters=built[0].clusters), *built[1:])
    return replace(made.data.select(made.data.split.train), levels=stored)


def without_loops(level: GraphLevel) -> GraphLevel:
    proper = level.edges[0] != level.edges[1]
    graphs = level.graph_of_vertex[level.edge_index[1]][proper]
    counts = torch.bincount(graphs, minlength=len(level))
    return replace(level, edges=level.edges[:, proper], edge_offsets=torch.cat([counts.new_zeros(1), counts.cumsum(0)]))


@pytest.mark.parametrize("coarsening", VARIANTS[1:], ids=str)
@pytest.mark.parametrize("operator", ["monet", "gcn"])
def test_a_batch_is_what_the_drawn_clusters_lead_to(coarsening: dict[str, Any], operator: str) -> None:
    made = task(coarsening, operator=operator)
    for epoch in (0, 3, 1):
        made.begin_epoch(epoch)
        found = made.store.batch(ITEMS)
        expected = rebuilt(made, epoch).select(ITEMS)
        for depth, (graph, wanted) in enumerate(zip(found.graphs.levels, expected.pooled().levels, strict=True)):
            same_pattern(graph.pattern, wanted.pattern)
            torch.testing.assert_close(found.verts[depth].take(made.store.pos[depth]), expected.levels[depth].pos)
        for pattern, wanted_pattern in zip(found.graphs.clusters, expected.pooled().clusters, strict=True):
            torch.testing.assert_close(pattern.senders, wanted_pattern.senders)
            torch.testing.assert_close(pattern.offsets, wanted_pattern.offsets)


def test_one_matching_about_halves_and_two_quarter() -> None:
    sizes = {}
    for matchings in (1, 2):
        made = task({"matchings": matchings})
        sizes[matchings] = [
            int(level.offsets[-1]) / int(made.store.levels[0].offsets[-1]) for level in made.store.levels
        ]
    assert sizes[1][1] < 0.7
    assert sizes[1][2] == pytest.approx(sizes[2][1], abs=0.1)


@pytest.mark.parametrize(("matchings", "expected"), [(1, (38.4, 19.7)), (2, (19.7, 5))])
def test_superpixels_are_coarsened_as_far_as_in_the_authors_code(
    tmp_path: Path, matchings: int, expected: tuple[float, float]
) -> None:
    """75 superpixels become about 38 and 20 vertices; with two matchings about 20 and 5."""
    pytest.importorskip("skimage")
    images, labels = blobs(60, size=28), np.zeros(60, dtype=np.int64)
    graphs = superpixel_set(images, labels, ["blob"], Split.leading(60, 50), workers=1, cache=tmp_path)
    chosen = sets.config("classification", coarsening={**AUTHORS, "matchings": matchings})
    store = Classification(chosen, graphs).store
    sizes = [int(level.offsets[-1]) / 50 for level in store.levels]
    assert sizes == pytest.approx([75, *expected], rel=0.06)


def signature(store: Any) -> list[Tensor]:
    """What tells draws apart; beyond the last vertex lies what an earlier draw left."""
    members = [level.members[: int(level.offsets[-1])].clone() for level in store.levels[:-1]]
    return [level.offsets.clone() for level in store.levels] + members


def same_draw(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_an_epoch_has_its_own_draw_and_always_the_same() -> None:
    made, again = task(), task(seed=0)
    draws = []
    for epoch in (0, 1, 2, 1):
        made.begin_epoch(epoch)
        draws.append(signature(made.store))
    assert same_draw(draws[1], draws[3])
    assert not same_draw(draws[0], draws[1])
    assert not same_draw(draws[1], draws[2])
    again.begin_epoch(2)
    assert same_draw(signature(again.store), draws[2])
    other = task(seed=1)
    other.begin_epoch(2)
    assert not same_draw(signature(other.store), draws[2])


def test_frozen_means_one_draw() -> None:
    made = task({**AUTHORS, "drawn": "frozen"})
    first = signature(made.store)
    made.begin_epoch(5)
    assert same_draw(first, signature(made.store))


def test_tensors_stay_where_they_are() -> None:
    """A captured step reads addresses."""
    made = task(operator="gcn")
    store = drawn_store_of(made)

    def addresses() -> list[int]:
        tensors = [*store.pos]
        for level in store.levels:
            assert level.looped is not None
            for edges in (level.edges, level.looped):
                tensors += [edges.offsets, edges.senders, edges.receivers, edges.by_sender, edges.first_in]
            tensors += [t for t in (level.offsets, level.members, level.first_member) if t is not None]
        return [tensor.data_ptr() for tensor in tensors]

    before = addresses()
    for epoch in range(1, 6):
        made.begin_epoch(epoch)
    assert addresses() == before


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = task()
    whole.begin_epoch(2)
    monkeypatch.setitem(random_coarsening.CHUNKS, "cpu", 3 * 40**2)
    parts = task()
    parts.begin_epoch(2)
    assert same_draw(signature(whole.store), signature(parts.store))
    for one, other in zip(whole.store.levels, parts.store.levels, strict=True):
        assert torch.equal(one.edges.senders, other.edges.senders)
        assert torch.equal(one.edges.by_sender, other.edges.by_sender)


@pytest.mark.parametrize("operator", ["monet", "gcn", "gin"])
@pytest.mark.parametrize("pseudo_scale", ["set", "batch"])
def test_padding_changes_nothing_in_any_epoch(operator: str, pseudo_scale: str) -> None:
    chosen: dict[str, Any] = {
        "operator": operator,
        "model": {"dropout": 0.0, "pooling": "mean"},
        "pseudo_scale": pseudo_scale,
    }
    exact, padded = task(**chosen), task(padded=True, **chosen)
    model = exact.make_model()
    for epoch in range(4):
        exact.begin_epoch(epoch)
        padded.begin_epoch(epoch)
        losses = [made.loss(model, made.batch(ITEMS)) for made in (exact, padded)]
        torch.testing.assert_close(losses[1], losses[0])


def test_padded_batches_keep_their_shapes_while_the_layout_stays() -> None:
    made = task(padded=True, operator="gcn")
    shapes: dict[int, set[tuple[int, ...]]] = {}
    for epoch in range(12):
        made.begin_epoch(epoch)
        batch = made.store.batch(ITEMS)
        shape = tuple(n for level in batch.graphs.levels for n in (level.num_vertices, level.num_edges))
        shapes.setdefault(made.layout(len(ITEMS)), set()).add(shape)
    assert all(len(found) == 1 for found in shapes.values())


def test_a_draw_that_needs_more_places_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a margin some epoch has to need more than epoch 0; the layout says so, and goes back."""
    monkeypatch.setattr(random_coarsening, "MARGIN", 1.0001)
    made = task(padded=True)
    layouts, shapes = [], []
    for epoch in range(12):
        made.begin_epoch(epoch)
        layouts.append(made.layout(10))
        shapes.append(made.store.batch_shapes(10))
        batch = made.store.batch(torch.arange(10))
        assert all(int(verts.count) <= verts.capacity for verts in batch.verts)
    assert len(set(layouts)) > 1
    assert all((layouts[i] == layouts[j]) == (shapes[i] == shapes[j]) for i in range(12) for j in range(12))


@pytest.mark.parametrize("pseudo", ["position", "degree"])
def test_scales_of_a_batch(pseudo: str) -> None:
    """At the finest level the largest value of each graph becomes 1, at the others that of the batch; padding has no
    part in it."""
    for padded in (False, True):
        made = task(pseudo=pseudo, pseudo_scale="batch", padded=padded)
        batch = made.store.batch(ITEMS)
        for depth, (graph, verts) in enumerate(zip(batch.graphs.levels, batch.verts, strict=True)):
            assert graph.pseudo is not None
            real = verts.real[graph.pattern.receivers]
            spread = (graph.pseudo[real] - 0.5).abs() * 2 if pseudo == "position" else graph.pseudo[real]
            owners = verts.graphs[graph.pattern.receivers][real]
            largest = [float(spread[owners == g].max()) for g in range(4) if bool((owners == g).any())]
            expected = largest if depth == 0 else [max(largest)]
            assert expected == pytest.approx([1.0] * len(expected))


KERNELS: list[dict[str, Any]] = [
    {"operator": "monet"},
    {"operator": "monet", "pseudo": "degree"},
    {"operator": "monet", "finest_pseudo": "polar"},
    {"operator": "gcn"},
    {"operator": "feast"},
    {"operator": "gin"},
]


@pytest.mark.compiled
@pytest.mark.parametrize("chosen", KERNELS, ids=lambda chosen: "-".join(map(str, chosen.values())))
@pytest.mark.parametrize("coarsening", [{}, AUTHORS], ids=str)
def test_kernels_assemble_the_same_batches(coarsening: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Bitwise, padding included; also what operators derive from the graphs."""
    made = task(coarsening, padded=True, pseudo_scale="batch", **chosen)
    for epoch in (0, 2):
        made.begin_epoch(epoch)
        for items in (ITEMS, ITEMS[:1], ITEMS.flip(0)):
            results = []
            for path in ("fast", "interpreter"):
                with use_path(path):
                    batch = made.store.batch(items)
                    weights = [gcn_edges(graph, torch.float32) for graph in batch.graphs.levels]
                results.append(tree_leaves((batch, weights)))
            for expected, found in zip(*results, strict=True):
                assert (found is None and expected is None) or torch.equal(found, expected)


@pytest.mark.parametrize("coarsening", [{}, AUTHORS], ids=str)
@pytest.mark.parametrize("pseudo_scale", ["set", "batch"])
def test_polar_coordinates_are_those_of_each_graph(coarsening: dict[str, Any], pseudo_scale: str) -> None:
    """At the finest level alone, and relative to the longest edge of the graph itself."""
    made = task(coarsening, finest_pseudo="polar", pseudo_scale=pseudo_scale)
    plain = task(coarsening, pseudo_scale=pseudo_scale)
    batch, other = made.store.batch(ITEMS), plain.store.batch(ITEMS)
    pseudo, owners = batch.graphs.levels[0].pseudo, batch.verts[0].graphs[batch.graphs.levels[0].pattern.receivers]
    assert pseudo is not None
    for place, item in enumerate(ITEMS.tolist()):
        alone = made.data.levels[0].select(made.data.split.train[[item]])
        torch.testing.assert_close(pseudo[owners == place], polar(alone.graph(), alone.pos))
    for depth in (1, 2):
        assert torch.equal(batch.graphs.levels[depth].pseudo, other.graphs.levels[depth].pseudo)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("coarsening", "given"),
    [
        *((coarsening, {"pseudo_scale": "batch"}) for coarsening in VARIANTS),
        *((coarsening, {}) for coarsening in VARIANTS[:2]),
        (AUTHORS, {"operator": "feast"}),
    ],
    ids=str,
)
def test_every_variant_trains_and_evaluates_as_it_did(
    tmp_path: Path, coarsening: dict[str, Any], given: dict[str, Any]
) -> None:
    chosen = config(coarsening, **given, evaluate_every=1)
    run = train(chosen, tmp_path, task=make_task(chosen, sets.graphs()))
    assert run.record.config["coarsening"] == coarsening
    # Evaluated again from what was stored, test graphs are coarsened as they were at the end of the run.
    found = evaluate_run(Run.open(tmp_path), data=sets.graphs())
    assert found.evaluation.metrics == run.record.metrics


def test_epochs_that_are_drawn_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training before each epoch; evaluation after it, at the end too, and so again from the stored run."""
    epochs: list[int] = []
    redraw = DrawnStore.redraw

    def noted(store: DrawnStore, epoch: int) -> None:
        epochs.append(epoch)
        redraw(store, epoch)

    monkeypatch.setattr(DrawnStore, "redraw", noted)
    chosen = config(evaluate_every=1)
    train(chosen, tmp_path, task=make_task(chosen, sets.graphs()))
    # The last one is for the samples that are stored.
    assert epochs == [0, 1, 1, 2, 2, 3, 3]
    epochs.clear()
    evaluate_run(Run.open(tmp_path), data=sets.graphs())
    assert set(epochs) == {3}


def test_samples_may_come_before_an_evaluation() -> None:
    made = task()
    model = made.make_model()
    made.epoch = 1
    made.samples(model, 2)
    made.epoch = 2
    made.evaluate(model)


def test_evaluation_draws_again_at_each_epoch() -> None:
    made = task()
    made.epoch = 1
    first = signature(made.split_store("test"))
    made.epoch = 2
    assert not same_draw(first, signature(made.split_store("test")))


def test_a_run_that_was_cut_off_ends_bitwise_equal(tmp_path: Path) -> None:
    """In the middle of an epoch and at its end, with evaluations on the way."""
    chosen = config(evaluate_every=1, validation=0.2)

    def run(folder: str, **options: Any) -> Run:
        return train(chosen, tmp_path / folder, task=make_task(chosen, sets.graphs()), **options)

    whole = run("whole")
    for steps in (1, 1, 2):
        run("cut", stop_after=steps)
    resumed = run("cut")
    assert resumed.record.metrics == whole.record.metrics
    assert resumed.record.curves == whole.record.curves
    for name, tensor in whole.weights[0].items():
        assert torch.equal(tensor, resumed.weights[0][name]), name


def test_a_static_step_reads_what_was_drawn_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps on fixed buffers, recorded again where the layout changes, end where plain steps do."""
    monkeypatch.setattr(random_coarsening, "MARGIN", 1.0001)
    ends, recordings = [], []

    def record(step: Any) -> Any:
        recordings.append(step)
        return record_nothing(step)

    for static in (False, True):
        made = task(padded=True)
        session = Session(made.config, made)
        if static:
            session.update = captured_step(session.learner, record=record)
        while session.step < session.total_steps:
            session.advance()
        ends.append({name: tensor.clone() for name, tensor in session.learner.tensors().items()})
    assert len(recordings) > 2
    for name, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][name]), name


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"matching": 1}, r"coarsening\.matching: unknown name 'matching'; did you mean matchings\?"),
        ({"drawn": "always"}, r"coarsening\.drawn: unknown name 'always'; choose from frozen, epoch"),
        ({"weight": "farr"}, r"coarsening\.weight: .* did you mean far\?"),
        ({"matchings": 0}, r"coarsening\.matchings: expected 1 or more, got 0"),
        ({"matchings": "1"}, r"coarsening\.matchings: expected a whole number, got '1'"),
    ],
)
def test_settings_that_do_not_exist_are_named(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make_task(config(settings), sets.graphs())


def test_other_tasks_have_no_coarsening_to_draw() -> None:
    for given in ({"coarsening": AUTHORS}, {"pseudo_scale": "batch"}):
        with pytest.raises(ValueError, match="reconstruction has no such setting"):
            make_task(sets.config("reconstruction", **given), sets.meshes())


def test_graphs_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_coarsening, "MAX_VERTICES", 20)
    with pytest.raises(ValueError, match="graphs of up to 20 vertices, but the data have one with 3"):
        _ = task().store


def test_no_settings_mean_the_levels_of_the_data() -> None:
    assert Coarsening.from_settings({}) is None
    made = task({})
    assert not isinstance(made.store, DrawnStore)
    assert len(made.data.levels) == 3


@pytest.mark.gpu
@pytest.mark.parametrize("coarsening", VARIANTS[1:], ids=str)
@pytest.mark.parametrize("operator", ["monet", "gcn"])
def test_captured_steps_train_as_plain_ones_and_draw_as_the_cpu(coarsening: dict[str, Any], operator: str) -> None:
    chosen = config(coarsening, operator=operator, pseudo_scale="batch", device="cuda")
    ends = []
    for capture in (False, True):
        made = make_task(chosen, sets.graphs()).to("cuda")
        session = Session(chosen, made, capture=capture)
        while session.step < session.total_steps:
            session.advance()
        ends.append({name: tensor.clone() for name, tensor in session.learner.tensors().items()})
        on_cpu = task(coarsening, operator=operator)
        on_cpu.begin_epoch(session.epoch - 1)
        assert isinstance(made, Classification)
        assert same_draw([t.cpu() for t in signature(made.store)], signature(on_cpu.store))
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], msg=name)
