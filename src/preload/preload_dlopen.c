// SPDX-License-Identifier: MIT
// Preload: dlopen. Compiled for the shared library alone: a program without a dynamic linker has
// none to pass the call on to.
//
// Names that are looked up by a library's handle are looked for in it and its dependencies alone,
// so that malloc and free are libc's, whatever is preloaded. Blocks of libc's own may come to us
// (process_foreign.c), but libc's free crashes on ours. Foreign function interfaces look names up
// like that (Python's ctypes, Java's, Ruby's, DllImport), to free what strdup has made, say. And a
// library opened with RTLD_DEEPBIND finds all its names there first, and so do libraries that come
// with it: PHP opens its extensions like that. So before the first call that may return such a
// handle, libc's own entries for these names are made to lead here: whoever finds them from then
// on, finds ours. Nothing else of the binding changes.
//
// Holds    the call itself is passed on by a jump, as the dynamic linker looks at who calls: it
//          searches the caller's RUNPATH.
//          libc's own malloc stays reachable as __libc_malloc and its kin.
//          libc's entries are looked at once: dl_iterate_phdr holds a lock that fork does not make
//          new for the child, who would wait for ever at it if another thread held it, and a dlopen
//          of what is loaded already takes none of that kind.
//          a call of ours in one thread may not wait for another that is in dlopen: a constructor
//          there may wait for the first. So what our calls look up by name is looked up before the
//          first call is passed on.
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

#include "base/bits.h"
#include "base/compiler.h"
#include "override/override.h"
#include "preload/preload.h"

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

struct preload_changes {
    struct {
        ElfW(Sym) *symbol;
        uintptr_t value;
    } list[16];
    unsigned count;
};

// All in one stretch of pages, since each that is changed by itself stays a mapping of its own.
// Where the kernel refuses, the names keep leading to libc's.
static bool preload_make(const struct preload_changes *changes) {
    const uintptr_t page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    uintptr_t first = UINTPTR_MAX, end = 0;
    for (unsigned i = 0; i < changes->count; i++) {
        const uintptr_t symbol = (uintptr_t)changes->list[i].symbol;
        first = bits_min(first, symbol & page_mask);
        end = bits_max(end, symbol + sizeof(ElfW(Sym)));
    }
    if (changes->count == 0) {
        return true;
    }
    if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    for (unsigned i = 0; i < changes->count; i++) {
        __atomic_store_n(&changes->list[i].symbol->st_value, changes->list[i].value,
                         __ATOMIC_RELAXED);
    }
    (void)mprotect((void *)first, end - first, PROT_READ);
    return true;
}

// Has a name lead to a function of ours. It may have an entry for each of its versions.
static void preload_lead(struct preload_changes *changes, const struct preload_names *names,
                         const char *name, uintptr_t value) {
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
            strcmp(names->strings + symbol->st_name, name) == 0 && symbol->st_value != value &&
            changes->count < sizeof changes->list / sizeof changes->list[0]) {
            changes->list[changes->count].symbol = symbol;
            changes->list[changes->count++].value = value;
        }
    }
}

enum { PRELOAD_LEADS = 1, PRELOAD_REFUSED };

static int preload_visit(struct dl_phdr_info *info, size_t size, void *data) {
    struct preload_changes changes = {0};
    struct preload_names names = {0};
    const char *const slash = strrchr(info->dlpi_name, '/');
    (void)size;
    (void)data;
    if (strcmp(slash != NULL ? slash + 1 : info->dlpi_name, LIBC_SO) != 0 ||
        !preload_find_names(info, &names)) {
        return 0;
    }
    const uintptr_t base = info->dlpi_addr;
    preload_lead(&changes, &names, "malloc", (uintptr_t)malloc - base);
    preload_lead(&changes, &names, "calloc", (uintptr_t)calloc - base);
    preload_lead(&changes, &names, "realloc", (uintptr_t)realloc - base);
    preload_lead(&changes, &names, "free", (uintptr_t)free - base);
    preload_lead(&changes, &names, "reallocarray", (uintptr_t)reallocarray - base);
    preload_lead(&changes, &names, "aligned_alloc", (uintptr_t)aligned_alloc - base);
    preload_lead(&changes, &names, "posix_memalign", (uintptr_t)posix_memalign - base);
    preload_lead(&changes, &names, "memalign", (uintptr_t)memalign - base);
    preload_lead(&changes, &names, "valloc", (uintptr_t)valloc - base);
    preload_lead(&changes, &names, "pvalloc", (uintptr_t)pvalloc - base);
    preload_lead(&changes, &names, "malloc_usable_size", (uintptr_t)malloc_usable_size - base);
    return preload_make(&changes) ? PRELOAD_LEADS : PRELOAD_REFUSED;
}

// Noted at the end: who finds the note goes on, and must find all that is looked up, too. That is
// what leads to ours now, if the program's own names are libc's.
static void preload_before_first(void) {
    const int result = dl_iterate_phdr(preload_visit, NULL);
    mallow_look_ahead();
    preload_identity_look();
    if (result == PRELOAD_LEADS) {
        mallow_note_libc_leads();
    }
}

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode) {
    // NULL: the program, whose names are looked for in what is preloaded first
    if (file != NULL && !mallow_libc_leads()) {
        preload_before_first();
    }
    void *(*next_dlopen)(const char *, int) = NULL;
    *(void **)&next_dlopen = dlsym(RTLD_NEXT, "dlopen"); // libc's, or one that is preloaded as well
    return next_dlopen(file, mode);
}
