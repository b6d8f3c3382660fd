import base64
import json
import re
import zlib

import numpy as np
import pytest

from geoskip.report.embed import TYPES, Blobs
from geoskip.report.page import json_text


def unpacked(page: Blobs | str, entry: dict) -> np.ndarray:
    """What the page's script does, in Python."""
    text = re.findall(rf'id="blob-{entry["blob"]}">([^<]*)<', page if isinstance(page, str) else page.html())[0]
    kind = np.dtype({short: name for name, short in TYPES.items()}[entry["type"]]).newbyteorder("<")
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return planes.reshape(kind.itemsize, -1).T.copy().view(kind).ravel() * entry.get("step", 1)


@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_arrays_come_back(dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (7, 3)).astype(dtype)
    blobs = Blobs()
    assert (unpacked(blobs, blobs.add(array)).reshape(7, 3) == array).all()


def test_equal_arrays_are_kept_once() -> None:
    blobs = Blobs()
    first, second = blobs.indices(np.arange(5)), blobs.indices(np.arange(5))
    assert first == second
    assert blobs.indices(np.arange(6)) != first
    assert blobs.html().count("<script") == 2


def test_indices_take_what_they_need_and_minus_one_stays_apart() -> None:
    blobs = Blobs()
    assert blobs.indices(np.array([0, 65534]))["type"] == "u16"
    assert blobs.indices(np.array([0, 65535]))["type"] == "u32"
    assert unpacked(blobs, blobs.indices(np.array([-1, 3]))).tolist() == [65535, 3]


def test_steps_are_as_fine_as_asked_or_as_fits() -> None:
    values = np.linspace(-1, 1, 101)
    blobs = Blobs()
    fine, coarse = blobs.steps(values), blobs.steps(values, 0.01)
    assert np.abs(unpacked(blobs, fine) - values).max() <= 1 / 32767
    assert coarse["step"] == 0.01
    assert np.abs(unpacked(blobs, coarse) - values).max() <= 0.005 + 1e-12
    assert blobs.steps(1e6 * values, 0.01)["step"] == pytest.approx(1e6 / 32767)
    assert unpacked(blobs, blobs.steps(np.zeros(3))).tolist() == [0, 0, 0]


@pytest.mark.parametrize("text", ["</script><script>boom()", "<!--", "]]>", "a&b", "\u2028", "ü†"])
def test_json_holds_no_markup_and_means_the_same(text: str) -> None:
    written = json_text({text: [text]})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {text: [text]}


def test_json_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_text([float("nan")])
