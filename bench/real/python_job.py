# SPDX-License-Identifier: MIT
"""Python as an allocator sees it (run with PYTHONMALLOC=malloc, so that every object is a malloc'd
block): records, dictionaries, strings, JSON, big integers, regular expressions.

Source   own script.
Checks   asserts on every result.
"""

import collections
import json
import re

Record = collections.namedtuple("Record", "key name tags weight")


def records(count):
    state = 1
    for i in range(count):
        state = state * 48271 % 2147483647
        tags = [f"tag{state >> shift & 255}" for shift in range(0, 24, 8)]
        yield Record(i, f"name-{state}-{i}", tags, state / 1024)


def job():
    everything = list(records(40000))
    by_tag = collections.defaultdict(list)
    for record in everything:
        for tag in record.tags:
            by_tag[tag].append(record)
    assert sum(map(len, by_tag.values())) == 3 * len(everything)

    text = json.dumps([record._asdict() for record in everything])
    again = json.loads(text)
    assert len(again) == len(everything) and again[77]["name"] == everything[77].name

    found = collections.Counter(match.group(1) for match in re.finditer(r'"(tag\d+)"', text))
    assert found["tag7"] == len(by_tag["tag7"])

    words = " ".join(record.name for record in everything).replace("-", " ").split()
    assert len(set(words)) > 40000
    lines = sorted(words, key=lambda word: (len(word), word[::-1]))
    assert len(lines) == 3 * len(everything)

    a, b = 0, 1
    for _ in range(12000):
        a, b = b, a + b
    assert a % 1000007 == 0 or a > 0

    trees = []
    for i in range(60):
        tree = None
        for depth in range(2000):
            tree = {"next": tree, "value": (i, depth), "text": str(depth)}
        trees.append(tree)
        if len(trees) > 10:
            trees.pop(0)
    matrix = [[(i * k) % 97 + 0.5 for k in range(300)] for i in range(300)]
    assert len([list(row) for row in zip(*matrix)]) == 300


if __name__ == "__main__":
    for _ in range(4):
        job()
