"""Environments dealt out to worker processes, for tasks whose steps are slow.

One message goes to each worker and one comes back per step. They are plain bytes: pickling the dozen small arrays of
a step takes three times as long as the whole round trip, and shared memory would save nothing at these sizes, where
waking the other process is what takes the time. An empty answer says that a failure follows; failures are pickled.

Workers are started afresh (`spawn`): a copy of a process that runs JAX's threads may hang. They do not import JAX, they
ignore Ctrl-C, so that the parent can still save, and they leave when the parent's end of the pipe closes, however the
parent came to its end.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
import weakref
from collections.abc import Collection, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from hyper_rl.envs.gym_make import one_line
from hyper_rl.envs.host_env import EnvSource, Layout, TaskFailure
from hyper_rl.envs.host_pool import LocalPool, PoolStep, empty_step
from hyper_rl.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Bool, Int, Shaped

RESET, STEP = b"R", b"S"
PATIENCE = 5.0
"""Seconds that a worker may take to close its environments before it is ended."""
UNGUARDED = 'while starting; a script that trains at its top level needs `if __name__ == "__main__":` around that'


class WorkerPool:
    """An `EnvPool` over processes; each has a contiguous slice of the environments."""

    def __init__(self, source: EnvSource, count: int, workers: int) -> None:
        _check_can_be_sent(source)
        self.count = count
        self.cells = np.zeros(count, np.int64)
        self._source = source
        bounds = [count * k // workers for k in range(workers + 1)]
        self._slices = [slice(bounds[k], bounds[k + 1]) for k in range(workers)]
        self._processes: list[BaseProcess] = []
        self._ends: list[Connection] = []
        self._close = weakref.finalize(self, _shut_down, self._processes, self._ends)
        try:
            self._start()
            self._layout = [self._greeting(worker) for worker in range(workers)].pop()
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        return not self._ends

    def reset(self, indices: Sequence[int], seeds: Sequence[int]) -> Shaped[np.ndarray, "k ..."]:
        layout, wanted, all_seeds = self._layout, np.asarray(indices, np.int64), np.asarray(seeds, np.uint64)
        observations = np.zeros((len(wanted), *layout.observation_shape), layout.observation_dtype)
        rows_of: dict[int, Int[np.ndarray, " rows"]] = {}
        for worker, mine in enumerate(self._slices):
            rows = np.flatnonzero((wanted >= mine.start) & (wanted < mine.stop))
            if rows.size:
                rows_of[worker] = rows
                self._ask(worker, RESET, wanted[rows] - mine.start, all_seeds[rows])
        for worker, answer in self._answers(rows_of):
            rows = rows_of[worker]
            seen, cells = np.zeros_like(observations[rows]), np.zeros(rows.size, np.int64)
            _fill((seen, cells), answer)
            observations[rows], self.cells[wanted[rows]] = seen, cells
        return observations

    def step(
        self,
        actions: Shaped[np.ndarray, "n ..."],
        last: Bool[np.ndarray, " n"],
        next_seeds: Int[np.ndarray, " n"],
        active: Bool[np.ndarray, " n"] | None = None,
    ) -> PoolStep:
        out = empty_step(self.count, self._layout)
        moving = np.ones(self.count, bool) if active is None else np.asarray(active, bool)
        question = (
            np.asarray(actions, self._layout.action_dtype),
            np.asarray(next_seeds).astype(np.uint64),
            np.asarray(last, bool),
            moving,
        )
        asked = []
        for worker, mine in enumerate(self._slices):
            if moving[mine].any():
                asked.append(worker)
                self._ask(worker, STEP, *(array[mine] for array in question))
        for worker, answer in self._answers(asked):
            _fill((array[self._slices[worker]] for array in out), answer)
        return out

    def close(self) -> None:
        """Again is harmless; also done when the pool is forgotten and when the program ends."""
        self._close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for mine in self._slices:
            end, theirs = context.Pipe()
            name = f"environments {mine.start} to {mine.stop - 1}"
            process = context.Process(target=serve, args=(theirs,), daemon=True, name=name)
            with _interrupts_held_back():
                process.start()
            theirs.close()
            self._processes.append(process)
            self._ends.append(end)
            with contextlib.suppress(OSError):  # a worker that is already gone is noticed when it should answer
                end.send((self._source, mine.stop - mine.start, mine.start))

    def _greeting(self, worker: int) -> Layout:
        try:
            said = self._ends[worker].recv()
        except (EOFError, OSError):
            raise self._died(worker, UNGUARDED) from None
        if isinstance(said, BaseException):
            raise said
        return said

    def _ask(self, worker: int, kind: bytes, *arrays: np.ndarray) -> None:
        if self.closed:
            raise RuntimeError("the pool of environments is closed")
        try:
            self._ends[worker].send_bytes(_bytes(kind, arrays))
        except OSError:
            raise self._died(worker) from None

    def _answers(self, asked: Collection[int]) -> list[tuple[int, bytes]]:
        """Everybody's answer is taken before a failure is raised, so that the next question finds the pipes empty."""
        failure: BaseException | None = None
        answers = []
        for worker in asked:
            try:
                answer = self._ends[worker].recv_bytes()
                if not answer:
                    said = self._ends[worker].recv()
                    failure = failure or said
            except (EOFError, OSError):
                raise self._died(worker) from failure
            answers.append((worker, answer))
        if failure is not None:
            raise failure
        return answers

    def _died(self, worker: int, when: str = "") -> TaskFailure:
        """Without one of its workers the pool is of no more use, so the others are sent home."""
        process = self._processes[worker]
        process.join(PATIENCE)
        code = process.exitcode
        how = "stopped answering" if code is None else f"ended with status {code}"
        if code is not None and code < 0:
            how = f"was ended by signal {-code} ({signal.strsignal(-code)})"
        self.close()
        return TaskFailure(self._source.env_id, f"the worker process of {process.name} {how} {when}".rstrip())


