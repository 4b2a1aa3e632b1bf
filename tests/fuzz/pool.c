/* SPDX-License-Identifier: MIT
 *
 * Block pools and slot maps against models: reference counts in an array, claims in a list. */
#include <string.h>

#include "fuzz.h"

enum { MAX_IDS = 24, LIST = 12, CALLS = 60 };

struct pool_model {
    pkv_pool *pool;
    int32_t num_blocks;
    int32_t refs[MAX_IDS];
};

static int32_t model_free(const struct pool_model *m)
{
    int32_t count = 0;
    for (int32_t i = 0; i < m->num_blocks; i++) {
        count += m->refs[i] == 0;
    }
    return count;
}

static void pool_alloc(struct fuzz *fuzz, struct pool_model *m)
{
    const int32_t count = fuzz_once_in(fuzz, 3) ? fuzz_int32(fuzz, 4) : fuzz_in(fuzz, 0, 4);
    int32_t ids[MAX_IDS] = {0};
    const int32_t num_free = model_free(m);
    const enum pkv_status want = count < 0               ? PKV_INVALID_ARGUMENT
                                 : count > m->num_blocks ? PKV_NEVER_FITS
                                 : count > num_free      ? PKV_NO_BLOCKS
                                                         : PKV_OK;
    const bool is_near = fuzz_once_in(fuzz, 2);
    const int32_t near =
        fuzz_once_in(fuzz, 9) ? fuzz_int32(fuzz, MAX_IDS) : fuzz_in(fuzz, -1, m->num_blocks - 1);
    const bool is_bad = count >= 0 && is_near && (near < -1 || near >= m->num_blocks);
    const enum pkv_status got = is_near ? pkv_pool_alloc_near(m->pool, near, count, ids)
                                        : pkv_pool_alloc(m->pool, count, ids);
    FUZZ_EXPECT(got == (is_bad ? PKV_INVALID_ARGUMENT : want));
    if (FUZZ_CALL(fuzz, ~0u, got)) {
        for (int32_t i = 1; is_near && i < count; i++) { /* from near on, then below it */
            FUZZ_EXPECT((uint32_t)(ids[i] - near - 1) > (uint32_t)(ids[i - 1] - near - 1));
        }
        for (int32_t i = 0; i < count; i++) {
            const bool is_free = ids[i] >= 0 && ids[i] < m->num_blocks && m->refs[ids[i]] == 0;
            if (FUZZ_EXPECT(is_free)) {
                m->refs[ids[i]] = 1;
            }
        }
    }
}

/* A list of ids, some of which are none; sign is what the call does to each. */
static void pool_change(struct fuzz *fuzz, struct pool_model *m, int32_t sign)
{
    int32_t ids[LIST];
    int32_t refs[MAX_IDS];
    const int32_t count = fuzz_in(fuzz, 0, LIST);
    bool is_good = true;
    memcpy(refs, m->refs, sizeof refs);
    for (int32_t i = 0; i < count; i++) {
        ids[i] = fuzz_once_in(fuzz, 20) ? fuzz_int32(fuzz, MAX_IDS)
                                        : fuzz_in(fuzz, -1, m->num_blocks - 1);
        const bool is_id = ids[i] >= 0 && ids[i] < m->num_blocks;
        is_good = is_good && (ids[i] == -1 || (is_id && refs[ids[i]] > 0));
        if (is_good && is_id) {
            refs[ids[i]] += sign;
        }
    }
    const enum pkv_status got =
        sign > 0 ? pkv_pool_retain(m->pool, ids, count) : pkv_pool_release(m->pool, ids, count);
    FUZZ_EXPECT(got == (is_good ? PKV_OK : PKV_INVALID_ARGUMENT));
    if (FUZZ_CALL(fuzz, ALLOWED_INVALID, got)) {
        memcpy(m->refs, refs, sizeof refs);
    }
}

void fuzz_pool(struct fuzz *fuzz)
{
    struct pool_model m = {.num_blocks = fuzz_in(fuzz, 1, MAX_IDS)};
    pkv_pool *none = NULL;
    if (FUZZ_CALL(fuzz, ALLOWED_INVALID | FUZZ_MAY(PKV_NO_MEMORY),
                  pkv_pool_create(fuzz_int32(fuzz, 9), &fuzz->hooks, &none))) {
        FUZZ_EXPECT(pkv_pool_check(none) == 0);
    }
    pkv_pool_destroy(none);
    if (!FUZZ_CALL(fuzz, 0, pkv_pool_create(m.num_blocks, &fuzz->hooks, &m.pool))) {
        return;
    }
    for (int i = 0; i < CALLS; i++) {
        switch (fuzz_in(fuzz, 0, 3)) {
        case 0: pool_change(fuzz, &m, 1); break;
        case 1: pool_alloc(fuzz, &m); break;
        default: pool_change(fuzz, &m, -1); break;
        }
        const int32_t id = fuzz_int32(fuzz, MAX_IDS);
        const bool is_id = id >= 0 && id < m.num_blocks;
        FUZZ_EXPECT(pkv_pool_ref_count(m.pool, id) == (is_id ? m.refs[id] : -1));
        FUZZ_EXPECT(pkv_pool_num_free(m.pool) == model_free(&m) && pkv_pool_check(m.pool) == 0);
    }
    pkv_pool_destroy(m.pool);
}

