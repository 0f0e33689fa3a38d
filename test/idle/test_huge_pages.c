// SPDX-License-Identifier: MIT
// Huge pages are made of dense memory in the background, and only where the system allows it.
//
//   idle_huge_pages auto|off|disabled|always|never|never_this_size|fork|busy|shared|realtime|faults|sparse|no_faults|broad|broad_sparse|no_broad|grown
//
// "always", "never" and "never_this_size" show the program another setting than the system's: a file of our own in place of
// the kernel's, in a mount namespace of its own. Where that or huge pages cannot be had the test is
// skipped.
#include "idle.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { SKIPPED = 77, FILL = 96 << 20, BLOCK = 1000, PROMOTE_MS = 150000, NEVER_MS = 3000 };

static const char setting_path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
static const char size_setting_path[] = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";

static void skip_test(const char *reason)
{
    dprintf(2, "skipped: %s\n", reason);
    exit(SKIPPED);
}

static bool setting_is(const char *word)
{
    char text[64] = "";
    const int fd = open(setting_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return strcmp(word, "[never]") == 0;
    }
    const ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    return length > 0 && strstr(text, word) != NULL;
}

// Calls `visit` for each line of /proc/self/smaps; no memory of the allocator's is used.
static void visit_smaps(void (*visit)(const char *line, void *data), void *data)
{
    static char text[1 << 16];
    size_t used = 0;
    const int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "smaps");
    for (;;) {
        const ssize_t length = read(fd, text + used, sizeof text - 1 - used);
        if (length <= 0) {
            break;
        }
        used += (size_t)length;
        text[used] = '\0';
        char *line = text;
        for (char *end = strchr(line, '\n'); end != NULL; end = strchr(line, '\n')) {
            *end = '\0';
            visit(line, data);
            line = end + 1;
        }
        used = strlen(line);
        memmove(text, line, used);
    }
    close(fd);
}

static void add_huge(const char *line, void *data)
{
    if (strncmp(line, "AnonHugePages:", 14) == 0) {
        *(size_t *)data += strtoul(line + 14, NULL, 10);
    }
}

static size_t huge_kib(void)
{
    size_t total = 0;
    visit_smaps(add_huge, &total);
    return total;
}

// Whether some writable mapping without a name or file that is large enough for a huge page may get one
// by a fault.
struct exposed {
    unsigned long bytes;
    bool candidate;
    unsigned count;
};

static void look_for_exposed(const char *line, void *data)
{
    struct exposed *const exposed = data;
    unsigned long start;
    unsigned long end;
    char rights[8];
    char rest[256] = "";
    if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &start, &end, rights, rest) >= 3 &&
        strlen(rights) == 4) {
        exposed->bytes = end - start;
        exposed->candidate = rights[1] == 'w' && rest[0] == '\0' &&
                             (end & ~0x1ffffful) >= ((start + 0x1ffffful) & ~0x1ffffful) + 0x200000ul;
    } else if (strncmp(line, "VmFlags:", 8) == 0 && exposed->candidate) {
        exposed->count += strstr(line, " nh") == NULL;
    }
}

static bool wait_for_huge(size_t kib, uint64_t limit_ms)
{
    for (uint64_t waited = 0; huge_kib() < kib; waited += 100) {
        if (waited >= limit_ms) {
            return false;
        }
        rest_ms(100);
    }
    return true;
}

// Where no huge page can be had at all, by MADV_COLLAPSE in our own mapping.
static void need_kernel(void)
{
    enum { CHUNK = 2 << 20, COLLAPSE = 25 };
    if (setting_is("[never]")) {
        skip_test("the system's setting is never");
    }
    unsigned char *const place =
        mmap(NULL, 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED, "mmap");
    unsigned char *const chunk = (unsigned char *)(((uintptr_t)place + CHUNK - 1) & ~(uintptr_t)(CHUNK - 1));
    memset(chunk, 1, CHUNK);
    if (madvise(chunk, CHUNK, COLLAPSE) != 0) {
        skip_test("MADV_COLLAPSE fails");
    }
    munmap(place, 2 * CHUNK);
}

// ---- Modes -------------------------------------------------------------------------------------------

