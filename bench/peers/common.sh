# SPDX-License-Identifier: MIT
# Shared by the peers' files; sourced by build.sh.

# What the peer's version is, when its file does not say how to find out.
version_of() { printf '%s' "$version"; }

# define_value FILE NAME: the value of `#define NAME value`.
define_value() { awk -v n="$2" '$1 == "#define" && $2 == n { print $3; exit }' "$1"; }

# mimalloc_version HEADER: 30601 -> 3.6.1
mimalloc_version() {
    local v
    v=$(define_value "$1" MI_MALLOC_VERSION)
    printf '%d.%d.%d' $((v / 10000)) $((v / 100 % 100)) $((v % 100))
}

# mimalloc_build SOURCE FLAGS…: the shared library as mimalloc's CMake Release build makes it.
mimalloc_build() {
    local tree=$1
    shift
    gcc -O3 -DNDEBUG -DMI_BUILD_RELEASE -DMI_CMAKE_BUILD_TYPE=release -DMI_MALLOC_OVERRIDE \
        -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT -D_GNU_SOURCE -std=gnu11 -fPIC -fvisibility=hidden \
        -ftls-model=initial-exec -fno-builtin-malloc "$@" -I"$tree/include" -I"$tree/src" \
        -shared -o "$so" "$tree/src/static.c" -lpthread -lrt -latomic
}

# hardened_build CONFIG: hardened_malloc as its Makefile builds it (without -march=native, which the
# others do not get either), with the settings of config-CONFIG.conf. gcc 12 knows `alignas` in C only
# through its header.
hardened_build() {
    local tree=$src/vendor/hardened-malloc defines=() name line
    while IFS= read -r line; do
        line=${line%%#*}
        [[ $line == *=* ]] && defines+=("-D${line// /}")
    done <"$src/config-$1.conf"
    local flags=(-O3 -fPIC -fvisibility=hidden -fno-plt -flto -pipe -D_GNU_SOURCE "-D_FORTIFY_SOURCE=2"
        -fstack-clash-protection "${defines[@]}" -I"$tree" -I"$tree/include" -I"$tree/third_party")
    for name in chacha h_malloc memory pages random util; do
        gcc -std=c2x -include stdalign.h "${flags[@]}" -c -o "$dir/$name.o" "$tree/$name.c"
    done
    g++ -std=c++17 -fsized-deallocation "${flags[@]}" -c -o "$dir/new.o" "$tree/new.cc"
    g++ "${flags[@]}" -shared -Wl,-O1,--as-needed,-z,defs,-z,relro,-z,now,-z,text -o "$so" "$dir"/*.o
}

# snmalloc_build TARGET: one shim of snmalloc's own CMake build, Release.
snmalloc_build() {
    cmake -S "$src/upstream" -B "$dir/cmake" -DCMAKE_BUILD_TYPE=Release -DSNMALLOC_BUILD_TESTING=OFF
    cmake --build "$dir/cmake" --target "$1" -j "$jobs"
    cp "$dir/cmake/lib$1.so" "$so"
}
