/* SPDX-License-Identifier: MIT
 *
 * Bidirectional ranges of a managed cache: steps that do not cut them give what one call gives,
 * no hit ends inside one, and what would cut one refuses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/gqa_case.h"
#include "support/runtime_case.h"

enum { MAX_TOKENS = 256, MAX_RANGES = 16, MAX_LAYERS = 2, WIDTH = 3 };

/* A request: tokens of text, and images, whose tokens share an id and have an extra each. */
struct request {
    int32_t ids[MAX_TOKENS];
    uint64_t extra[MAX_TOKENS];
    int32_t num_tokens;
    struct pkv_token_range ranges[MAX_RANGES];
    int32_t num_ranges;
};

enum { IMAGE_ID = -7 };

static void add_text(struct request *r, int32_t num_tokens, int32_t first_id)
{
    for (int32_t i = 0; i < num_tokens; i++) {
        r->ids[r->num_tokens + i] = first_id + i;
        r->extra[r->num_tokens + i] = 0;
    }
    r->num_tokens += num_tokens;
}

static void add_image(struct request *r, int32_t num_tokens, uint64_t hash)
{
    const struct pkv_token_range range = {r->num_tokens, r->num_tokens + num_tokens};
    for (int32_t i = range.begin; i < range.end; i++) {
        r->ids[i] = IMAGE_ID;
        r->extra[i] = hash;
    }
    r->ranges[r->num_ranges++] = range;
    r->num_tokens = range.end;
}

/* Its first num_tokens tokens; num_ranges are those that begin before. */
static struct pkv_prompt prompt_of(const struct request *r, int32_t num_tokens)
{
    struct pkv_prompt prompt = {.size = sizeof prompt,
                                .token_ids = r->ids,
                                .token_extra = r->extra,
                                .num_tokens = num_tokens,
                                .bidirectional = r->ranges};
    while (prompt.num_bidirectional < r->num_ranges &&
           r->ranges[prompt.num_bidirectional].begin < num_tokens) {
        prompt.num_bidirectional++;
    }
    return prompt;
}

/* The K7 request: ten tokens, of which 3..6 are an image. */
static struct request ten_tokens(void)
{
    static struct request r;
    memset(&r, 0, sizeof r);
    add_text(&r, 3, 100);
    add_image(&r, 4, 77);
    add_text(&r, 3, 200);
    return r;
}

/* One row of a step: tokens [begin, end) of a request. */
struct chunk {
    const struct request *request;
    pkv_seq seq;
    int32_t begin, end;
};

static enum pkv_status begin_chunk(struct runtime_case *c, const struct chunk *chunk,
                                   pkv_step *step)
{
    const struct pkv_prompt before = prompt_of(chunk->request, chunk->end);
    const int32_t q_len = chunk->end - chunk->begin;
    const int32_t cu_ranges[] = {0, before.num_bidirectional};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &chunk->seq,
                                    .q_lens = &q_len,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = chunk->request->ids + chunk->begin,
                                    .token_extra = chunk->request->extra + chunk->begin,
                                    .bidirectional = chunk->request->ranges,
                                    .cu_bidirectional = cu_ranges};
    const enum pkv_status foreseen = pkv_step_fits(c->cache, &batch, NULL);
    const enum pkv_status status = pkv_step_begin(c->cache, &batch, step, NULL);
    CU_ASSERT_EQUAL(status, foreseen);
    return status;
}

/* Channel c of a token's query, key or value: of its content and its place. */
static float number_of(const struct request *r, int32_t token, int what, int32_t channel)
{
    const uint64_t tag = (uint64_t)r->ids[token] * 31 + r->extra[token] + (uint64_t)token * 977;
    return (float)case_value((uint32_t)tag, 0, what, 0, channel);
}

/* Keys and queries of 0 make outputs means of positions, which are the values then. */
static void fill(const struct runtime_case *c, const struct request *r, int32_t token, float *k,
                 float *v, float *q)
{
    const int32_t width = c->groups[0].k_width;
    for (int32_t i = 0; i < width; i++) {
        k[i] = c->mean ? 0 : number_of(r, token, 0, i);
        v[i] = c->mean ? (float)token : number_of(r, token, 1, i);
        q[i] = c->mean ? 0 : number_of(r, token, 2, i);
    }
}

