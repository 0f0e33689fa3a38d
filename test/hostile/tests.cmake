# SPDX-License-Identifier: MIT
mallow_linked(hostile.foreign_pointers check hostile/foreign_pointers.c)
if(MALLOW_SANITIZE)
    return()
endif()

set(hostile "check;plain;native")
mallow_program(launch support/launch.c)
mallow_program(steady_load hostile/steady_load.c)
mallow_program(refill hostile/refill.c)

set(launched $<TARGET_FILE:launch> --preload $<TARGET_FILE:mallow>)
mallow_add(hostile.address_space_256 "${hostile}" ${launched} --as 256 $<TARGET_FILE:refill> 200)
mallow_add(hostile.address_space_64 "${hostile}" ${launched} --as 64 $<TARGET_FILE:refill> 32)
mallow_add(hostile.data_limit_64 "${hostile}" ${launched} --data 64 $<TARGET_FILE:refill> 40)
mallow_add(hostile.threads_in_256 "${hostile}" ${launched} --as 256 $<TARGET_FILE:steady_load> --ours)
# Linux before 5.17 answers EINVAL.
mallow_add(hostile.no_names "${hostile}" ${launched} --refuse-prctl $<TARGET_FILE:steady_load> --ours)
set_tests_properties(hostile.no_names PROPERTIES ENVIRONMENT MALLOW_NAME_MAPPINGS=1
    PASS_REGULAR_EXPRESSION "MALLOW_NAME_MAPPINGS=1: .* no effect")
mallow_add(hostile.no_proc "${hostile}" ${launched} --hide-proc $<TARGET_FILE:steady_load> --ours)

mallow_program(late_limit hostile/late_limit.c)
foreach(how setrlimit prlimit vfork clone low tight crowd)
    mallow_add(hostile.late_limit_${how} "${hostile}" late_limit ${how})
    set_tests_properties(hostile.late_limit_${how} PROPERTIES ENVIRONMENT "${preload}")
endforeach()
# Most of what is there before the limit lies in a secondary arena.
mallow_add(hostile.late_limit_secondary "${hostile}" late_limit low)
set_tests_properties(hostile.late_limit_secondary PROPERTIES
    ENVIRONMENT "${preload};MALLOW_ARENA_RESERVE=2M")
# CAVEATS.md: a child by a bare clone may wait for ever for a lock that the thread has just held.
set_tests_properties(hostile.late_limit_clone PROPERTIES ENVIRONMENT "${preload};MALLOW_BACKGROUND=0")
mallow_preloaded(hostile.bare_children "check;native" hostile/bare_children.c)

mallow_preloaded(hostile.commit_charge "check;native" hostile/commit_charge.c)
mallow_preloaded(hostile.dump_size "check;native" hostile/dump_size.c)
mallow_preloaded(hostile.own_malloc "check;native" hostile/own_malloc.c)
mallow_linked(hostile.other_clock "check;plain" hostile/other_clock.c)
mallow_preloaded(hostile.own_names "check;native" hostile/own_names.c idle/idle.c)
mallow_preloaded(hostile.unmade_key "check;native" hostile/unmade_key.c)
mallow_preloaded(hostile.strict_sandbox "check;native" hostile/strict_sandbox.c)
mallow_program(threshold_limited hostile/threshold_limited.c)
mallow_add(hostile.threshold_limited "${hostile}" ${launched} --as 512 $<TARGET_FILE:threshold_limited> 200)
mallow_program(shrink hostile/shrink.c)
mallow_add(hostile.shrink_address_space "${hostile}" ${launched} --as 128 $<TARGET_FILE:shrink>)
mallow_add(hostile.shrink_limit "${hostile}" shrink)
set_tests_properties(hostile.shrink_limit PROPERTIES ENVIRONMENT "${preload};MALLOW_LIMIT=128M")
mallow_preloaded(hostile.parting_in_handler "check;native" hostile/parting_in_handler.c)
mallow_preloaded(hostile.mappings_used_up "check;native" hostile/mappings_used_up.c)
mallow_preloaded(hostile.partly_moved "check;native" hostile/partly_moved.c)
mallow_preloaded(hostile.vanishing "check;native" hostile/vanishing.c)
mallow_preloaded(hostile.libc_blocks "check;native" hostile/libc_blocks.c)
mallow_preloaded(hostile.exit_in_handler "check;native" hostile/exit_in_handler.c)
mallow_preloaded(hostile.exit_on_small_stack "check;native" hostile/exit_on_small_stack.c)

mallow_program(calls_refused hostile/calls_refused.c)
foreach(calls "mremap" "munmap" "mremap;munmap;madvise")
    string(REPLACE ";" "_" name "${calls}")
    mallow_add(hostile.calls_refused_${name} "${hostile}" calls_refused ${calls})
    set_tests_properties(hostile.calls_refused_${name} PROPERTIES ENVIRONMENT "${preload}")
endforeach()

