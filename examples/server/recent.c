/* SPDX-License-Identifier: MIT */
#include "recent.h"

#include "model_cache.h"
#include "report.h"

#include "pagedkv/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096 };

void recent_add(struct recent *recent, const char *tenant, const int32_t *tokens,
                int32_t num_tokens)
{
    struct recent_text *text = &recent->texts[recent->num_added % MAX_RECENT];
    int32_t *copy = malloc((size_t)num_tokens * sizeof *copy);
    if (copy == NULL) {
        return; /* it will be computed again */
    }
    memcpy(copy, tokens, (size_t)num_tokens * sizeof *copy);
    free(text->tokens);
    text->tokens = copy;
    text->num_tokens = num_tokens;
    snprintf(text->tenant, sizeof text->tenant, "%s", tenant);
    recent->num_added++;
}

void recent_free(struct recent *recent)
{
    for (int32_t i = 0; i < MAX_RECENT; i++) {
        free(recent->texts[i].tokens);
    }
    *recent = (struct recent){.num_added = 0};
}

/* 0 is the newest; NULL where there is none. */
static const struct recent_text *text_at(const struct recent *recent, int32_t age)
{
    const int32_t index = recent->num_added - 1 - age;
    return index >= 0 && age < MAX_RECENT ? &recent->texts[index % MAX_RECENT] : NULL;
}

static bool begins_with(const struct recent_text *text, const struct recent_text *other)
{
    return text->num_tokens >= other->num_tokens && strcmp(text->tenant, other->tenant) == 0 &&
           memcmp(text->tokens, other->tokens, (size_t)other->num_tokens * sizeof(int32_t)) == 0;
}

/* With a window only the newest keys of a text are saved, so it serves no shorter one. */
static bool has_window(const pkv_cache *cache)
{
    struct pkv_cache_config config = {.size = sizeof config};
    bool found = pkv_cache_describe(cache, &config) != PKV_OK;
    for (int32_t g = 0; !found && g < config.num_groups; g++) {
        found = config.groups[g].sliding_window > 0;
    }
    return found;
}

/* What a prompt can find: whole blocks, and never its last token. */
static int32_t num_blocks(const struct recent_text *text, int32_t block_size)
{
    return (text->num_tokens - 1) / block_size;
}

/* Does a newer text have all of it? */
static bool is_repeated(const struct recent *recent, int32_t age, int32_t block_size, bool windowed)
{
    const struct recent_text *text = text_at(recent, age);
    for (int32_t i = 0; i < age; i++) {
        const struct recent_text *newer = text_at(recent, i);
        if (begins_with(newer, text) &&
            (!windowed || num_blocks(newer, block_size) == num_blocks(text, block_size))) {
            return true;
        }
    }
    return false;
}

static void name_file(const char *folder, int32_t number, char path[MAX_PATH_BYTES])
{
    snprintf(path, MAX_PATH_BYTES, "%s/%d.pkv", folder, number);
}

/* A sequence of what is cached of a text; id 0 when that is nothing. */
static pkv_seq adopt(pkv_cache *cache, const struct recent_text *text, int32_t block_size)
{
    struct job_request request = {.priority = 0};
    struct pkv_namespace_field field;
    struct pkv_admission admission = {.size = sizeof admission};
    pkv_seq seq = {0};
    memcpy(request.tenant, text->tenant, sizeof request.tenant);
    const struct pkv_seq_options options = model_cache_seq_options(&request, 0, &field);
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = text->tokens, .num_tokens = text->num_tokens};
    if (pkv_seq_create(cache, &options, &seq) != PKV_OK) {
        return (pkv_seq){0};
    }
    if (pkv_seq_admit(cache, seq, &prompt, 0, text->num_tokens / block_size * block_size,
                      &admission, NULL) != PKV_OK ||
        admission.num_cached == 0) {
        pkv_seq_destroy(cache, seq);
        return (pkv_seq){0};
    }
    return seq;
}

/* True when the file is there. */
static bool save_text(pkv_cache *cache, const struct recent_text *text, int32_t block_size,
                      const char *path)
{
    const pkv_seq seq = adopt(cache, text, block_size);
    if (seq.id == 0) {
        return false;
    }
    const bool ok = pkv_seq_save_file(cache, seq, path) == PKV_OK ||
                    complain("%s is not saved: %s", path, pkv_last_error());
    pkv_seq_destroy(cache, seq);
    return ok;
}

void recent_save(const struct recent *recent, pkv_cache *cache, int32_t block_size,
                 const char *folder, double max_seconds)
{
    const double until = now_seconds() + max_seconds;
    char path[MAX_PATH_BYTES];
    const bool windowed = has_window(cache);
    int32_t num_files = 0;
    for (int32_t age = 0; text_at(recent, age) != NULL && now_seconds() < until; age++) {
        name_file(folder, num_files, path);
        if (!is_repeated(recent, age, block_size, windowed) &&
            save_text(cache, text_at(recent, age), block_size, path)) {
            num_files++;
        }
    }
    for (; recent->num_added > 0 && num_files < MAX_RECENT; num_files++) {
        name_file(folder, num_files, path);
        unlink(path);
    }
}

void recent_load(pkv_cache *cache, const char *folder)
{
    char path[MAX_PATH_BYTES];
    mkdir(folder, 0700);
    for (int32_t number = MAX_RECENT - 1; number >= 0; number--) {
        pkv_seq seq = {0};
        name_file(folder, number, path);
        if (access(path, F_OK) != 0) {
            continue;
        }
        if (pkv_seq_load_file(cache, path, &seq, NULL) == PKV_OK) {
            pkv_seq_destroy(cache, seq); /* its blocks stay cached */
        } else {
            complain("%s is not loaded: %s", path, pkv_last_error());
        }
    }
}
