/* SPDX-License-Identifier: MIT */
#include "safetensors.h"

#include "json_file.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, MAX_HEADER = 8 << 20, MAX_TENSORS = 1 << 16 };

static const double max_exact = 9007199254740992.0; /* 2^53: the whole numbers that JSON's carry */

/* The file while its header is read. */
struct input {
    const char *name;
    const unsigned char *data;
    size_t num_bytes; /* of the data */
};

static bool take_dtype(const struct input *in, const cJSON *entry, enum pkv_dtype *dtype)
{
    static const struct {
        const char *name;
        enum pkv_dtype dtype;
    } dtypes[] = {{"F32", PKV_F32}, {"F16", PKV_F16}, {"BF16", PKV_BF16}};
    const cJSON *item = json_file_field(entry, "dtype");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (json_file_says(item, dtypes[i].name)) {
            *dtype = dtypes[i].dtype;
            return true;
        }
    }
    return complain("%s: %s is not of dtype F32, F16 or BF16", in->name, entry->string);
}

static bool take_number(const cJSON *item, double low, double high, double *value)
{
    *value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return *value >= low && *value <= high && *value == floor(*value);
}

static bool take_shape(const struct input *in, const cJSON *entry, struct weight *w)
{
    const cJSON *shape = json_file_field(entry, "shape");
    const int dimensions = cJSON_IsArray(shape) ? cJSON_GetArraySize(shape) : 0;
    double first = 1, last = 0;
    bool ok = dimensions == 1 || dimensions == 2;
    if (ok) {
        ok = take_number(cJSON_GetArrayItem(shape, dimensions - 1), 1, INT32_MAX, &last);
    }
    if (ok && dimensions == 2) {
        ok = take_number(shape->child, 1, INT32_MAX, &first);
    }
    if (!ok) {
        return complain("%s: %s has no shape of one or two dimensions of 1 to 2^31 - 1", in->name,
                        entry->string);
    }
    w->rows = (int32_t)first;
    w->columns = (int32_t)last;
    return true;
}

static bool take_offsets(const struct input *in, const cJSON *entry, struct safetensor *t)
{
    const cJSON *offsets = json_file_field(entry, "data_offsets");
    const struct weight *w = &t->weight;
    double begin = 0, end = 0;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !take_number(offsets->child, 0, max_exact, &begin) ||
        !take_number(offsets->child->next, 0, max_exact, &end)) {
        return complain("%s: %s has no data_offsets", in->name, entry->string);
    }
    if (begin > end || end > (double)in->num_bytes) {
        return complain("%s: %s lies at [%.0f, %.0f), outside of %zu bytes of data", in->name,
                        entry->string, begin, end, in->num_bytes);
    }
    t->begin = (size_t)begin;
    t->end = (size_t)end;
    /* Below 2^31 * 2^31 * 4 = 2^64. */
    const uint64_t element = pkv_dtype_bytes(w->dtype);
    const uint64_t bytes = (uint64_t)w->rows * (uint64_t)w->columns * element;
    if (t->end - t->begin != bytes) {
        return complain("%s: %s lies in %zu bytes, but its shape makes it %llu", in->name,
                        entry->string, t->end - t->begin, (unsigned long long)bytes);
    }
    t->weight.data = in->data + t->begin;
    if ((size_t)(in->data + t->begin) % element != 0) {
        return complain("%s: %s lies at offset %zu, where its elements are not aligned", in->name,
                        entry->string, t->begin);
    }
    return true;
}

static bool take_entry(const struct input *in, const cJSON *entry, struct safetensor *t)
{
    *t = (struct safetensor){.name = entry->string};
    return take_dtype(in, entry, &t->weight.dtype) && take_shape(in, entry, &t->weight) &&
           take_offsets(in, entry, t);
}

static int by_begin(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int by_name(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* One behind the other, from the first byte to the last, each name once. Sorts by name. */
static bool check_places(const struct input *in, struct safetensors *tensors)
{
    struct safetensor *list = tensors->list;
    const size_t count = (size_t)tensors->count;
    size_t end = 0;
    qsort(list, count, sizeof *list, by_begin);
    for (size_t i = 0; i < count; i++) {
        if (list[i].begin != end) {
            return complain("%s: %s begins at %zu, but what is before it ends at %zu", in->name,
                            list[i].name, list[i].begin, end);
        }
        end = list[i].end;
    }
    if (end != in->num_bytes) {
        return complain("%s: tensors end at %zu of %zu bytes of data", in->name, end,
                        in->num_bytes);
    }
    qsort(list, count, sizeof *list, by_name);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(list[i - 1].name, list[i].name) == 0) {
            return complain("%s: %s is there twice", in->name, list[i].name);
        }
    }
    return true;
}

static bool take_entries(const struct input *in, struct safetensors *tensors)
{
    const int entries = cJSON_GetArraySize(tensors->header);
    if (entries > MAX_TENSORS) {
        return complain("%s: %d tensors, above %d", in->name, entries, MAX_TENSORS);
    }
    tensors->list = calloc((size_t)entries + 1, sizeof *tensors->list);
    if (tensors->list == NULL) {
        return complain("%s: out of memory for %d tensors", in->name, entries);
    }
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, tensors->header)
    {
        if (strcmp(entry->string, "__metadata__") == 0) {
            continue;
        }
        if (!take_entry(in, entry, &tensors->list[tensors->count])) {
            return false;
        }
        tensors->count++;
    }
    return check_places(in, tensors);
}

static bool is_little_endian(void)
{
    static const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

static bool parse(const char *name, const unsigned char *bytes, size_t num_bytes,
                  struct safetensors *tensors)
{
    if (!is_little_endian()) {
        return complain("%s: little-endian weights, which this machine cannot use", name);
    }
    if (num_bytes < LENGTH_BYTES) {
        return complain("%s: %zu bytes are no safetensors file", name, num_bytes);
    }
    const uint64_t length = load_u32(bytes) | (uint64_t)load_u32(bytes + 4) << 32;
    if (length > num_bytes - LENGTH_BYTES || length > MAX_HEADER) {
        return complain("%s: a header of %llu bytes, above %d or behind the end of the file", name,
                        (unsigned long long)length, MAX_HEADER);
    }
    const size_t header = (size_t)length;
    const struct input in = {name, bytes + LENGTH_BYTES + header,
                             num_bytes - LENGTH_BYTES - header};
    tensors->header = json_file_parse(name, (const char *)bytes + LENGTH_BYTES, header);
    return tensors->header != NULL && take_entries(&in, tensors);
}

bool safetensors_parse(const char *name, const unsigned char *bytes, size_t num_bytes,
                       struct safetensors *tensors)
{
    *tensors = (struct safetensors){NULL, NULL, 0};
    if (parse(name, bytes, num_bytes, tensors)) {
        return true;
    }
    safetensors_free(tensors);
    return false;
}

struct safetensor *safetensors_find(const struct safetensors *tensors, const char *name)
{
    const struct safetensor wanted = {.name = name};
    return bsearch(&wanted, tensors->list, (size_t)tensors->count, sizeof wanted, by_name);
}

void safetensors_free(struct safetensors *tensors)
{
    cJSON_Delete(tensors->header);
    free(tensors->list);
    *tensors = (struct safetensors){NULL, NULL, 0};
}