static void fill_and_promote(struct load *load)
{
    load_fill(load, FILL / BLOCK, BLOCK);
    CHECK(huge_kib() == 0, "%zu KiB of huge pages at once", huge_kib());
    const size_t before = process_rss_kib();
    CHECK(wait_for_huge(FILL / KIB * 3 / 4, PROMOTE_MS), "%zu KiB huge after %d ms", huge_kib(), PROMOTE_MS);
    CHECK(wait_for_threads(1, PROMOTE_MS), "the thread stays");
    const size_t after = process_rss_kib();
    dprintf(2, "RSS %zu KiB, then %zu, of them huge %zu\n", before, after, huge_kib());
    CHECK(after <= before + before / 20, "RSS rose from %zu to %zu KiB", before, after);
    load_check(load);
}

static void expect_none(void)
{
    struct load load;
    load_fill(&load, FILL / BLOCK, BLOCK);
    for (uint64_t waited = 0; waited < NEVER_MS; waited += 100) {
        rest_ms(100);
        CHECK(huge_kib() == 0, "%zu KiB of huge pages", huge_kib());
    }
    CHECK(wait_for_threads(1, PROMOTE_MS), "the thread stays");
    load_free(&load);
}

static void promoted_and_given_back(void)
{
    struct chance chance = {11};
    struct load load;
    need_kernel();
    fill_and_promote(&load);
    load_thin_out(&load, 20, &chance);
    CHECK(wait_for_rss(FILL / KIB / 2, PROMOTE_MS), "%zu KiB stay of 5 %%", process_rss_kib());
    load_check(&load);
    load_free(&load);
    CHECK(wait_for_rss(12 * KIB, PROMOTE_MS), "%zu KiB stay of nothing", process_rss_kib());
    CHECK(huge_kib() == 0, "%zu KiB huge of nothing", huge_kib());
}

static void a_fork_keeps_them_apart(void)
{
    struct load load;
    need_kernel();
    fill_and_promote(&load);
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        alarm(100);
        load_check(&load);
        for (size_t i = 0; i < load.count; i += 2) {
            memset(load.blocks[i], 0, BLOCK);
        }
        load_free(&load);
        load_fill(&load, FILL / BLOCK, BLOCK);
        load_check(&load);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
    load_check(&load);
    load_free(&load);
}

