"""Tables in Markdown from the records in a folder, and pages that hold them between markers.

In a page the lines ``<!-- table2 -->`` and ``<!-- /table2 -->`` enclose what :func:`filled` puts there: any experiment
by its name, ``main`` for the three main tables and what became of the claims in few lines, ``claims`` for the verdicts
by subject, ``verdicts`` for each of them. Nothing is invented: where there are no records a block is empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from geoskip.paper.brief import brief_sheets, sentence
from geoskip.paper.claims import Runs, Verdict, verdict
from geoskip.paper.jobs import finished_runs
from geoskip.paper.paper_claims import all_claims
from geoskip.paper.recipe import ORIGINAL, STAND_IN, Experiment, Recipe
from geoskip.paper.registry import EXPERIMENTS
from geoskip.paper.sheets import MISSING, Sheet, sheet
from geoskip.records import RunRecord

# Tiny data and the smoke schedule prove nothing, so they are not published.
PUBLISHED = [(schedule, data) for data in (ORIGINAL, STAND_IN) for schedule in ("full", "short")]
BLOCKS = (*EXPERIMENTS, "main", "claims", "verdicts")
OPENING = re.compile(r"^<!-- ([a-z0-9_]+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^<!-- ([a-z0-9_]+) -->\n(.*?)^<!-- /\1 -->$", re.DOTALL | re.MULTILINE)
BRACKETS = "Mean over seeds ± half of its 95 % interval (Student's t); in brackets what the paper has."


def filled(page: str, results: Path) -> str:
    """The page with every block made anew; blocks of other names are not ours, unless they look like a slip.

    ValueError names a block that is not closed, and one whose name is almost known.
    """
    closed = {found[1] for found in BLOCK.finditer(page)}
    for name in OPENING.findall(page):
        if name in BLOCKS and name not in closed:
            raise ValueError(f"page: <!-- {name} --> is not closed by <!-- /{name} -->")
        if name not in BLOCKS and (near := get_close_matches(name, BLOCKS, n=1, cutoff=0.8)):
            raise ValueError(f"page: nothing is known of <!-- {name} -->; did you mean {near[0]}?")
    return BLOCK.sub(lambda found: _remade(found, results) if found[1] in BLOCKS else found[0], page)


def _remade(found: re.Match[str], results: Path) -> str:
    return f"<!-- {found[1]} -->\n{block(found[1], results)}<!-- /{found[1]} -->"


def block(name: str, results: Path) -> str:
    """What stands between the markers of one of ``BLOCKS``; empty without records."""
    if name in EXPERIMENTS:
        parts = [_table(EXPERIMENTS[name], results, *published) for published in PUBLISHED]
    elif name == "main":
        parts = [_main(results, *published) for published in PUBLISHED]
    else:
        write = subjects if name == "claims" else verdicts
        parts = [write(found) for published in PUBLISHED if (found := judged(results, *published))]
    return "".join(f"\n{part}\n\n" for part in parts if part)


def _table(experiment: Experiment, results: Path, schedule: str, data: Mapping[str, str]) -> str:
    runs = finished_runs(experiment, data, schedule, results)
    if not any(runs.values()):
        return ""
    made = sheet(experiment, runs)
    some = tuple(line for line in made.lines if any(not cell.startswith(MISSING) for cell in line[1:] if cell))
    return markdown(Sheet(made.title, made.header, some, (BRACKETS, *made.notes)))


def _main(results: Path, schedule: str, data: Mapping[str, str]) -> str:
    runs = all_runs(results, schedule, data)
    made, claims = brief_sheets(runs), _judged(runs)
    if not made:
        return ""
    told = "  \n".join([BRACKETS, *(note for each in made for note in each.notes)])
    return "\n\n".join([*("\n".join(_lines(each)) for each in made), told, *([sentence(claims)] if claims else [])])


def markdown(made: Sheet) -> str:
    """A table with its title above and its notes below."""
    return "\n".join([f"**{made.title}**", "", *_lines(made), "", *("  \n".join(made.notes).splitlines())])


def _lines(made: Sheet) -> list[str]:
    rule = ("---", *("---:" for _ in made.header[1:]))
    return ["| " + " | ".join(cells) + " |" for cells in (made.header, rule, *made.lines)]


def judged(results: Path, schedule: str, data: Mapping[str, str]) -> list[Verdict]:
    """Every claim in the light of the runs of one schedule and one choice of data; empty where nothing was run."""
    return _judged(all_runs(results, schedule, data))


def _judged(runs: Runs) -> list[Verdict]:
    found = [verdict(claim, runs) for claim in all_claims()]
    return found if any(each.comparison for each in found) else []


def all_runs(results: Path, schedule: str, data: Mapping[str, str]) -> Runs:
    """The records of every row of the paper."""
    runs: dict[Recipe, Mapping[int, RunRecord]] = {}
    for experiment in EXPERIMENTS.values():
        if not experiment.figure:  # figures have no rows of their own
            runs |= finished_runs(experiment, data, schedule, results)
    return runs


def subjects(found: list[Verdict]) -> str:
    """How many claims of each subject held."""
    lines = []
    for subject, group in groupby(found, key=lambda each: each.claim.subject):
        verdicts = list(group)
        run = [each for each in verdicts if each.comparison is not None]
        held = sum(bool(each.holds) for each in run)
        sure = sum(bool(each.holds) and each.significant for each in run)
        against = sum(not each.holds and each.significant for each in run)
        lines.append((subject, f"{held} of {len(run)}", str(sure), str(against), str(len(verdicts) - len(run))))
    header = ("claim of the paper", "held", "significantly (p < 0.05)", "significantly not", "not run")
    return markdown(Sheet("Claims", header, tuple(lines)))


def verdicts(found: list[Verdict]) -> str:
    """Each claim with its gain and the paired tests."""
    header = ("claim", "better", "than", "paper", "gain here", "t test", "sign test", "holds")
    lines = [_line(each) for each in found if each.comparison is not None]
    return markdown(Sheet("Claims, one by one", header, tuple(lines)))


def _line(each: Verdict) -> tuple[str, ...]:
    assert each.comparison is not None
    assert each.against is not None
    said = {True: "yes", False: "no", None: MISSING}[each.claim.paper_holds]
    p = MISSING if each.comparison.t_p is None else f"{each.comparison.t_p:.3g}"
    gain = f"{each.comparison.gain:.3g}" + ("" if each.comparison.half is None else f" ± {each.comparison.half:.2g}")
    rival = each.against.label if len(each.claim.rivals) == 1 else f"{each.against.label} (the closest of all)"
    return each.claim.subject, each.claim.where, rival, said, gain, p, f"{each.comparison.sign_p:.3g}", each.words
