// SPDX-License-Identifier: MIT
// Explorer: see explore.h. The search is depth first and without state, as in Musuvathi and Qadeer,
// "Iterative context bounding for systematic testing of multithreaded programs" (PLDI 2007).
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    STACK_BYTES = 256 << 10,
    CHOICES_MAX = 4096,
    STEPS_MAX = 20000, // of one schedule: more are a loop that nobody ends
    KEPT_MAX = 64, // stores of a thread
    SHARED_SLOTS = 1 << 12,
    MESSAGE_BYTES = 512,
    TRACE_MAX = 4096,
};

// A store that is kept back.
struct store {
    volatile void *address;
    uint8_t bytes;
    char value[8];
};

struct thread {
    ucontext_t context;
    struct store kept[KEPT_MAX];
    unsigned kept_count;
    bool done;
    bool waits;       // until another one writes what it uses
    bool has_news;    // that has happened since it last waited
    const char *file; // where it is
    int line;
    char own[EXPLORE_OWN_BYTES_MAX]; // while it is not running
};

// At a point: who could go on, and who does; or whether a store is made later.
struct choice {
    uint8_t threads[EXPLORE_THREADS_MAX];
    uint8_t count;
    uint8_t at;
};

// Who uses a place in memory, found by its address; open addressing.
struct use {
    uintptr_t address;
    uint8_t readers; // a bit a thread
    uint8_t writers;
};

static struct {
    const struct explore_scenario *scenario;
    struct thread threads[EXPLORE_THREADS_MAX];
    ucontext_t main;
    char *stacks;
    unsigned running; // EXPLORE_THREADS_MAX: none
    bool reported;
    char message[MESSAGE_BYTES];

    struct choice choices[CHOICES_MAX];
    unsigned choice_count; // known so far: what is to be repeated, and then what is added
    unsigned choice_next;
    unsigned preemptions;
    unsigned delays;
    unsigned steps;

    struct use uses[SHARED_SLOTS];
    bool uses_grew; // in this schedule: points may have been passed over before

    struct explore_range ranges[EXPLORE_RANGES_MAX];
    void *copies[EXPLORE_RANGES_MAX];
    unsigned range_count;
    struct explore_range own;
    char own_first[EXPLORE_OWN_BYTES_MAX]; // what each thread begins with

    struct {
        uint8_t thread;
        int line;
        const char *file;
    } trace[TRACE_MAX];
    unsigned trace_count;
} self = {.running = EXPLORE_THREADS_MAX};

void explore_keep(void *address, size_t bytes) {
    if (self.range_count == EXPLORE_RANGES_MAX) {
        explore_fail("too many ranges", __FILE__, __LINE__);
    }
    void *const copy = malloc(bytes);
    memcpy(copy, address, bytes);
    self.ranges[self.range_count] = (struct explore_range){address, bytes};
    self.copies[self.range_count] = copy;
    self.range_count++;
}

void explore_forget(void) {
    for (unsigned i = 0; i < self.range_count; i++) {
        free(self.copies[i]);
    }
    self.range_count = 0;
    self.own = (struct explore_range){NULL, 0};
}

void explore_own(void *address, size_t bytes) {
    if (bytes > EXPLORE_OWN_BYTES_MAX) {
        explore_fail("too much memory of threads' own", __FILE__, __LINE__);
    }
    self.own = (struct explore_range){address, bytes};
    memcpy(self.own_first, address, bytes);
}

unsigned explore_thread(void) {
    return self.running;
}

bool explore_has_reported(void) {
    return self.reported;
}

void explore_message(const char *text, size_t length) {
    const size_t bytes = length < MESSAGE_BYTES - 1 ? length : MESSAGE_BYTES - 1;
    memcpy(self.message, text, bytes);
    self.message[bytes] = '\0';
}

// ---- Failure ------------------------------------------------------------------------------------

