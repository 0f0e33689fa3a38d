// SPDX-License-Identifier: MIT
// callcost: a valgrind tool that counts the instructions and the system calls of every single call
// of an allocator, as the program under test brackets them (callcost.h).
//
// Owns     two running counters, which the instrumented code adds to: instructions, and those of
//          them that copy or zero the caller's bytes (the ranges that the program names, and
//          repeated string instructions). What a thread has of them, its open call, and one record
//          a phase and operation.
// Threads  valgrind runs one thread at a time and says when it changes them. So no call is counted
//          that only waits for another thread: figures are of the call itself, and the same in
//          every run.
// Holds    a call's count = instructions of its thread from BEGIN to END, those between the empty
//          bracket's requests taken off; what is moved is apart.
//
// Linked with valgrind's core, as every tool is; the program that results is for use, not for
// distribution.
#include "pub_tool_basics.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_machine.h"
#include "pub_tool_options.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"

#include "callcost.h"

enum {
    PHASES_MAX = 64,
    MOVERS_MAX = 16,
    THREADS_MAX = 512,
    BUCKETS = 24,       // bucket b: fewer than 2^b instructions
    EXPLAINED_MAX = 64,
    TRACE_MAX = 1 << 18, // instructions of a call that are remembered
    TRACE_CALLS_MAX = 64,
    FUNCTIONS_MAX = 512, // named in an explanation
    NAME_BYTES = 48,
};

struct record {
    ULong calls;
    ULong instructions;
    ULong max_instructions;
    ULong max_size;
    ULong max_call;
    ULong max_moved;
    ULong system_calls;
    ULong max_system_calls;
    ULong system_calls_size; // of the first call with so many
    ULong system_calls_call;
    ULong histogram[BUCKETS];
};

struct phase {
    const HChar *name;
    Bool steady;
    struct record records[CALLCOST_OPERATION_COUNT];
};

struct thread {
    ULong ran, moved;                 // of its own, while it ran
    ULong ran_before, moved_before;   // the counters when it was last let run
    ULong system_calls;
    Bool open;
    UWord operation, size;
    ULong call;
    ULong begin_ran, begin_moved, begin_system_calls;
};

struct function {
    HChar name[NAME_BYTES];
    ULong instructions;
};

static const HChar *const operation_names[CALLCOST_OPERATION_COUNT] = {
    "nothing", "malloc", "free", "calloc", "realloc", "aligned_alloc", "thread_end",
};

static ULong counted_ran;
static ULong counted_moved;
static struct phase phases[PHASES_MAX];
static UInt phase_count;
static struct {
    Addr first, last;
} movers[MOVERS_MAX];
static UInt mover_count;
static struct thread threads[THREADS_MAX];
static ThreadId running;
static ULong call_count;
static ULong bracket_instructions; // of an empty one
static Bool bracket_known;
static struct function functions[FUNCTIONS_MAX];
static UInt function_count;
static ThreadId traced; // the thread that began a call last; 0: nothing is to be explained
static Addr trace[TRACE_MAX];
static UInt trace_count;
static UInt trace_calls[TRACE_CALLS_MAX]; // its system calls
static ULong worst[CALLCOST_OPERATION_COUNT][2]; // instructions and system calls explained so far

static const HChar *option_out = "callcost.json";
static const HChar *option_explain = ""; // numbers of calls to be explained, separated by commas
static Long option_explain_above = -1; // explains each call that is the worst so far, and worse
static ULong explained[EXPLAINED_MAX];
static UInt explained_count;

// ---- Counting -----------------------------------------------------------------------------------

static void thread_let_run(ThreadId tid, ULong blocks) {
    (void)blocks;
    tl_assert(tid < THREADS_MAX);
    running = tid;
    threads[tid].ran_before = counted_ran;
    threads[tid].moved_before = counted_moved;
}

static void thread_update(ThreadId tid) {
    struct thread *const thread = &threads[tid];
    thread->ran += counted_ran - thread->ran_before;
    thread->moved += counted_moved - thread->moved_before;
    thread->ran_before = counted_ran;
    thread->moved_before = counted_moved;
}

static void thread_stop(ThreadId tid, ULong blocks) {
    (void)blocks;
    thread_update(tid);
}

static Bool is_mover(Addr address) {
    for (UInt i = 0; i < mover_count; i++) {
        if (address >= movers[i].first && address <= movers[i].last) {
            return True;
        }
    }
#if defined(VGA_amd64)
    // rep movs, rep stos: each round is counted, and moves the caller's bytes.
    const UChar *const code = (const UChar *)address;
    if (code[0] == 0xf3) {
        const UChar operation = (code[1] & 0xf0) == 0x40 ? code[2] : code[1];
        return operation == 0xa4 || operation == 0xa5 || operation == 0xaa || operation == 0xab;
    }
#endif
    return False;
}

