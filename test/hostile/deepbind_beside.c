// SPDX-License-Identifier: MIT
// A library in a folder that only the RUNPATH of deepbind_plugin.c leads to.
int beside_answer(void);

int beside_answer(void)
{
    return 42;
}