struct activations {
    float k[MAX_TOKENS * WIDTH], v[MAX_TOKENS * WIDTH], q[MAX_TOKENS * WIDTH];
};

static void fill_all(const struct runtime_case *c, const struct request *r, struct activations *a)
{
    const size_t width = (size_t)c->groups[0].k_width;
    for (int32_t t = 0; t < r->num_tokens; t++) {
        const size_t at = (size_t)t * width;
        fill(c, r, t, a->k + at, a->v + at, a->q + at);
    }
}

/* out [layers][MAX_TOKENS * WIDTH]: the tokens of the chunk are written. */
static void run_chunk(struct runtime_case *c, const struct chunk *chunk,
                      float out[MAX_LAYERS][MAX_TOKENS * WIDTH])
{
    static struct activations a;
    const size_t at = (size_t)chunk->begin * (size_t)c->groups[0].k_width;
    pkv_step step = {0};
    fill_all(c, chunk->request, &a);
    ASSERT_STATUS(PKV_OK, begin_chunk(c, chunk, &step));
    for (int32_t layer = 0; layer < c->config.num_layers; layer++) {
        const struct pkv_layer_io io = {
            .size = sizeof io, .q = a.q + at, .k = a.k + at, .v = a.v + at, .out = out[layer] + at};
        ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, layer, &io));
    }
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
}

static float outputs[MAX_LAYERS][MAX_TOKENS * WIDTH];

/* The request, in one raw call without a cache, for the layer's window. */
static void run_raw(const struct runtime_case *c, const struct request *r, int32_t layer,
                    pkv_workspace *workspace, float *out)
{
    static struct activations a;
    const int32_t cu_seqlens[] = {0, r->num_tokens};
    const int32_t cu_ranges[] = {0, r->num_ranges};
    fill_all(c, r, &a);
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_NONE, 1, 1, 1, c->groups[0].k_width);
    args.num_tokens = r->num_tokens;
    args.cu_seqlens_q = cu_seqlens;
    args.q = a.q;
    args.k = a.k;
    args.v = a.v;
    args.out = out;
    args.sliding_window = c->groups[c->layers[layer].group].sliding_window;
    args.bidirectional = r->ranges;
    args.cu_bidirectional = cu_ranges;
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &args));
}

static void init(struct runtime_case *c, bool with_prefix_cache)
{
    case_init(c);
    c->mean = true;
    c->groups[0].k_width = 1;
    c->groups[0].block_size = 2;
    c->groups[0].num_blocks = 32;
    c->config.prefix_cache = with_prefix_cache;
    c->config.max_pinned_blocks = 8;
}

static const double without_window[] = {0, 0.5, 1, 3, 3, 3, 3, 3.5, 4, 4.5};
static const double with_window[] = {0, 0.5, 1, 3.5, 4, 4.5, 5, 6, 7, 8}; /* of 3 keys */

static void assert_means(int32_t begin, const double *means)
{
    for (int32_t i = begin; i < 10; i++) {
        ASSERT_CLOSE(outputs[0][i], means[i]);
    }
}

/* K7: an image's tokens see each other in managed steps, within a window too, and however the
 * tokens around it are divided into steps. */
static void steps_give_the_means_of_what_each_query_sees(void)
{
    static const int32_t ends[][3] = {{10, 10, 10}, {2, 7, 10}, {3, 7, 10}, {1, 8, 10}};
    const struct request r = ten_tokens();
    for (int i = 0; i < 8; i++) {
        struct runtime_case c;
        init(&c, i < 4);
        c.groups[0].sliding_window = i % 2 ? 3 : 0;
        case_open(&c);
        struct chunk chunk = {.request = &r};
        ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &chunk.seq));
        for (int32_t s = 0; chunk.begin < 10; chunk.begin = chunk.end) {
            chunk.end = ends[i / 2][s++];
            run_chunk(&c, &chunk, outputs);
        }
        assert_means(0, i % 2 ? with_window : without_window);
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, chunk.seq));
        case_close(&c);
    }
}

static void compute(struct runtime_case *c, const struct request *r)
{
    struct chunk chunk = {.request = r, .end = r->num_tokens};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c->cache, NULL, &chunk.seq));
    run_chunk(c, &chunk, outputs);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, chunk.seq));
}

