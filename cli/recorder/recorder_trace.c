// SPDX-License-Identifier: MIT
// Trace: the file of one process, written through a shared mapping of it, so that what is recorded
// is in the file at once: a process that is killed, or that calls _exit or exec, loses nothing.
//
//   file   | header, 4 KiB | record | record | ... | window's rest, zeros |
//                                                  ^ header.record_bytes
//
// Owns     the file, its mappings, the table of live blocks.
// Threads  any; one lock. A record is made before a block goes back to the allocator, and after one
//          comes from it, so the order of the file is one that could have been.
// Fork     the lock and `started` lie in a page that the kernel empties in a child (also one of a
//          bare clone). The child's first call finds that, leaves the parent's file alone and begins
//          one of its own with what it inherited. A child that calls nothing leaves no file.
// Fails    soft: without memory or disk the trace ends, its header says so, and the program runs on.

#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the trace is little-endian"
#endif

enum {
    HEADER_BYTES = 4096,
    HEADER_MAPPED = 65536, // whole pages of every size that Linux has
    COMMAND_BYTES = HEADER_BYTES - 256,
    WINDOW_FIRST = 1 << 18,
    WINDOW_NEXT = 1 << 23,
    TEXT_BYTES_MAX = 255,
    TEXT_PLACES = 2048, // a power of two
    TEXTS_MAX = 1024,
    RECORD_BYTES_MAX = 64 + TEXT_BYTES_MAX,
    FILES_MAX = 1000, // of one process, by exec
    PREFIX_BYTES = 4000,
    DESCRIPTOR_LEAST = 512, // where a program's own files do not reach; lower under a low limit
};

// Bits of a record's first byte; the operation is in the low three.
enum {
    OP_ALLOCATE = 1,
    OP_FREE = 2,
    OP_RESIZE = 3,
    OP_INHERIT = 4,
    OP_UNKNOWN = 5,
    OP_NOTE = 6,
    BIT_THREAD = 8,
    BIT_ALIGNED = 16,
    BIT_ZEROED = 32,
    BIT_FAILED = 64,
};

enum { NOTE_END = 2 }; // MW_RECORD_END of <mallow/record.h>, the one note without a text

enum { FLAG_CUT = 1, FLAG_ENDED = 2, FLAG_FORKED = 4 };

struct header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    _Atomic uint64_t record_bytes; // stored after a record: all before it is whole
    _Atomic uint64_t record_count; // stored after that: what is counted is there
    uint64_t start_ns; // since 1970
    uint32_t flags;
    uint32_t cut_errno;
    uint32_t pid;
    uint32_t parent_pid;
    uint64_t live_bytes_peak;
    uint64_t live_count_peak;
    uint64_t block_count; // ids given out
    uint32_t thread_count;
    uint32_t reserved[43];
    char command[COMMAND_BYTES]; // the words, each with its final zero
};
_Static_assert(sizeof(struct header) == HEADER_BYTES, "the header is one page of 4 KiB");

// What a child must not inherit.
struct wiped {
    _Atomic uint32_t lock; // 0 free; else its holder's number, and whether it is waited for
    bool started;
};

static struct {
    struct wiped *wiped; // NULL: nothing was asked for, or it failed
    bool refused;        // asked for in vain; said so on stderr
    char prefix[PREFIX_BYTES];
    char path[PREFIX_BYTES + 32];
    int descriptor; // kept while the program lets us; see descriptor_ready
    dev_t device;
    ino_t inode;
    struct stat messages; // stderr as it was at the start; all 0: it was closed
    struct header *header;
    uint8_t *window;      // mapping of the file from window_offset, or NULL
    uint64_t window_base; // where it begins in the file
    uint64_t window_bytes;
    uint64_t cursor; // where the next record goes, in the file
    uint64_t record_count;
    uint64_t last_ns;
    uint64_t live_bytes;
    uint64_t live_count; // the table's, and those that are being resized
    uint32_t last_thread;
    uint32_t thread_count;
    struct recorder_blocks blocks;
    bool blocks_lost; // the trace was cut, and what happened to blocks since is not in the table
    // The texts of notes, by their hash, that the trace has already: places are never given up one
    // by one, but all at once when there are too many.
    struct {
        uint64_t hash; // 0: an empty place
        uint64_t number;
    } texts[TEXT_PLACES];
    size_t text_count;    // of them
    uint64_t text_number; // of the next
} trace;