// Pages that a fork has left to two processes would be copied for each that makes huge pages of them: a
// server of many processes would need as many times the memory.
static void what_two_processes_share_stays_shared(void)
{
    struct load shared;
    struct load own;
    need_kernel();
    int stays[2]; // the child does, as long as the parent holds the other end
    CHECK(pipe(stays) == 0, "pipe");
    load_fill(&shared, FILL / BLOCK, BLOCK);
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    close(stays[child == 0 ? 1 : 0]);
    load_fill(&own, FILL / BLOCK, BLOCK);
    CHECK(wait_for_huge(FILL / KIB * 3 / 4, PROMOTE_MS), "%zu KiB huge after %d ms", huge_kib(), PROMOTE_MS);
    rest_ms(4000);
    CHECK(huge_kib() <= FILL / KIB + 8 * KIB, "%zu KiB huge of %zu that are not shared", huge_kib(), (size_t)FILL / KIB);
    load_check(&shared);
    load_check(&own);
    if (child == 0) {
        char byte;
        _exit(read(stays[0], &byte, 1) != 0);
    }
    int status = 0;
    close(stays[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
    // Nobody else has them any more, and the program goes on growing. What was shared is looked at again
    // in its own time, which may be long.
    struct load more;
    load_fill(&more, FILL / BLOCK, BLOCK);
    CHECK(wait_for_huge(FILL / KIB * 3 / 2, PROMOTE_MS), "%zu KiB huge of %zu", huge_kib(), 3 * ((size_t)FILL / KIB));
    load_check(&shared);
    load_free(&shared);
    load_free(&own);
    load_free(&more);
}

static void expect_none_exposed(const char *when)
{
    struct exposed exposed = {0, false, 0};
    visit_smaps(look_for_exposed, &exposed);
    CHECK(exposed.count == 0, "%s: %u mappings may get huge pages by a fault", when, exposed.count);
}

// Nor does khugepaged fill up again what was given back: it leaves such mappings alone.
static void no_fault_makes_one(void)
{
    struct chance chance = {12};
    struct load load;
    struct load huge;
    need_kernel();
    load_fill(&huge, 8, 6 * MIB);
    expect_none_exposed("at first");
    fill_and_promote(&load);
    expect_none_exposed("with huge pages");
    load_thin_out(&load, 20, &chance);
    CHECK(wait_for_rss(FILL / KIB / 2 + 50 * KIB, PROMOTE_MS), "%zu KiB stay of 5 %%", process_rss_kib());
    expect_none_exposed("with split ones");
    const size_t before = process_rss_kib();
    rest_ms(2000);
    CHECK(process_rss_kib() <= before + 1000, "RSS rises from %zu to %zu KiB", before, process_rss_kib());
    load_check(&huge);
    load_check(&load);
    load_free(&huge);
    load_free(&load);
}

// With all memory brought in at start there is nobody whom a huge page could keep waiting.
static void realtime_leaves_it_to_the_kernel(void)
{
    struct exposed exposed = {0, false, 0};
    CHECK(fam_malloc(1000) != NULL, "malloc");
    visit_smaps(look_for_exposed, &exposed);
    CHECK(exposed.count != 0, "all mappings are kept off huge pages");
}

// A program that goes on faulting is left alone; once it stops, it gets its huge pages.
static void not_while_it_faults(void)
{
    struct load load;
    need_kernel();
    load_fill(&load, FILL / BLOCK, BLOCK);
    unsigned char *const pages = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED, "mmap");
    for (uint64_t waited = 0; waited < 4000; waited += 20) {
        for (size_t i = 0; i < 10; i++) {
            ((volatile unsigned char *)pages)[i * 4096] = 1;
        }
        CHECK(madvise(pages, MIB, MADV_DONTNEED) == 0, "madvise");
        rest_ms(20);
        CHECK(waited % 500 != 0 || huge_kib() == 0, "%zu KiB huge in a busy program", huge_kib());
    }
    CHECK(wait_for_huge(FILL / KIB / 4, PROMOTE_MS), "%zu KiB huge after %d ms", huge_kib(), PROMOTE_MS);
    load_check(&load);
    load_free(&load);
}

// ---- By faults ---------------------------------------------------------------------------------------

enum { FEW = 12, LARGE = 6 * MIB, ROOM = 128 * MIB }; // 72 MiB of large blocks

// Counts mappings that are too large to be the part that is being promoted.
static void look_for_room(const char *line, void *data)
{
    struct exposed *const exposed = data;
    look_for_exposed(line, exposed);
    exposed->candidate = exposed->candidate && exposed->bytes >= ROOM;
}

static bool has_room(void)
{
    struct exposed exposed = {0, false, 0};
    visit_smaps(look_for_room, &exposed);
    return exposed.count != 0;
}

// Where the kernel does not overcommit, or this process's address space is limited, there are none.
static void need_faults(void)
{
    char text[8] = "2";
    need_kernel();
    if (!read_whole("/proc/sys/vm/overcommit_memory", text, sizeof text) || text[0] == '2') {
        skip_test("the system does not overcommit");
    }
}

// Calls that may start the thread, until it has allowed huge pages by faults or the time is up.
static bool wait_for_room(uint64_t limit_ms)
{
    for (uint64_t waited = 0; !has_room(); waited += 20) {
        if (waited >= limit_ms) {
            return false;
        }
        fam_free(fam_malloc(2 * MIB));
        rest_ms(20);
    }
    return true;
}

// Where memory is in pieces, a mapping of our own has small pages, too.
static bool has_huge_pages_at_hand(void)
{
    enum { PROBE = 32 * MIB };
    unsigned char *const pages = mmap(NULL, PROBE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED, "mmap");
    const size_t before = huge_kib();
    if (madvise(pages, PROBE, MADV_HUGEPAGE) == 0) {
        memset(pages, 1, PROBE);
    }
    const bool has = huge_kib() >= before + 16 * KIB;
    CHECK(munmap(pages, PROBE) == 0, "munmap");
    return has;
}

static void dense_blocks_get_them_by_faults(void)
{
    struct load load;
    struct load more;
    need_faults();
    load_fill(&load, FEW, LARGE);
    CHECK(wait_for_room(PROMOTE_MS), "none allowed after %d ms", PROMOTE_MS);
    const size_t before = process_rss_kib();
    load_fill(&more, FEW, LARGE);
    const size_t after = process_rss_kib();
    dprintf(2, "RSS %zu KiB, then %zu, of them huge %zu\n", before, after, huge_kib());
    CHECK(huge_kib() >= 8 * KIB || !has_huge_pages_at_hand(), "%zu KiB huge", huge_kib());
    CHECK(after <= before + FEW * (LARGE + 2 * MIB) / KIB, "RSS rose from %zu to %zu KiB", before, after);
    load_check(&load);
    load_free(&load);
    load_check(&more);
    load_free(&more);
    CHECK(wait_for_rss(12 * KIB, PROMOTE_MS), "%zu KiB stay of nothing", process_rss_kib());
}

static void sparse_blocks_do_not(void)
{
    unsigned char *blocks[FEW];
    need_faults();
    for (size_t i = 0; i < FEW; i++) {
        blocks[i] = fam_malloc(LARGE);
        CHECK(blocks[i] != NULL, "malloc");
        for (size_t at = 0; at < LARGE; at += 16 * KIB) {
            blocks[i][at] = 1;
        }
    }
    CHECK(!wait_for_room(NEVER_MS), "allowed for sparse blocks");
    for (size_t i = 0; i < FEW; i++) {
        fam_free(blocks[i]);
    }
}

static void none_by_faults_if_told_so(void)
{
    struct load load;
    need_faults();
    load_fill(&load, FEW, LARGE);
    CHECK(!wait_for_room(NEVER_MS), "allowed though switched off");
    load_free(&load);
}

// A program of huge blocks alone, none of which it frees: each takes its system call, and
// but for a few that call starts no thread besides.
static void what_only_grows_gets_them_too(void)
{
    enum { BLOCKS = 20 };
    unsigned char *blocks[BLOCKS];
    need_kernel();
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = fam_malloc(LARGE);
        CHECK(blocks[i] != NULL, "malloc");
        memset(blocks[i], (int)i + 1, LARGE);
    }
    CHECK(wait_for_huge(16 * KIB, PROMOTE_MS), "%zu KiB huge after %d ms", huge_kib(), PROMOTE_MS);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i][0] == i + 1 && blocks[i][LARGE - 1] == i + 1, "block %zu", i);
        fam_free(blocks[i]);
    }
}

