# SPDX-License-Identifier: MIT
"""The attention operator over memory of the caller's: workspaces, constants, and one call."""
import threading
import weakref
from ctypes import Structure, byref, c_void_p
from dataclasses import dataclass
from typing import Any, Optional, Sequence

import numpy as np

from . import _abi, _arrays as arrays
from ._library import check, lib, new

#: {"best": 0, "scalar": 1, ..}, as the headers list them.
ISAS = {name[len("PKV_ISA_"):].lower(): value for name, value in vars(_abi).items()
        if name.startswith("PKV_ISA_")}
ROTARY_MODES = {"half_split": _abi.PKV_ROTARY_HALF_SPLIT,
                "interleaved": _abi.PKV_ROTARY_INTERLEAVED}
NORM_ORDERS = {"after_rope": _abi.PKV_NORM_AFTER_ROPE, "before_rope": _abi.PKV_NORM_BEFORE_ROPE}
FORMS = {"none": _abi.PKV_CACHE_NONE, "dense": _abi.PKV_CACHE_DENSE,
         "dense_copy": _abi.PKV_CACHE_DENSE_COPY, "continuous": _abi.PKV_CACHE_CONTINUOUS,
         "paged": _abi.PKV_CACHE_PAGED}
MAX_THREADS = 1024


class Workspace:
    """Scratch memory, kernels and threads of attention calls (pkv_workspace).

    num_threads is in [0, 1024], 0 = what this process may use; isa names an instruction set. One
    call at a time uses a workspace: others wait. Calls without one use a workspace of their thread.

    >>> with Workspace(num_threads=1, isa="scalar") as workspace:
    ...     workspace.isa, workspace.num_threads
    ('scalar', 1)
    """

    def __init__(self, num_threads: int = 0, isa: str = "best"):
        num_threads = arrays.count("num_threads", num_threads, 0, MAX_THREADS)
        pointer = c_void_p()
        check(lib.pkv_workspace_create(num_threads, arrays.choice("isa", isa, ISAS), None,
                                       byref(pointer)))
        self._pointer = pointer
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, lib.pkv_workspace_destroy, pointer)

    @property
    def isa(self) -> str:
        """The instruction set in use, never "best"."""
        with self._lock:
            return lib.pkv_isa_name(lib.pkv_workspace_isa(self._live())).decode()

    @property
    def num_threads(self) -> int:
        with self._lock:
            return lib.pkv_workspace_num_threads(self._live())

    def _live(self):
        if not self._end.alive:
            raise ValueError("the workspace was destroyed")
        return self._pointer

    def call(self, function, *args):
        """Runs a C function of this workspace; structs are passed by reference."""
        passed = [byref(arg) if isinstance(arg, Structure) else arg for arg in args]
        with self._lock:
            check(function(self._live(), *passed))

    def destroy(self) -> None:
        """Frees it; a second time does nothing."""
        with self._lock:
            self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()


_of_thread = threading.local()


def workspace_or_own(workspace):
    """The given workspace, or the one of the calling thread."""
    if workspace is None:
        if not hasattr(_of_thread, "workspace"):
            _of_thread.workspace = Workspace()
        return _of_thread.workspace
    if not isinstance(workspace, Workspace):
        raise TypeError(f"workspace is a {type(workspace).__name__}, no Workspace")
    return workspace


@dataclass(frozen=True)
class Constants:
    """What a model fixes for each layer (struct pkv_attn_constants); None and 0 = absent.

    q_scale                   factor of the dot product; None = 1 / sqrt(width)
    softcap                   scores become softcap * tanh(score / softcap)
    smooth_softmax            a sink of 0 for every head; excludes head_sink
    head_sink                 float32 [num_heads]
    rope_cos, rope_sin        [positions][pairs] of one float dtype
    rotary_offset             first channel that turns
    rotary_mode               "half_split" (NeoX, Llama) or "interleaved" (GPT-J)
    q_norm_gain, k_norm_gain  norm weights [width]; qk_norm_eps goes with them
    norm_order                "after_rope" or "before_rope"
    k_scale, v_scale          of int8 and e4m3 caches: a number, or float32 [kv_heads][width]
    """

    q_scale: Optional[float] = None
    softcap: float = 0.0
    smooth_softmax: bool = False
    head_sink: Any = None
    rope_cos: Any = None
    rope_sin: Any = None
    rotary_offset: int = 0
    rotary_mode: str = "half_split"
    q_norm_gain: Any = None
    k_norm_gain: Any = None
    qk_norm_eps: float = 0.0
    norm_order: str = "after_rope"
    k_scale: Any = None
    v_scale: Any = None


