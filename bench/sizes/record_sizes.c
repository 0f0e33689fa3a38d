// SPDX-License-Identifier: MIT
// A preloaded library that counts the sizes a program asks for, for tools/size_classes.py. Each process
// that ends normally writes SIZES_DIR/<pid>.txt:
//
//     size BYTES COUNT            requests of exactly that size, up to 64 KiB
//     large COUNT BYTES           all larger ones
//     grows COUNT M0 M1 M2 M3     reallocs that ask for more, up to 64 KiB, and in how many of them the
//                                 old class is too small, with 1, 2, 4 and 8 classes a doubling
//     live BYTES                  most bytes alive at once
//
// Owns     the counters. The memory itself comes from glibc, by its __libc_ names.
// Threads  any; the counters are relaxed atomics.
// Holds    nothing here allocates. The old size of a realloc, and what is alive, is what glibc can
//          give there, which is at most 15 bytes more than was asked for.

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { EXACT_MAX = 65536, DENSITIES = 4, GRANULE = 16 };

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

static _Atomic uint64_t exact[EXACT_MAX + 1];
static _Atomic uint64_t large_count, large_bytes, grow_count, grow_moves[DENSITIES];
static _Atomic uint64_t live_bytes, live_most;

static void add(_Atomic uint64_t *counter, uint64_t amount) {
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static void count(size_t size) {
    if (size <= EXACT_MAX) {
        add(&exact[size], 1);
    } else {
        add(&large_count, 1);
        add(&large_bytes, size);
    }
}

static void *born(void *block) {
    if (block != NULL) {
        const uint64_t bytes = malloc_usable_size(block);
        const uint64_t live = atomic_fetch_add_explicit(&live_bytes, bytes, memory_order_relaxed);
        uint64_t most = atomic_load_explicit(&live_most, memory_order_relaxed);
        while (live + bytes > most &&
               !atomic_compare_exchange_weak_explicit(&live_most, &most, live + bytes,
                                                      memory_order_relaxed, memory_order_relaxed)) {
        }
    }
    return block;
}

static void gone(uint64_t bytes) {
    atomic_fetch_sub_explicit(&live_bytes, bytes, memory_order_relaxed);
}

// The block size of mallow's classes: 16 bytes apart up to 16 << bits, then 1 << bits a doubling.
static size_t capacity(size_t size, unsigned bits) {
    if (size <= (size_t)GRANULE << bits) {
        return size == 0 ? GRANULE : (size + GRANULE - 1) & ~(size_t)(GRANULE - 1);
    }
    const unsigned doubling = 63U - (unsigned)__builtin_clzll(size - 1);
    const size_t step = (size_t)1 << (doubling - bits);
    return (size + step - 1) & ~(step - 1);
}

void *malloc(size_t size) {
    count(size);
    return born(__libc_malloc(size));
}

void free(void *block) {
    if (block != NULL) {
        gone(malloc_usable_size(block));
        __libc_free(block);
    }
}

void *calloc(size_t n, size_t size) {
    size_t bytes = 0;
    if (!__builtin_mul_overflow(n, size, &bytes)) {
        count(bytes);
    }
    return born(__libc_calloc(n, size));
}

void *realloc(void *block, size_t size) {
    count(size);
    const size_t before = block == NULL ? 0 : malloc_usable_size(block);
    if (before > 0 && size > before && size <= EXACT_MAX) {
        add(&grow_count, 1);
        for (unsigned bits = 0; bits < DENSITIES; bits++) {
            add(&grow_moves[bits], size > capacity(before, bits));
        }
    }
    void *const moved = __libc_realloc(block, size);
    if (moved != NULL || size == 0) {
        gone(before);
    }
    return born(moved);
}

void *reallocarray(void *block, size_t n, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

void *memalign(size_t alignment, size_t size) {
    count(size);
    return born(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0) {
        return EINVAL;
    }
    void *const block = memalign(alignment, size);
    if (block == NULL) {
        return ENOMEM;
    }
    *result = block;
    return 0;
}

// dprintf would allocate.
__attribute__((format(printf, 2, 3))) static void emit(int file, const char *format, ...) {
    char line[160];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > 0 && write(file, line, (size_t)length) != length) {
        _exit(1);
    }
}

__attribute__((destructor)) static void write_counts(void) {
    char path[4096];
    const char *const directory = getenv("SIZES_DIR");
    if (directory == NULL ||
        snprintf(path, sizeof path, "%s/%d.txt", directory, (int)getpid()) >= (int)sizeof path) {
        return;
    }
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) {
        return;
    }
    for (size_t size = 0; size <= EXACT_MAX; size++) {
        if (exact[size] != 0) {
            emit(file, "size %zu %llu\n", size, (unsigned long long)exact[size]);
        }
    }
    emit(file, "large %llu %llu\n", (unsigned long long)large_count,
         (unsigned long long)large_bytes);
    emit(file, "grows %llu %llu %llu %llu %llu\n", (unsigned long long)grow_count,
         (unsigned long long)grow_moves[0], (unsigned long long)grow_moves[1],
         (unsigned long long)grow_moves[2], (unsigned long long)grow_moves[3]);
    emit(file, "live %llu\n", (unsigned long long)live_most);
    close(file);
}