// ---- By faults, in blocks of up to a megabyte ----------------------------------------------------------

enum { MEDIUM = 500 * KIB, MEDIUM_STEP = 32, MEDIUM_STEPS = 25 }; // 16 MiB a step, 400 in all

// Grows until a fault has made huge pages, or there is enough; KiB that are huge.
static size_t grow_by_medium(struct load *loads, unsigned *count)
{
    for (*count = 0; *count < MEDIUM_STEPS && huge_kib() < 16 * KIB;) {
        load_fill(&loads[(*count)++], MEDIUM_STEP, MEDIUM);
        rest_ms(10);
    }
    return huge_kib();
}

static void dense_medium_blocks_get_them_by_faults(void)
{
    static struct load loads[MEDIUM_STEPS];
    unsigned count = 0;
    need_faults();
    const size_t huge = grow_by_medium(loads, &count);
    const size_t asked = count * MEDIUM_STEP * (MEDIUM / KIB);
    dprintf(2, "RSS %zu KiB, of them huge %zu, for %zu\n", process_rss_kib(), huge, asked);
    CHECK(huge >= 16 * KIB || !has_huge_pages_at_hand(), "%zu KiB huge of %zu", huge, asked);
    CHECK(process_rss_kib() <= asked + asked / 8 + 8 * KIB, "RSS %zu KiB for %zu", process_rss_kib(), asked);
    for (unsigned i = 0; i < count; i++) {
        load_check(&loads[i]);
        load_free(&loads[i]);
    }
    CHECK(wait_for_rss(12 * KIB, PROMOTE_MS), "%zu KiB stay of nothing", process_rss_kib());
}

