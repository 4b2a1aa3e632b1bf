/* SPDX-License-Identifier: MIT
 *
 * pagedkv/base.h: what every other header of the library builds on: the version, status words,
 * element types, instruction sets, memory and log hooks of the caller, and the view that describes
 * where keys and values lie in memory. Every other header includes it.
 *
 *     pkv_pool *pool = NULL;
 *     if (pkv_pool_create(1024, NULL, &pool) != PKV_OK) {
 *         fprintf(stderr, "%s\n", pkv_last_error());     which argument, which value, which range
 *     }
 *
 * What follows holds for every call of the library. A declaration repeats it only where it adds
 * something.
 *
 *   Errors     A call that can fail returns `enum pkv_status`, PKV_OK on success. A refused call
 *              has changed nothing: objects are as before, caches and outputs keep every byte, and
 *              out-parameters are not written. The exceptions are reports that exist to explain a
 *              refusal: struct pkv_shortage, and the report of pkv_cache_reset.
 *   Arguments  Every argument is checked, in every build. A NULL where an object, an array or an
 *              out-parameter is needed, or a number outside its range, is PKV_INVALID_ARGUMENT.
 *              Declarations name this status only where its reason is not evident.
 *   Ownership  An object from a *_create call belongs to the caller until the matching *_destroy,
 *              which accepts NULL. Arrays and structs passed in are read during the call and not
 *              kept, unless the declaration says so.
 *   Threads    Different objects are independent. A pkv_cache locks inside: any thread may call it
 *              at any time. A pkv_pool, pkv_slots, pkv_workspace or pkv_plan is used by one thread
 *              at a time; the calls that run one task of a layer (attn.h, step.h) are the
 *              exception, and say so.
 *   Structs    A struct whose first field is `size` is zeroed by the caller, who then stores its
 *              sizeof there, whether the call reads or fills it. A field left zero means "absent"
 *              or "the default". Later versions add fields at the end. So a smaller struct, down to
 *              the layout of 0.1.0, lacks fields, which count as zero; a larger one is taken as
 *              long as what this version does not know is zero, and is PKV_UNSUPPORTED otherwise.
 *              Of a struct that a call fills, it fills what both sides know, and zeroes the rest.
 *              Any other size is PKV_INVALID_ARGUMENT. Structs without a size keep theirs for good:
 *              they have `reserved` fields for later versions, which must be zero, or never grow.
 *   Silence    The library never aborts, prints, exits, or reads the environment. */
#ifndef PAGEDKV_BASE_H
#define PAGEDKV_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of these headers, MAJOR.MINOR.PATCH. Before 1.0.0 a minor version may change the
 * interface; CHANGELOG.md then says how to follow. pkv_version tells which library is linked. */
#define PKV_VERSION_MAJOR 0
#define PKV_VERSION_MINOR 1
#define PKV_VERSION_PATCH 0

/* The compiler extensions that the library uses, in one place, and empty for a compiler that is not
 * of the GNU family. Callers need none of them.
 *
 *     PKV_API           exports a function from the shared library
 *     PKV_NODISCARD     makes the compiler warn where a status is ignored; calls that end something
 *                       do not have it, for destructors
 *     PKV_WEAK          a symbol that the process need not have (those of jemalloc)
 *     PKV_PRINTF        makes the compiler check a format string against its arguments
 *     PKV_THREAD_LOCAL  a variable of which each thread has its own (the text of the last error)
 */
