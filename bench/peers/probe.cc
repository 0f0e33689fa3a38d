// SPDX-License-Identifier: MIT
// Says whether malloc and its relatives come from the directory given: exit 0 if all of them do.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>

static const char *const names[] = {
    "malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "malloc_usable_size",
    "_Znwm",  "_ZdlPv",
};

static void *churn(void *) {
    void *blocks[256] = {};
    for (unsigned i = 0; i < 100000; i++) {
        void *&slot = blocks[(i * 2654435761u) >> 24];
        free(slot);
        slot = malloc(1 + i % 3000);
        if (slot == nullptr || malloc_usable_size(slot) < 1 + i % 3000) {
            return (void *)1;
        }
        memset(slot, 1, 1 + i % 3000);
    }
    for (void *block : blocks) {
        free(block);
    }
    return nullptr;
}

int main(int, char **argv) {
    int missing = 0;
    for (const char *name : names) {
        Dl_info info;
        void *symbol = dlsym(RTLD_DEFAULT, name);
        if (symbol == nullptr || dladdr(symbol, &info) == 0 ||
            strncmp(info.dli_fname, argv[1], strlen(argv[1])) != 0) {
            // operator new of libstdc++ calls malloc, which is served: a note, not a failure.
            const bool fatal = name[0] != '_';
            fprintf(stderr, "peers: %s is not the peer's%s\n", name, fatal ? "" : " (goes through malloc)");
            missing += fatal;
        }
    }
    pthread_t threads[2];
    for (pthread_t &thread : threads) {
        pthread_create(&thread, nullptr, churn, nullptr);
    }
    for (pthread_t &thread : threads) {
        void *failed = nullptr;
        pthread_join(thread, &failed);
        missing += failed != nullptr;
    }
    void *aligned = nullptr;
    if (posix_memalign(&aligned, 4096, 100) != 0 || (uintptr_t)aligned % 4096 != 0) {
        fputs("peers: posix_memalign fails\n", stderr);
        missing++;
    }
    free(aligned);
    int *number = new (std::nothrow) int(missing);
    delete number;
    return missing == 0 ? 0 : 1;
}
