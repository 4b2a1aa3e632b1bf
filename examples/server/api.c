/* SPDX-License-Identifier: MIT */
#include "api.h"

#include "nul.h"
#include "utf8.h"

#include <cjson/cJSON.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAD_REQUEST = 400, SERVER_ERROR = 500 };

bool api_refuse(struct api_error *error, int http_status, const char *param, const char *format,
                ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    snprintf(error->param, sizeof error->param, "%s", param != NULL ? param : "");
    error->http_status = http_status;
    error->type = http_status < SERVER_ERROR ? "invalid_request_error" : "server_error";
    return false;
}

static bool refuse(struct api_error *error, const char *param, const char *message)
{
    return api_refuse(error, BAD_REQUEST, param, "%s", message);
}

static bool out_of_memory(struct api_error *error)
{
    return api_refuse(error, SERVER_ERROR, NULL, "out of memory");
}

/* The field; NULL when it is left out or null. */
static const cJSON *field(const cJSON *body, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(body, name);
    return cJSON_IsNull(item) ? NULL : item;
}

/* ---- single values -------------------------------------------------------------------------- */

static bool take_number(const cJSON *body, const char *name, double low, double high, double *value,
                        struct api_error *error)
{
    const cJSON *item = field(body, name);
    if (item == NULL) {
        return true;
    }
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= low && item->valuedouble <= high)) {
        return api_refuse(error, BAD_REQUEST, name, "%s is a number in [%g, %g]", name, low, high);
    }
    *value = item->valuedouble;
    return true;
}

static bool take_integer(const cJSON *body, const char *name, double low, double high,
                         int32_t *value, struct api_error *error)
{
    double number = *value;
    if (!take_number(body, name, low, high, &number, error)) {
        return false;
    }
    if (number != floor(number)) {
        return api_refuse(error, BAD_REQUEST, name, "%s is a whole number", name);
    }
    *value = (int32_t)number;
    return true;
}

static bool take_bool(const cJSON *body, const char *name, bool *value, struct api_error *error)
{
    const cJSON *item = field(body, name);
    if (item == NULL) {
        return true;
    }
    if (!cJSON_IsBool(item)) {
        return api_refuse(error, BAD_REQUEST, name, "%s is true or false", name);
    }
    *value = cJSON_IsTrue(item);
    return true;
}

/* ---- stops ---------------------------------------------------------------------------------- */

static bool take_stop(const cJSON *item, struct job_request *job, struct api_error *error)
{
    const size_t length = cJSON_IsString(item) ? strlen(item->valuestring) : 0;
    if (length < 1 || length > MAX_STOP_BYTES || job->num_stops == MAX_STOPS) {
        return api_refuse(error, BAD_REQUEST, "stop", "stop is up to %d texts of 1 to %d bytes",
                          MAX_STOPS, MAX_STOP_BYTES);
    }
    job->stops[job->num_stops] = malloc(length + 1);
    if (job->stops[job->num_stops] == NULL) {
        return out_of_memory(error);
    }
    memcpy(job->stops[job->num_stops], item->valuestring, length + 1);
    job->num_stops++;
    return true;
}

static bool take_stops(const cJSON *body, struct job_request *job, struct api_error *error)
{
    const cJSON *item = field(body, "stop");
    if (item == NULL || !cJSON_IsArray(item)) {
        return item == NULL || take_stop(item, job, error);
    }
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, item)
    {
        if (!take_stop(each, job, error)) {
            return false;
        }
    }
    return true;
}

/* ---- the prompt ----------------------------------------------------------------------------- */

