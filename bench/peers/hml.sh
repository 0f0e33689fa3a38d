# SPDX-License-Identifier: MIT
# hardened_malloc, light configuration.
title="hardened_malloc light"
crate=hardened-malloc-sys
config="light"
hardened=true
version_of() { basename "$src" | sed 's/^hardened-malloc-sys-//'; }
build() { hardened_build light; }
