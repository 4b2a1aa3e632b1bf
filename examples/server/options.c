/* SPDX-License-Identifier: MIT */
#include "options.h"

#include "report.h"
#include "source.h"

#include <string.h>

enum { DEFAULT_PORT = 8080, MEGABYTE = 1 << 20 };

const char usage[] =
    "server: chat and completions over HTTP in the shape of OpenAI's API, on pagedkv\n"
    "\n"
    "  --model PATH        a directory with config.json, *.safetensors and tokenizer.json, or a\n"
    "                      llama2.c checkpoint with tokenizer.bin beside it (the embedded model)\n"
    "  --address A         IPv4 address (127.0.0.1)\n"
    "  --port P            0 = a free one, which the first line on stdout names (8080)\n"
    "  --dtype T           of the cache: f32, f16 or bf16 (f32)\n"
    "  --block-size B      tokens a block (16)\n"
    "  --cache-mb M        of keys and values, 0 = room for all requests at full length (0)\n"
    "  --max-batch N       choices that run at once (32)\n"
    "  --max-len L         tokens of a request, 0 = as many as the model takes (0)\n"
    "  --max-queue Q       requests that wait (256)\n"
    "  --chunk C           prompt tokens of a step (128)\n"
    "  --drafts D          tokens proposed from the request's own text (4)\n"
    "  --pause-ms MS       slept after each step, for tests of clients (0)\n"
    "  --tenant-blocks B   blocks that one tenant may hold, 0 = no limit (0)\n"
    "  --prefix-cache 0|1  (1)\n"
    "  --disk-tier D[:B]   a directory that keeps blocks, of B bytes or so many K, M, G (1G)\n"
    "  --redis HOST:PORT   a Redis or Valkey server that keeps blocks\n"
    "  --redis-password-file F  its first line is the password\n"
    "  --redis-ttl S       seconds that a block stays there, 0 = as long as there is room (86400)\n"
    "  --save DIR          where what is cached of recent texts goes at the end, for the next "
    "start\n"
    "  --tier-wait MS      how long a request waits for its blocks from there (100)\n"
    "  --threads T         0 = as many as can run (0)\n"
    "  --connections C     open at once (1024)\n"
    "  --body-kb K         of a request (1024)\n"
    "  --timeout S         seconds that a connection may be idle, or a request take to come (30)\n";

struct numbers {
    int32_t cache_mb, body_kb, prefix_cache;
};

static bool take_dtype(const char *value, enum pkv_dtype *dtype)
{
    static const struct {
        const char *name;
        enum pkv_dtype dtype;
    } dtypes[] = {{"f32", PKV_F32}, {"f16", PKV_F16}, {"bf16", PKV_BF16}};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(value, dtypes[i].name) == 0) {
            *dtype = dtypes[i].dtype;
            return true;
        }
    }
    return complain("--dtype is f32, f16 or bf16, not %s", value);
}

static bool take_tier(struct tier_options *tiers, const char *name, const char *value)
{
    if (strcmp(name, "--disk-tier") == 0) {
        return tiers_take_disk(value, tiers);
    }
    if (strcmp(name, "--redis") == 0) {
        return tiers_take_redis(value, tiers);
    }
    if (strcmp(name, "--redis-password-file") == 0) {
        tiers->password_file = value;
        return true;
    }
    return complain("there is no option %s; see --help", name);
}

static bool take(struct options *o, struct numbers *n, const char *name, const char *value)
{
    const struct number_option table[] = {
        {"--port", 0, 65535, &o->http.port},
        {"--block-size", 1, 1024, &o->engine.block_size},
        {"--cache-mb", 0, MAX_NUMBER, &n->cache_mb},
        {"--max-batch", 1, 1024, &o->engine.max_batch},
        {"--max-len", 0, MAX_NUMBER, &o->engine.max_seq_len},
        {"--max-queue", 1, 65536, &o->engine.max_queue},
        {"--chunk", 1, 65536, &o->engine.chunk},
        {"--drafts", 0, 64, &o->engine.num_drafts},
        {"--pause-ms", 0, 1000, &o->engine.pause_ms},
        {"--tenant-blocks", 0, MAX_NUMBER, &o->engine.tenant_blocks},
        {"--prefix-cache", 0, 1, &n->prefix_cache},
        {"--threads", 0, MAX_THREADS, &o->engine.threads},
        {"--connections", 1, 65536, &o->http.max_connections},
        {"--body-kb", 1, 65536, &n->body_kb},
        {"--timeout", 1, 3600, &o->http.timeout_seconds},
        {"--redis-ttl", 0, INT32_MAX, &o->engine.tiers.ttl_seconds},
        {"--tier-wait", 0, 60000, &o->engine.tiers.wait_ms},
    };
    bool taken = false;
    if (!take_number(table, sizeof table / sizeof table[0], name, value, &taken) || taken) {
        return taken;
    }
    if (strcmp(name, "--model") == 0) {
        o->model = value;
        return true;
    }
    if (strcmp(name, "--address") == 0) {
        o->http.address = value;
        return true;
    }
    if (strcmp(name, "--dtype") == 0) {
        return take_dtype(value, &o->engine.dtype);
    }
    if (strcmp(name, "--save") == 0) {
        o->engine.save_path = value;
        return true;
    }
    return take_tier(&o->engine.tiers, name, value);
}

static bool check_tiers(const struct engine_options *o)
{
    const bool any =
        o->tiers.disk_path[0] != '\0' || o->tiers.redis_host[0] != '\0' || o->save_path != NULL;
    return !any || o->prefix_cache || complain("tiers and --save need --prefix-cache 1");
}

bool options_parse(int argc, char **argv, struct options *options)
{
    struct numbers numbers = {.body_kb = 1024, .prefix_cache = 1};
    *options = (struct options){
        .model = "",
        .engine = {.dtype = PKV_F32,
                   .block_size = 16,
                   .max_batch = 32,
                   .max_queue = 256,
                   .chunk = 128,
                   .num_drafts = 4,
                   .tiers = {.ttl_seconds = 86400, .wait_ms = 100}},
        .http = {.address = "127.0.0.1",
                 .port = DEFAULT_PORT,
                 .max_connections = 1024,
                 .timeout_seconds = 30},
    };
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--help") == 0) {
            options->help = true;
            return true;
        }
        if (i + 1 == argc) {
            return complain("%s needs a value", argv[i]);
        }
        if (!take(options, &numbers, argv[i], argv[i + 1])) {
            return false;
        }
    }
    options->engine.cache_bytes = (size_t)numbers.cache_mb * MEGABYTE;
    options->engine.prefix_cache = numbers.prefix_cache != 0;
    options->http.max_body_bytes = numbers.body_kb * 1024;
    return check_tiers(&options->engine);
}
