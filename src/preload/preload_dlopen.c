// SPDX-License-Identifier: MIT
// Preload: dlopen. Compiled for the shared library alone: a program without a dynamic linker has
// none to pass the call on to.
//
// A library opened with RTLD_DEEPBIND finds names in its own dependencies first, so that its malloc
// and free, and those of libraries that come with it, are libc's, whatever is preloaded. Its blocks
// may come to us (process_foreign.c), but libc's free crashes on ours. PHP opens its extensions
// like that. So before the first such call, libc's own entries for these names are made to lead
// here: whoever finds them from then on, finds ours. Nothing else of the binding changes.
//
// Holds    the call itself is passed on by a jump, as the dynamic linker looks at who calls: it
//          searches the caller's RUNPATH.
//          libc's own malloc stays reachable as __libc_malloc and its kin.
// Threads  any; entries are changed while the dynamic linker's lock is held.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT, dl_iterate_phdr
#endif
#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"

// What of an object's dynamic section says where a name's entries are.
struct preload_names {
    ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *hashes; // DT_GNU_HASH: four words, filters, the buckets, the chains
};

// The dynamic linker leaves the addresses in a section that is read-only as they are in the file.
static uintptr_t preload_address(const struct dl_phdr_info *info, const ElfW(Dyn) *entry) {
    const uintptr_t address = entry->d_un.d_ptr;
    return address >= info->dlpi_addr ? address : info->dlpi_addr + address;
}

static bool preload_find_names(const struct dl_phdr_info *info, struct preload_names *names) {
    const ElfW(Dyn) *entry = NULL;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        }
    }
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) {
            names->symbols = (ElfW(Sym) *)preload_address(info, entry);
        } else if (entry->d_tag == DT_STRTAB) {
            names->strings = (const char *)preload_address(info, entry);
        } else if (entry->d_tag == DT_GNU_HASH) {
            names->hashes = (const uint32_t *)preload_address(info, entry);
        }
    }
    return names->symbols != NULL && names->strings != NULL && names->hashes != NULL;
}

static uint32_t preload_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

// Where the kernel refuses, a name keeps leading to libc's.
static void preload_change(ElfW(Sym) *symbol, uintptr_t value) {
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t page = (uintptr_t)&symbol->st_value & ~(page_bytes - 1);
    if (symbol->st_value != value &&
        mprotect((void *)page, page_bytes, PROT_READ | PROT_WRITE) == 0) {
        __atomic_store_n(&symbol->st_value, value, __ATOMIC_RELAXED);
        (void)mprotect((void *)page, page_bytes, PROT_READ);
    }
}

// Makes a name lead to a function of ours. It may have an entry for each of its versions.
static void preload_lead(const struct preload_names *names, const char *name, uintptr_t value) {
    const uint32_t bucket_count = names->hashes[0];
    const uint32_t first = names->hashes[1];
    const uint32_t *const buckets =
        names->hashes + 4 + (size_t)names->hashes[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *const chains = buckets + bucket_count;
    const uint32_t hash = preload_hash(name);
    uint32_t at = bucket_count != 0 ? buckets[hash % bucket_count] : 0;
    for (bool is_last = at < first; !is_last; at++) {
        ElfW(Sym) *const symbol = &names->symbols[at];
        is_last = (chains[at - first] & 1) != 0; // in place of the hash's lowest bit
        if (((chains[at - first] ^ hash) >> 1) == 0 && symbol->st_shndx != SHN_UNDEF &&
            strcmp(names->strings + symbol->st_name, name) == 0) {
            preload_change(symbol, value);
        }
    }
}

static int preload_visit(struct dl_phdr_info *info, size_t size, void *data) {
    struct preload_names names = {0};
    const char *const slash = strrchr(info->dlpi_name, '/');
    (void)size;
    (void)data;
    if (strcmp(slash != NULL ? slash + 1 : info->dlpi_name, LIBC_SO) != 0 ||
        !preload_find_names(info, &names)) {
        return 0;
    }
    const uintptr_t base = info->dlpi_addr;
    preload_lead(&names, "malloc", (uintptr_t)malloc - base);
    preload_lead(&names, "calloc", (uintptr_t)calloc - base);
    preload_lead(&names, "realloc", (uintptr_t)realloc - base);
    preload_lead(&names, "free", (uintptr_t)free - base);
    preload_lead(&names, "reallocarray", (uintptr_t)reallocarray - base);
    preload_lead(&names, "aligned_alloc", (uintptr_t)aligned_alloc - base);
    preload_lead(&names, "posix_memalign", (uintptr_t)posix_memalign - base);
    preload_lead(&names, "memalign", (uintptr_t)memalign - base);
    preload_lead(&names, "valloc", (uintptr_t)valloc - base);
    preload_lead(&names, "pvalloc", (uintptr_t)pvalloc - base);
    preload_lead(&names, "malloc_usable_size", (uintptr_t)malloc_usable_size - base);
    return 1;
}

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode) {
    if (unlikely((mode & RTLD_DEEPBIND) != 0)) {
        (void)dl_iterate_phdr(preload_visit, NULL);
    }
    void *(*next_dlopen)(const char *, int) = NULL;
    *(void **)&next_dlopen = dlsym(RTLD_NEXT, "dlopen"); // libc's, or one that is preloaded as well
    return next_dlopen(file, mode);
}
