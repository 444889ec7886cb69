"""Threads of which one goes on at a time, as a schedule says.

An actor is a thread that stops at points: where it is about to look at something that others change, or has just
changed it. A schedule is data: whose turn it is, and up to which of its points. So what happened can happen again.
"""

from __future__ import annotations

import fcntl
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock, Semaphore, Thread, current_thread

from deltaic.errors import ConcurrentRefresh

_PATIENCE = 180.0
"""Seconds until an actor that does not come back is thought to hang."""


@dataclass(frozen=True)
class Turn:
    """An actor goes on until it stands before a point of a kind for the n-th time; without a kind, to its end."""

    actor: str
    upto: str | None = None
    times: int = 1


class Abandoned(BaseException):
    """The schedule is given up: whoever still runs ends here."""


@dataclass
class Actor:
    name: str
    work: Callable[[], object]
    go: Semaphore = field(default_factory=lambda: Semaphore(0))
    thread: Thread | None = None
    at: str = ""
    """The point that it stands before."""
    waits_for: Callable[[], bool] | None = None
    result: object = None
    error: BaseException | None = None
    done: bool = False

    @property
    def can_go(self) -> bool:
        return not self.done and (self.waits_for is None or self.waits_for())


class Scheduler:
    """`look` is called after each step of each actor, when nobody runs."""

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self.look = look
        self.actors: dict[str, Actor] = {}
        self.back = Semaphore(0)
        self.given_up = False
        self.trace: list[tuple[str, str]] = []
        """Who came to which point: what a failure is read by."""

    def add(self, name: str, work: Callable[[], object]) -> None:
        self.actors[name] = Actor(name, work)

    def run(self, turns: Iterable[Turn]) -> None:
        try:
            for actor in self.actors.values():
                actor.thread = Thread(target=self._act, args=(actor,), name=f"actor {actor.name}", daemon=True)
                actor.thread.start()
            for turn in turns:
                self._take(turn)
            self._finish()
        finally:
            self._give_up()

    # called by actors

    def point(self, kind: str) -> None:
        actor = self._own()
        if actor is not None:
            actor.at = kind
            self._yield(actor)

    def wait_for(self, free: Callable[[], bool]) -> bool:
        """Not to be scheduled before something is free; False for a thread that is no actor."""
        actor = self._own()
        if actor is None:
            return False
        actor.at, actor.waits_for = "waits", free
        self._yield(actor)
        actor.waits_for = None
        return True

    def _own(self) -> Actor | None:
        name = current_thread().name.removeprefix("actor ")
        found = self.actors.get(name)
        return found if found is not None and found.thread is current_thread() else None

    def _yield(self, actor: Actor) -> None:
        self.back.release()
        actor.go.acquire()
        if self.given_up:
            raise Abandoned

    def _act(self, actor: Actor) -> None:
        actor.go.acquire()
        try:
            if not self.given_up:
                actor.result = actor.work()
        except BaseException as error:
            actor.error = error
        finally:
            actor.done, actor.at = True, "end"
            self.back.release()

    # called by the schedule

    def _take(self, turn: Turn) -> None:
        actor, left = self.actors[turn.actor], turn.times
        while actor.can_go and left:
            self._step(actor)
            left -= actor.at == turn.upto

    def _finish(self) -> None:
        while any(not actor.done for actor in self.actors.values()):
            ready = [actor for actor in self.actors.values() if actor.can_go]
            assert ready, f"nobody can go on: {self.told()}"
            self._take(Turn(ready[0].name))

    def _step(self, actor: Actor) -> None:
        actor.go.release()
        assert self.back.acquire(timeout=_PATIENCE), f"{actor.name} does not come back: {_stack(actor)}\n{self.told()}"
        self.trace.append((actor.name, actor.at))
        self.look()

    def _give_up(self) -> None:
        self.given_up = True
        for actor in self.actors.values():
            while actor.thread is not None and actor.thread.is_alive():
                actor.go.release()
                actor.thread.join(_PATIENCE if actor.done else 0.05)

    def told(self) -> str:
        """The trace, with equal steps in a row told once."""
        lines: list[list[str | int]] = []
        for name, at in self.trace:
            if lines and lines[-1][:2] == [name, at]:
                lines[-1][2] = int(lines[-1][2]) + 1
            else:
                lines.append([name, at, 1])
        return "\n".join(f"  {name}: {at} × {times}" for name, at, times in lines[-60:])


def _stack(actor: Actor) -> str:
    ident = actor.thread.ident if actor.thread else None
    frame = sys._current_frames().get(ident) if ident is not None else None
    return "".join(traceback.format_stack(frame)) if frame else ""


class Mutex:
    """A lock that a thread may take again, in the place of one of Python's: who waits for it is not scheduled."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.owner: Thread | None = None
        self.depth = 0
        self.guard = Lock()

    def __enter__(self) -> Mutex:
        while not self._take():
            assert self.scheduler.wait_for(lambda: self.owner is None), "held by an actor"
        return self

    def __exit__(self, *_: object) -> None:
        with self.guard:
            self.depth -= 1
            if not self.depth:
                self.owner = None

    def _take(self) -> bool:
        with self.guard:
            if self.owner in (None, current_thread()):
                self.owner = current_thread()
                self.depth += 1
                return True
            return False


def waiting_for_file(
    scheduler: Scheduler, real: Callable[[int, str, float], None]
) -> Callable[[int, str, float], None]:
    """In the place of the loop by which a lock file is waited for."""

    def wait(descriptor: int, file: str, timeout: float) -> None:
        try:
            real(descriptor, file, 0)
        except ConcurrentRefresh:
            if timeout == 0 or not scheduler.wait_for(lambda: _is_free(file)):
                raise
            wait(descriptor, file, timeout)

    return wait


def _is_free(file: str) -> bool:
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def told(turns: Sequence[Turn]) -> str:
    return ", ".join(repr(turn) for turn in turns)
