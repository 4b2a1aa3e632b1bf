/* SPDX-License-Identifier: MIT
 *
 * bpe_file.c: a token is written with a letter for each byte, so that JSON can hold it: the byte
 * itself where that prints, otherwise the letters from U+0100 on, in order. */
#include "bpe_file.h"

#include "json_file.h"
#include "report.h"
#include "utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 128 << 20, NUM_LETTERS = 256 + 68, MAX_TOKEN_BYTES = 1 << 12, NO_BYTE = -1 };

/* The file while it is read. */
struct source {
    const char *path;
    struct bpe *bpe;
    int16_t byte_of[NUM_LETTERS]; /* by code point */
};

static bool prints(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static void list_letters(struct source *in)
{
    int next = 256;
    memset(in->byte_of, NO_BYTE, sizeof in->byte_of);
    for (int byte = 0; byte < 256; byte++) {
        in->byte_of[prints(byte) ? byte : next] = (int16_t)byte;
        next += !prints(byte);
    }
}

/* ---- tokens --------------------------------------------------------------------------------- */

/* The bytes of a token as it is written; the text itself where a letter stands for no byte. */
static size_t read_token(const struct source *in, const char *text, size_t length, char *bytes)
{
    size_t count = 0, step = 0;
    for (size_t at = 0; at < length; at += step) {
        const bool whole = utf8_next(text + at, length - at, &step) == UTF8_WHOLE;
        const uint32_t code = whole ? utf8_code(text + at, step) : NUM_LETTERS;
        if (code >= NUM_LETTERS || in->byte_of[code] == NO_BYTE) {
            memcpy(bytes, text, length);
            return length;
        }
        bytes[count] = (char)in->byte_of[code];
        count++;
    }
    return count;
}

static bool take_id(const struct source *in, const cJSON *item, const char *token, int32_t *id)
{
    const double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (number != floor(number) || number < 0 || number >= in->bpe->vocab_size) {
        return complain("%s: token %.40s has no id below the model's %d", in->path, token,
                        in->bpe->vocab_size);
    }
    *id = (int32_t)number;
    return true;
}

/* These come first, so that the vocabulary, which may have them too, adds no text that becomes
 * them. */
static bool take_added(struct source *in, const cJSON *added)
{
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, added)
    {
        const cJSON *content = json_file_field(each, "content");
        const char *text = cJSON_IsString(content) ? content->valuestring : "";
        bool special = true;
        int32_t id = 0;
        if (!take_id(in, json_file_field(each, "id"), text, &id) ||
            !json_file_flag(in->path, each, "special", &special)) {
            return false;
        }
        if (in->bpe->tokens[id].bytes != NULL || strlen(text) > MAX_TOKEN_BYTES) {
            return complain("%s: added_tokens has id %d twice, or too long", in->path, id);
        }
        if (!bpe_add_token(in->bpe, id, text, strlen(text), special)) {
            return false;
        }
    }
    return true;
}

static bool is_added(const struct source *in, int32_t id, const char *text)
{
    const struct bpe_token *token = &in->bpe->tokens[id];
    return token->bytes != NULL && strcmp(token->bytes, text) == 0;
}

static bool take_vocabulary(struct source *in, const cJSON *vocab)
{
    char bytes[MAX_TOKEN_BYTES];
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, vocab)
    {
        int32_t id = 0;
        const size_t length = strlen(each->string);
        if (!take_id(in, each, each->string, &id)) {
            return false;
        }
        if (is_added(in, id, each->string)) {
            continue;
        }
        if (in->bpe->tokens[id].bytes != NULL || length == 0 || length > sizeof bytes) {
            return complain("%s: vocab has id %d twice, or empty, or too long", in->path, id);
        }
        const size_t num_bytes = read_token(in, each->string, length, bytes);
        if (!bpe_add_token(in->bpe, id, bytes, num_bytes, false)) {
            return false;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        if (in->bpe->of_byte[byte] < 0) {
            return complain("%s: vocab has no token for byte %d", in->path, byte);
        }
    }
    return true;
}

