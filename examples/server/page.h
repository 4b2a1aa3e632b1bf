/* SPDX-License-Identifier: MIT
 *
 * page.h: the live page, page.html, as bytes of the program. */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include <stddef.h>

extern const char page_html[];
size_t page_html_bytes(void);

#endif
