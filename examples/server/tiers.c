/* SPDX-License-Identifier: MIT */
#include "tiers.h"

#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_DISK_BYTES ((uint64_t)1 << 30)

enum { MAX_PASSWORD_BYTES = 4095, MAX_PORT = 65535 };

/* ---- the command line ----------------------------------------------------------------------- */

/* A number and K, M, G or T; false when the text is none. */
static bool parse_bytes(const char *text, uint64_t *bytes)
{
    static const char suffixes[] = "KMGT";
    char *end = NULL;
    const unsigned long long number = strtoull(text, &end, 10);
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    const int shift = suffix != NULL ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (text[0] < '0' || text[0] > '9' || end[suffix != NULL] != '\0' ||
        number > (UINT64_MAX >> 1) >> shift) {
        return false;
    }
    *bytes = (uint64_t)number << shift;
    return true;
}

/* The first n characters of a text; false when there is no room. */
static bool copy_part(char *place, size_t room, const char *text, size_t n)
{
    if (n == 0 || n >= room) {
        return false;
    }
    memcpy(place, text, n);
    place[n] = '\0';
    return true;
}

bool tiers_take_disk(const char *value, struct tier_options *options)
{
    const char *colon = strrchr(value, ':');
    size_t length = strlen(value);
    options->disk_bytes = DEFAULT_DISK_BYTES;
    if (colon != NULL && parse_bytes(colon + 1, &options->disk_bytes)) {
        length = (size_t)(colon - value);
    }
    return copy_part(options->disk_path, sizeof options->disk_path, value, length) ||
           complain("--disk-tier is DIR or DIR:BYTES, not %s", value);
}

bool tiers_take_redis(const char *value, struct tier_options *options)
{
    const char *colon = strrchr(value, ':');
    if (colon == NULL || !copy_part(options->redis_host, sizeof options->redis_host, value,
                                    (size_t)(colon - value))) {
        return complain("--redis is HOST:PORT, not %s", value);
    }
    return parse_number("--redis", colon + 1, 1, MAX_PORT, &options->redis_port);
}

/* ---- making them ---------------------------------------------------------------------------- */

static bool add(struct tiers *tiers, const char *name, enum pkv_status status, pkv_tier *tier)
{
    if (status != PKV_OK) {
        return complain("the %s tier: %s", name, pkv_last_error());
    }
    tiers->list[tiers->count] = tier;
    tiers->names[tiers->count] = name;
    tiers->count++;
    return true;
}

static bool open_disk(const struct tier_options *options, struct tiers *tiers)
{
    const struct pkv_disk_config config = {
        .size = sizeof config, .path = options->disk_path, .max_bytes = options->disk_bytes};
    pkv_tier *tier = NULL;
    if (mkdir(options->disk_path, 0700) != 0 && errno != EEXIST) {
        return complain("%s: %s", options->disk_path, strerror(errno));
    }
    const enum pkv_status status = pkv_tier_create_disk(&config, &tier);
    return add(tiers, "disk", status, tier);
}

/* The first line of a file; to be freed. */
static bool read_password(const char *path, char **password)
{
    unsigned char *bytes = NULL;
    size_t num_bytes = 0;
    if (!read_file(path, MAX_PASSWORD_BYTES, &bytes, &num_bytes)) {
        return false;
    }
    *password = (char *)bytes;
    (*password)[strcspn(*password, "\r\n")] = '\0';
    return true;
}

static bool open_redis(const struct tier_options *options, struct tiers *tiers)
{
    char *password = NULL;
    pkv_tier *tier = NULL;
    if (options->password_file != NULL && !read_password(options->password_file, &password)) {
        return false;
    }
    const struct pkv_redis_config config = {
        .size = sizeof config,
        .host = options->redis_host,
        .port = options->redis_port,
        .password = password,
        .ttl_seconds = options->ttl_seconds,
    };
    const enum pkv_status status = pkv_tier_create_redis(&config, &tier);
    free(password);
    return add(tiers, "redis", status, tier);
}

bool tiers_open(const struct tier_options *options, struct tiers *tiers)
{
    *tiers = (struct tiers){.count = 0};
    if ((options->disk_path[0] == '\0' || open_disk(options, tiers)) &&
        (options->redis_host[0] == '\0' || open_redis(options, tiers))) {
        return true;
    }
    tiers_close(tiers);
    return false;
}

void tiers_close(struct tiers *tiers)
{
    for (int32_t i = 0; i < tiers->count; i++) {
        pkv_tier_destroy(tiers->list[i]);
    }
    *tiers = (struct tiers){.count = 0};
}