/* K7: no hit ends inside an image, and behind a hit the numbers are the same. */
static void hits_end_before_or_behind_a_range(void)
{
    static const int32_t hits[2][11] = {{0, 0, 2, 2, 2, 2, 2, 2, 8, 8, 8}, /* by max_cached */
                                        {0, 1, 2, 3, 3, 3, 3, 7, 8, 9, 9}};
    const struct request r = ten_tokens();
    const struct pkv_prompt prompt = prompt_of(&r, 10);
    for (int32_t i = 0; i < 44; i++) {
        struct runtime_case c;
        struct pkv_admission admission = {.size = sizeof admission};
        struct pkv_probe probe = {.size = sizeof probe};
        const int32_t max_cached = i / 2 % 11;
        const int32_t hit = hits[i / 22][max_cached];
        init(&c, true);
        c.config.no_partial_hits = i < 22;
        c.groups[0].sliding_window = i % 2 ? 3 : 0;
        case_open(&c);
        compute(&c, &r);
        struct chunk chunk = {.request = &r, .end = 10};
        ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &chunk.seq));
        ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, &prompt, 0, max_cached, &probe, NULL));
        ASSERT_STATUS(PKV_OK,
                      pkv_seq_admit(c.cache, chunk.seq, &prompt, 0, max_cached, &admission, NULL));
        CU_ASSERT_EQUAL(admission.num_cached, hit);
        CU_ASSERT_EQUAL(probe.num_cached, hit);
        chunk.begin = admission.num_cached;
        memset(outputs, 0xff, sizeof outputs);
        run_chunk(&c, &chunk, outputs);
        assert_means(chunk.begin, i % 2 ? with_window : without_window);
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, chunk.seq));
        case_close(&c);
    }
}

/* The tokens that a request may wait for, and those of a pin, end there too. */
static void pending_tokens_and_pins_end_before_or_behind_a_range(void)
{
    struct runtime_case c;
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_probe probe = {.size = sizeof probe};
    pkv_pin pin;
    int32_t num_pinned = -1;
    const struct request r = ten_tokens();
    struct pkv_prompt prompt = prompt_of(&r, 10);
    init(&c, true);
    case_open(&c);
    struct chunk chunk = {.request = &r, .end = 10};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &chunk.seq));
    ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, chunk.seq, &prompt, 0, 10, &admission, NULL));
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, &prompt, 0, 7, &probe, NULL));
    CU_ASSERT_EQUAL(probe.num_pending, 2);
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, &prompt, 0, 8, &probe, NULL));
    CU_ASSERT_EQUAL(probe.num_pending, 8);
    run_chunk(&c, &chunk, outputs);
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c.cache, NULL, &prompt, 0, 0, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 10);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
    struct request longer = r; /* the same tokens so far, of a longer image */
    longer.ranges[0].end = 10;
    longer.extra[7] = longer.extra[8] = longer.extra[9] = 77;
    prompt = prompt_of(&longer, 10);
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c.cache, NULL, &prompt, 0, 0, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 2);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, chunk.seq));
    case_close(&c);
}

/* Refusals */

static const struct {
    struct pkv_token_range ranges[2];
    int32_t num_ranges;
    const char *culprit;
} refusals[] = {
    {{{3, 9}}, 1, "row 1: bidirectional[1] = [3, 9) is cut: it goes on"},
    {{{2, 5}}, 1, "row 1: bidirectional[1] = [2, 5) is cut: it begins"},
    {{{8, 9}}, 1, "row 1: bidirectional[1] = [8, 9) lies outside"},
    {{{5, 5}}, 1, "row 1: bidirectional[1] = [5, 5) is empty"},
    {{{-1, 5}}, 1, "row 1: bidirectional[1] = [-1, 5) begins below 0"},
    {{{5, 7}, {3, 5}}, 2, "row 1: bidirectional[2] = [3, 5) begins before"},
    {{{3, 6}, {5, 7}}, 2, "row 1: bidirectional[2] = [5, 7) begins before"},
    {{{3, 6}, {6, 8}}, 2, "row 1: bidirectional[2] = [6, 8) has a token whose token_extra is 0"},
};

