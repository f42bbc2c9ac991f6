"""TD3 of the two peers, set up alike: the same networks, batch, delays and exploration noise, nothing else switched on.

Both libraries are loaded by name when they are asked for. They live in an environment of their own
(`benchmarks/peers_requirements.txt`), so neither the checker nor the other peer may need them to be present.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.synthetic_env import ACTIONS, SyntheticCheetah

Peer = Literal["sb3", "sbx"]
PEERS: tuple[Peer, ...] = ("sb3", "sbx")

HIDDEN_WIDTHS = (256, 256)
BATCH = 256
SETTINGS: dict[str, Any] = {
    "learning_rate": 3e-4,
    "buffer_size": 1_000_000,
    "learning_starts": 1000,
    "batch_size": BATCH,
    "tau": 0.005,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
    "policy_delay": 2,
}
EXPLORATION_NOISE = 0.1

_PACKAGES: dict[Peer, tuple[str, ...]] = {
    "sb3": ("stable-baselines3", "torch", "gymnasium", "numpy"),
    "sbx": ("sbx-rl", "jax", "jaxlib", "flax", "optax", "stable-baselines3", "torch", "gymnasium", "numpy"),
}


def versions(peer: Peer) -> dict[str, str]:
    """The packages that decide this peer's speed, and Python."""
    installed = {package: version(package) for package in _PACKAGES[peer]}
    return {"python": ".".join(map(str, sys.version_info[:3])), **installed}


def set_torch_threads(threads: int) -> None:
    """Set the threads of one torch operation. SBX needs torch too, but only to carry replay samples."""
    import_module("torch").set_num_threads(threads)


def build(peer: Peer, seed: int) -> Any:
    """A TD3 of the peer on the synthetic environment, ready to `learn`."""
    # Handing over a vector environment, not an environment, keeps both libraries from adding their Monitor wrapper.
    environment = import_module("stable_baselines3.common.vec_env").DummyVecEnv([SyntheticCheetah])
    noise = import_module("stable_baselines3.common.noise").NormalActionNoise(
        np.zeros(ACTIONS, np.float32), np.full(ACTIONS, EXPLORATION_NOISE, np.float32)
    )
    # ReLU is what both libraries' TD3 policies use by default.
    settings = {
        **SETTINGS,
        "policy_kwargs": {"net_arch": list(HIDDEN_WIDTHS)},
        "action_noise": noise,
        "seed": seed,
        "verbose": 0,
        "device": "cpu",
    }
    library = import_module("stable_baselines3" if peer == "sb3" else "sbx")
    return library.TD3("MlpPolicy", environment, **settings)
