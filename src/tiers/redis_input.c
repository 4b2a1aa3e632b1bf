/* SPDX-License-Identifier: MIT */
#include "tiers/redis_input.h"

#include <stdio.h>
#include <string.h>

#define TAKEN_VECTORS 64

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t redis_input_begin(struct redis_input *input, const struct redis_input_place *place,
                         const char *bytes, size_t length)
{
    char head[32];
    const size_t head_length = (size_t)snprintf(head, sizeof head, "$%zu\r\n", place->bytes);
    if (length < head_length || memcmp(bytes, head, head_length) != 0) {
        return 0;
    }
    *input = (struct redis_input){.place = *place, .is_open = true};
    redis_input_advance(input, 0);
    return head_length;
}

int redis_input_vectors(struct redis_input *input, struct iovec *vectors, int max_vectors)
{
    const struct redis_input_place *place = &input->place;
    size_t got = input->got;
    int count = 0;
    int32_t i = input->piece;
    for (; i < place->num_pieces && count < max_vectors - 1; i++) {
        const struct pkv_piece *piece = &place->pieces[i];
        vectors[count++] = (struct iovec){(char *)piece->bytes + got, piece->length - got};
        got = 0;
    }
    if (i == place->num_pieces) {
        vectors[count++] = (struct iovec){input->tail + got, sizeof input->tail - got};
    }
    return count;
}

/* Pieces that are complete, empty ones too, are passed. */
void redis_input_advance(struct redis_input *input, size_t bytes)
{
    const struct redis_input_place *place = &input->place;
    input->got += bytes;
    while (input->piece < place->num_pieces && input->got >= place->pieces[input->piece].length) {
        input->got -= place->pieces[input->piece++].length;
    }
}

size_t redis_input_take(struct redis_input *input, const char *bytes, size_t length)
{
    struct iovec vectors[TAKEN_VECTORS];
    const int count = redis_input_vectors(input, vectors, TAKEN_VECTORS);
    size_t taken = 0;
    for (int i = 0; i < count; i++) {
        const size_t part = smaller(vectors[i].iov_len, length - taken);
        if (part > 0) {
            memcpy(vectors[i].iov_base, bytes + taken, part);
        }
        taken += part;
    }
    redis_input_advance(input, taken);
    return taken;
}

bool redis_input_end(struct redis_input *input, bool *is_right)
{
    if (input->piece < input->place.num_pieces || input->got < sizeof input->tail) {
        return false;
    }
    *is_right = memcmp(input->tail, "\r\n", sizeof input->tail) == 0;
    input->is_open = false;
    return true;
}
