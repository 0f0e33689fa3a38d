// SPDX-License-Identifier: MIT
// Override: what it offers to src/preload, which is not in the same unit.
#ifndef MALLOW_OVERRIDE_OVERRIDE_H
#define MALLOW_OVERRIDE_OVERRIDE_H

// See api_parting_begins.
__attribute__((visibility("hidden"))) void mallow_parting_begins(void);
__attribute__((visibility("hidden"))) void mallow_parting_ends(void);

#endif
