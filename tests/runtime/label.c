/* SPDX-License-Identifier: MIT
 *
 * The label that tells the metrics of several caches apart. Expected texts are written out here or
 * put together from those of caches without a label; the rules of the format are its own:
 * "label_value can be any sequence of UTF-8 characters, but the backslash, double-quote, and line
 * feed characters have to be escaped"; "only one HELP line may exist for any given metric name";
 * "all lines for a given metric must be provided as one single group". */
#include "runtime/label.h"

#include <stdio.h>
#include <string.h>

#include "support/runtime_case.h"

enum { NUM_METRICS = 37 };

struct text {
    char bytes[65536];
    size_t used;
    int32_t num_writes;
    int32_t stop_after;
};

static struct text text, plain;

static bool write_text(void *context, const char *bytes, size_t count)
{
    struct text *to = context;
    if (to->num_writes == to->stop_after || to->used + count >= sizeof to->bytes) {
        return false;
    }
    memcpy(to->bytes + to->used, bytes, count);
    to->used += count;
    to->bytes[to->used] = '\0';
    to->num_writes++;
    return true;
}

static const char *restart(struct text *to)
{
    to->used = 0;
    to->num_writes = 0;
    to->stop_after = INT32_MAX;
    to->bytes[0] = '\0';
    return to->bytes;
}

static void open_with(struct runtime_case *c, const char *label)
{
    case_init(c);
    c->config.metrics_label = label;
    case_open(c);
}

static enum pkv_status size_with(const char *label)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    case_init(&c);
    c.config.metrics_label = label;
    return pkv_cache_size(&c.config, &sizes);
}

/* Every sample line of `from` with `labels` behind its name; all else as it is. */
static void add_labels(const char *from, const char *labels, struct text *to)
{
    restart(to);
    while (*from != '\0') {
        const size_t line = strcspn(from, "\n") + 1;
        const size_t name = *from == '#' ? line : strcspn(from, " ");
        (void)write_text(to, from, name);
        if (*from != '#') {
            (void)write_text(to, labels, strlen(labels));
            (void)write_text(to, from + name, line - name);
        }
        from += line;
    }
}

static void every_sample_has_the_label_escaped(void)
{
    static const struct {
        const char *label, *labels;
    } rows[] = {
        {"llama-8b", "{cache=\"llama-8b\"}"},
        {"a \"b\" \\n c\\", "{cache=\"a \\\"b\\\" \\\\n c\\\\\"}"},
        {"{x=\"y\"} # 模型 ü 🙂", "{cache=\"{x=\\\"y\\\"} # 模型 ü 🙂\"}"},
        {NULL, ""},
    };
    static struct text expected;
    struct runtime_case without;
    open_with(&without, NULL);
    restart(&plain);
    ASSERT_STATUS(PKV_OK, pkv_metrics_write(without.cache, write_text, &plain));
    CU_ASSERT(plain.num_writes == NUM_METRICS && strchr(plain.bytes, '{') == NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct runtime_case c;
        open_with(&c, rows[i].label);
        add_labels(plain.bytes, rows[i].labels, &expected);
        restart(&text);
        ASSERT_STATUS(PKV_OK, pkv_metrics_write(c.cache, write_text, &text));
        ASSERT_CASE(rows[i].labels, strcmp(text.bytes, expected.bytes) == 0);
        CU_ASSERT_EQUAL(text.num_writes, NUM_METRICS);
        restart(&text);
        ASSERT_STATUS(PKV_OK, pkv_metrics_write_caches(&c.cache, 1, write_text, &text));
        ASSERT_CASE(rows[i].labels, strcmp(text.bytes, expected.bytes) == 0);
        case_close(&c);
    }
    case_close(&without);
}

static void what_is_no_label_is_refused(void)
{
    static const struct {
        const char *label, *why;
    } rows[] = {
        {"", "empty"},
        {"a\nb", "byte 1"},
        {"\t", "byte 0"},
        {"ab\x7f", "byte 2"},
        {"a\xc2\x85", "byte 1"},        /* NEXT LINE, a control character */
        {"a\xc2", "byte 1"},            /* cut short */
        {"a\xe6\xa8", "byte 1"},        /* likewise */
        {"\xbf\xbf", "byte 0"},         /* the rest of none */
        {"\xc0\xaf", "byte 0"},         /* '/', too long */
        {"\xe0\x9f\xbf", "byte 0"},     /* likewise, of three */
        {"\xf0\x8f\xbf\xbf", "byte 0"}, /* likewise, of four */
        {"\xed\xa0\x80", "byte 0"},     /* half of a pair */
        {"\xf4\x90\x80\x80", "byte 0"}, /* past U+10FFFF */
        {"\xf8\x90\x80\x80\x80", "byte 0"},
        {"\xff", "byte 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ASSERT_CASE_REFUSED(rows[i].why, PKV_INVALID_ARGUMENT, rows[i].why,
                            size_with(rows[i].label));
    }
    ASSERT_STATUS(PKV_OK, size_with("\xc2\xa0\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80"));
    ASSERT_STATUS(PKV_OK, size_with("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf ~"));
}

