"""The page in a real browser: Debian's Chromium, driven by Playwright. Where there is none, these tests say so."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import geoskip
from geoskip.paper.claims import claim_rows
from geoskip.records import GraphSamples, MeshSamples
from geoskip.report.html_tables import VERDICT_COLUMNS, VERDICT_RULE
from geoskip.report.page import Page, page_html
from geoskip.report.palette import SERIES
from geoskip.report.picture_grids import errors_mm
from geoskip.report.runs import TASK_DESCRIPTIONS, ReportRun, find_runs
from tests.report.made_runs import made_runs, result_tables, spheres

ROOT = Path(geoskip.__file__).parents[2]
PUBLISHED = ROOT / "docs" / "report" / "index.html"
HOSTILE = '<img src=x onerror="window.boom=1"><script>window.boom=1</script>'
# No sandbox, since containers run as root; a software rasterizer, since they have no graphics card; no calls home.
FLAGS = [
    *("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"),
    *("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")


def absent() -> str:
    if importlib.util.find_spec("playwright") is None:
        return "no browser test: the package playwright is not installed"
    return "" if CHROMIUM else "no browser test: Chromium is not installed (on Debian: apt install chromium)"


pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "there is a browser")


def hostile(runs: list[ReportRun]) -> list[ReportRun]:
    """The same runs, with names that would like to be markup."""
    sampled = replace(cast(MeshSamples, runs[0].samples), names=(HOSTILE, "plain"))
    named = replace(runs[0].record, name=HOSTILE, row=HOSTILE)
    return [ReportRun(named, sampled), *runs[1:]]


@pytest.fixture(scope="module")
def runs() -> list[ReportRun]:
    return made_runs(spheres(3), spheres(3), seeds=2, patterns=("*MoNet* M=9", "*MoNet* M=4"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def path(runs: list[ReportRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(page_html(runs, Page(claims=claim_rows(runs))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(browser: Any, path: Path) -> Iterator[Any]:
    with opened(browser, path) as tab:
        yield tab


@contextmanager
def opened(browser: Any, path: Path, fragment: str = "", **options: Any) -> Iterator[Any]:
    """The page in a tab of its own, which must write nothing to the console and ask nothing of the network."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
    tab, faults = context.new_page(), []
    tab.on("console", lambda message: faults.append(message.text))
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else faults.append(r.url))
    tab.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
    tab.wait_for_selector("html.js")
    yield tab
    assert faults == []
    context.close()


def pixels(tab: Any, selector: str) -> np.ndarray:
    """Red, green, blue and opacity of a canvas at 64 by 64 points."""
    script = """canvas => {
        const small = new OffscreenCanvas(64, 64), context = small.getContext('2d');
        context.drawImage(canvas, 0, 0, 64, 64);
        return [...context.getImageData(0, 0, 64, 64).data];
    }"""
    return np.array(tab.locator(selector).evaluate(script), dtype=np.int64).reshape(64, 64, 4)


def view(number: int, section: str = "mesh") -> str:
    return f"#{section}-views .view >> nth={number} >> canvas"


def drawn(tab: Any, section: str = "mesh") -> None:
    tab.locator(f"#{section}-views").scroll_into_view_if_needed()
    tab.wait_for_selector(f"#{section}-views[data-drawn]")


