/* SPDX-License-Identifier: MIT */
#include "weight_files.h"

#include "json_file.h"
#include "mapped_file.h"
#include "report.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 1024, MAX_INDEX = 16 << 20 };

static const char whole_file[] = "model.safetensors";
static const char index_file[] = "model.safetensors.index.json";
static const char extension[] = ".safetensors";
static const char rope_table[] = "rotary_emb.inv_freq";

struct weight_file {
    char *name;
    struct mapped_file map;
    struct safetensors tensors;
};

struct weight_files {
    struct weight_file *list; /* [count] */
    int32_t count;
    cJSON *index;     /* NULL for a single file */
    const cJSON *map; /* in it: name -> file */
};

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static struct weight_file *find_file(const struct weight_files *files, const char *name)
{
    for (int32_t i = 0; i < files->count; i++) {
        if (strcmp(files->list[i].name, name) == 0) {
            return &files->list[i];
        }
    }
    return NULL;
}

static bool open_file(const char *folder, const char *name, struct weight_files *files)
{
    if (files->count == MAX_FILES) {
        return complain("%s: more than %d files of weights", folder, MAX_FILES);
    }
    struct weight_file *list =
        realloc(files->list, ((size_t)files->count + 1) * sizeof *files->list);
    if (list == NULL) {
        return complain("out of memory for %d files of weights", files->count + 1);
    }
    files->list = list;
    struct weight_file *file = &list[files->count];
    memset(file, 0, sizeof *file);
    files->count++;
    file->name = strdup(name);
    char *path = json_file_path(folder, name);
    const bool ok = path != NULL && file->name != NULL && mapped_file_open(path, &file->map) &&
                    safetensors_parse(path, file->map.bytes, file->map.num_bytes, &file->tensors);
    free(path);
    return ok;
}

/* A shard lies in the folder itself: an index cannot lead elsewhere. */
static bool open_shards(const char *folder, const char *index, struct weight_files *files)
{
    files->index = json_file_read(index, MAX_INDEX);
    if (files->index == NULL) {
        return false;
    }
    files->map = json_file_field(files->index, "weight_map");
    if (!cJSON_IsObject(files->map)) {
        return complain("%s: has no weight_map", index);
    }
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, files->map)
    {
        if (!cJSON_IsString(each) || strchr(each->valuestring, '/') != NULL ||
            !ends_with(each->valuestring, extension)) {
            return complain("%s: %s lies in no file *%s of the folder", index, each->string,
                            extension);
        }
        if (find_file(files, each->valuestring) == NULL &&
            !open_file(folder, each->valuestring, files)) {
            return false;
        }
    }
    return true;
}

static bool open_all(const char *folder, struct weight_files *files)
{
    char *index = json_file_path(folder, index_file);
    if (index == NULL) {
        return false;
    }
    const bool ok = access(index, F_OK) == 0 ? open_shards(folder, index, files)
                                             : open_file(folder, whole_file, files);
    free(index);
    return ok;
}

bool weight_files_open(const char *folder, struct weight_files **files)
{
    *files = calloc(1, sizeof **files);
    if (*files == NULL) {
        return complain("out of memory for files of weights");
    }
    if (open_all(folder, *files)) {
        return true;
    }
    weight_files_free(*files);
    *files = NULL;
    return false;
}

/* The file in which the tensor is, or has to be. */
static struct weight_file *file_of(const struct weight_files *files, const char *name)
{
    if (files->map == NULL) {
        return &files->list[0];
    }
    const cJSON *place = json_file_field(files->map, name);
    return place != NULL ? find_file(files, place->valuestring) : NULL;
}

bool weight_files_take(struct weight_files *files, const char *name, int32_t rows, int32_t columns,
                       struct weight *w)
{
    const struct weight_file *file = file_of(files, name);
    struct safetensor *found = file != NULL ? safetensors_find(&file->tensors, name) : NULL;
    if (found == NULL) {
        return complain("%s: there is no weight %s", file != NULL ? file->name : index_file, name);
    }
    if (found->weight.rows != rows || found->weight.columns != columns) {
        return complain("%s: %s is [%d][%d], but the configuration makes it [%d][%d]", file->name,
                        name, found->weight.rows, found->weight.columns, rows, columns);
    }
    found->used = true;
    *w = found->weight;
    return true;
}

const char *weight_files_unused(const struct weight_files *files, const char *except)
{
    for (int32_t f = 0; f < files->count; f++) {
        const struct safetensors *tensors = &files->list[f].tensors;
        for (int32_t i = 0; i < tensors->count; i++) {
            const char *name = tensors->list[i].name;
            const bool excepted = except != NULL && strcmp(name, except) == 0;
            if (!tensors->list[i].used && !excepted && !ends_with(name, rope_table)) {
                return name;
            }
        }
    }
    return NULL;
}

void weight_files_free(void *opened)
{
    struct weight_files *files = opened;
    if (files == NULL) {
        return;
    }
    for (int32_t i = 0; i < files->count; i++) {
        safetensors_free(&files->list[i].tensors);
        mapped_file_close(&files->list[i].map);
        free(files->list[i].name);
    }
    cJSON_Delete(files->index);
    free(files->list);
    free(files);
}