/* The begin token before `tokens`, where the model has one; takes them over. */
static bool set_prompt(const struct language_model *lm, int32_t *tokens, int32_t num_tokens,
                       bool begin, struct job_request *job, struct api_error *error)
{
    const int32_t first = begin && lm->codec.begin_token >= 0 ? 1 : 0;
    if (first == 0) {
        job->prompt = tokens;
        job->num_prompt = num_tokens;
    } else {
        job->prompt = malloc(((size_t)num_tokens + 1) * sizeof *tokens);
        if (job->prompt != NULL) {
            job->prompt[0] = lm->codec.begin_token;
            memcpy(job->prompt + 1, tokens, (size_t)num_tokens * sizeof *tokens);
            job->num_prompt = num_tokens + 1;
        }
        free(tokens);
        if (job->prompt == NULL) {
            return out_of_memory(error);
        }
    }
    return job->num_prompt > 0 || refuse(error, "prompt", "the prompt has no tokens");
}

/* Text that could not fit even if each of its tokens were the longest is not tokenized. */
static bool check_length(const struct language_model *lm, size_t num_bytes, const char *name,
                         struct api_error *error)
{
    const size_t most = (size_t)lm->model.seq_len * (size_t)lm->codec.max_token_bytes;
    return num_bytes <= most || api_refuse(error, BAD_REQUEST, name,
                                           "%s is longer than the %d tokens that the model takes",
                                           name, lm->model.seq_len);
}

static bool take_text(const struct language_model *lm, const char *text, struct job_request *job,
                      struct api_error *error)
{
    int32_t *tokens = NULL;
    int32_t num_tokens = 0;
    if (!check_length(lm, strlen(text), "prompt", error)) {
        return false;
    }
    if (!lm->codec.encode(lm->codec.self, text, strlen(text), &tokens, &num_tokens)) {
        return api_refuse(error, SERVER_ERROR, "prompt", "the text could not be tokenized");
    }
    return set_prompt(lm, tokens, num_tokens, true, job, error);
}

static bool take_ids(const struct language_model *lm, const cJSON *ids, struct job_request *job,
                     struct api_error *error)
{
    const int count = cJSON_GetArraySize(ids);
    int32_t *tokens = malloc(((size_t)count + 1) * sizeof *tokens);
    if (tokens == NULL) {
        return out_of_memory(error);
    }
    int32_t i = 0;
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, ids)
    {
        const double id = cJSON_IsNumber(each) ? each->valuedouble : -1;
        if (id != floor(id) || id < 0 || id >= lm->model.vocab_size) {
            free(tokens);
            return api_refuse(error, BAD_REQUEST, "prompt", "prompt[%d] is no token id below %d", i,
                              lm->model.vocab_size);
        }
        tokens[i] = (int32_t)id;
        i++;
    }
    return set_prompt(lm, tokens, i, false, job, error);
}

/* A text, token ids, or a list with one of them. */
static bool take_prompt(const struct language_model *lm, const cJSON *body, struct job_request *job,
                        struct api_error *error)
{
    const cJSON *item = field(body, "prompt");
    const bool one =
        cJSON_IsArray(item) && cJSON_GetArraySize(item) == 1 && !cJSON_IsNumber(item->child);
    if (one) {
        item = item->child;
    }
    if (cJSON_IsString(item)) {
        return take_text(lm, item->valuestring, job, error);
    }
    if (cJSON_IsArray(item) && (item->child == NULL || cJSON_IsNumber(item->child))) {
        return take_ids(lm, item, job, error);
    }
    return refuse(error, "prompt", "prompt is one text, or a list of token ids");
}

static bool is_role(const char *role)
{
    return strcmp(role, "system") == 0 || strcmp(role, "user") == 0 ||
           strcmp(role, "assistant") == 0;
}

/* Text that lies in the message. */
static bool take_message(const cJSON *item, int index, struct message *message,
                         struct api_error *error)
{
    const cJSON *role_item = field(item, "role");
    const cJSON *content = field(item, "content");
    char name[32];
    snprintf(name, sizeof name, "messages[%d].%s", index, "role");
    if (!cJSON_IsString(role_item) || !is_role(role_item->valuestring)) {
        return refuse(error, name, "role is system, user or assistant");
    }
    snprintf(name, sizeof name, "messages[%d].%s", index, "content");
    if (!cJSON_IsString(content)) {
        return refuse(error, name, "content is a text");
    }
    message->role = role_item->valuestring;
    message->text = content->valuestring;
    return true;
}

