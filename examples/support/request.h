/* SPDX-License-Identifier: MIT
 *
 * request.h: a client's prompt, and what was generated so far.
 *
 *   1 <= num_prompt <= num_tokens <= max_tokens <= seq_len
 *
 * A request owns its tokens for good; what a cache holds of it can be dropped and computed anew. */
#ifndef SUPPORT_REQUEST_H
#define SUPPORT_REQUEST_H

#include "model.h"

struct request {
    int32_t *tokens; /* [max_tokens]: the prompt, then what was generated */
    int32_t num_prompt;
    int32_t num_tokens;
    int32_t max_tokens;
    bool ended; /* the model ended it, or max_tokens is reached */
};

struct request_list {
    struct request *items;
    int32_t count;
    int32_t capacity;
};

/* Appends a request for up to num_new tokens after the prompt, which is copied. Complains about ids
 * outside the vocabulary and a prompt that is empty or longer than seq_len. */
bool request_add(struct request_list *list, const struct model *model, const int32_t *prompt,
                 int32_t num_prompt, int32_t num_new);

/* The same from text such as "1 403 407". */
bool request_add_ids(struct request_list *list, const struct model *model, const char *text,
                     int32_t num_new);

/* The same for each line of a file; empty lines do not count. */
bool request_add_file(struct request_list *list, const struct model *model, const char *path,
                      int32_t num_new);

/* Takes the model's next token; its begin and end end the request and are not kept. */
void request_take(const struct model *model, struct request *request, int32_t token);

/* Back to the prompt alone, to run it again. */
void request_reset(struct request *request);

/* Of all requests: the tokens that were generated, and the longest max_tokens. */
int64_t request_generated(const struct request_list *list);
int32_t request_longest(const struct request_list *list);

void request_free(struct request_list *list);

#endif
