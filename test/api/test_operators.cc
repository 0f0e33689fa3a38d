// SPDX-License-Identifier: MIT
// The 20 replaceable operators new and delete: served by the preloaded allocator, aligned, sized,
// throwing and not throwing, with the new_handler loop of [new.delete.single].
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

using is_owned_function = bool (*)(const void *);
static is_owned_function is_owned; // null where the test runs without preloading

template <typename Value> static Value opaque(Value value)
{
    asm volatile("" : "+r"(value));
    return value;
}

static void *usable(void *block, std::size_t size, std::size_t alignment)
{
    CHECK(block != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
    CHECK(is_owned == nullptr || is_owned(block));
    std::memset(block, 0x3c, size);
    return opaque(block);
}

static void all_twenty_operators_meet(std::size_t size)
{
    using std::align_val_t;
    constexpr std::size_t default_alignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
    ::operator delete(usable(::operator new(size), size, default_alignment));
    ::operator delete(usable(::operator new(size), size, default_alignment), size);
    ::operator delete(usable(::operator new(size, std::nothrow), size, default_alignment), std::nothrow);
    ::operator delete[](usable(::operator new[](size), size, default_alignment));
    ::operator delete[](usable(::operator new[](size), size, default_alignment), size);
    ::operator delete[](usable(::operator new[](size, std::nothrow), size, default_alignment), std::nothrow);
    for (std::size_t alignment = 1; alignment <= std::size_t{4} << 20; alignment *= 2) {
        const auto value = align_val_t{alignment};
        ::operator delete(usable(::operator new(size, value), size, alignment), value);
        ::operator delete(usable(::operator new(size, value), size, alignment), size, value);
        ::operator delete(usable(::operator new(size, value, std::nothrow), size, alignment), value, std::nothrow);
        ::operator delete[](usable(::operator new[](size, value), size, alignment), value);
        ::operator delete[](usable(::operator new[](size, value), size, alignment), size, value);
        ::operator delete[](usable(::operator new[](size, value, std::nothrow), size, alignment), value,
                            std::nothrow);
    }
}

static void null_may_be_deleted()
{
    void *const volatile none = nullptr;
    ::operator delete(none);
    ::operator delete(none, std::size_t{8});
    ::operator delete(none, std::align_val_t{64});
    ::operator delete(none, std::size_t{8}, std::align_val_t{64});
    ::operator delete[](none);
    ::operator delete[](none, std::nothrow);
    ::operator delete[](none, std::align_val_t{64}, std::nothrow);
}

template <typename Call> static bool throws_bad_alloc(Call call)
{
    try {
        (void)call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static const std::size_t impossible[] = {SIZE_MAX, SIZE_MAX - 64, SIZE_MAX / 2 + 1, SIZE_MAX / 2, std::size_t{1} << 56};

static void impossible_sizes_throw_or_return_null()
{
    for (const std::size_t given : impossible) {
        const std::size_t size = opaque(given);
        CHECK(throws_bad_alloc([=] { return ::operator new(size); }));
        CHECK(throws_bad_alloc([=] { return ::operator new[](size); }));
        CHECK(throws_bad_alloc([=] { return ::operator new(size, std::align_val_t{64}); }));
        CHECK(throws_bad_alloc([=] { return ::operator new[](size, std::align_val_t{8192}); }));
        CHECK(::operator new(size, std::nothrow) == nullptr);
        CHECK(::operator new[](size, std::nothrow) == nullptr);
        CHECK(::operator new(size, std::align_val_t{64}, std::nothrow) == nullptr);
        CHECK(::operator new[](size, std::align_val_t{8192}, std::nothrow) == nullptr);
    }
    CHECK(throws_bad_alloc([] { return opaque(new char[opaque(SIZE_MAX / 2)]); }));
}

static int handler_calls;

static void handler_that_gives_up_after_three()
{
    if (++handler_calls == 3) {
        std::set_new_handler(nullptr);
    }
}

static void handler_that_throws()
{
    handler_calls++;
    throw std::bad_alloc();
}

static void the_new_handler_is_called_until_it_gives_up()
{
    const std::size_t size = opaque(SIZE_MAX / 2);
    auto expect_three = [](auto call) {
        handler_calls = 0;
        std::set_new_handler(handler_that_gives_up_after_three);
        call();
        CHECK(handler_calls == 3);
        CHECK(std::get_new_handler() == nullptr);
    };
    expect_three([=] { CHECK(throws_bad_alloc([=] { return ::operator new(size); })); });
    expect_three([=] { CHECK(throws_bad_alloc([=] { return ::operator new[](size); })); });
    expect_three([=] { CHECK(throws_bad_alloc([=] { return ::operator new(size, std::align_val_t{256}); })); });
    expect_three([=] { CHECK(::operator new(size, std::nothrow) == nullptr); });
    expect_three([=] { CHECK(::operator new[](size, std::align_val_t{256}, std::nothrow) == nullptr); });

    handler_calls = 0;
    std::set_new_handler(handler_that_throws);
    CHECK(throws_bad_alloc([=] { return ::operator new(size); }));
    CHECK(::operator new(size, std::nothrow) == nullptr); // the throw stays inside
    CHECK(::operator new[](size, std::align_val_t{64}, std::nothrow) == nullptr);
    CHECK(handler_calls == 3);
    std::set_new_handler(nullptr);
}

static void *reserve;

static void handler_that_frees_the_reserve()
{
    handler_calls++;
    std::free(reserve);
    reserve = nullptr;
    std::set_new_handler(nullptr);
}

// A handler that makes memory available: the second attempt inside the same new must be made.
static void new_tries_again_after_the_handler()
{
    handler_calls = 0;
    reserve = std::malloc(100);
    std::set_new_handler(handler_that_frees_the_reserve);
    CHECK(throws_bad_alloc([] { return ::operator new(opaque(SIZE_MAX / 2)); }));
    CHECK(handler_calls == 1 && reserve == nullptr);
}

static void zero_sizes_give_distinct_blocks()
{
    void *const first = ::operator new(0);
    void *const second = ::operator new[](0);
    CHECK(first != nullptr && second != nullptr && first != second);
    ::operator delete(first);
    ::operator delete[](second);
}

struct alignas(128) over_aligned {
    char bytes[200];
};

static void the_language_uses_them()
{
    for (int round = 0; round < 100; round++) {
        auto objects = std::make_unique<over_aligned[]>(7);
        CHECK(reinterpret_cast<std::uintptr_t>(objects.get()) % 128 == 0);
        std::vector<std::string> texts;
        for (int i = 0; i < 200; i++) {
            texts.emplace_back(static_cast<std::size_t>(i), 'x');
        }
        std::thread worker([moved = std::move(texts)]() mutable { moved.clear(); });
        worker.join();
    }
}

int main()
{
    is_owned = reinterpret_cast<is_owned_function>(dlsym(RTLD_DEFAULT, "mw_is_owned"));
    for (const std::size_t size : {0, 1, 16, 100, 1000, 5000, 70000, 3000000}) {
        all_twenty_operators_meet(size);
    }
    null_may_be_deleted();
    impossible_sizes_throw_or_return_null();
    the_new_handler_is_called_until_it_gives_up();
    new_tries_again_after_the_handler();
    zero_sizes_give_distinct_blocks();
    the_language_uses_them();
    std::puts("all operators are in order");
    return 0;
}
