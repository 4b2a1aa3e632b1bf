/* SPDX-License-Identifier: MIT
 *
 * isa.c: the names of PKV_ISA_LIST. Whether a build or a CPU has a level is attn's to say. */
#include <string.h>

#include "base/error.h"

const char *pkv_isa_name(enum pkv_isa isa)
{
    switch (isa) {
    case PKV_ISA_BEST: return "best";
#define NAME_CASE(isa, value, name, machine)                                                       \
    case isa: return #name;
        PKV_ISA_LIST(NAME_CASE)
#undef NAME_CASE
    }
    return "unknown isa";
}

enum pkv_status pkv_isa_by_name(const char *name, enum pkv_isa *isa)
{
    if (name == NULL || isa == NULL) {
        return INVALID("%s is NULL", name == NULL ? "name" : "isa");
    }
    for (int value = PKV_ISA_BEST; value < PKV_NUM_ISAS; value++) {
        if (strcmp(name, pkv_isa_name((enum pkv_isa)value)) == 0) {
            *isa = (enum pkv_isa)value;
            return PKV_OK;
        }
    }
    return refuse(PKV_NOT_FOUND, "name = \"%.64s\", no instruction set", name);
}
