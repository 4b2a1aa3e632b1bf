/* SPDX-License-Identifier: MIT
 *
 * row.c: what a row brings, and which of its drafts are right. */
#include "row.h"

#include "dice.h"
#include "report.h"

#include <math.h>
#include <string.h>

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Drafts may be as many as can be taken back, and the model adds a token of its own. */
static void add_drafts(struct run *run, int32_t room, int32_t vocab_size, uint64_t *random,
                       struct row *row)
{
    const struct request *request = run->request;
    const int32_t left = request->num_tokens - run->num_tokens - 1;
    const int32_t max_drafts = least(least(request->max_rewind, left), room - 1);
    if (max_drafts < 1) {
        return;
    }
    drafts_propose(request->drafts, run->choice, run->num_tokens, vocab_size, max_drafts, random,
                   &row->drafts);
    row->has_drafts = row->drafts.count > 1;
    row->is_tree = row->has_drafts && request->drafts == DRAFT_TREE;
    row->q_len = row->drafts.count;
}

void row_compose(struct run *run, int32_t room, int32_t vocab_size, uint64_t *random,
                 struct row *row)
{
    const int32_t pending = run->num_tokens - run->length;
    memset(row, 0, sizeof *row);
    row->run = run;
    row->q_len = least(pending, room);
    if (row->q_len > 1 && dice_chance(random, 30)) {
        row->q_len = dice_between(random, 1, row->q_len);
    }
    row->reaches_end = row->q_len == pending;
    if (pending == 1) {
        add_drafts(run, room, vocab_size, random, row);
    }
    row->num_path = row->q_len;
    row->num_tokens = run->num_tokens;
}

void row_write(const struct row *row, int32_t *tokens, int32_t *parents)
{
    const int32_t *text = row->run->choice->tokens + row->run->length;
    for (int32_t i = 0; i < row->q_len; i++) {
        tokens[i] = row->has_drafts ? row->drafts.tokens[i] : text[i];
        parents[i] = row->has_drafts ? row->drafts.parents[i] : i - 1;
    }
}

/* The next token of a text of *num_tokens tokens, after token `at` of the step. */
static bool choose(const struct hybrid *hybrid, struct activations *a, const struct run *run,
                   int32_t at, int32_t *num_tokens, float *widest)
{
    const struct choice *choice = run->choice;
    const int32_t position = *num_tokens;
    float lead = 0;
    if (!logits_of(&hybrid->model, a, at)) {
        return false;
    }
    const int32_t token =
        sampler_choose(&choice->sampler, a->logits, hybrid->model.vocab_size, position, &lead);
    const float difference = fabsf(lead - choice->leads[position - run->request->num_prompt]);
    if (token != choice->tokens[position]) {
        return complain("request of %d tokens, answer %d: token %d is %d, naively %d",
                        run->request->num_prompt, (int)(choice - run->request->choices), position,
                        token, choice->tokens[position]);
    }
    *widest = fmaxf(*widest, difference);
    *num_tokens = position + 1;
    return true;
}

/* The draft after `node` that is the text's token at `position`, or -1. */
static int32_t child_of(const struct row *row, int32_t node, int32_t position)
{
    for (int32_t i = node + 1; row->has_drafts && i < row->drafts.count; i++) {
        if (row->drafts.parents[i] == node &&
            row->drafts.tokens[i] == row->run->choice->tokens[position]) {
            return i;
        }
    }
    return -1;
}

bool row_verify(const struct hybrid *hybrid, struct activations *a, struct row *row, float *widest)
{
    if (!row->reaches_end) {
        return true;
    }
    int32_t node = row->q_len - 1;
    if (row->has_drafts) {
        node = 0;
        row->path[0] = 0;
        row->num_path = 1;
    }
    for (;;) {
        if (!choose(hybrid, a, row->run, row->first + node, &row->num_tokens, widest)) {
            return false;
        }
        node = child_of(row, node, row->num_tokens - 1);
        if (node < 0) {
            return true;
        }
        row->path[row->num_path++] = node;
    }
}

bool row_choose_other(const struct hybrid *hybrid, struct activations *a, const struct row *row,
                      struct run *other, float *widest)
{
    const int32_t last = row->has_drafts ? 0 : row->q_len - 1;
    other->num_tokens = other->request->num_prompt;
    return choose(hybrid, a, other, row->first + last, &other->num_tokens, widest);
}
