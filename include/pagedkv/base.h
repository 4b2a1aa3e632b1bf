/* SPDX-License-Identifier: MIT
 *
 * pagedkv/base.h: what every other header of the library builds on: the version, the status words,
 * the data types, the caller's hooks, and the view that describes keys and values in memory.
 *
 * The contracts that hold for every call:
 *
 *   Errors     A call that can fail returns `enum pkv_status`. On anything but PKV_OK the objects
 *              it was given are as they were before, caches and outputs keep every byte, and
 *              out-parameters are untouched (except a struct pkv_shortage, which exists to be
 *              filled on refusal). pkv_last_error() says, for people, what was at fault.
 *   Ownership  What a *_create call returns belongs to the caller until the matching *_destroy,
 *              which accepts NULL. Arrays handed in are read during the call and not kept, unless
 *              the declaration says so.
 *   Threads    Separate objects are independent. pkv_cache calls lock inside; a pkv_pool,
 *              pkv_slots, pkv_workspace or pkv_plan is used by one thread at a time. The task calls
 *              of attn.h and step.h are the exception, and say so.
 *   Silence    The library never aborts, prints, exits, or reads the environment.
 *   Structs    A struct whose first field is `size` is zeroed by the caller and given its own
 *              sizeof there; a zero field means "absent" or "the default". */
#ifndef PAGEDKV_BASE_H
#define PAGEDKV_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PKV_VERSION_MAJOR 0
#define PKV_VERSION_MINOR 1
#define PKV_VERSION_PATCH 0

/* The compiler extensions that the library needs, in one place. */
#if defined(__GNUC__)
#define PKV_API __attribute__((visibility("default")))
#define PKV_WEAK __attribute__((weak))
#define PKV_NODISCARD __attribute__((warn_unused_result))
#define PKV_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define PKV_THREAD_LOCAL __thread
#define PKV_PREFETCH(address) __builtin_prefetch(address)
#else
#define PKV_API
#define PKV_WEAK
#define PKV_NODISCARD
#define PKV_PRINTF(text, first)
#define PKV_THREAD_LOCAL _Thread_local
#define PKV_PREFETCH(address) ((void)(address))
#endif
#if defined(_OPENMP)
#define PKV_HAVE_OPENMP 1
#else
#define PKV_HAVE_OPENMP 0
#endif
/* What pkv_build_info says of the build. */
#if (defined(__x86_64__) || defined(__i386__)) && !defined(PKV_SCALAR_ONLY)
#define PKV_BUILD_ISAS "scalar avx2 avx512 avx512bf16"
#else
#define PKV_BUILD_ISAS "scalar"
#endif
#if defined(__clang__)
#define PKV_COMPILER __VERSION__
#elif defined(__GNUC__)
#define PKV_COMPILER "gcc " __VERSION__
#else
#define PKV_COMPILER "C17"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call answers. Being out of blocks is a normal answer, not an accident. */
enum pkv_status {
    PKV_OK = 0,
    PKV_INVALID_ARGUMENT = -1, /* the last error names parameter, index and value */
    PKV_NO_MEMORY = -2,        /* a hook, or the system, returned NULL */
    PKV_NO_BLOCKS = -3,        /* not now: the same call can succeed once others give back */
    PKV_NEVER_FITS = -4,       /* not in this cache, however long one waits */
    PKV_NOT_RESIDENT = -5,     /* keys that the call needs were given back or evicted */
    PKV_STALE_HANDLE = -6,     /* destroyed, reused, or of another cache */
    PKV_BUSY = -7, /* an open step, a running transfer, or a closed cache stands in the way */
    PKV_UNSUPPORTED = -8, /* dtype, width, option or ISA not in this build or on this CPU */
    PKV_CORRUPT = -9,
    PKV_IO = -10,
    PKV_NOT_FOUND = -11
};

/* The name of a status, such as "PKV_NO_BLOCKS"; "unknown status" for anything else. Never NULL,
 * static storage, any thread. */
PKV_API const char *pkv_status_name(enum pkv_status status);

/* The last refusal of the calling thread, one line for people ("block_table[3][7] = 91, outside
 * [0, 64)"); "" before the first. Never NULL. The text is the thread's own and stands until its
 * next refused call. Success does not clear it. */
