"""Generated faces: subjects who perform named expressions, in the manner of CoMA, for everyone to have.

Positions are in millimetres, y up, facing +z; each subject's rest shape is centred at the origin. The set stays in its
linear form (:class:`geoskip.data.linear_faces.LinearFaces`): 7 MB on disk for 20,466 frames of 4,200 vertices, which
decode where anny is not installed.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from geoskip.data.cache import cached
from geoskip.data.entries import Stored, entry_name
from geoskip.data.expressions import ACTIONS, EXPRESSIONS, habits, lengths, sequence
from geoskip.data.heads import action_fields, head_model, rest_shapes
from geoskip.data.linear_faces import LinearFaces
from geoskip.data.mesh_set import MeshSet
from geoskip.data.people import skin
from geoskip.data.split import Split
from geoskip.meshes import Mesh

# Part of the cache key: raise it when the same arguments give other faces.
VERSION = 1


def faces(
    subjects: int = 12,
    expressions: Sequence[str] = tuple(EXPRESSIONS),
    frames: int = 20_466,
    seed: int = 0,
    split: str = "interpolation",
    *,
    cache: Path | None = None,
) -> MeshSet:
    """``subjects`` × ``expressions`` sequences, ``frames`` in all; the same for the same arguments.

    Frames are named ``subject/expression/frame``, in sorted order. As with :func:`geoskip.data.coma.coma` the split is
    ``"interpolation"`` (the first 10 of every 100 frames are the test) or an expression, which of all subjects is the
    test. A subject does not depend on how many there are. Made once by anny (the extra ``people``), then read from the
    cache (``cache``, or the usual one) on any machine that has a copy of it.
    """
    chosen = _checked(subjects, expressions, frames, split)
    recipe = {"subjects": subjects, "expressions": chosen, "frames": frames, "seed": seed, "version": VERSION}
    stored = cached("faces", recipe, lambda: _build(subjects, chosen, frames, seed), root=cache)
    names = tuple(
        f"{subject:03d}/{expression}/{frame:05d}"
        for (subject, expression), length in zip(_takes(subjects, chosen), stored.arrays["lengths"], strict=True)
        for frame in range(length)
    )
    template = Mesh(stored.arrays["rests"].mean(axis=0, dtype=np.float64), stored.arrays["faces"])
    return MeshSet(
        template, _shapes(stored, len(chosen)), names, _split(names, split), 1.0, entry_name("faces", recipe)
    )


def _checked(subjects: int, expressions: Sequence[str], frames: int, split: str) -> list[str]:
    """The expressions, sorted; ValueError if the arguments make no set."""
    chosen = sorted(set(expressions))
    if unknown := sorted(set(chosen) - set(EXPRESSIONS)):
        raise ValueError(f"no expression {', '.join(unknown)}: choose from {', '.join(EXPRESSIONS)}")
    if split != "interpolation" and (split not in chosen or len(chosen) == 1):
        raise ValueError(f"split is 'interpolation' or one of several expressions of the set, not {split!r}")
    if subjects < 1 or not chosen:
        raise ValueError("a set of faces has at least one subject and one expression")
    if frames < subjects * len(chosen):
        raise ValueError(f"{frames} frames do not fill {subjects} × {len(chosen)} sequences")
    return chosen


def _takes(subjects: int, expressions: Sequence[str]) -> list[tuple[int, str]]:
    return [(subject, expression) for subject in range(subjects) for expression in expressions]


def _split(names: tuple[str, ...], split: str) -> Split:
    if split == "interpolation":
        return Split.blocks(len(names))
    return Split.by_mask(torch.tensor([name.split("/")[1] == split for name in names]))


def _shapes(stored: Stored, num_expressions: int) -> LinearFaces:
    rests, displacements, coefficients, num_frames = (
        torch.from_numpy(stored.arrays[name]) for name in ("rests", "displacements", "coefficients", "lengths")
    )
    subject_of_take = torch.arange(len(rests)).repeat_interleave(num_expressions)
    return LinearFaces(rests, displacements, coefficients, subject_of_take.repeat_interleave(num_frames))


def _build(subjects: int, expressions: Sequence[str], frames: int, seed: int) -> Stored:
    takes = _takes(subjects, expressions)
    num_frames = lengths(frames, len(takes), np.random.default_rng([seed, 0]))
    coefficients = [_take(seed, *take, length) for take, length in zip(takes, num_frames.tolist(), strict=True)]
    head = head_model()
    whole = Mesh(head.template_vertices.numpy(), head.faces.numpy())
    kept = skin(whole)
    arrays = {
        "rests": rest_shapes(head, kept, subjects, seed).astype(np.float32),
        "displacements": action_fields(head, kept).astype(np.float32),
        "coefficients": np.concatenate(coefficients).astype(np.float32),
        "lengths": num_frames,
        "faces": whole.submesh(kept).faces,
    }
    return Stored(arrays, {"actions": list(ACTIONS), "unit": "mm"})


def _take(seed: int, subject: int, expression: str, num_frames: int) -> np.ndarray:
    habit = habits(np.random.default_rng([seed, 2, subject]))
    number = list(EXPRESSIONS).index(expression)
    return sequence(expression, num_frames, habit, np.random.default_rng([seed, 3, subject, number]))
