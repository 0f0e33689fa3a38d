# SPDX-License-Identifier: MIT
# hardened_malloc, default configuration.
title="hardened_malloc"
crate=hardened-malloc-sys
config="default"
hardened=true
version_of() { basename "$src" | sed 's/^hardened-malloc-sys-//'; }
build() { hardened_build default; }