def take_constants(value):
    if value is None:
        return Constants()
    if not isinstance(value, Constants):
        raise TypeError(f"constants is a {type(value).__name__}, no Constants")
    return value


def _f32_values(name, value, ranks):
    """A number, or a packed f32 array of one of the ranks."""
    if isinstance(value, (int, float)):
        value = np.array(arrays.real(name, value), dtype=np.float32)
    return arrays.take_packed(name, value, ranks, ("float32",))


def _set_rope(out, c, keep):
    if (c.rope_cos is None) != (c.rope_sin is None):
        raise ValueError("rope_cos and rope_sin go together")
    if c.rope_cos is None:
        return
    cos = arrays.take_packed("rope_cos", c.rope_cos, 2)
    sin = arrays.take_packed("rope_sin", c.rope_sin, 2)
    arrays.expect_shape(sin, cos.shape)
    arrays.expect_dtype(sin, cos)
    keep += [cos, sin]
    out.rope_cos, out.rope_sin, out.rope_dtype = cos.pointer, sin.pointer, cos.code
    out.rope_positions, out.rope_width = cos.shape


def _set_norms(out, c, keep):
    for name in ("q_norm_gain", "k_norm_gain"):
        value = getattr(c, name)
        if value is not None:
            weight = arrays.take_packed(name, value, 1)
            keep.append(weight)
            setattr(out, name, weight.pointer)
            setattr(out, f"{name}_dtype", weight.code)
            setattr(out, f"{name}_count", weight.shape[0])
    out.qk_norm_eps = arrays.real("qk_norm_eps", c.qk_norm_eps)
    out.norm_order = arrays.choice("norm_order", c.norm_order, NORM_ORDERS)


def _set_scales(out, c, keep, kv_heads, widths):
    for name, width in zip(("k_scale", "v_scale"), widths):
        value = getattr(c, name)
        if value is not None:
            scale = _f32_values(name, value, (0, 1, 2))
            if scale.shape not in ((), (1,), (kv_heads, width)):
                raise ValueError(f"{name} has shape {scale.shape}, neither one element nor "
                                 f"{(kv_heads, width)}")
            keep.append(scale)
            setattr(out, name, scale.pointer)
            setattr(out, f"{name}_count", scale.shape[0] * width if len(scale.shape) == 2 else 1)


def set_constants(out, c, keep, kv_heads, widths):
    """Fills struct pkv_attn_constants; `keep` gets what its pointers need."""
    if c.q_scale is not None:
        scale = _f32_values("q_scale", c.q_scale, (0, 1))
        if scale.shape not in ((), (1,)):
            raise ValueError(f"q_scale has shape {scale.shape}, not one element")
        keep.append(scale)
        out.q_scale = scale.pointer
    out.softcap = arrays.real("softcap", c.softcap)
    out.smooth_softmax = arrays.flag("smooth_softmax", c.smooth_softmax)
    if c.head_sink is not None:
        sink = arrays.take_packed("head_sink", c.head_sink, 1, ("float32",))
        keep.append(sink)
        out.head_sink, out.head_sink_count = sink.pointer, sink.shape[0]
    out.rotary_offset = arrays.count("rotary_offset", c.rotary_offset)
    out.rotary_mode = arrays.choice("rotary_mode", c.rotary_mode, ROTARY_MODES)
    _set_rope(out, c, keep)
    _set_norms(out, c, keep)
    _set_scales(out, c, keep, kv_heads, widths)


# ---- the call ----------------------------------------------------------------------------------

def set_view(view, name, key, value, v_in_k, writable, keep):
    """Fills struct pkv_kv_view from arrays [blocks][kv_heads][cells][width]; gives both back."""
    k = arrays.take(f"{name}_key", key, 4, arrays.CACHE_TYPES, writable)
    view.num_blocks, view.kv_heads, view.block_size, view.k_width = k.shape
    view.k, view.k_dtype = k.pointer, k.code
    view.k_block_stride, view.k_head_stride, view.k_cell_stride = arrays.cache_strides(k)
    keep.append(k)
    if v_in_k:
        if value is not None:
            raise ValueError(f"{name}_value is given beside v_in_k")
        return k, None
    v = arrays.take(f"{name}_value", value, 4, arrays.CACHE_TYPES, writable)
    arrays.expect_shape(v, k.shape[:3] + v.shape[3:])
    view.v, view.v_dtype, view.v_width = v.pointer, v.code, v.shape[3]
    view.v_block_stride, view.v_head_stride, view.v_cell_stride = arrays.cache_strides(v)
    keep.append(v)
    return k, v


