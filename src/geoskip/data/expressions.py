"""Facial expressions over time: coefficients of 52 ARKit-style actions, frame by frame.

The twelve expressions carry the names of CoMA's sequences; what each name means here is one choice of actions.
A sequence goes from rest through one or two key poses and back, each action with its own timing:

    c_a(t) = Σ_p s g_a p_a (r((t - t0) / (t1 - t0)) - r((t - t2) / (t3 - t2))) + drift_a(t) + blink_a(t)

with r the minimum-jerk step 10 t³ - 15 t⁴ + 6 t⁵, p_a the key pose, g_a the subject's habit, s the strength
of this performance, a slow drift of a few per cent and now and then a blink.
"""

from collections.abc import Mapping

import numpy as np

from geoskip.shapes import Float, Int

SIDED = (
    "browDown", "browOuterUp", "cheekSquint", "eyeBlink", "eyeLookDown", "eyeLookIn", "eyeLookOut", "eyeLookUp",
    "eyeSquint", "eyeWide", "jaw", "mouth", "mouthDimple", "mouthFrown", "mouthLowerDown", "mouthPress",
    "mouthSmile", "mouthStretch", "mouthUpperUp", "noseSneer",
)  # fmt: skip
MIDDLE = (
    "browInnerUp", "cheekPuff", "jawForward", "jawOpen", "mouthClose", "mouthFunnel", "mouthPucker",
    "mouthRollLower", "mouthRollUpper", "mouthShrugLower", "mouthShrugUpper", "tongueOut",
)  # fmt: skip
SIDES = ("Left", "Right")
ACTIONS = tuple(sorted([*MIDDLE, *(action + side for action in SIDED for side in SIDES)]))

# Key poses; an action named without its side moves on both. Negative cheekPuff draws the cheeks in.
EXPRESSIONS: Mapping[str, tuple[Mapping[str, float], ...]] = {
    "bareteeth": (
        {"mouthUpperUp": 0.9, "mouthLowerDown": 0.9, "mouthStretch": 0.5, "mouthSmile": 0.15, "noseSneer": 0.6,
         "cheekSquint": 0.3, "eyeSquint": 0.4, "jawOpen": 0.05},
    ),
    "cheeks_in": ({"cheekPuff": -0.9, "mouthPucker": 0.7, "mouthFunnel": 0.1, "jawOpen": 0.05},),
    "eyebrow": (
        {"browInnerUp": 1.0, "browOuterUp": 1.0, "eyeWide": 0.6},
        {"browDown": 0.9, "eyeSquint": 0.4, "noseSneer": 0.2},
    ),
    "high_smile": (
        {"mouthSmile": 0.8, "mouthUpperUp": 0.4, "mouthDimple": 0.2, "cheekSquint": 0.6, "eyeSquint": 0.4,
         "jawOpen": 0.04},
    ),
    "lips_back": (
        {"mouthRollUpper": 0.6, "mouthRollLower": 0.8, "mouthPress": 0.4, "mouthStretch": 0.5,
         "mouthDimple": 0.4},
    ),
    "lips_up": ({"mouthShrugUpper": 0.7, "mouthUpperUp": 0.8, "noseSneer": 0.7, "cheekSquint": 0.3},),
    "mouth_down": ({"mouthFrown": 1.0, "mouthLowerDown": 0.3, "mouthStretch": 0.3, "browInnerUp": 0.3},),
    "mouth_extreme": (
        {"jawOpen": 0.85, "mouthStretch": 0.8, "mouthLowerDown": 0.7, "mouthUpperUp": 0.6, "eyeWide": 0.4,
         "browInnerUp": 0.5, "noseSneer": 0.2},
    ),
    "mouth_middle": ({"mouthPucker": 0.9, "mouthFunnel": 0.5},),
    "mouth_open": ({"jawOpen": 0.5},),
    "mouth_side": (
        {"mouthLeft": 1.0, "jawLeft": 0.5, "mouthDimpleLeft": 0.3, "cheekSquintLeft": 0.3},
        {"mouthRight": 1.0, "jawRight": 0.5, "mouthDimpleRight": 0.3, "cheekSquintRight": 0.3},
    ),
    "mouth_up": ({"mouthShrugLower": 1.0, "mouthShrugUpper": 0.5, "mouthPress": 0.3, "jawForward": 0.4},),
}  # fmt: skip

