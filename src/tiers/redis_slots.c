/* SPDX-License-Identifier: MIT
 *
 * The reply to CLUSTER SLOTS is an array of ranges: [first, last, master, replica..], a node being
 * [host, port, id, ..]. */
#include "tiers/redis_slots.h"

#include <string.h>

/* CRC-16/XMODEM: polynomial 0x1021, from 0, not reflected. */
static uint32_t crc16(const char *bytes, size_t length)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= (uint32_t)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
        }
        crc &= 0xffff;
    }
    return crc;
}

int32_t redis_slots_of(const char *key, size_t length)
{
    const char *open = memchr(key, '{', length);
    if (open != NULL) {
        const size_t rest = length - (size_t)(open + 1 - key);
        const char *close = memchr(open + 1, '}', rest);
        if (close != NULL && close > open + 1) {
            key = open + 1;
            length = (size_t)(close - key);
        }
    }
    return (int32_t)(crc16(key, length) % REDIS_NUM_SLOTS);
}

void redis_slots_clear(struct redis_slots *slots)
{
    memset(slots, 0, sizeof *slots);
    memset(slots->node_of, -1, sizeof slots->node_of);
}

static int16_t node_index(struct redis_slots *slots, const struct redis_address *address)
{
    for (int32_t i = 0; i < slots->num_nodes; i++) {
        if (redis_address_equal(&slots->nodes[i], address)) {
            return (int16_t)i;
        }
    }
    if (slots->num_nodes == REDIS_MAX_NODES) {
        return -1;
    }
    slots->nodes[slots->num_nodes] = *address;
    return (int16_t)slots->num_nodes++;
}

static void assign(struct redis_slots *slots, int64_t port)
{
    struct redis_address address;
    const char *host = slots->reading.host;
    if (!slots->has_host || !redis_address_set(&address, host, strlen(host), port) ||
        slots->range[0] < 0 || slots->range[1] >= REDIS_NUM_SLOTS) {
        return;
    }
    const int16_t node = node_index(slots, &address);
    for (int64_t slot = slots->range[0]; slot <= slots->range[1]; slot++) {
        slots->node_of[slot] = node;
    }
}

/* A value of the master of a range. */
static void read_master(struct redis_slots *slots, const struct redis_value *value)
{
    const int32_t place = value->places[2];
    if (place == 0 && value->type == REDIS_NIL) {
        slots->has_host = redis_address_set(&slots->reading, "", 0, 1);
    } else if (place == 0 && value->type == REDIS_TEXT) {
        slots->has_host = redis_address_set(&slots->reading, value->text, value->length, 1);
    } else if (place == 1 && value->type == REDIS_INTEGER) {
        assign(slots, value->integer);
    }
}

bool redis_slots_read(struct redis_slots *slots, const struct redis_value *value)
{
    if (value->depth <= 1) {
        slots->range[0] = -1;
        slots->range[1] = -1;
        slots->has_host = false;
        return value->type == REDIS_ARRAY;
    }
    if (value->depth == 2 && value->places[1] < 2 && value->type == REDIS_INTEGER) {
        slots->range[value->places[1]] = value->integer;
    } else if (value->depth == 3 && value->places[1] == 2) {
        read_master(slots, value);
    }
    return true;
}

bool redis_slots_redirected(const char *error, size_t length, struct redis_slots_redirect *redirect)
{
    static const char *const words[] = {"MOVED ", "ASK "};
    const bool is_ask = length > 0 && error[0] == 'A';
    const size_t word = strlen(words[is_ask]);
    if (length < word || memcmp(error, words[is_ask], word) != 0) {
        return false;
    }
    const char *digits = error + word;
    const char *end = error + length;
    int32_t slot = 0;
    while (digits < end && *digits >= '0' && *digits <= '9' && slot < REDIS_NUM_SLOTS) {
        slot = 10 * slot + (*digits++ - '0');
    }
    if (digits == error + word || digits == end || *digits != ' ' || slot >= REDIS_NUM_SLOTS) {
        return false;
    }
    redirect->is_ask = is_ask;
    redirect->slot = slot;
    return redis_address_parse(&redirect->address, digits + 1, (size_t)(end - digits - 1));
}