class GqaCall:
    """struct pkv_gqa_args while it is filled, and what its pointers need."""

    def __init__(self):
        self.args = new(_abi.pkv_gqa_args)
        self.keep = []

    def tokens(self, letter, array):
        setattr(self.args, letter, array.pointer)
        setattr(self.args, f"{letter}_stride", arrays.token_stride(array))
        self.keep.append(array)

    def integers(self, field, x, dtype, shape=None):
        if x is None:
            return None
        found = arrays.integers(field, x, dtype, shape)
        self.keep.append(found)
        setattr(self.args, field, found.ctypes.data)
        return found


def _take_new(call, key, value, q, v_in_k):
    """New keys and values [tokens][kv_heads][width]; None, None for a call that only reads."""
    if key is None:
        if value is not None:
            raise ValueError("value is given without key")
        return None, None
    k = arrays.take("key", key, 3)
    arrays.expect_dtype(k, q)
    arrays.expect_shape(k, (k.shape[0], k.shape[1], q.shape[2]))
    call.tokens("k", k)
    if v_in_k:
        if value is not None:
            raise ValueError("value is given beside v_in_k")
        return k, None
    v = arrays.take("value", value, 3)
    arrays.expect_dtype(v, q)
    arrays.expect_shape(v, k.shape[:2] + v.shape[2:])
    call.tokens("v", v)
    return k, v


def _batch_of(call, form, cu_q, table):
    """The rows of the call: those of cu_seqlens_q or of the table, else one for each token."""
    if table is not None and table.ndim != 2:
        raise ValueError(f"block_table has shape {table.shape}; it needs 2 dimensions")
    if cu_q is not None and (cu_q.ndim != 1 or cu_q.size < 1):
        raise ValueError(f"cu_seqlens_q has shape {cu_q.shape}, not (batch + 1,)")
    batch = call.args.num_tokens
    if table is not None:
        batch, call.args.max_blocks = table.shape
    if cu_q is not None:
        if table is not None and cu_q.size - 1 != batch:
            raise ValueError(f"cu_seqlens_q has {cu_q.size - 1} rows, block_table has {batch}")
        batch = cu_q.size - 1
    elif form == "dense_copy" and call.args.past.num_blocks:
        batch = call.args.past.num_blocks
    return batch


def take_rows(call, form, cu_seqlens_q, cu_seqlens_k, block_table, kv_lens, slot_ids):
    """Rows and lengths; gives cu_seqlens_k back."""
    cu_q = call.integers("cu_seqlens_q", cu_seqlens_q, np.int32)
    table = call.integers("block_table", block_table, np.int32)
    batch = call.args.batch = _batch_of(call, form, cu_q, table)
    call.integers("kv_lens", kv_lens, np.int32, (batch,))
    call.integers("slot_ids", slot_ids, np.int32, (batch,))
    return call.integers("cu_seqlens_k", cu_seqlens_k, np.int32, (batch + 1,))


def _check_token_rows(form, k, cu_k, num_tokens):
    """C trusts that k and v have as many rows as the lengths say."""
    if k is None:
        return
    wanted = int(cu_k[-1]) if cu_k is not None and form == "none" else num_tokens
    if k.shape[0] != wanted:
        raise ValueError(f"key has {k.shape[0]} tokens, the rows of the call have {wanted}")


def _take_visibility(call, sliding_window, kept_prefix, causal, position_ids):
    args = call.args
    args.sliding_window = arrays.count("sliding_window", sliding_window, 0, 2**62)
    args.not_causal = not arrays.flag("causal", causal)
    if kept_prefix is not None:
        kept = arrays.integers("kept_prefix", kept_prefix, np.int64)
        if kept.shape not in ((), (1,), (args.batch,)):
            raise ValueError(f"kept_prefix has shape {kept.shape}, neither () nor (batch,)")
        call.integers("kept_prefix", kept, np.int64)
        args.kept_prefix_count = kept.size
    call.integers("position_ids", position_ids, np.int64, (args.num_tokens,))


