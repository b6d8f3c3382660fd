"""The pages on interpolants and on the analogy: their snippets, as one program each, and their pictures."""

import runpy

import numpy as np
import pytest
from PIL import Image

from tests.docs.pages import DOCS
from tests.docs.test_snippets import run, snippets


@pytest.mark.parametrize("page", ["analogy.md", "rbf.md"])
def test_the_page_runs(page: str) -> None:
    run(snippets(page), page)


@pytest.mark.parametrize("name", ["rbf-analogy", "rbf-flat", "rbf-warp"])
def test_the_pictures_are_those_of_the_script(name: str) -> None:
    """The plots roughly, since fonts differ between machines; the render by its pixels."""
    made = runpy.run_path(str(DOCS / "make_images.py"))["PICTURES"][name]()
    with Image.open(DOCS / "images" / f"{name}.png") as image:
        kept = np.asarray(image).astype(float)
    assert kept.shape == made.shape
    assert np.abs(kept - made).mean() < (0.5 if name == "rbf-warp" else 8)
