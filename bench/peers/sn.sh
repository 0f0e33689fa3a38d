# SPDX-License-Identifier: MIT
# snmalloc: its own CMake build, target snmallocshim.
title="snmalloc"
crate=snmalloc-sys
config="CMake Release, snmallocshim"
version_of() { basename "$src" | sed 's/^snmalloc-sys-//'; }
build() { snmalloc_build snmallocshim; }
