/* SPDX-License-Identifier: MIT
 *
 * The slot map: order of claims, lengths, and that stale claims and refused fills change nothing.
 */
#include "slots/slot_map.h"

#include "support/test.h"

static pkv_slots *slots_of(int32_t max_seqs, int32_t max_seq)
{
    pkv_slots *slots = NULL;
    ASSERT_STATUS(PKV_OK, pkv_slots_create(max_seqs, max_seq, NULL, &slots));
    CU_ASSERT_FATAL(slots != NULL);
    return slots;
}

static pkv_slot claim(pkv_slots *slots)
{
    pkv_slot slot = {0};
    ASSERT_STATUS(PKV_OK, pkv_slots_claim(slots, &slot));
    return slot;
}

static pkv_slot claim_of_length(pkv_slots *slots, int32_t length)
{
    const pkv_slot slot = claim(slots);
    ASSERT_STATUS(PKV_OK, pkv_slots_set_length(slots, slot, length));
    return slot;
}

static int32_t id_of(const pkv_slots *slots, pkv_slot slot)
{
    int32_t slot_id = -7;
    ASSERT_STATUS(PKV_OK, pkv_slots_id(slots, slot, &slot_id));
    return slot_id;
}

static int32_t length_of(const pkv_slots *slots, pkv_slot slot)
{
    int32_t length = -7;
    ASSERT_STATUS(PKV_OK, pkv_slots_length(slots, slot, &length));
    return length;
}

static void destroy_sound(pkv_slots *slots)
{
    CU_ASSERT_EQUAL(pkv_slots_check(slots), 0);
    pkv_slots_destroy(slots);
}

static void create_refuses_what_is_no_map(void)
{
    pkv_slots *const untouched = (pkv_slots *)&(int){0};
    pkv_slots *slots = untouched;
    struct test_memory memory = {0};
    struct pkv_hooks half = test_hooks(&memory);
    half.free = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_create(1, 1, NULL, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_create(0, 1, NULL, &slots));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_create(-1, 1, NULL, &slots));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_create(1, 0, NULL, &slots));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_create(1, -1, NULL, &slots));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_create(1, 1, &half, &slots));
    CU_ASSERT(slots == untouched && memory.calls == 0);
}

static void create_fails_cleanly_at_every_allocation(void)
{
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    pkv_slots *slots = NULL;
    long failures = 0;
    for (memory.fail_at = 1; pkv_slots_create(5, 9, &hooks, &slots) != PKV_OK;) {
        CU_ASSERT(slots == NULL && memory.live == 0 && memory.live_bytes == 0);
        memory.fail_at = ++failures + 1;
    }
    CU_ASSERT_EQUAL(failures, 6);
    destroy_sound(slots);
    CU_ASSERT(memory.live == 0 && memory.live_bytes == 0);
    pkv_slots_destroy(NULL);
}

static void the_slot_that_is_free_longest_is_claimed_with_length_zero(void)
{
    pkv_slots *slots = slots_of(3, 8);
    const pkv_slot a = claim_of_length(slots, 8);
    const pkv_slot b = claim(slots);
    CU_ASSERT(id_of(slots, a) == 0 && id_of(slots, b) == 1);
    CU_ASSERT_EQUAL(pkv_slots_num_free(slots), 1);
    ASSERT_STATUS(PKV_OK, pkv_slots_release(slots, a));
    const pkv_slot c = claim(slots);
    const pkv_slot d = claim(slots);
    CU_ASSERT(id_of(slots, c) == 2 && id_of(slots, d) == 0);
    CU_ASSERT_EQUAL(length_of(slots, d), 0);
    CU_ASSERT(a.id != d.id && a.id != 0 && d.id != 0);
    destroy_sound(slots);
}

static void claim_fails_cleanly_when_no_slot_is_free(void)
{
    pkv_slots *slots = slots_of(1, 8);
    const pkv_slot held = claim_of_length(slots, 5);
    pkv_slot slot = {77};
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_slots_claim(slots, &slot));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_claim(slots, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_claim(NULL, &slot));
    CU_ASSERT(slot.id == 77 && length_of(slots, held) == 5);
    ASSERT_STATUS(PKV_OK, pkv_slots_release(slots, held));
    ASSERT_STATUS(PKV_OK, pkv_slots_claim(slots, &slot));
    destroy_sound(slots);
}

