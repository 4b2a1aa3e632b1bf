/* SPDX-License-Identifier: MIT
 *
 * dispatch.c: chooses among the tables of this build by what the CPU can do. Tables are constant,
 * so workspaces of different levels can live side by side. */
#include "attn/dispatch.h"

#include "attn/cpu.h"
#include "base/build.h"

#if defined(__AVX__)
#error "dispatch.c is baseline code: do not compile it with AVX on"
#endif

/* Those of this build, in the list's order: the best is the last. */
static const struct kernels *const tables[] = {
#define TABLE_OF(isa, value, name, machine) machine(&kernels_##name, )
    PKV_ISA_LIST(TABLE_OF)
#undef TABLE_OF
};

const struct kernels *dispatch_kernels(enum pkv_isa isa)
{
    const unsigned features = cpu_features();
    for (size_t i = sizeof tables / sizeof tables[0]; i-- > 0;) {
        const struct kernels *table = tables[i];
        if ((isa == PKV_ISA_BEST || isa == table->isa) && (table->needs & ~features) == 0) {
            return table;
        }
    }
    return NULL;
}
