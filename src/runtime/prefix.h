/* SPDX-License-Identifier: MIT
 *
 * prefix.h: a sequence's side of the prefix cache: the tokens it remembers, the blocks that it
 * publishes, and the run that a prompt finds. Without config.prefix_cache every call here does
 * nothing and finds nothing. The mutex is held. */
#ifndef PKV_RUNTIME_PREFIX_H
#define PKV_RUNTIME_PREFIX_H

#include "runtime/cache.h"

/* The parts of the index. size_of: what create takes, beside what is carved. */
enum pkv_status prefix_size_of(const struct pkv_cache_config *config, const int32_t *num_blocks,
                               struct pkv_cache_sizes *sizes);
enum pkv_status prefix_build(pkv_cache *cache);
void prefix_free(pkv_cache *cache);

/* PKV_UNSUPPORTED for a cache that was created without a prefix cache; PKV_INVALID_ARGUMENT for
 * none. Needs no mutex. */
enum pkv_status prefix_require(const pkv_cache *cache);

/* The fields of a namespace as the index takes them; kept_bytes is what one of them points to. */
struct prefix_name {
    int32_t count;
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    unsigned char kept_bytes[sizeof(int32_t)];
};

/* Fields of a caller. PKV_INVALID_ARGUMENT. */
enum pkv_status prefix_name_of(const struct pkv_namespace_field *fields, int32_t num_fields,
                               struct prefix_name *name);

/* Adds a kept prefix of a sequence's own, where a window makes later layers depend on it: what it
 * computes is another content. PKV_INVALID_ARGUMENT when the name has no place left. */
enum pkv_status prefix_name_kept(const pkv_cache *cache, const struct seq *model,
                                 struct prefix_name *name);

/* The namespaces of a new sequence, into model->prefix; given back by prefix_leave. */
enum pkv_status prefix_join(pkv_cache *cache, const struct prefix_name *name, struct seq *model);
void prefix_leave(pkv_cache *cache, struct seq *seq);

/* Whole blocks of a prompt that may be adopted: at most max_cached tokens, and never its last one,
 * which has to be computed. */
int32_t prefix_adoptable(const pkv_cache *cache, const struct pkv_prompt *prompt,
                         int32_t max_cached);

/* The longest run of at most max_blocks leading blocks that a sequence like `model` can go on from:
 * their nodes stand in prefix.matched. */
int32_t prefix_match(pkv_cache *cache, const struct seq *model, const struct pkv_prompt *prompt,
                     int32_t max_blocks);

/* Tokens past num_cached that a live sequence is to publish, of those that prompt could adopt. */
int32_t prefix_pending(pkv_cache *cache, const struct seq *model, const struct pkv_prompt *prompt,
                       int32_t num_cached, int32_t max_cached);

/* The empty sequence `index` holds the first num_blocks blocks that were matched. Its tables must
 * be those of seq_table_adopted. */
void prefix_adopt(pkv_cache *cache, int32_t index, int32_t num_blocks);

/* Remembers the prompt of an admission. */
void prefix_note_prompt(pkv_cache *cache, int32_t index, const struct pkv_prompt *prompt);

/* Remembers tokens [first, first + n) that the step at hand writes. */
void prefix_note_step(pkv_cache *cache, int32_t index, int32_t first,
                      const struct pkv_prompt *tokens);

/* Asks for the place of token `at` of a sequence in memory. */
void prefix_ask_for(const pkv_cache *cache, int32_t index, int32_t at);

/* The step is over, whatever it kept. */
void prefix_end_step(pkv_cache *cache, int32_t index);

/* Publishes what became full. Equal blocks that were there before replace the sequence's own. */
void prefix_publish(pkv_cache *cache, int32_t index);

/* The sequence was cut to `length`. O(blocks cut). */
void prefix_cut(pkv_cache *cache, int32_t index, int32_t length);

/* A fresh child remembers what its parent does of the first `at` tokens. */
void prefix_fork(pkv_cache *cache, int32_t parent, int32_t child, int32_t at);

#endif