#if defined(__GNUC__)
#define PKV_API __attribute__((visibility("default")))
#define PKV_WEAK __attribute__((weak))
#define PKV_NODISCARD __attribute__((warn_unused_result))
#define PKV_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define PKV_THREAD_LOCAL __thread
#else
#define PKV_API
#define PKV_WEAK
#define PKV_NODISCARD
#define PKV_PRINTF(text, first)
#define PKV_THREAD_LOCAL _Thread_local
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call answers. Programs decide by the status; people read pkv_last_error. */
enum pkv_status {
    /* Done. */
    PKV_OK = 0,
    /* An argument is missing, out of range or does not go with another one. The last error names
     * the parameter, its index and its value. A bug of the caller, or bad input passed on. */
    PKV_INVALID_ARGUMENT = -1,
    /* A memory hook, or the system, returned NULL. */
    PKV_NO_MEMORY = -2,
    /* No free block (slot, sequence, pin, namespace) at the moment. A normal answer, not an
     * accident: the same call can succeed after others have released theirs. */
    PKV_NO_BLOCKS = -3,
    /* More than this object has in total. No waiting helps: reject the request. */
    PKV_NEVER_FITS = -4,
    /* The call needs keys whose blocks were released because they left a sliding window, or those
     * of a sequence that is swapped out. */
    PKV_NOT_RESIDENT = -5,
    /* A handle that was destroyed, or whose place has a new owner, or that belongs to another
     * object. It never reaches the data of a newer owner. */
    PKV_STALE_HANDLE = -6,
    /* An open step, a copy of the sequence's keys and values that is under way (save.h), or a
     * closed cache prevents the call. */
    PKV_BUSY = -7,
    /* A dtype, option or instruction set that this build, or this CPU, does not have. */
    PKV_UNSUPPORTED = -8,
    /* Saved data fails its checks: damaged, cut short, or never written by this library. */
    PKV_CORRUPT = -9,
    /* Input or output failed: a callback of the caller's has stopped it, or the system has. */
    PKV_IO = -10,
    /* Nothing of that name. */
    PKV_NOT_FOUND = -11
};

/* The name of a status, such as "PKV_NO_BLOCKS".
 *
 * Returns a string in static storage, never NULL; "unknown status" for any other value. Any thread;
 * O(1). */
PKV_API const char *pkv_status_name(enum pkv_status status);

/* The reason of the calling thread's last refused call, one line for people, such as
 * "block_table[3][7] = 91, outside [0, 64)".
 *
 * Returns the text, never NULL; "" before the first refusal. It belongs to the calling thread and
 * is overwritten by that thread's next refused call; a call that succeeds leaves it alone. Copy it
 * to keep it. Any thread; O(1). */
PKV_API const char *pkv_last_error(void);

/* The version of the library that is linked, such as "0.1.0". Compare with PKV_VERSION_MAJOR,
 * _MINOR and _PATCH, the version of the headers that the caller was compiled with.
 *
 * Returns a string in static storage. Any thread; O(1). */
PKV_API const char *pkv_version(void);

/* Describes how the library was built and what it found in this process: version, compiler,
 * instruction sets of the build, "openmp" or "no openmp", "hiredis" with its version or "no
 * hiredis", and whether metadata comes from jemalloc or from libc. For logs and bug reports:
 *
 *     pagedkv 0.1.0, gcc 12.2.0, scalar avx2, openmp, hiredis 0.14.1, metadata: libc
 *
 * Returns one line in static storage. Any thread; O(1). */
PKV_API const char *pkv_build_info(void);

/* Element types. Activations (queries, new keys and values, outputs) are f32, f16 or bf16; a cache
 * may hold any of the five. */
enum pkv_dtype {
    PKV_F32 = 0,
    PKV_F16 = 1,  /* IEEE binary16 */
    PKV_BF16 = 2, /* the upper half of an f32 */
    /* Codes of 8 bits: a value is code * scale, with constant scales that the caller provides
     * (pkv_attn_constants). int8 is signed; e4m3 is the finite-only fp8: 1 sign, 4 exponent and 3
     * mantissa bits, largest value 448, one NaN for each sign, no infinity. */
    PKV_INT8 = 3,
    PKV_E4M3 = 4
};

/* The size of one element of a type.
 *
 * Returns bytes: 4, 2 or 1; 0 for an unknown type. Any thread; O(1). */
PKV_API size_t pkv_dtype_bytes(enum pkv_dtype dtype);

/* The instruction sets, each with kernels of its own. A row says the enumerator, its value, which
 * never changes, its name, and the machines that have it; of one machine, the better come later.
 * PKV_ON_* are the library's own (src/base/build.h): who expands the list passes them over. */
#define PKV_ISA_LIST(ISA)                                                                          \
    ISA(PKV_ISA_SCALAR, 1, scalar, PKV_ON_ANY)         /* portable C */                            \
    ISA(PKV_ISA_AVX2, 2, avx2, PKV_ON_X86)             /* with FMA and F16C */                     \
    ISA(PKV_ISA_AVX512, 3, avx512, PKV_ON_X86)         /* F, BW, DQ and VL */                      \
    ISA(PKV_ISA_AVX512VNNI, 5, avx512vnni, PKV_ON_X86) /* and VNNI, VBMI */                        \
    ISA(PKV_ISA_AVX512BF16, 4, avx512bf16, PKV_ON_X86) /* and dot products of bf16 */

