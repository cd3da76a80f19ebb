"""64-bit IDs of Leafbus over NATS, for asyncio.

    nc = await nats.connect("nats://127.0.0.1:4222")
    leaf = LeafClient(nc)
    order_id = await leaf.next("order")
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Dict, List, Optional, Tuple

import nats.errors

from ._call import Budget, LeafError, State, call, now

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["Decoded", "LeafClient", "LeafError", "LeafPool"]

_TAG = re.compile(r"(?=.{1,128}\Z)[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
_LINE = re.compile(r"([1-9][0-9]{0,18})(?:-([1-9][0-9]{0,18}))?")
_LARGEST = 2**63 - 1
_URGENT = 0.5  # seconds that callers of a pool are supposed to have. So the fetch is sent again often enough
# A request for several callers gets all its IDs or none. One of them alone may still get one.
_FOR_ONE = ("batch_too_large", "quota_exceeded", "exhausted")


@dataclass(frozen=True)
class Decoded:
    """What a snowflake contains."""

    id: int
    unix_ms: int
    worker: int
    sequence: int

    @property
    def time(self) -> datetime:
        """In UTC."""
        return datetime.fromtimestamp(self.unix_ms / 1000, timezone.utc)


class _Batch(State):
    """Callers of next that share a request."""

    def __init__(self, until: float) -> None:
        super().__init__(until)
        self.until = until
        self.callers = 0
        self.ids: "asyncio.Task[List[int]]"


class LeafClient:
    """IDs over NATS. Share one client in an event loop. All calls raise LeafError. Timeouts are in seconds.

    With several connections, to different servers, a request without an answer is sent again over the next one.
    """

    def __init__(self, *connections: "Client", timeout: float = 5.0) -> None:
        if not connections:
            raise ValueError("LeafClient needs a connection to NATS")
        self._connections = connections
        self._first = 0  # of the connections: it brought the last answer
        self._timeout = timeout
        self._small = Budget()
        self._large = Budget()  # of batches, which take longer
        self._waiting: Dict[str, _Batch] = {}  # by subject: callers of next that wait for a request
        self._busy: Dict[str, asyncio.Event] = {}  # by subject: set when the request of next is answered or late

    async def next(self, tag: str, *, timeout: Optional[float] = None) -> int:
        """One ID of a tag. Callers that come while a request is under way share the next one."""
        return await self._next(_segment(tag), timeout)

    async def take(self, tag: str, count: int, *, timeout: Optional[float] = None) -> List[int]:
        """That many IDs, with one request."""
        return (await self._take(_segment(tag), count, self._until(timeout)))[0]

    async def snowflake(self, *, timeout: Optional[float] = None) -> int:
        return await self._next("leaf.snowflake", timeout)

    async def snowflakes(self, count: int, *, timeout: Optional[float] = None) -> List[int]:
        return (await self._take("leaf.snowflake", count, self._until(timeout)))[0]

    def pool(self, tag: str, *, size: int = 1000) -> "LeafPool":
        """IDs that are fetched ahead, size with a request. Not for strict tags."""
        return self._pool(_segment(tag), size)

    def snowflake_pool(self, *, size: int = 1000) -> "LeafPool":
        """The time of these snowflakes is that of the request which fetched them."""
        return self._pool("leaf.snowflake", size)

    async def decode(self, snowflake: int, *, timeout: Optional[float] = None) -> Decoded:
        """The time, worker and sequence of a snowflake."""

        def read(reply: Any) -> Decoded:
            d = json.loads(reply.data)
            return Decoded(int(d["id"]), d["unix_ms"], d["worker"], d["sequence"])

        until = self._until(timeout)
        send = self._sender("leaf.decode", str(snowflake), read)
        decoded: Decoded = await call(self._small, send, until, State(until))
        return decoded

    def _until(self, timeout: Optional[float]) -> float:
        return now() + (self._timeout if timeout is None else timeout)

    def _pool(self, subject: str, size: int) -> "LeafPool":
        return LeafPool(lambda until, state: self._take(subject, size, until, state), self._until)

    async def _next(self, subject: str, timeout: Optional[float]) -> int:
        until = self._until(timeout)
        batch = self._waiting.get(subject)
        if batch is None:
            batch = self._waiting[subject] = _Batch(until)
            batch.ids = asyncio.ensure_future(self._serve(subject, batch))
            batch.ids.add_done_callback(lambda ids: ids.cancelled() or ids.exception())  # all callers may have left
        place = batch.callers
        batch.callers += 1
        batch.until = max(batch.until, until)
        batch.urgent = min(batch.urgent, until)
        try:
            return (await _within(batch.ids, until, batch))[place]
        except LeafError as error:
            if batch.callers == 1 or error.reason not in _FOR_ONE:
                raise
        return (await self._take(subject, 1, until))[0][0]

    async def _serve(self, subject: str, batch: _Batch) -> List[int]:
        busy = self._busy.get(subject)
        if busy:
            await busy.wait()
        del self._waiting[subject]  # later callers need a later request, also because the tag may be strict
        busy = self._busy[subject] = asyncio.Event()
        batch.late = busy.set
        try:
            return (await self._take(subject, batch.callers, batch.until, batch))[0]
        finally:
            busy.set()
            if self._busy.get(subject) is busy:
                del self._busy[subject]

    async def _take(
        self, subject: str, count: int, until: float, state: Optional[State] = None
    ) -> Tuple[List[int], bool]:
        if count < 1:
            raise LeafError("bad_request", 400, f"{count} is no count")

        def read(reply: Any) -> Tuple[List[int], bool]:
            return _parse(reply.data.decode(), count), (reply.headers or {}).get("Leaf-Order") == "strict"

        send = self._sender(subject, str(count), read)
        budget = self._large if count > 1000 else self._small
        taken: Tuple[List[int], bool] = await call(budget, send, until, state or State(until))
        return taken

    def _sender(
        self, subject: str, body: str, read: Callable[[Any], Any]
    ) -> Callable[[int, float], Awaitable[Any]]:
        """Returns a function that sends a request once, over the connections in turn."""

        async def send(n: int, timeout: float) -> Any:
            over = (self._first + n) % len(self._connections)
            try:
                reply = await self._connections[over].request(subject, body.encode(), timeout=timeout)
            except (nats.errors.TimeoutError, asyncio.TimeoutError):
                return None
            except nats.errors.Error as error:
                if all(nc.is_closed for nc in self._connections):
                    raise LeafError("closed", 503, str(error)) from error
                raise LeafError("unreachable", 503, f"no generator answers {subject}: {error}") from error
            self._first = over
            headers = reply.headers or {}
            code = headers.get("Nats-Service-Error-Code")
            if not code:
                return read(reply)
            try:
                problem = json.loads(reply.data)
            except ValueError:
                problem = {}  # it is not of Leafbus
            retry_after = problem.get("retry_after_ms", 0) / 1000
            raise LeafError(problem.get("reason", "internal"), int(code), headers["Nats-Service-Error"], retry_after)

        return send


class LeafPool:
    """IDs that were fetched ahead. While no generator answers, calls get those in memory."""

    def __init__(
        self,
        fetch: Callable[[float, State], Awaitable[Tuple[List[int], bool]]],
        until: Callable[[Optional[float]], float],
    ) -> None:
        self._fetch, self._until = fetch, until
        self._ids: List[int] = []  # the next one is the last
        self._low = 0  # more are fetched when no more than these are left
        self._state = State(0)  # of the fetch
        self._fetching: Optional["asyncio.Task[Optional[LeafError]]"] = None
        self._strict: Optional[LeafError] = None

    async def next(self, *, timeout: Optional[float] = None) -> int:
        until, fails = self._until(timeout), 0
        while True:
            if self._strict:
                raise self._strict
            if len(self._ids) <= self._low and not self._fetching:
                self._fetching = asyncio.ensure_future(self._more())
            if self._ids:
                return self._ids.pop()
            assert self._fetching
            error = await _within(self._fetching, until, self._state)
            if error:
                fails += 1
                # The first fetch may have begun long before the call. The next one helps if there is time for it.
                if not error.may_pass or fails > 1 or now() >= until:
                    raise error

    async def _more(self) -> Optional[LeafError]:
        self._state = State(now() + _URGENT)
        try:
            ids, strict = await self._fetch(self._until(None), self._state)
            if strict:
                self._strict = LeafError("bad_request", 400, "a pool would break a strict tag's order")
                return self._strict
            self._ids = ids[::-1] + self._ids
            self._low = len(ids) // 2
            return None
        except LeafError as error:
            self._low = len(self._ids) // 2  # not every call asks while that cannot help
            return error
        finally:
            self._fetching = None


def _segment(tag: str) -> str:
    """The subject of a tag."""
    if not _TAG.fullmatch(tag):
        raise LeafError("bad_tag", 400, f"{tag!r} is no tag")
    return f"leaf.segment.{tag}"


def _parse(text: str, count: int) -> List[int]:
    """Reads exactly count IDs. Anything else is an error, because a misread ID may belong to another caller."""
    ids: List[int] = []
    for line in text.split("\n"):
        m = _LINE.fullmatch(line)
        first = int(m[1]) if m else 0
        last = int(m[2]) if m and m[2] else first
        wrong = not m or last > _LARGEST or (m[2] and last <= first)
        if wrong or last - first >= count - len(ids):
            raise _unreadable(text)
        ids.extend(range(first, last + 1))
    if len(ids) != count:
        raise _unreadable(text)
    return ids


def _unreadable(text: str) -> LeafError:
    return LeafError("internal", 500, f"these are not the IDs that were asked for: {text[:80]!r}")


async def _within(task: "asyncio.Task[Any]", until: float, state: State) -> Any:
    """What a task returns, if that is in time. Else the state of the call says why not."""
    done, _ = await asyncio.wait({task}, timeout=max(0.0, until - now()))
    if not done:
        raise state.error()
    return task.result()