PKV_API const char *pkv_last_error(void);

/* "0.1.0". Static storage, any thread. */
PKV_API const char *pkv_version(void);

/* One line that says how this build works here: compiler, instruction sets, OpenMP or serial, and
 * whether metadata comes from the process's jemalloc or from libc. Static storage, any thread. */
PKV_API const char *pkv_build_info(void);

/* Element types of activations and caches. e4m3 is the finite-only fp8 (1 sign, 4 exponent, 3
 * mantissa bits, largest 448, one NaN pattern per sign). */
enum pkv_dtype {
    PKV_F32 = 0,
    PKV_F16 = 1,
    PKV_BF16 = 2,
    PKV_INT8 = 3, /* with the caller's constant scales */
    PKV_E4M3 = 4  /* likewise */
};

/* Bytes of one element; 0 for an unknown type. Any thread. */
PKV_API size_t pkv_dtype_bytes(enum pkv_dtype dtype);

enum pkv_log_level { PKV_LOG_ERROR = 0, PKV_LOG_WARNING = 1, PKV_LOG_INFO = 2 };

/* The caller's own memory and log, each pair optional. A hook may be called from any thread that
 * calls the library, never from one that the library made. `alignment` is a power of two. `free`
 * and `unmap_pages` get the very size that was asked for. Returning NULL makes the call at hand
 * answer PKV_NO_MEMORY with nothing changed.
 *
 *   alloc, free             metadata and scratch; both or neither. Default: jemalloc when the
 *                           process has it (a cache takes an arena of its own), else libc
 *   map_pages, unmap_pages  payload: the keys and values themselves, and big tables; both or
 *                           neither. `node` is a memory node, -1 = any. Default: mmap with huge
 *                           pages advised. The memory may hold anything; the library never reads
 *                           what it did not write
 *   log                     a line of text without a newline */
struct pkv_hooks {
    void *context;
    void *(*alloc)(void *context, size_t bytes, size_t alignment);
    void (*free)(void *context, void *memory, size_t bytes, size_t alignment);
    void *(*map_pages)(void *context, size_t bytes, size_t alignment, int node);
    void (*unmap_pages)(void *context, void *memory, size_t bytes);
    void (*log)(void *context, enum pkv_log_level level, const char *line);
};

/* Where keys and values lie. The cell of block (or cache row) n, KV head g, position c in it,
 * starts at
 *
 *     k + n * k_block_stride + g * k_head_stride + c * k_cell_stride      (strides in elements)
 *
 * and its k_width channels are adjacent; v likewise. A stride of 0 means packed in the order
 * [num_blocks][kv_heads][block_size][width]; the order NHD is a matter of strides alone. The view
 * owns nothing. With v_in_k (attn.h) the v fields are unused. */
struct pkv_kv_view {
    void *k;
    void *v;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
    int32_t num_blocks; /* paged: blocks of the pool; continuous: max_seqs; dense: batch rows */
    int32_t kv_heads;
    int32_t block_size; /* cells of a block; continuous and dense: the row's capacity */
    int32_t k_width;
    int32_t v_width;
    size_t k_block_stride, k_head_stride, k_cell_stride;
    size_t v_block_stride, v_head_stride, v_cell_stride;
};

/* Prefix caching: one field of a namespace, such as the tenant or the adapter and its version. Two
 * requests share cached blocks only where their fields are the same. Fields may come in any order,
 * each tag once; an empty field differs from an absent one. A field counts from the block that
 * holds token begins_at: blocks wholly before it, a public system prompt for one, are shared. */
#define PKV_MAX_NAMESPACE_FIELDS 4
#define PKV_MAX_NAMESPACE_BYTES 128
struct pkv_namespace_field {
    int32_t tag;       /* what the field is, in the caller's own numbering, >= 1 */
    int32_t length;    /* bytes, in [0, PKV_MAX_NAMESPACE_BYTES] */
    const void *bytes; /* read during the call */
    int32_t begins_at; /* >= 0 */
};

/* Prefix caching: blocks have a priority in [0, PKV_NUM_PRIORITIES); lower ones are evicted first.
 */
#define PKV_NUM_PRIORITIES 4

#ifdef __cplusplus
}
#endif

#endif
