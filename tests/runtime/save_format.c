/* SPDX-License-Identifier: MIT
 *
 * The bytes of a saved sequence are those of docs/format.md. */
#include <stdio.h>
#include <string.h>

#include "base/little_endian.h"
#include "runtime/save_case.h"

static struct save_bytes bytes;

/* The bytes of the example in the document; their number. */
static size_t read_example(unsigned char *to, size_t size)
{
    char line[256];
    size_t count = 0;
    bool is_inside = false;
    FILE *file = fopen("docs/format.md", "r");
    if (file == NULL) {
        printf("skipped: docs/format.md is not below this folder ");
        return 0;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned offset = 0;
        int at = 0;
        is_inside |= strcmp(line, "## Example\n") == 0;
        if (!is_inside || sscanf(line, "%4x:%n", &offset, &at) != 1 || at == 0) {
            continue;
        }
        CU_ASSERT_EQUAL(offset, count);
        unsigned value = 0;
        for (int used = 0; sscanf(line + at, " %2x%n", &value, &used) == 1; at += used) {
            CU_ASSERT_FATAL(count < size);
            to[count++] = (unsigned char)value;
        }
    }
    fclose(file);
    return count;
}

static void print_bytes(void)
{
    for (size_t i = 0; i < bytes.count; i++) {
        if (i % 16 == 0) {
            printf("\n%04x:", (unsigned)i);
        }
        printf(" %02x", bytes.at[i]);
    }
    printf("\n");
}

static void append_one(struct runtime_case *c, pkv_seq seq)
{
    const int32_t id = 7;
    const float q = 1, k = 1.5f, v = -2;
    float out = 0;
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = &id};
    const struct pkv_layer_io io = {.size = sizeof io, .q = &q, .k = &k, .v = &v, .out = &out};
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c->cache, &batch, &step, NULL));
    ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, 0, &io));
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
}

static void the_example_of_the_document_is_what_is_written(void)
{
    static unsigned char example[4096];
    struct runtime_case c;
    pkv_seq seq = {0};
    if (!is_little_endian()) {
        printf("skipped: the example is of little-endian machines ");
        return;
    }
    case_init(&c);
    c.config.prefix_cache = true;
    c.groups[0].k_width = 1;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    append_one(&c, seq);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    const size_t count = read_example(example, sizeof example);
    const bool is_same =
        count == 0 || (count == bytes.count && memcmp(example, bytes.at, count) == 0);
    if (!is_same) {
        print_bytes();
    }
    CU_ASSERT(is_same);
    case_close(&c);
    save_bytes_free(&bytes);
}

static const struct test_case cases[] = {
    TEST(the_example_of_the_document_is_what_is_written),
    TEST_END,
};
const struct test_suite suite_runtime_save_format = {"runtime_save_format", cases};
