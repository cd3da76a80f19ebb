"""A call: it sends its request, and again while there is no answer. The first answer counts."""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Any, Awaitable, Callable, List, Optional, Set, Tuple

# Seconds: when an answer is late at the earliest, and before there are answers.
LEAST_DELAY, FIRST_DELAY = 0.010, 0.100
SILENCE = 1.0  # an answer that takes longer comes from a generator that was frozen or cut off
LEAST_GAP, MOST_GAP = 0.020, 4.0  # bounds of a fifth of the time that a call has
FIRST_PAUSE, LAST_PAUSE = 0.020, 1.0  # after a refusal
MOST_RESENDS = 8
MOST_TOKENS, MOST_DEBT, TOKENS_A_CALL = 8.0, 100.0, 0.01
CALLS_A_RESEND, FREE_RESENDS = 2, 100  # in a second

MAY_PASS = frozenset(
    "draining overloaded store_unavailable timed_out clock_backwards no_worker_id quota_exceeded unreachable".split()
)

now = time.monotonic


class LeafError(Exception):
    """No ID came. The message says why.

    reason is a stable word: see the table in docs/clients.md. timed_out, unreachable and closed may also come from the
    client: no answer in time, no generator, a closed connection. code is as in HTTP. retry_after is a hint in seconds;
    0: none.
    """

    def __init__(self, reason: str, code: int, message: str, retry_after: float = 0) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason, self.code, self.retry_after = reason, code, retry_after

    @property
    def may_pass(self) -> bool:
        """The client sends the request again until the timeout."""
        return self.reason in MAY_PASS


class Budget:
    """Bounds the resends of a client, and knows when an answer is late."""

    def __init__(self) -> None:
        self.delay = FIRST_DELAY  # 999 of 1,000 answers come sooner
        self._answers = 0
        self._raised = 0.0
        self._tokens = 1.0
        self._quiet = 0.0
        self._second = 0
        self._calls = self._before = 0  # in this second, and in the one before it
        self._resends = 0

    def answered(self, sent: float, at: float) -> None:
        """An answer that was late makes the delay longer. Requests that wait at the same time do that once."""
        took = at - sent
        if took > self.delay:
            if sent >= self._raised and took < SILENCE:
                self.delay *= 1.25
                self._raised = at
        else:
            self.delay = max(LEAST_DELAY, self.delay * (1 - 1 / (32 if self._answers < 100 else 4480)))
        self._answers += 1

    def called(self, at: float) -> None:
        self._turn(at)
        self._calls += 1
        self._tokens = min(self._tokens + TOKENS_A_CALL, MOST_TOKENS)

    def resend(self, at: float) -> bool:
        """Says whether a request may be sent again, and counts it."""
        self._turn(at)
        most = (self._calls + self._before) / CALLS_A_RESEND + FREE_RESENDS
        if self._tokens <= 0 or at < self._quiet or self._resends >= most:
            return False
        self._resends += 1
        return True

    def pay(self, resends: int) -> None:
        """Resends were not needed: the first request was answered, too."""
        self._tokens = max(self._tokens - resends, -MOST_DEBT)

    def calm(self, at: float) -> None:
        """No resends for a moment: generators are overloaded, or there is none."""
        self._quiet = at + self.delay

    def _turn(self, at: float) -> None:
        second = int(at)
        if second <= self._second:
            return
        self._before = self._calls if second == self._second + 1 else 0
        self._calls = self._resends = 0
        self._second = second


class State:
    """What callers of a call may know of it, and it of them."""

    def __init__(self, until: float) -> None:
        self.urgent = until  # when the first of several callers leaves
        self.late: Callable[[], None] = lambda: None  # is called if the answer is late
        self.why: Optional[LeafError] = None  # why there was no answer so far. A refusal says more than silence
        self.sent = 0  # requests

    def error(self) -> LeafError:
        """The error of a caller that leaves."""
        return self.why or LeafError("timed_out", 504, f"no answer in time to {self.sent} requests")


# Requests whose call may have ended. asyncio itself keeps no reference to a task.
_under_way: Set["asyncio.Task[Any]"] = set()


async def call(budget: Budget, send: Callable[[int, float], Awaitable[Any]], until: float, state: State) -> Any:
    """Sends a request until there is an answer, a retry cannot help, or it is until.

    send(n, timeout) sends it for the nth time. It returns the answer, or None if none comes, or raises LeafError.
    """
    loop = asyncio.get_running_loop()
    gap = min(max((state.urgent - now()) / 5, LEAST_GAP), MOST_GAP)
    arrived: List[Tuple[Any, Optional[BaseException]]] = []
    wake = loop.create_future()
    resends = 0
    pause, paused = FIRST_PAUSE, False
    send_at, late_at = now(), math.inf
    first_answered, ended = False, 0.0
    budget.called(send_at)

    def awake() -> None:
        if not wake.done():
            wake.set_result(None)

    def go(at: float) -> None:
        nonlocal late_at
        first = state.sent == 0
        late_at = at + budget.delay
        task = asyncio.ensure_future(send(state.sent, max(until - at, SILENCE)))
        state.sent += 1
        _under_way.add(task)

        def came(task: "asyncio.Future[Any]") -> None:
            nonlocal first_answered
            _under_way.discard(task)  # type: ignore[arg-type]
            if task.cancelled():
                return
            error = task.exception()
            if error is None and task.result() is None:
                return  # silence
            if error is None:
                budget.answered(at, now())
            if first:
                first_answered = True
                if ended and now() - ended < SILENCE:
                    budget.pay(resends)
            arrived.append((None, error) if error else (task.result(), None))
            awake()

        task.add_done_callback(came)

    try:
        while True:
            at = now()
            if at >= until:
                raise state.error()
            if at >= send_at:
                if state.sent:
                    state.late()
                if at > state.urgent:
                    gap = min(2 * gap, MOST_GAP)
                paused, send_at = False, at + gap
                go(at)
            elif at >= late_at:
                state.late()
                late_at = at + budget.delay if resends < MOST_RESENDS else math.inf
                if resends < MOST_RESENDS and budget.resend(at):
                    resends += 1
                    go(at)
            if not arrived:
                wake = loop.create_future()
                timer = loop.call_later(max(0.0005, min(send_at, late_at, until) - now()), awake)
                await wake
                timer.cancel()
            if not arrived:
                continue
            answer, error = arrived.pop(0)
            if error is None:
                return answer
            if not isinstance(error, LeafError) or not error.may_pass:
                raise error
            wait = error.retry_after
            if error.reason == "quota_exceeded" and (wait == 0 or now() + wait >= until):
                raise error
            state.why = error
            if error.reason in ("unreachable", "overloaded", "quota_exceeded"):
                budget.calm(now())
            if paused:
                continue
            paused, late_at = True, math.inf
            send_at = now() + max(pause, min(wait, LAST_PAUSE)) * (1 + random.random() / 2)
            pause = min(2 * pause, LAST_PAUSE)
    finally:
        ended = now()
        if first_answered:
            budget.pay(resends)
