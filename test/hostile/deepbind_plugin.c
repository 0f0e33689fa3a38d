// SPDX-License-Identifier: MIT
// The plugin of deepbind.c. Opened with RTLD_DEEPBIND it looks for malloc in the C library before it
// does in what is preloaded.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *plugin_text(void);
char *plugin_grow(char *block, size_t size);
void plugin_free(void *block);
int plugin_works_alone(void);
void *plugin_open(const char *name);

void (*plugin_free_by_pointer)(void *) = free;

// The C library's own calls allocate with what is preloaded; this is before dlopen returns.
__attribute__((constructor)) static void read_a_line(void)
{
    char *line = NULL;
    size_t room = 0;
    FILE *const file = fopen("/proc/self/status", "r");
    if (file != NULL && getline(&line, &room, file) > 0) {
        line = realloc(line, room * 2);
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
}

char *plugin_text(void)
{
    char *const text = malloc(100);
    return text == NULL ? NULL : strcpy(text, "from the plugin");
}

char *plugin_grow(char *block, size_t size)
{
    return realloc(block, size);
}

void plugin_free(void *block)
{
    free(block);
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

// Finds what lies where this plugin's RUNPATH says. No jump: the call is to come from here.
void *plugin_open(const char *name)
{
    void *volatile const found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return found;
}
