// SPDX-License-Identifier: MIT
// Waves of small blocks whose size grows and whose number shrinks, freed partly last-first and partly
// first-first, with a core that stays; threads work side by side without sharing.
//
// Source   MicroQuill's description of its SmartHeap benchmark sh6bench ("some objects freed in LIFO
//          order, others in reverse order"); own program from that description.
// Checks   both ends of every block.

#include "sh_waves.h"

int main(int argc, char **argv) {
    return waves_main(argc, argv, false);
}
