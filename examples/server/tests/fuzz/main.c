/* SPDX-License-Identifier: MIT
 *
 * fuzz-server [seconds] [seed]: bodies that are mutations of good ones, given to the parser of
 * requests. It has to take them, with every field within its bounds, or to refuse them with an
 * error that makes an answer. Meant for a build with the address sanitiser: each body lies in
 * memory of its own size. PKV_FUZZ_SECONDS and PKV_TEST_SEED stand for the arguments. */
#include "api.h"
#include "utf8.h"

#include "pagedkv/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char program_name[] = "fuzz-server";

enum { MAX_BODY = 4096, MAX_MUTATIONS = 6, SEQ_LEN = 300, VOCAB_SIZE = 258 };

static const char *const seeds[] = {
    "{\"prompt\":\"Once upon\",\"max_tokens\":3,\"n\":2,\"seed\":7,\"stop\":[\"a\",\"b c\"]}",
    "{\"prompt\":[256,1,2,255],\"temperature\":0.5,\"top_p\":0.9,\"logprobs\":5,\"stream\":true}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\",\"content\":"
    "\"\\u20ac\\ud83d\\ude00 \\\"q\\\"\"}],\"logprobs\":true,\"top_logprobs\":20}",
    "{\"prompt\":[\"one\"],\"stream_options\":{\"include_usage\":true},\"priority\":1,"
    "\"stop\":\"the end\",\"model\":\"m\",\"echo\":false,\"logit_bias\":{}}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_completion_tokens\":9,"
    "\"max_tokens\":2,\"n\":64,\"tools\":[],\"temperature\":2e0,\"user\":\"\\u0041\"}",
};

static const char *const pieces[] = {"\\u0000",
                                     "\\ud800",
                                     "\\udc00",
                                     "\"",
                                     "\\",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     "null",
                                     "true",
                                     "1e999",
                                     "-0",
                                     "1e-400",
                                     "2147483648",
                                     "0.5",
                                     "\xe2\x82\xac",
                                     "\xff",
                                     "\xed\xa0\x80",
                                     "\"stop\":",
                                     "\"n\":",
                                     "\"prompt\":",
                                     "[[[[[[",
                                     "{\"a\":{\"a\":",
                                     "\"\"",
                                     "9007199254740993",
                                     "\n",
                                     "\x01",
                                     "\"messages\":[{}]",
                                     "99999999999999999999999999999999999999999999999999"};

enum { NUM_SEEDS = sizeof seeds / sizeof seeds[0], NUM_PIECES = sizeof pieces / sizeof pieces[0] };

/* splitmix64 (Steele, Lea and Flood, OOPSLA 2014) */
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15U;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}

static size_t below(uint64_t *state, size_t bound)
{
    return (size_t)(next_random(state) % bound);
}

/* ---- mutations ------------------------------------------------------------------------------ */

struct body {
    char bytes[MAX_BODY];
    size_t length;
};

static void replace(struct body *body, size_t at, size_t count, const char *bytes, size_t length)
{
    if (body->length - count + length > MAX_BODY) {
        return;
    }
    memmove(body->bytes + at + length, body->bytes + at + count, body->length - at - count);
    memcpy(body->bytes + at, bytes, length);
    body->length += length - count;
}

static void mutate(uint64_t *state, struct body *body)
{
    char copy[64];
    const size_t at = below(state, body->length + 1);
    const size_t left = body->length - at;
    const size_t count = left > 0 ? below(state, left < sizeof copy ? left : sizeof copy) : 0;
    const char byte = (char)next_random(state);
    const char *piece = pieces[below(state, NUM_PIECES)];
    switch (below(state, 6)) {
    case 0: replace(body, at, left > 0 ? 1 : 0, &byte, 1); break;
    case 1: replace(body, at, count, "", 0); break;
    case 2: replace(body, at, 0, piece, strlen(piece)); break;
    case 3: replace(body, at, count, piece, strlen(piece)); break;
    case 4:
        memcpy(copy, body->bytes + at, count);
        replace(body, below(state, body->length + 1), 0, copy, count);
        break;
    default: body->length = below(state, 8) == 0 ? at : body->length; break;
    }
}

