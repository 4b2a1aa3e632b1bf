/* SPDX-License-Identifier: MIT
 *
 * embedded.c: the file's bytes between two symbols. The assembler takes them as they are, by a path
 * from the folder that the compiler runs in; the Makefile knows that this object depends on it. */
#include "embedded.h"

#include "pkvm.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl embedded_model_begin\n"
        "embedded_model_begin:\n"
        ".incbin \"examples/train/stories.pkvm\"\n"
        ".globl embedded_model_end\n"
        "embedded_model_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const unsigned char embedded_model_begin[];
extern const unsigned char embedded_model_end[];

bool embedded_load(struct model *model)
{
    const size_t num_bytes = (size_t)(embedded_model_end - embedded_model_begin);
    return pkvm_parse("the embedded model", embedded_model_begin, num_bytes, model);
}
