"""Where a peer's step goes: each part of a TD3 step timed on its own, on a trained-in model with a filled buffer.

    python benchmarks/peers/parts.py --peer sbx

Prints one JSON object of microseconds per call. `update` is the library's whole `train` call; `sample` is the replay
draw inside it, and for SBX `compiled_update` is the compiled program inside it alone, on one fixed batch already
on the device. The parts need not add up to a step: what is missing is the libraries' own bookkeeping. `cpu_seconds`
covers the building, filling and timing: the figures are worth keeping only if others took next to none.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.measure import Stopwatch, cpu_seconds_between, read_cpu_time
from benchmarks.peers.models import BATCH, PEERS, SETTINGS, Peer, build, set_torch_threads
from benchmarks.synthetic_env import ACTIONS, SyntheticCheetah

_FILL_STEPS = 1500


def microseconds(call: Callable[[], object], repeats: int) -> float:
    """The mean time of one call, after a tenth as many unmeasured ones."""
    for _ in range(max(repeats // 10, 4)):
        call()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return round((time.perf_counter() - start) / repeats * 1e6, 1)


def whole_step(model: Any, repeats: int) -> float:
    """One step of the library's own loop, as `measure` sees it, for comparison with the parts."""
    stopwatch = Stopwatch(model, 100, 100 + repeats)
    model.learn(100 + repeats, callback=stopwatch, log_interval=1_000_000_000, reset_num_timesteps=False)
    return round(stopwatch.seconds / repeats * 1e6, 1)


def compiled_update(model: Any, repeats: int) -> float:
    """SBX's compiled program alone, alternating the two phases of the policy delay as training does."""
    jax = import_module("jax")
    sample = model.replay_buffer.sample(BATCH)
    batch = jax.device_put(
        import_module("sbx.common.type_aliases").ReplayBufferSamplesNp(
            sample.observations.numpy(),
            sample.actions.numpy(),
            sample.next_observations.numpy(),
            sample.dones.numpy().flatten(),
            sample.rewards.numpy().flatten(),
            np.full(BATCH, model.gamma, np.float32),
        )
    )
    carried = [model.policy.qf_state, model.policy.actor_state, model.key]
    delay = model.policy_delay
    phase = [0]

    def one() -> None:
        noise, clip = model.target_policy_noise, model.target_noise_clip
        *carried[:], _ = model._train(model.tau, 1, batch, delay, phase[0], noise, clip, *carried)
        phase[0] = (phase[0] + 1) % delay
        jax.block_until_ready(carried)

    return microseconds(one, repeats)


def time_parts(peer: Peer, repeats: int, torch_threads: int) -> dict[str, float | str | int]:
    """Every part of the step, in microseconds per call."""
    set_torch_threads(torch_threads)
    model = build(peer, seed=0)
    model.learn(total_timesteps=int(SETTINGS["learning_starts"]) + _FILL_STEPS, log_interval=1_000_000_000)
    observation = model._last_obs
    action = np.full((1, ACTIONS), 0.5, np.float32)
    alone = SyntheticCheetah(horizon=1_000_000_000)
    alone.reset(seed=0)
    parts: dict[str, float | str | int] = {
        "peer": peer,
        "torch_threads": torch_threads,
        "whole_step": whole_step(model, repeats),
        "environment_step": microseconds(lambda: alone.step(action[0]), 10 * repeats),
        "vector_environment_step": microseconds(lambda: model.env.step(action), repeats),
        "act": microseconds(lambda: model._sample_action(0, model.action_noise, 1), repeats),
        "predict": microseconds(lambda: model.predict(observation), repeats),
        "sample": microseconds(lambda: model.replay_buffer.sample(BATCH), repeats),
        "update": microseconds(lambda: model.train(gradient_steps=1, batch_size=BATCH), repeats),
    }
    if peer == "sbx":
        parts["compiled_update"] = compiled_update(model, repeats)
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description="Microseconds of each part of a peer's TD3 step.")
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--torch-threads", type=int, default=2)
    chosen = parser.parse_args()
    begin = read_cpu_time()
    parts = time_parts(chosen.peer, chosen.repeats, chosen.torch_threads)
    print(json.dumps({**parts, "cpu_seconds": cpu_seconds_between(begin, read_cpu_time())}))


if __name__ == "__main__":
    main()
