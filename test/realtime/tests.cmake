# SPDX-License-Identifier: MIT
if(MALLOW_SANITIZE)
    return()
endif()
mallow_program(realtime realtime/test_realtime.c)
foreach(what one threads many stopped locked refused unready)
    mallow_add(realtime.${what} "check;plain;native" realtime ${what})
    set_tests_properties(realtime.${what} PROPERTIES ENVIRONMENT
        "${preload};MALLOW_MODE=realtime;MALLOW_REALTIME_RESERVE=32M")
endforeach()
set_tests_properties(realtime.one PROPERTIES ENVIRONMENT
    "${preload};MALLOW_MODE=realtime;MALLOW_REALTIME_RESERVE=32M;MALLOW_HUGE_THRESHOLD=64K")
# That cannot be brought in is not that there is none.
set_tests_properties(realtime.refused realtime.unready PROPERTIES
    FAIL_REGULAR_EXPRESSION "every request")
# Four threads with some 70 size classes each: a slice for each of them, and room for what is live.
# Each of many threads that has a heap has a slab.
set_tests_properties(realtime.threads realtime.many realtime.stopped PROPERTIES ENVIRONMENT
    "${preload};MALLOW_MODE=realtime;MALLOW_REALTIME_RESERVE=96M")
mallow_linked(realtime.heap "check;plain;native" realtime/test_heap.c)
mallow_linked(realtime.limited "check;plain;native" realtime/test_limited.c)
set_property(TEST realtime.limited APPEND PROPERTY ENVIRONMENT
             "MALLOW_MODE=realtime;MALLOW_REALTIME_RESERVE=64M;MALLOW_LIMIT=24M")
