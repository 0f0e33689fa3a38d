# SPDX-License-Identifier: MIT
# The allocator itself, in every order of its threads (explore.h). Each program has src/ in it, up to
# its heaps, with points; so it is built without the library, and not for sanitizers. The explorer
# knows how this processor's threads wait. They have no assertions, whose reads would be points, too,
# and the orders many times as many: the debug build has nothing to add.
if(MALLOW_SANITIZE OR MALLOW_ASSERT OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    return()
endif()
foreach(subject frees heaps purge questions)
    mallow_program(schedule_${subject} schedule/test_${subject}.c schedule/explore.c)
    target_include_directories(schedule_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/src
                               ${PROJECT_SOURCE_DIR}/include)
    target_compile_options(schedule_${subject} PRIVATE -Wno-unused-function)
    mallow_add(schedule.${subject} "full;plain;native" schedule_${subject})
endforeach()
mallow_add(schedule.seeded "full;plain;native" Python3::Interpreter
           ${CMAKE_CURRENT_SOURCE_DIR}/schedule/seeded.py --cc ${CMAKE_C_COMPILER}
           --directory ${CMAKE_CURRENT_BINARY_DIR}/seeded)