void explore_fail(const char *what, const char *file, int line) {
    fprintf(stderr, "%s: does not hold: %s (%s:%d)\n",
            self.scenario != NULL ? self.scenario->name : "setup", what, file, line);
    if (self.reported) {
        fprintf(stderr, "after the report: %s", self.message);
    }
    for (unsigned i = 0; i < self.trace_count; i++) {
        fprintf(stderr, "  %u: %s:%d\n", self.trace[i].thread, self.trace[i].file,
                self.trace[i].line);
    }
    exit(1);
}

static void trace_add(unsigned thread, const char *file, int line) {
    if (self.trace_count < TRACE_MAX) {
        self.trace[self.trace_count].thread = (uint8_t)thread;
        self.trace[self.trace_count].file = file;
        self.trace[self.trace_count].line = line;
        self.trace_count++;
    }
}

// ---- Which memory is shared ---------------------------------------------------------------------

static struct use *use_of(const volatile void *address) {
    const uintptr_t key = (uintptr_t)address;
    size_t slot = (key >> 2) * UINT64_C(0x9e3779b97f4a7c15) % SHARED_SLOTS;
    for (unsigned tried = 0; tried < SHARED_SLOTS; tried++) {
        struct use *const use = &self.uses[slot];
        if (use->address == key || use->address == 0) {
            use->address = key;
            return use;
        }
        slot = (slot + 1) % SHARED_SLOTS;
    }
    explore_fail("too many places in memory", __FILE__, __LINE__);
}

// One thread writes what another one uses.
static bool use_is_shared(const struct use *use) {
    const unsigned all = use->readers | use->writers;
    return use->writers != 0 && (all & (all - 1)) != 0;
}

// ---- Choices ------------------------------------------------------------------------------------

// The thread that goes on. `self.running` is the first of the threads to choose from if it can.
static unsigned choose(const uint8_t *threads, unsigned count) {
    if (count == 1) {
        return threads[0];
    }
    if (self.choice_next == self.choice_count) {
        if (self.choice_count == CHOICES_MAX) {
            explore_fail("too many choices in a schedule", __FILE__, __LINE__);
        }
        struct choice *const choice = &self.choices[self.choice_count++];
        memcpy(choice->threads, threads, count);
        choice->count = (uint8_t)count;
        choice->at = 0;
    }
    const struct choice *const choice = &self.choices[self.choice_next++];
    if (choice->count != count || memcmp(choice->threads, threads, count) != 0) {
        explore_fail("a schedule cannot be repeated", __FILE__, __LINE__);
    }
    return choice->threads[choice->at];
}

// The threads that could go on, but for `except`.
static unsigned others(uint8_t *threads, unsigned except) {
    unsigned count = 0;
    for (unsigned i = 0; i < self.scenario->thread_count; i++) {
        if (i != except && !self.threads[i].done && !self.threads[i].waits) {
            threads[count++] = (uint8_t)i;
        }
    }
    return count;
}

static void let_run(unsigned next) {
    trace_add(next, self.threads[next].file, self.threads[next].line);
    memcpy(self.own.address, self.threads[next].own, self.own.bytes);
    self.running = next;
}

static void go_on_with(unsigned next) {
    const unsigned before = self.running;
    if (next != before) {
        memcpy(self.threads[before].own, self.own.address, self.own.bytes);
        let_run(next);
        swapcontext(&self.threads[before].context, &self.threads[next].context);
    }
}

// The running thread waits, or has ended. When all do, that is a deadlock.
static unsigned next_of_others(void) {
    uint8_t threads[EXPLORE_THREADS_MAX];
    const unsigned count = others(threads, self.running);
    if (count == 0) {
        explore_fail("every thread waits for another", __FILE__, __LINE__);
    }
    return choose(threads, count);
}

// ---- Points -------------------------------------------------------------------------------------

// Who uses what is written is to look again.
static void tell(const struct use *use) {
    const unsigned users = (use->readers | use->writers) & ~(1U << self.running);
    for (unsigned i = 0; i < self.scenario->thread_count; i++) {
        if ((users >> i & 1) != 0) {
            self.threads[i].has_news = true;
            self.threads[i].waits = false;
        }
    }
}