def differ(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((np.abs(a - b).max(axis=2) > 8).mean() > 0.01)


def until(tab: Any, holds: Callable[[], bool]) -> None:
    """Wait until something holds; a busy machine may take its time to draw."""
    for _ in range(100):
        if holds():
            return
        tab.wait_for_timeout(100)
    raise AssertionError("it did not come to hold within 10 s")


def settled(tab: Any, number: int) -> np.ndarray:
    """A picture that stays the same for a second, after all that was asked for has been drawn."""
    before = pixels(tab, view(number))
    for _ in range(20):
        tab.wait_for_timeout(1000)
        now = pixels(tab, view(number))
        if not differ(before, now):
            return now
        before = now
    raise AssertionError("it did not settle within 20 s")


def until_changed(tab: Any, number: int, before: np.ndarray, section: str = "mesh") -> None:
    until(tab, lambda: differ(before, pixels(tab, view(number, section))))


def until_back(tab: Any, number: int, before: np.ndarray, section: str = "mesh") -> None:
    until(tab, lambda: not differ(before, pixels(tab, view(number, section))))


def test_tables_have_their_rows_and_sort(tab: Any, runs: list[ReportRun]) -> None:
    table = tab.locator("#e0 table")
    assert table.locator("tbody tr").count() == 8
    assert tab.locator("#claims table").first.locator("tbody tr").count() > 0
    first = table.locator("tbody tr >> nth=0 >> th")
    before = first.inner_text()
    heading = table.locator("thead button", has_text="ours").first
    for order, pick in (("ascending", min), ("descending", max)):
        heading.click()
        values = [float(cell.get_attribute("data-value")) for cell in table.locator("tbody tr td:nth-child(4)").all()]
        assert len(values) == 8
        assert values[0] == pick(values)
        assert table.locator(f"[aria-sort={order}]").count() == 1
    heading.click()
    assert first.inner_text() == before
    assert table.locator("tbody").count() == 2


def test_meshes_are_drawn_and_turn_together(tab: Any) -> None:
    drawn(tab)
    assert tab.locator("#mesh-views .view").count() == 4
    before = [pixels(tab, view(number)) for number in range(4)]
    for picture in before:
        assert 0.1 < (picture[:, :, 3] > 0).mean() < 0.9
    assert np.ptp(before[1][:, :, :3][before[1][:, :, 3] == 255], axis=0).max() > 60
    tab.locator(view(0)).focus()
    for _ in range(5):
        tab.keyboard.press("ArrowRight")
    for number, picture in enumerate(before):
        until_changed(tab, number, picture)
    tab.keyboard.press("0")
    for number, picture in enumerate(before):
        until_back(tab, number, picture)


def test_dragging_turns_and_pointing_reads(tab: Any) -> None:
    drawn(tab)
    before, box = pixels(tab, view(2)), tab.locator(view(1)).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(x, y)
    assert tab.locator("#mesh-views .view >> nth=1 >> .point").inner_text().endswith(" mm")
    tab.mouse.down()
    tab.mouse.move(x + 80, y + 10, steps=4)
    tab.mouse.up()
    until_changed(tab, 2, before)
    tab.locator(view(1)).dblclick()
    until_back(tab, 2, before)


def test_choices_change_the_picture(tab: Any) -> None:
    drawn(tab)
    before, told = pixels(tab, view(3)), tab.locator("#mesh-status").inner_text()
    tab.locator("#mesh-part label", has_text="skip only").click()
    until_changed(tab, 3, before)
    assert "Res-MoNet, skip only," in tab.locator("#mesh-status").inner_text()
    assert "Aff-MoNet, affine only," in tab.locator("#mesh-status").inner_text()
    assert "only the skip and the bias are left" in tab.locator("#mesh-status").inner_text()
    assert "has no skips" in tab.locator("#mesh-views .view >> nth=1 >> .absent").inner_text()
    tab.locator("#mesh-part label", has_text="everything").click()
    until_back(tab, 3, before)
    for choose, undo in [
        (lambda: tab.locator("#mesh-next").click(), lambda: tab.locator("#mesh-before").click()),
        (lambda: tab.select_option("#mesh-level", index=1), lambda: tab.select_option("#mesh-level", index=0)),
        (lambda: tab.select_option("#mesh-map", index=2), lambda: tab.select_option("#mesh-map", index=0)),
        (lambda: tab.select_option("#mesh-scene", index=1), lambda: tab.select_option("#mesh-scene", index=0)),
        (lambda: tab.locator("#mesh-saturation").fill("20"), lambda: tab.locator("#mesh-paper").click()),
    ]:
        start = pixels(tab, view(3))
        choose()
        until_changed(tab, 3, start)
        undo()
        until(tab, lambda: tab.locator("#mesh-status").inner_text() == told)
    assert tab.locator("#mesh-end").inner_text() == "5 mm"


def test_the_page_opens_with_a_typical_sample(tab: Any, runs: list[ReportRun]) -> None:
    """The sample nearest to the change on the test set, with the mean of the test set under each mesh."""
    drawn(tab)
    metric = TASK_DESCRIPTIONS["reconstruction"].metrics[0]
    rows = {row.label: row for table in result_tables(runs) for row in table.rows}
    title = tab.locator("#mesh-scene option:checked").inner_text()
    plain, affine = (rows[f"{name} {title.split(', ')[1].replace(' ', '')}"] for name in ("MoNet", "Aff-MoNet"))
    goal = metric.change(plain.metrics[metric.key].mean, affine.metrics[metric.key].mean)
    changes = {}
    for name, *errors in zip(
        cast(MeshSamples, plain.runs[0].samples).names,
        *(errors_mm(cast(MeshSamples, row.runs[0].samples)).mean(axis=1) for row in (plain, affine)),
        strict=True,
    ):
        changes[name] = metric.change(*errors)
    nearest = min(changes, key=lambda name: abs(changes[name] - goal))
    assert tab.locator("#mesh-sample option:checked").inner_text() == nearest
    said = (
        f"From plain to affine: {metric.shown_change(changes[nearest])} on this sample, {metric.shown_change(goal)} on"
    )
    assert said in tab.locator("#mesh-status").inner_text()
    for number, row in ((1, plain), (3, affine)):
        caption = tab.locator(f"#mesh-views .view >> nth={number} >> figcaption").inner_text()
        assert f"test set: mean {metric.shown_summary(row.metrics[metric.key])} mm" in caption
        assert "this sample: mean " in caption


def test_parts_have_a_scale_and_a_camera_of_their_own(tab: Any) -> None:
    drawn(tab)
    before, end = pixels(tab, view(3)), tab.locator("#mesh-end").inner_text()
    tab.locator("#mesh-part label", has_text="convolution only").click()
    until(tab, lambda: "convolution only" in tab.locator("#mesh-status").inner_text())
    until_changed(tab, 3, before)
    part = settled(tab, 3)
    assert tab.locator("#mesh-end").inner_text() not in (end, "5 mm")
    # The mesh is three times as large, and still inside its frame, in more colors than that of the end of the scale.
    shown = part[:, :, 3] > 0
    assert shown.mean() > 0.3
    assert not shown[[0, -1]].any()
    assert not shown[:, [0, -1]].any()
    assert np.ptp(part[:, :, 0][part[:, :, 3] == 255]) > 60
    tab.locator(view(3)).focus()
    for _ in range(5):
        tab.keyboard.press("ArrowRight")
    until_changed(tab, 3, part)
    tab.locator("#mesh-part label", has_text="everything").click()
    until_back(tab, 3, before)
    assert tab.locator("#mesh-end").inner_text() == end
    tab.locator("#mesh-part label", has_text="convolution only").click()
    tab.keyboard.press("Escape")
    tab.locator(view(3)).focus()
    tab.keyboard.press("0")
    until_back(tab, 3, part)
    tab.locator("#mesh-part label", has_text="everything").click()
    until_back(tab, 3, before)


def test_a_method_without_samples_keeps_its_place(browser: Any, runs: list[ReportRun], tmp_path: Path) -> None:
    """Plain stands next to affine, for meshes and bodies, also if its runs kept no samples."""
    page = tmp_path / "index.html"
    without = [replace(run, samples=None) if run.record.name in ("MoNet", "GCN") else run for run in runs]
    page.write_text(page_html(without), encoding="utf-8")
    with opened(browser, page) as tab:
        for section, name in (("mesh", "MoNet"), ("body", "GCN")):
            drawn(tab, section)
            for option in tab.locator(f"#{section}-scene option").all():
                if option.inner_text().startswith(name):
                    tab.select_option(f"#{section}-scene", label=option.inner_text())
            plain = tab.locator(f"#{section}-views .view >> nth=1")
            plain.get_by_text(f"No sample of {name} was kept.").wait_for()
            assert "test set: mean" in plain.locator("figcaption").inner_text()
            assert tab.locator(f"#{section}-views .view figcaption", has_text=f"Aff-{name}").count() == 1


def test_the_published_page_keeps_data_apart_that_the_paper_does_not_have(browser: Any) -> None:
    with opened(browser, PUBLISHED) as tab:
        drawn(tab)
        assert tab.locator("#mesh-paper").is_visible()
        tab.select_option("#mesh-scene", label="MoNet, M = 9, moving-bodies")
        until(tab, lambda: "Mean error: MoNet" in tab.locator("#mesh-status").inner_text())
        assert tab.locator("#mesh-paper").is_hidden()
        assert tab.locator("#mesh-end").inner_text() == "200 mm"
        titles = tab.locator(".experiment h3").all_inner_texts()
        assert len(titles) == len(set(titles))
        assert {"Shape reconstruction (Table 1), mixed-faces", "Shape reconstruction, moving-bodies"} <= set(titles)


def test_the_published_page_names_what_decodes(browser: Any) -> None:
    """Plain, residual and affine stand side by side; a residual skip alone is not called affine."""
    with opened(browser, PUBLISHED) as tab:
        drawn(tab)
        assert tab.locator("#mesh-views figcaption b").all_inner_texts() == [
            "Input", "FeaStNet", "Res-FeaStNet", "Aff-FeaStNet",
        ]  # fmt: skip
        assert tab.locator("#mesh-views figcaption", has_text="test set: mean").count() == 3
        end = tab.locator("#mesh-end").inner_text()
        tab.locator("#mesh-part label", has_text="skip only").click()
        until(tab, lambda: "Res-FeaStNet, skip only," in tab.locator("#mesh-status").inner_text())
        assert "Aff-FeaStNet, affine only," in tab.locator("#mesh-status").inner_text()
        assert tab.locator("#mesh-end").inner_text() != end
        tab.locator("#bodies").scroll_into_view_if_needed()
        drawn(tab, "body")
        assert tab.locator("#body-show input:checked").get_attribute("value") == "error"
        assert tab.locator("#body-views figcaption b").all_inner_texts() == ["Target", "FeaStNet", "Aff-FeaStNet"]


@pytest.mark.parametrize("target", ["curves", "bodies", "e3", "e3-loss"])
def test_links_land_at_their_targets_on_the_published_page(browser: Any, target: str) -> None:
    with opened(browser, PUBLISHED, fragment=target) as tab:
        tab.wait_for_timeout(4000)
        assert distance_from_target(tab, target) < 2


def test_people_have_readable_names(browser: Any) -> None:
    with opened(browser, PUBLISHED) as tab:
        drawn(tab)
        assert tab.locator("#mesh-views figcaption >> nth=0").inner_text().startswith("Input\nPerson ")
        for section in ("mesh", "body"):
            tab.locator(f"#{section}-views").scroll_into_view_if_needed()
            tab.wait_for_selector(f"#{section}-sample option", state="attached")
            names = tab.locator(f"#{section}-sample option").all_inner_texts()
            assert all(re.fullmatch(r"Person \d+, [a-z ]+", name) for name in names)


def test_levels_have_figures_of_their_own(tab: Any, runs: list[ReportRun]) -> None:
    """Captions and the line below are about the vertices that are shown."""
    drawn(tab)
    samples = cast(MeshSamples, next(run.samples for run in runs if run.record.row == "MoNet M=9"))
    moved = np.linalg.norm(samples.parts["full"][0] - samples.parts["input"][0], axis=1)
    caption = tab.locator("#mesh-views .view >> nth=1 >> figcaption")
    for index, errors in enumerate([moved, *(moved[level.kept] for level in samples.levels)]):
        tab.select_option("#mesh-level", index=index)
        mean, largest = (f"{value:#.3g}".rstrip(".") for value in (errors.mean(), errors.max()))
        words = f"mean {mean}, max {largest} mm"
        tab.wait_for_function("([e, text]) => e.textContent.includes(text)", arg=[caption.element_handle(), words])
        assert f"Mean error: MoNet {mean} mm" in tab.locator("#mesh-status").inner_text()
    tab.select_option("#mesh-level", index=0)


@pytest.mark.parametrize("target", ["curves", "bodies", "graphs", "e1-loss", "e2"])
def test_links_land_at_their_targets(browser: Any, path: Path, target: str) -> None:
    """Opened with a fragment, the page shows its target, also after everything above it has been filled in."""
    with opened(browser, path, fragment=target) as tab:
        tab.wait_for_timeout(2500)
        assert distance_from_target(tab, target) < 2


def test_links_of_the_page_land_at_their_targets(browser: Any, path: Path) -> None:
    with opened(browser, path) as tab:
        for target in ("graphs", "curves", "bodies", "results"):
            tab.locator(f"nav a[href='#{target}']").click()
            until(tab, partial(is_at, tab, target))
        tab.wait_for_timeout(2500)
        assert distance_from_target(tab, "results") < 2


@pytest.mark.parametrize("wait", [0, 3000])
def test_an_address_that_changes_lands_at_its_target(browser: Any, path: Path, wait: int) -> None:
    """A fragment that is typed in, or a link from another page, before and after the page has been filled in."""
    with opened(browser, path) as tab:
        tab.wait_for_timeout(wait)
        for target in ("graphs", "e1-loss", "bodies"):
            tab.evaluate("target => { location.hash = target; }", target)
            tab.wait_for_timeout(2500)
            assert distance_from_target(tab, target) < 2


def shows(place: Any, text: str) -> bool:
    return text in place.inner_text()


def is_at(tab: Any, target: str) -> bool:
    return distance_from_target(tab, target) < 2


def distance_from_target(tab: Any, target: str) -> float:
    """Pixels between the scroll position and where a jump to an element should end, at most the end of the page."""
    script = """id => {
        const root = document.documentElement, padding = parseFloat(getComputedStyle(root).scrollPaddingTop);
        const top = document.getElementById(id).getBoundingClientRect().top + scrollY - padding;
        return Math.abs(scrollY - Math.max(0, Math.min(top, root.scrollHeight - innerHeight)));
    }"""
    return float(tab.evaluate(script, target))


def test_chart_titles_are_distinct(browser: Any) -> None:
    """On the page in docs/, where several tables have the same data."""
    with opened(browser, PUBLISHED, "curves") as tab:
        titles = tab.locator(".chart h3").all_inner_texts()
        assert len(titles) == len(set(titles)) > 10


def test_a_smaller_error_is_a_negative_difference(tab: Any) -> None:
    """Aff-MoNet has smaller errors than MoNet in the runs that were made up: the sign is that of the change."""
    tab.locator("#claims summary").click()
    row = tab.locator("#claims details tr", has_text="Aff-MoNet M=9 against MoNet M=9").first
    assert row.locator("td >> nth=3").inner_text().startswith("−")
    assert tab.locator(".glance li", has_text="faces").locator("strong").inner_text().startswith("−")
    assert tab.locator(".glance li", has_text="superpixels").locator("strong").inner_text().startswith("+")
    row = tab.locator("#claims details tr", has_text="Aff-GCN against GCN").first
    assert row.locator("td >> nth=3").inner_text().startswith("+")
    tab.locator("#claims summary").click()


def test_claims_have_the_verdicts_of_the_docs(tab: Any) -> None:
    head = tab.locator("#claims table").first.locator("thead th").all_inner_texts()
    assert [text.lower() for text in head[2:]] == list(VERDICT_COLUMNS)
    assert VERDICT_RULE in tab.locator("#claims").inner_text()


def test_methods_stand_aside_until_they_are_asked_for(tab: Any) -> None:
    drawn(tab)
    tab.locator("#mesh-methods label", has_text="MoNet+").click()
    assert tab.locator("#mesh-views .view").count() == 5
    until(tab, lambda: bool((pixels(tab, view(4))[:, :, 3] > 0).mean() > 0.1))
    tab.locator("#mesh-methods label", has_text="MoNet+").click()
    assert tab.locator("#mesh-views .view").count() == 4


def test_correspondences_show_matches_and_errors(tab: Any) -> None:
    tab.locator("#bodies").scroll_into_view_if_needed()
    drawn(tab, "body")
    before = pixels(tab, view(1, "body"))
    assert 0.1 < (before[:, :, 3] > 0).mean() < 0.9
    assert "% exact" in tab.locator("#body-views .view >> nth=1 >> figcaption").inner_text()
    assert tab.locator("#body-scale").is_visible()
    assert tab.locator("#body-end").inner_text() == "10 %"
    tab.locator("#body-show label", has_text="match").click()
    until_changed(tab, 1, before, "body")
    assert tab.locator("#body-scale").is_hidden()
    tab.locator("#body-show label", has_text="geodesic error").click()
    until_back(tab, 1, before, "body")


def test_a_short_run_has_whole_epochs_at_its_axis(browser: Any, runs: list[ReportRun], tmp_path: Path) -> None:
    page, curve = tmp_path / "index.html", [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]
    record = replace(runs[0].record, curves={"loss": curve})
    page.write_text(page_html([replace(runs[0], record=record)]), encoding="utf-8")
    with opened(browser, page) as tab:
        ticks = tab.locator("#e0-loss svg[role=img] text[text-anchor=middle]")
        ticks.first.wait_for()
        assert ticks.all_text_contents()[:-2] == ["1", "2", "3"]  # the last two are the names of the axes


def test_charts_hide_lines_zoom_and_are_read(tab: Any) -> None:
    tab.locator("#curves").scroll_into_view_if_needed()
    chart = tab.locator("#e0-loss")
    chart.locator("svg[role=img]").wait_for()
    lines = chart.locator("svg[role=img] .line")
    count = lines.count()
    button = chart.locator(".legend button").first
    button.click()
    until(tab, lambda: lines.count() == count - 1)
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    until(tab, lambda: lines.count() == count)
    box = chart.locator("svg[role=img]").bounding_box()
    middle = box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + box["width"] / 2, middle)
    assert "Epoch" in chart.locator(".tip").inner_text()
    path = lines.first.get_attribute("d")
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=3)
    tab.mouse.up()
    until(tab, lambda: lines.first.get_attribute("d") != path)
    chart.locator(".tools button").click()
    until(tab, lambda: lines.first.get_attribute("d") == path)
    title = chart.locator("h3").bounding_box()
    tab.mouse.move(title["x"] + 5, title["y"] + 5)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 2, chart.locator("svg[role=img]").bounding_box()["y"] + 50, steps=3)
    tab.mouse.up()
    tab.wait_for_timeout(300)
    assert lines.first.get_attribute("d") == path, "a drag that began elsewhere, as over text, zooms nothing"
    tab.mouse.move(title["x"] + 5, title["y"] + 5)
    until(tab, lambda: chart.locator(".tip").is_hidden())
    chart.locator("svg[role=img]").focus()
    tab.keyboard.press("ArrowRight")
    assert "Epoch 1:" in chart.locator(".status").inner_text()
    chart.locator("summary").click()
    until(tab, lambda: chart.locator(".values tbody tr").count() == 40)


