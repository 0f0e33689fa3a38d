// SPDX-License-Identifier: MIT
// Override: what it offers to src/preload, which is not in the same unit.
#ifndef MALLOW_OVERRIDE_OVERRIDE_H
#define MALLOW_OVERRIDE_OVERRIDE_H

#include <stdbool.h>

// See api_parting_begins.
__attribute__((visibility("hidden"))) void mallow_parting_begins(void);
__attribute__((visibility("hidden"))) void mallow_parting_ends(void);

// Looks up what reallocarray and frees of libc's blocks do not look up then: their callers would
// wait for a thread that loads a library.
__attribute__((visibility("hidden"))) void mallow_look_ahead(void);
// Where preload_identity.c keeps what it finds.
enum { OVERRIDE_IDENTITY_COUNT = 10 };
__attribute__((visibility("hidden"))) _Atomic(void *) *mallow_identity_calls(void);

// Whether libc's own entries have been made to lead to the names of ours, which is for good.
__attribute__((visibility("hidden"))) bool mallow_libc_leads(void);
__attribute__((visibility("hidden"))) void mallow_note_libc_leads(void);

#endif
