# SPDX-License-Identifier: MIT
# mimalloc 3, secure variant.
title="mimalloc 3 secure"
crate=rustfs-mimalloc-sys
config="Release, MI_SECURE=4"
hardened=true
version_of() { mimalloc_version "$src/c_src/mimalloc/include/mimalloc.h"; }
build() { mimalloc_build "$src/c_src/mimalloc" -DMI_HAS_UNISTDH=1 -DMI_HAS_EXECINFOH=1 -DMI_SECURE=4; }
