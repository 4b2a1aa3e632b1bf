/* SPDX-License-Identifier: MIT
 *
 * server_probe: what models.py, beside this file, compares with Python: the parts of the server
 * that read models and texts, without HTTP.
 *
 *   server_probe FOLDER load             opens the model and its vocabulary
 *   server_probe FOLDER encode           texts on stdin, each behind its length (4 bytes, little-
 *                                        endian); a line of token ids for each
 *   server_probe FOLDER chat             one conversation: role, text, role, text, ..
 *   server_probe MODEL logits CHUNK ID.. f32 logits after each token, by a cache as the server has
 *                                        it, CHUNK tokens a step; MODEL may be a file of llama2.c
 *   server_probe FILE forge              every truncation of a safetensors file, and every bit of
 *                                        its header flipped: refused or taken, never a crash */
#include "../codec.h"
#include "../folder_model.h"
#include "../safetensors.h"

#include "cached.h"
#include "forward.h"
#include "load.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char program_name[] = "server_probe";

enum { MAX_TEXT = 1 << 26, MAX_TEXTS = 64, MAX_FORGED = 1 << 20 };

/* ---- models --------------------------------------------------------------------------------- */

static bool open_model(const char *path, struct folder_config *config, struct model *model)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? folder_model_open(path, config, model)
                                                           : model_load(path, model);
}

static bool open_codec(const char *folder, const struct model *model,
                       const struct folder_config *config, struct codec *codec)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return codec_bpe(model, path, config->ends, config->num_ends, codec);
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* The next text of stdin, to be freed; NULL at the end. */
static char *read_text(size_t *num_bytes)
{
    unsigned char length[4];
    if (fread(length, 1, sizeof length, stdin) != sizeof length) {
        return NULL;
    }
    *num_bytes = load_u32(length);
    char *text = *num_bytes <= MAX_TEXT ? malloc(*num_bytes + 1) : NULL;
    if (text == NULL || fread(text, 1, *num_bytes, stdin) != *num_bytes) {
        complain("a text of %zu bytes did not come", *num_bytes);
        exit(1);
    }
    text[*num_bytes] = '\0';
    return text;
}

static void print_ids(const int32_t *tokens, int32_t num_tokens)
{
    for (int32_t i = 0; i < num_tokens; i++) {
        printf(i > 0 ? " %d" : "%d", tokens[i]);
    }
    putchar('\n');
}

/* The bytes of the tokens are the text. */
static bool check_bytes(const struct codec *codec, const int32_t *tokens, int32_t num_tokens,
                        const char *text, size_t num_text)
{
    size_t at = 0, count = 0;
    for (int32_t i = 0; i < num_tokens; i++) {
        const char *bytes = codec->bytes(codec->self, tokens[i], &count);
        if (count == 0 || count > num_text - at || memcmp(bytes, text + at, count) != 0) {
            return complain("token %d of a text is not what stands at its byte %zu", i, at);
        }
        at += count;
    }
    return at == num_text || complain("tokens are of %zu bytes, the text of %zu", at, num_text);
}

static bool encode_all(const struct codec *codec)
{
    size_t num_bytes = 0;
    bool ok = true;
    for (char *text = read_text(&num_bytes); ok && text != NULL; text = read_text(&num_bytes)) {
        int32_t *tokens = NULL;
        int32_t num_tokens = 0;
        ok = codec->encode(codec->self, text, num_bytes, &tokens, &num_tokens) &&
             check_bytes(codec, tokens, num_tokens, text, num_bytes);
        if (ok) {
            print_ids(tokens, num_tokens);
            free(tokens);
        }
        free(text);
    }
    return ok;
}

static bool encode_chat(const struct codec *codec)
{
    struct message messages[MAX_TEXTS];
    int32_t count = 0, num_tokens = 0;
    size_t num_bytes = 0;
    int32_t *tokens = NULL;
    for (; count < MAX_TEXTS; count++) {
        messages[count].role = read_text(&num_bytes);
        messages[count].text = read_text(&num_bytes);
        if (messages[count].text == NULL) {
            break;
        }
    }
    const bool ok = codec->encode_chat(codec->self, messages, count, &tokens, &num_tokens);
    if (ok) {
        printf("%d ", codec->begin_token);
        print_ids(tokens, num_tokens);
        free(tokens);
    }
    for (int32_t i = 0; i < count; i++) {
        free((char *)(size_t)messages[i].role);
        free((char *)(size_t)messages[i].text);
    }
    return ok;
}

/* ---- logits --------------------------------------------------------------------------------- */

