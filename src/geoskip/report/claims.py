"""The paper's claims, and what the runs say of them: rows that others compute and the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# How a verdict looks; any other words look open.
LOOKS = {"holds": "yes", "fails": "no"}
JUDGED = (
    '<p class="note">Here a comparison holds, or fails, where its difference over seeds is significant (p &lt; 0.05), '
    "and is open otherwise; README and docs/results.md count as held whatever the mean difference speaks for, "
    "significant or not.</p>"
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim beside the runs that bear on it.

    claim: in words; a claim may be about several comparisons.
    compared: the methods, in words.
    data: what they were tried on.
    seeds: how many pairs of runs were compared.
    difference: the mean difference, with its unit; above 0 speaks for the claim.
    p: how likely a difference at least as large is by chance alone; None where that cannot be said.
    verdict: ``"holds"``, ``"fails"``, or other words where neither can be said.
    """

    claim: str
    compared: str
    data: str
    seeds: int
    difference: str
    p: float | None
    verdict: str


def claims_table(claims: Sequence[ClaimRow]) -> str:
    """One line a claim; where claims are about several comparisons, all of these below, folded away."""
    by_claim: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in claims:
        by_claim.setdefault((row.claim, row.data), []).append(row)
    if len(by_claim) == len(claims):
        return JUDGED + _comparisons(claims)
    heads = _heads(["Claim", "Data", "Comparisons", "Hold", "Fail", "Open"], numbers=range(2, 6), lesser=(2,))
    lines = "".join(_overview(*key, rows) for key, rows in by_claim.items())
    return (
        JUDGED
        + _table("The paper’s claims", "How many comparisons bear a claim out.", heads, lines)
        + f"<details><summary>All {len(claims)} comparisons</summary>{_comparisons(claims)}</details>"
    )


def _overview(claim: str, data: str, rows: Sequence[ClaimRow]) -> str:
    counts = {look: sum(LOOKS.get(row.verdict, "open") == look for row in rows) for look in ("yes", "no", "open")}
    cells = "".join(
        f'<td class="number" data-value="{count}">'
        + (f'<span class="verdict {look}">{count}</span>' if count else "–")
        + "</td>"
        for look, count in counts.items()
    )
    named = f'<th scope="row">{escape(claim)}</th><td>{escape(data)}</td>'
    return f'<tr>{named}<td class="number lesser">{len(rows)}</td>{cells}</tr>'


def _comparisons(claims: Sequence[ClaimRow]) -> str:
    heads = _heads(["Claim", "Compared", "Data", "Seeds", "Difference", "<i>p</i>", "Verdict"], numbers=range(3, 6))
    caption = "Differences on equal seeds; above 0 speaks for the claim. p: paired t test."
    return _table("Every comparison", caption, heads, "".join(map(_line, claims)))


def _line(row: ClaimRow) -> str:
    chance = "–" if row.p is None else "&lt; 0.001" if row.p < 0.001 else f"{row.p:.3f}"
    verdict = f'<span class="verdict {LOOKS.get(row.verdict, "open")}">{escape(row.verdict)}</span>'
    return (
        f'<tr><th scope="row">{escape(row.claim)}</th><td>{escape(row.compared)}</td><td>{escape(row.data)}</td>'
        f'<td class="number">{row.seeds}</td><td class="number">{escape(row.difference)}</td>'
        f'<td class="number" data-value="{2.0 if row.p is None else row.p}">{chance}</td><td>{verdict}</td></tr>'
    )


def _heads(names: Sequence[str], numbers: range, lesser: Sequence[int] = ()) -> str:
    """Column heads; those of ``lesser`` columns are left out on a phone."""
    kinds = ["number" * (place in numbers) + " lesser" * (place in lesser) for place in range(len(names))]
    return "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in zip(names, kinds, strict=True))


def _table(name: str, caption: str, heads: str, lines: str) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table class="sortable claims">'
        f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )
