/* SPDX-License-Identifier: MIT
 *
 * pagedkv/save.h: a sequence of a managed cache (cache.h) goes to a file or a stream, and comes
 * back: in the same cache, another process, another machine. What comes back goes on with the very
 * same bits, so a prompt that was computed once need not be computed again.
 *
 *     pkv_seq_save_file(cache, seq, "chat-17.pkv")           the sequence stays as it is
 *     ...
 *     pkv_seq_load_file(cache, "chat-17.pkv", &seq, NULL)    a new sequence, of the same tokens
 *
 *     struct pkv_writer writer = {sizeof writer, &socket, send_all};
 *     pkv_seq_save(cache, seq, &writer)                      to another machine
 *
 * What is saved. The options of the sequence, its namespace fields, the ids and extras of its
 * tokens, and the keys and values of every committed cell that it holds, in all groups: paged and
 * continuous ones, windows with their holes; of a state group its states, at every length that it
 * has one of, but no snapshots of shorter lengths. Cells that no token was committed to never leave
 * the process. Of an admitted prompt only what is computed; what admission promised is not saved.
 * Tokens and namespaces are known only with the prefix cache: without it a file has none.
 *
 * What a file says of itself: geometry of all groups, dtypes, block sizes, windows, the bytes of
 * states, a fingerprint (of config.fingerprint among others, which is read without the prefix cache
 * too), and hashes of what keys and values go through before they are stored: k_scale and v_scale,
 * the rows of the cos/sin tables that the tokens used, the norm weights of keys. A cache that
 * differs in any of these refuses the file. Numbers of blocks, sequences and threads, and the
 * intervals of snapshots, may differ, and so may max_seq_len, unless a group is continuous or its
 * window is longer. docs/format.md describes the file byte by byte.
 *
 * Loading. Everything is verified before a block is taken: each byte of a file is under a checksum,
 * no length is believed beyond what was read, and what no cache would have written is refused even
 * if its checksums match. Checksums (XXH3) show accidents, not forgeries: who can write a file can
 * write other keys, or other tokens for the same keys, which then serve other requests of that
 * namespace. So load from who is trusted like the model's weights.
 *
 * Threads. The cache's mutex is not held while bytes are copied, read or written, so other
 * sequences go on. The sequence that is saved stays as it is until that ends: pkv_step_begin,
 * pkv_step_fits, pkv_seq_admit, pkv_seq_fork, pkv_seq_truncate and another save answer PKV_BUSY for
 * it; pkv_seq_destroy succeeds at once, the saved content is still whole, and the blocks are
 * released when the save ends. A sequence that is being loaded is seen by no call until the load
 * has succeeded. */
#ifndef PAGEDKV_SAVE_H
#define PAGEDKV_SAVE_H

#include "pagedkv/base.h"
#include "pagedkv/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a saved sequence goes. */
struct pkv_writer {
    size_t size;
    /* Passed to write as it is. */
    void *context;
    /* Takes the next n bytes, all of them; n >= 1. Returns false to stop the save. It runs on the
     * thread that saves, with no lock held, and may call the library. */
    bool (*write)(void *context, const void *bytes, size_t n);
};

/* Where a saved sequence comes from: set exactly one of the functions. They run on the thread that
 * loads, with no lock held; they return false for a failure, or when there are fewer bytes. */
struct pkv_reader {
    size_t size;
    /* Passed to the functions as it is. */
    void *context;
    /* A stream, such as a socket: the next n bytes, n >= 1. No byte behind the saved sequence is
     * read. The stream is kept in memory, which comes from the cache's hooks and grows as
     * bytes arrive, until all is verified. */
    bool (*read)(void *context, void *bytes, size_t n);
    /* Bytes [offset, offset + n) of an input of num_bytes. Each byte is read twice: to be
     * verified, and to be copied to where it belongs; it must be the same both times. */
    bool (*read_at)(void *context, uint64_t offset, void *bytes, size_t n);
    /* Of read_at: the length of the input, which is the saved sequence and nothing else. */
    uint64_t num_bytes;
};

/* Writes a sequence, front to back. It stays as it is, and so does the cache.
 *
 * What writer has taken before a failure is no saved sequence, and no load takes it for one.
 *
 * Returns PKV_OK; PKV_IO when write has returned false; PKV_BUSY when the sequence is in the open
 * step, or is being saved or moved; PKV_NOT_RESIDENT when it is swapped out; PKV_STALE_HANDLE;
 * PKV_NO_MEMORY (for some 64 KiB). Any thread;
 * O(bytes), and O(groups + layers) under the mutex. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_save(pkv_cache *cache, pkv_seq seq,
                                                   const struct pkv_writer *writer);

/* Makes a sequence of what pkv_seq_save has written, with the same options, tokens and length. It
 * was promised nothing, like one that runs without admission. It needs free blocks and states for
 * all that it holds, and as an admission leaves config.watermark_blocks, keeps to quotas and takes
 * nothing that was promised to others.
 *
 * With the prefix cache, and unless the sequence has no_publish, its full blocks are indexed, as if
 * they had just been computed: a prompt that begins with the same tokens hits them,
 * in a cache with state groups where the sequence has a state that is a snapshot. Where equal
 * blocks are cached already, the sequence takes these and gives its own back. max_tokens and
 * max_rewind above this cache's max_seq_len count as that.
 *
 * *shortage (may be NULL) is filled when the answer is PKV_NO_BLOCKS for want of blocks, or
 * PKV_NEVER_FITS.
 *
 * Returns PKV_OK and the handle in *seq; PKV_IO when the reader has returned false; PKV_CORRUPT
 * when a check fails, and the last error names the section and the offset; PKV_UNSUPPORTED for a
 * later version of the format, a section that this version needs to know and does not, or another
 * byte order; PKV_INVALID_ARGUMENT for another cache's file, and the last error names the first
 * number that differs, for a max_rewind above that of a state group, or for one without tokens
 * where this cache has the prefix cache;
 * PKV_NO_BLOCKS when there is no room now, which includes max_seqs and max_namespaces,
 * PKV_NEVER_FITS when there never is; PKV_BUSY on a closed cache; PKV_NO_MEMORY. Any thread;
 * O(bytes), and O(blocks) under the mutex. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_load(pkv_cache *cache,
                                                   const struct pkv_reader *reader, pkv_seq *seq,
                                                   struct pkv_shortage *shortage);

/* The same to a file, which is created, or replaced, whole: it is written under another name in
 * the same directory (path, a process id, a number and ".tmp"), synced, renamed, and the directory
 * is synced. Whatever fails, the file that was there before is as it was and nothing is left
 * beside it, except that a process that is killed leaves the file of the other name, and that a
 * failure to sync the directory comes after the rename. Only its owner may read the file.
 *
 * path is NUL-terminated.
 *
 * Returns what pkv_seq_save returns; PKV_IO, and the last error says what the system said. Any
 * thread; O(bytes). */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_save_file(pkv_cache *cache, pkv_seq seq,
                                                        const char *path);

/* The same from a regular file, which is read twice: once to verify it, once into the cache.
 *
 * Returns what pkv_seq_load returns; PKV_IO, and the last error says what the system said. Any
 * thread; O(bytes). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_seq_load_file(pkv_cache *cache, const char *path, pkv_seq *seq, struct pkv_shortage *shortage);

#ifdef __cplusplus
}
#endif

#endif
