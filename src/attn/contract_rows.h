/* SPDX-License-Identifier: MIT
 *
 * contract_rows.h: the rows of the overloaded form: their lengths, slots and kept prefixes. */
#ifndef PKV_ATTN_CONTRACT_ROWS_H
#define PKV_ATTN_CONTRACT_ROWS_H

#include "pagedkv/contract.h"

/* Fills the parameters of rows in `out`, whose form, batch, counts and caches are there. Integers
 * that the parameter list does not hold in pkv_gqa's form are derived into the workspace and live
 * until its next call. PKV_INVALID_ARGUMENT, PKV_NO_MEMORY. O(batch). */
enum pkv_status contract_take_rows(pkv_workspace *workspace, const struct pkv_contract_args *in,
                                   struct pkv_gqa_args *out);

#endif
