/* SPDX-License-Identifier: MIT */
#include "language_model.h"

#include "embedded.h"
#include "folder_model.h"
#include "json_file.h"
#include "load.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The last part of the path, without what follows its first dot. */
static void set_name(const char *path, char *name, size_t room)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    snprintf(name, room, "%.*s", (int)strcspn(base, "."), base);
}

/* tokenizer.bin in the model's folder. */
static bool open_vocabulary(const char *path, struct language_model *lm)
{
    static const char file[] = "tokenizer.bin";
    if (lm->model.byte_vocabulary) {
        return codec_pieces(&lm->model, NULL, &lm->codec);
    }
    const char *slash = strrchr(path, '/');
    const int folder = slash != NULL ? (int)(slash - path + 1) : 0;
    const size_t room = (size_t)folder + sizeof file;
    char *place = malloc(room);
    if (place == NULL) {
        return complain("out of memory");
    }
    snprintf(place, room, "%.*s%s", folder, path, file);
    const bool ok = codec_pieces(&lm->model, place, &lm->codec);
    free(place);
    return ok;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The last part of a folder's path, whole. */
static void set_folder_name(const char *path, char *name, size_t room)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    snprintf(name, room, "%.*s", (int)(end - start), path + start);
}

static bool open_folder(const char *path, struct language_model *lm)
{
    struct folder_config config;
    if (!folder_model_open(path, &config, &lm->model)) {
        return false;
    }
    set_folder_name(path, lm->name, sizeof lm->name);
    char *file = json_file_path(path, "tokenizer.json");
    if (file != NULL && codec_bpe(&lm->model, file, config.ends, config.num_ends, &lm->codec)) {
        free(file);
        return true;
    }
    free(file);
    model_free(&lm->model);
    return false;
}

bool language_model_open(const char *path, struct language_model *lm)
{
    memset(lm, 0, sizeof *lm);
    if (is_folder(path)) {
        return open_folder(path, lm);
    }
    const bool embedded = path[0] == '\0';
    if (embedded ? !embedded_load(&lm->model) : !model_load(path, &lm->model)) {
        return false;
    }
    set_name(embedded ? "stories" : path, lm->name, sizeof lm->name);
    if (!open_vocabulary(path, lm)) {
        model_free(&lm->model);
        return false;
    }
    return true;
}

void language_model_close(struct language_model *lm)
{
    lm->codec.free(lm->codec.self);
    model_free(&lm->model);
}