/* K7: a step that would cut a range refuses and names row and range; nothing has changed. */
static void steps_that_cut_a_range_refuse(void)
{
    static const int32_t ids[16];
    static const uint64_t extra[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0};
    struct runtime_case c;
    pkv_seq seqs[2];
    pkv_step step = {0};
    init(&c, true);
    case_open(&c);
    const struct request r = ten_tokens();
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seqs[0]));
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seqs[1]));
    run_chunk(&c, &(struct chunk){&r, seqs[1], 0, 3}, outputs);
    const int32_t q_lens[] = {4, 5};
    const int32_t num_held = case_held(&c, 0);
    struct pkv_token_range ranges[3] = {{0, 4}};
    int32_t cu_ranges[] = {0, 1, 1};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seqs,
                                    .q_lens = q_lens,
                                    .num_rows = 2,
                                    .num_required_rows = 2,
                                    .token_ids = ids,
                                    .token_extra = extra,
                                    .bidirectional = ranges,
                                    .cu_bidirectional = cu_ranges};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        memcpy(ranges + 1, refusals[i].ranges, sizeof refusals[i].ranges);
        cu_ranges[2] = 1 + refusals[i].num_ranges;
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, refusals[i].culprit,
                       pkv_step_fits(c.cache, &batch, NULL));
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, refusals[i].culprit,
                       pkv_step_begin(c.cache, &batch, &step, NULL));
        CU_ASSERT_EQUAL(step.id, 0);
        CU_ASSERT_EQUAL(case_held(&c, 0), num_held);
        CU_ASSERT_EQUAL(case_length(&c, seqs[1]), 3);
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[0]));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[1]));
    case_close(&c);
}

static void ranges_without_their_counts_refuse_in_a_batch(void)
{
    struct runtime_case c;
    pkv_step step = {0};
    init(&c, false);
    case_open(&c);
    const struct request r = ten_tokens();
    struct chunk chunk = {.request = &r, .end = 10};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &chunk.seq));
    int32_t cu_ranges[] = {0, 1};
    const int32_t q_len = 10;
    struct pkv_batch batch = {.size = sizeof batch,
                              .seqs = &chunk.seq,
                              .q_lens = &q_len,
                              .num_rows = 1,
                              .num_required_rows = 1,
                              .token_ids = r.ids,
                              .bidirectional = r.ranges};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cu_bidirectional is NULL",
                   pkv_step_begin(c.cache, &batch, &step, NULL));
    batch.cu_bidirectional = cu_ranges;
    batch.bidirectional = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "bidirectional is NULL",
                   pkv_step_begin(c.cache, &batch, &step, NULL));
    batch.bidirectional = r.ranges;
    cu_ranges[0] = 1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cu_bidirectional[0] = 1",
                   pkv_step_begin(c.cache, &batch, &step, NULL));
    cu_ranges[0] = 0;
    cu_ranges[1] = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cu_bidirectional[1] = -1",
                   pkv_step_begin(c.cache, &batch, &step, NULL));
    cu_ranges[1] = 1; /* extras are the prefix cache's affair */
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c.cache, &batch, &step, NULL));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, chunk.seq));
    case_close(&c);
}