static void make_body(uint64_t seed, struct body *body)
{
    uint64_t state = seed;
    const char *from = seeds[below(&state, NUM_SEEDS)];
    body->length = strlen(from);
    memcpy(body->bytes, from, body->length);
    for (size_t count = below(&state, MAX_MUTATIONS + 1); count > 0; count--) {
        mutate(&state, body);
    }
}

/* ---- what has to hold ----------------------------------------------------------------------- */

static bool request_holds(const struct job_request *job)
{
    bool ok = job->num_prompt >= 1 && job->num_prompt < SEQ_LEN && job->max_tokens >= 1 &&
              job->max_tokens <= SEQ_LEN && job->num_choices >= 1 &&
              job->num_choices <= MAX_CHOICES && job->num_stops >= 0 &&
              job->num_stops <= MAX_STOPS && job->priority >= 0 &&
              job->priority < PKV_NUM_PRIORITIES && job->top_logprobs >= -1 &&
              job->top_logprobs <= MAX_TOP_LOGPROBS && job->sampling.temperature >= 0 &&
              job->sampling.temperature <= 2 && job->sampling.top_p > 0 && job->sampling.top_p <= 1;
    for (int32_t i = 0; ok && i < job->num_prompt; i++) {
        ok = job->prompt[i] >= 0 && job->prompt[i] < VOCAB_SIZE;
    }
    for (int32_t i = 0; ok && i < job->num_stops; i++) {
        const size_t length = strlen(job->stops[i]);
        ok = length >= 1 && length <= MAX_STOP_BYTES && utf8_is_valid(job->stops[i], length);
    }
    return ok;
}

static bool error_holds(const struct api_error *error)
{
    return error->http_status >= 400 && error->http_status < 500 && error->message[0] != '\0' &&
           utf8_is_valid(error->message, strlen(error->message)) &&
           utf8_is_valid(error->param, strlen(error->param));
}

/* 1: taken, 0: refused, -1: neither as it should be. */
static int try_body(const struct language_model *lm, bool chat, const struct body *body)
{
    struct api_request request;
    struct api_error error = {0};
    char *exact = malloc(body->length > 0 ? body->length : 1);
    if (exact == NULL) {
        return -1;
    }
    memcpy(exact, body->bytes, body->length);
    const bool taken = api_parse(lm, chat, exact, body->length, 1, &request, &error);
    free(exact);
    const bool holds = taken ? request_holds(&request.job) : error_holds(&error);
    if (taken) {
        api_free(&request);
    }
    return !holds ? -1 : taken;
}

static uint64_t number(int argc, char **argv, int index, const char *name, uint64_t otherwise)
{
    const char *text = index < argc ? argv[index] : getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    const struct model model = {.vocab_size = VOCAB_SIZE,
                                .seq_len = SEQ_LEN,
                                .begin_id = 256,
                                .end_id = 257,
                                .byte_vocabulary = true};
    struct language_model lm = {.name = "m", .model = model};
    const time_t until = time(NULL) + (time_t)number(argc, argv, 1, "PKV_FUZZ_SECONDS", 5);
    uint64_t seed = number(argc, argv, 2, "PKV_TEST_SEED", 1);
    uint64_t counts[2] = {0};
    struct body body;
    if (!codec_pieces(&model, NULL, &lm.codec)) {
        return 1;
    }
    for (; time(NULL) < until; seed++) {
        make_body(seed, &body);
        const int result = try_body(&lm, seed % 2 != 0, &body);
        if (result < 0) {
            printf("seed %llu: %.*s\n", (unsigned long long)seed, (int)body.length, body.bytes);
            return 1;
        }
        counts[result]++;
    }
    lm.codec.free(lm.codec.self);
    printf("%llu bodies refused, %llu taken\n", (unsigned long long)counts[0],
           (unsigned long long)counts[1]);
    return counts[0] == 0 || counts[1] == 0;
}
