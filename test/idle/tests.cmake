# SPDX-License-Identifier: MIT
# Memory that comes back while the program is idle.
mallow_both(idle.return "full;native" idle/test_return.c idle/idle.c)
mallow_both(idle.holes "full;native" idle/test_holes.c idle/idle.c)

if(NOT MALLOW_SANITIZE)
    mallow_linked(idle.figures "check;native" idle/test_figures.c idle/idle.c)
    target_compile_definitions(idle_figures PRIVATE TEST_FAMILY_MW=1)
    mallow_program(idle_no_thread idle/test_no_thread.c idle/idle.c)
    foreach(why off sandbox failing)
        mallow_add(idle.no_thread_${why} "check;plain;native" idle_no_thread ${why})
        set_tests_properties(idle.no_thread_${why} PROPERTIES ENVIRONMENT "${preload}")
    endforeach()
    mallow_program(idle_dlclose idle/test_dlclose.c idle/idle.c)
    mallow_add(idle.dlclose "check;plain;native" idle_dlclose $<TARGET_FILE:mallow>)
    set_tests_properties(idle.no_thread_off PROPERTIES ENVIRONMENT "${preload};MALLOW_BACKGROUND=0")
    mallow_program(idle_huge_pages idle/test_huge_pages.c idle/idle.c)
    foreach(mode auto fork off disabled never always)
        mallow_add(idle.huge_pages_${mode} "check;plain;native" idle_huge_pages ${mode})
        set_tests_properties(idle.huge_pages_${mode} PROPERTIES
            ENVIRONMENT "${preload};MALLOW_HUGE_PAGES=1")
    endforeach()
    set_tests_properties(idle.huge_pages_off PROPERTIES ENVIRONMENT "${preload};MALLOW_HUGE_PAGES=0")
endif()
