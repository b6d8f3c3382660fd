"""What checks annotations while the tests run: beartype, for which an int is a float, as it is for mypy.

Where it is not installed (a machine with a GPU, say, that has what the package needs and no more) nothing is checked.
"""

from __future__ import annotations

from typing import Any

try:
    from beartype import BeartypeConf, beartype
except ImportError:

    def check(function: Any) -> Any:
        return function
else:
    check = beartype(conf=BeartypeConf(is_pep484_tower=True))
