// SPDX-License-Identifier: MIT
// The waves of sh6bench, but part of every wave goes to another thread, which frees it.
//
// Source   MicroQuill's description of its SmartHeap benchmark sh8bench (sh6bench and blocks freed by
//          other threads); own program from that description.
// Checks   both ends of every block.

#include "sh_waves.h"

int main(int argc, char **argv) {
    return waves_main(argc, argv, true);
}
