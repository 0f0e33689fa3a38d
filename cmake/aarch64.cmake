# SPDX-License-Identifier: MIT
# arm64 on another machine: Debian's cross compiler, programs run by qemu-user.
# QEMU_PAGESIZE=16384 (or 65536) in the environment gives the emulated machine larger pages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The limit: qemu keeps some 16 bytes for every page of address space ever mapped, and never less.
# G_SLICE: else a child of a fork may wait for ever for a lock of qemu's own (GLib's slices), which
# another thread of the parent held.
set(CMAKE_CROSSCOMPILING_EMULATOR prlimit --as=17179869184 env G_SLICE=always-malloc
    qemu-aarch64-static -L /usr/aarch64-linux-gnu)

# tools/bootstrap.sh arm64 unpacks cmocka for arm64 here; the rest comes with the cross compiler.
set(MALLOW_ARM64_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-packages/usr)
set(CMAKE_FIND_ROOT_PATH ${MALLOW_ARM64_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
