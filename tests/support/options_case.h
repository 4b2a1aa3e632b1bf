/* SPDX-License-Identifier: MIT
 *
 * options_case.h: a managed cache whose layers have constants, judged layer by layer in three ways:
 * by the raw operator on the very pages of the step, by the raw operator on a dense cache that has
 * seen each sequence's whole history at once, both bit for bit, and by the float64 reference.
 *
 * The key, value and query of a token are case_value of its tag; its position is a function of the
 * tag too when the batch has position_ids. What the config points to is overwritten as soon as the
 * cache exists, so a cache that kept a pointer shows it. */
#ifndef PKV_TEST_OPTIONS_CASE_H
#define PKV_TEST_OPTIONS_CASE_H

#include "support/reference.h"
#include "support/runtime_case.h"

enum { OPTIONS_MAX_ARRAYS = 64, OPTIONS_POSITIONS = 64 };

/* Of a layer; scales come by themselves with a quantised group. */
enum layer_option {
    WITH_ROPE = 1 << 0,
    WITH_INTERLEAVED = 1 << 1, /* with rope, and so the next three */
    WITH_PARTIAL = 1 << 2,     /* some channels of the head, from an offset on */
    WITH_NORM = 1 << 3,
    WITH_BF16_ROPE = 1 << 4,
    WITH_NORM_FIRST = 1 << 5, /* with or without rope */
    WITH_SOFTCAP = 1 << 6,
    WITH_SINK = 1 << 7,
    WITH_SMOOTH = 1 << 8,
    WITH_Q_SCALE = 1 << 9,
    WITH_SCALE_PER_CHANNEL = 1 << 10
};

struct options_case {
    struct runtime_case runtime;
    struct pkv_attn_constants constants[CASE_MAX_LAYERS]; /* what each layer has */
    void *arrays[OPTIONS_MAX_ARRAYS];
    size_t num_arrays;
    pkv_workspace *workspace;
    bool has_positions;
    int64_t num_positions;
    struct test_random random;
};

/* case_init, no layer yet. Change runtime.config and its groups, add layers, then open. */
void options_case_init(struct options_case *c, uint64_t seed);

/* A layer of its own pages, and one that reads those of layer `owner`. */
struct pkv_layer_config *options_case_layer(struct options_case *c, int32_t group,
                                            int32_t num_heads, unsigned options);
struct pkv_layer_config *options_case_sharer(struct options_case *c, int32_t owner,
                                             int32_t num_heads, unsigned options);

void options_case_open(struct options_case *c);
void options_case_close(struct options_case *c);

/* As case_begin with all rows required, with position_ids where the case has them. */
enum pkv_status options_case_begin(struct options_case *c, struct case_step *step);

/* The position that rope turns a token by. */
int64_t options_case_position(const struct options_case *c, uint32_t tag, int32_t natural);

/* Attends one layer of the open step; false after a line that says which of the three differs. */
bool options_case_attend(struct options_case *c, struct case_step *step, int32_t layer);

#endif
