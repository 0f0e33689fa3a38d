# SPDX-License-Identifier: MIT
# snmalloc with its client checks.
title="snmalloc, checks"
crate=snmalloc-sys
config="CMake Release, snmallocshim-checks"
hardened=true
version_of() { basename "$src" | sed 's/^snmalloc-sys-//'; }
build() { snmalloc_build snmallocshim-checks; }
