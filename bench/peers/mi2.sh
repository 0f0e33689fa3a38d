# SPDX-License-Identifier: MIT
# mimalloc 2: the newest v2 that a published crate carries.
title="mimalloc 2"
crate=libmimalloc-sys
config="Release"
version_of() { mimalloc_version "$src/c_src/mimalloc/v2/include/mimalloc.h"; }
build() { mimalloc_build "$src/c_src/mimalloc/v2"; }