static void a_label_of_129_bytes_is_refused(void)
{
    char label[PKV_MAX_LABEL_BYTES + 2];
    struct runtime_case c;
    memset(label, '"', sizeof label);
    label[PKV_MAX_LABEL_BYTES + 1] = '\0';
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "longer than 128", size_with(label));
    memcpy(label + PKV_MAX_LABEL_BYTES - 1, "\xc3\xbc", 2); /* ends one byte too far */
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "longer than 128", size_with(label));
    label[PKV_MAX_LABEL_BYTES - 1] = '"';
    label[PKV_MAX_LABEL_BYTES] = '\0';
    open_with(&c, label);
    restart(&text);
    ASSERT_STATUS(PKV_OK, pkv_metrics_write(c.cache, write_text, &text));
    CU_ASSERT(text.num_writes == NUM_METRICS && text.used == strlen(text.bytes));
    CU_ASSERT_PTR_NOT_NULL(strstr(text.bytes, "\\\"\"} 0\n")); /* not one is cut */
    case_close(&c);
}

/* The caller's bytes may go; describe points to the cache's. Sizes stay exact. */
static void a_label_is_copied(void)
{
    char label[] = "first";
    struct runtime_case c, without;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    struct pkv_cache_sizes less = {.size = sizeof less};
    struct pkv_cache_config config = {.size = sizeof config};
    open_with(&c, label);
    open_with(&without, NULL);
    memset(label, 'x', 5);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &config));
    CU_ASSERT(strcmp(config.metrics_label, "first") == 0 && config.metrics_label != label);
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&without.config, &less));
    CU_ASSERT_EQUAL(c.memory.alloc_bytes - without.memory.alloc_bytes,
                    sizes.metadata_bytes - less.metadata_bytes);
    CU_ASSERT(sizes.metadata_bytes > less.metadata_bytes);
    case_close(&c);
    case_close(&without);
}

/* Under each HELP and TYPE, of which each metric has one, stands a sample of every cache. */
static void samples_of_one_metric_stand_together(void)
{
    static const char *const labels[] = {"a", "b", "c"};
    struct runtime_case c[3];
    pkv_cache *caches[3];
    int32_t num_lines = 0;
    for (int i = 0; i < 3; i++) {
        case_init(&c[i]);
        c[i].config.metrics_label = labels[i];
        c[i].groups[0].num_blocks = 10 + i;
        case_open(&c[i]);
        caches[i] = c[i].cache;
    }
    restart(&text);
    ASSERT_STATUS(PKV_OK, pkv_metrics_write_caches(caches, 3, write_text, &text));
    CU_ASSERT_EQUAL(text.num_writes, 3 * NUM_METRICS);
    CU_ASSERT_PTR_NOT_NULL(strstr(text.bytes, "# TYPE pagedkv_blocks_total_count gauge\n"
                                              "pagedkv_blocks_total_count{cache=\"a\"} 10\n"
                                              "pagedkv_blocks_total_count{cache=\"b\"} 11\n"
                                              "pagedkv_blocks_total_count{cache=\"c\"} 12\n"
                                              "# HELP "));
    for (const char *at = text.bytes; *at != '\0'; num_lines++) {
        static const char *const begins[] = {"# HELP pagedkv_", "# TYPE pagedkv_", "pagedkv_"};
        const int32_t of_metric = num_lines % 5;
        const char *expected = begins[of_metric < 2 ? of_metric : 2];
        CU_ASSERT(strncmp(at, expected, strlen(expected)) == 0);
        at += strcspn(at, "\n") + 1;
    }
    CU_ASSERT_EQUAL(num_lines, 5 * NUM_METRICS);
    restart(&text);
    text.stop_after = 4;
    ASSERT_REFUSED(PKV_IO, "pagedkv_", pkv_metrics_write_caches(caches, 3, write_text, &text));
    CU_ASSERT_EQUAL(text.num_writes, 4);
    for (int i = 0; i < 3; i++) {
        case_close(&c[i]);
    }
}

static void samples_that_could_not_be_told_apart_are_refused(void)
{
    struct runtime_case a, twin, bare;
    open_with(&a, "a");
    open_with(&twin, "a");
    open_with(&bare, NULL);
    pkv_cache *caches[] = {a.cache, twin.cache, bare.cache};
    restart(&text);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "caches[1] has the metrics_label of caches[0]",
                   pkv_metrics_write_caches(caches, 2, write_text, &text));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "caches[1] has no",
                   pkv_metrics_write_caches(caches + 1, 2, write_text, &text));
    caches[1] = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "caches[1] is NULL",
                   pkv_metrics_write_caches(caches, 2, write_text, &text));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_caches",
                   pkv_metrics_write_caches(caches, -1, write_text, &text));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_caches",
                   pkv_metrics_write_caches(caches, 65, write_text, &text));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "caches is NULL",
                   pkv_metrics_write_caches(NULL, 1, write_text, &text));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "write", pkv_metrics_write_caches(caches, 1, NULL, NULL));
    ASSERT_STATUS(PKV_OK, pkv_metrics_write_caches(NULL, 0, write_text, &text));
    CU_ASSERT_EQUAL(text.num_writes, 0);
    case_close(&a);
    case_close(&twin);
    case_close(&bare);
}

static const struct test_case cases[] = {
    TEST(every_sample_has_the_label_escaped),
    TEST(what_is_no_label_is_refused),
    TEST(a_label_of_129_bytes_is_refused),
    TEST(a_label_is_copied),
    TEST(samples_of_one_metric_stand_together),
    TEST(samples_that_could_not_be_told_apart_are_refused),
    TEST_END,
};
const struct test_suite suite_runtime_label = {"runtime_label", cases};
