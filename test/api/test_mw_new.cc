// SPDX-License-Identifier: MIT
// The header in C++: it compiles there, the typed macros give typed pointers, and mw_new and its kin
// behave as operator new does.
#pragma GCC diagnostic error "-Wold-style-cast" // of macros, too: programs may have it as an error
#include <mallow/mallow.h>
#include <mallow/observe.h>
#include <mallow/options.h>
#include <mallow/pool.h>

#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "check.h"

struct point {
    double x, y, z;
};

template <typename Call> static bool throws_bad_alloc(Call call)
{
    try {
        (void)call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static int handler_calls;

static void give_up_after_three()
{
    if (++handler_calls == 3) {
        std::set_new_handler(nullptr);
    }
}

template <typename Call> static void expect_three_calls(Call call)
{
    handler_calls = 0;
    std::set_new_handler(give_up_after_three);
    call();
    CHECK(handler_calls == 3);
}

int main()
{
    static_assert(MW_POOL_PERCENT(60) == 600000, "a constant");
    CHECK(MW_POOL_PERCENT(98.86) == 988600);
    point *const one = mw_malloc_tp(point);
    point *const zeroed = mw_zalloc_tp(point);
    point *many = mw_calloc_tp(point, 10);
    CHECK(zeroed->x == 0 && many[9].z == 0);
    many = mw_recalloc_tp(many, point, 1000);
    CHECK(many[999].z == 0);
    point *counted = mw_mallocn_tp(point, 5);
    counted[4].y = 2;
    counted = mw_reallocn_tp(counted, point, 5000);
    CHECK(counted[4].y == 2);
    mw_free(one);
    mw_free(zeroed);
    mw_free(many);
    mw_free(counted);

    void *block = mw_new(100);
    CHECK(mw_is_owned(block));
    block = mw_new_realloc(block, 100000);
    block = mw_new_reallocn(block, 1000, 1000);
    CHECK(mw_usable_size(block) >= 1000000);
    mw_free(block);
    block = mw_new_aligned(100, 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
    mw_free(block);
    static const std::size_t no_powers_of_two[] = {0, 3, 6, 24, 48, 1000};
    for (const std::size_t alignment : no_powers_of_two) {
        CHECK(throws_bad_alloc([=] { return mw_new_aligned(100, alignment); }));
        CHECK(mw_new_aligned_nothrow(100, alignment) == nullptr);
        std::set_new_handler(give_up_after_three); // has nothing to do with memory: not called
        handler_calls = 0;
        CHECK(throws_bad_alloc([=] { return mw_new_aligned(100, alignment); }));
        CHECK(mw_new_aligned_nothrow(100, alignment) == nullptr);
        CHECK(handler_calls == 0);
        std::set_new_handler(nullptr);
    }
    block = mw_new_n(10, 10);
    const std::size_t huge = SIZE_MAX / 2;
    CHECK(throws_bad_alloc([=] { return mw_new(huge); }));
    CHECK(throws_bad_alloc([=] { return mw_new_n(huge, 4); }));
    CHECK(throws_bad_alloc([=] { return mw_new_aligned(huge, 64); }));
    CHECK(throws_bad_alloc([=] { return mw_new_realloc(block, huge); }));
    CHECK(throws_bad_alloc([=] { return mw_new_reallocn(block, huge, 2); }));
    CHECK(mw_is_owned(block));
    expect_three_calls([=] { CHECK(throws_bad_alloc([=] { return mw_new(huge); })); });
    expect_three_calls([=] { CHECK(throws_bad_alloc([=] { return mw_new_realloc(block, huge); })); });
    expect_three_calls([=] { CHECK(mw_new_nothrow(huge) == nullptr); });
    expect_three_calls([=] { CHECK(mw_new_aligned_nothrow(huge, 64) == nullptr); });
    mw_free(block);
    std::puts("the header and mw_new are in order");
    return 0;
}
