// SPDX-License-Identifier: MIT
// Remote frees of one slab: the protocol of slab_remote.h step by step, and with threads.
#include "slab/slab_remote.h"

#include <pthread.h>

#include "../unit.h"
#include "slab/size_class.h"

static struct slab slots[8];
static struct slab *const slab = &slots[0];
static struct slab_remote part;
static struct slab_remote *const remote = &part;

static const uintptr_t heap_a = 0x123000;
static const uintptr_t span_address = UINT64_C(0x7a0000000000);

// A slab that is full, on no queue, of blocks of 64 bytes: 1,024 less the colour's.
static void begin(void) {
    memset(slots, 0, sizeof slots);
    memset(&part, 0, sizeof part);
    slab_init(slab, span_address, size_class_of(64), size_class_slices(size_class_of(64)),
              heap_a | SLAB_OWNER_FULL);
    while (slab_open(slab, 4096)) {
    }
    uintptr_t address;
    do {
        while (slab_take(slab, &address)) {
        }
    } while (slab_find_word(slab));
    slab->last = 0;
    assert_int_equal(slab->used_count, slab->capacity_count);
}

static bool pending(void) {
    return (slab_owner(slab) & SLAB_OWNER_PENDING) != 0;
}

static bool posted(void) {
    return atomic_load(&remote->posted) != 0;
}

CASE(a_block_can_be_set_once_until_it_is_collected) {
    begin();
    for (size_t index = 0; index < slab->capacity_count; index++) {
        assert_true(slab_remote_set(remote, index));
        assert_false(slab_remote_set(remote, index));
    }
    size_t twice = 0;
    assert_int_equal(slab_remote_collect(slab, remote, &twice), slab->capacity_count);
    slab->bits[0] &= ~UINT64_C(1); // block 0 is handed out again
    assert_true(slab_remote_set(remote, 0));
}

CASE(the_first_set_is_to_be_posted_and_the_next_ones_are_not) {
    begin();
    assert_false(pending());
    assert_true(slab_remote_set(remote, 5));
    assert_true(slab_remote_claim_post(slab, remote));
    assert_true(pending());
    assert_true(posted());
    assert_ptr_equal(remote->slab, slab);
    assert_int_equal(slab_owner_heap(slab), heap_a);
    assert_true((slab_owner(slab) & SLAB_OWNER_FULL) != 0);
    assert_true(slab_remote_set(remote, 6));
    assert_false(slab_remote_claim_post(slab, remote));
}

CASE(a_slab_collected_but_still_posted_becomes_pending_and_is_not_posted_twice) {
    begin();
    size_t twice = 0;
    assert_true(slab_remote_set(remote, 5));
    assert_true(slab_remote_claim_post(slab, remote));
    // c and d at a slow free of the owner's: the post is still on its way.
    assert_int_equal(slab_remote_collect(slab, remote, &twice), 1);
    assert_false(pending());
    assert_true(posted());
    assert_true(slab_remote_set(remote, 6));
    assert_false(slab_remote_claim_post(slab, remote));
    assert_true(pending());
    // b, c and d: the post is handled.
    atomic_store(&remote->posted, 0);
    assert_int_equal(slab_remote_collect(slab, remote, &twice), 1);
    assert_true(slab_remote_set(remote, 7));
    assert_true(slab_remote_claim_post(slab, remote));
}

CASE(a_free_between_b_and_d_is_either_collected_or_posted_anew) {
    begin();
    size_t twice = 0;
    assert_true(slab_remote_set(remote, 1));
    assert_true(slab_remote_claim_post(slab, remote));
    atomic_store(&remote->posted, 0); // b; it is pending still, so the next free relies on d
    assert_true(slab_remote_set(remote, 2));
    assert_false(slab_remote_claim_post(slab, remote));
    assert_int_equal(slab_remote_collect(slab, remote, &twice), 2);
    assert_false(slab_remote_any(remote, MALLOW_SLAB_WORDS));
}

CASE(collecting_moves_every_bit_and_counts_it) {
    begin();
    size_t twice = 0;
    assert_int_equal(slab_remote_collect(slab, remote, &twice), 0);
    for (size_t index = 0; index < slab->capacity_count; index += 7) {
        assert_true(slab_remote_set(remote, index));
    }
    assert_true(slab_remote_any(remote, slab->word_count));
    const int expected = (slab->capacity_count + 6) / 7;
    assert_int_equal(slab_remote_collect(slab, remote, &twice), expected);
    assert_false(slab_remote_any(remote, slab->word_count));
    assert_int_equal(slab->used_count, slab->capacity_count - expected);
    for (size_t index = 0; index < slab->capacity_count; index++) {
        assert_int_equal(slab_is_free(slab, index), index % 7 == 0);
    }
    (void)slab_find_word(slab);
    assert_true(slab_audit(slab));
}

CASE(what_a_collection_has_no_words_left_for_stays_and_is_to_be_posted_again) {
    begin();
    size_t twice = 0;
    unsigned word_count = 0;
    for (size_t index = 0; index < slab->capacity_count; index += 64, word_count++) {
        assert_true(slab_remote_set(remote, index));
    }
    assert_true(word_count > 4 && slab_remote_claim_post(slab, remote));
    atomic_store(&remote->posted, 0);
    int words = 3;
    bool left = false;
    assert_int_equal(slab_remote_collect_some(slab, remote, &words, &left, &twice), 3);
    assert_true(left && words == 0 && !pending());
    assert_true(slab_is_free(slab, 128) && !slab_is_free(slab, 192));
    assert_int_equal(slab->used_count, slab->capacity_count - 3);
    assert_true(slab_remote_claim_post(slab, remote));
    words = (int)word_count;
    assert_int_equal(slab_remote_collect_some(slab, remote, &words, &left, &twice),
                     word_count - 3);
    assert_true(!left && words == 3);
    assert_false(slab_remote_any(remote, MALLOW_SLAB_WORDS));
}

