// SPDX-License-Identifier: MIT
// A server's life: each thread owns an array of blocks and replaces random ones by blocks of random
// size; after a while it starts a successor, hands it the array and dies. So blocks are freed by
// threads that did not allocate them, and heaps of dead threads matter ("bleeding").
//
// Source   P. Larson, M. Krishnan: "Memory Allocation for Long-Running Server Applications", ISMM
//          1998, section 4; written from the paper. Differs: a fixed number of replacements, shared
//          out over the threads, instead of a fixed time, so that elapsed time is the measure.
// Checks   both ends of every block. sized=1 frees by sized operator delete.

#include "common.h"

#include <new>

namespace {

struct block {
    void *address;
    size_t size;
};

struct lineage { // one slot of the server: the array that threads hand on
    block *blocks;
    uint64_t block_count;
    uint64_t generations;  // still to come
    uint64_t replacements; // of each generation
    uint64_t least, most;
    bool sized;
    uint64_t seed;
    pthread_barrier_t *done;
};

void release(const block &old, bool sized) {
    bench_check(old.address, old.size);
    if (sized) {
        ::operator delete(old.address, old.size);
    } else {
        ::operator delete(old.address);
    }
}

void take(block &fresh, lineage &line) {
    fresh.size = bench_between(&line.seed, line.least, line.most);
    fresh.address = ::operator new(fresh.size);
    bench_stamp(fresh.address, fresh.size);
}

void *live(void *argument) {
    lineage &line = *static_cast<lineage *>(argument);
    for (uint64_t i = 0; i < line.replacements; i++) {
        block &victim = line.blocks[bench_below(&line.seed, line.block_count)];
        release(victim, line.sized);
        take(victim, line);
    }
    if (--line.generations == 0) {
        pthread_barrier_wait(line.done);
        return nullptr;
    }
    pthread_detach(bench_thread(live, &line));
    return nullptr;
}

} // namespace

int main(int argc, char **argv) {
    uint64_t threads = 2;
    uint64_t total = 30000000;
    uint64_t blocks = 5000;
    uint64_t least = 8;
    uint64_t most = 1000;
    uint64_t generations = 20;
    uint64_t sized = 0;
    const struct bench_option table[] = {
        {"threads", &threads, "threads at once"},
        {"ops", &total, "replacements in all"},
        {"blocks", &blocks, "blocks each thread owns"},
        {"least", &least, "smallest block"},
        {"most", &most, "largest block"},
        {"generations", &generations, "threads that follow each other on one array"},
        {"sized", &sized, "1: sized operator delete"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX || generations == 0 || blocks == 0) {
        bench_fail("threads, blocks and generations must be at least 1");
    }

    static lineage lines[BENCH_THREADS_MAX];
    pthread_barrier_t done;
    pthread_barrier_init(&done, nullptr, (unsigned)threads + 1);
    for (uint64_t i = 0; i < threads; i++) {
        lineage &line = lines[i];
        line = {new block[blocks], blocks, generations, total / threads / generations, least, most,
                sized != 0,        i,      &done};
        for (uint64_t k = 0; k < blocks; k++) {
            take(line.blocks[k], line);
        }
    }

    const uint64_t start = bench_now_ns();
    for (uint64_t i = 0; i < threads; i++) {
        pthread_detach(bench_thread(live, &lines[i]));
    }
    pthread_barrier_wait(&done);
    const double taken = (double)(bench_now_ns() - start) / 1e9;

    for (uint64_t i = 0; i < threads; i++) {
        for (uint64_t k = 0; k < blocks; k++) {
            release(lines[i].blocks[k], sized != 0);
        }
        delete[] lines[i].blocks;
    }
    bench_score((double)total / taken / 1e6, "Mops/s");
    return 0;
}
