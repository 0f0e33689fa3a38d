# SPDX-License-Identifier: MIT
"""python: threads that hand objects to each other, native libraries, fork while threads run."""
import bz2
import decimal
import hashlib
import json
import lzma
import os
import pickle
import queue
import re
import sqlite3
import sys
import threading
import xml.etree.ElementTree
import zlib

SCALE = int(sys.argv[1]) if len(sys.argv) > 1 else 1


def work(seed):
    state = seed

    def step(limit):
        nonlocal state
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        return (state >> 8) % limit

    live = {}
    for i in range(20000 * SCALE):
        key = step(2000)
        if key in live and step(3) == 0:
            del live[key]
        else:
            live[key] = {"i": i, "text": "v" * step(300), "list": [i] * step(20)}
    text = json.dumps(sorted(live.items())).encode()
    for module in (zlib, bz2, lzma):
        packed = module.compress(text[:200000])
        assert module.decompress(packed) == text[:200000]
    assert pickle.loads(pickle.dumps(live)) == live
    tree = xml.etree.ElementTree.fromstring(
        "<a>" + "".join(f"<b n='{i}'>{i * seed}</b>" for i in range(2000)) + "</a>")
    with decimal.localcontext() as context:
        context.prec = 200
        root = str(decimal.Decimal(seed + 2).sqrt())
    changed = re.sub(rb"v{3,7}", lambda match: str(len(match.group())).encode(), text)
    digest = hashlib.sha256(changed + root.encode() + str(seed ** 3000).encode())
    digest.update(str(sum(int(item.text) for item in tree)).encode())
    return digest.hexdigest()


def pipeline():
    """Blocks allocated by one thread and freed by another."""
    hand, total = queue.Queue(64), []

    def produce(index):
        for i in range(2000 * SCALE):
            hand.put(bytes((index + i) % 256 for _ in range(1)) * (i % 3000))
        hand.put(None)

    producers = [threading.Thread(target=produce, args=(i,)) for i in range(3)]
    for thread in producers:
        thread.start()
    ended = 0
    while ended < 3:
        item = hand.get()
        if item is None:
            ended += 1
        else:
            total.append(len(item) + (item[0] if item else 0))
    for thread in producers:
        thread.join()
    return sum(total)


def in_child(seed):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        box = []
        thread = threading.Thread(target=lambda: box.append(work(seed)))
        thread.start()
        thread.join()
        os.write(writer, box[0].encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def main():
    results = {}
    threads = [threading.Thread(target=lambda seed=seed: results.update({seed: work(seed)}))
               for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    forked = in_child(9)
    for thread in threads:
        thread.join()
    print(sorted(results.items()), forked, pipeline())
    with sqlite3.connect(":memory:") as base:
        base.execute("CREATE TABLE t(a, b)")
        base.executemany("INSERT INTO t VALUES(?, ?)", ((i, str(i) * 9) for i in range(20000)))
        print(base.execute("SELECT count(*), sum(length(b)) FROM t").fetchone())
    print("done")


main()
