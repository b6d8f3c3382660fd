"""What checks annotations while the tests run: beartype, for which an int is a float, as it is for mypy.

Where it is not installed (a machine with a GPU, say, that has what the package needs and no more) nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _checker() -> Callable[[Any], Any]:
    try:
        from beartype import BeartypeConf, beartype
    except ImportError:
        return lambda function: function
    return beartype(conf=BeartypeConf(is_pep484_tower=True))


check = _checker()
