# SPDX-License-Identifier: MIT
"""Which blocks sparse attention should read: bounds of blocks, and ranks by them."""
from dataclasses import replace
from typing import Any, List, Optional

import numpy as np

from . import _abi, _arrays as arrays
from ._library import lib, new
from ._operator import (FORMS, Constants, GqaCall, Workspace, set_constants, set_view,
                        take_constants, take_rows, workspace_or_own)


def _of_keys(constants):
    """Without the scale of values, whose width is not known here."""
    return replace(take_constants(constants), v_scale=None)


def _take_bounds(call, bounds, shape, writable=False):
    array = arrays.take_packed("bounds", bounds, len(shape), ("float32",), writable)
    arrays.expect_shape(array, shape)
    call.keep.append(array)
    return array.pointer


def block_bounds(key: Any, blocks: Any, bounds: Any, *, num_keys: Optional[int] = None,
                 constants: Optional[Constants] = None,
                 workspace: Optional[Workspace] = None) -> None:
    """Writes the least and the greatest value of each channel of blocks' keys (pkv_block_bounds).

    key                      [blocks][kv_heads][cells][width], of any dtype
    blocks                   those whose bounds are written
    bounds                   float32 [blocks][kv_heads][2][width], of all blocks
    num_keys                 cells of each block that are read; None = all
    constants                those of the attention, for k_scale

    >>> import numpy as np
    >>> pages = np.arange(12, dtype=np.float32).reshape(2, 1, 3, 2)
    >>> bounds = np.zeros((2, 1, 2, 2), np.float32)
    >>> block_bounds(pages, [1], bounds)
    >>> bounds[1, 0].tolist()
    [[6.0, 7.0], [10.0, 11.0]]
    """
    call = GqaCall()
    view = call.args.past
    k, _ = set_view(view, "key", key, None, True, False, call.keep)
    listed = arrays.integers("blocks", blocks, np.int32).reshape(-1)
    pointer = _take_bounds(call, bounds, (k.shape[0], k.shape[1], 2, k.shape[3]), True)
    scales = call.args.constants
    set_constants(scales, _of_keys(constants), call.keep, k.shape[1],
                  (k.shape[3], k.shape[3]))
    cells = k.shape[2] if num_keys is None else arrays.count("num_keys", num_keys, 1)
    workspace_or_own(workspace).call(lib.pkv_block_bounds, view, scales.k_scale,
                                     scales.k_scale_count, listed.ctypes.data, listed.size, cells,
                                     pointer)


def _lists(selected, cu, per_row):
    lists = [selected[begin:end].copy() for begin, end in zip(cu[:-1], cu[1:])]
    if per_row is None:
        return lists
    return [lists[i:i + per_row] for i in range(0, len(lists), per_row)]


def _take_rank(call, bounds, slot_blocks, max_selected, by_head, num_candidates):
    """struct pkv_rank_args, and the arrays that it fills."""
    args, rank = call.args, new(_abi.pkv_rank_args)
    shape = (args.past.num_blocks, args.kv_heads, 2, args.k_width)
    if args.form != _abi.PKV_CACHE_PAGED:
        shape = shape[:1] + (slot_blocks,) + shape[1:]
    rank.bounds = _take_bounds(call, bounds, shape)
    if num_candidates is not None:
        counts = arrays.integers("num_candidates", num_candidates, np.int32, (args.batch,))
        call.keep.append(counts)
        rank.num_candidates = counts.ctypes.data
    rank.max_selected = min(arrays.count("max_selected", max_selected, 1), max(slot_blocks, 1))
    args.num_selected_lists = args.batch * (args.kv_heads if by_head else 1)
    selected = np.zeros(max(args.num_selected_lists * rank.max_selected, 1), np.int32)
    cu = np.zeros(args.num_selected_lists + 1, np.int32)
    rank.selected, rank.cu_selected = selected.ctypes.data, cu.ctypes.data
    return rank, selected, cu


def block_rank(query: Any, past_key: Any, bounds: Any, *, max_selected: int, form: str = "paged",
               by_head: bool = False, kv_lens: Any = None, block_table: Any = None,
               slot_ids: Any = None, cu_seqlens_q: Any = None, selection_size: int = 0,
               selected_newest: int = 0, num_candidates: Any = None, position_ids: Any = None,
               constants: Optional[Constants] = None,
               workspace: Optional[Workspace] = None) -> List[Any]:
    """The best blocks of each row by their bounds, as attention takes them (pkv_block_rank).

    query, form, past_key, kv_lens, block_table, slot_ids, cu_seqlens_q, position_ids, constants,
    selection_size and selected_newest are those of the attention; keys are not read.

    bounds                   float32 [blocks][kv_heads][2][width], by block_bounds; in the forms
                             "continuous" and "dense" [slots][blocks of a slot][kv_heads][2][width]
    max_selected             blocks of a list
    by_head                  a list for each KV head
    num_candidates           int32 [batch], the first so many blocks of a row can be chosen; None =
                             those that are full and not shown by selected_newest

    >>> import numpy as np
    >>> pages = np.zeros((3, 1, 2, 1), np.float32)          # 3 blocks of 2 tokens
    >>> bounds = np.float32([1, 4, 2]).repeat(2).reshape(3, 1, 2, 1)
    >>> [row.tolist() for row in block_rank(np.ones((1, 1, 1), np.float32), pages, bounds,
    ...     max_selected=2, kv_lens=[7], block_table=[[0, 2, 1, -1]])]
    [[1, 2]]
    """
    call = GqaCall()
    args = call.args
    args.form = arrays.choice("form", form, FORMS)
    args.v_in_k = True
    q = arrays.take("query", query, 3)
    args.num_tokens, args.num_heads, args.k_width = q.shape
    args.dtype = q.code
    call.tokens("q", q)
    k, _ = set_view(args.past, "past", past_key, None, True, False, call.keep)
    args.kv_heads = k.shape[1]
    take_rows(call, form, cu_seqlens_q, None, block_table, kv_lens, slot_ids)
    call.integers("position_ids", position_ids, np.int64, (args.num_tokens,))
    set_constants(args.constants, _of_keys(constants), call.keep, args.kv_heads,
                  (q.shape[2], q.shape[2]))
    args.selection_size = arrays.count("selection_size", selection_size, 0)
    args.selected_newest = arrays.count("selected_newest", selected_newest, 0, 2**62)
    size = args.selection_size or max(k.shape[2], 1)
    slot_blocks = args.max_blocks if form == "paged" else -(-k.shape[2] // size)
    by_head = arrays.flag("by_head", by_head)
    rank, selected, cu = _take_rank(call, bounds, slot_blocks, max_selected, by_head,
                                    num_candidates)
    workspace_or_own(workspace).call(lib.pkv_block_rank, args, rank)
    return _lists(selected, cu, args.kv_heads if by_head else None)