def test_digits_are_drawn_and_chosen(tab: Any) -> None:
    tab.locator("#graphs").scroll_into_view_if_needed()
    cards = tab.locator("#graph-list li")
    cards.first.wait_for()
    assert cards.count() == 12
    until(tab, lambda: cards.first.locator("svg circle").count() == 75)
    radii = {float(dot.get_attribute("r")) for dot in cards.first.locator("circle").all()}
    assert min(radii) == 4
    assert max(radii) == 12
    assert cards.first.locator("path").get_attribute("d").count("M") > 75
    tab.select_option("#graph-set", index=3)
    tab.locator("#graph-controls label", has_text="any wrong").click()
    wrong = cards.count()
    assert all(card.locator(".no").count() for card in cards.all())
    tab.locator("#graph-controls label", has_text="all correct").click()
    assert cards.count() == 12 - wrong
    tab.locator("#graph-controls label", has_text="all").first.click()
    assert tab.locator("#graph-list h3").all_inner_texts() == [f"Label: {number % 10}" for number in range(12)]


def test_graphs_have_the_names_of_their_files(browser: Any, runs: list[ReportRun], tmp_path: Path) -> None:
    page, names = tmp_path / "index.html", tuple(f"digits/{number}.png" for number in range(12))
    named = [
        replace(run, samples=replace(run.samples, names=names)) for run in runs if isinstance(run.samples, GraphSamples)
    ]
    page.write_text(page_html(named), encoding="utf-8")
    with opened(browser, page, "graphs") as tab:
        tab.locator("#graph-list li").first.wait_for()
        assert tuple(tab.locator("#graph-list .file").all_inner_texts()) == names


