/* SPDX-License-Identifier: MIT
 *
 * page.c: the assembler puts the file into the program; paths are those of the repository's root,
 * where make runs. */
#include "page.h"

extern const char page_html_end[];

__asm__(".section .rodata\n"
        ".global page_html\n"
        ".global page_html_end\n"
        "page_html:\n"
        ".incbin \"examples/server/page.html\"\n"
        "page_html_end:\n"
        ".byte 0\n"
        ".previous\n");

size_t page_html_bytes(void)
{
    return (size_t)(page_html_end - page_html);
}
