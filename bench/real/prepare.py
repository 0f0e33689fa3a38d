#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the inputs of the real-program benchmarks, the same on every machine and in every run.

usage: prepare.py NAME [DIRECTORY]        (DIRECTORY: build/bench/data)

Ends with status 77 and one line on stderr when the program that NAME needs is not installed: the row
of the suite is then skipped. An input that exists already is made anew; all of them together take a
few seconds and less than 20 MB.
"""

import ctypes.util
import os
import random
import shutil
import subprocess
import sys

SKIP = 77


def need_program(name, package):
    if shutil.which(name) is None:
        skip(f"{name} is not installed (apt-get install {package})")


def need_library(name, package):
    if ctypes.util.find_library(name) is None:
        skip(f"lib{name} is not installed (apt-get install {package})")


def skip(reason):
    print(f"skip: {reason}", file=sys.stderr)
    sys.exit(SKIP)


def write(directory, name, text):
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, name)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)


SQLITE = """
PRAGMA cache_size = 2000;
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER, note TEXT);
CREATE TABLE sale(id INTEGER PRIMARY KEY, person INTEGER, amount INTEGER, what TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
  INSERT INTO person SELECT i, printf('name-%d-%d', i * 7919 % 100003, i),
    printf('city-%d', i * 104729 % 997), i * 31 % 90,
    substr('abcdefghijklmnopqrstuvwxyz0123456789', 1 + i % 20, 1 + i * 13 % 16) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
  INSERT INTO sale SELECT i, 1 + i * 15485863 % 150000, i * 7 % 1009,
    'article ' || (i * 48271 % 5003) FROM n;
CREATE INDEX person_city ON person(city, age);
CREATE INDEX sale_person ON sale(person);
SELECT count(*), sum(total) FROM (SELECT city, sum(amount) AS total FROM person
  JOIN sale ON sale.person = person.id GROUP BY city ORDER BY total DESC);
SELECT count(*) FROM (SELECT what, count(*) AS c, group_concat(amount) FROM sale GROUP BY what HAVING c > 3);
UPDATE person SET note = note || '-' || name WHERE id % 3 = 0;
DELETE FROM sale WHERE id % 5 = 0;
SELECT count(DISTINCT upper(name) || lower(city)) FROM person;
SELECT length(group_concat(name)) FROM (SELECT name FROM person ORDER BY note, name DESC);
CREATE TABLE kept AS SELECT p.name, s.what, s.amount FROM person p JOIN sale s ON s.person = p.id;
SELECT count(*), max(name), min(what) FROM kept;
PRAGMA integrity_check;
"""


def c_source(rng, functions):
    out = ["struct state { long a[16]; double d[4]; struct state *next; };\n"]
    for i in range(functions):
        out.append(
            f"long work{i}(struct state *s, long n) {{\n    long r = {rng.randrange(1000)};\n"
        )
        out.append(
            "    for (long i = 0; i < n; i++) {\n        switch ((s->a[i & 15] + r) & 7) {\n"
        )
        for case in range(8):
            x, y, k = rng.randrange(16), rng.randrange(16), rng.randrange(3, 99)
            op = rng.choice("+-*^|&")
            out.append(
                f"        case {case}: s->a[{x}] = (s->a[{y}] {op} {k}) + r; "
                f"s->d[{x & 3}] += s->d[{y & 3}] * {k}.5; break;\n"
            )
        out.append(
            "        }\n        if (s->next && s->a[3] > r) { s = s->next; r += s->a[i & 7]; }\n"
        )
        if i > 4:
            out.append(f"        r ^= work{rng.randrange(i)}(s, n / 2);\n")
        out.append("    }\n    return r;\n}\n")
    return "".join(out)


def cxx_source(rng, classes):
    out = [
        (
            "#include <algorithm>\n#include <functional>\n#include <map>\n#include <memory>\n"
            "#include <numeric>\n#include <set>\n#include <string>\n#include <unordered_map>\n"
            "#include <vector>\n\n"
            "template <int N, class T> struct box { T value; box<N - 1, T> inner; "
            "T sum() const { return value + inner.sum(); } };\n"
            "template <class T> struct box<0, T> { T value; T sum() const { return value; } };\n\n"
        )
    ]
    for i in range(classes):
        kind = rng.choice(["long", "double", "std::string"])
        depth = rng.randrange(20, 60)
        out.append(f"""struct thing{i} {{
    std::map<int, std::vector<{kind}>> table;
    std::unordered_map<std::string, std::unique_ptr<thing{max(i - 1, 0)}>> named;
    box<{depth}, {kind}> nested;
    {kind} total() const {{
        {kind} result = nested.sum();
        for (const auto &[key, list] : table) {{
            result = std::accumulate(list.begin(), list.end(), result);
        }}
        return result;
    }}
    void arrange() {{
        for (auto &entry : table) {{
            std::sort(entry.second.begin(), entry.second.end(),
                      [](const auto &a, const auto &b) {{ return b < a; }});
            std::set<{kind}> unique(entry.second.begin(), entry.second.end());
            entry.second.assign(unique.begin(), unique.end());
        }}
    }}
    std::function<{kind}()> later() const {{ return [this] {{ return total(); }}; }}
}};
""")
    out.append("long all() {\n    long n = 0;\n")
    for i in range(classes):
        out.append(f"    {{ static thing{i} t; t.arrange(); n += sizeof(t.later()()); }}\n")
    out.append("    return n;\n}\n")
    return "".join(out)


def smt_problem(rng, jobs, machines, bits):
    """A job shop with a bound on its length, and a factorisation over bit vectors."""
    out = ["(set-option :smt.random_seed 1)\n(set-option :sat.random_seed 1)\n(push)\n"]
    times = [[rng.randrange(3, 20) for _ in range(machines)] for _ in range(jobs)]
    order = [rng.sample(range(machines), machines) for _ in range(jobs)]
    bound = (
        max(
            max(map(sum, times)),
            max(sum(times[j][order[j].index(m)] for j in range(jobs)) for m in range(machines)),
        )
        * 23
        // 20
    )
    for j in range(jobs):
        for k in range(machines):
            out.append(f"(declare-const s{j}_{k} Int)\n(assert (>= s{j}_{k} 0))\n")
            if k > 0:
                out.append(f"(assert (>= s{j}_{k} (+ s{j}_{k - 1} {times[j][k - 1]})))\n")
        out.append(f"(assert (<= (+ s{j}_{machines - 1} {times[j][-1]}) {bound}))\n")
    for m in range(machines):
        for i in range(jobs):
            for j in range(i):
                a, b = order[i].index(m), order[j].index(m)
                out.append(
                    f"(assert (or (>= s{i}_{a} (+ s{j}_{b} {times[j][b]})) "
                    f"(>= s{j}_{b} (+ s{i}_{a} {times[i][a]}))))\n"
                )
    out.append("(check-sat)\n(pop)\n(push)\n")
    p, q = {18: (131101, 196613), 20: (524309, 786433), 22: (2097169, 3145739)}[bits]
    width = bits * 2 + 4
    out.append(
        f"(declare-const x (_ BitVec {width}))\n(declare-const y (_ BitVec {width}))\n"
        f"(assert (= (bvmul x y) (_ bv{p * q} {width})))\n"
        f"(assert (bvugt x (_ bv1 {width})))\n(assert (bvule x y))\n"
        f"(assert (bvult y (_ bv{1 << bits + 1} {width})))\n(check-sat)\n(pop)\n"
    )
    return "".join(out)


def git_history(rng, directory, commits):
    """A bare repository of a made-up history, by git fast-import."""
    files = {f"dir{i % 9}/file{i}.txt": [f"line {n} of {i}" for n in range(120)] for i in range(60)}
    stream = []
    for commit in range(commits):
        message = f"change {commit}\n"
        stream.append(
            f"commit refs/heads/main\ncommitter A U Thor <author@example.org> "
            f"{1700000000 + commit * 60} +0000\ndata {len(message)}\n{message}"
        )
        for name in sorted(files) if commit == 0 else rng.sample(sorted(files), 3):
            lines = files[name]
            for _ in range(4):
                lines[rng.randrange(len(lines))] = f"line {commit} {rng.getrandbits(64):x}"
            lines.insert(rng.randrange(len(lines)), f"new {commit} {rng.getrandbits(48):x}")
            text = "\n".join(lines) + "\n"
            stream.append(f"M 100644 inline {name}\ndata {len(text)}\n{text}\n")
    path = os.path.join(directory, "history.git")
    shutil.rmtree(path, ignore_errors=True)
    environment = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    subprocess.run(["git", "init", "-q", "--bare", path], check=True, env=environment)
    subprocess.run(
        ["git", "-C", path, "fast-import", "--quiet"],
        check=True,
        env=environment,
        input="".join(stream).encode("ascii"),
    )


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    name = sys.argv[1]
    directory = sys.argv[2] if len(sys.argv) == 3 else "build/bench/data"
    rng = random.Random(20261121)
    if name == "sqlite":
        need_program("sqlite3", "sqlite3")
        write(directory, "sqlite.sql", SQLITE)
    elif name == "gcc-c":
        need_program("gcc", "gcc")
        write(directory, "generated.c", c_source(rng, 300))
    elif name == "gcc-cxx":
        need_program("g++", "g++")
        write(directory, "generated.cpp", cxx_source(rng, 16))
    elif name == "z3":
        need_program("z3", "z3")
        write(directory, "problem.smt2", smt_problem(rng, 10, 8, 20))
    elif name == "redis":
        need_program("redis-server", "redis-server")
        need_program("redis-benchmark", "redis-tools")
    elif name in ("leveldb", "rocksdb"):
        need_library(name, {"leveldb": "libleveldb1d", "rocksdb": "librocksdb7.8"}[name])
    elif name == "git":
        need_program("git", "git")
        git_history(rng, directory, 2500)
    elif name in ("lua5.4", "python3", "perl", "node"):
        need_program(name, {"node": "nodejs"}.get(name, name))
    else:
        sys.exit(f"prepare.py: unknown input {name}")


if __name__ == "__main__":
    main()
