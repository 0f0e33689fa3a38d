#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the library into a folder of its own and uses it in every way a program can: find_package
# (shared, static, all static), the override object, pkg-config, the one C file; the pools alone; as
# a part of another project; and without the override. Each says whose malloc it has.
set -euo pipefail
cd "$(dirname "$0")/.."
stage=$PWD/build/package-check
rm -rf "$stage"
mkdir -p "$stage/consumer"

cmake --preset release >/dev/null
cmake --build build --target lib >/dev/null
cmake --install build --prefix "$stage/usr" >/dev/null

cat >"$stage/consumer/main.c" <<'EOT'
#include <mallow/mallow.h>
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    char *block = malloc(100);
    int owned = mw_is_owned(block);
    free(block);
    printf("%s: malloc is %s\n", mw_version_text(), owned ? "mallow's" : "another's");
    return owned ? 0 : 1;
}
EOT
cat >"$stage/consumer/pools.c" <<'EOT'
#include <mallow/pool.h>
#include <stdio.h>
static _Alignas(64) unsigned char memory[65536];
int main(void)
{
    const struct mw_pool_class classes[] = {{.size_bytes = 64, .share_ppm = MW_POOL_PERCENT(100)}};
    const struct mw_pool_config config = {
        .classes = classes, .class_count = 1, .memory = memory, .pool_bytes = sizeof memory};
    struct mw_pool *pool = NULL;
    const enum mw_pool_status made = mw_pool_create_in(&config, &pool, NULL);
    const enum mw_pool_status freed =
        made == MW_POOL_OK ? mw_pool_free(pool, mw_pool_alloc(pool, 50)) : made;
    printf("a pool, and a free in it: %s\n", mw_pool_status_text(freed));
    return freed == MW_POOL_OK ? 0 : 1;
}
EOT
cat >"$stage/consumer/CMakeLists.txt" <<'EOT'
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(mallow 0.1 REQUIRED)
add_executable(with_shared main.c)
target_link_libraries(with_shared PRIVATE mallow::mallow)
add_executable(with_static main.c)
target_link_libraries(with_static PRIVATE mallow::static)
add_executable(with_object main.c ${MALLOW_OVERRIDE_OBJECT})
get_target_property(headers mallow::mallow INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(with_object PRIVATE ${headers})
add_executable(all_static main.c)
target_link_options(all_static PRIVATE -static)
target_link_libraries(all_static PRIVATE mallow::static)
add_executable(with_pool pools.c)
target_link_libraries(with_pool PRIVATE mallow::pool)
EOT

passed=0
cmake -S "$stage/consumer" -B "$stage/build" -DCMAKE_PREFIX_PATH="$stage/usr" >/dev/null
cmake --build "$stage/build" >/dev/null
for program in with_shared with_static with_object all_static with_pool; do
    echo "$program: $("$stage/build/$program")"
    passed=$((passed + 1))
done

# By hand. The flags of the one C file are those of docs/guide/linking.md.
include=$stage/usr/include
library=$(dirname "$(find "$stage/usr" -name libmallow-pool.a)")
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' build/CMakeCache.txt)
test -e "$library/libmallow.so.${version%.*}" # one for each minor version, before 1.0
cc -o "$stage/pool_by_hand" -I"$include" "$stage/consumer/pools.c" -L"$library" -lmallow-pool
echo "pool_by_hand: $("$stage/pool_by_hand")"
cmake --build build --target amalgamation >/dev/null
flags=$(sed -n '/one C file/s/.*flags: `\(.*\)`.*/\1/p' docs/guide/linking.md)
# shellcheck disable=SC2086
cc -o "$stage/one_file" $flags -I"$include" "$stage/consumer/main.c" build/mallow.c
echo "one_file: $("$stage/one_file")"
passed=$((passed + 2))
if command -v clang-19 >/dev/null; then
    # shellcheck disable=SC2086
    clang-19 -o "$stage/one_file_by_clang" $flags -Wall -Wextra -Werror -I"$include" \
        "$stage/consumer/main.c" build/mallow.c
    echo "one_file_by_clang: $("$stage/one_file_by_clang")"
    passed=$((passed + 1))
fi

make install PREFIX="$stage/with a space" >/dev/null
test -f "$stage/with a space/include/mallow/mallow.h"
echo "make install: also into a folder whose name has a space"
passed=$((passed + 1))

# The flags of mallow.pc, which is relocatable; pkg-config itself may not be installed.
if command -v pkg-config >/dev/null; then
    pc=$(dirname "$(find "$stage/usr" -name mallow.pc)")
    flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs mallow)
    # shellcheck disable=SC2086
    cc -o "$stage/by_pkg_config" "$stage/consumer/main.c" $flags
    echo "by_pkg_config: $(LD_LIBRARY_PATH=$(dirname "$pc") "$stage/by_pkg_config")"
    object=$(PKG_CONFIG_PATH=$pc pkg-config --variable=override_object mallow)
    cc -o "$stage/object_by_pkg_config" -I"$include" "$stage/consumer/main.c" "$object"
    echo "object_by_pkg_config: $("$stage/object_by_pkg_config")"
    flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs mallow-pool)
    # shellcheck disable=SC2086
    cc -o "$stage/pool_by_pkg_config" "$stage/consumer/pools.c" $flags
    echo "pool_by_pkg_config: $("$stage/pool_by_pkg_config")"
    passed=$((passed + 3))
fi

# As a part of another project, whose own settings stay what they are.
mkdir -p "$stage/part"
cat >"$stage/part/CMakeLists.txt" <<EOT
cmake_minimum_required(VERSION 3.25)
project(whole C)
add_subdirectory($PWD mallow)
foreach(name lib cli tests separate amalgamation)
    add_custom_target(\${name}) # the project's own, whatever mallow calls its
endforeach()
if(CMAKE_BUILD_TYPE OR CMAKE_C_STANDARD OR BUILD_TESTING)
    message(FATAL_ERROR "mallow has set what is the project's")
endif()
add_executable(as_part ../consumer/main.c)
target_link_libraries(as_part PRIVATE mallow::static)
EOT
linker=$(command -v ld.gold >/dev/null && echo -fuse-ld=gold || true) # it knows less than others
LDFLAGS=$linker cmake -S "$stage/part" -B "$stage/part/build" >/dev/null
cmake --build "$stage/part/build" --target as_part mallow >/dev/null
echo "as_part: $("$stage/part/build/as_part")"
passed=$((passed + 1))

# Without the override, by the one C file: malloc stays libc's, but in a file with the header.
flags=$(sed -n '/one C file/s/.*flags: `\(.*\)`.*/\1/p' docs/guide/linking.md)
for header in "" "-include mallow/override.h"; do
    # shellcheck disable=SC2086
    cc -c -o "$stage/main.o" -I"$include" $header "$stage/consumer/main.c"
    # shellcheck disable=SC2086
    cc -o "$stage/prefixed" $flags -DMALLOW_OVERRIDE=0 -I"$include" "$stage/main.o" build/mallow.c
    said=$("$stage/prefixed" || true)
    echo "prefixed${header:+, with its header}: $said"
    case "$said" in
    *" malloc is another's") test -z "$header" ;;
    *) test -n "$header" ;;
    esac
    passed=$((passed + 1))
done
echo "$passed passed, 0 failed"
