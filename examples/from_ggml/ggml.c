/* SPDX-License-Identifier: MIT */
#include "ggml.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 4096 };

/* Stores a symbol in a function pointer. */
static bool load(void *object, const char *name, void *pointer)
{
    void *const symbol = dlsym(object, name);
    if (symbol == NULL) {
        fprintf(stderr, "ggml: no %s\n", name);
        return false;
    }
    memcpy(pointer, &symbol, sizeof symbol);
    return true;
}

static void *open_one(const char *folder, const char *pattern)
{
    char path[MAX_PATH];
    glob_t found;
    void *object = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    if (glob(path, 0, NULL, &found) == 0) {
        object = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
        globfree(&found);
    }
    return object;
}

/* What a build of the CPU backend says of this machine; 0 = it cannot run here. */
static int score_of(const char *path)
{
    int (*score)(void), points = 0;
    void *const object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object != NULL) {
        points = load(object, "ggml_backend_score", &score) ? score() : 0;
        dlclose(object);
    }
    return points;
}

static void find_build(const char *folder, char best[MAX_PATH])
{
    char pattern[MAX_PATH];
    glob_t found;
    int highest = 0;
    best[0] = '\0';
    snprintf(pattern, sizeof pattern, "%s/libggml-cpu-*.so", folder);
    if (glob(pattern, 0, NULL, &found) != 0) {
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const int points = score_of(found.gl_pathv[i]);
        if (points > highest) {
            highest = points;
            snprintf(best, MAX_PATH, "%s", found.gl_pathv[i]);
        }
    }
    globfree(&found);
}

static bool load_backend(struct ggml *ggml, void *base, const char *folder)
{
    void *(*load_registry)(const char *), *(*device)(void *, size_t),
        *(*init)(void *, const char *);
    char path[MAX_PATH];
    find_build(folder, path);
    void *const loader = open_one(folder, "libggml.v*.so");
    if (path[0] == '\0' || loader == NULL || !load(loader, "ggml_backend_load", &load_registry) ||
        !load(base, "ggml_backend_reg_dev_get", &device) ||
        !load(base, "ggml_backend_dev_init", &init)) {
        fprintf(stderr, "ggml: no CPU backend for this machine in %s\n", folder);
        return false;
    }
    void *const registry = load_registry(path);
    ggml->backend = registry != NULL ? init(device(registry, 0), NULL) : NULL;
    return ggml->backend != NULL;
}

bool ggml_load(struct ggml *ggml, const char *folder)
{
    void *const base = open_one(folder, "libggml-base.so");
    if (base == NULL) {
        fprintf(stderr, "ggml: no libggml-base.so in %s\n", folder);
        return false;
    }
    const struct {
        const char *name;
        void *pointer;
    } calls[] = {{"ggml_init", &ggml->init},
                 {"ggml_free", &ggml->free},
                 {"ggml_new_tensor_2d", &ggml->new_tensor_2d},
                 {"ggml_mul_mat", &ggml->mul_mat},
                 {"ggml_add", &ggml->add},
                 {"ggml_reshape_2d", &ggml->reshape_2d},
                 {"ggml_reshape_3d", &ggml->reshape_3d},
                 {"ggml_permute", &ggml->permute},
                 {"ggml_flash_attn_ext", &ggml->flash_attn_ext},
                 {"ggml_map_custom3", &ggml->map_custom3},
                 {"ggml_get_data", &ggml->get_data},
                 {"ggml_new_graph", &ggml->new_graph},
                 {"ggml_build_forward_expand", &ggml->build_forward_expand},
                 {"ggml_backend_alloc_ctx_tensors", &ggml->alloc_ctx_tensors},
                 {"ggml_backend_buffer_free", &ggml->buffer_free},
                 {"ggml_backend_tensor_set", &ggml->tensor_set},
                 {"ggml_backend_tensor_get", &ggml->tensor_get},
                 {"ggml_backend_graph_compute", &ggml->graph_compute}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (!load(base, calls[i].name, calls[i].pointer)) {
            return false;
        }
    }
    return load_backend(ggml, base, folder);
}
