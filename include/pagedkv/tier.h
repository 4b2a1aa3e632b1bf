/* SPDX-License-Identifier: MIT
 *
 * pagedkv/tier.h: tiers: places outside a cache that keep named values, such as a directory
 * or a Redis server. A cache (cache.h, offload.h) stores its full blocks in tiers and finds them
 * there after a restart, or on another machine; a tier itself knows nothing of blocks. A tier is a
 * table of functions, so a server brings one of its own with the same call that the library's own
 * are made by.
 *
 *     pkv_tier_create_disk(&config, &disk)          a directory of bounded size
 *     pkv_tier_create_redis(&config, &redis)        a Redis or Valkey server, or a cluster
 *     pkv_tier_create(&ops, &own)                   anything else
 *     cache_config.tiers = {disk, redis}            nearest first
 *     ...
 *     pkv_cache_destroy(cache, false)
 *     pkv_tier_destroy(disk)                        after the caches that use it
 *
 * Values. A value is a run of bytes under a name. It is there whole or not at all: a write that
 * fails half-way, or a process that is killed in one, leaves the value before it or none. What is
 * in a value, and whether it is what was written, is checked by the cache that reads it.
 *
 * Errors. A tier is a cache of caches: everything may be lost at any time. A tier that cannot be
 * reached answers PKV_IO within a bounded time.
 *
 * Threads. Any thread may use one tier at any time, several at once, through several caches too. */
#ifndef PAGEDKV_TIER_H
#define PAGEDKV_TIER_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a name, without its NUL. Names are made of the characters 0-9, a-z, '.' and '-', and do
 * not begin with a '.'. */
#define PKV_MAX_TIER_NAME 95

/* One value of a call that takes several. */
struct pkv_tier_item {
    /* NUL-terminated. */
    const char *name;
    /* pieces [num_pieces] in order, `bytes` bytes together. */
    const struct pkv_piece *pieces;
    int32_t num_pieces;
    size_t bytes;
    /* What the tier answers for this item. */
    enum pkv_status status;
    uint64_t reserved[2];
};

/* A counter of a tier: a number under a name, which only grows, shared by all who use the tier. It
 * outlives every value: values that were written under an older count are void. */
struct pkv_tier_counter {
    /* As the names of values, but a name may be used for both. */
    const char *name;
    /* Is added first. */
    uint64_t add;
    /* What the tier answers: the count then, 0 for one that was never added to. */
    uint64_t value;
    enum pkv_status status;
    uint64_t reserved[2];
};

/* What a tier does. Each function takes several items and writes the status of each; the items are
 * independent, and a call has each name once. No function may call the library. */
struct pkv_tier_ops {
    size_t size;
    /* In metrics and errors: "disk". UTF-8 without control characters, at most 31 bytes and a NUL.
     */
    const char *name;
    /* Passed to every function as it is. */
    void *context;
    /* Writes values, in the place of what was under their names. PKV_OK; PKV_IO; PKV_NO_BLOCKS
     * for a value larger than all that the tier holds. */
    void (*put)(void *context, struct pkv_tier_item *items, int32_t num_items);
    /* Reads values whose length is known: PKV_OK; PKV_NOT_FOUND; PKV_CORRUPT for a value of another
     * length than the item's `bytes`; PKV_IO. The pieces may hold anything unless it is PKV_OK. */
    void (*get)(void *context, struct pkv_tier_item *items, int32_t num_items);
    /* Is there a value? Pieces are not looked at. PKV_OK, PKV_NOT_FOUND, PKV_IO. A tier may count
     * it as a use, for its order of eviction. */
    void (*find)(void *context, struct pkv_tier_item *items, int32_t num_items);
    /* Removes values: PKV_OK; PKV_NOT_FOUND; PKV_IO. */
    void (*remove)(void *context, struct pkv_tier_item *items, int32_t num_items);
    /* Adds to counters and reads them. An `add` of 0 changes nothing. PKV_OK, PKV_IO. */
    void (*count)(void *context, struct pkv_tier_counter *counters, int32_t num_counters);
    /* Shows the names of all values that the tier knows of without waiting; visit returns false to
     * stop. NULL = it cannot tell. */
    void (*list)(void *context, bool (*visit)(void *visit_context, const char *name),
                 void *visit_context);
    /* Ends the tier; NULL = nothing to do. */
    void (*destroy)(void *context);
};