static void add_to(IRSB *out, ULong *counter, UInt count) {
    if (count == 0) {
        return;
    }
    IRExpr *const address = IRExpr_Const(IRConst_U64((ULong)(Addr)counter));
    const IRTemp before = newIRTemp(out->tyenv, Ity_I64);
    const IRTemp after = newIRTemp(out->tyenv, Ity_I64);
    addStmtToIRSB(out, IRStmt_WrTmp(before, IRExpr_Load(Iend_LE, Ity_I64, address)));
    addStmtToIRSB(out, IRStmt_WrTmp(after, IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(before),
                                                        IRExpr_Const(IRConst_U64(count)))));
    addStmtToIRSB(out, IRStmt_Store(Iend_LE, address, IRExpr_RdTmp(after)));
}

// The innermost function that an instruction comes from, inlined or not, as far as debug information
// tells; else the symbol that it lies behind.
static void function_name(Addr address, HChar *name) {
    const DiEpoch epoch = VG_(current_DiEpoch)();
    InlIPCursor *const cursor = VG_(new_IIPC)(epoch, address);
    const HChar *text = VG_(describe_IP)(epoch, address, cursor); // 0xADDRESS: NAME (FILE:LINE)
    const HChar *const colon = VG_(strstr)(text, ": ");
    UInt length = 0;
    for (text = colon != NULL ? colon + 2 : text;
         text[length] != '\0' && text[length] != ' ' && length < NAME_BYTES - 1; length++) {
        name[length] = text[length];
    }
    name[length] = '\0';
    VG_(delete_IIPC)(cursor);
}

// Called for every instruction, if calls are to be explained.
static VG_REGPARM(1) void explain(Addr address) {
    if (traced == running && threads[running].open && trace_count < TRACE_MAX) {
        trace[trace_count++] = address;
    }
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *host, IRType guest_word,
                        IRType host_word) {
    (void)closure;
    (void)layout;
    (void)extents;
    (void)host;
    (void)guest_word;
    (void)host_word;
    IRSB *const out = deepCopyIRSBExceptStmts(in);
    UInt ran = 0;
    UInt moved = 0;
    for (Int i = 0; i < in->stmts_used; i++) {
        IRStmt *const statement = in->stmts[i];
        if (statement->tag == Ist_IMark) {
            if (is_mover(statement->Ist.IMark.addr)) {
                moved++;
            } else {
                ran++;
            }
        } else if (statement->tag == Ist_Exit) {
            add_to(out, &counted_ran, ran);
            add_to(out, &counted_moved, moved);
            ran = 0;
            moved = 0;
        }
        addStmtToIRSB(out, statement);
        if (statement->tag == Ist_IMark && (explained_count > 0 || option_explain_above >= 0) &&
            !is_mover(statement->Ist.IMark.addr)) {
            IRExpr **const arguments =
                mkIRExprVec_1(IRExpr_Const(IRConst_U64(statement->Ist.IMark.addr)));
            addStmtToIRSB(out, IRStmt_Dirty(unsafeIRDirty_0_N(
                                   1, "explain", VG_(fnptr_to_fnentry)(explain), arguments)));
        }
    }
    add_to(out, &counted_ran, ran);
    add_to(out, &counted_moved, moved);
    return out;
}

// The clock is read without the kernel's help, but for valgrind, which hides the page (vDSO) that
// holds the code for it.
static Bool is_of_valgrinds_making(UInt number) {
#if defined(VGA_amd64)
    return number == 228; // clock_gettime
#else
    return number == 113;
#endif
}

static void before_system_call(ThreadId tid, UInt number, UWord *arguments, UInt count) {
    (void)arguments;
    (void)count;
    if (is_of_valgrinds_making(number)) {
        return;
    }
    const ULong before = threads[tid].system_calls++ - threads[tid].begin_system_calls;
    if (before < TRACE_CALLS_MAX && traced == tid) {
        trace_calls[before] = number;
    }
}

static void after_system_call(ThreadId tid, UInt number, UWord *arguments, UInt count,
                              SysRes result) {
    (void)tid;
    (void)number;
    (void)arguments;
    (void)count;
    (void)result;
}

// ---- Calls --------------------------------------------------------------------------------------

static void call_begin(ThreadId tid, UWord operation, UWord size) {
    struct thread *const thread = &threads[tid];
    tl_assert(operation < CALLCOST_OPERATION_COUNT);
    thread_update(tid);
    thread->open = True;
    thread->operation = operation;
    thread->size = size;
    thread->call = call_count++;
    thread->begin_ran = thread->ran;
    thread->begin_moved = thread->moved;
    thread->begin_system_calls = thread->system_calls;
    if (explained_count > 0 || option_explain_above >= 0) {
        traced = tid;
        trace_count = 0;
    }
}

