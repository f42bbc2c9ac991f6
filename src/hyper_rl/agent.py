"""The agent objects, with the habits of Stable-Baselines3.

    from hyper_rl import Hyper

    agent = Hyper("MountainCarContinuous-v0", seed=0)
    agent.learn(100_000, progress_bar=True)
    action, _ = agent.predict(observation)
    agent.save("agents/car")

`Hyper`, `Curiosity`, `Decouple` and `Exploit` differ in their method only. A task of ours runs compiled, anything else
is a Gymnasium environment: an id, an environment, or a function that makes one. The same configuration, loops and files
as those of the command are behind it; one agent is one run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import equinox as eqx

from hyper_rl.acting import Act, Interface, make_act
from hyper_rl.agent_arguments import as_path, require_environments, require_parts, require_settings
from hyper_rl.agent_budget import Asked
from hyper_rl.agent_store import SavedAgent, moved_to, read_saved, write_saved
from hyper_rl.agent_words import NO_COPY, evaluation_line, shown_as
from hyper_rl.callbacks import Callback, Evaluation, Saver, combine, list_callbacks
from hyper_rl.config import Config, build_program
from hyper_rl.envs.given_env import choose_given, other_spaces
from hyper_rl.envs.host_task import same_spaces
from hyper_rl.envs.registry import has_success
from hyper_rl.errors import UserError, require_count
from hyper_rl.settings import Settings, TaskChoice, as_steps, make_parts
from hyper_rl.training.evaluation import judged_policies
from hyper_rl.training.judging import judge_policy
from hyper_rl.training.loop import Loop
from hyper_rl.training.loops import open_loop
from hyper_rl.training.memory import check_fits
from hyper_rl.training.progress import Silent, show_progress
from hyper_rl.training.session import Clock, Rows, train_steps
from hyper_rl.training.stopping import watch_for_stop
from hyper_rl.types import take_run

FRESH_EPISODES = 1_000_000
"""Evaluations asked for by hand are numbered from here, far from those of training."""


class OffPolicyAgent:
    """What the four classes share."""

    method: ClassVar[str] = "hyper"

    def __init__(
        self,
        env: Any,
        beta: float = 1.0,
        learner: str | eqx.Module | None = None,
        bonus: str | eqx.Module | None = None,
        seed: int = 0,
        *,
        preset: str = "robust",
        env_kwargs: Mapping[str, Any] | None = None,
        eval_env: Any = None,
        horizon: int | None = None,
        success: str | None = None,
        warmup: int | None = None,
        capacity: int | None = None,
        eval_every: int = 5_000,
        eval_episodes: int = 10,
        **settings: Any,
    ) -> None:
        """`learner` and `bonus`: a name, or an object such as `TD3(lr=1e-3)`; by default what fits task and learner.

        `horizon`: the episode limit, where the environment states none. `success`: what solves the task ("info",
        "terminated" or "reward"). `eval_env`: for an environment that cannot be made a second time. Further settings
        are those of `hyper-rl train`: p_start, p_end, lengths, bonus_scale, reward_scale, normalise_observations,
        train_every, gradient_steps, and for Lesson `lesson`, its options.
        """
        require_settings(settings, self.method, OffPolicyAgent.__init__)
        require_parts(self.method, learner, bonus)
        require_environments(env, env_kwargs, eval_env, success)
        choice = choose_given(env, env_kwargs, eval_env, horizon, success)
        made, made_bonus = make_parts(choice, preset, self.method, learner, bonus)
        chosen = Settings(
            choice=choice,
            learner=made,
            bonus=made_bonus,
            method=self.method,
            preset=preset,
            betas=(beta,),
            seeds=(seed,),
            warmup=warmup,
            capacity=capacity,
            eval_every=eval_every,
            eval_episodes=eval_episodes,
            **settings,
        )
        self._choice: TaskChoice | None = choice
        self._config = chosen.config()  # refuse what cannot work now, not at `learn`
        self._asked = Asked(warmup, capacity)
        self._saved: SavedAgent | None = None
        self._start_over()

    def _start_over(self) -> None:
        self._loop: Loop | None = None
        self._clock = Clock(0, 0)
        self._act: Act | None = None
        self._evaluated = 0
        self._closed = False
        self._interface = Interface.of(self._config, None if self._choice is None else self._choice.reader)
        self.curve: Rows = []
        """One row per evaluation so far."""

    def __repr__(self) -> str:
        return shown_as(type(self).__name__, self._config, self.num_timesteps)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UserError(NO_COPY)

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken."""
        return self._clock.step

    @property
    def config(self) -> Config:
        """Every number written out; before `learn`, for the task's usual budget."""
        return self._config

    def learn(
        self,
        total_timesteps: int | float,
        callback: Callback | Sequence[Callback] | None = None,
        progress_bar: bool = False,
        log_interval: int | None = None,
    ) -> Self:
        """Train for `total_timesteps` more environment steps.

        p decays over the first budget; a second call goes on at its end value. `callback` is called at each
        evaluation and stops by returning False. `log_interval`: evaluations between two printed lines. An interrupted
        call (Ctrl-C) leaves the agent whole, after at most a second more of training; another call goes on.
        """
        steps, callbacks = as_steps("total_timesteps", total_timesteps), list_callbacks(callback)
        require_count("log_interval", 0 if log_interval is None else log_interval, low=0)
        if self._closed:
            raise UserError("learn: the agent was closed, and its environment with it; give it one with set_env")
        for one in callbacks:
            if isinstance(one, Saver):
                one.before_learning(self._clock.step)
        loop = self._prepare(steps)
        config, clock, ask = self._config, self._clock, combine(callbacks)
        label = f"{self.method} on {config.task}"
        shown = show_progress(label, config.steps, clock.step, sys.stderr) if progress_bar else nullcontext(Silent())

        def on_evaluation(table: Rows) -> bool:
            self.curve.append(table[0])
            if log_interval and len(self.curve) % log_interval == 0:
                print(evaluation_line(label, table[0]), flush=True)
            return ask(Evaluation(clock.step, dict(table[0]), self.save))

        with shown as progress, watch_for_stop() as asked_to_stop:

            def after_chunk(note: str) -> bool:
                self._act = None
                progress.update(clock.step, note)
                return not asked_to_stop()

            train_steps(config, loop, clock, on_evaluation=on_evaluation, after_chunk=after_chunk)
            if asked_to_stop():
                raise KeyboardInterrupt
        return self

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """The judged policy's action for one observation, or for a batch of them; the state is handed back unused.

        Only the judged policy is kept, which has no noise of its own, so `deterministic=False` is refused.
        """
        if not deterministic:
            raise UserError("deterministic: got False, must be True; the judged policy has no randomness to switch on")
        act = self._act  # another thread may be learning, which clears it
        if act is None:
            act = self._act = self._current_act()
        return self._interface.apply(act, observation), state

    def evaluate(self, episodes: int = 100) -> dict[str, float]:
        """Judge the agent on fresh episodes: success, return, steps_to_goal, discounted_return, critic_estimate."""
        require_count("episodes", episodes)
        self._evaluated += 1
        number = FRESH_EPISODES + self._evaluated
        if self._saved is None or self._saved.whole:
            judged = self._running().judge(number, episodes)
        else:
            self._choice = self._choice or self._saved.fit(self._saved.choose_task())
            judged = judge_policy(self._saved.agent, self._choice, number, episodes)
        names = ("success", "return", "steps_to_goal", "discounted_return", "critic_estimate")
        found = {name: float(values[0]) for name, values in zip(names, judged, strict=True)}
        told = found["success"] > 0 or has_success(self._config.task, self._config.host)
        return found if told else {**found, "success": math.nan}

    def save(self, path: str | Path, *, policy_only: bool = False, overwrite: bool = False) -> None:
        """A folder with the policy and, unless `policy_only`, everything that is needed to go on training exactly."""
        place = as_path("path", path)
        if policy_only and self._loop is None and self._saved is not None and not self._saved.needs(place):
            policy, whole = self._saved.agent.policy, None
        else:
            loop = self._running()
            policy, whole = take_run(judged_policies(loop.program, loop.state), 0), None if policy_only else loop
        taken = (self._config, self._clock, self.curve, policy, whole, self._asked)
        write_saved(place, *taken, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, *, eval_env: Any = None) -> Self:
        """An agent that `save` wrote, or `hyper-rl train` (as RUN/runs/0/agent).

        It predicts at once, with nothing installed that it was trained on. To be judged or to learn on, which takes
        more than a policy alone, it makes its environment again by its id, or takes `env`.
        """
        saved = read_saved(as_path("path", path))
        method = saved.agent.meta["method"]
        wanted = CLASSES[method] if cls is OffPolicyAgent else cls
        if method != wanted.method:
            raise UserError(f"{path}: an agent of {method!r}, not of {wanted.method!r}; hyper_rl.load takes any")
        made: Any = object.__new__(wanted)
        made._choice, made._saved, made._config, made._asked = None, saved, saved.config, saved.asked
        require_environments(env, None, eval_env, None)
        if env is not None:
            made._choice = saved.fit(choose_given(env, None, eval_env, saved.horizon, saved.success))
            made._config = moved_to(saved.config, made._choice)
        made._start_over()
        made._clock = Clock(saved.step, len(saved.curve))
        made.curve = list(saved.curve)
        return made

    def set_env(self, env: Any, *, eval_env: Any = None) -> None:
        """Go on in another environment of the same spaces, under its episode limit.

        The episode in progress is left unfinished.
        """
        loop = self._running()
        host = self._config.host
        if host is None:
            raise UserError(f"set_env: {self._config.task} runs compiled; make a new agent for another task")
        require_environments(env, None, eval_env, None)
        choice = choose_given(env, None, eval_env, host["horizon"], host["success"])
        if choice.source is None or not same_spaces(choice.spec, loop.program.spec):
            raise other_spaces("set_env", choice, self._config, loop.program.spec)
        config = moved_to(self._config, choice)
        loop.change_source(choice.source, build_program(config), self._clock.step)  # type: ignore[attr-defined]
        self._choice, self._config, self._closed = choice, config, False
        self._interface = Interface.of(config, choice.reader)

    def close(self) -> None:
        """Close the environments this agent has made; one that was given stays open. It learns no more after that."""
        if self._loop is not None:
            self._loop.close()
        self._closed = self._config.host is not None  # a compiled task has nothing that could be closed

    def _current_act(self) -> Act:
        if self._loop is None and self._saved is not None:
            agent = self._saved.agent
            return make_act(agent.learner, agent.policy, agent.task.spec)
        loop = self._running()
        learner = take_run(loop.program.learner, 0)
        return make_act(learner, take_run(judged_policies(loop.program, loop.state), 0), loop.program.spec)

    def _running(self) -> Loop:
        """The loop, begun or brought back to where it was saved."""
        if self._loop is not None:
            return self._loop
        if self._saved is not None:
            self._saved.require_whole()
            self._choice = self._choice or self._saved.choose_task()
            self._saved.require_kind(self._choice)
        assert self._choice is not None
        program = build_program(self._config)
        check_fits(program, 1, remedy="make the agent with a smaller capacity")
        loop = open_loop(self._config, program, source=self._choice.source)
        if self._saved is not None and self._clock.step > 0:  # before the first step there is nothing to bring back
            self._clock = self._saved.restore(loop)
            self.curve = [row for row in self.curve if row["step"] <= self._clock.step]
        self._loop = loop
        return loop

    def _prepare(self, more: int) -> Loop:
        """Set the budget. The first one decides warm-up, the schedule of p and the size of the replay."""
        if self._clock.step == 0:
            if self._saved is not None:
                self._saved.require_whole()
            config = self._asked.first_budget(self._config, more)
            if self._loop is not None:
                self._loop.close()
            self._loop, self._config = None, config
            return self._running()
        loop = self._running()
        config = self._asked.longer_budget(self._config, self._clock.step, self._clock.step + more)
        if config.capacity != loop.program.capacity:
            loop.adopt(build_program(config), self._clock.step)
        self._config = config
        return loop


class Exploit(OffPolicyAgent):
    """The learner alone, without a bonus: plain TD3, SAC, DQN or Q-learning."""

    method = "exploit"


class Curiosity(OffPolicyAgent):
    """One learner paid r + beta b."""

    method = "curiosity"


class Decouple(OffPolicyAgent):
    """Two learners; the explorer collects, the task learner is judged."""

    method = "decouple"


class Hyper(OffPolicyAgent):
    """Two learners; the task learner repositions, then the explorer takes over."""

    method = "hyper"


class Lesson(OffPolicyAgent):
    """Four ways to act and a critic that chooses among them (Kim et al. 2023); for discrete actions."""

    method = "lesson"


CLASSES: dict[str, type[OffPolicyAgent]] = {one.method: one for one in (Exploit, Curiosity, Decouple, Hyper, Lesson)}


def load(path: str | Path, env: Any = None, *, eval_env: Any = None) -> OffPolicyAgent:
    """Any saved agent, as the class it was."""
    return OffPolicyAgent.load(path, env, eval_env=eval_env)
