// SPDX-License-Identifier: MIT
// Active false sharing: workers allocate, write and free small blocks at the same time. An allocator
// that serves neighbouring blocks of one cache line to different threads makes them slow each other.
//
// Source   E. Berger, K. McKinley, R. Blumofe, P. Wilson: "Hoard: A Scalable Memory Allocator for
//          Multithreaded Applications", ASPLOS 2000, section 4.1; written from the paper.
// Checks   the last write to every block is read back.
// Holds    the writes are shared out over the threads: more threads never mean more work.

#include "scratch.h"

int main(int argc, char **argv) {
    return scratch_main(argc, argv, false);
}
