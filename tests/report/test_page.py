import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.report import page as page_module
from geoskip.report.page import SCRIPTS, Page, page_html
from geoskip.report.runs import TASK_DESCRIPTIONS
from tests.report.made_runs import made_run, made_runs, spheres

HOSTILE = "</script><script>window.boom = 1</script><img src=//x.example onerror=boom()>"
EMPTY = {"meta", "link", "input", "img", "br", "hr"}


class Outline(HTMLParser):
    """Tags, attributes and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    return page_html(made_runs(spheres(2), spheres(2), seeds=2, patterns=("*MoNet*",)))


def test_tags_are_closed_and_ids_are_there_once(page: str) -> None:
    outline = Outline(page)
    assert outline.open == []
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_nothing_is_asked_of_the_network(page: str) -> None:
    for tag, attrs in Outline(page).tags:
        for name in ("src", "href", "action", "srcset"):
            value = attrs.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", page.split("<body>")[0])


def test_only_the_page_s_own_script_may_run(page: str) -> None:
    script = page.rsplit("<script>", 1)[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(attrs["content"] for tag, attrs in Outline(page).tags if attrs.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_control_has_a_name(page: str) -> None:
    outline = Outline(page)
    assert all(attrs.get("alt") for tag, attrs in outline.tags if tag == "img")
    assert all(tag != "button" or attrs.get("type") == "button" for tag, attrs in outline.tags)
    assert next(attrs["lang"] for tag, attrs in outline.tags if tag == "html") == "en"
    assert sum(tag == "caption" for tag, _ in outline.tags) == sum(tag == "table" for tag, _ in outline.tags)


def test_the_same_runs_make_the_same_page(page: str) -> None:
    assert page == page_html(made_runs(spheres(2), spheres(2), seeds=2, patterns=("*MoNet*",)))


def test_scripts_are_all_there_and_short() -> None:
    folder = Path(page_module.__file__).parent / "assets"
    assert sorted(path.stem for path in folder.glob("*.js")) == sorted(SCRIPTS)
    assert all(len(path.read_text().splitlines()) <= 150 for path in sorted(folder.iterdir()))


def test_hostile_words_are_text() -> None:
    run = made_run(
        EXPERIMENTS["table1"].rows[0],
        HOSTILE, 0, name=HOSTILE, row=HOSTILE, device=HOSTILE, versions={HOSTILE: HOSTILE}, experiment=HOSTILE,
    )  # fmt: skip
    page = page_html([run], Page(title=HOSTILE, problems=(HOSTILE,)))
    assert page.count("<script>") == 1
    assert "<img" not in page
    outline = Outline(page)
    assert outline.open == []
    assert not any(name.startswith("on") for _, attrs in outline.tags for name in attrs)
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["charts"][0]["series"][0]["name"] == HOSTILE


def test_only_data_that_are_compared_with_the_paper_need_a_caution() -> None:
    plain, affine = EXPERIMENTS["table1"].select(["MoNet M=9", "Aff-MoNet M=9"])
    both = [made_run(plain, "faces", 0), made_run(affine, "moving-bodies", 0, paper={}), made_run(plain, "coma", 0)]
    assert "The data faces are generated: compare the order of the methods" in page_html(both)
    assert "are generated: compare" not in page_html(both[1:])


def test_descriptions_of_tasks_fit_any_data() -> None:
    """Not only the digits, superpixels and bodies of the paper: users report runs on their own meshes and images."""
    for description in TASK_DESCRIPTIONS.values():
        assert not re.search(r"digit|\d|body|bodies", f"{description.title} {description.text}", re.IGNORECASE)
    template = (Path(page_module.__file__).parent / "assets" / "page.html").read_text(encoding="utf-8")
    assert not re.search(r">[^<]*(digit|body|bodies)[^<]*<", template, re.IGNORECASE)


def test_short_training_needs_a_caution() -> None:
    row, words = EXPERIMENTS["table1"].rows[0], "Training was shorter than the paper’s."
    short, full, own = (made_run(row, "coma", 0, schedule=name) for name in ("in60", "full", "mine"))
    assert words in page_html([short])
    for runs in ([full], [own], [short, full]):
        assert words not in page_html(runs)


def test_only_data_of_the_paper_are_next_to_its_figures(page: str) -> None:
    """A page of somebody's own meshes does not mention what the paper has for others."""
    own = page_html([made_run(EXPERIMENTS["table1"].rows[0], "mine", 0, paper={})])
    for words in ("next to the paper’s", ">ours<", ">paper<"):
        assert words in page
        assert words not in own
    assert ">result<" in own


def test_sections_without_content_are_hidden() -> None:
    page = page_html([made_runs(spheres(1), spheres(1), 1, ("ChebNet M=14",))[0]])
    hidden = {attrs.get("id") for _, attrs in Outline(page).tags if "hidden" in attrs}
    assert {"meshes", "bodies", "graphs", "claims"} <= hidden
    assert "curves" not in hidden


def test_fewer_samples_where_the_page_would_grow_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = made_runs(spheres(2, count=5), spheres(1), 1, ("Aff-MoNet M=9",))[:1]

    def samples() -> int:
        page = page_html(runs)
        return len(json.loads(page.split('id="data">')[1].split("</script>")[0])["scenes"][0]["samples"])

    assert samples() == 5
    monkeypatch.setattr(page_module, "BUDGET", 1000)
    assert samples() == 1


@pytest.mark.parametrize(("seconds", "told"), [(4.2, "4.2 seconds"), (90.0, "1.5 minutes"), (5400.0, "1.5 hours")])
def test_time_is_told_in_units_that_fit(seconds: float, told: str) -> None:
    run = made_run(EXPERIMENTS["table1"].rows[0], "faces", 0, seconds=seconds)
    assert f"{told} in total" in page_html([run])
