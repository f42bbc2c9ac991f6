"""Acting with a saved policy, one observation or a batch, quickly and from any thread.

A compiled JAX function costs some 40 microseconds a call before it computes anything. A policy network on one
observation costs ten in NumPy, so the policies known here act in NumPy (the same numbers to rounding, which a test
holds); any other learner acts through its own `judge`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hyper_rl.config import Config, make_task
from hyper_rl.envs.action_writer import Writer
from hyper_rl.envs.base import Discrete, TaskSpec
from hyper_rl.envs.observation_reader import Reader, Unfit
from hyper_rl.envs.space_json import reader_from_json, spaces_of_task, writer_from_json
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.normalised import LARGEST, Normalised
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.networks import MLP
from hyper_rl.normalise import moments_deviation
from hyper_rl.observations import observation_dtype

FLATTENED = (
    "; loaded without its environment the agent takes the vector that gymnasium.spaces.flatten makes of an "
    "observation, with load(..., env=...) the observation itself"
)
Act = Callable[[np.ndarray], np.ndarray]
"""From a batch of observations to a batch of actions, both in the learner's units."""


@dataclass(frozen=True)
class Interface:
    """From an environment's own observation to its own action."""

    reader: Reader
    writer: Writer
    flattened: bool = False
    """The environment has a nest of spaces that nothing here knows, so observations come as vectors."""

    @staticmethod
    def of(config: Config, reader: Reader | None) -> Interface:
        """`reader`: of the environment itself, for observations that only it can take apart."""
        host = config.host
        task = make_task(config.task, config.task_options, host)
        spaces = spaces_of_task(task.spec) if host is None else host["spaces"]
        size = task.spec.observation.n if isinstance(task.spec.observation, Discrete) else task.spec.observation.size
        described, flattened = reader_from_json(spaces["observation"], size), spaces["observation"] is None
        if flattened and reader is not None:
            described, flattened = reader, False
        return Interface(described, writer_from_json(spaces["action"]), flattened)

    def apply(self, act: Act, observation: Any) -> Any:
        try:
            rows = self.reader.split(observation)
            if rows is None:
                return self.writer.write(act(self.reader.read(observation)[None])[0])
            batch = [self.reader.read(row) for row in rows]
        except Unfit as unfit:
            raise UserError(f"observation: {unfit}{FLATTENED if self.flattened else ''}") from None
        if not batch:  # no actions, in the shape and dtype of some
            return np.asarray(self.writer.write(0 if self.writer.one_of else np.zeros(self.writer.size)))[None][:0]
        return np.stack([self.writer.write(action) for action in act(np.stack(batch))])


def make_act(learner: Learner, policy: Any, spec: TaskSpec) -> Act:
    """The judged policy as a plain function; it never changes, so any number of threads may call it."""
    vectors = not isinstance(spec.observation, Discrete)
    if isinstance(learner, Normalised):
        inner = make_act(learner.inner, policy.inner, spec)
        mean = np.asarray(policy.moments.mean)
        deviation = np.asarray(moments_deviation(policy.moments))
        return lambda seen: inner(np.clip((seen.astype(mean.dtype) - mean) / deviation, -LARGEST, LARGEST))
    if type(learner) is TD3:
        actor = numpy_mlp(policy.actor)
        return lambda seen: np.tanh(actor(seen))
    if type(learner) is SAC:
        both = numpy_mlp(policy.actor)
        return lambda seen: np.tanh(np.split(both(seen), 2, axis=-1)[0])
    if type(learner) is TabularQ:
        best = np.asarray(policy.q).argmax(axis=1)
        return lambda seen: best[seen]
    if type(learner) is DQN and learner.head == "plain" and isinstance(policy.network.trunk, MLP) and vectors:
        values = numpy_mlp(policy.network.trunk)
        return lambda seen: values(seen).argmax(axis=-1)
    return _compiled(learner, policy, spec)


def numpy_mlp(mlp: MLP) -> Act:
    weights = [np.asarray(weight) for weight in mlp.weights]
    biases = [np.asarray(bias) for bias in mlp.biases]
    last = len(weights) - 1

    def run(x: np.ndarray) -> np.ndarray:
        x = x.astype(weights[0].dtype, copy=False)
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = x @ weight + bias
            if i < last:
                if mlp.layer_norm:
                    centred = x - x.mean(axis=-1, keepdims=True)
                    x = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-5)
                x = np.maximum(x, 0)
        return x

    return run


def _compiled(learner: Learner, policy: Any, spec: TaskSpec) -> Act:
    key = jax.random.key(0)  # it only breaks ties
    call = jax.jit(lambda batch: jax.vmap(lambda one: learner.judge(policy, one, key))(batch))
    dtype = observation_dtype(spec.observation)
    return lambda seen: np.asarray(call(seen.astype(dtype)))
