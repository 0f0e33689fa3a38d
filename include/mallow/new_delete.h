// SPDX-License-Identifier: MIT
// mallow: C++'s operators new and delete on the mw_ calls, all that the compiler's standard has.
// Included in exactly one file of a program; nothing in C.
//
// For a mallow that was built without the override, where malloc stays what it is. They serve the
// whole process, and behave as the standard says of theirs: new_handler, bad_alloc, nothrow forms
// that return NULL.
#ifndef MALLOW_NEW_DELETE_H
#define MALLOW_NEW_DELETE_H

#include <mallow/mallow.h>

#ifdef __cplusplus

#include <cstddef>
#include <new>

void *operator new(std::size_t size) { return mw_new(size); }
void *operator new[](std::size_t size) { return mw_new(size); }
void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return mw_new_nothrow(size); }
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept { return mw_new_nothrow(size); }

void operator delete(void *block) noexcept { mw_free(block); }
void operator delete[](void *block) noexcept { mw_free(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { mw_free(block); }
void operator delete[](void *block, const std::nothrow_t &) noexcept { mw_free(block); }

#if __cplusplus >= 201402L
void operator delete(void *block, std::size_t) noexcept { mw_free(block); }
void operator delete[](void *block, std::size_t) noexcept { mw_free(block); }
#endif

#ifdef __cpp_aligned_new

void *operator new(std::size_t size, std::align_val_t alignment)
{
    return mw_new_aligned(size, static_cast<std::size_t>(alignment));
}

void *operator new[](std::size_t size, std::align_val_t alignment)
{
    return mw_new_aligned(size, static_cast<std::size_t>(alignment));
}

void *operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept
{
    return mw_new_aligned_nothrow(size, static_cast<std::size_t>(alignment));
}

void *operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept
{
    return mw_new_aligned_nothrow(size, static_cast<std::size_t>(alignment));
}

void operator delete(void *block, std::align_val_t) noexcept { mw_free(block); }
void operator delete[](void *block, std::align_val_t) noexcept { mw_free(block); }
void operator delete(void *block, std::size_t, std::align_val_t) noexcept { mw_free(block); }
void operator delete[](void *block, std::size_t, std::align_val_t) noexcept { mw_free(block); }
void operator delete(void *block, std::align_val_t, const std::nothrow_t &) noexcept { mw_free(block); }
void operator delete[](void *block, std::align_val_t, const std::nothrow_t &) noexcept { mw_free(block); }

#endif
#endif

#endif