static bool take_messages(const struct language_model *lm, const cJSON *body,
                          struct job_request *job, struct api_error *error)
{
    const cJSON *messages = field(body, "messages");
    const int count = cJSON_IsArray(messages) ? cJSON_GetArraySize(messages) : 0;
    struct message list[MAX_MESSAGES];
    size_t length = 0;
    if (count < 1 || count > MAX_MESSAGES) {
        return api_refuse(error, BAD_REQUEST, "messages", "messages is a list of 1 to %d",
                          MAX_MESSAGES);
    }
    int i = 0;
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, messages)
    {
        if (!take_message(each, i, &list[i], error)) {
            return false;
        }
        length += strlen(list[i].text);
        i++;
    }
    int32_t *tokens = NULL;
    int32_t num_tokens = 0;
    if (!check_length(lm, length, "messages", error)) {
        return false;
    }
    if (!lm->codec.encode_chat(lm->codec.self, list, count, &tokens, &num_tokens)) {
        return api_refuse(error, SERVER_ERROR, "messages", "the texts could not be tokenized");
    }
    return set_prompt(lm, tokens, num_tokens, true, job, error);
}

/* ---- everything else ------------------------------------------------------------------------ */

/* What would change the answer: an error, unless the value changes nothing. */
static bool check_unsupported(const cJSON *body, struct api_error *error)
{
    static const char *const names[] = {
        "best_of",     "echo",          "frequency_penalty", "functions", "logit_bias",
        "modalities",  "audio",         "presence_penalty",  "suffix",    "tools",
        "tool_choice", "function_call", "response_format",   "min_p",     "top_k"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const cJSON *item = field(body, names[i]);
        const bool nothing = item == NULL || cJSON_IsFalse(item) ||
                             (cJSON_IsNumber(item) && item->valuedouble == 0) ||
                             ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
        if (!nothing) {
            return api_refuse(error, BAD_REQUEST, names[i], "%s is not supported", names[i]);
        }
    }
    return true;
}

/* Completions: "logprobs" is how many; chat: "logprobs" is a flag, and "top_logprobs" how many. */
static bool take_logprobs(const cJSON *body, bool chat, struct job_request *job,
                          struct api_error *error)
{
    bool wanted = false;
    job->top_logprobs = -1;
    if (!chat) {
        return take_integer(body, "logprobs", 0, MAX_TOP_LOGPROBS, &job->top_logprobs, error);
    }
    if (!take_bool(body, "logprobs", &wanted, error) ||
        !take_integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS, &job->top_logprobs, error)) {
        return false;
    }
    if (job->top_logprobs > 0 && !wanted) {
        return refuse(error, "top_logprobs", "top_logprobs needs logprobs");
    }
    job->top_logprobs = !wanted ? -1 : job->top_logprobs < 0 ? 0 : job->top_logprobs;
    return true;
}

static bool take_sampling(const cJSON *body, uint64_t default_seed, struct sampling *sampling,
                          struct api_error *error)
{
    const double exact = 9007199254740992.0; /* 2^53: the whole numbers that JSON's carry */
    double temperature = 1, top_p = 1, seed = -1;
    if (!take_number(body, "temperature", 0, 2, &temperature, error) ||
        !take_number(body, "top_p", 1e-6, 1, &top_p, error) ||
        !take_number(body, "seed", -exact, exact, &seed, error)) {
        return false;
    }
    if (seed != floor(seed)) {
        return refuse(error, "seed", "seed is a whole number");
    }
    sampling->temperature = (float)temperature;
    sampling->top_p = (float)top_p;
    sampling->seed = field(body, "seed") != NULL ? (uint64_t)(int64_t)seed : default_seed;
    return true;
}

