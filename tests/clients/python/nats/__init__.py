"""Stands in for nats-py in the tests.

The Python package index cannot be reached from where the tests run. This speaks enough of NATS for clients/python.
Names, arguments, types and errors are those of nats-py 2.15.
"""

import asyncio
from urllib.parse import urlsplit

from . import errors


class Msg:
    def __init__(self, headers, data):
        self.headers, self.data = headers, data


class Client:
    is_closed = False

    async def request(self, subject, payload=b"", timeout=0.5):
        self.last += 1
        inbox, reply = "_INBOX.stand-in.%d" % self.last, asyncio.get_running_loop().create_future()
        self.waiting[inbox] = reply
        self.writer.write(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), inbox.encode(), len(payload), payload))
        try:
            msg = await asyncio.wait_for(reply, timeout)
        except asyncio.TimeoutError:
            raise errors.TimeoutError
        finally:
            del self.waiting[inbox]
        if msg.headers and msg.headers.get("Status") == "503":
            raise errors.NoRespondersError
        return msg

    async def read(self):
        while True:
            line = (await self.reader.readuntil(b"\r\n")).split()
            if line[0] == b"PING":
                self.writer.write(b"PONG\r\n")
            elif line[0] in (b"MSG", b"HMSG"):  # subject, sid, the size of the headers if there are any, that of all
                head, size = int(line[3]) if line[0] == b"HMSG" else 0, int(line[-1])
                whole = (await self.reader.readexactly(size + 2))[:size]
                first, *rest = whole[:head].decode().split("\r\n")
                fields = dict(field.split(": ", 1) for field in rest if ": " in field)
                if first.startswith("NATS/1.0 "):
                    fields["Status"] = first.split()[1]
                reply = self.waiting.get(line[1].decode())
                if reply and not reply.done():
                    reply.set_result(Msg(fields or None, whole[head:]))


async def connect(servers):
    nc, address = Client(), urlsplit(servers)
    nc.waiting, nc.last = {}, 0
    nc.reader, nc.writer = await asyncio.open_connection(address.hostname, address.port)
    nc.writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n')
    nc.writer.write(b"SUB _INBOX.stand-in.* 1\r\n")
    nc.reading = asyncio.ensure_future(nc.read())
    return nc
