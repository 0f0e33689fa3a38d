// SPDX-License-Identifier: MIT
// The other file of test_override_header.c: it does not include that header.
#include <stdlib.h>

void *other_malloc(size_t size);
void other_free(void *block);

void *other_malloc(size_t size)
{
    return malloc(size);
}

void other_free(void *block)
{
    free(block);
}