enum pkv_isa {
    /* The last of the list that this build has and this CPU can run. */
    PKV_ISA_BEST = 0,
#define PKV_ISA_VALUE(isa, value, name, machine) isa = value,
    PKV_ISA_LIST(PKV_ISA_VALUE)
#undef PKV_ISA_VALUE
};

/* The values of enum pkv_isa are in [0, PKV_NUM_ISAS). */
#define PKV_ISA_ONE(isa, value, name, machine) +1
enum { PKV_NUM_ISAS = 1 PKV_ISA_LIST(PKV_ISA_ONE) };
#undef PKV_ISA_ONE

/* The name of an instruction set, such as "avx2"; "best" for PKV_ISA_BEST.
 *
 * Returns a string in static storage, never NULL; "unknown isa" for any other value. Any thread;
 * O(1). */
PKV_API const char *pkv_isa_name(enum pkv_isa isa);

/* Finds an instruction set by its name, for an option of a server. Whether this build has it and
 * this CPU can run it is for pkv_workspace_create to answer.
 *
 * Returns PKV_OK and the instruction set in *isa; PKV_INVALID_ARGUMENT; PKV_NOT_FOUND for any other
 * text. Any thread; O(PKV_NUM_ISAS). */
PKV_API PKV_NODISCARD enum pkv_status pkv_isa_by_name(const char *name, enum pkv_isa *isa);

/* How serious a line of the log hook is. */
enum pkv_log_level {
    /* An invariant is broken: a bug of the library, or memory that something else has overwritten.
     */
    PKV_LOG_ERROR = 0,
    /* Nothing is lost, but who runs the server should know: attention that runs on fewer threads
     * than were requested. */
    PKV_LOG_WARNING = 1,
    /* No call logs one yet. */
    PKV_LOG_INFO = 2
};

/* What a mapping is for. */
enum pkv_map_kind {
    /* Keys and values: written by appends, read by attention; most of a cache's memory. */
    PKV_MAP_PAYLOAD = 0,
    /* Block tables, tokens of sequences and of the prefix index: read and written by every step. */
    PKV_MAP_TABLES = 1,
    /* Keys and values of sequences that are swapped out (swap.h): read and written by swapping
     * alone, so slower memory will do. */
    PKV_MAP_SWAP = 2
};

/* One of the tasks of the parallel_for hook. */
typedef void pkv_task_function(void *task_context, int32_t task);

/* The caller's own memory, log and threads. A zeroed struct, or a NULL pointer to one, stands for
 * the defaults. A *_create call copies the struct, and the object calls the hooks until it is
 * destroyed; what `context` points to must live as long.
 *
 * A hook runs on a thread that calls the library, never on one that the library made; from several
 * threads at once where several call. A hook for memory or the log may run while the cache that
 * calls it holds its mutex, so it must not call the library on the same object. A memory hook that
 * returns NULL makes the call answer PKV_NO_MEMORY with nothing changed. */
struct pkv_hooks {
    /* Passed to every hook as it is. */
    void *context;
    /* Metadata and scratch: set both or neither. alloc returns `bytes` bytes aligned to
     * `alignment`, a power of two; free gets the same bytes and alignment again. Default: jemalloc
     * when the process has it (each cache then uses an arena of its own), else libc. */
    void *(*alloc)(void *context, size_t bytes, size_t alignment);
    void (*free)(void *context, void *memory, size_t bytes, size_t alignment);
    /* Payload, the keys and values themselves, and other large tables, as `kind` says: set both
     * or neither. unmap_pages gets the same bytes and kind again. `alignment` is 2 MiB where huge
     * pages pay, and 4 KiB for tables of which little may ever be used; `node` is a memory (NUMA)
     * node, -1 = any, and always -1 so far. The memory may hold anything: the library reads
     * nothing that it has not written. Default: anonymous mmap memory, which costs physical
     * memory only once it is touched; with 2 MiB huge pages are advised, with 4 KiB small ones. */
    void *(*map_pages)(void *context, size_t bytes, size_t alignment, int node,
                       enum pkv_map_kind kind);
    void (*unmap_pages)(void *context, void *memory, size_t bytes, enum pkv_map_kind kind);
    /* Receives one line of text without a newline, such as a broken invariant that a *_check call
     * has found. NULL = no log. */
    void (*log)(void *context, enum pkv_log_level level, const char *line);
    /* Runs attention on threads of the caller's: calls task(task_context, i) once for each i in [0,
     * num_tasks), on any threads, several at once or one after the other, and returns when all have
     * returned. num_tasks is at most num_threads of the workspace or cache. Task i does what the
     * i-th thread would do, and then what others have left, so a task that begins late finds
     * nothing to do. It needs a stack of 64 KiB, never waits, and calls no hook. The hook is called
     * once for each phase of a layer that is worth more than one thread, on the thread that
     * attends, with no lock held; OpenMP is then never entered. NULL = OpenMP's threads. */
    void (*parallel_for)(void *context, int32_t num_tasks, pkv_task_function *task,
                         void *task_context);
    uint64_t reserved[4];
};