/* ---- merges --------------------------------------------------------------------------------- */

/* Two texts of a merge. */
struct pair {
    const char *left, *right;
    size_t left_length, right_length;
};

/* "left right" or ["left", "right"]. */
static bool take_pair(const cJSON *item, struct pair *pair)
{
    if (cJSON_IsString(item)) {
        const char *space = strchr(item->valuestring, ' ');
        if (space == NULL) {
            return false;
        }
        pair->left = item->valuestring;
        pair->left_length = (size_t)(space - item->valuestring);
        pair->right = space + 1;
    } else {
        const bool two = cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2;
        if (!two || !cJSON_IsString(item->child) || !cJSON_IsString(item->child->next)) {
            return false;
        }
        pair->left = item->child->valuestring;
        pair->left_length = strlen(pair->left);
        pair->right = item->child->next->valuestring;
    }
    pair->right_length = strlen(pair->right);
    return pair->left_length > 0 && pair->right_length > 0 &&
           pair->left_length + pair->right_length <= MAX_TOKEN_BYTES;
}

static bool take_merges(struct source *in, const cJSON *merges)
{
    char bytes[MAX_TOKEN_BYTES];
    const cJSON *each = NULL;
    int32_t rank = 0;
    cJSON_ArrayForEach(each, merges)
    {
        struct pair pair;
        if (!take_pair(each, &pair)) {
            return complain("%s: merges[%d] is no pair of texts", in->path, rank);
        }
        const size_t first = read_token(in, pair.left, pair.left_length, bytes);
        const size_t second = read_token(in, pair.right, pair.right_length, bytes + first);
        const int32_t left = bpe_find(in->bpe, bytes, first);
        const int32_t right = bpe_find(in->bpe, bytes + first, second);
        const int32_t result = bpe_find(in->bpe, bytes, first + second);
        if (left < 0 || right < 0 || result < 0) {
            return complain("%s: merges[%d] is of tokens that are not in vocab", in->path, rank);
        }
        bpe_add_merge(in->bpe, left, right, rank, result);
        rank++;
    }
    return true;
}

/* ---- what is done before and after ---------------------------------------------------------- */

static const char *type_of(const cJSON *object)
{
    const cJSON *type = json_file_field(object, "type");
    return cJSON_IsString(type) ? type->valuestring : "?";
}

static bool is_type(const cJSON *object, const char *type)
{
    return strcmp(type_of(object), type) == 0;
}

