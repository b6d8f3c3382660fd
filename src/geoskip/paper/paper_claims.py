"""Every claim of the paper that a comparison of its rows can settle, in the order of its discussion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from geoskip.paper.centre_ablation import CENTRE_ABLATION
from geoskip.paper.claims import Claim
from geoskip.paper.correspondence import CORRESPONDENCE
from geoskip.paper.recipe import Recipe
from geoskip.paper.rows import Row
from geoskip.paper.spline_supplement import SPLINE_SUPPLEMENT
from geoskip.paper.table1 import TABLE1
from geoskip.paper.table2 import TABLE2
from geoskip.paper.table3 import TABLE3


def all_claims() -> tuple[Claim, ...]:
    """In the order of the paper's discussion."""
    return tuple(_claims())


def _claims() -> Iterator[Claim]:
    everywhere = tuple(dict.fromkeys([*TABLE1.recipes, *TABLE3.recipes, *CORRESPONDENCE.recipes, *TABLE2.recipes]))
    everything = (*everywhere, *SPLINE_SUPPLEMENT.recipes)
    yield from _varied("an affine skip helps", everything, "Aff-", {"skip": "none"})
    yield from _varied("an affine skip helps more than a residual one", everywhere, "Aff-", {"skip": "residual"})
    yield from _varied("more than one more weight matrix", TABLE1.recipes, "Aff-", {"skip": "none", "more": 1})
    yield from _varied(
        "a residual skip helps attention-based operators and GCN", _attention(everywhere), "Res-", {"skip": "none"}
    )
    plain, larger = TABLE1.select(["MoNet M=9", "MoNet+ M=9"])
    yield Claim("one more weight matrix does not help MoNet's median", plain, (larger,), "median_mm")
    for size in (4, 9, 14):
        (best,) = TABLE1.select([f"Aff-MoNet M={size}"])
        yield _best("Aff-MoNet is the best of all", best, TABLE1.select([f"*M={size}"]))
    (best,) = CORRESPONDENCE.select(["Aff-MoNet"])
    yield _best("Aff-MoNet is the best of all", best, CORRESPONDENCE.recipes)
    for pseudo in ("degree", "position"):
        (best,) = TABLE2.select([f"Aff-MoNet ({pseudo})"])
        rivals = [recipe for recipe in TABLE2.recipes if pseudo == "position" or recipe.row.pseudo != "position"]
        yield _best("Aff-MoNet is the best of all" + " without positions" * (pseudo == "degree"), best, rivals)
    gin, gcn, feast = (TABLE2.select([name])[0] for name in ("GIN-0", "Aff-GCN", "Aff-FeaStNet"))
    yield Claim("GIN-0 is outperformed", gcn, (gin,), "accuracy_pct")
    yield Claim("GIN-0 is outperformed", feast, (gin,), "accuracy_pct")
    yield Claim("with fewer parameters than GIN-0", gcn, (gin,), "parameters")
    for name in ("ChebNet", "SpiralNet++"):
        for without, whole in zip(CENTRE_ABLATION.select([f"{name}†"]), CENTRE_ABLATION.select([name]), strict=True):
            yield Claim("a weight for the centre vertex helps", whole, (without,), whole.metrics[0])
    # In the paper plain FeaStNet stays at 11.35 % on superpixels with and without self-loops: no claim there.
    yield from (claim for claim in _loops() if claim.paper_holds)
    yield from _splines()


def _loops() -> Iterator[Claim]:
    for recipe in TABLE3.recipes:
        if recipe.name.endswith("†"):
            looped = _like(recipe.row, TABLE3.recipes, options={})
            yield from (Claim("FeaStNet does better without self-loops", recipe, (o,), o.metrics[0]) for o in looped)


def _splines() -> Iterator[Claim]:
    for name in ("", "Aff-"):
        monet, spline = SPLINE_SUPPLEMENT.select([f"{name}MoNet M=8", f"{name}SplineCNN m=2"])[::-1]
        yield Claim("MoNet does better than SplineCNN with as many matrices", monet, (spline,), "mean_mm")
    (best,) = SPLINE_SUPPLEMENT.select(["Aff-SplineCNN m=5"])
    yield _best("Aff-SplineCNN with m = 5 is the best of all", best, TABLE1.recipes)


def _varied(subject: str, recipes: Sequence[Recipe], prefix: str, other: Mapping[str, Any]) -> Iterator[Claim]:
    """Each recipe whose method has the prefix against the one that differs as said."""
    for recipe in recipes:
        if recipe.name.startswith(prefix):
            for rival in _like(recipe.row, recipes, **other):
                yield Claim(subject, recipe, (rival,), recipe.metrics[0])


def _best(subject: str, best: Recipe, rivals: Sequence[Recipe]) -> Claim:
    return Claim(subject, best, tuple(rival for rival in rivals if rival != best), best.metrics[0])


def _like(row: Row, recipes: Sequence[Recipe], **changes: Any) -> list[Recipe]:
    wanted = _kind(replace(row, **changes))
    return [recipe for recipe in recipes if _kind(recipe.row) == wanted]


def _kind(row: Row) -> tuple[object, ...]:
    """All that is done, whatever it is called."""
    return row.experiment, row.operator, row.skip, row.column, row.more, row.pseudo, tuple(sorted(row.options.items()))


def _attention(recipes: Sequence[Recipe]) -> list[Recipe]:
    return [recipe for recipe in recipes if recipe.row.operator in ("monet", "feast", "gcn")]
