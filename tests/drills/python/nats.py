"""Stands in for nats-py when the tests run the Python in docs/clients.md.

The Python package index cannot be reached from where the tests run. This speaks
enough of NATS for that program: connect, request, headers, and a connection that
closes with its block. Names, arguments and types are those of nats-py 2.15.
"""

import asyncio
from urllib.parse import urlsplit


class Msg:
    def __init__(self, headers, data):
        self.headers, self.data = headers, data


class Client:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def request(self, subject, payload=b"", timeout=0.5):
        self.writer.write(b"PUB %s _INBOX.readme %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
        return await asyncio.wait_for(self.reply(), timeout)

    async def reply(self):
        while True:
            line = (await self.reader.readuntil(b"\r\n")).split()
            if line[0] == b"PING":
                self.writer.write(b"PONG\r\n")
            elif line[0] in (b"MSG", b"HMSG"):  # subject, sid, the size of the headers if there are any, that of all
                head, size = int(line[3]) if line[0] == b"HMSG" else 0, int(line[-1])
                whole = (await self.reader.readexactly(size + 2))[:size]
                fields = [field.split(": ", 1) for field in whole[:head].decode().split("\r\n") if ": " in field]
                return Msg(dict(fields) or None, whole[head:])


async def connect(servers="nats://localhost:4222"):
    nc, address = Client(), urlsplit(servers)
    nc.reader, nc.writer = await asyncio.open_connection(address.hostname, address.port)
    nc.writer.write(b'CONNECT {"verbose":false,"headers":true,"protocol":1}\r\nSUB _INBOX.readme 1\r\n')
    return nc