def test_skips_have_one_set_of_colors(tab: Any) -> None:
    """The page, the figures and the docs use the same colors for plain, residual and affine."""
    tab.emulate_media(color_scheme="light")
    docs = runpy.run_path(str(ROOT / "docs" / "make_figures.py"))["SKIPS"]
    for skip in ("none", "residual", "affine"):
        color = SERIES[skip][0]
        assert tab.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{skip}')") == color
        assert docs[skip][1] == color


def test_light_and_dark(tab: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.emulate_media(color_scheme="dark")
    dark = tab.evaluate(ground)
    tab.emulate_media(color_scheme="light")
    light = tab.evaluate(ground)
    assert light != dark
    seen = []
    for system in ("light", "dark"):
        tab.emulate_media(color_scheme=system)
        for _ in range(2):
            tab.locator("#theme").click()
            seen.append((tab.locator("#theme").get_attribute("aria-label"), tab.evaluate(ground)))
    assert seen == [
        ("Theme: dark", dark),
        ("Theme: system", light),
        ("Theme: light", light),
        ("Theme: system", dark),
    ]
    tab.emulate_media(color_scheme="light")


def test_hostile_names_are_text(browser: Any, runs: list[ReportRun], tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text(page_html(hostile(runs), Page(title=HOSTILE, problems=(HOSTILE,))), encoding="utf-8")
    with opened(browser, page) as tab:
        drawn(tab)
        assert tab.locator("h1").inner_text() == HOSTILE
        assert HOSTILE in tab.locator("#results").inner_text()
        tab.select_option("#mesh-scene", label=f"{HOSTILE}, M = 4, faces, other items")
        until(tab, lambda: HOSTILE in tab.locator("#mesh-status").inner_text())
        assert HOSTILE in tab.locator("#mesh-sample").inner_text()
        assert tab.locator("#mesh-views figcaption b >> nth=1").inner_text() == HOSTILE
        tab.locator("#curves").scroll_into_view_if_needed()
        tab.locator("#e0-loss svg[role=img]").wait_for()
        assert tab.evaluate("window.boom") is None
        assert tab.locator("main img").count() <= 1


def test_a_phone_shows_all_of_it_in_its_width(browser: Any, path: Path) -> None:
    with opened(browser, path, viewport={"width": 390, "height": 844}, device_scale_factor=2, has_touch=True) as tab:
        drawn(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        assert tab.locator(view(0)).bounding_box()["width"] > 140


def test_without_scripts_pictures_and_tables_remain(browser: Any, path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(path.as_uri())
    assert tab.locator("#mesh-views img").is_visible()
    assert "Mean error: MoNet" in tab.locator("#mesh-views figcaption").inner_text()
    assert "the color scale ends at 5 mm" in tab.locator("#mesh-views figcaption").inner_text()
    picture = tab.locator("#mesh-views img").bounding_box()
    names = tab.locator("#mesh-views .names b").all()
    assert [name.inner_text() for name in names] == ["Input", "MoNet", "MoNet+", "Res-MoNet", "Aff-MoNet"]
    for number, name in enumerate(names):
        box = name.bounding_box()
        assert box["x"] + box["width"] / 2 == pytest.approx(
            picture["x"] + (number + 0.5) / 5 * picture["width"], abs=3
        ), "below its mesh"
    assert tab.locator("noscript p").bounding_box()["y"] < picture["y"]
    assert tab.locator("#mesh-controls").is_hidden()
    for words in ("Drag a mesh", "Click a heading", "Point at a chart", "Dots are vertices"):
        assert tab.get_by_text(words).count() == 1
        assert tab.get_by_text(words).is_hidden()
    assert tab.locator("#theme").is_hidden()
    assert tab.get_by_text("Our results next to the paper’s").is_visible()
    assert tab.locator("#e0 tbody tr").count() == 8
    context.close()


def test_without_webgl_a_picture_remains(browser: Any, path: Path) -> None:
    context = browser.new_context()
    context.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("html.js")
    assert tab.locator("#mesh-views img").is_visible()
    assert "no WebGL" in tab.locator("#mesh-status").inner_text()
    context.close()


def test_meshes_come_back_after_the_graphics_were_lost(browser: Any, path: Path) -> None:
    """Phones take them from tabs in the background."""
    with opened(browser, path) as tab:
        tab.add_init_script("""{
            const own = HTMLCanvasElement.prototype.getContext;
            HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
                const context = own.call(this, kind, ...rest);
                if (kind === 'webgl2') window.graphics = context.getExtension('WEBGL_lose_context');
                return context;
            };
        }""")
        tab.reload()
        drawn(tab)
        before = pixels(tab, view(1))
        tab.evaluate("graphics.loseContext()")
        tab.wait_for_timeout(300)
        tab.locator(view(1)).focus()
        for _ in range(5):
            tab.keyboard.press("ArrowRight")
        tab.wait_for_timeout(500)
        assert not differ(before, pixels(tab, view(1))), "the last picture stays"
        tab.evaluate("graphics.restoreContext()")
        until_changed(tab, 1, before)
        tab.keyboard.press("0")
        until_back(tab, 1, before)


def test_headlines_stand_in_rows(browser: Any) -> None:
    """Figures at one height and sentences at one height, however long the titles are; then what the claims say."""
    with opened(browser, PUBLISHED) as tab:
        for part in (".what", "strong", "strong + span", ".example"):
            tops = [one.bounding_box()["y"] for one in tab.locator(f".glance {part}").all()]
            assert len(tops) > 2
            assert max(tops) - min(tops) < 1
        tab.set_viewport_size({"width": 900, "height": 800})
        tops = [round(one.bounding_box()["y"]) for one in tab.locator(".glance li").all()]
        assert len(set(tops)) == 2, "two rows of two, not three and one"
        assert tops.count(tops[0]) == len(tops) / 2
        assert "(Gong, Bahri, Bronstein, Zafeiriou; CVPR 2020)" in tab.locator(".lede").inner_text()
        assert "The data mixed-faces, bodies and remeshed-bodies are generated" in tab.locator(".outcome").inner_text()
        verdicts = r"(all|\d of \d) better, (\d) significantly|one pair, (significant)"
        found = [re.search(verdicts, one.inner_text()) for one in tab.locator(".glance li").all()]
        significant = sum(int(match[2] or 1) for match in found if match)
        helps = tab.locator("#claims table >> nth=0 >> tbody tr >> nth=0")
        assert helps.locator("th").inner_text() == "An affine skip helps"
        assert helps.locator("td >> nth=1").inner_text() == str(significant)
        judged, better = helps.locator("td").first.inner_text(), helps.locator("td >> nth=2").inner_text()
        better = int(re.sub(r"\D", "", better)) + significant
        said = f"An affine skip helps in {better} of {judged} comparisons, significantly in {significant}."
        assert tab.locator(".helps").inner_text() == said
        counts = [int(n) for n in re.findall(r"\d+", tab.locator(".found").inner_text().partition(" fail")[0])]
        last = tab.locator("#claims table >> nth=0 >> tbody tr").last.locator("td").all_inner_texts()
        total, holds, same, opposite, fails, _ = (int(re.sub(r"\D", "", text) or 0) for text in last)
        assert counts == [total, holds, same + opposite, fails]
        tab.locator(".outcome a").click()
        until(tab, partial(is_at, tab, "claims"))
        assert tab.locator("nav a", has_text="Charts").is_visible()
        assert 0 <= tab.locator("nav").bounding_box()["y"] < 60


def test_a_phone_cuts_nothing_off(browser: Any) -> None:
    with opened(browser, PUBLISHED, viewport={"width": 390, "height": 844}) as tab:
        drawn(tab)
        excess = "element => element.scrollWidth - element.clientWidth"
        assert tab.locator("nav").evaluate(excess) <= 0
        assert tab.locator("#claims .scroll").first.evaluate(excess) <= 0
        for table in tab.locator(".experiment .scroll:has(tbody)").all():
            box, caption = table.bounding_box(), table.locator("caption span").bounding_box()
            if box is not None and caption is not None:
                assert caption["x"] + caption["width"] <= box["x"] + box["width"]
        for table in tab.locator("#results .experiment:not(#claims) .scroll").all():
            cell = table.locator("tbody td", has_text=re.compile(r"\d\.\d")).first
            right = cell.bounding_box()["x"] + cell.bounding_box()["width"]
            assert right <= table.bounding_box()["x"] + table.bounding_box()["width"] + 1, "our main figure"
        assert tab.locator("#mesh-rule").bounding_box()["y"] > tab.locator("#mesh-views").bounding_box()["y"]


@pytest.mark.parametrize("width", [390, 600, 768, 1000, 1400])
def test_plain_stands_next_to_affine_at_every_width(browser: Any, width: int) -> None:
    """All methods in one row, or in rows of two without a gap."""
    with opened(browser, PUBLISHED, viewport={"width": width, "height": 900}) as tab:
        for section, count in (("mesh", 4), ("body", 3)):
            drawn(tab, section)
            tops = [round(one.bounding_box()["y"]) for one in tab.locator(f"#{section}-views .view").all()]
            rows = [tops.count(top) for top in dict.fromkeys(tops)]
            assert rows in ([count], [2, 2], [1, 2]), f"{section} at {width}: {rows}"


def test_a_tap_reads_values_on_a_phone(browser: Any) -> None:
    """Of charts and of meshes; fingers do not hover."""
    with opened(browser, PUBLISHED, viewport={"width": 390, "height": 844}, has_touch=True) as tab:
        drawn(tab)
        box = tab.locator(view(1)).bounding_box()
        tab.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        point = tab.locator("#mesh-views .view >> nth=1 >> .point")
        assert re.fullmatch(r"\d+\.\d+ mm", point.inner_text())
        chart = tab.locator("#e0-loss")
        chart.scroll_into_view_if_needed()
        drawing = chart.locator("svg[role=img]")
        drawing.wait_for()
        drawing.scroll_into_view_if_needed()
        box = drawing.bounding_box()
        tab.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 60)
        assert re.match(r"Epoch: \d+", chart.locator(".tip").inner_text())


def test_digits_stay_on_their_cards(browser: Any) -> None:
    with opened(browser, PUBLISHED, "graphs", viewport={"width": 390, "height": 844}) as tab:
        tab.locator("#graph-list li").first.wait_for()
        for card in tab.locator("#graph-list li").all():
            box, table = card.bounding_box(), card.locator("table").bounding_box()
            assert table["x"] + table["width"] <= box["x"] + box["width"]


def test_marks_do_not_hide_each_other(browser: Any) -> None:
    """Rows with equally many parameters stand side by side, and are read with their intervals."""
    with opened(browser, PUBLISHED, "e4-parameters") as tab:
        chart = tab.locator("#e4-parameters")
        chart.locator("svg[role=img]").wait_for()
        boxes = [mark.bounding_box() for mark in chart.locator("svg[role=img] .mark").all()]
        centers = sorted(box["x"] + box["width"] / 2 for box in boxes)
        assert len(centers) == 8
        assert min(b - a for a, b in pairwise(centers)) > 5
        chart.locator("svg[role=img]").focus()
        tab.keyboard.press("ArrowRight")
        read = chart.locator(".tip").inner_text()
        (table,) = (t for t in result_tables(find_runs([ROOT / "results" / "runs"]).runs) if t.key == "e4")
        chart.locator("summary").click()
        for row in (row for row in table.rows if row.is_plain):
            summary = row.metrics["mean_mm"]
            low, high = summary.mean - (summary.half or 0), summary.mean + (summary.half or 0)
            value = f"{summary.mean:.3f} ({low:.3f} to {high:.3f})"
            assert f"{row.method}: {value}" in read, "the figures of the table, with their interval"
            assert f"Parameters {row.parameters:,}: " in chart.locator(".status").inner_text()
            assert f"{row.method} {value}" in chart.locator(".status").inner_text()
            until(tab, partial(shows, chart.locator(".values"), value))


def test_all_comparisons_fit_on_a_screen(browser: Any) -> None:
    with opened(browser, PUBLISHED) as tab:
        tab.locator("#claims summary").click()
        table = tab.locator("#claims details .scroll")
        assert table.evaluate("element => element.scrollWidth - element.clientWidth") <= 0
        assert table.bounding_box()["height"] < 80 * table.locator("tbody tr").count()
        assert not re.search(r"in60|first200|short schedule", table.inner_text())


def test_figures_of_the_test_set_stand_next_to_those_of_whole_samples(browser: Any) -> None:
    """Not next to those of a level or of a part, which they cannot be compared with."""
    with opened(browser, PUBLISHED) as tab:
        drawn(tab)
        tests = tab.locator("#mesh-views figcaption", has_text="test set")
        assert tests.count() == 3
        tab.select_option("#mesh-level", index=1)
        until(tab, lambda: tests.count() == 0)
        assert tab.locator("#mesh-views figcaption", has_text="these vertices: mean").count() == 3
        tab.select_option("#mesh-level", index=0)
        until(tab, lambda: tests.count() == 3)
        tab.locator("#mesh-part label", has_text="skip only").click()
        until(tab, lambda: tests.count() == 0)
        assert tab.locator("#mesh-rule").is_visible()
        tab.select_option("#mesh-scene", label="ChebNet, M = 9, mixed-faces")
        until(tab, lambda: tab.locator("#mesh-rule").is_hidden())
        tab.locator("#mesh-part label", has_text="everything").click()
        assert tab.locator("#mesh-end").inner_text() == "5 mm", "as for the other operators"


def test_tiny_errors_are_not_told_apart(browser: Any) -> None:
    with opened(browser, PUBLISHED, "bodies") as tab:
        drawn(tab, "body")
        until(tab, lambda: "Mean geodesic error" in tab.locator("#body-status").inner_text())
        assert "FeaStNet < 0.01 %" in tab.locator("#body-status").inner_text()
        assert "points on this body" in tab.locator("#body-status").inner_text()
        assert not re.search(r"0\.00\d", tab.locator("#bodies").inner_text())


def test_digits_have_the_accuracy_on_the_test_set(browser: Any) -> None:
    with opened(browser, PUBLISHED, "graphs") as tab:
        tab.locator("#graph-list li").first.wait_for()
        assert "20 epochs" in tab.locator("#graph-set option:checked").inner_text()
        assert re.search(r"MoNet 22 \(test set: 91\.65 ± 0\.27 %\)", tab.locator("#graph-status").inner_text())
        assert "spread evenly over the test set" in tab.locator("#graphs").inner_text().replace("\n", " ")


# Texts whose contrast with their background is below that of WCAG AA, except those of disabled controls.
FAINT = """() => {
    const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (rgb) => rgb.slice(0, 3).map((v) => (v <= 10 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0.05);
    const opaque = (element) => (numbers(getComputedStyle(element).backgroundColor)[3] ?? 1) === 1;
    const written = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    return [...document.querySelectorAll('body *')].filter((element) => {
        if (!written(element) || !element.checkVisibility()) return false;
        if (element.matches(':disabled, :disabled + *')) return false;
        let back = element;
        while (!opaque(back)) back = back.parentElement;
        const style = getComputedStyle(element), text = element.closest('svg') ? style.fill : style.color;
        const [a, b] = [light(numbers(text)), light(numbers(getComputedStyle(back).backgroundColor))];
        return Math.max(a, b) / Math.min(a, b) < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5);
    }).map((element) => element.outerHTML.slice(0, 120));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast_and_controls_have_names(browser: Any, scheme: str) -> None:
    with opened(browser, PUBLISHED, "curves", color_scheme=scheme) as tab:
        tab.wait_for_selector(".chart svg[role=img]")
        tab.locator("#claims summary").click()
        assert tab.evaluate(FAINT) == []
        nameless = """[...document.querySelectorAll('button, select, input, a, summary, [tabindex]')].filter((e) =>
            !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).map((e) => e.outerHTML)"""
        assert tab.evaluate(nameless) == []


def test_printing_fills_every_section(browser: Any) -> None:
    """Also those that the reader has not come near, right after the page has been opened, and in dark ink."""
    with opened(browser, PUBLISHED, viewport={"width": 718, "height": 1000}) as tab:
        tab.emulate_media(color_scheme="light")
        tab.locator("#theme").click()
        assert tab.locator("#theme").get_attribute("aria-label") == "Theme: dark"
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert tab.locator(".chart svg[role=img]").count() == tab.locator(".chart").count() > 10
        until(tab, lambda: tab.locator("#graph-list li").count() == 24)
        tab.emulate_media(media="print")
        assert tab.locator("nav").is_hidden()
        assert tab.locator(".mast").evaluate("element => getComputedStyle(element).position") == "static"
        assert tab.evaluate(FAINT) == []
        assert (
            tab.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--affine')")
            == (SERIES["affine"][0])
        )
        tab.locator("#claims summary").click()
        for table in tab.locator(".scroll").all():
            excess = table.evaluate("element => element.scrollWidth - element.clientWidth")
            assert excess <= 0, f"cut off on paper: {table.get_attribute('aria-label')}"


def test_values_under_the_pointer_stay_on_a_phone(browser: Any) -> None:
    with opened(browser, PUBLISHED, "curves", viewport={"width": 390, "height": 844}) as tab:
        tab.wait_for_selector(".chart svg[role=img]")
        for chart in tab.locator(".chart").all():
            drawing = chart.locator("svg[role=img]")
            drawing.scroll_into_view_if_needed()
            box = drawing.bounding_box()
            for part in (0.3, 0.5, 0.7):
                tab.mouse.move(box["x"] + part * box["width"], box["y"] + 60)
                tip = chart.locator(".tip").bounding_box()
                if tip is not None:
                    assert 0 <= tip["x"] <= tip["x"] + tip["width"] <= 390
