/* SPDX-License-Identifier: MIT
 *
 * peer.h: another implementation of attention, loaded from its own binary and made to compute what
 * a layer of ours computes. Calls that cannot work end the program: a peer that is there must run.
 *
 * A library is opened once and stays; a call is one layer's work on a copy of its cache. */
#ifndef BENCH_PEERS_PEER_H
#define BENCH_PEERS_PEER_H

#include "layer.h"

struct peer {
    const char *name;
    const char *package; /* of the npm registry */
    /* NULL when the folder, node_modules of an npm installation, does not have the package. */
    void *(*open)(const char *folder, int threads);
    /* Whether it has attention for this type of cache; how it calls that type. */
    const char *(*type_name)(enum pkv_dtype cache);
    /* Differences of its arithmetic from ours, relative to the largest output. */
    double (*tolerance)(enum pkv_dtype cache);
    /* Copies the layer's cache, as it is after a run of ours, and its queries. */
    void *(*prepare)(void *library, const struct layer *layer);
    void (*run)(void *call);
    /* The outputs of the last run, in our order [num_tokens][heads * width], into out. */
    void (*output)(void *call, float *out);
    void (*finish)(void *call);
};

extern const struct peer peer_ort;
extern const struct peer peer_ggml;

/* A function of a shared object; ends the program when it is not there. */
typedef void peer_function(void);
peer_function *peer_symbol(void *object, const char *name);

/* path = "folder/name"; ends the program when that is too long. */
enum { PEER_MAX_PATH = 4096 };
void peer_path(char path[PEER_MAX_PATH], const char *folder, const char *name);

/* Pages like ours, 2 MiB aligned and huge where the system has them. */
void *peer_map(size_t bytes);
void peer_unmap(void *memory, size_t bytes);

/* The keys of a layer (or, values true, its values) packed as [rows][kv_heads][keys][width]. */
void peer_pack(const struct layer *layer, bool values, void *to);

#endif
