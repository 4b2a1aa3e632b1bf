/* SPDX-License-Identifier: MIT */
#include "reply.h"

#include "stream_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *print(cJSON *object)
{
    char *text = object != NULL ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    return text;
}

static const char *finish_name(enum finish finish)
{
    switch (finish) {
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH: return "length";
    case FINISH_FAILED: return "error";
    case FINISH_NONE: break;
    }
    return NULL;
}

static void add_finish(cJSON *choice, enum finish finish)
{
    cJSON_DeleteItemFromObject(choice, "finish_reason");
    if (finish == FINISH_NONE) {
        cJSON_AddNullToObject(choice, "finish_reason");
    } else {
        cJSON_AddStringToObject(choice, "finish_reason", finish_name(finish));
    }
}

/* ---- logprobs ------------------------------------------------------------------------------- */

/* A token's bytes as a JSON text: what is no character becomes U+FFFD. */
static cJSON *token_text(const struct language_model *lm, int32_t token)
{
    size_t num_bytes = 0, num_text = 0, num_rest = 0;
    const char *bytes = lm->codec.bytes(lm->codec.self, token, &num_bytes);
    struct stream_text stream = {0};
    char *text = NULL, *rest = NULL;
    stream_text_add(&stream, bytes, num_bytes, &text, &num_text);
    stream_text_end(&stream, &rest, &num_rest);
    char *both = calloc(num_text + num_rest + 1, 1);
    cJSON *item = NULL;
    if (both != NULL) {
        memcpy(both, text != NULL ? text : "", num_text);
        memcpy(both + num_text, rest != NULL ? rest : "", num_rest);
        item = cJSON_CreateString(both);
    }
    free(both);
    free(text);
    free(rest);
    stream_text_free(&stream);
    return item;
}

static cJSON *token_bytes(const struct language_model *lm, int32_t token)
{
    size_t num_bytes = 0;
    const char *bytes = lm->codec.bytes(lm->codec.self, token, &num_bytes);
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < num_bytes; i++) {
        cJSON_AddItemToArray(list, cJSON_CreateNumber((unsigned char)bytes[i]));
    }
    return list;
}

/* Chat's {token, logprob, bytes}. */
static cJSON *chat_token(const struct language_model *lm, int32_t token, float logprob)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToObject(item, "token", token_text(lm, token));
    cJSON_AddNumberToObject(item, "logprob", (double)logprob);
    cJSON_AddItemToObject(item, "bytes", token_bytes(lm, token));
    return item;
}

static void add_chat_logprob(const struct language_model *lm, const struct job_piece *piece,
                             cJSON *logprobs)
{
    cJSON *content = cJSON_GetObjectItem(logprobs, "content");
    if (content == NULL) {
        content = cJSON_AddArrayToObject(logprobs, "content");
    }
    cJSON *item = chat_token(lm, piece->token, piece->logprob);
    cJSON *top = cJSON_AddArrayToObject(item, "top_logprobs");
    for (int32_t i = 0; i < piece->num_top; i++) {
        cJSON_AddItemToArray(top, chat_token(lm, piece->top[i].token, piece->top[i].logprob));
    }
    cJSON_AddItemToArray(content, item);
}

static cJSON *list_of(cJSON *object, const char *name)
{
    cJSON *list = cJSON_GetObjectItem(object, name);
    return list != NULL ? list : cJSON_AddArrayToObject(object, name);
}

/* Completions' parallel lists. */
static void add_logprob(const struct language_model *lm, const struct job_piece *piece,
                        cJSON *logprobs)
{
    cJSON_AddItemToArray(list_of(logprobs, "tokens"), token_text(lm, piece->token));
    cJSON_AddItemToArray(list_of(logprobs, "token_logprobs"),
                         cJSON_CreateNumber((double)piece->logprob));
    cJSON *top = cJSON_CreateObject();
    for (int32_t i = 0; i < piece->num_top; i++) {
        cJSON *text = token_text(lm, piece->top[i].token);
        if (text != NULL) {
            cJSON_AddNumberToObject(top, text->valuestring, (double)piece->top[i].logprob);
        }
        cJSON_Delete(text);
    }
    cJSON_AddItemToArray(list_of(logprobs, "top_logprobs"), top);
}

