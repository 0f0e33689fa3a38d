// SPDX-License-Identifier: MIT
// Death tests: pointers that are no blocks: interior, misaligned, foreign, of no address at all.
#include "misuse.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const unsigned char in_rodata[256] = {1};

void free_interior_by_16(void)
{
    free(hidden(victim.block + 16));
}

void free_interior_by_half(void)
{
    free(hidden(victim.block + victim.size / 2 / 16 * 16));
}

void free_interior_by_a_page(void)
{
    free(hidden(victim.block + (victim.size > 8192 ? 4096 : 16)));
}

void free_misaligned_by_1(void)
{
    free(hidden(victim.block + 1));
}

void free_misaligned_by_8(void)
{
    free(hidden(victim.block + 8));
}

void free_of_the_stack(void)
{
    unsigned char here[256];
    memset(here, 0, sizeof here);
    free(hidden((unsigned char *)((uintptr_t)(here + 32) & ~(uintptr_t)15)));
}

void free_of_static_data(void)
{
    *(size_t *)(void *)(victim.static_data + 56) = victim.size | 1; // the shape of a glibc chunk header
    *(size_t *)(void *)(victim.static_data + 64 + victim.size % 4096) = 0x1234;
    free(hidden(victim.static_data + 64));
}

void free_of_constants(void)
{
    free(hidden(in_rodata));
}

void free_of_code(void)
{
    free(hidden((const void *)((uintptr_t)&free_of_code & ~(uintptr_t)15)));
}

void free_of_a_small_address(void)
{
    free(at_address(0x40));
}

void free_of_a_kernel_address(void)
{
    free(at_address(0xffff888000001000));
}

void free_of_a_non_canonical_address(void)
{
    free(hidden((const void *)((uintptr_t)victim.block | (uintptr_t)1 << 55)));
}

void free_of_an_unmapped_address(void)
{
    free(at_address(0x100000000000));
}

void free_of_a_page_of_its_own(void)
{
    unsigned char *const page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED, "mmap");
    free(hidden(page + 4096));
}

// Another mapping of the program where a freed block of its own mapping lay.
void free_of_a_mapping_in_a_freed_place(void)
{
    if (victim.size < MIB) {
        _exit(EXIT_SKIP); // small blocks share their mappings
    }
    void *const place = victim.block;
    free(place);
    void *const page = mmap(place, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                            -1, 0);
    if (page != place) {
        _exit(EXIT_SKIP); // still mapped: kept by the allocator for reuse
    }
    free(hidden(place));
}

// Eight bytes into every mapping of the process, the allocator's own metadata and reserves included: no
// block begins there, and no answer may be a fault. The last one is left for this process itself.
void free_into_every_mapping(void)
{
    static char maps[256 * 1024];
    const int fd = open("/proc/self/maps", O_RDONLY);
    size_t length = 0;
    ssize_t got;
    while (fd >= 0 && (got = read(fd, maps + length, sizeof maps - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(fd);
    uintptr_t address = 0;
    for (char *line = maps; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        address = strtoull(line, NULL, 16) + 8;
        const pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            dup2(open("/dev/null", O_WRONLY), 2);
            free(at_address(address));
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child, "waitpid");
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "free(%#zx): status %#x", (size_t)address,
              (unsigned)status);
    }
    free(at_address(address));
}

// House of Spirit: a header such as glibc keeps, then the pointer behind it.
void chunk_header_forged_in_static_data(void)
{
    size_t *const words = (size_t *)(void *)victim.static_data;
    for (size_t i = 0; i < STATIC_BYTES / sizeof *words; i += 2) {
        words[i] = 0;
        words[i + 1] = ((victim.size + 31) & ~(size_t)15) | 1;
    }
    free(hidden(victim.static_data + 64));
}

// In the break, which libc's heap would grow into, had it one.
void chunk_header_forged_in_the_break(void)
{
    const size_t size = ((victim.size + 31) & ~(size_t)15) % 65536 + 32;
    unsigned char *const start = sbrk(262144);
    CHECK(start != hidden((const void *)-1), "sbrk");
    size_t *const words = (size_t *)(void *)(start + (-(uintptr_t)start & 15));
    words[1] = size | 1;
    words[1 + size / sizeof *words] = 33;
    free(hidden(words + 2));
}

// As libc has a large block in a mapping of its own, which free would unmap.
void chunk_header_forged_in_a_mapping(void)
{
    enum { MAPPING_BYTES = 65536 };
    size_t *const words = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(words != MAP_FAILED, "mmap");
    words[1] = MAPPING_BYTES | 2;
    free(hidden(words + 2));
}

// As libc has a block in a further heap, which begins at a multiple of 64 MiB with where its arena is.
void chunk_header_forged_in_a_heap(void)
{
    const size_t heap_bytes = 64 * MIB;
    char *const mapping = mmap(NULL, 2 * heap_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(mapping != MAP_FAILED, "mmap");
    size_t *const heap = (size_t *)(void *)(mapping + (-(uintptr_t)mapping & (heap_bytes - 1)));
    heap[0] = (size_t)(uintptr_t)victim.static_data;
    heap[2] = MIB;
    heap[513] = 48 | 5;
    free(hidden(heap + 514));
}
