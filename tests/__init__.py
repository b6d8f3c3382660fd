"""The tests; ``check`` is what reads annotations while they run."""

from tests.checker import check

__all__ = ["check"]