static void assert_stale(pkv_slots *slots, pkv_slot slot)
{
    int32_t value = 77;
    int32_t slot_id = 77;
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_slots_id(slots, slot, &value));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_slots_length(slots, slot, &value));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_slots_set_length(slots, slot, 1));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_slots_fill(slots, &slot, NULL, 1, &slot_id, &value));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_slots_release(slots, slot));
    CU_ASSERT(value == 77 && slot_id == 77);
}

/* C5: the claim on a released slot never names its next owner. */
static void a_released_claim_is_stale_even_when_its_slot_has_a_new_owner(void)
{
    pkv_slots *slots = slots_of(1, 8);
    const pkv_slot old = claim_of_length(slots, 6);
    ASSERT_STATUS(PKV_OK, pkv_slots_release(slots, old));
    CU_ASSERT_EQUAL(slots->records[0].length, 0);
    assert_stale(slots, old);
    const pkv_slot new = claim(slots);
    CU_ASSERT_EQUAL(length_of(slots, new), 0);
    assert_stale(slots, old);
    CU_ASSERT(id_of(slots, new) == 0 && pkv_slots_num_free(slots) == 0);
    destroy_sound(slots);
}

/* C2, C5: no claim but one that was given out is followed, negative slots among them. */
static void a_claim_that_was_never_given_out_is_stale(void)
{
    pkv_slots *slots = slots_of(2, 8);
    const pkv_slot held = claim(slots);
    const uint64_t generation = held.id >> 32 << 32;
    assert_stale(slots, (pkv_slot){0});
    assert_stale(slots, (pkv_slot){UINT64_MAX});
    assert_stale(slots, (pkv_slot){generation | 1});           /* free, with its next generation */
    assert_stale(slots, (pkv_slot){generation | 2});           /* one past the last slot */
    assert_stale(slots, (pkv_slot){generation | 0xffffffffu}); /* slot -1 */
    assert_stale(slots, (pkv_slot){generation | 0x80000000u});
    CU_ASSERT(id_of(slots, held) == 0 && length_of(slots, held) == 0);
    destroy_sound(slots);
}

static void generations_wrap_past_zero(void)
{
    pkv_slots *slots = slots_of(1, 8);
    slots->records[0].generation = UINT32_MAX;
    const pkv_slot last = claim(slots);
    CU_ASSERT_EQUAL(last.id >> 32, UINT32_MAX);
    ASSERT_STATUS(PKV_OK, pkv_slots_release(slots, last));
    const pkv_slot next = claim(slots);
    CU_ASSERT_EQUAL(next.id >> 32, 1);
    destroy_sound(slots);
}

static void a_length_above_max_seq_refuses(void)
{
    static const int32_t bad[] = {-1, 9, INT32_MAX, INT32_MIN};
    pkv_slots *slots = slots_of(2, 8);
    const pkv_slot slot = claim_of_length(slots, 3);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_set_length(slots, slot, bad[i]));
        CU_ASSERT_EQUAL(length_of(slots, slot), 3);
    }
    ASSERT_STATUS(PKV_OK, pkv_slots_set_length(slots, slot, 0));
    ASSERT_STATUS(PKV_OK, pkv_slots_set_length(slots, slot, 8));
    CU_ASSERT_EQUAL(length_of(slots, slot), 8);
    destroy_sound(slots);
}

