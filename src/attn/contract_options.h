/* SPDX-License-Identifier: MIT
 *
 * contract_options.h: the optional parameters of the overloaded form. */
#ifndef PKV_ATTN_CONTRACT_OPTIONS_H
#define PKV_ATTN_CONTRACT_OPTIONS_H

#include "pagedkv/contract.h"

/* Rope, norms, scales, sinks, softcap, window and mask of `in` into the arguments, whose head
 * counts and widths are there. PKV_INVALID_ARGUMENT for a tensor of the wrong type or rank, and for
 * what the narrower type cannot hold; everything else pkv_gqa checks. */
enum pkv_status contract_take_options(const struct pkv_contract_args *in, struct pkv_gqa_args *out);

#endif