static void sparse_medium_blocks_do_not(void)
{
    static unsigned char *blocks[MEDIUM_STEPS * MEDIUM_STEP];
    need_faults();
    for (size_t i = 0; i < MEDIUM_STEPS * MEDIUM_STEP; i++) {
        blocks[i] = fam_malloc(MEDIUM);
        CHECK(blocks[i] != NULL, "malloc");
        for (size_t at = 0; at < MEDIUM; at += 16 * KIB) {
            blocks[i][at] = 1;
        }
        if (i % MEDIUM_STEP == 0) {
            rest_ms(10);
        }
    }
    CHECK(huge_kib() == 0, "%zu KiB huge for sparse blocks", huge_kib());
    for (size_t i = 0; i < MEDIUM_STEPS * MEDIUM_STEP; i++) {
        fam_free(blocks[i]);
    }
}

static void no_medium_blocks_if_told_so(void)
{
    static struct load loads[MEDIUM_STEPS];
    unsigned count = 0;
    need_faults();
    const size_t huge = grow_by_medium(loads, &count);
    CHECK(huge == 0, "%zu KiB huge though switched off", huge);
    for (unsigned i = 0; i < count; i++) {
        load_free(&loads[i]);
    }
}

// Runs this program again in a mount namespace where a setting reads as `text`.
static void run_under(char **argv, const char *setting, const char *text)
{
    char path[] = "/tmp/thp-setting-XXXXXX";
    if (getenv("TEST_SETTING") != NULL) {
        return;
    }
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s", path);
    close(fd);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(path, setting, NULL, MS_BIND, NULL) != 0) {
        unlink(path);
        skip_test("no mount namespace");
    }
    unlink(path);
    setenv("TEST_SETTING", text, 1);
    execv("/proc/self/exe", argv);
    CHECK(false, "exec");
}

int main(int argc, char **argv)
{
    const char *const mode = argc > 1 ? argv[1] : "auto";
    if (strcmp(mode, "auto") == 0) {
        if (setting_is("[always]")) {
            skip_test("test of the setting madvise"); // the list of blocks would get huge pages
        }
        promoted_and_given_back();
    } else if (strcmp(mode, "fork") == 0) {
        need_kernel();
        a_fork_keeps_them_apart();
    } else if (strcmp(mode, "shared") == 0) {
        what_two_processes_share_stays_shared();
    } else if (strcmp(mode, "realtime") == 0) {
        realtime_leaves_it_to_the_kernel();
    } else if (strcmp(mode, "faults") == 0) {
        dense_blocks_get_them_by_faults();
    } else if (strcmp(mode, "sparse") == 0) {
        sparse_blocks_do_not();
    } else if (strcmp(mode, "no_faults") == 0) {
        none_by_faults_if_told_so();
    } else if (strcmp(mode, "broad") == 0) {
        dense_medium_blocks_get_them_by_faults();
    } else if (strcmp(mode, "broad_sparse") == 0) {
        sparse_medium_blocks_do_not();
    } else if (strcmp(mode, "no_broad") == 0) {
        no_medium_blocks_if_told_so();
    } else if (strcmp(mode, "grown") == 0) {
        what_only_grows_gets_them_too();
    } else if (strcmp(mode, "busy") == 0) {
        not_while_it_faults();
    } else if (strcmp(mode, "off") == 0) {
        if (setting_is("[always]")) {
            skip_test("the kernel's policy holds, and it is always");
        }
        expect_none();
    } else if (strcmp(mode, "disabled") == 0) {
        CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "PR_SET_THP_DISABLE");
        expect_none();
    } else if (strcmp(mode, "never") == 0) {
        run_under(argv, setting_path, "always madvise [never]\n");
        expect_none();
    } else if (strcmp(mode, "never_this_size") == 0) {
        if (access(size_setting_path, R_OK) != 0) {
            skip_test("no settings by size before Linux 6.8");
        }
        run_under(argv, size_setting_path, "always inherit madvise [never]\n");
        expect_none();
    } else if (strcmp(mode, "always") == 0) {
        run_under(argv, setting_path, "[always] madvise never\n");
        no_fault_makes_one();
    } else {
        CHECK(false, "unknown mode %s", mode);
    }
    return 0;
}