static void assert_prompt_refuses(struct runtime_case *c, pkv_seq seq,
                                  const struct pkv_prompt *prompt, const char *culprit)
{
    struct pkv_admission admission = {sizeof admission, -1, -1, -1, -1, {0}};
    struct pkv_probe probe = {.size = sizeof probe};
    pkv_pin pin;
    int32_t num_pinned = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, culprit,
                   pkv_seq_admit(c->cache, seq, prompt, 0, 0, &admission, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, culprit,
                   pkv_cache_probe(c->cache, NULL, prompt, 0, 0, &probe, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, culprit,
                   pkv_prefix_pin(c->cache, NULL, prompt, 0, 0, &pin, &num_pinned));
    CU_ASSERT_EQUAL(admission.num_cached, -1);
    CU_ASSERT_EQUAL(num_pinned, -1);
}

static void unsound_ranges_of_a_prompt_refuse(void)
{
    struct runtime_case c;
    pkv_seq seq;
    struct request r = ten_tokens();
    init(&c, true);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    struct pkv_prompt prompt = prompt_of(&r, 6);
    assert_prompt_refuses(&c, seq, &prompt, "prompt->bidirectional[0] = [3, 7) is cut");
    prompt.num_tokens = 3;
    assert_prompt_refuses(&c, seq, &prompt, "prompt->bidirectional[0] = [3, 7) lies outside");
    prompt.num_tokens = 10;
    prompt.num_bidirectional = -1;
    assert_prompt_refuses(&c, seq, &prompt, "num_bidirectional = -1");
    prompt.num_bidirectional = 1;
    prompt.bidirectional = NULL;
    assert_prompt_refuses(&c, seq, &prompt, "prompt->bidirectional is NULL");
    prompt.bidirectional = r.ranges;
    prompt.token_extra = NULL;
    assert_prompt_refuses(&c, seq, &prompt, "[3, 7) has a token whose token_extra is 0");
    prompt.token_extra = r.extra;
    r.extra[6] = 0;
    assert_prompt_refuses(&c, seq, &prompt, "[3, 7) has a token whose token_extra is 0");
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    case_close(&c);
}

/* K7: a commit keeps an image's tokens or drops them all: the keys of a part saw the rest. */
static void a_commit_cuts_no_range(void)
{
    const struct request r = ten_tokens();
    for (int32_t keep = 0; keep <= 10; keep++) {
        struct runtime_case c;
        static struct activations a;
        struct chunk chunk = {.request = &r, .end = 10};
        pkv_step step;
        init(&c, true);
        case_open(&c);
        fill_all(&c, &r, &a);
        const struct pkv_layer_io io = {
            .size = sizeof io, .q = a.q, .k = a.k, .v = a.v, .out = outputs[0]};
        ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &chunk.seq));
        ASSERT_STATUS(PKV_OK, begin_chunk(&c, &chunk, &step));
        ASSERT_STATUS(PKV_OK, pkv_step_attend(c.cache, step, 0, &io));
        const bool is_cut = keep > 3 && keep < 7;
        CU_ASSERT_EQUAL(pkv_step_commit(c.cache, step, &keep),
                        is_cut ? PKV_INVALID_ARGUMENT : PKV_OK);
        if (is_cut) {
            ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cuts a bidirectional range",
                           pkv_step_commit(c.cache, step, &keep));
            ASSERT_STATUS(PKV_OK, pkv_step_commit(c.cache, step, NULL));
        }
        CU_ASSERT_EQUAL(case_length(&c, chunk.seq), is_cut ? 10 : keep);
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, chunk.seq));
        case_close(&c);
    }
}

static void the_view_of_a_step_shows_its_ranges(void)
{
    struct runtime_case c;
    struct pkv_step_view view = {.size = sizeof view};
    pkv_step step;
    const struct request r = ten_tokens();
    init(&c, false);
    case_open(&c);
    struct chunk chunk = {.request = &r, .end = 7};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &chunk.seq));
    ASSERT_STATUS(PKV_OK, begin_chunk(&c, &chunk, &step));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step, 0, &view));
    CU_ASSERT_EQUAL(view.cu_bidirectional[0], 0);
    CU_ASSERT_EQUAL(view.cu_bidirectional[1], 1);
    CU_ASSERT_EQUAL(view.bidirectional[0].begin, 3);
    CU_ASSERT_EQUAL(view.bidirectional[0].end, 7);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    run_chunk(&c, &chunk, outputs);
    chunk.begin = 7;
    chunk.end = 10; /* the list still names the image, whose tokens are written */
    ASSERT_STATUS(PKV_OK, begin_chunk(&c, &chunk, &step));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step, 0, &view));
    CU_ASSERT_EQUAL(view.cu_bidirectional[1], 0);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, chunk.seq));
    case_close(&c);
}

/* Random requests */

/* One of a few beginnings, then tokens and images of its own. */
static void draw_request(struct test_random *random, struct request *r)
{
    struct test_random same = {(uint64_t)random_between(random, 0, 3)};
    const int32_t num_shared = random_between(random, 1, 6);
    const int32_t num_parts = num_shared + random_between(random, 0, 4);
    memset(r, 0, sizeof *r);
    for (int32_t part = 0; part < num_parts; part++) {
        struct test_random *from = part < num_shared ? &same : random;
        const int32_t length = random_between(from, 1, 20);
        if (random_between(from, 0, 1)) {
            add_image(r, length, random_u64(from) | 1);
        } else {
            add_text(r, length, random_between(from, 0, 1000));
        }
    }
    add_text(r, 1, 5);
}

/* Up to max more tokens, and as many more as the last image needs. */
static int32_t chunk_end(const struct request *r, int32_t begin, int32_t max)
{
    int32_t end = begin + max < r->num_tokens ? begin + max : r->num_tokens;
    for (int32_t i = 0; i < r->num_ranges; i++) {
        if (r->ranges[i].begin < end && end < r->ranges[i].end) {
            end = r->ranges[i].end;
        }
    }
    return end;
}