mallow_program(hard_limit hostile/hard_limit.c)
mallow_add(hostile.hard_limit "${hostile}" hard_limit 64)
set_tests_properties(hostile.hard_limit PROPERTIES ENVIRONMENT "${preload};MALLOW_LIMIT=64M")
mallow_program(phases hostile/phases.c)
foreach(kind real simulated)
    mallow_add(hostile.soft_limit_${kind} "${hostile}" Python3::Interpreter
               ${CMAKE_CURRENT_SOURCE_DIR}/hostile/test_soft_limit.py)
    set_tests_properties(hostile.soft_limit_${kind} PROPERTIES ENVIRONMENT
        "TEST_LIBRARY=$<TARGET_FILE:mallow>;TEST_PROGRAM=$<TARGET_FILE:phases>;TEST_CGROUP=${kind}")
endforeach()

mallow_preloaded(hostile.early_start check hostile/early_start.c)
target_link_options(hostile_early_start PRIVATE -Wl,-z,lazy)

mallow_preloaded(hostile.early_options check hostile/early_options.c)
set_tests_properties(hostile.early_options PROPERTIES ENVIRONMENT "${preload};MALLOW_ARENA_RESERVE=1G")

mallow_program(locked_memory hostile/locked_memory.c)
foreach(when early late)
    mallow_add(hostile.locked_memory_${when} "${hostile}" locked_memory ${when})
    set_tests_properties(hostile.locked_memory_${when} PROPERTIES ENVIRONMENT "${preload}")
endforeach()

add_executable(static_load hostile/steady_load.c)
target_link_libraries(static_load PRIVATE test_flags mallow_static -static)
mallow_add(hostile.static_program "check;plain" static_load --ours)
add_executable(static_forged hostile/static_forged.c)
target_link_libraries(static_forged PRIVATE test_flags mallow_static -static)
mallow_add(hostile.static_forged "check;plain" static_forged)

mallow_program(dlopen_close hostile/dlopen_close.c)
target_include_directories(dlopen_close PRIVATE ${PROJECT_SOURCE_DIR}/include)
mallow_add(hostile.dlopen_close "check;plain" dlopen_close $<TARGET_FILE:mallow>)
add_library(whole_plugin MODULE hostile/whole_plugin.c)
target_link_libraries(whole_plugin PRIVATE test_flags "$<LINK_LIBRARY:WHOLE_ARCHIVE,mallow_static>")
mallow_add(hostile.dlopen_close_static "check;plain" dlopen_close $<TARGET_FILE:whole_plugin>)

foreach(kind plain linked object)
    mallow_program(memcheck_${kind} hostile/memcheck_victim.c)
endforeach()
target_link_options(memcheck_linked PRIVATE -Wl,--no-as-needed)
target_link_libraries(memcheck_linked PRIVATE mallow)
target_sources(memcheck_object PRIVATE ${override_object})
set_source_files_properties(${override_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_dependencies(memcheck_object mallow_object)
mallow_add(hostile.memcheck "check;plain;native" Python3::Interpreter
           ${CMAKE_CURRENT_SOURCE_DIR}/hostile/test_memcheck.py)
set_tests_properties(hostile.memcheck PROPERTIES ENVIRONMENT
    "TEST_LIBRARY=$<TARGET_FILE:mallow>;TEST_PLAIN=$<TARGET_FILE:memcheck_plain>;\
TEST_LINKED=$<TARGET_FILE:memcheck_linked>;TEST_OBJECT=$<TARGET_FILE:memcheck_object>")

mallow_program(second_copy hostile/second_copy.c)
mallow_add(hostile.second_copy "check;plain" second_copy $<TARGET_FILE:mallow>)
mallow_program(late_open hostile/late_open.c)
mallow_add(hostile.late_open "check;plain" late_open $<TARGET_FILE:mallow>)

add_library(deepbind_plugin MODULE hostile/deepbind_plugin.c)
target_link_libraries(deepbind_plugin PRIVATE test_flags)
add_library(deepbind_beside MODULE hostile/deepbind_beside.c)
target_link_libraries(deepbind_beside PRIVATE test_flags)
set_target_properties(deepbind_beside PROPERTIES
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/beside)
set_target_properties(deepbind_plugin PROPERTIES BUILD_RPATH "$ORIGIN/beside")
target_link_options(deepbind_plugin PRIVATE -Wl,--enable-new-dtags)
mallow_program(deepbind hostile/deepbind.c)
mallow_add(hostile.deepbind "check;plain" deepbind $<TARGET_FILE:deepbind_plugin>
           $<TARGET_FILE_NAME:deepbind_beside>)
foreach(name by_handle dlopen_in_child)
    mallow_program(${name} hostile/${name}.c)
    mallow_add(hostile.${name} "check;plain" ${name} $<TARGET_FILE:deepbind_plugin>)
endforeach()
add_library(late_run_time_plugin MODULE hostile/late_run_time_plugin.cc)
target_link_libraries(late_run_time_plugin PRIVATE test_flags)
set_target_properties(late_run_time_plugin PROPERTIES CXX_STANDARD 20)
mallow_program(late_run_time hostile/late_run_time.c)
set_target_properties(late_run_time PROPERTIES LINKER_LANGUAGE C)
mallow_add(hostile.late_run_time "check;plain" late_run_time $<TARGET_FILE:late_run_time_plugin>)
set_tests_properties(hostile.second_copy hostile.deepbind hostile.by_handle hostile.dlopen_in_child
                     hostile.late_run_time PROPERTIES ENVIRONMENT "${preload}")