static void null_arguments_refuse(void)
{
    pkv_slots *slots = slots_of(2, 8);
    const pkv_slot slot = claim(slots);
    int32_t a = 77;
    int32_t b = 77;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_id(NULL, slot, &a));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_id(slots, slot, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_length(NULL, slot, &a));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_length(slots, slot, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_set_length(NULL, slot, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_release(NULL, slot));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_fill(NULL, &slot, NULL, 1, &a, &b));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_fill(slots, NULL, NULL, 1, &a, &b));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_fill(slots, &slot, NULL, 1, NULL, &b));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_fill(slots, &slot, NULL, 1, &a, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_slots_fill(slots, &slot, NULL, -1, &a, &b));
    ASSERT_STATUS(PKV_OK, pkv_slots_fill(slots, NULL, NULL, 0, NULL, NULL));
    CU_ASSERT(a == 77 && b == 77);
    CU_ASSERT_EQUAL(pkv_slots_num_free(NULL), 0);
    CU_ASSERT_EQUAL(pkv_slots_check(NULL), 1);
    destroy_sound(slots);
}

static void fill_gives_slot_ids_and_lengths_after_the_append(void)
{
    pkv_slots *slots = slots_of(4, 8);
    const pkv_slot a = claim_of_length(slots, 3);
    const pkv_slot b = claim_of_length(slots, 8);
    const pkv_slot c = claim(slots);
    int32_t slot_ids[3];
    int32_t kv_lens[3];
    ASSERT_STATUS(PKV_OK, pkv_slots_fill(slots, (const pkv_slot[]){c, b, a},
                                         (const int32_t[]){8, 0, 2}, 3, slot_ids, kv_lens));
    CU_ASSERT(slot_ids[0] == 2 && slot_ids[1] == 1 && slot_ids[2] == 0);
    CU_ASSERT(kv_lens[0] == 8 && kv_lens[1] == 8 && kv_lens[2] == 5);
    ASSERT_STATUS(PKV_OK,
                  pkv_slots_fill(slots, (const pkv_slot[]){a, c}, NULL, 2, slot_ids, kv_lens));
    CU_ASSERT(slot_ids[0] == 0 && slot_ids[1] == 2 && kv_lens[0] == 4 && kv_lens[1] == 1);
    CU_ASSERT_EQUAL(length_of(slots, a), 3);
    destroy_sound(slots);
}

struct bad_fill {
    int32_t third; /* which claim stands third: 0..2, or 3 for a stale one */
    int32_t q_len; /* its q_len */
    enum pkv_status status;
};