FRAMES_PER_SECOND = 60.0
BLINKS_PER_SECOND = 0.3
# Standard deviation of the drift, by the first word of the action; an open jaw moves 39 mm, a brow 7 mm.
DRIFT = {"brow": 0.03, "cheek": 0.015, "eye": 0.03, "jaw": 0.008, "mouth": 0.015, "nose": 0.02, "tongue": 0.0}
# Alone these leave the plausible: one undoes an open jaw, the other belongs to the blink.
STILL = ("mouthClose", "eyeBlinkLeft", "eyeBlinkRight")


def habits(rng: np.random.Generator) -> Float[np.ndarray, "actions"]:
    """How strongly a person uses each action, left and right apart: around 1, between 0.7 and 1.25."""
    return np.clip(rng.normal(1.0, 0.12, len(ACTIONS)), 0.7, 1.25)


def sequence(
    expression: str, frames: int, habit: Float[np.ndarray, "actions"], rng: np.random.Generator
) -> Float[np.ndarray, "frames actions"]:
    """Coefficients of one performance of an expression, from rest to rest."""
    poses = EXPRESSIONS[expression]
    time = (np.arange(frames) + 0.5) / frames * len(poses)
    acted = np.zeros((frames, len(ACTIONS)))
    for number, pose in enumerate(poses):
        acted += rng.uniform(0.8, 1.0) * habit * action_vector(pose) * _hold(time - number, rng)
    # Lids that a squint has brought nearer have less far to go.
    squint = acted[:, [ACTIONS.index("eyeSquintLeft")]]
    lids = np.array([action.startswith("eyeBlink") for action in ACTIONS])
    blinks = lids * _blinks(frames, rng)[:, None] * (0.85 - 0.3 * squint)
    return np.clip(acted + _drift(frames, rng) + blinks, -1.0, 1.0)


def lengths(frames: int, sequences: int, rng: np.random.Generator) -> Int[np.ndarray, "sequences"]:
    """``frames`` dealt out to sequences that differ by up to 30 % from the mean, one to each at least."""
    if not 1 <= sequences <= frames:
        raise ValueError(f"frames must be at least one for each of the {sequences} sequences, not {frames}")
    shares = rng.uniform(0.7, 1.3, sequences)
    ends = np.round(np.cumsum(shares) / shares.sum() * (frames - sequences)).astype(np.int64)
    return 1 + np.diff(ends, prepend=0)


def action_vector(pose: Mapping[str, float]) -> Float[np.ndarray, "actions"]:
    """The strength of each of ``ACTIONS`` in a key pose."""
    both = {name: value for key, value in pose.items() for name in (key, *(key + side for side in SIDES))}
    return np.array([both.get(action, 0.0) for action in ACTIONS])


def _hold(time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rise, stay and fall within time 0 to 1, [frames, actions]: common times, small lags of each action."""
    t0, t1, t2, t3 = rng.uniform([0.04, 0.3, 0.62, 0.86], [0.14, 0.42, 0.74, 0.96])
    at = time[:, None] - np.clip(rng.normal(0.0, 0.012, len(ACTIONS)), -0.03, 0.03)
    return _step((at - t0) / (t1 - t0)) - _step((at - t2) / (t3 - t2))


def _step(t: np.ndarray) -> np.ndarray:
    t = np.clip(t, 0.0, 1.0)
    return t**3 * (10 - 15 * t + 6 * t**2)


def _drift(frames: int, rng: np.random.Generator) -> np.ndarray:
    """Three slow waves for each action, so that no two frames are alike."""
    sizes = np.array([_drift_size(action) for action in ACTIONS])
    seconds = np.arange(frames)[:, None, None] / FRAMES_PER_SECOND
    hertz = rng.uniform(0.2, 1.5, (len(ACTIONS), 3))
    phase = rng.uniform(0.0, 2 * np.pi, (len(ACTIONS), 3))
    return sizes * np.sqrt(2 / 3) * np.sin(2 * np.pi * hertz * seconds + phase).sum(axis=2)


def _drift_size(action: str) -> float:
    return 0.0 if action in STILL else next(size for word, size in DRIFT.items() if action.startswith(word))


def _blinks(frames: int, rng: np.random.Generator) -> np.ndarray:
    """How far the lids are closed, 0 to 1: a fifth of a second now and then."""
    seconds = np.arange(frames) / FRAMES_PER_SECOND
    count = rng.poisson(BLINKS_PER_SECOND * frames / FRAMES_PER_SECOND)
    starts = rng.uniform(0.0, frames / FRAMES_PER_SECOND, count)
    since = seconds[:, None] - starts
    return (_step(since / 0.08) - _step((since - 0.1) / 0.14)).max(axis=1, initial=0.0)
