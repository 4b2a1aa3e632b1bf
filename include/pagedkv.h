/* SPDX-License-Identifier: MIT
 *
 * pagedkv.h: the whole public interface. Each header below can be used without the ones under it:
 * alloc (block ids), pages (where content lies), slots (rows that stay), attn (the operator),
 * runtime (everything managed). */
#ifndef PAGEDKV_H
#define PAGEDKV_H

#include "pagedkv/alloc.h"
#include "pagedkv/attn.h"
#include "pagedkv/base.h"
#include "pagedkv/pages.h"
#include "pagedkv/runtime.h"
#include "pagedkv/slots.h"

#endif
