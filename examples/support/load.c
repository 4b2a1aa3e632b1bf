/* SPDX-License-Identifier: MIT
 *
 * load.c: the first bytes decide. */
#include "load.h"

#include "checkpoint.h"
#include "pkvm.h"

#include <stdio.h>
#include <string.h>

/* A path that cannot be read is a checkpoint's, whose loader then says why. */
static bool begins_as_pkvm(const char *path)
{
    char start[sizeof PKVM_MAGIC - 1] = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    const size_t got = fread(start, 1, sizeof start, file);
    fclose(file);
    return got == sizeof start && memcmp(start, PKVM_MAGIC, sizeof start) == 0;
}

bool model_load(const char *path, struct model *model)
{
    return begins_as_pkvm(path) ? pkvm_load(path, model) : checkpoint_load(path, model);
}
