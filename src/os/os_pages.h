// SPDX-License-Identifier: MIT
// OS pages: bringing memory in before it is used, and keeping it in.
//
// Owns     nothing.
// Holds    no call touches errno.
#ifndef MALLOW_OS_PAGES_H
#define MALLOW_OS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

// The page size, without a system call.
MALLOW_INTERNAL size_t os_page_size(void);

// Brings a page-aligned mapped range in, writable. One call where the kernel knows it (5.14), else
// a write to each page. False: there is no memory for it.
MALLOW_INTERNAL bool os_prefault(uintptr_t address, size_t bytes);

// Has the kernel read the aligned word at `address`, which brings its page in, by a wait that lasts
// no time: for where an advice that does so is not known (before 5.14), or a filter refuses it.
// False: it cannot be read. One call.
MALLOW_INTERNAL bool os_read_word(uintptr_t address);

// Locks what lies in [address, address + bytes), in whole pages, if *locked; where the kernel does
// not let us, *locked becomes false, and the pages are only brought in. False: not even that.
MALLOW_INTERNAL bool os_bring_in(uintptr_t address, size_t bytes, bool *locked);

// The same for the program or library that this code is part of, text and data.
MALLOW_INTERNAL void os_bring_in_image(bool *locked);

// Locks a page-aligned range in memory, which brings it in as well, or no longer does so. One call.
MALLOW_INTERNAL bool os_lock_pages(uintptr_t address, size_t bytes);
MALLOW_INTERNAL bool os_unlock_pages(uintptr_t address, size_t bytes);

#endif