static bool take_max_tokens(const struct language_model *lm, const cJSON *body, bool chat,
                            struct job_request *job, struct api_error *error)
{
    const char *name = chat && field(body, "max_completion_tokens") != NULL
                           ? "max_completion_tokens"
                           : "max_tokens";
    if (job->num_prompt >= lm->model.seq_len) {
        return api_refuse(error, BAD_REQUEST, chat ? "messages" : "prompt",
                          "the prompt has %d tokens, the model takes fewer than %d",
                          job->num_prompt, lm->model.seq_len);
    }
    job->max_tokens = lm->model.seq_len - job->num_prompt;
    return take_integer(body, name, 1, lm->model.seq_len, &job->max_tokens, error);
}

static bool take_stream(const cJSON *body, struct api_request *request, struct api_error *error)
{
    const cJSON *options = field(body, "stream_options");
    if (options != NULL && !cJSON_IsObject(options)) {
        return refuse(error, "stream_options", "stream_options is an object");
    }
    return take_bool(body, "stream", &request->stream, error) &&
           (options == NULL || take_bool(options, "include_usage", &request->include_usage, error));
}

static bool take_model(const struct language_model *lm, const cJSON *body, struct api_error *error)
{
    const cJSON *item = field(body, "model");
    if (item != NULL && !cJSON_IsString(item)) {
        return refuse(error, "model", "model is a text");
    }
    if (item == NULL || strcmp(item->valuestring, lm->name) == 0) {
        return true;
    }
    return api_refuse(error, 404, "model", "the only model here is %s", lm->name);
}

static bool take_all(const struct language_model *lm, const cJSON *body, uint64_t default_seed,
                     struct api_request *request, struct api_error *error)
{
    struct job_request *job = &request->job;
    const bool chat = request->chat;
    job->num_choices = 1;
    return take_model(lm, body, error) && check_unsupported(body, error) &&
           take_stream(body, request, error) &&
           take_integer(body, "n", 1, MAX_CHOICES, &job->num_choices, error) &&
           take_integer(body, "priority", 0, PKV_NUM_PRIORITIES - 1, &job->priority, error) &&
           take_sampling(body, default_seed, &job->sampling, error) &&
           take_logprobs(body, chat, job, error) && take_stops(body, job, error) &&
           (chat ? take_messages(lm, body, job, error) : take_prompt(lm, body, job, error)) &&
           take_max_tokens(lm, body, chat, job, error);
}

bool api_parse(const struct language_model *lm, bool chat, const char *body, size_t num_bytes,
               uint64_t default_seed, struct api_request *request, struct api_error *error)
{
    *request = (struct api_request){.chat = chat};
    if (!utf8_is_valid(body, num_bytes)) {
        return refuse(error, NULL, "the body is not UTF-8");
    }
    char name[sizeof error->param];
    if (nul_find(body, num_bytes, name, sizeof name)) {
        return refuse(error, name, "a NUL character is in the body: texts cannot have one");
    }
    const char *end = NULL;
    cJSON *parsed = cJSON_ParseWithLengthOpts(body, num_bytes, &end, false);
    while (parsed != NULL && end < body + num_bytes && *end != '\0' &&
           strchr(" \t\r\n", *end) != NULL) {
        end++;
    }
    bool ok = parsed != NULL && end == body + num_bytes;
    if (!ok) {
        refuse(error, NULL, "the body is not JSON");
    } else if (!cJSON_IsObject(parsed)) {
        ok = refuse(error, NULL, "the body is not a JSON object");
    } else {
        ok = take_all(lm, parsed, default_seed, request, error);
    }
    cJSON_Delete(parsed);
    if (!ok) {
        api_free(request);
    }
    return ok;
}

void api_free(struct api_request *request)
{
    free(request->job.prompt);
    request->job.prompt = NULL;
    for (int32_t i = 0; i < request->job.num_stops; i++) {
        free(request->job.stops[i]);
    }
    request->job.num_stops = 0;
}
