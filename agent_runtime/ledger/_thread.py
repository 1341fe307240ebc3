"""The one thread that touches the database: a queue in, futures out."""

from __future__ import annotations

import os
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from agent_runtime.config import defaults
from agent_runtime.ledger import _words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from agent_runtime._model import Write

T = TypeVar("T")

"""A batch takes no further job once it holds as much; one larger job goes alone."""


class Job(Generic[T]):
    """Work for the ledger thread, and the future that its caller waits for.

    Attributes:
        work: what to do in one transaction; run again as a whole if the transaction fails in passing.
        entries: writes to be applied instead; such jobs share a transaction.
        then: runs in the ledger thread once the commit stands.
    """

    __slots__ = ("entries", "future", "size", "then", "work", "write")

    def __init__(
        self,
        work: Callable[[Connection], T] | None = None,
        *,
        write: bool,
        entries: Sequence[Write] = (),
        size: int = 0,
        then: Callable[[T], None] | None = None,
    ) -> None:
        self.work = work
        self.write = write
        self.entries = tuple(entries)
        self.size = size
        self.then = then
        self.future: Future[T] = Future()
        # A running future cannot be cancelled: a caller that stops waiting must not tear what it asked for.
        self.future.set_running_or_notify_cancel()


class Performer(Protocol):
    """What the thread runs."""

    def perform(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        """Do jobs in one transaction; return a value or an exception for each."""
        ...

    def tick(self) -> float | None:
        """Do what is due by itself; return the seconds until it is to be asked again, or None."""
        ...

    def finish(self) -> None:
        """Give back what is held; the thread ends after it."""
        ...


class LedgerThread:
    """Runs jobs in order on a daemon thread, which is replaced if it dies."""

    def __init__(self, performer: Performer, where: str) -> None:
        self._performer = performer
        self._where = where
        # SimpleQueue.put may be called from a weakref callback in the middle of anything, even of its own get.
        self._queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._held: Job[Any] | None = None
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False

    def submit(self, job: Job[T]) -> Future[T]:
        """Queue a job."""
        self.check()
        with self._guard:
            self.check()  # nothing is queued behind the mark that ends the thread
            self._queue.put(job)
            self._ensure_thread()
        return job.future

    def check(self) -> None:
        """Raise if this process may not use the ledger (any more)."""
        if self._pid != os.getpid():
            raise _words.inherited(self._where)
        if self._closing:
            raise _words.closed(self._where)

    def is_current(self) -> bool:
        """Tell whether the caller runs on this thread, which would wait for itself."""
        return self._thread is threading.current_thread()

    def nudge(self, job: Job[Any]) -> None:
        """Queue a job from a place that must neither raise nor take a lock."""
        if self._pid == os.getpid() and not self._closing:
            self._queue.put(job)

    def close(self, timeout: float | None = None) -> bool:
        """Let the queue run empty, then end the thread; return whether it has ended. Does nothing in a forked child."""
        if self._pid != os.getpid():
            return True
        with self._guard:
            if not self._closing:
                self._closing = True
                # Before the mark: a thread that had taken it and ended would be replaced by one that waits for another.
                self._ensure_thread()  # it gives back what is held, on the thread that holds it
                self._queue.put(None)
            thread = self._thread
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        thread.join(timeout)
        return not thread.is_alive()

    def _ensure_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="agent-runtime-ledger", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        jobs: list[Job[Any]] = []
        ending = False
        try:
            while True:
                pause = self._performer.tick()
                if not self._next(jobs, pause):
                    break
                if jobs:
                    self._performer.tick()  # first, so that what a holder writes finds its lease renewed
                    _settle(jobs, self._performer.perform(jobs))
                    jobs.clear()
            ending = True
            self._performer.finish()
        except BaseException as exc:  # noqa: BLE001  whatever ended this thread, those who wait for it must learn it
            if not ending:  # a thread in its place would wait for a mark that has been taken
                self._died(jobs, exc)

    def _next(self, jobs: list[Job[Any]], pause: float | None) -> bool:
        """Fill ``jobs`` with what goes into one transaction; return False when the thread is to end."""
        try:
            job = self._held or self._queue.get(timeout=pause)
        except queue.Empty:
            return True
        self._held = None
        if job is None:
            return False
        jobs.append(job)
        size = job.size
        while jobs[-1].entries and size < defaults.BATCH_LIMIT:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._queue.put(None)  # nothing is queued after it any more
                break
            if not job.entries or size + job.size > defaults.BATCH_LIMIT:
                self._held = job
                break
            jobs.append(job)
            size += job.size
        return True

    def _died(self, jobs: list[Job[Any]], exc: BaseException) -> None:
        for job in jobs:
            unknown = _words.thread_died(self._where, type(exc).__name__)
            unknown.__cause__ = exc
            if not job.future.done():
                job.future.set_exception(unknown)
        jobs.clear()
        # What was only queued has not been touched: the next thread does it.
        with self._guard:
            self._thread = None
            self._ensure_thread()


def _settle(jobs: Sequence[Job[Any]], answers: Sequence[Any]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, BaseException):
            job.future.set_exception(answer)
            continue
        job.future.set_result(answer)