def _take_mask(call, attn_mask):
    if attn_mask is None:
        return
    args = call.args
    mask = arrays.take_packed("attn_mask", attn_mask, 4, arrays.FLOATS + ("bool",))
    call.keep.append(mask)
    args.attn_mask = mask.pointer
    args.mask_dtype = _abi.PKV_INT8 if mask.dtype == "bool" else mask.code
    args.mask_batch, args.mask_heads, args.mask_queries, args.mask_keys = mask.shape


def _take_ranges(call, ranges):
    """bidirectional: for each row a list of (begin, end)."""
    if ranges is None:
        return
    rows = [arrays.integers(f"bidirectional[{i}]", row, np.int32).reshape(-1, 2)
            for i, row in enumerate(ranges)]
    if len(rows) != call.args.batch:
        raise ValueError(f"bidirectional has {len(rows)} rows, the batch has {call.args.batch}")
    cu = np.cumsum([0] + [len(row) for row in rows]).astype(np.int32)
    flat = np.ascontiguousarray(np.concatenate(rows + [np.zeros((0, 2), np.int32)]))
    call.keep += [cu, flat]
    call.args.cu_bidirectional = cu.ctypes.data
    call.args.bidirectional = flat.ctypes.data if flat.size else None


def _take_selected(call, selected, selection_size, selected_newest):
    """selected: for each row a list of blocks, or for each row and KV head."""
    if selected is None:
        return
    args = call.args
    rows = [list(row) for row in selected]
    if len(rows) != args.batch:
        raise ValueError(f"selected has {len(rows)} rows, the batch has {args.batch}")
    by_head = any(np.ndim(item) == 1 for row in rows for item in row)
    lists = [item for row in rows for item in row] if by_head else rows
    if by_head and any(len(row) != args.kv_heads for row in rows):
        raise ValueError(f"selected has a row without a list for each of {args.kv_heads} KV heads")
    lists = [arrays.integers(f"selected[{i}]", item, np.int32).reshape(-1)
             for i, item in enumerate(lists)]
    cu = np.cumsum([0] + [len(item) for item in lists]).astype(np.int32)
    flat = np.ascontiguousarray(np.concatenate(lists + [np.zeros(0, np.int32)]))
    call.keep += [cu, flat]
    args.cu_selected = cu.ctypes.data
    args.selected = flat.ctypes.data if flat.size else None
    args.num_selected_lists = len(lists)
    args.selection_size = arrays.count("selection_size", selection_size, 0, 2**31 - 1)
    args.selected_newest = arrays.count("selected_newest", selected_newest, 0, 2**62)


def _take_parents(call, parents):
    """parents: for each token the number of its parent in its row, or -1."""
    call.integers("parents", parents, np.int32, (call.args.num_tokens,))


def _take_outputs(call, q, v_width, out, return_lse):
    shape = q.shape[:2] + (v_width,)
    result = arrays.empty(q, shape) if out is None else out
    o = arrays.take("out", result, 3, writable=True)
    arrays.expect_shape(o, shape)
    arrays.expect_dtype(o, q)
    call.tokens("out", o)
    lse = None
    if arrays.flag("return_lse", return_lse):
        lse = arrays.empty_f32(q, shape[:2])
        array = arrays.take_packed("lse", lse, 2, ("float32",), writable=True)
        call.keep.append(array)
        call.args.lse = array.pointer
    return result, lse


def _value_width(k_width, v, past_v, v_width, v_in_k):
    if v_in_k:
        return arrays.count("v_width", k_width if v_width is None else v_width, 1, k_width)
    if v_width is not None:
        raise ValueError("v_width is given without v_in_k: it follows from the values")
    return v.shape[2] if v is not None else past_v.shape[3] if past_v is not None else k_width


def _take_caches(call, form, past, present, writes):
    """The views of past and present; gives the first one's arrays back."""
    found = (None, None)
    for name, (key, value), writable in (("past", past, writes and form != "dense_copy"),
                                         ("present", present, writes)):
        if key is None and value is not None:
            raise ValueError(f"{name}_value is given without {name}_key")
        if key is not None:
            pair = set_view(getattr(call.args, name), name, key, value, call.args.v_in_k, writable,
                            call.keep)
            found = found if found[0] else pair
    return found


