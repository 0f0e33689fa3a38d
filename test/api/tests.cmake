# SPDX-License-Identifier: MIT
mallow_both(api.contract check api/test_contract.c)
mallow_both(api.alignment check api/test_alignment.c)
mallow_both(api.every_size check api/test_every_size.c)
mallow_both(api.bsd_and_strings check api/test_bsd_and_strings.c)
mallow_both(api.large "check;native" api/test_large.c)
mallow_both(api.growth_peak "check;native" api/growth_peak.c)

mallow_linked(api.mw_aligned_at check api/test_mw_aligned_at.c)
mallow_linked(api.mw_families check api/test_mw_families.c)
mallow_linked(api.mw_observe check api/test_mw_observe.c)
# The operator new of these two stops the program where ours must throw.
if(NOT MALLOW_SANITIZE MATCHES "address|thread")
    mallow_linked(api.mw_new check api/test_mw_new.cc)
endif()

mallow_preloaded(api.glibc_control "check;native" api/test_glibc_control.c)
mallow_preloaded(api.mallopt "check;native" api/test_mallopt.c)
mallow_preloaded(api.operators check api/test_operators.cc)
# The C++ run-time inside the program, without mallow, and with it.
if(NOT MALLOW_SANITIZE)
    foreach(kind dynamic static)
        add_executable(operators_${kind} api/test_operators.cc)
        set_target_properties(operators_${kind} PROPERTIES CXX_STANDARD 20)
        mallow_add(api.operators_${kind} "check;plain" operators_${kind})
    endforeach()
    target_link_libraries(operators_dynamic PRIVATE test_flags mallow -static-libstdc++)
    target_link_libraries(operators_static PRIVATE test_flags mallow_static -static)
endif()
mallow_preloaded(api.aliases check api/test_aliases.c)
mallow_preloaded(api.replaced_operators check api/test_replaced_operators.cc)
mallow_preloaded(api.replaced_array_operators check api/test_replaced_operators.cc)
if(TARGET api_replaced_array_operators)
    target_compile_definitions(api_replaced_array_operators PRIVATE REPLACES_ARRAYS)
endif()

mallow_linked(api.limit check api/test_limit.c)
mallow_linked(api.heap_limits check api/test_heap_limits.c)
mallow_linked(api.heap_shrink "check;native" api/test_heap_shrink.c)
mallow_linked(api.heap_of check api/test_heap_of.c)
mallow_linked(api.heap_fits "check;native" api/test_heap_fits.c)
mallow_add(api.heap_fits_mapped "check;native" api_heap_fits)
set_tests_properties(api.heap_fits_mapped PROPERTIES ENVIRONMENT MALLOW_HUGE_THRESHOLD=64K)
mallow_linked(api.heap_calls check api/test_heap_calls.c)
# A reserve has its blocks, whatever has a mapping of its own elsewhere.
mallow_add(api.heap_calls_mapped check api_heap_calls)
set_tests_properties(api.heap_calls_mapped PROPERTIES ENVIRONMENT MALLOW_HUGE_THRESHOLD=64K)
mallow_linked(api.reuse "check;native" api/test_reuse.c)
mallow_linked(api.heartbeat check api/test_heartbeat.c)
mallow_preloaded(api.limit_new "check;native" api/test_limit_new.cc)
if(NOT MALLOW_SANITIZE)
    mallow_linked(api.kept "check;native" api/test_kept.c) # a sanitizer has faults of its own
    set_property(TEST api.limit_new APPEND PROPERTY ENVIRONMENT MALLOW_LIMIT=40M)
endif()

# Without the override: what the headers for that give to the files that include them.
if(NOT MALLOW_SANITIZE)
    add_library(mallow_prefixed SHARED ${PROJECT_SOURCE_DIR}/src/all.c)
    target_link_libraries(mallow_prefixed PRIVATE mallow_flags)
    target_compile_options(mallow_prefixed PRIVATE -UMALLOW_OVERRIDE -DMALLOW_OVERRIDE=0)
    mallow_program(api_override_header api/test_override_header.c api/override_header_other.c)
    mallow_program(api_new_delete_header api/test_operators.cc api/new_delete.cc)
    foreach(header override_header new_delete_header)
        target_link_libraries(api_${header} PRIVATE mallow_prefixed)
        target_include_directories(api_${header} PRIVATE ${PROJECT_SOURCE_DIR}/include)
        mallow_add(api.${header} "check;plain" api_${header})
    endforeach()
    target_include_directories(api_new_delete_header PRIVATE ${PROJECT_SOURCE_DIR}/test/support)
endif()

# One, two and four size classes a doubling, with assertions.
if(NOT MALLOW_SANITIZE)
    foreach(bits 0 1 2)
        add_library(mallow_steps_${bits} SHARED ${PROJECT_SOURCE_DIR}/src/all.c)
        target_link_libraries(mallow_steps_${bits} PRIVATE mallow_flags)
        target_compile_options(mallow_steps_${bits} PRIVATE
            -DMALLOW_CLASS_STEP_BITS=${bits}U -UMALLOW_ASSERT -DMALLOW_ASSERT=1)
        mallow_add(api.class_steps_${bits} "check;plain" api_contract_libc)
        set_tests_properties(api.class_steps_${bits} PROPERTIES
            ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:mallow_steps_${bits}>")
    endforeach()
endif()

if(NOT MALLOW_SANITIZE)
    mallow_add(api.environment "check;plain;native" Python3::Interpreter
               ${CMAKE_CURRENT_SOURCE_DIR}/api/test_environment.py)
    mallow_add(api.option_effects "check;plain;native" Python3::Interpreter
               ${CMAKE_CURRENT_SOURCE_DIR}/api/test_option_effects.py)
    set_tests_properties(api.option_effects PROPERTIES
        ENVIRONMENT "TEST_LIBRARY=$<TARGET_FILE:mallow>")
    set_tests_properties(api.environment PROPERTIES ENVIRONMENT
        "TEST_LIBRARY=$<TARGET_FILE:mallow>;TEST_PROGRAM=$<TARGET_FILE:steady_load>;TEST_STATIC_PROGRAM=$<TARGET_FILE:static_load>")
endif()