static void a_fill_with_one_bad_claim_writes_nothing(void)
{
    static const struct bad_fill bad[] = {
        {0, 1, PKV_INVALID_ARGUMENT},
        {1, 0, PKV_INVALID_ARGUMENT},
        {2, -1, PKV_INVALID_ARGUMENT},
        {2, 5, PKV_INVALID_ARGUMENT},
        {2, INT32_MAX, PKV_INVALID_ARGUMENT},
        {2, INT32_MIN, PKV_INVALID_ARGUMENT},
        {3, 1, PKV_STALE_HANDLE},
    };
    pkv_slots *slots = slots_of(4, 8);
    const pkv_slot made[4] = {claim_of_length(slots, 1), claim_of_length(slots, 2),
                              claim_of_length(slots, 4), claim(slots)};
    ASSERT_STATUS(PKV_OK, pkv_slots_release(slots, made[3]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const pkv_slot claims[3] = {made[0], made[1], made[bad[i].third]};
        const int32_t q_lens[3] = {1, 1, bad[i].q_len};
        int32_t slot_ids[3] = {77, 77, 77};
        int32_t kv_lens[3] = {77, 77, 77};
        ASSERT_REFUSED(bad[i].status, "[2]",
                       pkv_slots_fill(slots, claims, q_lens, 3, slot_ids, kv_lens));
        for (int j = 0; j < 3; j++) {
            CU_ASSERT(slot_ids[j] == 77 && kv_lens[j] == 77);
        }
    }
    destroy_sound(slots);
}

static void old_stamps_mean_nothing_when_the_epoch_wraps(void)
{
    pkv_slots *slots = slots_of(2, 8);
    const pkv_slot claims[2] = {claim(slots), claim(slots)};
    int32_t slot_ids[2];
    int32_t kv_lens[2];
    ASSERT_STATUS(PKV_OK, pkv_slots_fill(slots, claims, NULL, 2, slot_ids, kv_lens));
    CU_ASSERT_EQUAL(slots->records[0].stamp, 1);
    slots->epoch = UINT32_MAX;
    ASSERT_STATUS(PKV_OK, pkv_slots_fill(slots, claims, NULL, 2, slot_ids, kv_lens));
    CU_ASSERT_EQUAL(slots->epoch, 1);
    destroy_sound(slots);
}

/* One way to break a map of 3 slots of 8 cells, of which slot 0 is held. */
static void break_map(pkv_slots *slots, int how)
{
    struct slot_map_record *records = slots->records;
    switch (how) {
    case 0: records[1].length = 1; break;
    case 1: records[0].length = 9; break;
    case 2: records[0].length = -1; break;
    case 3: records[2].generation = 0; break;
    case 4: records[2].stamp = 1; break;
    default: ASSERT_STATUS(PKV_OK, pkv_pool_retain(slots->pool, (const int32_t[]){0}, 1)); break;
    }
}

static void check_reports_every_kind_of_damage(void)
{
    for (int how = 0; how <= 5; how++) {
        struct test_memory memory = {0};
        const struct pkv_hooks hooks = test_hooks(&memory);
        pkv_slots *slots = NULL;
        ASSERT_STATUS(PKV_OK, pkv_slots_create(3, 8, &hooks, &slots));
        (void)claim(slots);
        CU_ASSERT(pkv_slots_check(slots) == 0 && memory.num_logged == 0);
        break_map(slots, how);
        CU_ASSERT_EQUAL(pkv_slots_check(slots), 1);
        CU_ASSERT_EQUAL(memory.num_logged, 1);
        pkv_slots_destroy(slots);
        CU_ASSERT_EQUAL(memory.live, 0);
    }
}

static void random_claims_and_releases_keep_every_owner_apart(void)
{
    enum { SLOTS = 7 };
    struct test_random random = {test_seed()};
    pkv_slots *slots = slots_of(SLOTS, 100);
    pkv_slot owners[SLOTS] = {{0}};
    int32_t lengths[SLOTS] = {0};
    int32_t num_free = SLOTS;
    for (int32_t i = 0; i < 20000; i++) {
        const int32_t who = random_between(&random, 0, SLOTS - 1);
        if (owners[who].id == 0) {
            owners[who] = claim(slots);
            lengths[who] = random_between(&random, 0, 100);
            ASSERT_STATUS(PKV_OK, pkv_slots_set_length(slots, owners[who], lengths[who]));
            num_free--;
        } else {
            CU_ASSERT_FATAL(length_of(slots, owners[who]) == lengths[who]);
            ASSERT_STATUS(PKV_OK, pkv_slots_release(slots, owners[who]));
            owners[who].id = 0;
            num_free++;
        }
        CU_ASSERT_EQUAL_FATAL(pkv_slots_num_free(slots), num_free);
        CU_ASSERT_EQUAL_FATAL(pkv_slots_check(slots), 0);
    }
    pkv_slots_destroy(slots);
}

static const struct test_case cases[] = {
    TEST(create_refuses_what_is_no_map),
    TEST(create_fails_cleanly_at_every_allocation),
    TEST(the_slot_that_is_free_longest_is_claimed_with_length_zero),
    TEST(claim_fails_cleanly_when_no_slot_is_free),
    TEST(a_released_claim_is_stale_even_when_its_slot_has_a_new_owner),
    TEST(a_claim_that_was_never_given_out_is_stale),
    TEST(generations_wrap_past_zero),
    TEST(a_length_above_max_seq_refuses),
    TEST(null_arguments_refuse),
    TEST(fill_gives_slot_ids_and_lengths_after_the_append),
    TEST(a_fill_with_one_bad_claim_writes_nothing),
    TEST(old_stamps_mean_nothing_when_the_epoch_wraps),
    TEST(check_reports_every_kind_of_damage),
    TEST(random_claims_and_releases_keep_every_owner_apart),
    TEST_END,
};
const struct test_suite suite_slot_map = {"slot_map", cases};
