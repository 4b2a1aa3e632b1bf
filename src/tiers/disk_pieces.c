/* SPDX-License-Identifier: MIT */
#include "tiers/disk_pieces.h"

#include <errno.h>

/* Linux takes 1024, POSIX promises 16. */
enum { MAX_VECTORS = 256 };

/* What is left: from `begin` of the piece on. */
struct place {
    const struct pkv_tier_item *item;
    int32_t piece;
    size_t begin;
};

/* The next pieces that are not empty; 0 when nothing is left. */
static int next_vectors(const struct place *place, struct iovec *vectors)
{
    size_t begin = place->begin;
    int count = 0;
    for (int32_t i = place->piece; i < place->item->num_pieces && count < MAX_VECTORS; i++) {
        const struct pkv_piece *piece = &place->item->pieces[i];
        if (piece->length > begin) {
            vectors[count++] = (struct iovec){(char *)piece->bytes + begin, piece->length - begin};
        }
        begin = 0;
    }
    return count;
}

static void advance(struct place *place, size_t bytes)
{
    while (bytes > 0) {
        const size_t left = place->item->pieces[place->piece].length - place->begin;
        if (bytes < left) {
            place->begin += bytes;
            return;
        }
        bytes -= left;
        place->piece++;
        place->begin = 0;
    }
}

typedef ssize_t move_function(int fd, const struct iovec *vectors, int count, off_t offset);

static enum pkv_status move(move_function *function, int fd, const struct pkv_tier_item *item,
                            enum pkv_status at_end)
{
    struct iovec vectors[MAX_VECTORS];
    struct place place = {.item = item};
    off_t offset = 0;
    int count;
    while ((count = next_vectors(&place, vectors)) > 0) {
        const ssize_t moved = function(fd, vectors, count, offset);
        if (moved == 0) {
            return at_end;
        }
        if (moved < 0 && errno != EINTR) {
            return PKV_IO;
        }
        offset += moved > 0 ? moved : 0;
        advance(&place, moved > 0 ? (size_t)moved : 0);
    }
    return PKV_OK;
}

enum pkv_status disk_pieces_write(const struct disk_dir *dir, int fd,
                                  const struct pkv_tier_item *item)
{
    return move(dir->calls->pwritev, fd, item, PKV_IO);
}

enum pkv_status disk_pieces_read(const struct disk_dir *dir, int fd,
                                 const struct pkv_tier_item *item)
{
    return move(dir->calls->preadv, fd, item, PKV_CORRUPT);
}
