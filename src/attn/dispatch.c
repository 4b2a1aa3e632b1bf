/* SPDX-License-Identifier: MIT
 *
 * dispatch.c: which table of kernels a workspace uses. One chooser; tables are constant. */
#include "attn/cpu.h"
#include "attn/kernels.h"

#if defined(__AVX__)
#error "dispatch.c is baseline code: do not compile it with AVX on"
#endif

static const struct kernels *const tables[] = {
#if defined(__x86_64__) && !defined(PKV_SCALAR_ONLY)
    &kernels_avx512bf16,
    &kernels_avx512,
    &kernels_avx2,
#endif
    &kernels_scalar,
};

const struct kernels *kernels_for(enum pkv_isa isa)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const struct kernels *table = tables[i];
        if ((isa == PKV_ISA_BEST || isa == table->isa) && cpu_has(table->isa)) {
            return table;
        }
    }
    return NULL;
}

const char *pkv_isa_name(enum pkv_isa isa)
{
    switch (isa) {
    case PKV_ISA_BEST: return "best";
    case PKV_ISA_SCALAR: return "scalar";
    case PKV_ISA_AVX2: return "avx2";
    case PKV_ISA_AVX512: return "avx512";
    case PKV_ISA_AVX512BF16: return "avx512bf16";
    }
    return "unknown isa";
}
