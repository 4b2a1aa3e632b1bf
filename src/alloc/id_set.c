/* SPDX-License-Identifier: MIT
 *
 * The levels lie one after the other, the ids' own first. */
#include "alloc/id_set.h"

static size_t words_of(size_t num_bits)
{
    return (num_bits + 63) / 64;
}

size_t id_set_num_words(int32_t num_ids)
{
    size_t level = words_of((size_t)num_ids);
    size_t total = level;
    while (level > 1) {
        level = words_of(level);
        total += level;
    }
    return total;
}

void id_set_init(struct id_set *set, int32_t num_ids, uint64_t *words)
{
    size_t level = (size_t)num_ids;
    set->num_levels = 0;
    do {
        level = words_of(level);
        set->levels[set->num_levels++] = words;
        words += level;
    } while (level > 1);
}

void id_set_add(struct id_set *set, int32_t id)
{
    bool was_empty = true;
    for (int32_t level = 0; was_empty && level < set->num_levels; level++, id >>= 6) {
        uint64_t *word = &set->levels[level][id >> 6];
        was_empty = *word == 0;
        *word |= (uint64_t)1 << (id & 63);
    }
}

void id_set_remove(struct id_set *set, int32_t id)
{
    bool is_empty = true;
    for (int32_t level = 0; is_empty && level < set->num_levels; level++, id >>= 6) {
        uint64_t *word = &set->levels[level][id >> 6];
        *word &= ~((uint64_t)1 << (id & 63));
        is_empty = *word == 0;
    }
}

void id_set_move_far(struct id_set *set, int32_t from, int32_t to)
{
    id_set_remove(set, from);
    id_set_add(set, to);
}

int32_t id_set_first(const struct id_set *set)
{
    int32_t id = 0;
    for (int32_t level = set->num_levels - 1; level >= 0; level--) {
        id = id << 6 | PKV_LOWEST_BIT(set->levels[level][id]);
    }
    return id;
}

/* The bits of a word below bit n, n in [0, 64]. */
static uint64_t below(uint64_t word, int32_t n)
{
    return n < 64 ? word & (((uint64_t)1 << n) - 1) : word;
}

int32_t id_set_last_to(const struct id_set *set, int32_t id)
{
    int32_t level = 0;
    int32_t at = id >> 6;
    uint64_t word = below(set->levels[0][at], (id & 63) + 1);
    while (word == 0 && level + 1 < set->num_levels) {
        level++;
        word = below(set->levels[level][at >> 6], at & 63);
        at >>= 6;
    }
    if (word == 0) {
        return -1;
    }
    for (at = at << 6 | PKV_HIGHEST_BIT(word); level > 0; level--) {
        at = at << 6 | PKV_HIGHEST_BIT(set->levels[level - 1][at]);
    }
    return at;
}

bool id_set_is_sound(const struct id_set *set, int32_t num_ids)
{
    size_t num_bits = words_of((size_t)num_ids);
    bool is_sound = true;
    for (int32_t level = 1; level < set->num_levels; level++) {
        for (size_t i = 0; i < num_bits; i++) {
            const bool bit = (set->levels[level][i >> 6] >> (i & 63) & 1) != 0;
            is_sound = is_sound && bit == (set->levels[level - 1][i] != 0);
        }
        num_bits = words_of(num_bits);
    }
    return is_sound;
}

int32_t id_set_count(const struct id_set *set, int32_t num_ids)
{
    int32_t count = 0;
    for (size_t i = 0; i < words_of((size_t)num_ids); i++) {
        for (uint64_t word = set->levels[0][i]; word != 0; word &= word - 1) {
            count++;
        }
    }
    return count;
}
