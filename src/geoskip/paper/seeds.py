"""Seeds as a user writes them."""

import re


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0..4`` is 0, 1, 2, 3, 4; ``0,2,7`` is just that; both may be mixed. Sorted, each once."""
    found: set[int] = set()
    for part in text.split(","):
        single = re.fullmatch(r"\s*(\d+)(?:\s*\.\.\s*(\d+))?\s*", part)
        if single is None or (single[2] is not None and int(single[2]) < int(single[1])):
            raise ValueError(f"seeds: write 0..4 or 0,2,7, not {text!r}")
        found |= set(range(int(single[1]), int(single[2] or single[1]) + 1))
    return tuple(sorted(found))
