// SPDX-License-Identifier: MIT
// mallow: marks and scopes in the trace of a program that `mallow record` runs: what happened when, and
// what part of the program asked for memory.
//
// Nothing is to be linked (before glibc 2.34: -ldl). In a program that is not recorded each call is a
// comparison; under the recorder it writes a record, under its lock. Any thread; scopes are the calling
// thread's, and nest. A child by fork begins outside of any scope. Texts are cut at 255 bytes;
// NULL is an empty one.
#ifndef MALLOW_RECORD_H
#define MALLOW_RECORD_H

#include <dlfcn.h>
#include <stddef.h>

#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast" // clang's: to g++ what is extern "C" may have C's
extern "C" {
#endif

enum mw_record_kind {
    MW_RECORD_MARK = 0,
    MW_RECORD_BEGIN = 1,
    MW_RECORD_END = 2,
};

// What the calls below are made of. The recorder is looked for once in each file that has calls: by
// name, since a weak symbol is NULL for good in an executable at a fixed address.
static inline void mw_record_note(enum mw_record_kind kind, const char *text)
{
    static void *recorder; // NULL: not looked for; its own address: there is none
    void (*note)(enum mw_record_kind, const char *);
    void *found = __atomic_load_n(&recorder, __ATOMIC_RELAXED);
    if (found == NULL) {
        found = dlsym(NULL, "mw_record_note_v1"); // RTLD_DEFAULT
        found = found != NULL ? found : (void *)&recorder;
        __atomic_store_n(&recorder, found, __ATOMIC_RELAXED);
    }
    if (found != (void *)&recorder) {
        *(void **)&note = found;
        note(kind, text);
    }
}

// A point in time: "level loaded".
static inline void mw_record_mark(const char *text)
{
    mw_record_note(MW_RECORD_MARK, text);
}

// What the thread allocates from here to mw_record_end is of this scope: "textures". Names are best
// few: what differs from time to time is a mark.
static inline void mw_record_begin(const char *name)
{
    mw_record_note(MW_RECORD_BEGIN, name);
}

static inline void mw_record_end(void)
{
    mw_record_note(MW_RECORD_END, NULL);
}

#ifdef __cplusplus
}
#pragma GCC diagnostic pop

namespace mallow {

// The scope of a block of C++: mallow::record_scope scope("textures");
class record_scope {
public:
    explicit record_scope(const char *name) { mw_record_begin(name); }
    ~record_scope() { mw_record_end(); }
    record_scope(const record_scope &) = delete;
    record_scope &operator=(const record_scope &) = delete;
};

} // namespace mallow
#endif

#endif
