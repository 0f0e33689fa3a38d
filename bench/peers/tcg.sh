# SPDX-License-Identifier: MIT
# Google's TCMalloc: the files the crate compiles, but with the C and C++ entry points switched on.
title="TCMalloc (Google)"
crate=libtcmalloc-sys
config="-O2, 8 KiB pages"
version_of() { basename "$src" | sed 's/^libtcmalloc-sys-/crate /'; }
build() {
    mkdir "$dir/o"
    cd "$src"
    { grep -o 'c_src/[^"]*\.\(cc\|S\)' build.rs | grep -v bridge.cc
      echo c_src/tcmalloc/tcmalloc/tcmalloc.cc; } >"$dir/files"
    local flags=(-O2 -DNDEBUG -std=c++17 -fPIC -fno-omit-frame-pointer -w -DNOMINMAX
        -DTCMALLOC_INTERNAL_8K_PAGES -Ic_src/abseil-cpp -Ic_src/tcmalloc)
    printf '%s\n' "${flags[@]}" >"$dir/flags"
    # shellcheck disable=SC2016
    xargs -P "$jobs" -I{} sh -c 'g++ @"$1/flags" -c -o "$1/o/$(echo {} | tr / _).o" {}' _ "$dir" <"$dir/files"
    g++ -shared -Wl,-O1 -o "$so" "$dir"/o/*.o -pthread -lrt
}
