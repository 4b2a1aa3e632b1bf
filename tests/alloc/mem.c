/* SPDX-License-Identifier: MIT
 *
 * The door to memory: which hook it comes from, and that each byte is counted until it is freed. */
#include "alloc/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

static void half_a_pair_of_hooks_refuses_and_writes_nothing(void)
{
    struct test_memory memory = {0};
    struct mem mem, before;
    memset(&mem, 0x5a, sizeof mem);
    memcpy(&before, &mem, sizeof mem);
    for (int missing = 0; missing < 4; missing++) {
        struct pkv_hooks hooks = test_hooks(&memory);
        hooks.alloc = missing == 0 ? NULL : hooks.alloc;
        hooks.free = missing == 1 ? NULL : hooks.free;
        hooks.map_pages = missing == 2 ? NULL : hooks.map_pages;
        hooks.unmap_pages = missing == 3 ? NULL : hooks.unmap_pages;
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, mem_open(&mem, &hooks));
        CU_ASSERT(memcmp(&mem, &before, sizeof mem) == 0);
    }
}

static void metadata_is_counted_until_it_is_freed(void)
{
    struct mem mem;
    ASSERT_STATUS(PKV_OK, mem_open(&mem, NULL));
    char *a = mem.routed.alloc(mem.routed.context, 1000, 64);
    char *b = mem.routed.alloc(mem.routed.context, 64, 4096);
    CU_ASSERT_FATAL(a != NULL && b != NULL);
    CU_ASSERT((uintptr_t)a % 64 == 0 && (uintptr_t)b % 4096 == 0);
    memset(a, 1, 1000);
    memset(b, 1, 64);
    CU_ASSERT(mem.bytes_used == 1064 && mem.bytes_mapped == 0);
    mem.routed.free(mem.routed.context, a, 1000, 64);
    CU_ASSERT(mem.bytes_used == 64);
    mem.routed.free(mem.routed.context, b, 64, 4096);
    CU_ASSERT(mem.bytes_used == 0);
    mem_close(&mem);
}

static void each_mem_has_an_arena_of_its_own_when_there_is_jemalloc(void)
{
    struct mem a, b;
    ASSERT_STATUS(PKV_OK, mem_open(&a, NULL));
    ASSERT_STATUS(PKV_OK, mem_open(&b, NULL));
    CU_ASSERT_EQUAL(a.has_arena, mem_has_jemalloc());
    CU_ASSERT_EQUAL(b.has_arena, mem_has_jemalloc());
    CU_ASSERT(!a.has_arena || a.arena != b.arena);
    mem_close(&a);
    mem_close(&b);
    CU_ASSERT(!a.has_arena && !b.has_arena);
}

static void arenas_go_back_when_a_mem_is_closed(void)
{
    /* jemalloc has fewer arenas than this; without their return the last mems would have none */
    for (int i = 0; i < 5000; i++) {
        struct mem mem;
        ASSERT_STATUS(PKV_OK, mem_open(&mem, NULL));
        void *memory = mem.routed.alloc(mem.routed.context, 64, 64);
        CU_ASSERT_FATAL(memory != NULL && mem.has_arena == mem_has_jemalloc());
        mem.routed.free(mem.routed.context, memory, 64, 64);
        mem_close(&mem);
    }
}

static void the_callers_hooks_go_before_everything(void)
{
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    struct mem mem;
    ASSERT_STATUS(PKV_OK, mem_open(&mem, &hooks));
    CU_ASSERT(!mem.has_arena);
    void *a = mem.routed.alloc(mem.routed.context, 128, 64);
    void *b = mem_map(&mem.routed, 4096, PKV_MAP_PAYLOAD);
    CU_ASSERT_FATAL(a != NULL && b != NULL);
    CU_ASSERT(memory.live == 2 && memory.live_bytes == 128 + 4096);
    CU_ASSERT(mem.bytes_used == 128 && mem.bytes_mapped == 4096);
    mem.routed.log(mem.routed.context, PKV_LOG_INFO, "a line");
    CU_ASSERT_EQUAL(memory.num_logged, 1);
    mem.routed.free(mem.routed.context, a, 128, 64);
    mem_unmap(&mem.routed, b, 4096, PKV_MAP_PAYLOAD);
    CU_ASSERT(memory.live == 0 && memory.live_bytes == 0);
    CU_ASSERT(mem.bytes_used == 0 && mem.bytes_mapped == 0);
    mem_close(&mem);
}

static void a_mem_without_a_log_hook_is_silent(void)
{
    struct mem mem;
    ASSERT_STATUS(PKV_OK, mem_open(&mem, NULL));
    CU_ASSERT_PTR_NULL(mem.routed.log);
    hooks_log(&mem.routed, PKV_LOG_ERROR, "nobody hears %d", 1);
    mem_close(&mem);
}