/* Claims of the past and of the present: length -1 is a stale one. */
struct slot_model {
    pkv_slots *slots;
    int32_t max_seqs, max_seq, num_live, num_claims;
    pkv_slot claims[CALLS + 1]; /* the last is none at all */
    int32_t lengths[CALLS + 1];
};

static void slots_claim(struct fuzz *fuzz, struct slot_model *m)
{
    pkv_slot slot = {0};
    const enum pkv_status got = pkv_slots_claim(m->slots, &slot);
    FUZZ_EXPECT(got == (m->num_live < m->max_seqs ? PKV_OK : PKV_NO_BLOCKS));
    if (FUZZ_CALL(fuzz, FUZZ_MAY(PKV_NO_BLOCKS), got)) {
        m->claims[m->num_claims] = slot;
        m->lengths[m->num_claims++] = 0;
        m->num_live++;
    }
}

static void slots_fill(struct fuzz *fuzz, const struct slot_model *m)
{
    pkv_slot claims[6];
    int32_t at[6], q_lens[6], ids[6], kv_lens[6];
    const int32_t count = fuzz_in(fuzz, 0, 6);
    enum pkv_status want = PKV_OK;
    memset(ids, 0x5a, sizeof ids);
    for (int32_t i = 0; i < count; i++) {
        at[i] = fuzz_in(fuzz, 0, m->num_claims - 1);
        claims[i] = m->claims[at[i]];
        q_lens[i] = fuzz_once_in(fuzz, 9) ? fuzz_int32(fuzz, 4) : fuzz_in(fuzz, 0, 2);
        bool is_bad = q_lens[i] < 0 || (m->lengths[at[i]] >= 0 &&
                                        (int64_t)m->lengths[at[i]] + q_lens[i] > m->max_seq);
        for (int32_t j = 0; j < i; j++) {
            is_bad = is_bad || at[j] == at[i];
        }
        want = want != PKV_OK          ? want
               : m->lengths[at[i]] < 0 ? PKV_STALE_HANDLE
               : is_bad                ? PKV_INVALID_ARGUMENT
                                       : PKV_OK;
    }
    const enum pkv_status got = pkv_slots_fill(m->slots, claims, q_lens, count, ids, kv_lens);
    FUZZ_EXPECT((got == PKV_OK) == (want == PKV_OK));
    const bool is_filled = FUZZ_CALL(fuzz, ALLOWED_INVALID | ALLOWED_STALE, got);
    for (int32_t i = 0; i < count; i++) {
        FUZZ_EXPECT(is_filled ? kv_lens[i] == m->lengths[at[i]] + q_lens[i] : ids[i] == 0x5a5a5a5a);
    }
}

static void slots_change(struct fuzz *fuzz, struct slot_model *m)
{
    const int32_t at = fuzz_in(fuzz, 0, m->num_claims - 1);
    const int32_t length = fuzz_int32(fuzz, m->max_seq);
    const bool is_live = m->lengths[at] >= 0;
    if (fuzz_once_in(fuzz, 3)) {
        const enum pkv_status got = pkv_slots_release(m->slots, m->claims[at]);
        FUZZ_EXPECT(got == (is_live ? PKV_OK : PKV_STALE_HANDLE));
        m->num_live -= FUZZ_CALL(fuzz, ALLOWED_STALE, got);
        m->lengths[at] = -1;
        return;
    }
    const bool fits = length >= 0 && length <= m->max_seq;
    const enum pkv_status got = pkv_slots_set_length(m->slots, m->claims[at], length);
    FUZZ_EXPECT((got == PKV_OK) == (is_live && fits));
    if (FUZZ_CALL(fuzz, ALLOWED_INVALID | ALLOWED_STALE, got)) {
        m->lengths[at] = length;
    }
}

void fuzz_slots(struct fuzz *fuzz)
{
    struct slot_model m = {.max_seqs = fuzz_in(fuzz, 1, 6), .max_seq = fuzz_in(fuzz, 1, 9)};
    m.claims[0].id = random_u64(&fuzz->random) | 1;
    m.lengths[0] = -1;
    m.num_claims = 1;
    if (fuzz_once_in(fuzz, 4)) {
        m.max_seq = INT32_MAX;
    }
    if (!FUZZ_CALL(fuzz, 0, pkv_slots_create(m.max_seqs, m.max_seq, &fuzz->hooks, &m.slots))) {
        return;
    }
    for (int i = 0; i < CALLS - 1; i++) {
        switch (fuzz_in(fuzz, 0, 3)) {
        case 0: slots_claim(fuzz, &m); break;
        case 1: slots_fill(fuzz, &m); break;
        default: slots_change(fuzz, &m); break;
        }
        FUZZ_EXPECT(pkv_slots_num_free(m.slots) == m.max_seqs - m.num_live);
        FUZZ_EXPECT(pkv_slots_check(m.slots) == 0);
    }
    pkv_slots_destroy(m.slots);
}
