"""What what-skips-learn.md says of the records, filled in: ``python docs/make_analysis_page.py``.

Text between ``<!-- name -->`` and ``<!-- /name -->`` is a function of results/analysis; a test holds that it is up to
date. Figures come first: ``python docs/make_analysis_images.py``.
"""

from pathlib import Path

from geoskip.paper.findings import described, parts_table, read_analysis, short_answer, smoothness_table
from geoskip.paper.power import graph_pairs

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "what-skips-learn.md"
RECORDS, IMAGES = ROOT / "results" / "analysis", ROOT / "docs" / "images"


def blocks(records: Path = RECORDS, images: Path = IMAGES) -> dict[str, str]:
    """What stands between the markers, by their names."""
    return {"pairs": pairs_block(), "study": study_block(records, images)}


def pairs_block() -> str:
    """The pairs of the figure, numbered, in Markdown."""
    lines = [f"{k}. {pair.name[0].upper()}{pair.name[1:]}. {pair.about}" for k, pair in enumerate(graph_pairs(), 1)]
    return "\n".join(lines)


def study_block(records: Path = RECORDS, images: Path = IMAGES) -> str:
    """What the records of a study say, in Markdown; where there are none, that."""
    if not (records / "smoothness.json").is_file():
        return "The study has not been run yet."
    smooth, split = read_analysis(records / "smoothness.json"), read_analysis(records / "parts.json")
    paragraphs = [
        described(smooth),
        short_answer(smooth),
        "![Roughness of filters after training over that before, by operator and skip](images/analysis-smoothness.png)",
        "A point is a network, a grey line joins the three of one seed, a bar is their geometric mean.",
        smoothness_table(smooth),
        "### The share of the skip in each block",
        "![Share of the skip in each block's output over training](images/analysis-shares.png)",
        "A block's output y is the skip's part a plus the convolution's c; the skip's share is ⟨a, y⟩ / |y|², each "
        "channel less its mean. The two shares add up to 1.",
        "### What each part decodes to",
        parts_table(split),
        "Distance from what whole blocks decode; how much of the difference between samples is left; how bumpy the "
        "surface is, both relative to whole blocks. The bias belongs to the skip. Positions are standardised, so a "
        "decoder that puts out nothing gives the mean face: that a part decodes to a face says little, here as in the "
        "paper's figure. How far it tells samples apart says more.",
    ]
    if (images / "analysis-parts.png").is_file():
        words = "Rows: faces, whole blocks, skips alone, convolutions alone"
        paragraphs.append(f"![{words}](images/analysis-parts.png)\n\n{words}.")
    return "\n\n".join(paragraphs)


def filled(page: str, blocks: dict[str, str]) -> str:
    """The page with the text between its markers replaced."""
    for name, text in blocks.items():
        head, _, rest = page.partition(f"<!-- {name} -->")
        _, _, tail = rest.partition(f"<!-- /{name} -->")
        page = f"{head}<!-- {name} -->\n{text}\n<!-- /{name} -->{tail}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), blocks()))
