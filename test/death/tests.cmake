# SPDX-License-Identifier: MIT
mallow_program(death_victim death/victim.c death/misuse_double.c death/misuse_pointer.c death/misuse_call.c
               death/misuse_write.c)
mallow_program(death_suite death/test_death.c)
mallow_add(death.misuse "check;plain;native" death_suite $<TARGET_FILE:death_victim> $<TARGET_FILE:mallow>)
mallow_preloaded(death.last_line "check;native" death/last_line.c)