typedef struct pkv_tier pkv_tier;

/* Makes a tier of a caller's own functions.
 *
 * ops is copied, its name too. put, get, find, remove and count are set.
 *
 * Returns PKV_OK and the tier in *tier, which the caller destroys; PKV_NO_MEMORY;
 * PKV_INVALID_ARGUMENT. After a refusal ops->destroy was not called. Any thread; O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_tier_create(const struct pkv_tier_ops *ops,
                                                      pkv_tier **tier);

/* A tier in a directory of a local file system.
 *
 * All that it keeps is in the directory, under the names of the values: it survives restarts, and
 * any number of processes use one directory at once, each by a tier of its own. None of them may
 * assume to be alone. A value, once complete, is found by all of them. */
struct pkv_disk_config {
    size_t size;
    /* The directory, which exists and is writable. It belongs to the tier: what is in it is not to
     * be changed while a process uses it, and may be removed as a whole when none does. A relative
     * path is resolved at create. */
    const char *path;
    /* What the values may take, from 4096 to 2^63 - 1, the same in all processes: the sum of their
     * lengths, each rounded up to 4096 bytes, those that are being written among them, exceeds it
     * at no moment, whatever is killed. When a value does not fit, those that were put or got
     * longest ago go, in that order, until it does and a sixteenth of max_bytes is free beside it.
     * What directories and counters take is not counted: it is little. */
    uint64_t max_bytes;
    /* How long a call waits for other processes, in milliseconds up to 60000; 0 = 1000. They hold
     * the directory's lock for microseconds, and while one makes room, which takes about as long
     * as a listing of the directory. A value that waits longer fails with PKV_IO, create too. */
    int32_t timeout_ms;
    /* Who may read and write the files, as chmod has it: 0600 and whatever is more of 0666, for
     * processes of several users; 0 = 0600. Directories can be searched by who can read. The umask
     * of the process applies. */
    uint32_t file_mode;
};

/* Makes a tier of a directory.
 *
 * Each value is a file, written under another name and renamed when it is complete; what a killed
 * process left of a write is removed at the next create, or when room is made. Files are not synced
 * to the disk, which would cost more than a value is worth: after a loss of power a value may be
 * missing, old, or of the right length with the wrong bytes, as the cache that reads it will see.
 * Counters are synced. Symbolic links below path are not followed; one in the place of a value
 * is none.
 *
 * A disk that is full or broken, or a directory that was removed, is PKV_IO for the values of that
 * call; calls succeed again when the cause is gone. A value of another length than was requested
 * is PKV_CORRUPT and stays until it is removed or replaced. The list is read from the directory. A
 * find is no use in the order of eviction, a get is one. A disk that does not answer is waited for.
 *
 * Returns PKV_OK and the tier in *tier, which the caller destroys; PKV_NO_MEMORY; PKV_IO when the
 * directory does not exist, is none, cannot be written, or is locked for longer than timeout_ms:
 * the last error has the system's reason; PKV_INVALID_ARGUMENT. Any thread; reads the whole
 * directory, some microseconds a file, and removes what exceeds max_bytes. The tier keeps no file
 * open and takes no memory that grows, so it may be used in a child after fork; making room
 * takes 16 bytes a file for a while. */
PKV_API PKV_NODISCARD enum pkv_status pkv_tier_create_disk(const struct pkv_disk_config *config,
                                                           pkv_tier **tier);

/* Ends a tier, but not what it holds. NULL is accepted. The caches that use it have been destroyed.
 */
PKV_API void pkv_tier_destroy(pkv_tier *tier);

/* What a tier in a Redis or Valkey server needs to know. Set `size`, leave the rest 0 and set what
 * differs. */