#define THREAD static __thread __attribute__((tls_model("initial-exec")))
THREAD uint32_t thread_number; // 1, 2 ... in the order of their first calls
THREAD uint32_t thread_kernel; // its number to the kernel, 0: not asked for
THREAD bool thread_forks;      // it holds the lock for the time of its fork
THREAD bool thread_interrupted; // it forks in a signal handler that came while it held the lock

// ---- The lock ------------------------------------------------------------------------------------

static const uint32_t WAITED = UINT32_C(1) << 31;

static uint32_t own_number(void) {
    if (thread_kernel == 0) {
        thread_kernel = (uint32_t)syscall(SYS_gettid);
    }
    return thread_kernel;
}

static bool lock_is_own(void) {
    return (atomic_load_explicit(&trace.wiped->lock, memory_order_relaxed) & ~WAITED) ==
           own_number();
}

static void lock_wait(_Atomic uint32_t *lock, uint32_t own) {
    for (;;) {
        uint32_t seen = atomic_load_explicit(lock, memory_order_relaxed);
        const uint32_t wanted = (seen == 0 ? own : seen) | WAITED;
        if (!atomic_compare_exchange_weak_explicit(lock, &seen, wanted,
                                                   memory_order_acquire, memory_order_relaxed)) {
            continue;
        }
        if (seen == 0) {
            return;
        }
        syscall(SYS_futex, lock, FUTEX_WAIT_PRIVATE, seen | WAITED, NULL, NULL, 0);
    }
}

static void lock_take(void) {
    if (thread_forks) {
        return; // a fork handler of the program that allocates
    }
    const uint32_t own = own_number();
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong_explicit(&trace.wiped->lock, &expected, own,
                                                 memory_order_acquire, memory_order_relaxed)) {
        lock_wait(&trace.wiped->lock, own);
    }
}

static void lock_give(void) {
    if (thread_forks) {
        return;
    }
    if ((atomic_exchange_explicit(&trace.wiped->lock, 0, memory_order_release) & WAITED) != 0) {
        syscall(SYS_futex, &trace.wiped->lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

// ---- Windows on the file -------------------------------------------------------------------------

static void cut(int error) {
    trace.blocks_lost = true;
    trace.header->flags |= FLAG_CUT;
    trace.header->cut_errno = (uint32_t)error;
}

static bool is_cut(void) {
    return (trace.header->flags & FLAG_CUT) != 0;
}

// The descriptor, with a number that a program does not get for its own files, even if it has closed
// all of them.
static int out_of_the_way(int descriptor) {
    for (int least = DESCRIPTOR_LEAST; least > STDERR_FILENO; least /= 2) {
        const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, least);
        if (moved >= 0) {
            close(descriptor);
            return moved;
        }
    }
    return descriptor;
}

static bool descriptor_is_ours(void) {
    struct stat status;
    return trace.descriptor >= 0 && fstat(trace.descriptor, &status) == 0 &&
           status.st_dev == trace.device && status.st_ino == trace.inode;
}

// The file, opened anew if the program has closed our descriptor, as daemons do with all. A thread may
// be cancelled in open and close, but not in malloc, and not with the lock.
static bool descriptor_ready(void) {
    if (descriptor_is_ours()) {
        return true;
    }
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int error = 0;
    trace.descriptor = open(trace.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (trace.descriptor < 0) {
        error = errno;
    } else {
        trace.descriptor = out_of_the_way(trace.descriptor);
        if (!descriptor_is_ours()) { // another file has the name by now
            close(trace.descriptor);
            trace.descriptor = -1;
            error = ESTALE;
        }
    }
    pthread_setcancelstate(cancel, NULL);
    if (error != 0) {
        errno = error;
    }
    return error == 0;
}

// Reserves the disk's blocks: a store to a mapping of a full disk would be a SIGBUS. Beyond the
// process's limit of a file's size the kernel would send it SIGXFSZ, for a file that is not its own.
static int file_reserve(uint64_t at, uint64_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && at + bytes > limit.rlim_cur) {
        return EFBIG;
    }
    return posix_fallocate(trace.descriptor, (off_t)at, (off_t)bytes);
}

// Maps the part of the file that begins at the cursor.
static bool window_open(uint64_t bytes) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t base = trace.cursor & ~(page - 1);
    if (trace.window != NULL) {
        munmap(trace.window, trace.window_bytes);
        trace.window = NULL;
    }
    if (!descriptor_ready()) {
        cut(errno);
        return false;
    }
    const int error = file_reserve(base, bytes);
    if (error != 0) {
        cut(error);
        return false;
    }
    void *const memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, trace.descriptor, (off_t)base);
    if (memory == MAP_FAILED) {
        cut(errno);
        return false;
    }
    trace.window = memory;
    trace.window_base = base;
    trace.window_bytes = bytes;
    return true;
}

