/* SPDX-License-Identifier: MIT
 *
 * dlopen.c: what a server sees that loads libpagedkv.so (path in argv) at run time and has no
 * jemalloc: the library loads, works on libc's memory, says so, and unloads. The program is linked
 * to nothing of ours; every function is found by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pagedkv.h"

static int passed, failed;

static void expect(bool condition, const char *promise)
{
    passed += condition;
    failed += !condition;
    printf("%s %s\n", condition ? "ok    " : "FAILED", promise);
}

/* memcpy, because ISO C has no cast from an object's address to a function's. */
static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        printf("FAILED %s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    memcpy(function, &symbol, sizeof symbol);
}

static void check_names(void *library)
{
    const char *(*version)(void);
    const char *(*build_info)(void);
    find(library, "pkv_version", &version);
    find(library, "pkv_build_info", &build_info);
    printf("%s\n", build_info());

    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", PKV_VERSION_MAJOR, PKV_VERSION_MINOR,
             PKV_VERSION_PATCH);
    expect(strcmp(version(), expected) == 0, "the version is the header's");
    const bool jemalloc = dlsym(RTLD_DEFAULT, "mallocx") != NULL;
    expect(strstr(build_info(), jemalloc ? "jemalloc" : "libc") != NULL,
           "build info says where metadata comes from");
}

static void check_pool(void *library)
{
    enum pkv_status (*create)(int32_t, const struct pkv_hooks *, pkv_pool **);
    enum pkv_status (*alloc)(pkv_pool *, int32_t, int32_t *);
    enum pkv_status (*release)(pkv_pool *, const int32_t *, int32_t);
    int32_t (*num_free)(const pkv_pool *);
    void (*destroy)(pkv_pool *);
    const char *(*last_error)(void);
    find(library, "pkv_pool_create", &create);
    find(library, "pkv_pool_alloc", &alloc);
    find(library, "pkv_pool_release", &release);
    find(library, "pkv_pool_num_free", &num_free);
    find(library, "pkv_pool_destroy", &destroy);
    find(library, "pkv_last_error", &last_error);

    pkv_pool *pool = NULL;
    int32_t ids[3];
    expect(create(4, NULL, &pool) == PKV_OK, "a pool is created");
    expect(alloc(pool, 3, ids) == PKV_OK && num_free(pool) == 1, "three blocks are taken");
    expect(release(pool, ids, 3) == PKV_OK && num_free(pool) == 4, "and released");
    expect(alloc(pool, -1, ids) == PKV_INVALID_ARGUMENT && last_error()[0] != '\0',
           "a refusal leaves its reason in this thread");
    destroy(pool);
}

static void check_cache(void *library)
{
    enum pkv_status (*create)(const struct pkv_cache_config *, pkv_cache **);
    enum pkv_status (*seq_create)(pkv_cache *, const struct pkv_seq_options *, pkv_seq *);
    int32_t (*check)(pkv_cache *);
    enum pkv_status (*destroy)(pkv_cache *, bool);
    find(library, "pkv_cache_create", &create);
    find(library, "pkv_seq_create", &seq_create);
    find(library, "pkv_cache_check", &check);
    find(library, "pkv_cache_destroy", &destroy);

    const struct pkv_group_config group = {
        .kv_heads = 2, .k_width = 16, .block_size = 4, .num_blocks = 8};
    const struct pkv_layer_config layer = {.num_heads = 4};
    const struct pkv_cache_config config = {.size = sizeof config,
                                            .groups = &group,
                                            .num_groups = 1,
                                            .layers = &layer,
                                            .num_layers = 1,
                                            .max_seqs = 2,
                                            .max_seq_len = 32,
                                            .max_step_tokens = 8,
                                            .num_threads = 1};
    pkv_cache *cache = NULL;
    pkv_seq seq;
    expect(create(&config, &cache) == PKV_OK, "a cache is created");
    expect(cache != NULL && seq_create(cache, NULL, &seq) == PKV_OK, "and a sequence in it");
    expect(cache != NULL && check(cache) == 0, "its invariants hold");
    expect(destroy(cache, false) == PKV_OK, "it is destroyed with the sequence alive");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: dlopen LIBRARY\n");
        return EXIT_FAILURE;
    }
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            printf("FAILED %s\n", dlerror());
            return EXIT_FAILURE;
        }
        check_names(library);
        check_pool(library);
        check_cache(library);
        expect(dlclose(library) == 0, "the library is unloaded");
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