CASE(a_block_that_its_owner_has_freed_as_well_is_named_by_the_collection) {
    for (size_t index = 0;; index++) {
        begin();
        if (index >= slab->capacity_count) {
            break;
        }
        size_t twice = SIZE_MAX;
        slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
        slab->used_count--;
        assert_true(slab_remote_set(remote, index));
        assert_int_equal(slab_remote_collect(slab, remote, &twice), -1);
        assert_int_equal(twice, index);
    }
}

CASE(a_hot_block_that_another_thread_frees_is_a_double_free_too) {
    begin();
    size_t twice = SIZE_MAX;
    slab->used_count += SLAB_CURRENT;
    slab_set_last(slab, slab->start_address + 9 * slab->block_bytes);
    slab_set_hot(slab, true);
    assert_true(slab_remote_set(remote, 9));
    assert_int_equal(slab_remote_collect(slab, remote, &twice), -1);
    assert_int_equal(twice, 9);
}

CASE(a_block_is_free_to_others_if_its_bit_is_set_or_it_is_hot_or_pending) {
    begin();
    assert_false(slab_remote_is_free(slab, remote, 70));
    slab->bits[1] |= UINT64_C(1) << 6;
    assert_true(slab_remote_is_free(slab, remote, 70));
    assert_false(slab_remote_is_free(slab, remote, 6));
    assert_false(slab_remote_is_free(slab, remote, 71));
    slab_set_last(slab, slab->start_address + 71 * slab->block_bytes);
    assert_false(slab_remote_is_free(slab, remote, 71)); // only handed out last
    slab_set_hot(slab, true);
    assert_true(slab_remote_is_free(slab, remote, 71));
    slab_set_hot(slab, false);
    assert_true(slab_remote_set(remote, 72));
    assert_true(slab_remote_claim_post(slab, remote));
    assert_true(slab_remote_is_free(slab, remote, 72));
    assert_false(slab_remote_is_free(slab, remote, 73));
}

// ---- Threads: each frees its share; the owner acts on posts alone -------------------------------

enum { THREADS = 4, ROUNDS = 60 };
static _Atomic(int) post_count; // stands for the heap's stack
static _Atomic(int) running;
static _Atomic(bool) went_wrong;

static void *free_share(void *argument) {
    const size_t mine = (size_t)(uintptr_t)argument;
    for (size_t index = mine; index < slab->capacity_count; index += THREADS) {
        if (!slab_remote_set(remote, index)) {
            atomic_store(&went_wrong, true);
        }
        if (slab_remote_claim_post(slab, remote)) {
            atomic_fetch_add(&post_count, 1);
        }
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static unsigned handle_posts(void) {
    unsigned collected = 0;
    while (atomic_load(&post_count) > 0) {
        size_t twice;
        if (atomic_fetch_sub(&post_count, 1) > 1) {
            atomic_store(&went_wrong, true); // on the stack twice
        }
        atomic_store(&remote->posted, 0);
        const int count = slab_remote_collect(slab, remote, &twice);
        if (count < 0) {
            atomic_store(&went_wrong, true);
            return collected;
        }
        collected += (unsigned)count;
    }
    return collected;
}

CASE(no_free_is_lost_and_no_slab_is_posted_twice_when_threads_free_and_the_owner_collects) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        begin();
        pthread_t threads[THREADS];
        atomic_store(&running, THREADS);
        for (size_t i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, free_share, (void *)i), 0);
        }
        unsigned collected = 0;
        while (atomic_load(&running) > 0) {
            collected += handle_posts();
        }
        for (size_t i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        collected += handle_posts();
        assert_false(atomic_load(&went_wrong));
        assert_int_equal(collected, slab->capacity_count);
        assert_int_equal(slab->used_count, 0);
        assert_true(slab_is_unused(slab));
        assert_false(slab_remote_any(remote, MALLOW_SLAB_WORDS));
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_block_can_be_set_once_until_it_is_collected),
        cmocka_unit_test(the_first_set_is_to_be_posted_and_the_next_ones_are_not),
        cmocka_unit_test(a_slab_collected_but_still_posted_becomes_pending_and_is_not_posted_twice),
        cmocka_unit_test(a_free_between_b_and_d_is_either_collected_or_posted_anew),
        cmocka_unit_test(collecting_moves_every_bit_and_counts_it),
        cmocka_unit_test(what_a_collection_has_no_words_left_for_stays_and_is_to_be_posted_again),
        cmocka_unit_test(a_block_that_its_owner_has_freed_as_well_is_named_by_the_collection),
        cmocka_unit_test(a_hot_block_that_another_thread_frees_is_a_double_free_too),
        cmocka_unit_test(a_block_is_free_to_others_if_its_bit_is_set_or_it_is_hot_or_pending),
        cmocka_unit_test(
            no_free_is_lost_and_no_slab_is_posted_twice_when_threads_free_and_the_owner_collects),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