// All that a thread's processor has kept back becomes seen.
static void let_go(struct thread *thread) {
    for (unsigned i = 0; i < thread->kept_count; i++) {
        const struct store *const store = &thread->kept[i];
        memcpy((void *)(uintptr_t)store->address, store->value, store->bytes);
        tell(use_of(store->address));
    }
    thread->kept_count = 0;
}

void explore_time_passes(void) {
    for (unsigned i = 0; self.running != EXPLORE_THREADS_MAX && i < self.scenario->thread_count; i++) {
        let_go(&self.threads[i]);
    }
}

static bool keeps(const struct thread *thread, const volatile void *address) {
    for (unsigned i = 0; i < thread->kept_count; i++) {
        if (thread->kept[i].address == address) {
            return true;
        }
    }
    return false;
}

// Lets another thread go on instead, if it is its turn.
static void let_others(const char *file, int line) {
    struct thread *const thread = &self.threads[self.running];
    thread->file = file;
    thread->line = line;
    if (self.preemptions < self.scenario->preemptions) {
        uint8_t threads[EXPLORE_THREADS_MAX] = {(uint8_t)self.running};
        const unsigned count = 1 + others(threads + 1, self.running);
        const unsigned next = choose(threads, count);
        self.preemptions += next != self.running;
        go_on_with(next);
    }
}

// Notes the access, and lets another thread go on, if the place is shared.
static struct use *arrive(const volatile void *address, bool writes, const char *file, int line) {
    struct use *const use = use_of(address);
    const unsigned bit = 1U << self.running;
    const bool is_new = ((writes ? use->writers : use->readers) & bit) == 0;
    use->readers |= (uint8_t)(writes ? 0 : bit);
    use->writers |= (uint8_t)(writes ? bit : 0);
    self.uses_grew = self.uses_grew || is_new;
    if (++self.steps > STEPS_MAX) {
        explore_fail("a loop does not end", __FILE__, __LINE__);
    }
    if (use_is_shared(use)) {
        let_others(file, line);
    }
    return use;
}

void explore_point(const volatile void *address, bool writes, const char *file, int line) {
    if (self.running == EXPLORE_THREADS_MAX) {
        return;
    }
    const struct use *const use = arrive(address, writes, file, line);
    struct thread *const thread = &self.threads[self.running];
    if (writes || keeps(thread, address)) {
        let_go(thread);
    }
    if (writes) {
        tell(use);
    }
}

void explore_moment(const char *file, int line) {
    if (self.running != EXPLORE_THREADS_MAX) {
        self.steps++;
        let_others(file, line);
    }
}

void explore_store(volatile void *address, const void *value, size_t bytes, const char *file,
                   int line) {
    if (self.running == EXPLORE_THREADS_MAX) {
        memcpy((void *)(uintptr_t)address, value, bytes);
        return;
    }
    const struct use *const use = arrive(address, true, file, line);
    struct thread *const thread = &self.threads[self.running];
    bool later = thread->kept_count != 0; // stores keep their order
    if (!later && use_is_shared(use) && self.delays < self.scenario->delays) {
        static const uint8_t now_or_later[] = {0, 1};
        later = choose(now_or_later, 2) == 1;
        self.delays += later;
    }
    if (!later || thread->kept_count == KEPT_MAX) {
        let_go(thread);
        memcpy((void *)(uintptr_t)address, value, bytes);
        tell(use);
        return;
    }
    struct store *const store = &thread->kept[thread->kept_count++];
    store->address = address;
    store->bytes = (uint8_t)bytes;
    memcpy(store->value, value, bytes);
}

void explore_pause(void) {
    if (self.running == EXPLORE_THREADS_MAX) {
        explore_fail("nobody else is there to be waited for", __FILE__, __LINE__);
    }
    struct thread *const thread = &self.threads[self.running];
    let_go(thread);
    if (!thread->has_news) { // else it had better look again
        thread->waits = true;
        go_on_with(next_of_others());
    }
    thread->has_news = false;
}

