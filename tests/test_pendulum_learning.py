"""TD3 alone, with its authors' hyper-parameters, learns a dense task: the learner works before any curiosity."""

from __future__ import annotations

import numpy as np
import pytest

from hyper_rl.config import Config, build_program, options_of
from hyper_rl.presets import find_preset
from hyper_rl.training.device_loop import advance_to, init_runs
from measuring import measure_state

STEPS = 20_000
WARMUP = 1_000
EPISODES = 100


def pendulum(seeds: tuple[int, ...]) -> Config:
    preset = find_preset("paper")
    return Config(
        task="Pendulum", method="exploit", learner="td3", bonus="none", preset="paper", betas=(0.0,), seeds=seeds,
        steps=STEPS, schedule_steps=STEPS, warmup=WARMUP, eval_every=STEPS, eval_episodes=EPISODES,
        p_start=0.01, p_end=0.001, lengths="bounded", bonus_scale=preset.bonus_scale, reward_scale=preset.reward_scale,
        capacity=STEPS, learner_options=options_of(preset.learners["td3"]),
    )  # fmt: skip


@pytest.mark.long
def test_td3_swings_up_and_holds_on_three_of_three_seeds() -> None:
    """Mean return over 100 episodes at 20k steps, -200 or better; an untrained policy makes about -1200."""
    config = pendulum(seeds=(0, 1, 2))
    config.check()
    program = build_program(config)
    state = advance_to(program, init_runs(program), 0, STEPS, WARMUP)
    measured = measure_state(program, state, STEPS, 1, episodes=EPISODES)
    returns = np.asarray(measured["return"])
    print(f"returns over {EPISODES} episodes at {STEPS} steps: {[round(float(x), 1) for x in returns]}")
    assert np.asarray(measured["finite"]).all()
    assert (returns >= -200).all(), returns
