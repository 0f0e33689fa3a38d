#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small real service, as the demo's job: JSON documents in SQLite, decoded, cached, re-encoded.

Two workers answer requests. The documents grow from phase to phase, so that what one phase frees
does not fit the next: the pattern that makes a long-running service's memory grow. The last line
printed is a JSON object with the latency of a request in microseconds: processor time of the
worker's thread, so that waiting for the interpreter's lock or for a core, which no allocator can
help, stays out.
"""

import collections
import json
import random
import sqlite3
import sys
import threading
import time

PHASES = ((400, 900), (1500, 3000), (700, 20000), (500, 2500))  # bytes of a document, from and to
DOCUMENTS = 3000
CACHE_BYTES = 24 << 20
WORKERS = 2


def document(number, size, choice):
    row = {"id": number, "tags": [choice.random() for _ in range(8)], "name": f"document {number}"}
    row["body"] = "".join(chr(97 + choice.randrange(26)) for _ in range(32)) * (size // 32)
    return json.dumps(row)


def fill(database, phase, choice):
    database.execute("create table if not exists document (id integer primary key, text text)")
    rows = (
        (number, document(number, choice.randint(*phase), choice)) for number in range(DOCUMENTS)
    )
    with database:
        database.executemany("insert or replace into document values (?, ?)", rows)


class Cache:
    """Least recently used documents, up to a number of bytes."""

    def __init__(self):
        self.rows = collections.OrderedDict()
        self.bytes = 0

    def put(self, key, text):
        self.bytes += len(text) - len(self.rows.pop(key, ""))
        self.rows[key] = text
        while self.bytes > CACHE_BYTES:
            self.bytes -= len(self.rows.popitem(last=False)[1])


def work(database, seed, requests, latencies):
    choice, cache = random.Random(seed), Cache()
    for request in range(requests):
        start = time.thread_time_ns()
        key = int(DOCUMENTS * choice.random() ** 2)
        (text,) = database.execute("select text from document where id = ?", (key,)).fetchone()
        row = json.loads(text)
        row["seen"] = request
        cache.put((request % 7, key), json.dumps(row))
        latencies.append(time.thread_time_ns() - start)


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 24000
    choice = random.Random(1)
    latencies = [[] for _ in range(WORKERS)]
    databases = [sqlite3.connect(":memory:", check_same_thread=False) for _ in range(WORKERS)]
    for phase in PHASES:
        for database in databases:
            fill(database, phase, choice)
        share = requests // len(PHASES) // WORKERS
        workers = [
            threading.Thread(target=work, args=(database, seed, share, latencies[seed]))
            for seed, database in enumerate(databases)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    values = sorted(latencies[0] + latencies[1])

    def at(share):
        return values[min(int(share * len(values)), len(values) - 1)] / 1000

    print(
        json.dumps(
            {
                "requests": len(values),
                "p50_us": at(0.5),
                "p99_us": at(0.99),
                "p999_us": at(0.999),
                "slowest_us": sum(values[-10:]) / 10000,
            }
        )
    )


if __name__ == "__main__":
    main()
