// SPDX-License-Identifier: MIT
// OS, giant pages, for Linux: see os_giant.h.
#include "os/os_giant.h"

#include <sys/mman.h>

#include "os/os_node.h"
#include "os/os_pages.h"
#include "os/os_syscall.h"

// Older headers lack it; the number is the kernel's interface: log2 of the size, from bit 26 on.
enum { OS_MAP_SIZE_SHIFT = 26 };

MALLOW_INTERNAL enum os_giant_result os_giant_take(struct os *os, uintptr_t address,
                                                   unsigned node) {
    const unsigned flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB |
                           (unsigned)OS_GIANT_SHIFT << OS_MAP_SIZE_SHIFT;
    os_count(os, &os->map_count);
    // Not MAP_NORESERVE: a page that is set aside for us now cannot be missing at the first touch.
    const long result = os_syscall6(SYS_mmap, (long)address, (long)OS_GIANT_BYTES,
                                    PROT_READ | PROT_WRITE, (long)flags, -1, 0);
    if (result == (long)address) {
        if (node != OS_GIANT_ANY_NODE) {
            (void)os_node_prefer(os, address, OS_GIANT_BYTES, node);
        }
        if (os_prefault(address, OS_GIANT_BYTES)) {
            return OS_GIANT_TAKEN;
        }
    }
    // The kernel may have taken the reservation away before it refused.
    return os_decommit(os, address, OS_GIANT_BYTES) ? OS_GIANT_NONE : OS_GIANT_LOST;
}