// ---- One schedule -------------------------------------------------------------------------------

static void end_schedule(void) {
    self.running = EXPLORE_THREADS_MAX;
    setcontext(&self.main);
}

void explore_report(void) {
    if (self.running == EXPLORE_THREADS_MAX) {
        self.reported = true; // in check
        setcontext(&self.main);
    }
    self.reported = true;
    end_schedule();
    abort();
}

static void run_thread(void) {
    const unsigned number = self.running;
    self.scenario->thread[number]();
    let_go(&self.threads[number]);
    self.threads[number].done = true;
    uint8_t threads[EXPLORE_THREADS_MAX];
    bool all_done = true;
    for (unsigned i = 0; i < self.scenario->thread_count; i++) {
        all_done = all_done && self.threads[i].done;
    }
    if (all_done) {
        end_schedule();
    }
    const unsigned count = others(threads, number);
    if (count == 0) {
        explore_fail("those that are left wait for each other", __FILE__, __LINE__);
    }
    const unsigned next = choose(threads, count);
    let_run(next);
    setcontext(&self.threads[next].context);
}

static void begin_threads(void) {
    for (unsigned i = 0; i < self.scenario->thread_count; i++) {
        struct thread *const thread = &self.threads[i];
        thread->done = false;
        thread->waits = false;
        thread->has_news = false;
        thread->kept_count = 0;
        thread->file = "its beginning";
        thread->line = 0;
        memcpy(thread->own, self.own_first, self.own.bytes);
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = self.stacks + (size_t)i * STACK_BYTES;
        thread->context.uc_stack.ss_size = STACK_BYTES;
        thread->context.uc_link = NULL;
        makecontext(&thread->context, run_thread, 0);
    }
}

static void run_schedule(void) {
    for (unsigned i = 0; i < self.range_count; i++) {
        memcpy(self.ranges[i].address, self.copies[i], self.ranges[i].bytes);
    }
    self.choice_next = 0;
    self.preemptions = 0;
    self.delays = 0;
    self.steps = 0;
    self.reported = false;
    self.trace_count = 0;
    begin_threads();
    uint8_t threads[EXPLORE_THREADS_MAX];
    const unsigned count = others(threads, EXPLORE_THREADS_MAX);
    const unsigned first = choose(threads, count);
    volatile bool begun = false; // getcontext returns once more when all have ended
    getcontext(&self.main);
    if (!begun) {
        begun = true;
        let_run(first);
        setcontext(&self.threads[first].context);
    }
    volatile bool checked = false;
    getcontext(&self.main); // where a report of check's leads
    if (!checked) {
        checked = true;
        self.scenario->check();
    }
    if (self.scenario->reports && !self.reported) {
        explore_fail("misuse is reported", __FILE__, __LINE__);
    }
    if (!self.scenario->reports && self.reported) {
        explore_fail("nothing is reported", __FILE__, __LINE__);
    }
}

// Goes on to the next branch of the tree; false: there is none.
static bool next_branch(void) {
    while (self.choice_count > 0) {
        struct choice *const choice = &self.choices[self.choice_count - 1];
        if (choice->at + 1 < choice->count) {
            choice->at++;
            return true;
        }
        self.choice_count--;
    }
    return false;
}

struct explore_result explore_run(const struct explore_scenario *scenario) {
    struct explore_result result;
    self.scenario = scenario;
    if (self.stacks == NULL) {
        self.stacks = malloc((size_t)EXPLORE_THREADS_MAX * STACK_BYTES);
    }
    memset(self.uses, 0, sizeof self.uses);
    do { // anew, as long as more turns out to be used
        self.uses_grew = false;
        self.choice_count = 0;
        result = (struct explore_result){0, 0, 0};
        do {
            run_schedule();
            result.schedule_count++;
            result.report_count += self.reported;
            if (self.steps > result.point_count) {
                result.point_count = self.steps;
            }
        } while (!self.uses_grew && next_branch());
    } while (self.uses_grew);
    self.scenario = NULL;
    return result;
}