static void memory_that_is_refused_is_not_counted(void)
{
    struct test_memory memory = {.fail_at = 1};
    const struct pkv_hooks hooks = test_hooks(&memory);
    struct mem mem;
    ASSERT_STATUS(PKV_OK, mem_open(&mem, &hooks));
    CU_ASSERT_PTR_NULL(mem.routed.alloc(mem.routed.context, 128, 64));
    CU_ASSERT_PTR_NULL(mem_map(&mem.routed, 4096, PKV_MAP_PAYLOAD));
    CU_ASSERT(mem.bytes_used == 0 && mem.bytes_mapped == 0);
    mem_close(&mem);
    ASSERT_STATUS(PKV_OK, mem_open(&mem, NULL));
    CU_ASSERT_PTR_NULL(mem.routed.alloc(mem.routed.context, SIZE_MAX, 64));
    CU_ASSERT_PTR_NULL(mem_map(&mem.routed, SIZE_MAX, PKV_MAP_PAYLOAD));
    CU_ASSERT(mem.bytes_used == 0 && mem.bytes_mapped == 0);
    mem_close(&mem);
}

static void pages_are_aligned_and_writable_to_the_last_byte(void)
{
    static const struct pkv_hooks none;
    static const size_t sizes[] = {
        1, 4096, 4097, MEM_PAGE_ALIGNMENT, MEM_PAGE_ALIGNMENT + 1, 5 * MEM_PAGE_ALIGNMENT - 1};
    unsigned char *held[sizeof sizes / sizeof sizes[0]];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        held[i] = mem_map(&none, sizes[i], PKV_MAP_PAYLOAD);
        CU_ASSERT_FATAL(held[i] != NULL);
        CU_ASSERT_EQUAL((uintptr_t)held[i] % MEM_PAGE_ALIGNMENT, 0);
        held[i][0] = (unsigned char)i;
        held[i][sizes[i] - 1] = (unsigned char)i;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CU_ASSERT(held[i][0] == i && held[i][sizes[i] - 1] == i);
        mem_unmap(&none, held[i], sizes[i], PKV_MAP_PAYLOAD);
    }
    mem_unmap(&none, NULL, 4096, PKV_MAP_PAYLOAD);
}

/* Pages of the address space that this process has mapped; 0 where the system does not say. */
static long mapped_pages(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld", &pages) != 1) {
        pages = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return pages;
}

/* What is mapped in excess, for the alignment, goes back at both ends. */
static void pages_leave_nothing_mapped_beside_them(void)
{
    static const struct pkv_hooks none;
    enum { ROUNDS = 64, BYTES = 12288 };
    const long before = mapped_pages();
    if (before == 0) {
        printf("skipped: /proc/self/statm is not there\n");
        return;
    }
    void *held[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        held[i] = mem_map(&none, BYTES, PKV_MAP_PAYLOAD);
        CU_ASSERT_FATAL(held[i] != NULL);
    }
    const long with_all = mapped_pages();
    for (int i = 0; i < ROUNDS; i++) {
        mem_unmap(&none, held[i], BYTES, PKV_MAP_PAYLOAD);
    }
    const long page_bytes = sysconf(_SC_PAGESIZE);
    const long rounded = (BYTES + page_bytes - 1) / page_bytes;
    CU_ASSERT(with_all - before <= ROUNDS * rounded + ROUNDS);
    CU_ASSERT(mapped_pages() - before <= ROUNDS);
}

static void pages_that_cannot_be_had_are_null(void)
{
    static const struct pkv_hooks none;
    CU_ASSERT_PTR_NULL(mem_map(&none, 0, PKV_MAP_PAYLOAD));
    CU_ASSERT_PTR_NULL(mem_map(&none, SIZE_MAX, PKV_MAP_PAYLOAD));
    CU_ASSERT_PTR_NULL(mem_map(&none, SIZE_MAX - 8192, PKV_MAP_PAYLOAD));
    CU_ASSERT_PTR_NULL(mem_map(&none, SIZE_MAX / 2, PKV_MAP_PAYLOAD));
}

struct map_request {
    size_t bytes;
    size_t alignment;
    int node;
    enum pkv_map_kind kind;
};

static void *recorded_map(void *context, size_t bytes, size_t alignment, int node,
                          enum pkv_map_kind kind)
{
    static char page[64];
    const struct map_request request = {bytes, alignment, node, kind};
    memcpy(context, &request, sizeof request);
    return page;
}

static void recorded_unmap(void *context, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    const struct map_request request = {bytes, 0, memory != NULL, kind};
    memcpy(context, &request, sizeof request);
}