/* Adds the piece's token to the choice's logprobs; without a token, makes sure they are there. */
static void add_logprobs(const struct reply *reply, const struct job_piece *piece, cJSON *choice)
{
    cJSON *logprobs = cJSON_GetObjectItem(choice, "logprobs");
    if (!reply->logprobs || (piece->token < 0 && logprobs == NULL)) {
        if (logprobs == NULL) {
            cJSON_AddNullToObject(choice, "logprobs");
        }
        return;
    }
    if (piece->token < 0) {
        return;
    }
    if (!cJSON_IsObject(logprobs)) {
        cJSON_DeleteItemFromObject(choice, "logprobs");
        logprobs = cJSON_AddObjectToObject(choice, "logprobs");
    }
    if (reply->chat) {
        add_chat_logprob(reply->lm, piece, logprobs);
    } else {
        add_logprob(reply->lm, piece, logprobs);
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

static cJSON *answer(const struct reply *reply, bool event)
{
    char id[48];
    cJSON *object = cJSON_CreateObject();
    snprintf(id, sizeof id, "%s-%llu", reply->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)reply->id);
    cJSON_AddStringToObject(object, "id", id);
    cJSON_AddStringToObject(object, "object",
                            !reply->chat ? "text_completion"
                            : event      ? "chat.completion.chunk"
                                         : "chat.completion");
    cJSON_AddNumberToObject(object, "created", (double)reply->created);
    cJSON_AddStringToObject(object, "model", reply->lm->name);
    return object;
}

static void add_usage(cJSON *object, const struct job_usage *usage)
{
    cJSON *item = cJSON_AddObjectToObject(object, "usage");
    cJSON_AddNumberToObject(item, "prompt_tokens", usage->num_prompt);
    cJSON_AddNumberToObject(item, "completion_tokens", usage->num_generated);
    cJSON_AddNumberToObject(item, "total_tokens", usage->num_prompt + usage->num_generated);
    cJSON *details = cJSON_AddObjectToObject(item, "prompt_tokens_details");
    cJSON_AddNumberToObject(details, "cached_tokens", usage->num_cached);
}

char *reply_event(const struct reply *reply, const struct job_piece *piece, bool first)
{
    cJSON *object = answer(reply, true);
    cJSON *choice = cJSON_CreateObject();
    const char *text = piece->text != NULL ? piece->text : "";
    cJSON_AddItemToArray(cJSON_AddArrayToObject(object, "choices"), choice);
    cJSON_AddNumberToObject(choice, "index", piece->choice);
    if (!reply->chat) {
        cJSON_AddStringToObject(choice, "text", text);
    } else {
        cJSON *delta = cJSON_AddObjectToObject(choice, "delta");
        if (first) {
            cJSON_AddStringToObject(delta, "role", "assistant");
        }
        if (first || piece->text != NULL) {
            cJSON_AddStringToObject(delta, "content", text);
        }
    }
    add_logprobs(reply, piece, choice);
    add_finish(choice, piece->finish);
    return print(object);
}

char *reply_usage_event(const struct reply *reply, const struct job_usage *usage)
{
    cJSON *object = answer(reply, true);
    cJSON_AddArrayToObject(object, "choices");
    add_usage(object, usage);
    return print(object);
}

char *reply_error(const struct api_error *error)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *item = cJSON_AddObjectToObject(object, "error");
    cJSON_AddStringToObject(item, "message", error->message);
    cJSON_AddStringToObject(item, "type", error->type);
    if (error->param[0] != '\0') {
        cJSON_AddStringToObject(item, "param", error->param);
    } else {
        cJSON_AddNullToObject(item, "param");
    }
    cJSON_AddNullToObject(item, "code");
    return print(object);
}

