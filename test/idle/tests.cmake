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
    mallow_linked(idle.heap_end "check;native" idle/test_heap_end.c idle/idle.c)
    target_compile_definitions(idle_heap_end PRIVATE TEST_FAMILY_MW=1)
    mallow_program(idle_no_thread idle/test_no_thread.c idle/idle.c)
    foreach(why off sandbox confined failing timeless numberless restless late_off)
        mallow_add(idle.no_thread_${why} "check;plain;native" idle_no_thread ${why})
        set_tests_properties(idle.no_thread_${why} PROPERTIES ENVIRONMENT "${preload}")
    endforeach()
    mallow_program(idle_alone idle/test_alone.c idle/idle.c)
    foreach(what idle locked single unshare setns often files cancelled end forks vfork rights
        change_rights interrupted namesake numbers pinned)
        mallow_add(idle.alone_${what} "check;plain;native" idle_alone ${what})
        set_tests_properties(idle.alone_${what} PROPERTIES ENVIRONMENT "${preload}")
    endforeach()
    mallow_program(idle_dlclose idle/test_dlclose.c idle/idle.c)
    mallow_add(idle.dlclose "check;plain;native" idle_dlclose $<TARGET_FILE:mallow>)
    set_tests_properties(idle.no_thread_off PROPERTIES ENVIRONMENT "${preload};MALLOW_BACKGROUND=0")
    mallow_program(idle_no_thread_storage idle/test_no_thread.c idle/idle.c)
    target_compile_definitions(idle_no_thread_storage PRIVATE TEST_STORAGE=100000)
    mallow_add(idle.no_thread_storage "check;plain;native" idle_no_thread_storage storage)
    set_tests_properties(idle.no_thread_storage PROPERTIES ENVIRONMENT "${preload}")
    # The library as a part of the program, and libc as well.
    add_executable(idle_alone_linked idle/test_alone.c idle/idle.c)
    target_link_libraries(idle_alone_linked PRIVATE test_flags mallow_static)
    target_link_options(idle_alone_linked PRIVATE -Wl,-u,malloc)
    add_executable(idle_alone_static idle/test_alone.c idle/idle.c)
    target_link_libraries(idle_alone_static PRIVATE test_flags mallow_static)
    target_link_options(idle_alone_static PRIVATE -static -Wl,-u,malloc)
    foreach(what idle end forks vfork rights_late)
        mallow_add(idle.alone_linked_${what} "check;plain;native" idle_alone_linked ${what})
        mallow_add(idle.alone_static_${what} "check;plain;native" idle_alone_static ${what})
    endforeach()
    mallow_program(idle_huge_pages idle/test_huge_pages.c idle/idle.c)
    foreach(mode auto fork off disabled never never_this_size always busy shared realtime faults
        sparse no_faults broad broad_sparse no_broad grown)
        mallow_add(idle.huge_pages_${mode} "check;plain;native" idle_huge_pages ${mode})
        set_tests_properties(idle.huge_pages_${mode} PROPERTIES ENVIRONMENT "${preload}" TIMEOUT 600)
    endforeach()
    set_tests_properties(idle.huge_pages_no_faults idle.huge_pages_no_broad PROPERTIES
        ENVIRONMENT "${preload};MALLOW_HUGE_FAULTS=0")
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/little_free/proc/meminfo "MemAvailable: 200000 kB\n")
    mallow_add(idle.huge_pages_broad_little_free "check;plain;native" idle_huge_pages no_broad)
    set_tests_properties(idle.huge_pages_broad_little_free PROPERTIES TIMEOUT 600 ENVIRONMENT
        "${preload};MALLOW_SYSTEM_ROOT=${CMAKE_CURRENT_BINARY_DIR}/little_free")
    set_tests_properties(idle.huge_pages_off PROPERTIES ENVIRONMENT "${preload};MALLOW_HUGE_PAGES=0")
    set_tests_properties(idle.huge_pages_realtime PROPERTIES ENVIRONMENT
        "${preload};MALLOW_MODE=realtime;MALLOW_REALTIME_RESERVE=32M")
endif()
