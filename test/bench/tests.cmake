# SPDX-License-Identifier: MIT
# The latency harness (bench/latency): its arithmetic, and the program itself with tiny counts. The
# allocators that it must refuse are made by broken_malloc.c.
set(latency ${PROJECT_SOURCE_DIR}/bench/latency)

function(latency_unit name)
    mallow_program(bench_test_${name} bench/test_${name}.c)
    foreach(source IN LISTS ARGN)
        target_sources(bench_test_${name} PRIVATE ${latency}/${source}.c)
    endforeach()
    target_include_directories(bench_test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/bench ${latency})
    target_compile_definitions(bench_test_${name} PRIVATE _GNU_SOURCE)
    mallow_add(bench.${name} check bench_test_${name})
endfunction()

latency_unit(histogram histogram)
latency_unit(recorder recorder histogram timer)
latency_unit(machine machine)

if(MALLOW_SANITIZE)
    return()
endif()

file(GLOB latency_sources CONFIGURE_DEPENDS ${latency}/*.c)
add_executable(latency_smoke ${latency_sources})
target_link_libraries(latency_smoke PRIVATE test_flags)
target_include_directories(latency_smoke PRIVATE ${PROJECT_SOURCE_DIR}/bench)
target_compile_definitions(latency_smoke PRIVATE _GNU_SOURCE)
target_compile_options(latency_smoke PRIVATE -O2 -Wconversion)

add_library(broken_malloc MODULE bench/broken_malloc.c)
target_link_libraries(broken_malloc PRIVATE test_flags)

mallow_add(bench.latency "check;plain;native" Python3::Interpreter
           ${CMAKE_CURRENT_SOURCE_DIR}/bench/test_latency.py)
set_tests_properties(bench.latency PROPERTIES ENVIRONMENT
    "TEST_LATENCY=$<TARGET_FILE:latency_smoke>;TEST_LIBRARY=$<TARGET_FILE:mallow>;TEST_BROKEN=$<TARGET_FILE:broken_malloc>")