def attention(query: Any, key: Any = None, value: Any = None, *, form: str = "none",
              past_key: Any = None, past_value: Any = None, present_key: Any = None,
              present_value: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
              kv_lens: Any = None, block_table: Any = None, slot_ids: Any = None,
              sliding_window: int = 0, kept_prefix: Any = None, causal: bool = True,
              position_ids: Any = None, attn_mask: Any = None,
              bidirectional: Optional[Sequence[Any]] = None,
              selected: Optional[Sequence[Any]] = None, selection_size: int = 0,
              selected_newest: int = 0, parents: Any = None, v_in_k: bool = False,
              v_width: Optional[int] = None, constants: Optional[Constants] = None,
              out: Any = None, return_lse: bool = False,
              workspace: Optional[Workspace] = None) -> Any:
    """Appends new keys and values to a cache of the caller's and attends (pkv_gqa).

    query                    [tokens][num_heads][width], float32, float16, bfloat16 (numpy: uint16)
    key, value               [tokens][kv_heads][width]; None: nothing is appended
    form                     "none", "dense", "dense_copy", "continuous" or "paged"
    past_key, past_value     [blocks, slots or rows][kv_heads][cells][width], written in place; of
                             any dtype, int8 and e4m3 (numpy: uint8) with scales
    present_key, _value      form "dense_copy": the extended cache
    cu_seqlens_q             int32 [batch + 1], the rows' tokens; None = one token a row
    cu_seqlens_k             form "none": the rows' keys; None = cu_seqlens_q
    kv_lens                  int32 [batch], keys of each row after the append
    block_table              int32 [batch][max_blocks], -1 = none; form "paged"
    slot_ids                 int32 [batch]; form "continuous"
    sliding_window, kept_prefix, causal, position_ids, attn_mask: as in pagedkv/attn.h
    bidirectional            a list of (begin, end) for each row
    selected                 a list of selected blocks for each row, or for each row and KV head
    selection_size           keys of such a block; 0 = a block of the pages, form "paged"
    selected_newest          keys that are seen without being selected
    parents                  int32 [tokens], the number of each token's parent among the new tokens
                             of its row, -1 = a root: a tree of drafts; None = chains
    v_in_k, v_width          values are the first v_width channels of keys
    constants                Constants
    out                      [tokens][num_heads][value width] to write to

    Returns out, of the query's kind and dtype, or (out, lse) with return_lse, where lse is float32
    [tokens][num_heads]. Strides are passed on as they are: key pages of the order
    [blocks][cells][kv_heads][width] are given as pages.transpose(0, 2, 1, 3).

    >>> import numpy as np
    >>> pages = np.zeros((2, 4, 1, 16, 2), np.float32)      # K and V: 4 blocks of 16 tokens
    >>> token = np.ones((1, 1, 2), np.float32)
    >>> attention(token, token, token, form="paged", past_key=pages[0], past_value=pages[1],
    ...           block_table=[[2]], kv_lens=[1])
    array([[[1., 1.]]], dtype=float32)
    >>> float(pages[0, 2, 0, 0, 0])
    1.0
    """
    call = GqaCall()
    args = call.args
    args.form = arrays.choice("form", form, FORMS)
    args.v_in_k = arrays.flag("v_in_k", v_in_k)
    q = arrays.take("query", query, 3)
    args.num_tokens, args.num_heads, args.k_width = q.shape
    args.dtype = q.code
    call.tokens("q", q)
    k, v = _take_new(call, key, value, q, v_in_k)
    past_k, past_v = _take_caches(call, form, (past_key, past_value), (present_key, present_value),
                                  k is not None)
    args.kv_heads = k.shape[1] if k else past_k.shape[1] if past_k else 1
    args.v_width = width = _value_width(q.shape[2], v, past_v, v_width, v_in_k)
    cu_k = take_rows(call, form, cu_seqlens_q, cu_seqlens_k, block_table, kv_lens, slot_ids)
    _check_token_rows(form, k, cu_k, q.shape[0])
    _take_visibility(call, sliding_window, kept_prefix, causal, position_ids)
    _take_mask(call, attn_mask)
    _take_ranges(call, bidirectional)
    _take_selected(call, selected, selection_size, selected_newest)
    _take_parents(call, parents)
    set_constants(args.constants, take_constants(constants), call.keep, args.kv_heads,
                  (q.shape[2], width))
    result, lse = _take_outputs(call, q, width, out, return_lse)
    workspace_or_own(workspace).call(lib.pkv_gqa, args)
    return (result, lse) if return_lse else result