/* Where keys and values lie in memory: base pointers, counts and strides. The view owns nothing.
 * One struct describes all cache forms; n is the block of a paged cache, the slot of a continuous
 * one, or the batch row of a dense one. The cell (place of one token) at position c of block n for
 * KV head g starts at the element
 *
 *     k + n * k_block_stride + g * k_head_stride + c * k_cell_stride
 *
 * and holds k_width adjacent channels; v likewise. Strides are counted in elements, and a stride of
 * 0 stands for the packed order [num_blocks][kv_heads][block_size][width], which others call HND. A
 * pool in the order NHD, [num_blocks][block_size][kv_heads][width], is described by
 *
 *     k_head_stride = k_width      k_cell_stride = kv_heads * k_width
 *
 * Where values are part of the keys (v_in_k of the call), v is NULL and the v fields are not read.
 */
struct pkv_kv_view {
    void *k;
    void *v;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
    /* Blocks of a paged pool, slots of a continuous cache, batch rows of a dense one. */
    int32_t num_blocks;
    int32_t kv_heads;
    /* Cells of a block; of a slot or dense row: its capacity in tokens. */
    int32_t block_size;
    /* Channels of one key and of one value of one head; v_width 0 = k_width. */
    int32_t k_width;
    int32_t v_width;
    size_t k_block_stride, k_head_stride, k_cell_stride;
    size_t v_block_stride, v_head_stride, v_cell_stride;
    uint64_t reserved[4];
};

/* A piece of memory, for bytes that are written from, or read into, several places: the content of
 * a block is one piece for the keys and one for the values of each layer. */
struct pkv_piece {
    void *bytes;
    size_t length;
};

/* The bounds of a namespace: fields of one sequence, and bytes of one field. */
#define PKV_MAX_NAMESPACE_FIELDS 4
#define PKV_MAX_NAMESPACE_BYTES 128

/* One field of the namespace that separates cached blocks of different tenants, adapters or salts.
 * Two requests share cached blocks only where their fields are equal: same tags, same bytes. The
 * order of the fields does not matter, each tag appears at most once, and an empty field (length 0)
 * differs from an absent one.
 *
 * A field can begin later than the first token: blocks wholly before token begins_at belong to a
 * namespace without it and are shared by everyone, such as a public system prompt in front of a
 * tenant's own text. */
struct pkv_namespace_field {
    /* What the field means, in the caller's own numbering: >= 1. */
    int32_t tag;
    /* bytes [length], in [0, PKV_MAX_NAMESPACE_BYTES]; may be NULL when length is 0. */
    int32_t length;
    const void *bytes;
    /* >= 0. The field counts from the block that holds this token. */
    int32_t begins_at;
};

/* The key of a block: XXH3-128 over the fingerprint and geometry of the cache, the parent block's
 * key, the namespace, token ids and extras. Blocks of equal content have equal keys in every
 * process and machine with the same configuration, so keys serve routers and event consumers. They
 * are no proof of equality: XXH3 is not a cryptographic hash. Both words 0 = no block. */
struct pkv_block_key {
    uint64_t low;
    uint64_t high;
};

/* Cached blocks have a priority in [0, PKV_NUM_PRIORITIES). Where memory is needed, blocks of a
 * lower priority are evicted before those of a higher one. */
#define PKV_NUM_PRIORITIES 4

#ifdef __cplusplus
}
#endif

#endif
