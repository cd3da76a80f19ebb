"""Runs the calls of ../conformance.txt: python3 conformance.py REAL SCRIPTED, the URLs of NATS servers.

REAL may have several, joined by commas.
Each line of stdin is NUMBER SERVER VERB ARGUMENT..., with "within MS" at its end. The answer on stdout is
NUMBER = ID..., or NUMBER ! REASON CODE MESSAGE.
"""

import asyncio
import math
import sys
import time

import nats

from leafbus import LeafClient, LeafError


class Runner:
    def __init__(self, real, scripted):
        self.scripted = scripted
        self.clients = {"real": LeafClient(*real)}
        self.reset("")
        self.count = self.failed = self.longest = 0
        self.ended, self.taken = False, []

    def reset(self, server):
        """A case with a script uses a new client."""
        self.clients["scripted"] = LeafClient(self.scripted)
        self.pools = {}
        return []

    async def next(self, server, tag, **options):
        return [await self.clients[server].next(tag, **options)]

    async def take(self, server, tag, n, **options):
        return await self.clients[server].take(tag, int(n), **options)

    async def snowflake(self, server, **options):
        return [await self.clients[server].snowflake(**options)]

    async def snowflakes(self, server, n, **options):
        return await self.clients[server].snowflakes(int(n), **options)

    async def pool(self, server, tag, size, **options):
        key = server, tag
        if key not in self.pools:
            self.pools[key] = self.clients[server].pool(tag, size=int(size))
        return [await self.pools[key].next(**options)]

    async def decode(self, server, snowflake, **options):
        d = await self.clients[server].decode(int(snowflake), **options)
        assert d.time.timestamp() == d.unix_ms / 1000
        return [d.id, d.unix_ms, d.worker, d.sequence]

    # Load: callers that take IDs of the tag order, and snowflakes, until the verb end writes them to a file.

    async def load(self, server, ms):
        leaf, o = self.clients["real"], {"timeout": int(ms) / 1000}
        pool = leaf.pool("order", size=20)
        kinds = [
            lambda: leaf.next("order", **o), lambda: leaf.next("order", **o), lambda: pool.next(**o),
            lambda: leaf.take("order", 3, **o), lambda: leaf.snowflake(**o),
        ]
        self.callers = [asyncio.ensure_future(self.caller(take)) for take in kinds]
        return []

    async def caller(self, take):
        while not self.ended:
            began = time.monotonic()
            try:
                ids = await take()
                self.taken += ids if isinstance(ids, list) else [ids]
            except Exception as error:
                self.failed += 1
                print(repr(error), file=sys.stderr)
            self.count += 1
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0.002)

    async def calls(self, server):
        return [self.count]

    async def end(self, server, file):
        self.ended = True
        await asyncio.gather(*self.callers)
        with open(file, "w") as f:
            f.write("\n".join(map(str, self.taken)))
        return [self.count, self.failed, math.ceil(self.longest * 1000)]

    async def run(self, line):
        number, server, verb, *words = line.split()
        options = {}
        if words[-2:-1] == ["within"]:
            options["timeout"] = int(words[-1]) / 1000
            words = words[:-2]
        try:
            ids = getattr(self, verb)(server, *words, **options)
            ids = await ids if asyncio.iscoroutine(ids) else ids
            answer = "= " + " ".join(map(str, ids))
        except LeafError as error:
            answer = f"! {error.reason} {error.code} {error}"
        except Exception as error:
            answer = f"! {error!r}"
        print(number, answer, flush=True)


async def main():
    real = [await nats.connect(url) for url in sys.argv[1].split(",")]
    runner = Runner(real, await nats.connect(sys.argv[2]))
    loop, running = asyncio.get_running_loop(), set()
    stdin = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    while line := await stdin.readline():
        task = asyncio.ensure_future(runner.run(line.decode()))
        running.add(task)
        task.add_done_callback(running.discard)


asyncio.run(main())
