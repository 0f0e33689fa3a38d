// SPDX-License-Identifier: MIT
// Passive false sharing: the main thread allocates one small block for each worker, side by side as
// it may be; each worker frees the block it was given and from then on allocates, writes and frees
// blocks of that size. An allocator that hands the freed neighbour lines back to the workers makes
// them share cache lines for good.
//
// Source   E. Berger, K. McKinley, R. Blumofe, P. Wilson: "Hoard: A Scalable Memory Allocator for
//          Multithreaded Applications", ASPLOS 2000, section 4.1; written from the paper.
// Checks   the last write to every block is read back.
// Holds    the writes are shared out over the threads: more threads never mean more work.

#include "scratch.h"

int main(int argc, char **argv) {
    return scratch_main(argc, argv, true);
}
