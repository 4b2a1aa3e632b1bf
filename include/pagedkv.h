/* SPDX-License-Identifier: MIT
 *
 * pagedkv.h: the whole public interface. Each header below can be used without those under it:
 *
 *     base      status words, data types, hooks, views
 *     alloc     block ids with reference counts
 *     pages     where the content of a block lies
 *     slots     which slot of a continuous cache belongs to whom
 *     attn      the attention operator over a cache of the caller's
 *     select    which blocks sparse attention should read
 *     contract  the same by the parameter list of tensor runtimes
 *     tier      places outside memory that keep blocks
 *     cache     a managed cache, its sequences, admission
 *     swap      sequences that make room for others and come back
 *     step      the forward passes over it
 *     prefix    namespaces, pins, quotas, flush
 *     offload   what a managed cache does with tiers
 *     metrics   events, counters, walks
 *     save      sequences to files and streams, and back */
#ifndef PAGEDKV_H
#define PAGEDKV_H

#include "pagedkv/alloc.h"
#include "pagedkv/attn.h"
#include "pagedkv/base.h"
#include "pagedkv/cache.h"
#include "pagedkv/contract.h"
#include "pagedkv/metrics.h"
#include "pagedkv/offload.h"
#include "pagedkv/pages.h"
#include "pagedkv/prefix.h"
#include "pagedkv/save.h"
#include "pagedkv/select.h"
#include "pagedkv/slots.h"
#include "pagedkv/step.h"
#include "pagedkv/swap.h"
#include "pagedkv/tier.h"

#endif
