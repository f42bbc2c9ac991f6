"""The loop that a configuration needs."""

from __future__ import annotations

from hyper_rl.config import Config, require_named_task
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.training.device_loop import DeviceLoop
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.loop import Loop
from hyper_rl.training.program import Program


def open_loop(
    config: Config,
    program: Program,
    *,
    workers: int = 0,
    source: EnvSource | None = None,
    module: str | None = None,
) -> Loop:
    """`source`: the environments themselves, where the caller has something that no configuration can name."""
    if config.host is None:
        return DeviceLoop(program, config.warmup)
    return HostLoop(program, source or env_source(config, module), config.warmup, workers=workers)


def env_source(config: Config, module: str | None = None) -> EnvSource:
    """The environments that the configuration names."""
    host = config.host
    assert host is not None
    require_named_task(config, "go on from Python: hyper_rl.load(FOLDER, env=...)")
    return EnvSource(
        env_id=host["env_id"],
        kwargs=config.task_options,
        module=module or host["module"],
        horizon=host["horizon"],
        success=host["success"],
    )