static bool window_ready(void) {
    if (trace.window != NULL &&
        trace.cursor + RECORD_BYTES_MAX <= trace.window_base + trace.window_bytes) {
        return true;
    }
    return !is_cut() && window_open(trace.cursor == HEADER_BYTES ? WINDOW_FIRST : WINDOW_NEXT);
}

// ---- Records -------------------------------------------------------------------------------------

static uint8_t *put_number(uint8_t *out, uint64_t value) {
    while (value >= 128) {
        *out++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

static uint64_t clock_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

// Operation, time, thread if it changed, then `count` numbers and a text, unless that is NULL. False
// if the trace is cut.
static bool record_with(unsigned operation, const uint64_t *numbers, unsigned count,
                        const char *text, size_t length) {
    if (!window_ready()) {
        return false;
    }
    if (thread_number == 0) {
        thread_number = ++trace.thread_count;
    }
    uint8_t *const start = trace.window + (trace.cursor - trace.window_base);
    uint8_t *out = start + 1;
    const uint64_t now = clock_ns(CLOCK_MONOTONIC);
    out = put_number(out, now - trace.last_ns);
    trace.last_ns = now;
    if (thread_number != trace.last_thread) {
        operation |= BIT_THREAD;
        out = put_number(out, thread_number - 1);
        trace.last_thread = thread_number;
    }
    for (unsigned i = 0; i < count; i++) {
        out = put_number(out, numbers[i]);
    }
    if (text != NULL) {
        out = put_number(out, length);
        memcpy(out, text, length);
        out += length;
    }
    *start = (uint8_t)operation;
    trace.cursor += (uint64_t)(out - start);
    trace.header->thread_count = trace.thread_count;
    // In this order: whenever the process is killed, no record is counted that is not there.
    atomic_store_explicit(&trace.header->record_bytes, trace.cursor - HEADER_BYTES,
                          memory_order_release);
    atomic_store_explicit(&trace.header->record_count, ++trace.record_count, memory_order_release);
    return true;
}

static bool record(unsigned operation, const uint64_t *numbers, unsigned count) {
    return record_with(operation, numbers, count, NULL, 0);
}

static void count_live(uint64_t more, uint64_t less) {
    trace.live_bytes += more - less;
    if (trace.live_bytes > trace.header->live_bytes_peak) {
        trace.header->live_bytes_peak = trace.live_bytes;
    }
    if (trace.live_count > trace.header->live_count_peak) {
        trace.header->live_count_peak = trace.live_count;
    }
}

// A block with the next id. The record is made before the block is known, so that a trace that is
// cut has no block whose birth it lacks.
static bool record_birth(unsigned operation, size_t size, unsigned shift) {
    const uint64_t numbers[] = {size, shift};
    return record(operation | (shift != 0 ? BIT_ALIGNED : 0), numbers, shift != 0 ? 2 : 1);
}

// ---- Texts ---------------------------------------------------------------------------------------

static void texts_forget(void) {
    memset(trace.texts, 0, sizeof trace.texts);
    trace.text_count = 0;
}

static uint64_t text_hash(const char *text, size_t length) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); // FNV-1a
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    }
    return hash != 0 ? hash : 1;
}

