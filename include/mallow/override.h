// SPDX-License-Identifier: MIT
// mallow: the C library's names for the mw_ calls, in the files that include this, first of all.
//
// For a library or a program of which only some files are to use mallow: with a mallow that was
// built without the override, the rest of the process keeps the malloc that it has. Where the
// override is linked, this changes nothing.
//
// The macros have no parameters, so that `callback = free` is renamed as a call is; a member of a
// structure by one of these names is renamed too, in all that follows. In C++ the names stand
// without `std::`; operators new and delete are those of mallow/new_delete.h.
// Blocks that libc allocates for the program (getline, asprintf, scandir ...) may be freed and
// resized by these names, but in a static executable. A block of these names must not reach libc's
// `free`: what others are to free, a file without this header allocates.
#ifndef MALLOW_OVERRIDE_H
#define MALLOW_OVERRIDE_H

// What declares these names comes before they are macros.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <mallow/mallow.h>

#define malloc mw_malloc
#define calloc mw_calloc
#define realloc mw_realloc
#define free mw_free
#define cfree mw_cfree
#define free_sized mw_free_sized
#define free_aligned_sized mw_free_aligned_sized
#define reallocarray mw_reallocarray
#define reallocarr mw_reallocarr
#define reallocf mw_reallocf
#define posix_memalign mw_posix_memalign
#define aligned_alloc mw_aligned_alloc
#define memalign mw_memalign
#define valloc mw_valloc
#define pvalloc mw_pvalloc
#define malloc_usable_size mw_malloc_usable_size
#define malloc_size mw_malloc_size
#define malloc_good_size mw_malloc_good_size
#undef strdup // a macro of some versions of libc
#undef strndup
#define strdup mw_strdup
#define strndup mw_strndup
#define realpath mw_realpath

#endif
