# SPDX-License-Identifier: MIT
mallow_program(pairs arch/pairs.c)
mallow_program(resident arch/resident.c)
mallow_add(arch.library "check;plain;native" Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/arch/test_arch.py)
set_tests_properties(arch.library PROPERTIES ENVIRONMENT
    "TEST_LIBRARY=$<TARGET_FILE:mallow>;TEST_PAIRS=$<TARGET_FILE:pairs>;TEST_RESIDENT=$<TARGET_FILE:resident>")
