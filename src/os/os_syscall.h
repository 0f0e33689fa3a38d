// SPDX-License-Identifier: MIT
// System calls without libc: the result is the kernel's, a value or -errno, so errno is never
// touched and the calls work before libc is ready. One file, because the two instructions are all
// that differs.
#ifndef MALLOW_OS_SYSCALL_H
#define MALLOW_OS_SYSCALL_H

#include <sys/syscall.h>

#include "base/compiler.h"

#if defined(__x86_64__)
MALLOW_INLINE long os_syscall6(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
MALLOW_INLINE long os_syscall6(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "mallow runs on Linux x86-64 and arm64"
#endif

#endif
