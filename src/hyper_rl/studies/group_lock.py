"""Locks that several processes on one study folder agree by: nobody computes a group that another one computes.

A lock is gone with its process (`file_lock`): nothing has to be cleaned up before a group can be taken over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hyper_rl import file_lock
from hyper_rl.errors import UserError


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Whether it could be had; it is kept until the block ends."""
    descriptor = _lock(path, wait=False)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """For short work, where waiting needs no words."""
    descriptor = _lock(path, wait=True)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(path: Path, *, wait: bool) -> int | None:
    """The open file that holds the lock; None where another process has it."""
    while True:
        descriptor = _open(path)
        if descriptor is None:
            continue
        try:
            if not file_lock.take(descriptor, wait=wait):
                os.close(descriptor)
                return None
            if not file_lock.still_there(descriptor, path):
                os.close(descriptor)
                continue
            file_lock.sign(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise UserError(
                f"study: {path} cannot be locked ({error.strerror}); put the study on a file system that has locks"
            ) from None
        except BaseException:  # Ctrl-C while it waited
            os.close(descriptor)
            raise
        return descriptor


def _open(path: Path) -> int | None:
    """None where its folder was removed just now."""
    try:
        path.parent.mkdir()
    except FileExistsError:
        # Each is one look that a folder cannot pass: it may vanish between two.
        if path.parent.is_file() or _leads_nowhere(path.parent):
            raise UserError(f"study: {path.parent} is in the way, locks are kept in a folder of that name") from None
    except OSError as error:
        raise UserError(f"study: {path.parent} cannot be created ({error.strerror})") from None
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"study: {path} cannot be opened ({error.strerror})") from None


def _leads_nowhere(path: Path) -> bool:
    return path.is_symlink() and not path.exists()
