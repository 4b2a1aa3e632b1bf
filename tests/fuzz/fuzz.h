/* SPDX-License-Identifier: MIT
 *
 * fuzz.h: random calls, valid and not, of the public interface. A life makes an object, calls it at
 * random and ends it; the same seed lives the same life again. What is held against each answer:
 *
 *   status    that of a naive model where there is one, else one of those that the header names
 *   refusal   the last error says something, and outputs are as they were
 *   memory    taken through hooks that refuse anything large; nothing is left at the end
 *   soundness the object's own check */
#ifndef PKV_FUZZ_H
#define PKV_FUZZ_H

#include "support/test.h"

enum { FUZZ_MAX_LIVE_BYTES = 1 << 28 };

struct fuzz {
    struct test_random random;
    struct pkv_hooks hooks;
    size_t live_bytes;
    long num_live;
    int32_t fail_in; /* so many more allocations succeed; below 0: all */
    long num_calls;
    long num_refused;
};

/* Prints the line and counts the fault unless it holds. */
#define FUZZ_EXPECT(holds) fuzz_expect((holds), #holds, __FILE__, __LINE__)
bool fuzz_expect(bool holds, const char *what, const char *file, int line);

/* Counts a call: a refusal is one of `allowed` and has said why. True for PKV_OK. */
#define FUZZ_CALL(fuzz, allowed, call)                                                             \
    fuzz_call((fuzz), (allowed), (call), #call, __FILE__, __LINE__)
bool fuzz_call(struct fuzz *fuzz, unsigned allowed, enum pkv_status status, const char *what,
               const char *file, int line);

/* In [low, high]; and true once in n. */
int32_t fuzz_in(struct fuzz *fuzz, int32_t low, int32_t high);
bool fuzz_once_in(struct fuzz *fuzz, int32_t n);

/* Mostly in [0, small], else one at which arithmetic may break: 0, -1, INT32_MAX, powers of two. */
int32_t fuzz_int32(struct fuzz *fuzz, int32_t small);
int64_t fuzz_int64(struct fuzz *fuzz, int32_t small);
float fuzz_float(struct fuzz *fuzz);

/* Sets of refusals. */
#define FUZZ_MAY(status) (1u << -(int)(status))
#define ALLOWED_INVALID FUZZ_MAY(PKV_INVALID_ARGUMENT)
#define ALLOWED_STALE FUZZ_MAY(PKV_STALE_HANDLE)

/* One life of each kind. */
void fuzz_pool(struct fuzz *fuzz);
void fuzz_slots(struct fuzz *fuzz);
void fuzz_pages(struct fuzz *fuzz);
void fuzz_geometry(struct fuzz *fuzz); /* calls of attention without tokens */
void fuzz_rows(struct fuzz *fuzz);     /* good calls whose integers were changed */
void fuzz_contract(struct fuzz *fuzz);
void fuzz_cache(struct fuzz *fuzz);
void fuzz_saved(struct fuzz *fuzz); /* loads of changed files */

#endif
