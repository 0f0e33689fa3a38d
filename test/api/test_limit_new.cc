// SPDX-License-Identifier: MIT
// operator new under a hard limit (MALLOW_LIMIT, in the environment): bad_alloc is thrown and caught by many
// threads, the containers stay whole, a new_handler that frees something is enough, and the program runs on.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);          \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static constexpr size_t mib = size_t(1) << 20;

// Grows until bad_alloc, handles it with strings and exceptions of its own, and begins again.
static void grow_and_unwind(int rounds, int *thrown)
{
    for (int round = 0; round < rounds; round++) {
        std::map<int, std::string> held;
        std::vector<int> vector;
        try {
            for (int i = 0;; i++) {
                held.emplace(i, std::string(1000 + size_t(i) * 37 % 50000, char('a' + i % 26)));
                vector.push_back(i);
            }
        } catch (const std::bad_alloc &) {
            ++*thrown;
            try {
                std::string message = "out of memory in round ";
                message += std::to_string(round) + ", with so much held: " + std::to_string(held.size());
                throw std::runtime_error(message);
            } catch (const std::runtime_error &error) {
                CHECK(std::string(error.what()).size() > 40);
            } catch (const std::bad_alloc &) {
                CHECK(!"nothing left to unwind with");
            }
        }
        for (const auto &[key, text] : held) {
            CHECK(text.size() == 1000 + size_t(key) * 37 % 50000);
            CHECK(text.front() == char('a' + key % 26) && text.back() == text.front());
        }
    }
}

static std::vector<std::unique_ptr<char[]>> ballast;
static int handled;

static void drop_ballast()
{
    handled++;
    if (ballast.empty()) {
        std::set_new_handler(nullptr);
    } else {
        ballast.pop_back();
    }
}

// The first bad_alloc comes while there is a reserve for who handles it: a thread that has been refused once is served.
static void the_first_exception_leaves_the_reserve()
{
    static char *blocks[1000];
    int count = 0;
    bool threw = false;
    try {
        while (count < 1000) {
            blocks[count] = new char[100000];
            count++;
        }
    } catch (const std::bad_alloc &) {
        threw = true;
    }
    char *const message = threw ? static_cast<char *>(malloc(100000)) : nullptr;
    CHECK(!threw || message != nullptr); // where there is no limit, nothing is thrown
    free(message);
    while (count > 0) {
        delete[] blocks[--count];
    }
}

int main()
{
    the_first_exception_leaves_the_reserve();
    int thrown[8] = {};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back(grow_and_unwind, 20, &thrown[i]);
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (int count : thrown) {
        CHECK(count == 20);
    }
    // A handler that frees: no exception until there is nothing left to free.
    for (int i = 0; i < 8; i++) {
        ballast.push_back(std::make_unique<char[]>(2 * mib));
    }
    std::set_new_handler(drop_ballast);
    std::vector<std::unique_ptr<char[]>> blocks;
    bool threw = false;
    try {
        for (;;) {
            blocks.push_back(std::make_unique<char[]>(2 * mib));
        }
    } catch (const std::bad_alloc &) {
        threw = true;
    }
    CHECK(threw && ballast.empty() && handled >= 8);
    CHECK(blocks.size() * 2 * mib > 16 * mib);
    CHECK(new (std::nothrow) char[2 * mib] == nullptr);
    blocks.clear();
    blocks.push_back(std::make_unique<char[]>(20 * mib));
    printf("bad_alloc 8 times 20; %d calls of the handler\n", handled);
    return 0;
}
