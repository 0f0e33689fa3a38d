# SPDX-License-Identifier: MIT
mallow_linked(pool.remote check pool/test_remote.c)
if(MALLOW_SANITIZE)
    return()
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release") # with assertions the counts are others
    mallow_linked(pool.bound "check;plain;native" pool/test_bound.c)
    set_tests_properties(pool.bound PROPERTIES TIMEOUT 600) # a context switch an instruction
endif()
mallow_linked(pool.kernel "check;plain;native" pool/test_kernel.c)

# Without libc: the program's one system call is written for x86-64 and arm64.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64)$" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_executable(pool_freestanding pool/freestanding.c)
    set_target_properties(pool_freestanding PROPERTIES C_STANDARD 17)
    target_compile_options(pool_freestanding PRIVATE -ffreestanding -fno-stack-protector -fno-pie)
    target_link_options(pool_freestanding PRIVATE -nostdlib -static -no-pie)
    target_link_libraries(pool_freestanding PRIVATE mallow_pool)
    mallow_add(pool.freestanding "check;plain;native" Python3::Interpreter
               ${CMAKE_CURRENT_SOURCE_DIR}/pool/test_freestanding.py)
    set_tests_properties(pool.freestanding PROPERTIES ENVIRONMENT
        "TEST_POOL_LIBRARY=$<TARGET_FILE:mallow_pool>;TEST_PROGRAM=$<TARGET_FILE:pool_freestanding>;\
TEST_POOL_NEEDS=$<IF:$<CONFIG:Release>,,memset memcpy>")
    if(CMAKE_CROSSCOMPILING)
        mallow_add(pool.freestanding_alone "check;plain" pool_freestanding)
    endif()
endif()

# Tools that watch memory, and pools in debugging.
set(pool_watchers "TEST_ASAN=;TEST_MEMCHECK=")
if(NOT CMAKE_CROSSCOMPILING)
    include(CheckCSourceCompiles)
    check_c_source_compiles("#include <valgrind/memcheck.h>\nint main(void) { return 0; }"
                            mallow_has_valgrind)
    set(CMAKE_REQUIRED_FLAGS -fsanitize=address)
    check_c_source_compiles("int main(void) { return 0; }" mallow_has_asan)
    unset(CMAKE_REQUIRED_FLAGS)
    if(mallow_has_asan)
        add_executable(pool_watch_asan pool/watch_victim.c)
        target_compile_options(pool_watch_asan PRIVATE -fsanitize=address)
        target_link_options(pool_watch_asan PRIVATE -fsanitize=address)
        target_link_libraries(pool_watch_asan PRIVATE mallow_pool)
        list(TRANSFORM pool_watchers REPLACE "^TEST_ASAN=" "TEST_ASAN=$<TARGET_FILE:pool_watch_asan>")
    endif()
    if(mallow_has_valgrind)
        add_executable(pool_watch_memcheck pool/watch_victim.c ${pool_sources} ${PROJECT_SOURCE_DIR}/src/base/format.c)
        target_include_directories(pool_watch_memcheck PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
        target_compile_definitions(pool_watch_memcheck PRIVATE MALLOW_VALGRIND=1)
        target_compile_options(pool_watch_memcheck PRIVATE -Wall -Wextra -Wshadow -Werror)
        list(TRANSFORM pool_watchers REPLACE "^TEST_MEMCHECK=" "TEST_MEMCHECK=$<TARGET_FILE:pool_watch_memcheck>")
    endif()
endif()
mallow_add(pool.watch "check;plain;native" Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/pool/test_watch.py)
set_tests_properties(pool.watch PROPERTIES ENVIRONMENT "${pool_watchers}")

# The simulation of bench/, small.
mallow_program(pool_dispatch_simulation ${PROJECT_SOURCE_DIR}/bench/dispatch/dispatch.c)
target_include_directories(pool_dispatch_simulation PRIVATE ${PROJECT_SOURCE_DIR}/bench)
target_compile_definitions(pool_dispatch_simulation PRIVATE _GNU_SOURCE)
target_link_libraries(pool_dispatch_simulation PRIVATE mallow m)
mallow_add(pool.dispatch "check;plain;native" Python3::Interpreter
           ${CMAKE_CURRENT_SOURCE_DIR}/pool/test_dispatch_simulation.py
           $<TARGET_FILE:pool_dispatch_simulation>)
