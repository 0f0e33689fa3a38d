# SPDX-License-Identifier: MIT
# mimalloc 3: its Release flags; the crate carries include/ and src/ of the release.
title="mimalloc 3"
crate=rustfs-mimalloc-sys
config="Release"
version_of() { mimalloc_version "$src/c_src/mimalloc/include/mimalloc.h"; }
build() { mimalloc_build "$src/c_src/mimalloc" -DMI_HAS_UNISTDH=1 -DMI_HAS_EXECINFOH=1; }
