/* SPDX-License-Identifier: MIT
 *
 * top_blocks.c: a heap of the best blocks so far, the worst of them on top, tells how good a block
 * has to be; a second walk takes the blocks that are. So they come in order, and the list itself
 * serves as the heap. */
#include "attn/top_blocks.h"

#include <math.h>
#include <stdbool.h>

static bool is_worse(const float *scores, int32_t a, int32_t b)
{
    return scores[a] < scores[b] || (scores[a] == scores[b] && a > b);
}

static void swap(int32_t *a, int32_t *b)
{
    const int32_t kept = *a;
    *a = *b;
    *b = kept;
}

static void sift_up(const float *scores, int32_t *heap, int32_t at)
{
    while (at > 0 && is_worse(scores, heap[at], heap[(at - 1) / 2])) {
        swap(&heap[at], &heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static void sift_down(const float *scores, int32_t *heap, int32_t size)
{
    int32_t at = 0;
    while (at < size / 2) {
        int32_t child = 2 * at + 1;
        if (child + 1 < size && is_worse(scores, heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_worse(scores, heap[child], heap[at])) {
            return;
        }
        swap(&heap[at], &heap[child]);
        at = child;
    }
}

int32_t top_blocks(const float *scores, int32_t count, int32_t most, int32_t *chosen)
{
    int32_t size = 0;
    for (int32_t block = 0; block < count; block++) {
        if (scores[block] == -INFINITY) {
            continue;
        }
        if (size < most) {
            chosen[size] = block;
            sift_up(scores, chosen, size++);
        } else if (is_worse(scores, chosen[0], block)) {
            chosen[0] = block;
            sift_down(scores, chosen, size);
        }
    }
    const int32_t worst = size > 0 ? chosen[0] : 0;
    int32_t num_chosen = 0;
    for (int32_t block = 0; num_chosen < size; block++) {
        if (scores[block] != -INFINITY && !is_worse(scores, block, worst)) {
            chosen[num_chosen++] = block;
        }
    }
    return num_chosen;
}
