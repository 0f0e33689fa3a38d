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
