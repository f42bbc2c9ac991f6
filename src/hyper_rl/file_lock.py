"""A file as a lock between processes. The open file holds it (`flock`), so it is gone with its process, however that
ends; that the file is there says nothing. What is in it is only for people who want to know who holds it.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def take(descriptor: int, *, wait: bool) -> bool:
    """Whether it could be had. OSError on a file system that has no locks."""
    if sys.platform == "win32":  # has no such lock; one process at a time is for the user to see to
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def still_there(descriptor: int, path: Path) -> bool:
    """Removed since it was opened, by whoever had it, it is the lock of nothing."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def holder(path: Path) -> str:
    """Who has the lock, in words."""
    try:
        return path.read_text(errors="replace").strip() or "another process"
    except OSError:
        return "another process"