// The number of the text; false: it is a new one. Texts of the same 64 bits are taken for the same.
static bool text_find(const char *text, size_t length, uint64_t *number) {
    const uint64_t hash = text_hash(text, length);
    if (trace.text_count == TEXTS_MAX) {
        texts_forget();
    }
    size_t at = (size_t)hash % TEXT_PLACES;
    while (trace.texts[at].hash != 0 && trace.texts[at].hash != hash) {
        at = (at + 1) % TEXT_PLACES;
    }
    if (trace.texts[at].hash == hash) {
        *number = trace.texts[at].number;
        return true;
    }
    *number = trace.text_number++;
    trace.texts[at].hash = hash;
    trace.texts[at].number = *number;
    trace.text_count++;
    return false;
}

// ---- Beginning a file ----------------------------------------------------------------------------

// A line on stderr, unless the program has closed that, and perhaps a file of its own there. That
// nobody reads it, or the limit of a file's size, is no reason for a signal to the program.
static void say(const char *what, const char *about) {
    char line[4300];
    struct stat now;
    const int length =
        snprintf(line, sizeof line, "mallow record: %s %s: nothing is recorded\n", what, about);
    if (length < 0 || fstat(STDERR_FILENO, &now) != 0 || now.st_dev != trace.messages.st_dev ||
        now.st_ino != trace.messages.st_ino) {
        return;
    }
    sigset_t ours;
    sigset_t before;
    sigset_t pending;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    sigpending(&pending);
    const ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    const int sent = written >= 0 ? 0 : errno == EPIPE ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;
    if (sent != 0 && sigismember(&pending, sent) == 0) {
        const struct timespec at_once = {0, 0};
        sigemptyset(&ours);
        sigaddset(&ours, sent);
        sigtimedwait(&ours, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// PREFIX.PID.trace, or PREFIX.PID.2.trace and so on after an exec.
static bool file_create(void) {
    const int pid = (int)getpid();
    for (unsigned i = 1; i < FILES_MAX; i++) {
        char number[16] = "";
        if (i > 1) {
            snprintf(number, sizeof number, ".%u", i);
        }
        snprintf(trace.path, sizeof trace.path, "%s.%d%s.trace", trace.prefix, pid, number);
        const int made = open(trace.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (made >= 0) {
            trace.descriptor = out_of_the_way(made);
            return true;
        }
        if (errno != EEXIST) {
            return false;
        }
    }
    return false;
}

static void read_command(char *out) {
    const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        const ssize_t got = read(file, out, COMMAND_BYTES - 1);
        out[got > 0 ? got : 0] = '\0';
        close(file);
    }
}

static bool file_begin(bool forked) {
    struct stat status;
    if (!file_create() || fstat(trace.descriptor, &status) != 0) {
        return false;
    }
    trace.device = status.st_dev;
    trace.inode = status.st_ino;
    // Held as long as the file is mapped, so that `mallow record` knows what is still written.
    (void)flock(trace.descriptor, LOCK_EX | LOCK_NB);
    void *memory = MAP_FAILED;
    if (file_reserve(0, HEADER_MAPPED) == 0) {
        memory =
            mmap(NULL, HEADER_MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, trace.descriptor, 0);
    }
    if (memory == MAP_FAILED) {
        unlink(trace.path); // it is no trace
        close(trace.descriptor);
        trace.descriptor = -1;
        return false;
    }
    trace.header = memory;
    *trace.header = (struct header){
        .magic = "mwtrace",
        .version = 1,
        .header_bytes = HEADER_BYTES,
        .start_ns = clock_ns(CLOCK_REALTIME),
        .flags = forked ? FLAG_FORKED : 0,
        .pid = (uint32_t)getpid(),
        .parent_pid = (uint32_t)getppid(),
    };
    read_command(trace.header->command);
    trace.cursor = HEADER_BYTES;
    trace.last_ns = clock_ns(CLOCK_MONOTONIC);
    trace.last_thread = 0;
    trace.thread_count = 0;
    thread_number = 0;
    trace.record_count = 0;
    trace.live_bytes = 0;
    trace.live_count = 0;
    trace.text_number = 0;
    texts_forget();
    return true;
}

// What lives goes into the new file, under new ids.
static void inherit(void) {
    for (size_t i = 0; i < trace.blocks.capacity; i++) {
        struct recorder_block *const block = &trace.blocks.places[i];
        if (block->address == 0) {
            continue;
        }
        const size_t size = recorder_block_size(block);
        if (!record_birth(OP_INHERIT, size, recorder_block_shift(block))) {
            return;
        }
        block->id = trace.header->block_count++;
        trace.live_count++;
        count_live(size, 0);
    }
}

// In a child: the parent's mappings are left without a trace in the parent's file.
static void leave_parent(void) {
    if (trace.window != NULL) {
        munmap(trace.window, trace.window_bytes);
        trace.window = NULL;
    }
    if (trace.header != NULL) {
        munmap(trace.header, HEADER_MAPPED);
        trace.header = NULL;
    }
    if (trace.descriptor >= 0 && descriptor_ready()) {
        close(trace.descriptor);
    }
    trace.descriptor = -1;
}

// The first call of a process, or of a child after fork; under the lock.
static void begin(void) {
    const bool forked = trace.header != NULL;
    trace.wiped->started = true;
    if (forked) {
        leave_parent();
    }
    if (trace.blocks_lost) {
        recorder_blocks_forget(&trace.blocks);
        trace.blocks_lost = false;
    }
    if (!file_begin(forked)) {
        say("cannot write", trace.path);
        trace.refused = true;
        return;
    }
    inherit();
}

// The page that a child finds empty.
static struct wiped *wiped_page(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *const memory =
        mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, page, MADV_WIPEONFORK) != 0) {
        return NULL;
    }
    return memory;
}

// The process's first call, which comes before it has threads. A call so early that there is no
// environment yet (an IFUNC resolver's) is not recorded.
static bool prepare(void) {
    if (trace.refused || environ == NULL) {
        return false;
    }
    const char *const prefix = getenv("MW_RECORD");
    if (prefix == NULL || strlen(prefix) >= sizeof trace.prefix) {
        trace.refused = true;
        return false;
    }
    strcpy(trace.prefix, prefix);
    trace.descriptor = -1;
    const int error = errno;
    if (fstat(STDERR_FILENO, &trace.messages) != 0) {
        trace.messages = (struct stat){.st_ino = 0};
    }
    trace.wiped = wiped_page();
    errno = error;
    if (trace.wiped == NULL) {
        say("no memory, or a kernel", "before Linux 4.14");
        trace.refused = true;
    }
    return trace.wiped != NULL;
}

// Takes the lock with a file ready to write to. False, and no lock: nothing is recorded.
static bool enter(void) {
    if (trace.wiped == NULL && !prepare()) {
        return false;
    }
    lock_take();
    if (!trace.wiped->started && !trace.refused) {
        const int error = errno;
        int cancel; // as in descriptor_ready
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
        begin();
        pthread_setcancelstate(cancel, NULL);
        errno = error;
    }
    if (trace.refused || is_cut()) {
        lock_give();
        return false;
    }
    return true;
}

// ---- What the names call -------------------------------------------------------------------------

void recorder_allocated(uintptr_t address, size_t size, unsigned shift, bool zeroed) {
    if (!enter()) {
        return;
    }
    const int error = errno;
    const unsigned zero_bit = zeroed ? BIT_ZEROED : 0;
    if (address == 0) { // a size that a block has no bits for, perhaps
        record_birth(OP_ALLOCATE | BIT_FAILED | zero_bit, size, shift);
    } else if (record_birth(OP_ALLOCATE | zero_bit, size, shift)) {
        struct recorder_block block = recorder_block_make(address, size, shift);
        block.id = trace.header->block_count++;
        if (recorder_blocks_insert(&trace.blocks, block)) {
            trace.live_count++;
            count_live(size, 0);
        } else {
            cut(ENOMEM);
        }
    }
    errno = error;
    lock_give();
}

void recorder_freed(uintptr_t address) {
    if (!enter()) {
        return;
    }
    const int error = errno;
    struct recorder_block block;
    if (recorder_blocks_take(&trace.blocks, address, &block)) {
        const uint64_t distance = trace.header->block_count - block.id;
        record(OP_FREE, &distance, 1);
        trace.live_count--;
        count_live(0, recorder_block_size(&block));
    } else {
        record(OP_UNKNOWN, NULL, 0);
    }
    errno = error;
    lock_give();
}

bool recorder_resize_begin(uintptr_t address, struct recorder_block *block) {
    if (!enter()) {
        return false;
    }
    const bool known = recorder_blocks_take(&trace.blocks, address, block);
    if (!known) {
        record(OP_UNKNOWN, NULL, 0);
    }
    lock_give();
    return known;
}

void recorder_resize_end(const struct recorder_block *block, uintptr_t address, size_t size) {
    if (!enter()) {
        return;
    }
    const int error = errno;
    const uint64_t numbers[] = {trace.header->block_count - block->id, size};
    if (record(OP_RESIZE | (address == 0 ? BIT_FAILED : 0), numbers, 2)) {
        struct recorder_block kept = *block;
        if (address != 0) {
            kept = recorder_block_make(address, size, 0);
            kept.id = block->id;
        }
        if (!recorder_blocks_insert(&trace.blocks, kept)) {
            cut(ENOMEM);
        }
        count_live(recorder_block_size(&kept), recorder_block_size(block));
    }
    errno = error;
    lock_give();
}

bool recorder_known_size(uintptr_t address, size_t *size) {
    if (!enter()) {
        return false;
    }
    const struct recorder_block *const block = recorder_blocks_find(&trace.blocks, address);
    if (block != NULL) {
        *size = recorder_block_size(block);
    }
    lock_give();
    return block != NULL;
}

// The public name, which programs look for: include/mallow/record.h.
__attribute__((visibility("default"))) void mw_record_note_v1(unsigned kind, const char *text);

void mw_record_note_v1(unsigned kind, const char *text) {
    if (!enter()) {
        return;
    }
    const int error = errno;
    uint64_t numbers[] = {kind, 0};
    if (kind == NOTE_END) {
        record(OP_NOTE, numbers, 1);
    } else {
        text = text != NULL ? text : ""; // without one the records behind it could not be read
        const size_t length = strnlen(text, TEXT_BYTES_MAX);
        const bool known = text_find(text, length, &numbers[1]);
        record_with(OP_NOTE, numbers, 2, known ? NULL : text, length);
    }
    errno = error;
    lock_give();
}

// ---- Fork and end --------------------------------------------------------------------------------

static void fork_prepare(void) {
    if (trace.wiped == NULL) {
        return;
    }
    thread_interrupted = lock_is_own();
    if (!thread_interrupted) {
        lock_take(); // the child must not inherit a table that is half changed
        thread_forks = true;
    }
}

static void fork_parent(void) {
    if (thread_forks) {
        thread_forks = false;
        lock_give();
    }
    thread_interrupted = false;
}

// What a signal has interrupted goes on in the child, too: not in the parent's file, and with a table
// that may be half changed.
static void leave_interrupted(void) {
    const int access = PROT_READ | PROT_WRITE;
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    trace.blocks_lost = true;
    if (trace.header != NULL) {
        mmap(trace.header, HEADER_MAPPED, access, kind, -1, 0);
    }
    if (trace.window != NULL) {
        mmap(trace.window, trace.window_bytes, access, kind, -1, 0);
    }
}

static void fork_child(void) {
    if (thread_interrupted) {
        thread_interrupted = false;
        leave_interrupted();
    }
    thread_forks = false; // the lock is free: its page has been wiped
    thread_number = 0;
    thread_kernel = 0;
}

__attribute__((constructor)) static void recorder_loaded(void) {
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

// Gives the window's rest back to the disk. Calls that come later open a window again.
__attribute__((destructor)) static void recorder_unloaded(void) {
    if (trace.wiped == NULL || !trace.wiped->started || !enter()) {
        return;
    }
    trace.header->flags |= FLAG_ENDED;
    if (trace.window != NULL && descriptor_ready()) {
        munmap(trace.window, trace.window_bytes);
        trace.window = NULL;
        const int result = ftruncate(trace.descriptor, (off_t)trace.cursor);
        (void)result;
    }
    lock_give();
}
