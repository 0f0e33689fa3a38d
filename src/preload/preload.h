// SPDX-License-Identifier: MIT
// Preload: what its files offer each other.
#ifndef MALLOW_PRELOAD_PRELOAD_H
#define MALLOW_PRELOAD_PRELOAD_H

// Looks up the calls of preload_identity.c, which they do themselves otherwise, the first time.
__attribute__((visibility("hidden"))) void preload_identity_look(void);

#endif