/* The flag, `otherwise` where it is left out or no flag. */
static bool flag(const cJSON *object, const char *name, bool otherwise)
{
    const cJSON *item = json_file_field(object, name);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

static bool take_pattern(const struct source *in, const cJSON *split)
{
    const cJSON *regex = json_file_field(json_file_field(split, "pattern"), "Regex");
    const bool isolated = json_file_says(json_file_field(split, "behavior"), "Isolated");
    if (!is_type(split, "Split") || !isolated || flag(split, "invert", false) ||
        !cJSON_IsString(regex)) {
        return complain("%s: pre_tokenizer begins with %s, not with Split by a Regex, Isolated",
                        in->path, type_of(split));
    }
    return bpe_split_of(regex->valuestring, &in->bpe->split) ||
           complain("%s: pre_tokenizer's pattern is none of GPT-2, Llama 3 and Qwen: %.200s",
                    in->path, regex->valuestring);
}

/* ByteLevel alone, or behind a Split. */
static bool take_pre_tokenizer(const struct source *in, const cJSON *object)
{
    const cJSON *list = json_file_field(object, "pretokenizers");
    const bool two = is_type(object, "Sequence") && cJSON_GetArraySize(list) == 2;
    const cJSON *bytes = two ? list->child->next : object;
    if (!is_type(bytes, "ByteLevel")) {
        return complain("%s: pre_tokenizer is %s, not ByteLevel or a Split before ByteLevel",
                        in->path, type_of(object));
    }
    if (flag(bytes, "add_prefix_space", true) || flag(bytes, "use_regex", true) == two) {
        return complain("%s: pre_tokenizer ByteLevel has add_prefix_space, or use_regex %s a Split",
                        in->path, two ? "behind" : "false without");
    }
    in->bpe->split = BPE_SPLIT_GPT2;
    return !two || take_pattern(in, list->child);
}

/* The special token that a TemplateProcessing begins one text with. */
static bool take_template(const struct source *in, const cJSON *object, int32_t *begin)
{
    const cJSON *single = json_file_field(object, "single");
    const cJSON *first =
        json_file_field(cJSON_IsArray(single) ? single->child : NULL, "SpecialToken");
    const cJSON *name = json_file_field(first, "id");
    if (!cJSON_IsString(name)) {
        return true;
    }
    const cJSON *tokens = json_file_field(object, "special_tokens");
    const cJSON *ids = json_file_field(json_file_field(tokens, name->valuestring), "ids");
    return take_id(in, cJSON_IsArray(ids) ? ids->child : NULL, name->valuestring, begin);
}

static bool take_post_processor(const struct source *in, const cJSON *object, int32_t *begin)
{
    if (is_type(object, "TemplateProcessing")) {
        return take_template(in, object, begin);
    }
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, json_file_field(object, "processors"))
    {
        if (is_type(each, "TemplateProcessing") && !take_template(in, each, begin)) {
            return false;
        }
    }
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool is_filled(const cJSON *item)
{
    return cJSON_IsString(item) && item->valuestring[0] != '\0';
}

static bool check_model(const char *path, const cJSON *root, const cJSON *model)
{
    const cJSON *normalizer = json_file_field(root, "normalizer");
    if (normalizer != NULL && !is_type(normalizer, "NFC")) {
        return complain("%s: normalizer is %s, not NFC or none", path, type_of(normalizer));
    }
    if (!is_type(model, "BPE") || !cJSON_IsObject(json_file_field(model, "vocab")) ||
        !cJSON_IsArray(json_file_field(model, "merges"))) {
        return complain("%s: model is %s, not BPE with vocab and merges", path, type_of(model));
    }
    if (flag(model, "byte_fallback", false) || json_file_field(model, "dropout") != NULL ||
        is_filled(json_file_field(model, "continuing_subword_prefix")) ||
        is_filled(json_file_field(model, "end_of_word_suffix"))) {
        return complain("%s: model has byte_fallback, dropout, or prefixes or suffixes of words",
                        path);
    }
    return true;
}

static bool take_all(struct source *in, const cJSON *root, const cJSON *model, int32_t *begin)
{
    in->bpe->whole_pieces = flag(model, "ignore_merges", false);
    return take_added(in, json_file_field(root, "added_tokens")) &&
           take_vocabulary(in, json_file_field(model, "vocab")) &&
           take_merges(in, json_file_field(model, "merges")) &&
           take_pre_tokenizer(in, json_file_field(root, "pre_tokenizer")) &&
           take_post_processor(in, json_file_field(root, "post_processor"), begin);
}

bool bpe_file_read(const char *path, int32_t vocab_size, struct bpe *bpe, int32_t *begin)
{
    struct source in = {.path = path, .bpe = bpe};
    *begin = -1;
    list_letters(&in);
    cJSON *root = json_file_read(path, MAX_FILE);
    if (root == NULL) {
        return false;
    }
    const cJSON *model = json_file_field(root, "model");
    bool ok = check_model(path, root, model) &&
              bpe_create(vocab_size, cJSON_GetArraySize(json_file_field(model, "merges")), bpe);
    if (ok && !take_all(&in, root, model, begin)) {
        bpe_free(bpe);
        ok = false;
    }
    cJSON_Delete(root);
    return ok;
}
