/* SPDX-License-Identifier: MIT
 *
 * disaggregated: one process computes prompts, another one generates; keys and values go from the
 * one to the other through a tier, a directory or a Redis server. The front, which starts both,
 * compares every token with what a single process without a tier generates:
 *
 *     prefill and decode       of each prompt, all whole blocks before the last token are hits
 *     decode after a restart   the same without any prefill: the tier has it all
 *     prefill is killed        in the middle of a prompt: what it had stored are hits, decode
 *                              computes the rest, and all later prompts, itself
 *
 * Exit status 0 when all agree, else 1, or after a line on stderr. */
#include "front.h"
#include "report.h"
#include "roles.h"
#include "source.h"

#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char program_name[] = "disaggregated";

static const char usage[] =
    "disaggregated: prefill in one process, decode in another\n"
    "\n"
    "  --redis HOST:PORT   keys and values go through this server; else through a directory\n"
    "  --kill-after MS     instead: prefill is killed so many milliseconds after the start\n";

static const char *const prompts[] = {
    ("It was a cold morning in winter in the forest behind the hill, and the snow lay deep on the "
     "roofs. A fox called Anna lived there, and she was very brave. What Anna loved most was "
     "honey. Everybody knew that she was brave"),
    ("It was a cold morning in winter in the forest behind the hill, and the snow lay deep on the "
     "roofs. Hugo the bear woke up early in his cave. There was no honey left, and he was very "
     "hungry. So Hugo went to the market behind the hill. On the way"),
    ("It was a warm evening in summer by the lake. In a nest lived a clever mouse called Olga. One "
     "day a stranger came along the road. He was an old owl called Finn, and he was very proud. "
     "Olga was shy, and said nothing. Then the sky grew dark and it began to rain"),
    ("It was a warm evening in summer by the lake. In a burrow lived a careful rabbit called Sam. "
     "When night came, Sam could not sleep. He thought of the"),
    "An owl called Clara lived in the forest",
};
enum { NUM_PROMPTS = sizeof prompts / sizeof prompts[0], KILLED_IN = 2 };

struct options {
    const char *role; /* NULL = the front */
    int32_t socket, dies_in, kill_after;
    struct place place;
    bool help;
};

struct verdicts {
    int32_t num_passed, num_failed;
};

/* --- arguments */

static bool take_pair(struct options *o, const char *name, const char *value)
{
    const struct number_option numbers[] = {
        {"--kill-after", 0, 60000, &o->kill_after},
        {"--prefill", 0, MAX_NUMBER, &o->socket},
        {"--decode", 0, MAX_NUMBER, &o->socket},
        {"--dies-in", -1, MAX_NUMBER, &o->dies_in},
    };
    char host[MAX_HOST];
    int32_t port = 0;
    bool taken = false;
    if (!take_number(numbers, sizeof numbers / sizeof numbers[0], name, value, &taken)) {
        return false;
    }
    if (strcmp(name, "--prefill") == 0 || strcmp(name, "--decode") == 0) {
        o->role = name;
    } else if (strcmp(name, "--redis") == 0) {
        o->place.redis = value;
        return split_address(value, host, &port);
    } else if (strcmp(name, "--directory") == 0) {
        o->place.directory = value;
    } else if (strcmp(name, "--key-prefix") == 0) {
        o->place.key_prefix = value;
    } else if (!taken) {
        return complain("unknown argument %s", name);
    }
    return true;
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.dies_in = -1, .kill_after = -1};
    for (int i = 1; i < argc; i += 2) {
        o->help = strcmp(argv[i], "--help") == 0;
        if (o->help) {
            return true;
        }
        if (i + 1 == argc) {
            return complain("%s: a value is missing, or it is unknown", argv[i]);
        }
        if (!take_pair(o, argv[i], argv[i + 1])) {
            return false;
        }
    }
    return true;
}

/* --- what is right */

static void make_prompt(const struct model *model, int32_t request, struct message *message)
{
    *message = (struct message){.request = request, .tokens = {model->begin_id}};
    message->num_tokens = 1;
    for (const char *at = prompts[request]; *at != '\0'; at++) {
        message->tokens[message->num_tokens++] = (unsigned char)*at;
    }
    message->num_prompt = message->num_tokens;
}

/* The prompts, and what one process makes of them. */
static bool make_all(struct message texts[NUM_PROMPTS], struct message expected[NUM_PROMPTS])
{
    const struct place nowhere = {0};
    struct worker worker;
    bool ok = worker_create(&nowhere, &worker);
    for (int32_t r = 0; r < NUM_PROMPTS && ok; r++) {
        pkv_seq seq;
        make_prompt(&worker.model, r, &texts[r]);
        expected[r] = texts[r];
        ok = worker_admit(&worker, &expected[r], NUM_NEW, &seq) &&
             worker_decode(&worker, seq, &expected[r]);
    }
    worker_free(&worker);
    return ok;
}

static bool is_same_text(const struct message *a, const struct message *b)
{
    return a->num_tokens == b->num_tokens &&
           memcmp(a->tokens, b->tokens, (size_t)a->num_tokens * sizeof a->tokens[0]) == 0;
}

