// SPDX-License-Identifier: MIT
// What a program tells callcost (callcost_tool.c): which phase it is in, and where each call of the
// allocator that is to be counted begins and ends. Outside valgrind the requests do nothing.
#ifndef CALLCOST_H
#define CALLCOST_H

#include <valgrind/valgrind.h>

enum callcost_request {
    CALLCOST_PHASE = VG_USERREQ_TOOL_BASE('M', 'W'), // name, 1 if steady: a string that stays
    CALLCOST_BEGIN,                                  // operation, size
    CALLCOST_END,
    CALLCOST_MOVER,     // first and last byte of code that copies or zeroes the caller's bytes
    CALLCOST_UNTIL_END, // as BEGIN; ends when the thread does
};

enum callcost_operation {
    CALLCOST_NOTHING, // an empty bracket: what the brackets themselves cost
    CALLCOST_MALLOC,
    CALLCOST_FREE,
    CALLCOST_CALLOC,
    CALLCOST_REALLOC,
    CALLCOST_ALIGNED_ALLOC,
    CALLCOST_THREAD_END,
    CALLCOST_OPERATION_COUNT,
};

#define CALLCOST_REQUEST(request, first, second)                                                   \
    VALGRIND_DO_CLIENT_REQUEST_STMT((request), (first), (second), 0, 0, 0)

#endif
