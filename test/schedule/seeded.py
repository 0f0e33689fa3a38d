#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Seeded errors: the explorer finds each of them.

Each is one change of src/, such as somebody might make. A copy of the sources has it, the tests are
built from that copy, and must fail. One that no longer applies is an error, too: it is to be written
anew for the code as it is.

    test/schedule/seeded.py --cc gcc --directory build/test/seeded [WORD]
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# What is wrong, file, text, what takes its place, program, words of the test that is to fail ("": any).
ERRORS = [
    ("a handled post is gone on with although it has been posted anew", "heap/heap_remote.c",
     """        if (!slab_remote_is_posted(slab) ||
            atomic_exchange_explicit(&remote->posted, 1, memory_order_seq_cst) != 0) {
            heap_note_effort(HEAP_EFFORT_POST);
            return;
        }
""", "", "frees", ""),
    ("bits are taken before PENDING is", "slab/slab_remote.c",
     """    atomic_fetch_and_explicit(&slab->owner, ~SLAB_OWNER_PENDING, memory_order_seq_cst);
    slab_cool(slab);
    const unsigned end = slab->word_count;
""", """    slab_cool(slab);
    const uint64_t early = atomic_exchange_explicit(&remote->bits[0], 0, memory_order_seq_cst);
    slab->bits[0] |= early;
    counts = bits_count_bytes(early);
    atomic_fetch_and_explicit(&slab->owner, ~SLAB_OWNER_PENDING, memory_order_seq_cst);
    *words = budget;
    slab->used_count -= bits_sum_bytes(counts);
    return (int)bits_sum_bytes(counts);
    const unsigned end = slab->word_count;
""", "frees", ""),
    ("a post of an earlier life is forgotten without a look", "heap/heap_remote.c",
     """        if (!heap_needs_post(slab, remote) ||
            atomic_exchange_explicit(&remote->posted, 1, memory_order_seq_cst) != 0) {
            return NULL;
        }
""", "        return NULL;\n", "frees", "sorted"),
    ("a full slab is given up without a second look", "heap/heap_remote.c",
     """    if (!heap_is_freed_elsewhere(remote, slab->capacity_count)) {
        slab_change_owner(slab, owner & ~SLAB_OWNER_PENDING); // used again since the caller looked
        return NULL;
    }
""", "", "frees", "used up again"),
    ("a thread enters the gate while a visitor does", "heap/heap_gate.c",
     """            if (atomic_load_explicit(&heap->visit, memory_order_seq_cst) != GATE_INSIDE) {
                return true;
            }
""", "            return true;\n", "heaps", "visitor"),
    ("a thread that finds a visitor inside goes in all the same", "heap/heap_gate.c",
     """            return false;
        }
        if (visit == GATE_ASKED) {
""", """            return true;
        }
        if (visit == GATE_ASKED) {
""", "heaps", "visitor"),
    ("a visitor does not look whether the thread is inside", "heap/heap_gate.c",
     "atomic_load_explicit(&heap->busy, memory_order_seq_cst) != 0 ||", "", "purge", "medium"),
    ("a slab is posted without PENDING", "slab/slab_remote.h",
     "    atomic_fetch_or_explicit(&slab->owner, SLAB_OWNER_PENDING, memory_order_seq_cst);\n", "",
     "frees", ""),
    ("two may take one heap over", "heap/heap_adopt.c",
     """    return atomic_compare_exchange_strong_explicit(&heap->state, &expected, HEAP_OWNED,
                                                   memory_order_seq_cst, memory_order_relaxed);
""", """    if (atomic_load_explicit(&heap->state, memory_order_seq_cst) != expected) {
        return false;
    }
    atomic_store_explicit(&heap->state, HEAP_OWNED, memory_order_seq_cst);
    return true;
""", "heaps", ""),
    ("another one's second free of a block is not looked for", "heap/heap_near.h",
     "    if (unlikely(!slab_remote_set(remote, index))) {\n        return HEAP_NEAR_NOT;\n    }\n",
     "    (void)slab_remote_set(remote, index);\n", "frees", "free one block"),
    ("a block that a malloc under way may take is purged", "heap/heap_holes.c",
     "quiescent ? SLAB_EXPOSED_NONE : SLAB_EXPOSED_LOWEST, work)", "SLAB_EXPOSED_NONE, work)",
     "purge", ""),
    ("a page of a thin slice can be had while it is purged", "arena/thin_idle.c",
     "    thin_keep_units_locked(set, slice, run);\n", "", "purge", "thin slices"),
    ("a span that is given up is used anew while it is visited", "arena/arena.c",
     "    if (unlikely(slab == set->visited)) {", "    if (false) {", "purge",
     "taken by another one"),
    ("slices that are being purged are not taken", "arena/arena_leave.c",
     "    chunk_map_take(&arena->map, span->chunk_index, span->first, span->count);\n", "", "purge", "slices"),
    ("a lent block stays lent when its slab is queued", "heap/heap_queue.c",
     """        slab_set_hot(current, false);
        slab_set_last(current, 0);
        slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
        slab->used_count--;
""", """        slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
        slab->used_count--;
""", "frees", "lent"),
]


def check(number, error, compiler, directory):
    """Whether the tests fail with the error; and what there is to say."""
    what, name, before, after, program, words = error
    copy = directory / f"{number}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "src", copy / "src")
    path = copy / "src" / name
    text = path.read_text(encoding="utf-8")
    if text.count(before) != 1:
        return False, f"{what}: no longer applies to {name}"
    path.write_text(text.replace(before, after), encoding="utf-8")
    run = copy / program
    build = [compiler, "-std=gnu17", "-O1", "-w", f"-I{copy / 'src'}", f"-I{ROOT / 'include'}",
             f"-I{HERE}", str(HERE / f"test_{program}.c"), str(HERE / "explore.c"), "-o", str(run)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        return False, f"{what}: cannot be built\n{built.stderr}"
    tried = subprocess.run([str(run)] + ([words] if words else []), capture_output=True, text=True,
                           check=False)
    shutil.rmtree(copy, ignore_errors=True)
    found = tried.returncode == 1 and "does not hold" in tried.stderr
    first = tried.stderr.splitlines()[0] if tried.stderr else "nothing was found"
    return found, f"{what}: {first}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--directory", type=pathlib.Path, required=True, help="to build in")
    parser.add_argument("words", nargs="?", default="", help="only errors with these words in them")
    options = parser.parse_args()
    failed = 0
    errors = [(i, e) for i, e in enumerate(ERRORS) if options.words in e[0]]
    for number, error in errors:
        found, line = check(number, error, options.cc, options.directory)
        failed += not found
        print(f"{'found' if found else 'NOT FOUND'}: {line}", flush=True)
    print(f"{len(errors) - failed} of {len(errors)} seeded errors found")
    return 1 if failed or not errors else 0


if __name__ == "__main__":
    sys.exit(main())
