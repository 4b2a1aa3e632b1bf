/* SPDX-License-Identifier: MIT */
#include "json_file.h"

#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *json_file_path(const char *folder, const char *file)
{
    const size_t room = strlen(folder) + strlen(file) + 2;
    char *path = malloc(room);
    if (path == NULL) {
        complain("out of memory for a path");
        return NULL;
    }
    snprintf(path, room, "%s/%s", folder, file);
    return path;
}

static bool is_blank(const char *from, const char *end)
{
    while (from < end && *from != '\0' && strchr(" \t\r\n", *from) != NULL) {
        from++;
    }
    return from == end;
}

cJSON *json_file_parse(const char *name, const char *bytes, size_t num_bytes)
{
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(bytes, num_bytes, &end, false);
    if (cJSON_IsObject(root) && is_blank(end, bytes + num_bytes)) {
        return root;
    }
    cJSON_Delete(root);
    complain("%s: is no JSON object", name);
    return NULL;
}

cJSON *json_file_read(const char *path, size_t limit)
{
    unsigned char *bytes = NULL;
    size_t num_bytes = 0;
    if (!read_file(path, limit, &bytes, &num_bytes)) {
        return NULL;
    }
    cJSON *root = json_file_parse(path, (const char *)bytes, num_bytes);
    free(bytes);
    return root;
}

const cJSON *json_file_field(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNull(item) ? NULL : item;
}

bool json_file_integer(const char *path, const cJSON *object, const char *name, int32_t low,
                       int32_t high, int32_t *value)
{
    const cJSON *item = json_file_field(object, name);
    if (item == NULL) {
        return true;
    }
    const double number = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(number >= low && number <= high) || number != floor(number)) {
        return complain("%s: %s is no whole number in [%d, %d]", path, name, low, high);
    }
    *value = (int32_t)number;
    return true;
}

bool json_file_positive(const char *path, const cJSON *object, const char *name, double *value)
{
    const cJSON *item = json_file_field(object, name);
    if (item == NULL) {
        return true;
    }
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || item->valuedouble <= 0) {
        return complain("%s: %s is no number above 0", path, name);
    }
    *value = item->valuedouble;
    return true;
}

bool json_file_flag(const char *path, const cJSON *object, const char *name, bool *value)
{
    const cJSON *item = json_file_field(object, name);
    if (item == NULL) {
        return true;
    }
    if (!cJSON_IsBool(item)) {
        return complain("%s: %s is neither true nor false", path, name);
    }
    *value = cJSON_IsTrue(item);
    return true;
}

bool json_file_says(const cJSON *item, const char *text)
{
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}
