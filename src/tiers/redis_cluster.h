/* SPDX-License-Identifier: MIT
 *
 * redis_cluster.h: the servers of a tier and which of them has a key. A single server is a cluster
 * of one node. Requests go to their nodes in rounds: a round sends all that is pending, each node's
 * share pipelined, and what is redirected is pending again. The table of slots is read at the
 * first use, after a redirection and after a node has failed.
 *
 * The lock guards nodes [num_nodes] and the table, and is held for no I/O. Nodes are only added, so
 * a node that was looked up stays. */
#ifndef PKV_TIERS_REDIS_CLUSTER_H
#define PKV_TIERS_REDIS_CLUSTER_H

#include "tiers/redis_exchange.h"
#include "tiers/redis_node.h"
#include "tiers/redis_request.h"

/* Sent and not yet answered, on one connection. */
#define REDIS_CLUSTER_WINDOW ((size_t)16 << 20)

struct redis_cluster {
    struct redis_node_options options;
    int64_t connect_ns;
    int64_t command_ns;
    char ttl[16]; /* "" for none */
    bool is_cluster;
    pthread_mutex_t lock;
    struct redis_node *nodes[REDIS_MAX_NODES];
    int32_t num_nodes;
    /* Of a cluster: an index of nodes or -1. */
    int16_t node_of[REDIS_NUM_SLOTS];
    bool is_stale;
    int32_t ask_first; /* the node that is likely to know */
};

/* options and times are set, the rest is 0. False: no memory. */
bool redis_cluster_init(struct redis_cluster *cluster);
void redis_cluster_free(struct redis_cluster *cluster);

/* The node at an address, added when it is new; -1 when it cannot be. The lock is held, or nobody
 * else knows the cluster yet. */
int32_t redis_cluster_node(struct redis_cluster *cluster, const struct redis_address *address);

/* Gives every request a status, within a bounded time. */
void redis_cluster_call(struct redis_cluster *cluster, struct redis_request *requests,
                        int32_t num_requests);

#endif