def _check_can_be_sent(source: EnvSource) -> None:
    try:
        ForkingPickler.dumps(source)
    except Exception as error:
        what = "env" if source.factory is None else "factory"
        raise UserError(
            f"{what}: cannot be sent to a worker process ({one_line(error)}); define it at the top "
            "level of a module, or stay in this process with env_workers 0"
        ) from None


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A child inherits the mask, so that Ctrl-C cannot end it before it has learnt to ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # to start it later would lift the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _shut_down(processes: list[BaseProcess], ends: list[Connection]) -> None:
    for end in ends:
        end.close()
    for process in processes:
        process.join(PATIENCE)
        for stop in (process.terminate, process.kill):
            if process.exitcode is None:
                stop()
                process.join(PATIENCE)
    processes.clear()
    ends.clear()


def _bytes(kind: bytes, arrays: Sequence[np.ndarray]) -> bytes:
    return kind + b"".join([array.tobytes() for array in arrays])


def _fill(arrays: Any, message: bytes, offset: int = 0) -> None:
    """The inverse: the numbers of the message into these arrays, one after another."""
    for array in arrays:
        array[...] = np.frombuffer(message, array.dtype, array.size, offset).reshape(array.shape)
        offset += array.nbytes


# In the worker


def serve(end: Connection) -> None:
    """Make the environments, then answer until the pipe closes, whoever closed it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            source, count, first = end.recv()
            pool = LocalPool(source, count, first)
        except EOFError:
            raise
        except Exception as error:
            end.send(_sendable(error))
            return
        try:
            end.send(pool.layout)
            while True:
                message = end.recv_bytes()
                try:
                    answer = _answer(pool, message)
                except Exception as error:
                    end.send_bytes(b"")
                    end.send(_sendable(error))
                else:
                    end.send_bytes(answer)
        finally:
            pool.close()


def _answer(pool: LocalPool, message: bytes) -> bytes:
    if message[:1] == RESET:
        asked = (len(message) - 1) // 16
        indices, seeds = np.zeros(asked, np.int64), np.zeros(asked, np.uint64)
        _fill((indices, seeds), message, 1)
        return _bytes(b"", (pool.reset(indices.tolist(), seeds.tolist()), pool.cells[indices]))
    n, layout = pool.count, pool.layout
    actions, seeds = np.zeros((n, *layout.action_shape), layout.action_dtype), np.zeros(n, np.uint64)
    last, moving = np.zeros(n, bool), np.zeros(n, bool)
    _fill((actions, seeds, last, moving), message, 1)
    return _bytes(b"", pool.step(actions, last, seeds, moving))


def _sendable(error: Exception) -> UserError:
    if isinstance(error, UserError):
        return error
    said = UserError(f"in a worker process: {type(error).__name__}: {one_line(error)}")
    said.add_note("".join(traceback.format_exception(error)))
    return said
