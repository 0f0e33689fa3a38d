# SPDX-License-Identifier: MIT
# Memory that comes back while the program is idle.
mallow_both(idle.return "full;native" idle/test_return.c idle/idle.c)
mallow_both(idle.holes "full;native" idle/test_holes.c idle/idle.c)

if(NOT MALLOW_SANITIZE)
    # With so little address space the primary arena has 64 MiB: the rest lies in secondary ones.
    mallow_add(idle.holes_secondary "check;native"
               sh -c "ulimit -v 1100000 && exec $<TARGET_FILE:idle_holes_mw>")
    set_tests_properties(idle.holes_secondary PROPERTIES ENVIRONMENT TEST_FILTER=most_of_*)
    mallow_linked(idle.figures "check;native" idle/test_figures.c idle/idle.c)
    target_compile_definitions(idle_figures PRIVATE TEST_FAMILY_MW=1)
    mallow_program(idle_no_thread idle/test_no_thread.c idle/idle.c)
    foreach(why off sandbox confined failing)
        mallow_add(idle.no_thread_${why} "check;plain;native" idle_no_thread ${why})
        set_tests_properties(idle.no_thread_${why} PROPERTIES ENVIRONMENT "${preload}")
    endforeach()
    mallow_program(idle_alone idle/test_alone.c idle/idle.c)
    foreach(what unshare setns often files cancelled end)
        mallow_add(idle.alone_${what} "check;plain;native" idle_alone ${what})
        set_tests_properties(idle.alone_${what} PROPERTIES ENVIRONMENT "${preload}")
    endforeach()
    mallow_program(idle_dlclose idle/test_dlclose.c idle/idle.c)
    mallow_add(idle.dlclose "check;plain;native" idle_dlclose $<TARGET_FILE:mallow>)
    set_tests_properties(idle.no_thread_off PROPERTIES ENVIRONMENT "${preload};MALLOW_BACKGROUND=0")
    # Without jumps to the slow paths, and with libc in the program: who calls cannot be told.
    add_library(mallow_without_jumps SHARED ${PROJECT_SOURCE_DIR}/src/all.c)
    target_link_libraries(mallow_without_jumps PRIVATE mallow_flags)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/all.c PROPERTIES # of this folder's targets
        COMPILE_OPTIONS -fno-optimize-sibling-calls)
    mallow_add(idle.no_thread_without_jumps "check;plain;native" idle_no_thread blind)
    set_tests_properties(idle.no_thread_without_jumps PROPERTIES
        ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:mallow_without_jumps>")
    add_executable(idle_no_thread_static idle/test_no_thread.c idle/idle.c)
    target_link_libraries(idle_no_thread_static PRIVATE test_flags mallow_static)
    target_link_options(idle_no_thread_static PRIVATE -static -Wl,-u,malloc)
    target_compile_definitions(idle_no_thread_static PRIVATE TEST_STATIC=1)
    mallow_add(idle.no_thread_static "check;plain;native" idle_no_thread_static blind)
    mallow_program(idle_huge_pages idle/test_huge_pages.c idle/idle.c)
    foreach(mode auto fork off disabled never always busy shared realtime faults sparse no_faults)
        mallow_add(idle.huge_pages_${mode} "check;plain;native" idle_huge_pages ${mode})
        set_tests_properties(idle.huge_pages_${mode} PROPERTIES ENVIRONMENT "${preload}" TIMEOUT 600)
    endforeach()
    set_tests_properties(idle.huge_pages_no_faults PROPERTIES
        ENVIRONMENT "${preload};MALLOW_HUGE_FAULTS=0")
    set_tests_properties(idle.huge_pages_off PROPERTIES ENVIRONMENT "${preload};MALLOW_HUGE_PAGES=0")
    set_tests_properties(idle.huge_pages_realtime PROPERTIES ENVIRONMENT
        "${preload};MALLOW_MODE=realtime;MALLOW_REALTIME_RESERVE=32M")
endif()
