# SPDX-License-Identifier: MIT
# jemalloc: the crate carries the release tree and a generated configure; configured as its INSTALL
# says by default (statistics, C++ operators).
title="jemalloc"
crate=tikv-jemalloc-sys
config="./configure (defaults)"
version_of() { basename "$src" | sed 's/.*+//; s/-0-g.*//'; }
build() {
    cp -r "$src/jemalloc" "$dir/tree"
    cp "$src/configure/configure" "$dir/tree/configure"
    cd "$dir/tree"
    chmod +x configure build-aux/* include/jemalloc/*.sh include/jemalloc/internal/*.sh
    ./configure "--with-version=$(basename "$src" | sed 's/.*+//')" --enable-doc=no
    make -j "$jobs" build_lib_shared
    cp lib/libjemalloc.so.2 "$so"
}
