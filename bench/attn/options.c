/* SPDX-License-Identifier: MIT
 *
 * options.c: a table of numbers, a table of texts, and the instruction sets by their names. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

enum { DEFAULT_REPEATS = 21, QUICK_REPEATS = 7, MAX_ROWS = 4096, MAX_KEYS = 1 << 20 };

static const char usage[] =
    "attn: time, GB/s and share of the machine's limit of the attention operator\n"
    "\n"
    "  --filter TEXT    only cases whose \"group: name\" contains TEXT\n"
    "  --rows N         every case with N rows\n"
    "  --keys N         every case with N keys a row\n"
    "  --threads N      of the operator and the ceilings, 0 = as this process may run (0)\n"
    "  --repeats N      turns of each case (21)\n"
    "  --isa NAME       an instruction set (the best that this CPU has)\n"
    "  --csv FILE       writes every case as a line of FILE\n"
    "  --quick          the targets' cases alone, 7 turns\n";

void options_print_usage(void)
{
    fputs(usage, stdout);
}

static bool parse_number(const char *name, const char *value, int32_t low, int32_t high,
                         int32_t *place)
{
    char *end = NULL;
    const long number = strtol(value, &end, 10);
    if (end == value || *end != '\0' || number < low || number > high) {
        fprintf(stderr, "%s: '%s' is not a number in [%d, %d]\n", name, value, low, high);
        return false;
    }
    *place = (int32_t)number;
    return true;
}

static bool take_isa(struct options *o, const char *value)
{
    if (pkv_isa_by_name(value, &o->isa) == PKV_OK) {
        return true;
    }
    fprintf(stderr, "--isa: '%s' is none of these:", value);
    for (int isa = PKV_ISA_BEST; isa < PKV_NUM_ISAS; isa++) {
        fprintf(stderr, " %s", pkv_isa_name((enum pkv_isa)isa));
    }
    fputc('\n', stderr);
    return false;
}

static bool take_pair(struct options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        int32_t low, high;
        int32_t *place;
    } numbers[] = {
        {"--rows", 1, MAX_ROWS, &o->rows},
        {"--keys", 1, MAX_KEYS, &o->keys},
        {"--threads", 0, 1024, &o->threads},
        {"--repeats", 1, MAX_SAMPLES, &o->repeats},
    };
    if (value == NULL) {
        fprintf(stderr, "%s is unknown, or lacks its value (--help)\n", name);
        return false;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            return parse_number(name, value, numbers[i].low, numbers[i].high, numbers[i].place);
        }
    }
    if (strcmp(name, "--csv") == 0) {
        o->csv = value;
    } else if (strcmp(name, "--filter") == 0) {
        o->filter = value;
    } else if (strcmp(name, "--isa") == 0) {
        return take_isa(o, value);
    } else {
        fprintf(stderr, "unknown argument %s (--help lists them)\n", name);
        return false;
    }
    return true;
}

bool options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            options->quick = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            options->help = true;
        } else if (take_pair(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
            i++;
        } else {
            return false;
        }
    }
    if (options->repeats == 0) {
        options->repeats = options->quick ? QUICK_REPEATS : DEFAULT_REPEATS;
    }
    return true;
}
