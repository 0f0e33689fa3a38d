# SPDX-License-Identifier: MIT
"""redis-server on a Unix socket: load by redis-benchmark, then a data set checked key by key."""
import os
import signal
import socket

from support import Config, OverrideCase, ScenarioError, digest, program, wait_until

KEYS = 40_000


class Client:
    """As much of the redis protocol as the checks need."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(encoded)
                            + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded))

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if int(rest) < 0 else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"-" or not line:
            raise ScenarioError(f"redis answers {line!r}")
        return rest

    def call(self, *words):
        self.send(*words)
        return self.reply()

    def many(self, commands):
        """Pipelined: all the replies."""
        commands = list(commands)
        for words in commands:
            self.send(*words)
        return [self.reply() for _ in commands]

    def close(self):
        self.file.close()
        self.socket.close()


def value_of(index):
    """From a few bytes to 96 KiB, mostly small."""
    length = (index * 7919) % 200 if index % 500 else 1024 * (index % 97)
    return (digest(str(index)).encode() * (length // 64 + 1))[:length]


def fill(client):
    """Strings, hashes, lists, sets, sorted sets and streams; a third deleted, some grown."""
    for first in range(0, KEYS, 500):
        client.many(command for i in range(first, first + 500) for command in (
            ("SET", f"s:{i}", value_of(i)),
            ("HSET", f"h:{i % 500}", f"f{i}", value_of(i)[:64]),
            ("RPUSH", f"l:{i % 100}", value_of(i)[:150]),
            ("ZADD", f"z:{i % 50}", (i * 31) % 1009, f"m{i}"),
            ("XADD", f"x:{i % 20}", f"{i + 1}-1", "v", value_of(i)[:40])))
        client.many(("DEL", f"s:{i}") for i in range(first, first + 500) if i % 3 == 0)
        client.many(("APPEND", f"s:{i}", "tail" * (i % 300))
                    for i in range(first, first + 500) if i % 30 == 1)
    return client.call("DBSIZE")


def contents(client):
    """One hash over everything, and whether the strings are what was written."""
    everything = []
    for i in range(KEYS):
        if i % 100 == 0:
            values = client.many(("GET", f"s:{i + step}") for step in range(100))
        value = values[i % 100]
        tail = b"tail" * (i % 300) if i % 30 == 1 else b""
        expected = (value_of(i) if i % 3 else b"") + tail
        if (value or b"") != expected or (value is None) != (i % 3 == 0 and i % 30 != 1):
            raise ScenarioError(f"s:{i} holds {value[:40] if value else value!r}")
        everything.append(digest(value or b""))
    for i in range(500):
        everything.append(sorted(client.call("HGETALL", f"h:{i}")))
    for i in range(100):
        everything.append(client.call("LRANGE", f"l:{i}", 0, -1))
        everything.append(client.call("ZRANGE", f"z:{i % 50}", 0, -1, "WITHSCORES"))
        everything.append(client.call("XRANGE", f"x:{i % 20}", "-", "+"))
    return digest(repr(everything))


class Redis(OverrideCase):
    def serve(self, side):
        path = side.path("redis.sock")
        process = side.start([self.server, "--port", "0", "--unixsocket", path, "--dir",
                              side.directory, "--save", "", "--appendonly", "no", "--io-threads",
                              "2", "--lazyfree-lazy-user-del", "yes", "--logfile",
                              side.path("log")])
        wait_until(lambda: os.path.exists(path) or process.poll() is not None, "redis's socket")
        self.assert_mapped(side, process.pid)
        client = Client(path)
        wait_until(lambda: b"\nloading:0" in client.call("INFO", "persistence"), "redis's data")
        return process, client

    def test_benchmark_snapshot_and_every_key(self):
        self.server = program(self, "redis-server")
        benchmark = program(self, "redis-benchmark")
        requests = 200_000 if Config.full else 30_000

        def scenario(side):
            process, client = self.serve(side)
            table = side.run(
                [benchmark, "-s", side.path("redis.sock"), "-n", requests, "-c", "40", "-P", "8",
                 "-d", "120", "-r", "20000", "-q", "-t",
                 "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"],
                timeout=240).text()
            kinds = sorted({line.split(":")[0].strip() for line in
                            table.replace("\r", "\n").splitlines() if "requests per" in line})
            client.call("FLUSHALL")
            size, before = fill(client), contents(client)
            memory = dict(line.split(b":", 1) for line in
                          client.call("INFO", "memory").splitlines() if b":" in line)
            used = int(memory[b"used_memory"])
            usage = client.call("MEMORY", "USAGE", "s:1")
            client.call("BGSAVE")                   # forks; the parent goes on writing
            for i in range(2000):
                client.call("SET", f"t:{i % 100}", value_of(i))
            wait_until(lambda: b"rdb_bgsave_in_progress:0" in client.call("INFO", "persistence"),
                       "BGSAVE", 60)
            saved = b"rdb_last_bgsave_status:ok" in client.call("INFO", "persistence")
            client.close()
            status = [side.stop(process, signal.SIGTERM)]
            process, client = self.serve(side)      # loads what the child wrote
            after = contents(client)
            client.call("FLUSHALL", "ASYNC")
            client.close()
            status.append(side.stop(process, signal.SIGTERM))
            return {"kinds": kinds, "size": size, "before": before, "after": after,
                    "saved": saved, "status": status,
                    "plausible": 10 << 20 < used < 400 << 20 and 8 <= int(usage) < 4096}

        result = self.both(scenario)
        self.assertEqual((result["before"], True, [0, 0], True),
                         (result["after"], result["saved"], result["status"],
                          result["plausible"]))
        self.assertGreaterEqual(len(result["kinds"]), 12)
        self.assert_active("redis-", least=2)
        self.assert_active("redis-benchmark")