struct pkv_redis_config {
    size_t size;
    /* A name or an address; NULL = "127.0.0.1". At most 255 bytes. The resolver of names has
     * time-outs of its own (resolv.conf), which add to those below: give an address where that
     * matters. */
    const char *host;
    /* The path of a Unix socket in the place of host and port; at most 107 bytes. */
    const char *unix_socket;
    /* AUTH, if there is a password; user NULL = the default user. At most 255 and 4095 bytes. Both
     * cross the network as they are, and so does every value: see Security at the call. */
    const char *user;
    const char *password;
    /* Before every key: what keeps several uses of one server apart. NULL = "pagedkv:"; at most 127
     * bytes. A value lies under <prefix><name>, a counter under <prefix>+<name>. */
    const char *key_prefix;
    /* 0 = 6379. */
    int32_t port;
    /* SELECT; 0 in a cluster. */
    int32_t database;
    /* When a value is removed after it was written, whether it was read or not; 0 = never. Counters
     * stay. */
    int32_t ttl_seconds;
    /* How long a new connection may take, and how long a server may be silent; 0 = 200 and 1000.
     * All of them at most 600000. */
    int32_t connect_timeout_ms;
    int32_t command_timeout_ms;
    /* How long a server that failed is left alone: at first, and, doubled with each further
     * failure, at most; 0 = 100 and 5000. */
    int32_t min_backoff_ms;
    int32_t max_backoff_ms;
    /* Is the server one of a cluster? Its others are then found through it. */
    bool is_cluster;
    /* For TLS, with three files in PEM. PKV_UNSUPPORTED in this version. */
    bool use_tls;
    /* Of a cluster: "host:port" of further nodes, separated by commas, of which any one has to be
     * there at the first use. */
    const char *more_nodes;
    const char *ca_file;
    const char *cert_file;
    const char *key_file;
};

/* Makes a tier of a Redis server (from version 4 on), a Valkey server, or a cluster of either, for
 * machines that share what they have computed. Nothing is sent: the first use connects, so a server
 * that is not there yet is no error.
 *
 * config is copied, its texts too.
 *
 * What the calls of the tier do. Values of one call go to each server in one pipeline, of which at
 * most 16 MiB and a value are on the way: SET, GET, EXISTS and UNLINK a value, INCRBY or GET a
 * counter. All servers of a cluster are talked to at once; moved slots are followed (MOVED, ASK).
 * Each call takes a connection of its own, so threads do not wait for each other; 8 idle ones are
 * kept for each server. Connections are not shared with a child after fork(): make its tiers there.
 *
 * What a bad server costs. A server that is silent costs a call the command time-out, and all of a
 * call takes no longer than both time-outs and the time for its values at 16 MiB/s. The connection
 * is then closed, and until the back-off is over every call answers PKV_IO at once for what is on
 * that server; then a single call tries it again. A wrong password, a server that is still loading,
 * an answer that is none and a lost connection are treated alike. A server that refuses to write
 * (out of memory, read-only) refuses that and goes on to read. Values that the server has evicted
 * are not found.
 *
 * Sizes. A value of more than 512 MiB is PKV_NO_BLOCKS; the server's proto-max-bulk-len must not be
 * below the largest value. Set maxmemory, with ttl_seconds and the policy volatile-lru or
 * volatile-ttl: counters have no time to live, so they are not evicted. Under an allkeys policy a
 * counter may be, and values that it made void are valid again.
 *
 * Security. There is no TLS (hiredis 0.14 has none): user, password and values, which are computed
 * from prompts and show what was in them, can be read and changed on the way. Use a private
 * network, a Unix socket or a tunnel, and AUTH with a user who may use the keys of the prefix
 * alone. What a server answers is never trusted: lengths bound what is held of it, and caches check
 * the values themselves.
 *
 * Returns PKV_OK and the tier in *tier, which the caller destroys; PKV_INVALID_ARGUMENT;
 * PKV_NO_MEMORY; PKV_UNSUPPORTED for use_tls, and for everything in a library that was built
 * without hiredis, which pkv_build_info tells. Any thread; O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_tier_create_redis(const struct pkv_redis_config *config,
                                                            pkv_tier **tier);

#ifdef __cplusplus
}
#endif

#endif
