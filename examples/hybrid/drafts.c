/* SPDX-License-Identifier: MIT
 *
 * drafts.c: what stands for a draft model knows the right answer, and errs at a third of all
 * tokens; behind an error it is always wrong. */
#include "drafts.h"

#include "dice.h"

enum { PERCENT_RIGHT = 66 };

static void add(struct drafts *drafts, int32_t token, int32_t parent)
{
    drafts->tokens[drafts->count] = token;
    drafts->parents[drafts->count++] = parent;
}

/* Behind the last earlier occurrence of the text's last two tokens. */
static void look_up(const int32_t *text, int32_t num_tokens, int32_t max_drafts,
                    struct drafts *drafts)
{
    int32_t at = num_tokens - 2;
    while (at > 0 && (text[at - 1] != text[num_tokens - 2] || text[at] != text[num_tokens - 1])) {
        at--;
    }
    for (int32_t i = at + 1; at > 0 && i < num_tokens && drafts->count <= max_drafts; i++) {
        add(drafts, text[i], drafts->count - 1);
    }
}

static void guess(const struct choice *choice, int32_t num_tokens, int32_t vocab_size,
                  int32_t max_drafts, bool is_tree, uint64_t *random, struct drafts *drafts)
{
    int32_t depths[MAX_DRAFTS + 1] = {0};
    bool is_right[MAX_DRAFTS + 1] = {true};
    while (drafts->count <= max_drafts) {
        const int32_t i = drafts->count;
        const int32_t parent = is_tree ? dice_between(random, i > 3 ? i - 3 : 0, i - 1) : i - 1;
        const int32_t right = choice->tokens[num_tokens + depths[parent]];
        depths[i] = depths[parent] + 1;
        is_right[i] = is_right[parent] && dice_chance(random, PERCENT_RIGHT);
        add(drafts, is_right[i] ? right : dice_between(random, 0, vocab_size - 1), parent);
    }
}

void drafts_propose(enum draft_kind kind, const struct choice *choice, int32_t num_tokens,
                    int32_t vocab_size, int32_t max_drafts, uint64_t *random, struct drafts *drafts)
{
    const int32_t most = max_drafts < MAX_DRAFTS ? max_drafts : MAX_DRAFTS;
    drafts->count = 0;
    add(drafts, choice->tokens[num_tokens - 1], -1);
    if (kind == DRAFT_LOOKUP) {
        look_up(choice->tokens, num_tokens, most, drafts);
    } else if (kind != DRAFT_NONE) {
        guess(choice, num_tokens, vocab_size, most, kind == DRAFT_TREE, random, drafts);
    }
}
