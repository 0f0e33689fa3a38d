// SPDX-License-Identifier: MIT
// A program that replaces some operators new and delete and relies on the others to call them, as
// [new.delete] says they do: new[] calls new, the nothrow forms the throwing ones and return null when
// those throw, sized and nothrow delete the plain ones, delete[] delete. What this program hands out is
// no block's beginning, so whoever frees it past its own operators is caught.
//
// Built twice: with REPLACES_ARRAYS the array forms are the program's own too.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <pthread.h>

#include "check.h"

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wsized-deallocation" // that they are not replaced is the point
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
#endif

enum { SCALAR, ARRAY, ALIGNED, ALIGNED_ARRAY, KINDS };
static thread_local int taken[KINDS];
static thread_local int given[KINDS];
static thread_local bool exhausted;

static constexpr std::size_t HEADER = 4096; // an alignment that blocks beyond it keep

static void *take(int kind, std::size_t size, std::size_t alignment)
{
    taken[kind]++;
    char *const block =
        exhausted ? nullptr
                  : static_cast<char *>(aligned_alloc(HEADER, (HEADER + size + HEADER - 1) / HEADER * HEADER));
    if (block == nullptr || alignment > HEADER) {
        throw std::bad_alloc();
    }
    return block + HEADER;
}

static void give(int kind, void *block)
{
    given[kind]++;
    if (block != nullptr) {
        free(static_cast<char *>(block) - HEADER);
    }
}

void *operator new(std::size_t size) { return take(SCALAR, size, 16); }
void operator delete(void *block) noexcept { give(SCALAR, block); }
void *operator new(std::size_t size, std::align_val_t alignment)
{
    return take(ALIGNED, size, static_cast<std::size_t>(alignment));
}
void operator delete(void *block, std::align_val_t) noexcept { give(ALIGNED, block); }

#ifdef REPLACES_ARRAYS
void *operator new[](std::size_t size) { return take(ARRAY, size, 16); }
void operator delete[](void *block) noexcept { give(ARRAY, block); }
void *operator new[](std::size_t size, std::align_val_t alignment)
{
    return take(ALIGNED_ARRAY, size, static_cast<std::size_t>(alignment));
}
void operator delete[](void *block, std::align_val_t) noexcept { give(ALIGNED_ARRAY, block); }
static constexpr int PLAIN_ARRAY = ARRAY;
static constexpr int OVER_ARRAY = ALIGNED_ARRAY;
#else
static constexpr int PLAIN_ARRAY = SCALAR;
static constexpr int OVER_ARRAY = ALIGNED;
#endif

// One more of this kind, and none of another, since the last call.
static void expect(int *counts, int kind)
{
    for (int i = 0; i < KINDS; i++) {
        CHECK(counts[i] == (i == kind ? 1 : 0));
        counts[i] = 0;
    }
}

static void every_form_reaches_them(std::size_t size)
{
    const auto line = std::align_val_t{64};
    const std::nothrow_t tag = std::nothrow;
    void *block = ::operator new(size);
    expect(taken, SCALAR);
    ::operator delete(block, size);
    expect(given, SCALAR);
    block = ::operator new(size, tag);
    expect(taken, SCALAR);
    ::operator delete(block, tag);
    expect(given, SCALAR);

    block = ::operator new[](size);
    expect(taken, PLAIN_ARRAY);
    ::operator delete[](block);
    expect(given, PLAIN_ARRAY);

    block = ::operator new[](size, tag);
    expect(taken, PLAIN_ARRAY);
    ::operator delete[](block, size);
    expect(given, PLAIN_ARRAY);
    block = ::operator new[](size);
    expect(taken, PLAIN_ARRAY);
    ::operator delete[](block, tag);
    expect(given, PLAIN_ARRAY);

    block = ::operator new(size, line);
    expect(taken, ALIGNED);
    ::operator delete(block, size, line);
    expect(given, ALIGNED);
    block = ::operator new(size, line, tag);
    expect(taken, ALIGNED);
    ::operator delete(block, line, tag);
    expect(given, ALIGNED);

    block = ::operator new[](size, line);
    expect(taken, OVER_ARRAY);
    ::operator delete[](block, line);
    expect(given, OVER_ARRAY);
    block = ::operator new[](size, line, tag);
    expect(taken, OVER_ARRAY);
    ::operator delete[](block, size, line);
    expect(given, OVER_ARRAY);
    block = ::operator new[](size, line);
    expect(taken, OVER_ARRAY);
    ::operator delete[](block, line, tag);
    expect(given, OVER_ARRAY);
}

static void nothrow_forms_catch()
{
    const auto line = std::align_val_t{64};
    exhausted = true;
    CHECK(::operator new(1, std::nothrow) == nullptr);
    expect(taken, SCALAR);
    CHECK(::operator new[](1, std::nothrow) == nullptr);
    expect(taken, PLAIN_ARRAY);
    CHECK(::operator new(1, line, std::nothrow) == nullptr);
    expect(taken, ALIGNED);
    CHECK(::operator new[](1, line, std::nothrow) == nullptr);
    expect(taken, OVER_ARRAY);
    exhausted = false;
}

static void *run(void *)
{
    static constexpr std::size_t sizes[] = {0, 1, 64, 1000, 5000, 100000, 3000000};
    for (int round = 0; round < 3; round++) {
        free(malloc(10)); // from now on the thread has a heap
        for (const std::size_t size : sizes) {
            every_form_reaches_them(size);
        }
        nothrow_forms_catch();
    }
    return nullptr;
}

int main()
{
    run(nullptr);
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, run, nullptr) == 0);
    CHECK(pthread_join(thread, nullptr) == 0);
    return 0;
}
