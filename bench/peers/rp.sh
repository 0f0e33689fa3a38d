# SPDX-License-Identifier: MIT
# rpmalloc: 1.4.4 development state is what crates carry; flags of its ninja release configuration,
# less the math flags (at link time they would change floating point in the measured program).
title="rpmalloc"
crate=rpmalloc-sys
config="release, rpmallocwrap"
version_of() {
    printf '%s+%s' "$(head -n 1 "$src/rpmalloc/CHANGELOG" | tr -d '\r')" "$(basename "$src" | sed 's/.*+//')"
}
build() {
    local tree=$src/rpmalloc/rpmalloc
    gcc -O3 -g -funroll-loops -funit-at-a-time -fstrict-aliasing -std=c11 -D_GNU_SOURCE=1 \
        -DRPMALLOC_COMPILE=1 -DBUILD_RELEASE=1 -DENABLE_PRELOAD=1 -DENABLE_OVERRIDE=1 -fPIC \
        -fvisibility=default -I"$tree" -shared -o "$so" "$tree/rpmalloc.c" -pthread -ldl
}
