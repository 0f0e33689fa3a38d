# SPDX-License-Identifier: MIT
# callcost needs the parts that valgrind's tools are linked from, which Debian's package has.
if(MALLOW_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    return()
endif()
set(callcost_platforms_x86_64 amd64)
set(callcost_platforms_aarch64 arm64)
set(callcost_platform "${callcost_platforms_${CMAKE_SYSTEM_PROCESSOR}}")
find_program(VALGRIND_PROGRAM valgrind)
find_path(VALGRIND_INCLUDE pub_tool_tooliface.h PATH_SUFFIXES valgrind)
find_library(VALGRIND_CORE libcoregrind-${callcost_platform}-linux.a PATH_SUFFIXES valgrind)
find_library(VALGRIND_VEX libvex-${callcost_platform}-linux.a PATH_SUFFIXES valgrind)
find_library(VALGRIND_GCC libgcc-sup-${callcost_platform}-linux.a PATH_SUFFIXES valgrind)
find_path(VALGRIND_EXEC default.supp PATHS /usr/libexec/valgrind /usr/lib/valgrind
          /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/valgrind)
if(NOT VALGRIND_PROGRAM OR NOT VALGRIND_INCLUDE OR NOT VALGRIND_CORE OR NOT VALGRIND_VEX
   OR NOT VALGRIND_EXEC)
    message(STATUS "mallow: no parts of valgrind: calls.* are left out")
    return()
endif()

# A tool is a static program without libc, at an address that valgrind's loader expects.
add_executable(callcost_tool calls/callcost_tool.c)
target_include_directories(callcost_tool SYSTEM PRIVATE ${VALGRIND_INCLUDE})
target_compile_definitions(callcost_tool PRIVATE
    VGA_${callcost_platform}=1 VGO_linux=1 VGP_${callcost_platform}_linux=1
    VGPV_${callcost_platform}_linux_vanilla=1)
target_compile_options(callcost_tool PRIVATE -fno-pie -fno-builtin -fno-stack-protector -O2
                       -Wall -Wextra -Wshadow $<$<BOOL:${MALLOW_WERROR}>:-Werror>)
target_link_options(callcost_tool PRIVATE -static -no-pie -nodefaultlibs -nostartfiles -u _start
                    -Wl,-Ttext-segment=0x58000000)
target_link_libraries(callcost_tool PRIVATE -Wl,--start-group ${VALGRIND_CORE} ${VALGRIND_VEX}
                      $<$<BOOL:${VALGRIND_GCC}>:${VALGRIND_GCC}> gcc -Wl,--end-group)
set(callcost_dir ${CMAKE_CURRENT_BINARY_DIR}/callcost)
set_target_properties(callcost_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${callcost_dir}
                      OUTPUT_NAME callcost-${callcost_platform}-linux)
file(MAKE_DIRECTORY ${callcost_dir})
foreach(part default.supp vgpreload_core-${callcost_platform}-linux.so)
    file(CREATE_LINK ${VALGRIND_EXEC}/${part} ${callcost_dir}/${part} SYMBOLIC)
endforeach()

mallow_program(adversary calls/adversary.c calls/adversary_small.c calls/adversary_thread.c
               calls/adversary_large.c calls/adversary_mixed.c calls/adversary_posts.c
               calls/adversary_actors.c calls/adversary_tenants.c)
target_include_directories(adversary PRIVATE ${PROJECT_SOURCE_DIR}/include)
mallow_program(callcost_self calls/callcost_self.c)
# In front of an allocator, for programs that were written without callcost.
add_library(callcost_preload SHARED calls/callcost_preload.c)
target_link_libraries(callcost_preload PRIVATE test_flags)
set_target_properties(callcost_preload PROPERTIES C_STANDARD 17
                      LIBRARY_OUTPUT_DIRECTORY ${callcost_dir})
foreach(program adversary callcost_self callcost_preload)
    target_compile_options(${program} PRIVATE -fno-plt)
    add_dependencies(${program} callcost_tool)
endforeach()

set(calls Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/calls/calls.py)
set(calls_directory --directory ${CMAKE_CURRENT_BINARY_DIR})
mallow_add(calls.tool "check;plain;native" ${calls} self ${calls_directory})
mallow_add(calls.bound "check;plain;native" ${calls} check ${calls_directory}
           mallow=$<TARGET_FILE:mallow>)
