/* SPDX-License-Identifier: MIT
 *
 * check_tables.h: where the rows of a raw call lie: slots of a continuous cache, block tables of a
 * paged one. */
#ifndef PKV_ATTN_CHECK_TABLES_H
#define PKV_ATTN_CHECK_TABLES_H

#include "attn/call.h"
#include "attn/gqa_row.h"

/* Slots in range, each named once; fills rows' block. PKV_INVALID_ARGUMENT, PKV_NO_MEMORY for the
 * stamps. O(batch). */
enum pkv_status check_slots(pkv_workspace *workspace, const struct call *call,
                            struct gqa_row *rows);

/* Entries in range, no block twice in a row, no needed entry -1, no written block in two rows;
 * fills rows' table. rows' lengths are there. The same statuses. O(table entries). */
enum pkv_status check_tables(pkv_workspace *workspace, const struct call *call,
                             struct gqa_row *rows);

#endif
