// SPDX-License-Identifier: MIT
// Compiler: attributes and hints, the only place that knows which compiler this is.
#ifndef MALLOW_BASE_COMPILER_H
#define MALLOW_BASE_COMPILER_H

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

// A slow twin: kept out of the caller's code and out of its cache lines.
#define MALLOW_COLD __attribute__((noinline, cold))
// A fast path: begins at a line of the cache, so that its speed does not depend on what the linker
// or an edit elsewhere puts in front of it.
#define MALLOW_FAST __attribute__((aligned(64)))
#define MALLOW_NOINLINE __attribute__((noinline))
#define MALLOW_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define MALLOW_NO_FOLD
#else
#define MALLOW_NO_FOLD __attribute__((no_icf)) // not to become a jump to a twin
#endif
#define MALLOW_UNROLL_8 _Pragma("GCC unroll 8") // the loop that follows
#define MALLOW_NORETURN __attribute__((noreturn))

// Asks for the line of `place`, which will be written to soon: an atomic operation waits for its
// line, and for all before it; this waits for nothing.
#if defined(__x86_64__)
#define compiler_prefetch_write(place) __asm__ volatile("prefetchw %0" : : "m"(place))
#else
#define compiler_prefetch_write(place) __builtin_prefetch(&(place), 1)
#endif

// Makes the compiler forget what it knows of a variable. No instruction.
#define compiler_forget(variable) __asm__("" : "+r"(variable))

// Makes a 64-bit place 0, by one instruction: the compiler may take two that are shorter together.
#if defined(__x86_64__) && defined(__LP64__)
#define compiler_clear(place) __asm__("movq $0, %0" : "=m"(place))
#else
#define compiler_clear(place) ((place) = 0)
#endif

// Flips bits of a 64-bit place; whether none is left. One instruction and a branch, where compilers
// read, change, write and compare.
#if defined(__x86_64__) && defined(__GCC_ASM_FLAG_OUTPUTS__)
#define compiler_flip_to_zero(place, bits)                                          \
    __extension__({                                                                 \
        bool is_zero_;                                                              \
        __asm__("xorq %2, %0" : "+m"(place), "=@ccz"(is_zero_) : "r"(bits));        \
        is_zero_;                                                                   \
    })
#else
#define compiler_flip_to_zero(place, bits) (((place) ^= (bits)) == 0)
#endif

// Counters that their owner writes plainly and that a snapshot reads from another thread: exact to
// within the calls in flight, which is what a snapshot promises.
#if defined(__SANITIZE_THREAD__)
#define MALLOW_RACY_READ __attribute__((no_sanitize("thread"), noinline))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MALLOW_RACY_READ __attribute__((no_sanitize("thread"), noinline))
#endif
#endif
#ifndef MALLOW_RACY_READ
#define MALLOW_RACY_READ
#define MALLOW_PLAIN_ACCESS // no sanitizer looks at single accesses
// A relaxed load that the compiler may fold into the instruction that uses it; it does not do so
// for C11 atomics. One aligned word (or byte), so there is nothing to tear.
#define compiler_relaxed_word(pointer) (*(const uintptr_t *)(const void *)(pointer))
#define compiler_relaxed_byte(pointer) (*(const uint8_t *)(const void *)(pointer))
#define compiler_relaxed_plain(pointer) (*(pointer)) // of what is not _Atomic
#else
#define compiler_relaxed_word(pointer) atomic_load_explicit((pointer), memory_order_relaxed)
#define compiler_relaxed_byte(pointer) atomic_load_explicit((pointer), memory_order_relaxed)
#define compiler_relaxed_plain(pointer) __atomic_load_n((pointer), __ATOMIC_RELAXED)
#endif

// Takes bits that are set out of an element of an array of 64-bit atomics, as seq_cst does; whether
// none is left. The compiler computes its address apart, by an instruction more.
#if defined(__x86_64__) && defined(MALLOW_PLAIN_ACCESS)
#define compiler_take_all(array, index, bits)                                                      \
    __extension__({                                                                                \
        bool is_zero_;                                                                             \
        __asm__ volatile("lock xorq %3, (%1,%2,8)"                                                 \
                         : "=@ccz"(is_zero_)                                                       \
                         : "r"(array), "r"((uint64_t)(index)), "r"(bits)                           \
                         : "memory");                                                              \
        is_zero_;                                                                                  \
    })
#else
#define compiler_take_all(array, index, bits)                                                      \
    (atomic_fetch_and(&(array)[index], ~(bits)) == (bits))
#endif

// Sets a bit of a bitmap, an array of 64-bit atomics, as seq_cst does; whether it was set. The
// instruction finds the word itself; the compiler has it find the bit alone.
#if defined(__x86_64__) && defined(MALLOW_PLAIN_ACCESS)
#define compiler_set_bit(array, index)                                                             \
    __extension__({                                                                                \
        bool was_set_;                                                                             \
        __asm__ volatile("lock btsq %2, (%1)"                                                      \
                         : "=@ccc"(was_set_)                                                       \
                         : "r"(array), "r"((uint64_t)(index))                                      \
                         : "memory");                                                              \
        was_set_;                                                                                  \
    })
#else
#define compiler_set_bit(array, index)                                                             \
    ((atomic_fetch_or_explicit(&(array)[(index) / 64], UINT64_C(1) << ((index) % 64),              \
                               memory_order_seq_cst) >>                                            \
      ((index) % 64) & 1U) != 0)
#endif

#endif