static void the_page_hook_is_told_bytes_alignment_any_node_and_what_for(void)
{
    struct map_request request = {0};
    const struct pkv_hooks hooks = {
        .context = &request, .map_pages = recorded_map, .unmap_pages = recorded_unmap};
    struct mem mem;
    ASSERT_STATUS(PKV_OK, mem_open(&mem, &hooks));
    void *pages = mem_map(&mem.routed, 12345, PKV_MAP_TABLES);
    CU_ASSERT(request.bytes == 12345 && request.alignment == MEM_PAGE_ALIGNMENT);
    CU_ASSERT(request.node == -1 && request.kind == PKV_MAP_TABLES);
    mem_unmap(&mem.routed, pages, 12345, PKV_MAP_TABLES);
    CU_ASSERT(request.bytes == 12345 && request.node == 1 && request.kind == PKV_MAP_TABLES);
    pages = mem_map_table(&mem.routed, 12345);
    CU_ASSERT(request.bytes == 12345 && request.alignment == MEM_TABLE_ALIGNMENT);
    CU_ASSERT(request.node == -1 && request.kind == PKV_MAP_TABLES);
    mem_unmap(&mem.routed, pages, 12345, PKV_MAP_TABLES);
    mem_close(&mem);
}

static void *allocate_and_free(void *context)
{
    struct mem *mem = context;
    for (size_t i = 1; i <= 2000; i++) {
        void *memory = mem->routed.alloc(mem->routed.context, 64 * i, 64);
        if (memory == NULL) {
            return mem;
        }
        mem->routed.free(mem->routed.context, memory, 64 * i, 64);
    }
    return NULL;
}

static void counts_stay_exact_when_threads_allocate_at_once(void)
{
    struct mem mem;
    pthread_t threads[4];
    ASSERT_STATUS(PKV_OK, mem_open(&mem, NULL));
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_FATAL(pthread_create(&threads[i], NULL, allocate_and_free, &mem) == 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        CU_ASSERT_PTR_NULL(failed);
    }
    CU_ASSERT(mem.bytes_used == 0);
    mem_close(&mem);
}

static void build_info_names_version_threads_and_allocator(void)
{
    const char *info = pkv_build_info();
    CU_ASSERT_PTR_NOT_NULL(strstr(info, pkv_version()));
    CU_ASSERT_PTR_NOT_NULL(strstr(info, "scalar"));
    CU_ASSERT((strstr(info, ", openmp") != NULL) != (strstr(info, ", no openmp") != NULL));
    CU_ASSERT_EQUAL(strstr(info, "metadata: jemalloc") != NULL, mem_has_jemalloc());
    CU_ASSERT_EQUAL(strstr(info, "metadata: libc") != NULL, !mem_has_jemalloc());
    CU_ASSERT_PTR_NULL(strchr(info, '\n'));
    CU_ASSERT_PTR_EQUAL(info, pkv_build_info());
}

static void a_file_is_written_to_its_last_byte_and_a_folder_that_is_none_refuses(void)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : P_tmpdir;
    void *memory = NULL;
    ASSERT_STATUS(PKV_OK, mem_map_file(folder, 5001, &memory));
    CU_ASSERT_FATAL(memory != NULL);
    memset(memory, 7, 5001);
    CU_ASSERT(((unsigned char *)memory)[5000] == 7);
    mem_unmap_file(memory, 5001);
    mem_unmap_file(NULL, 5001);
    memory = NULL;
    ASSERT_REFUSED(PKV_IO, "no/folder: No such file", mem_map_file("no/folder", 1, &memory));
    ASSERT_REFUSED(PKV_IO, "too large", mem_map_file(folder, SIZE_MAX, &memory));
    char longest[8192];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    ASSERT_STATUS(PKV_IO, mem_map_file(longest, 1, &memory));
    CU_ASSERT_PTR_NULL(memory);
}

static const struct test_case cases[] = {
    TEST(half_a_pair_of_hooks_refuses_and_writes_nothing),
    TEST(metadata_is_counted_until_it_is_freed),
    TEST(each_mem_has_an_arena_of_its_own_when_there_is_jemalloc),
    TEST(arenas_go_back_when_a_mem_is_closed),
    TEST(the_callers_hooks_go_before_everything),
    TEST(a_mem_without_a_log_hook_is_silent),
    TEST(memory_that_is_refused_is_not_counted),
    TEST(pages_are_aligned_and_writable_to_the_last_byte),
    TEST(pages_leave_nothing_mapped_beside_them),
    TEST(pages_that_cannot_be_had_are_null),
    TEST(the_page_hook_is_told_bytes_alignment_any_node_and_what_for),
    TEST(a_file_is_written_to_its_last_byte_and_a_folder_that_is_none_refuses),
    TEST(counts_stay_exact_when_threads_allocate_at_once),
    TEST(build_info_names_version_threads_and_allocator),
    TEST_END,
};
const struct test_suite suite_mem = {"mem", cases};
