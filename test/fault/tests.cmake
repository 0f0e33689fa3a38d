# SPDX-License-Identifier: MIT
# The static victim carries the allocator inside and has no RELRO, so that every memory call from the
# first instruction on is the allocator's.
mallow_program(fault_victim fault/victim.c)
mallow_program(fault_suite fault/test_fault.c fault/inject.c)
add_executable(fault_victim_static fault/victim.c)
target_link_libraries(fault_victim_static PRIVATE test_flags mallow_static -static -Wl,-z,norelro)
mallow_add(fault.every_call "full;plain;native" fault_suite $<TARGET_FILE:fault_victim_static>
           $<TARGET_FILE:fault_victim> $<TARGET_FILE:mallow>)
mallow_add(fault.some_calls "check;plain;native" fault_suite $<TARGET_FILE:fault_victim_static>
           $<TARGET_FILE:fault_victim> $<TARGET_FILE:mallow>)
set_tests_properties(fault.some_calls PROPERTIES ENVIRONMENT TEST_FAULT_STRIDE=9)

# Parts of the suite again, on a simulated system that refuses mappings, or memory.
mallow_program(under_limit fault/under_limit.c fault/inject.c)
mallow_program(many_mappings fault/many_mappings.c)
mallow_add(fault.mappings_counted "check;plain;native" many_mappings)
set_tests_properties(fault.mappings_counted PROPERTIES ENVIRONMENT "${preload}")
set(under $<TARGET_FILE:under_limit> --preload $<TARGET_FILE:mallow>)
mallow_add(fault.mappings_ceiling "check;plain;native" ${under} --maps 200 $<TARGET_FILE:many_mappings> 250 120)
foreach(program api_contract_libc api_every_size_libc api_alignment_libc api_bsd_and_strings_libc
                model_long_run_libc thread_remote_libc hostile_mappings_used_up)
    mallow_add(fault.maps_1000.${program} "full;plain;native" ${under} --maps 1000 $<TARGET_FILE:${program}>)
    # Aligned blocks of 10.5 GiB are live at once there: what is above is for the ends that are cut off.
    if(program STREQUAL api_alignment_libc)
        mallow_add(fault.commit_11000.${program} "full;plain;native" ${under} --commit 11000 $<TARGET_FILE:${program}>)
    elseif(NOT program STREQUAL hostile_mappings_used_up)
        mallow_add(fault.commit_1024.${program} "full;plain;native" ${under} --commit 1024 $<TARGET_FILE:${program}>)
    endif()
endforeach()
mallow_program(commit_gap fault/commit_gap.c)
mallow_add(fault.gaps_128.commit_gap "check;plain;native" ${under} --gaps 128 $<TARGET_FILE:commit_gap>)
set_tests_properties(fault.gaps_128.commit_gap PROPERTIES ENVIRONMENT MALLOW_BACKGROUND=0)
mallow_add(fault.maps_1000.steady_load "check;plain;native" ${under} --maps 1000 $<TARGET_FILE:steady_load> --ours)
mallow_add(fault.commit_256.steady_load "check;plain;native" ${under} --commit 256 $<TARGET_FILE:steady_load> --ours)
# A system with one giant page, which the program has asked for two of.
foreach(program api_contract_libc api_every_size_libc model_long_run_libc)
    mallow_add(fault.giant_1.${program} "full;plain;native" ${under} --giant 1 $<TARGET_FILE:${program}>)
endforeach()
mallow_add(fault.giant_1.steady_load "check;plain;native" ${under} --giant 1 $<TARGET_FILE:steady_load> --ours)
# Linux before 6.17, which moves no range of several mappings (decision 80).
foreach(program api_contract_libc api_every_size_libc api_large_libc thread_remote_libc thread_fork_libc
                thread_signal_libc hostile_partly_moved)
    mallow_add(fault.joined.${program} "full;plain;native" ${under} --joined 14 $<TARGET_FILE:${program}>)
endforeach()