char *reply_failure(const char *message)
{
    struct api_error error;
    api_refuse(&error, 500, NULL, "%s", message);
    return reply_error(&error);
}

void reply_start(const struct reply *reply, int32_t num_choices, struct reply_whole *whole)
{
    *whole = (struct reply_whole){.num_choices = num_choices};
    for (int32_t c = 0; c < num_choices; c++) {
        cJSON *choice = cJSON_CreateObject();
        whole->choices[c] = choice;
        cJSON_AddNumberToObject(choice, "index", c);
        if (reply->chat) {
            cJSON_AddStringToObject(cJSON_AddObjectToObject(choice, "message"), "role",
                                    "assistant");
        }
    }
}

/* Texts are kept apart until the end: appending to a cJSON text would copy it each time. */
static bool append_text(cJSON *choice, const struct job_piece *piece)
{
    if (piece->num_bytes == 0) {
        return true;
    }
    cJSON *parts = list_of(choice, "parts");
    return cJSON_AddItemToArray(parts, cJSON_CreateString(piece->text)) != 0;
}

void reply_add(const struct reply *reply, const struct job_piece *piece, struct reply_whole *whole)
{
    cJSON *choice = whole->choices[piece->choice];
    if (!append_text(choice, piece)) {
        whole->failed = true;
    }
    add_logprobs(reply, piece, choice);
    if (piece->finish != FINISH_NONE) {
        add_finish(choice, piece->finish);
    }
}

/* The parts as one text, in the place where the shape has it. */
static bool join_parts(const struct reply *reply, cJSON *choice)
{
    cJSON *parts = cJSON_DetachItemFromObject(choice, "parts");
    const cJSON *part = NULL;
    size_t length = 0;
    cJSON_ArrayForEach(part, parts)
    {
        length += strlen(part->valuestring);
    }
    char *text = malloc(length + 1);
    size_t at = 0;
    cJSON_ArrayForEach(part, parts)
    {
        const size_t bytes = strlen(part->valuestring);
        if (text != NULL) {
            memcpy(text + at, part->valuestring, bytes);
        }
        at += bytes;
    }
    cJSON_Delete(parts);
    if (text == NULL) {
        return false;
    }
    text[length] = '\0';
    cJSON *place = reply->chat ? cJSON_GetObjectItem(choice, "message") : choice;
    const bool ok = cJSON_AddStringToObject(place, reply->chat ? "content" : "text", text) != NULL;
    free(text);
    return ok;
}

char *reply_finish(const struct reply *reply, const struct job_usage *usage,
                   struct reply_whole *whole)
{
    cJSON *object = answer(reply, false);
    cJSON *choices = cJSON_AddArrayToObject(object, "choices");
    for (int32_t c = 0; c < whole->num_choices; c++) {
        whole->failed = !join_parts(reply, whole->choices[c]) || whole->failed;
        cJSON_AddItemToArray(choices, whole->choices[c]);
        whole->choices[c] = NULL;
    }
    add_usage(object, usage);
    if (whole->failed) {
        cJSON_Delete(object);
        return NULL;
    }
    return print(object);
}

void reply_drop(struct reply_whole *whole)
{
    for (int32_t c = 0; c < whole->num_choices; c++) {
        cJSON_Delete(whole->choices[c]);
        whole->choices[c] = NULL;
    }
}

char *reply_models(const char *name, int64_t created)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *model = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "object", "list");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(object, "data"), model);
    cJSON_AddStringToObject(model, "id", name);
    cJSON_AddStringToObject(model, "object", "model");
    cJSON_AddNumberToObject(model, "created", (double)created);
    cJSON_AddStringToObject(model, "owned_by", "pagedkv");
    return print(object);
}
