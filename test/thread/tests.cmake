# SPDX-License-Identifier: MIT
mallow_both(thread.remote check thread/test_remote.c)
mallow_both(thread.churn full thread/test_churn.c)
mallow_both(thread.first_calls check thread/test_first_calls.c)
mallow_linked(thread.options check thread/test_options.c)
mallow_linked(thread.moves "check;native" thread/test_moves.c)
mallow_linked(thread.secondary_moves check thread/test_secondary_moves.c)
set_property(TEST thread.secondary_moves APPEND PROPERTY ENVIRONMENT MALLOW_ARENA_RESERVE=8M)
mallow_both(thread.many "check;native" thread/test_many.c)
# qemu 7.2 keeps address space of every mremap that fails: with blocks of this size it runs out in seconds.
mallow_both(thread.signal "check;native" thread/test_signal.c)

# ThreadSanitizer follows neither a fork of a threaded program nor code that runs after its own end of a
# thread.
if(NOT MALLOW_SANITIZE STREQUAL thread)
    # Who asks about a block that another thread frees reads what that writes.
    mallow_linked(thread.questions check thread/test_questions.c)
    mallow_add(thread.questions_secondary check thread_questions)
    set_tests_properties(thread.questions_secondary PROPERTIES ENVIRONMENT MALLOW_ARENA_RESERVE=2M)
    mallow_both(thread.thread_end check thread/test_thread_end.c)
    mallow_both(thread.fork full thread/test_fork.c)
    # Where a fork meets a thread that is just starting, a lock that is not ours stays held in the child: that of
    # libasan's allocator, or of qemu's clone. The test starts none at that time; nor do we there.
    if(MALLOW_SANITIZE)
        set_property(TEST thread.fork.mw APPEND PROPERTY ENVIRONMENT MALLOW_BACKGROUND=0)
    elseif(CMAKE_CROSSCOMPILING)
        set_property(TEST thread.fork.mw thread.fork.libc APPEND PROPERTY ENVIRONMENT MALLOW_BACKGROUND=0)
    endif()
    mallow_both(thread.fork_in_handler check thread/test_fork_in_handler.c)
    # Without the thread of the allocator's own, in which no handler may run: its work falls to the program's.
    mallow_both(thread.fork_at_calls "check;native" thread/test_fork_at_calls.c)
    set_property(TEST thread.fork_at_calls.mw APPEND PROPERTY ENVIRONMENT MALLOW_BACKGROUND=0)
    if(NOT MALLOW_SANITIZE)
        set_property(TEST thread.fork_at_calls.libc APPEND PROPERTY ENVIRONMENT MALLOW_BACKGROUND=0)
    endif()
endif()