static bool cuts(const struct request *r, int32_t length)
{
    bool is_cut = false;
    for (int32_t i = 0; i < r->num_ranges; i++) {
        is_cut = is_cut || (r->ranges[i].begin < length && length < r->ranges[i].end);
    }
    return is_cut;
}

struct totals {
    int num_hits;
    int num_shortened; /* hits that would have ended inside an image */
};

/* Admits and runs the request in random steps; every output has the bits of one raw call. */
static void run_request(struct runtime_case *c, struct test_random *random,
                        pkv_workspace *workspace, const struct request *r, struct totals *totals)
{
    static float expected[MAX_TOKENS * WIDTH];
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_probe uncut = {.size = sizeof uncut};
    struct pkv_prompt prompt = prompt_of(r, r->num_tokens);
    struct chunk chunk = {.request = r};
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c->cache, NULL, &chunk.seq));
    prompt.num_bidirectional = 0;
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c->cache, NULL, &prompt, 0, r->num_tokens, &uncut, NULL));
    prompt.num_bidirectional = r->num_ranges;
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c->cache, chunk.seq, &prompt, 0, r->num_tokens, &admission, NULL));
    CU_ASSERT(!cuts(r, admission.num_cached));
    CU_ASSERT(cuts(r, uncut.num_cached) ? admission.num_cached < uncut.num_cached
                                        : admission.num_cached == uncut.num_cached);
    totals->num_hits += admission.num_cached > 0;
    totals->num_shortened += admission.num_cached < uncut.num_cached;
    memset(outputs, 0xff, sizeof outputs);
    for (chunk.begin = admission.num_cached; chunk.begin < r->num_tokens; chunk.begin = chunk.end) {
        chunk.end = chunk_end(r, chunk.begin, random_between(random, 1, 60));
        run_chunk(c, &chunk, outputs);
    }
    const size_t first = (size_t)admission.num_cached * WIDTH;
    for (int32_t layer = 0; layer < c->config.num_layers; layer++) {
        run_raw(c, r, layer, workspace, expected);
        CU_ASSERT_EQUAL(
            memcmp(outputs[layer] + first, expected + first,
                   (size_t)r->num_tokens * WIDTH * sizeof(float) - first * sizeof(float)),
            0);
    }
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, chunk.seq));
}

/* K7: images in a full and a window group, after hits and in any steps, have the bits of one raw
 * call over the whole prompt. */
static void random_images_have_the_bits_of_one_raw_call(void)
{
    static struct request r;
    struct test_random random = {test_seed()};
    struct totals totals = {0};
    pkv_workspace *workspace = case_workspace(2);
    for (int round = 0; round < 12; round++) {
        struct runtime_case c;
        init(&c, true);
        c.mean = false;
        c.groups[0].k_width = WIDTH;
        c.groups[0].block_size = 1 + round % 5;
        c.groups[0].num_blocks = 500;
        c.config.max_seq_len = c.config.max_step_tokens = MAX_TOKENS;
        c.config.num_threads = 1 + round % 3;
        const int32_t window = random_between(&random, 1, 30);
        struct pkv_group_config *group = case_add_group(&c);
        group->sliding_window = window; /* with so few blocks that old windows are lost */
        group->num_blocks = (MAX_TOKENS + window) / group->block_size + 3;
        case_add_layer(&c, 1);
        case_open(&c);
        for (int i = 0; i < 40; i++) {
            draw_request(&random, &r);
            run_request(&c, &random, workspace, &r, &totals);
        }
        case_close(&c);
    }
    CU_ASSERT(totals.num_hits >= 50);
    CU_ASSERT(totals.num_shortened >= 10);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(steps_give_the_means_of_what_each_query_sees),
    TEST(hits_end_before_or_behind_a_range),
    TEST(pending_tokens_and_pins_end_before_or_behind_a_range),
    TEST(steps_that_cut_a_range_refuse),
    TEST(ranges_without_their_counts_refuse_in_a_batch),
    TEST(unsound_ranges_of_a_prompt_refuse),
    TEST(a_commit_cuts_no_range),
    TEST(the_view_of_a_step_shows_its_ranges),
    TEST(random_images_have_the_bits_of_one_raw_call),
    TEST_END,
};
const struct test_suite suite_runtime_bidirectional = {"runtime_bidirectional", cases};
