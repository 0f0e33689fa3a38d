// SPDX-License-Identifier: MIT
// The plugin of deepbind.c: opened with RTLD_DEEPBIND its malloc is the C library's own, not the
// preloaded one.
#include <stdlib.h>
#include <string.h>

char *plugin_text(void);
int plugin_works_alone(void);

char *plugin_text(void)
{
    char *const text = malloc(100);
    return text == NULL ? NULL : strcpy(text, "from the plugin");
}

int plugin_works_alone(void)
{
    int sum = 0;
    for (size_t size = 1; size < 300000; size = size * 2 + 1) {
        char *const block = calloc(1, size);
        sum += block[size - 1];
        free(realloc(block, size * 2));
    }
    return sum;
}