static void record_call(struct record *record, const struct thread *thread, ULong instructions) {
    const ULong system_calls = thread->system_calls - thread->begin_system_calls;
    UInt bucket = 0;
    while (bucket + 1 < BUCKETS && instructions >> bucket != 0) {
        bucket++;
    }
    record->histogram[bucket]++;
    record->instructions += instructions;
    record->system_calls += system_calls;
    if (record->calls++ == 0 || instructions > record->max_instructions) {
        record->max_instructions = instructions;
        record->max_size = thread->size;
        record->max_call = thread->call;
        record->max_moved = thread->moved - thread->begin_moved;
    }
    if (system_calls > record->max_system_calls) {
        record->max_system_calls = system_calls;
        record->system_calls_size = thread->size;
        record->system_calls_call = thread->call;
    }
}

static Bool is_to_be_explained(const struct thread *thread, ULong instructions,
                               ULong system_calls) {
    for (UInt i = 0; i < explained_count; i++) {
        if (explained[i] == thread->call) {
            return True;
        }
    }
    ULong *const most = worst[thread->operation];
    const ULong above = (ULong)option_explain_above;
    if (option_explain_above < 0 || phase_count < 2 || // the process's first call
        !((instructions > above && instructions > most[0]) ||
          (system_calls > 1 && system_calls > most[1]))) {
        return False;
    }
    most[0] = instructions > most[0] ? instructions : most[0];
    most[1] = system_calls > most[1] ? system_calls : most[1];
    return True;
}

// The functions that the call has run through, those with the most instructions first.
static void explanation_print(const struct thread *thread, ULong instructions,
                              ULong system_calls) {
    VG_(message)(Vg_UserMsg, "callcost: call %llu is %s(%lu), in '%s': %llu instructions, %llu "
                             "system calls\n",
                 thread->call, operation_names[thread->operation], thread->size,
                 phase_count > 0 ? phases[phase_count - 1].name : "", instructions, system_calls);
    for (UInt i = 0; i < system_calls && i < TRACE_CALLS_MAX; i++) {
        VG_(message)(Vg_UserMsg, "callcost:  enters the kernel: %u\n", trace_calls[i]);
    }
    for (UInt i = 0; i < trace_count; i++) {
        HChar name[NAME_BYTES];
        UInt j = 0;
        function_name(trace[i], name);
        while (j < function_count && VG_(strcmp)(functions[j].name, name) != 0) {
            j++;
        }
        if (j == function_count && function_count < FUNCTIONS_MAX) {
            VG_(strcpy)(functions[j].name, name);
            functions[j].instructions = 0;
            function_count++;
        }
        if (j < function_count) {
            functions[j].instructions++;
        }
    }
    for (; function_count > 0; function_count--) {
        UInt most = 0;
        for (UInt i = 1; i < function_count; i++) {
            most = functions[i].instructions > functions[most].instructions ? i : most;
        }
        VG_(message)(Vg_UserMsg, "callcost: %8llu %s\n", functions[most].instructions,
                     functions[most].name);
        functions[most] = functions[function_count - 1];
    }
}

static void call_end(ThreadId tid) {
    struct thread *const thread = &threads[tid];
    if (!thread->open) {
        return;
    }
    thread_update(tid);
    thread->open = False;
    ULong instructions = thread->ran - thread->begin_ran;
    if (thread->operation == CALLCOST_NOTHING && !bracket_known) {
        bracket_instructions = instructions;
        bracket_known = True;
    }
    instructions -= instructions < bracket_instructions ? instructions : bracket_instructions;
    if (phase_count > 0) {
        record_call(&phases[phase_count - 1].records[thread->operation], thread, instructions);
    }
    const ULong system_calls = thread->system_calls - thread->begin_system_calls;
    if (traced == tid && is_to_be_explained(thread, instructions, system_calls)) {
        explanation_print(thread, instructions, system_calls);
    }
}

static void phase_begin(const HChar *name, Bool steady) {
    tl_assert(phase_count < PHASES_MAX);
    phases[phase_count].name = name;
    phases[phase_count].steady = steady;
    phase_count++;
}

static Bool request(ThreadId tid, UWord *arguments, UWord *result) {
    *result = 0;
    switch (arguments[0]) {
    case CALLCOST_PHASE:
        phase_begin((const HChar *)arguments[1], arguments[2] != 0);
        return True;
    case CALLCOST_BEGIN:
    case CALLCOST_UNTIL_END:
        call_begin(tid, arguments[1], arguments[2]);
        return True;
    case CALLCOST_END:
        call_end(tid);
        return True;
    case CALLCOST_MOVER:
        tl_assert(mover_count < MOVERS_MAX);
        movers[mover_count].first = arguments[1];
        movers[mover_count].last = arguments[2];
        mover_count++;
        return True;
    default:
        return False;
    }
}