static bool run_chunk(const struct model *model, struct activations *a, pkv_cache *cache,
                      pkv_seq seq, const int32_t *tokens, int32_t count)
{
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &count,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = tokens};
    struct cached_step open = {.cache = cache};
    if (pkv_step_begin(cache, &batch, &open.step, NULL) != PKV_OK) {
        return complain("step: %s", pkv_last_error());
    }
    if (!forward(model, a, tokens, count, cached_attend, &open)) {
        return false;
    }
    for (int32_t i = 0; i < count; i++) {
        if (!logits_of(model, a, i)) {
            return false;
        }
        fwrite(a->logits, sizeof(float), (size_t)model->vocab_size, stdout);
    }
    return pkv_step_commit(cache, open.step, NULL) == PKV_OK ||
           complain("commit: %s", pkv_last_error());
}

static bool run_tokens(const struct model *model, int32_t chunk, const int32_t *tokens,
                       int32_t num_tokens)
{
    const struct pkv_group_config group = {
        .k_dtype = PKV_F32, .v_dtype = PKV_F32, .block_size = 16, .num_blocks = 64};
    const struct pkv_cache_config config = {
        .size = sizeof config, .max_seqs = 1, .max_seq_len = 512, .max_step_tokens = chunk};
    const struct pkv_seq_options options = {.size = sizeof options};
    pkv_cache *cache = NULL;
    struct activations a;
    pkv_seq seq;
    if (!activations_create(model, chunk, 0, &a) ||
        !cached_create(model, &group, &config, &cache)) {
        return false;
    }
    bool ok = pkv_seq_create(cache, &options, &seq) == PKV_OK;
    for (int32_t done = 0; ok && done < num_tokens; done += chunk) {
        const int32_t count = num_tokens - done < chunk ? num_tokens - done : chunk;
        ok = run_chunk(model, &a, cache, seq, tokens + done, count);
    }
    activations_free(&a);
    pkv_cache_destroy(cache, true);
    return ok;
}

/* words: CHUNK ID.. */
static bool print_logits(const struct model *model, int count, char **words)
{
    int32_t chunk = 0;
    int32_t *tokens = calloc((size_t)count + 1, sizeof *tokens);
    bool ok = tokens != NULL && count > 1 && parse_number("CHUNK", words[0], 1, 512, &chunk);
    for (int i = 1; ok && i < count; i++) {
        ok = parse_number("ID", words[i], 0, model->vocab_size - 1, &tokens[i - 1]);
    }
    ok = ok && run_tokens(model, chunk, tokens, count - 1);
    free(tokens);
    return ok;
}

/* ---- forged files --------------------------------------------------------------------------- */

/* In memory of exactly that size, so that an address sanitiser sees a byte too far. */
static bool is_taken(const unsigned char *bytes, size_t num_bytes)
{
    struct safetensors tensors;
    unsigned char *copy = malloc(num_bytes > 0 ? num_bytes : 1);
    if (copy == NULL) {
        complain("out of memory");
        exit(1);
    }
    memcpy(copy, bytes, num_bytes);
    const bool taken = safetensors_parse("forged", copy, num_bytes, &tensors);
    safetensors_free(&tensors);
    free(copy);
    return taken;
}

static bool forge(const char *path)
{
    unsigned char *bytes = NULL;
    size_t num_bytes = 0, num_cut = 0, num_flipped = 0, num_taken = 0;
    if (!read_file(path, MAX_FORGED, &bytes, &num_bytes) || num_bytes < 8 ||
        freopen("/dev/null", "w", stderr) == NULL) {
        return false;
    }
    for (size_t length = 0; length < num_bytes; length++) {
        num_cut += is_taken(bytes, length);
    }
    const size_t header = 8 + load_u32(bytes);
    for (size_t bit = 0; bit < 8 * header && header <= num_bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        num_taken += is_taken(bytes, num_bytes);
        num_flipped++;
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    printf("%zu truncations, %zu taken; %zu flipped bits, %zu taken; whole: %d\n", num_bytes,
           num_cut, num_flipped, num_taken, is_taken(bytes, num_bytes));
    free(bytes);
    return true;
}

/* ---- main ----------------------------------------------------------------------------------- */

static bool with_codec(const char *folder, const char *what, const struct model *model,
                       const struct folder_config *config)
{
    struct codec codec;
    if (!open_codec(folder, model, config, &codec)) {
        return false;
    }
    const bool ok = strcmp(what, "encode") == 0 ? encode_all(&codec)
                    : strcmp(what, "chat") == 0 ? encode_chat(&codec)
                                                : puts("ok") >= 0;
    codec.free(codec.self);
    return ok;
}

int main(int argc, char **argv)
{
    struct folder_config config;
    struct model model;
    if (argc < 3) {
        complain("MODEL load|encode|chat|logits|forge");
        return 1;
    }
    if (strcmp(argv[2], "forge") == 0) {
        return forge(argv[1]) ? 0 : 1;
    }
    if (!open_model(argv[1], &config, &model)) {
        return 1;
    }
    const bool ok = strcmp(argv[2], "logits") == 0 ? print_logits(&model, argc - 3, argv + 3)
                                                   : with_codec(argv[1], argv[2], &model, &config);
    model_free(&model);
    return ok ? 0 : 1;
}