/* A hit ends with a whole block, and leaves the last token, which the model has to compute. */
static int32_t longest_hit(const struct message *message)
{
    return (message->num_prompt - 1) / BLOCK_SIZE * BLOCK_SIZE;
}

/* What is known of the hits of a request. When prefill dies depends on a clock only with
 * --kill-after. */
static bool hits_are_right(const struct failure *failure, const struct message *message)
{
    const int32_t longest = longest_hit(message);
    if (failure->after_ms >= 0 || (failure->dies_in >= 0 && message->request > failure->dies_in)) {
        return message->num_cached <= longest;
    }
    if (message->request == failure->dies_in) {
        return message->num_loaded > 0 && message->num_cached < longest;
    }
    return message->num_cached == longest &&
           (message->request > 0 || message->num_loaded == longest);
}

/* --- runs */

static bool run_once(const char *title, const struct place *place, const struct failure *failure,
                     const struct message texts[NUM_PROMPTS],
                     const struct message expected[NUM_PROMPTS], struct verdicts *verdicts)
{
    struct message messages[NUM_PROMPTS];
    memcpy(messages, texts, sizeof messages);
    if (!front_run(place, failure, messages, NUM_PROMPTS)) {
        return false;
    }
    printf("\n%s\n", title);
    for (int32_t r = 0; r < NUM_PROMPTS; r++) {
        const struct message *m = &messages[r];
        const bool same = is_same_text(m, &expected[r]), hits = hits_are_right(failure, m);
        verdicts->num_passed += same && hits;
        verdicts->num_failed += !(same && hits);
        printf("%7d %7d %7d %7d %9d   %s%s\n", r, (int)m->num_prompt, (int)m->num_cached,
               (int)m->num_loaded, (int)(m->num_tokens - m->num_prompt),
               same ? "the same tokens" : "OTHER TOKENS", hits ? "" : ", WRONG HITS");
    }
    return true;
}

/* A place of its own for each failure, so that nothing is there at first. */
struct places {
    char directory[64], sub[2][80], key_prefix[2][80];
    struct place of[2];
};

static bool make_places(const char *redis, struct places *places)
{
    char folder[] = P_tmpdir "/disaggregated.XXXXXX";
    if (mkdtemp(folder) == NULL) {
        return complain("no temporary folder");
    }
    memcpy(places->directory, folder, sizeof folder);
    for (int i = 0; i < 2; i++) {
        snprintf(places->sub[i], sizeof places->sub[i], "%s/%d", folder, i);
        snprintf(places->key_prefix[i], sizeof places->key_prefix[i],
                 "disaggregated.%d.%d:", (int)getpid(), i);
        places->of[i] = (struct place){.redis = redis, .key_prefix = places->key_prefix[i]};
        places->of[i].directory = redis == NULL ? places->sub[i] : NULL;
        if (mkdir(places->sub[i], 0700) != 0) {
            return complain("no temporary folder");
        }
    }
    return true;
}

static void remove_folder(char *folder)
{
    char *const folders[] = {folder, NULL};
    FTS *walk = fts_open(folders, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *entry; walk != NULL && (entry = fts_read(walk)) != NULL;) {
        if (entry->fts_info != FTS_D) {
            remove(entry->fts_path);
        }
    }
    if (walk != NULL) {
        fts_close(walk);
    }
}

static bool run_all(const struct options *o, const struct places *places, struct verdicts *verdicts)
{
    static struct message texts[NUM_PROMPTS], expected[NUM_PROMPTS];
    const struct failure none = {.dies_in = -1, .after_ms = -1};
    const struct failure no_prefill = {.no_prefill = true, .dies_in = -1, .after_ms = -1};
    const struct failure dies = {.dies_in = KILLED_IN, .after_ms = -1};
    const struct failure killed = {.dies_in = -1, .after_ms = o->kill_after};
    if (!make_all(texts, expected)) {
        return false;
    }
    printf("request  prompt    hits  loaded generated\n");
    if (o->kill_after >= 0) {
        return run_once("prefill is killed", &places->of[0], &killed, texts, expected, verdicts);
    }
    return run_once("prefill and decode", &places->of[0], &none, texts, expected, verdicts) &&
           run_once("decode after a restart", &places->of[0], &no_prefill, texts, expected,
                    verdicts) &&
           run_once("prefill is killed", &places->of[1], &dies, texts, expected, verdicts);
}

static bool run_front(const struct options *o)
{
    struct places places = {0};
    struct verdicts verdicts = {0};
    const bool ok = make_places(o->place.redis, &places) && run_all(o, &places, &verdicts);
    remove_folder(places.directory);
    if (ok) {
        printf("\n%d passed, %d failed\n", (int)verdicts.num_passed, (int)verdicts.num_failed);
    }
    return ok && verdicts.num_failed == 0;
}

int main(int argc, char **argv)
{
    struct options options;
    bool ok = parse(argc, argv, &options);
    if (ok && options.help) {
        fputs(usage, stdout);
    } else if (ok && options.role == NULL) {
        ok = run_front(&options);
    } else if (ok && strcmp(options.role, "--prefill") == 0) {
        ok = run_prefill(options.socket, &options.place, options.dies_in);
    } else if (ok) {
        ok = run_decode(options.socket, &options.place);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