// ---- Report -------------------------------------------------------------------------------------

static void print_record(VgFile *file, const HChar *name, const struct record *record) {
    VG_(fprintf)(file,
                 "\"%s\": {\"calls\": %llu, \"instructions\": %llu, \"max_instructions\": %llu, "
                 "\"max_size\": %llu, \"max_call\": %llu, \"max_moved\": %llu, ",
                 name, record->calls, record->instructions, record->max_instructions,
                 record->max_size, record->max_call, record->max_moved);
    VG_(fprintf)(file,
                 "\"system_calls\": %llu, \"max_system_calls\": %llu, \"system_calls_size\": %llu, "
                 "\"system_calls_call\": %llu, \"histogram\": [",
                 record->system_calls, record->max_system_calls, record->system_calls_size,
                 record->system_calls_call);
    for (UInt i = 0; i < BUCKETS; i++) {
        VG_(fprintf)(file, "%s%llu", i > 0 ? ", " : "", record->histogram[i]);
    }
    VG_(fprintf)(file, "]}");
}

static void finish(Int status) {
    VgFile *const file = VG_(fopen)(option_out, VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY,
                                    VKI_S_IRUSR | VKI_S_IWUSR | VKI_S_IRGRP | VKI_S_IROTH);
    if (file == NULL) {
        VG_(message)(Vg_UserMsg, "callcost: cannot write %s\n", option_out);
        return;
    }
    VG_(fprintf)(file, "{\"status\": %d, \"bracket\": %llu, \"phases\": [", status,
                 bracket_instructions);
    for (UInt i = 0; i < phase_count; i++) {
        VG_(fprintf)(file, "%s\n{\"name\": \"%s\", \"steady\": %s, \"operations\": {",
                     i > 0 ? "," : "", phases[i].name, phases[i].steady ? "true" : "false");
        Bool first = True;
        for (UInt j = 1; j < CALLCOST_OPERATION_COUNT; j++) {
            if (phases[i].records[j].calls > 0) {
                VG_(fprintf)(file, "%s\n  ", first ? "" : ",");
                print_record(file, operation_names[j], &phases[i].records[j]);
                first = False;
            }
        }
        VG_(fprintf)(file, "}}");
    }
    VG_(fprintf)(file, "]}\n");
    VG_(fclose)(file);
}

static void thread_ends(ThreadId tid) {
    if (threads[tid].open) {
        call_end(tid);
    }
    threads[tid] = (struct thread){0};
}

// ---- Start --------------------------------------------------------------------------------------

static Bool option(const HChar *argument) {
    if (VG_STR_CLO(argument, "--callcost-out", option_out)) {
        return True;
    }
    if (VG_STR_CLO(argument, "--callcost-explain", option_explain)) {
        const HChar *rest = option_explain;
        while (VG_(isdigit)(*rest) && explained_count < EXPLAINED_MAX) {
            HChar *end;
            explained[explained_count++] = (ULong)VG_(strtoll10)(rest, &end);
            rest = *end == ',' ? end + 1 : end;
        }
        return True;
    }
    if (VG_INT_CLO(argument, "--callcost-explain-above", option_explain_above)) {
        return True;
    }
    return False;
}

static void usage(void) {
    VG_(printf)("    --callcost-out=<file>      where the figures go, as JSON [callcost.json]\n"
                "    --callcost-explain=<call,...>  print the functions and system calls of calls\n"
                "    --callcost-explain-above=<n>   of every call that is the worst of its kind so far,\n"
                "                                   and worse than so many instructions\n");
}

static void debug_usage(void) {
    VG_(printf)("    (none)\n");
}

static void begin(void) {
}

static void before_options(void) {
    VG_(details_name)("callcost");
    VG_(details_version)(NULL);
    VG_(details_description)("instructions and system calls of every single allocator call");
    VG_(details_copyright_author)("the authors of mallow.");
    VG_(details_bug_reports_to)("the authors of mallow");
    VG_(basic_tool_funcs)(begin, instrument, finish);
    VG_(needs_command_line_options)(option, usage, debug_usage);
    VG_(needs_client_requests)(request);
    VG_(needs_syscall_wrapper)(before_system_call, after_system_call);
    VG_(track_start_client_code)(thread_let_run);
    VG_(track_stop_client_code)(thread_stop);
    VG_(track_pre_thread_ll_exit)(thread_ends);
}

VG_DETERMINE_INTERFACE_VERSION(before_options)
