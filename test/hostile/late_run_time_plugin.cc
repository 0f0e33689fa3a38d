// SPDX-License-Identifier: MIT
// The plugin of late_run_time.c: asks operator new for what cannot be, in every form.
#include <cstddef>
#include <cstdint>
#include <new>

static volatile std::size_t impossible = SIZE_MAX / 4;
static constexpr auto PAGE = std::align_val_t{4096};
static void *volatile block;
static int handled;

static void give_up()
{
    handled++;
    std::set_new_handler(nullptr);
}

static void throw_other()
{
    handled++;
    throw std::bad_alloc();
}

template <typename Function> static bool throws(Function function)
{
    try {
        block = function();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static const char *failure_with(std::new_handler handler, int calls)
{
    const auto asks = [&](auto function) {
        handled = 0;
        std::set_new_handler(handler);
        const bool result = function();
        std::set_new_handler(nullptr);
        return result && handled == calls;
    };
    if (!asks([] { return throws([] { return ::operator new(impossible); }); })) {
        return "new";
    }
    if (!asks([] { return throws([] { return ::operator new[](impossible); }); })) {
        return "new[]";
    }
    if (!asks([] { return throws([] { return ::operator new(impossible, PAGE); }); })) {
        return "aligned new";
    }
    if (!asks([] { return throws([] { return ::operator new[](impossible, PAGE); }); })) {
        return "aligned new[]";
    }
    if (!asks([] { return ::operator new(impossible, std::nothrow) == nullptr; })) {
        return "nothrow new";
    }
    if (!asks([] { return ::operator new[](impossible, PAGE, std::nothrow) == nullptr; })) {
        return "aligned nothrow new[]";
    }
    return nullptr;
}

extern "C" const char *plugin_failure();
extern "C" const char *plugin_failure()
{
    const char *what = failure_with(nullptr, 0);
    what = what != nullptr ? what : failure_with(give_up, 1);
    what = what != nullptr ? what : failure_with(throw_other, 1);
    delete[] new char[100];
    return what;
}
