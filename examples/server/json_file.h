/* SPDX-License-Identifier: MIT
 *
 * json_file.h: the JSON files of a model's folder. Every function that refuses has complained,
 * naming the file and the field. */
#ifndef SERVER_JSON_FILE_H
#define SERVER_JSON_FILE_H

#include <cjson/cJSON.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The path of a file in a folder, to be freed by the caller; NULL after a complaint. */
char *json_file_path(const char *folder, const char *file);

/* An object that fills num_bytes bytes but for white space behind it; NULL after a complaint. */
cJSON *json_file_parse(const char *name, const char *bytes, size_t num_bytes);

/* The object in a file of at most `limit` bytes; NULL after a complaint. */
cJSON *json_file_read(const char *path, size_t limit);

/* The field, NULL when it is left out or null. */
const cJSON *json_file_field(const cJSON *object, const char *name);

/* A whole number in [low, high]. A field that is left out leaves *value as it is. */
bool json_file_integer(const char *path, const cJSON *object, const char *name, int32_t low,
                       int32_t high, int32_t *value);

/* A number above 0, and a flag, in the same way. */
bool json_file_positive(const char *path, const cJSON *object, const char *name, double *value);
bool json_file_flag(const char *path, const cJSON *object, const char *name, bool *value);

/* True for a text that equals `text`. */
bool json_file_says(const cJSON *item, const char *text);

#endif
