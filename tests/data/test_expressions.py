"""Expressions over time: named actions only, from rest to rest, smooth, alive, the same for the same seed."""

import numpy as np
import pytest

from geoskip.data.people import ACTIONS, CENTRAL_ACTIONS, EXPRESSIONS, SIDED_ACTIONS, habits, lengths, sequence

PLAIN = np.ones(len(ACTIONS))
BLINKS = [ACTIONS.index("eyeBlinkLeft"), ACTIONS.index("eyeBlinkRight")]


def take(expression: str, frames: int = 142, seed: int = 0) -> np.ndarray:
    return sequence(expression, frames, PLAIN, np.random.default_rng(seed))


def column(action: str) -> int:
    return ACTIONS.index(action)


def test_poses_name_actions_that_exist() -> None:
    """A misspelt action would be ignored."""
    named = {action for poses in EXPRESSIONS.values() for pose in poses for action in pose}
    assert named <= {*ACTIONS, *SIDED_ACTIONS, *CENTRAL_ACTIONS}


def test_there_are_52_actions_and_the_twelve_names_of_coma() -> None:
    assert len(ACTIONS) == len(set(ACTIONS)) == 52
    assert list(EXPRESSIONS) == sorted(EXPRESSIONS)
    assert len(EXPRESSIONS) == 12


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_take_goes_from_rest_through_its_poses_to_rest(expression: str) -> None:
    played = np.delete(take(expression), BLINKS, axis=1)
    assert np.abs(played[[0, -1]]).max() < 0.1
    for number, pose in enumerate(EXPRESSIONS[expression]):
        middle = take(expression)[round(142 * (number + 0.5) / len(EXPRESSIONS[expression]))]
        for action, value in pose.items():
            for name in {action, action + "Left", action + "Right"} & set(ACTIONS):
                assert 0.7 * abs(value) - 0.1 < np.sign(value) * middle[column(name)] < 1.1 * abs(value) + 0.1


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_take_is_smooth_and_never_stands_still(expression: str) -> None:
    played = np.delete(take(expression), BLINKS, axis=1)
    steps = np.diff(played, axis=0)
    assert np.abs(steps).max() < 0.16
    assert (np.abs(steps).max(axis=1) > 1e-4).all()
    assert np.abs(np.diff(steps, axis=0)).max() < 0.04


def test_sides_of_the_mouth_come_one_after_the_other() -> None:
    played = take("mouth_side")
    assert played[:, column("mouthLeft")].argmax() < 71 < played[:, column("mouthRight")].argmax()


def test_people_blink_with_both_eyes_and_open_them_again() -> None:
    played = take("mouth_open", frames=1200)[:, BLINKS]
    assert (played[:, 0] == played[:, 1]).all()
    assert played.min() == 0
    assert 0.8 < played.max() < 0.9
    assert 0.01 < (played[:, 0] > 0.4).mean() < 0.15


def test_lids_close_less_far_in_a_squint() -> None:
    squinting = np.stack([take("high_smile", seed=seed) for seed in range(40)])[:, 60:80, BLINKS]
    assert 0.6 < squinting.max() < 0.8


def test_takes_repeat_by_seed_alone() -> None:
    assert (take("lips_up") == take("lips_up")).all()
    assert np.abs(take("lips_up") - take("lips_up", seed=1)).max() > 0.05


def test_a_habit_scales_its_action() -> None:
    weak = PLAIN.copy()
    weak[column("jawOpen")] = 0.5
    damped = sequence("mouth_extreme", 142, weak, np.random.default_rng(0))
    assert np.isclose(
        np.ptp(damped[:, column("jawOpen")]), 0.5 * np.ptp(take("mouth_extreme")[:, column("jawOpen")]), atol=0.03
    )
    assert np.allclose(np.delete(damped, column("jawOpen"), 1), np.delete(take("mouth_extreme"), column("jawOpen"), 1))


def test_habits_differ_but_stay_human() -> None:
    habit = habits(np.random.default_rng(0))
    assert habit.min() >= 0.7
    assert habit.max() <= 1.25
    assert habit.std() > 0.05


@pytest.mark.parametrize(("frames", "sequences"), [(20_466, 144), (5, 5), (1, 1), (100, 7)])
def test_frames_are_dealt_out_to_the_last(frames: int, sequences: int) -> None:
    dealt = lengths(frames, sequences, np.random.default_rng(0))
    assert dealt.sum() == frames
    assert len(dealt) == sequences
    assert dealt.min() >= 1


def test_sequences_differ_in_length_but_not_much() -> None:
    dealt = lengths(20_466, 144, np.random.default_rng(0))
    assert 90 < dealt.min() < 110
    assert 170 < dealt.max() < 195
