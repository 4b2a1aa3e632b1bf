# SPDX-License-Identifier: MIT
"""One decode step on plain arrays, a growing cache, and the parameter list of tensor runtimes."""
from ctypes import byref, c_bool, c_double, c_int, c_int64, cast, c_void_p
from typing import Any, Dict, List, Optional, TypeVar

import numpy as np

from . import _abi, _arrays as arrays
from ._library import lib, new
from ._operator import ROTARY_MODES, Workspace, attention, workspace_or_own

T = TypeVar("T")


def _packed(x):
    """One token's activations with their heads side by side; copies where they are not, as in a
    slice of [batch][heads][tokens][width]. Caches are never copied."""
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x)
    return x.contiguous() if arrays.is_torch(x) else x


def _heads(name, value, array):
    heads = arrays.count(name, value, 1)
    if array.shape[1] != heads:
        raise ValueError(f"{array.name} has shape {array.shape}, but {name} = {heads}")
    return heads


def gqa_decode_step(query: T, new_key: T, new_value: T, key_cache: T, value_cache: T,
                    num_query_heads: int, num_kv_heads: int) -> Dict[str, T]:
    """One grouped-query attention decode step; the extended caches are new arrays.

    query                   [batch][num_query_heads][width], float32, float16 or bfloat16
    new_key, new_value      [batch][num_kv_heads][width], which go behind all cached ones
    key_cache, value_cache  [batch][num_kv_heads][cached tokens][width]

    Query head h reads KV head h / (num_query_heads / num_kv_heads). Returns a dict with output
    [batch][num_query_heads][width], new_key_cache and new_value_cache
    [batch][num_kv_heads][cached tokens + 1][width], of the kind and dtype of what was passed.

    >>> import numpy as np
    >>> def f(x):
    ...     return np.array(x, np.float32)
    >>> step = gqa_decode_step(f([[[0], [1]]]), f([[[1.09861229]]]), f([[[6]]]), f([[[[0]]]]),
    ...                        f([[[[2]]]]), num_query_heads=2, num_kv_heads=1)
    >>> step["output"].round(5).tolist()
    [[[4.0], [5.0]]]
    >>> step["new_value_cache"].tolist()
    [[[[2.0], [6.0]]]]
    """
    q = arrays.take("query", query, 3)
    batch, heads, width = q.shape
    kv_heads = arrays.count("num_kv_heads", num_kv_heads, 1)
    if arrays.count("num_query_heads", num_query_heads, 1) % kv_heads:
        raise ValueError(f"num_query_heads = {num_query_heads} is no multiple of "
                         f"num_kv_heads = {kv_heads}")
    _heads("num_query_heads", num_query_heads, q)
    for name, x in (("new_key", new_key), ("new_value", new_value)):
        array = arrays.take(name, x, 3)
        arrays.expect_shape(array, (batch, kv_heads, width))
        arrays.expect_dtype(array, q)
    k = arrays.take("key_cache", key_cache, 4)
    v = arrays.take("value_cache", value_cache, 4)
    for array in (k, v):
        arrays.expect_shape(array, (batch, kv_heads, k.shape[2], width))
        arrays.expect_dtype(array, q)
    extended = [arrays.empty(a, a.shape[:2] + (a.shape[2] + 1, width)) for a in (k, v)]
    output = attention(_packed(query), _packed(new_key), _packed(new_value), form="dense_copy",
                       past_key=key_cache, past_value=value_cache, present_key=extended[0],
                       present_value=extended[1])
    return {"output": output, "new_key_cache": extended[0], "new_value_cache": extended[1]}


class KVCache:
    """Keys and values of one layer and one batch of sequences, which grow together.

    keys and values are None, and then [batch][kv_heads][tokens][width]: views of memory that has
    room for more tokens and doubles when it has not, so that a token costs its own copy alone. A
    view that was taken earlier keeps what it shows.

    >>> import numpy as np
    >>> cache = KVCache()
    >>> q, k, v = np.ones((3, 2, 2, 1, 4), np.float32)
    >>> cached_attention(q, k, v, cache).shape
    (2, 2, 1, 4)
    >>> cached_attention(q, k, v, cache)[0, 0].tolist(), cache.keys.shape
    ([[1.0, 1.0, 1.0, 1.0]], (2, 2, 2, 4))
    """

    def __init__(self):
        self._storage = None
        self._length = 0

    @property
    def keys(self) -> Any:
        return None if self._storage is None else self._storage[0][:, :, :self._length]

    @property
    def values(self) -> Any:
        return None if self._storage is None else self._storage[1][:, :, :self._length]

    def __len__(self) -> int:
        return self._length

    def append(self, keys: Any, values: Any) -> None:
        """Adds new tokens, keys and values [batch][kv_heads][new tokens][width]."""
        pair = self._check(keys, values)
        self._grow(pair, pair[0].shape[2])
        end = self._length + pair[0].shape[2]
        for storage, array in zip(self._storage, pair):
            storage[:, :, self._length:end] = array.like
        self._length = end

    def _check(self, keys, values):
        pair = [arrays.take("keys", keys, 4), arrays.take("values", values, 4)]
        arrays.expect_shape(pair[1], pair[0].shape[:3] + pair[1].shape[3:])
        for array in pair:
            if not (isinstance(array.like, np.ndarray) or arrays.is_torch(array.like)):
                raise TypeError(f"{array.name} is neither a numpy array nor a torch tensor")
        for array, storage in zip(pair, self._storage or ()):
            have = arrays.borrow("the cache", storage)
            if arrays.is_torch(array.like) != arrays.is_torch(storage):
                raise TypeError(f"{array.name} is a {type(array.like).__name__}, but the cache "
                                f"holds a {type(storage).__name__}")
            arrays.expect_shape(array, have.shape[:2] + array.shape[2:3] + have.shape[3:])
            if array.dtype != have.dtype:
                raise ValueError(f"{array.name} has dtype {array.dtype}, the cache {have.dtype}")
        return pair

    def _grow(self, pair, count):
        needed = self._length + count
        capacity = 0 if self._storage is None else self._storage[0].shape[2]
        if self._storage is not None and needed <= capacity:
            return
        room = max(needed, 2 * capacity, 16)
        grown = [arrays.empty(a, a.shape[:2] + (room,) + a.shape[3:]) for a in pair]
        if self._storage is not None:
            for new_one, old in zip(grown, self._storage):
                new_one[:, :, :self._length] = old[:, :, :self._length]
        self._storage = grown

    def _attend(self, query, keys, values):
        pair = self._check(keys, values)
        q = arrays.take("query", query, 4)
        batch, kv_heads, _, width = pair[0].shape
        arrays.expect_shape(pair[0], (batch, kv_heads, 1, width))
        arrays.expect_shape(q, (batch, q.shape[1], 1, width))
        arrays.expect_dtype(pair[0], q)
        arrays.expect_dtype(pair[1], q)
        if q.shape[1] % max(kv_heads, 1):
            raise ValueError(f"query has {q.shape[1]} heads, no multiple of {kv_heads}")
        self._grow(pair, 1)
        output = attention(_packed(query[:, :, 0]), _packed(keys[:, :, 0]),
                           _packed(values[:, :, 0]), form="dense", past_key=self._storage[0],
                           past_value=self._storage[1], kv_lens=[self._length + 1] * batch)
        self._length += 1
        return output[:, :, None]


def cached_attention(query: T, new_keys: T, new_values: T, cache: KVCache) -> T:
    """Appends one token to a KVCache and attends from it to all tokens of the cache.

    query [batch][num_heads][1][width]; new_keys and new_values [batch][kv_heads][1][width], where
    num_heads is a multiple of kv_heads. Returns [batch][num_heads][1][value width].
    """
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache is a {type(cache).__name__}, no KVCache")
    return cache._attend(query, new_keys, new_values)


# ---- the parameter list of tensor runtimes ------------------------------------------------------

_TENSOR_TYPES = dict(arrays.DTYPES, int32=_abi.PKV_TENSOR_INT32, int64=_abi.PKV_TENSOR_INT64,
                     bool=_abi.PKV_TENSOR_BOOL)


class _Tensors:
    """struct pkv_contract_args while it is filled, and what its pointers need."""

    def __init__(self):
        self.args = new(_abi.pkv_contract_args)
        self.keep = []

    def _point(self, field, value):
        self.keep.append(value)
        setattr(self.args, field, cast(byref(value), c_void_p))

    def tensor(self, field, x, rank, dtypes=arrays.FLOATS, writable=False):
        """A packed tensor; None stays absent."""
        if x is None:
            return None
        array = arrays.take_packed(field, x, rank, dtypes, writable)
        self.keep.append(array)
        value = _abi.pkv_tensor(data=array.pointer, type=_TENSOR_TYPES[array.dtype],
                                rank=len(array.shape))
        value.dims[:len(array.shape)] = array.shape
        self._point(field, value)
        return array

    def integers(self, field, x, dtype):
        if x is not None:
            found = arrays.integers(field, x, dtype)
            if found.ndim > 4:
                raise ValueError(f"{field} has shape {found.shape}")
            self.keep.append(found)
            self.tensor(field, found, found.ndim, ("int32", "int64"))

    def number(self, field, x, ranks):
        """A float32 tensor, or a Python number as one."""
        if isinstance(x, (int, float)):
            x = np.array(arrays.real(field, x), dtype=np.float32)
        return self.tensor(field, x, ranks, ("float32",))

    def scalar(self, field, x, ctype, convert):
        if x is not None:
            self._point(field, ctype(convert(field, x)))


def _take_start(tensors, start):
    """kvcache_start: a position, [batch], or the block table; its rank selects the form."""
    if start is None:
        return
    rank = np.ndim(start) if not hasattr(start, "ndim") else start.ndim
    tensors.integers("kvcache_start", start, np.int64 if rank == 0 else np.int32)


def _value_width(tensors, value, past_value, heads, kv_heads, query):
    if value is not None:
        return heads * (value.shape[1] // kv_heads)
    return heads * past_value.shape[3] if past_value is not None else query.shape[1]


def _take_options(tensors, o):
    tensors.tensor("rope_cos", o["rope_cos"], 2)
    tensors.tensor("rope_sin", o["rope_sin"], 2)
    tensors.integers("position_ids", o["position_ids"], np.int64)
    tensors.tensor("attn_mask", o["attn_mask"], 4, arrays.FLOATS + ("bool",))
    tensors.scalar("is_causal", o["is_causal"], c_bool, arrays.flag)
    tensors.number("q_scale", o["q_scale"], (0, 1))
    tensors.scalar("softcap", o["softcap"], c_double, arrays.real)
    tensors.scalar("sliding_window", o["sliding_window"], c_int64,
                   lambda name, x: arrays.count(name, x, -2**62, 2**62))
    tensors.scalar("smooth_softmax", o["smooth_softmax"], c_bool, arrays.flag)
    tensors.scalar("rotary_mode", o["rotary_mode"], c_int,
                   lambda name, x: arrays.choice(name, x, ROTARY_MODES))
    tensors.number("k_scale", o["k_scale"], (0, 1, 2, 3))
    tensors.number("v_scale", o["v_scale"], (0, 1, 2, 3))
    tensors.tensor("head_sink", o["head_sink"], 1, ("float32",))
    tensors.tensor("q_norm_gain", o["q_norm_gain"], 1)
    tensors.tensor("k_norm_gain", o["k_norm_gain"], 1)
    tensors.scalar("qk_norm_eps", o["qk_norm_eps"], c_double, arrays.real)
    tensors.integers("slot_ids", o["slot_ids"], np.int32)
    tensors.integers("kept_prefix", o["kept_prefix"], np.int64)
    tensors.integers("cu_seqlens_q", o["cu_seqlens_q"], np.int32)
    tensors.integers("cu_seqlens_k", o["cu_seqlens_k"], np.int32)


def _take_past(tensors, past_key, past_value, writable):
    return [tensors.tensor(name, x, 4, arrays.CACHE_TYPES, writable)
            for name, x in (("past_key", past_key), ("past_value", past_value))]


def _take_present(tensors, past, given, key, start, query, batch_tokens):
    """The extended caches of the form without kvcache_start are made here when none are given;
    in place the presents are the pasts."""
    result = list(given)
    copies = past[0] is not None and past[1] is not None and start is None and key is not None
    if copies and past[0].shape[0]:
        cells = past[0].shape[2] + batch_tokens // past[0].shape[0]
        result = [arrays.empty(a, a.shape[:2] + (cells,) + a.shape[3:]) if g is None else g
                  for a, g in zip(past, given)]
    for name, x in zip(("out_present_key", "out_present_value"), result):
        tensors.tensor(name, x, 4, arrays.CACHE_TYPES, writable=True)
    if key is None or past[0] is None:
        return [None, None]
    return result if copies else [past[0].like, past[1].like if past[1] else None]


def group_query_attention(query: Any, key: Any = None, value: Any = None, past_key: Any = None,
                          past_value: Any = None, kvcache_start: Any = None,
                          rope_cos: Any = None, rope_sin: Any = None, position_ids: Any = None,
                          attn_mask: Any = None, is_causal: Optional[bool] = None,
                          q_scale: Any = None, softcap: Optional[float] = None,
                          sliding_window: Optional[int] = None,
                          smooth_softmax: Optional[bool] = None,
                          rotary_mode: Optional[str] = None, num_heads: Optional[int] = None,
                          kv_num_heads: Optional[int] = None, out_present_key: Any = None,
                          out_present_value: Any = None, k_scale: Any = None,
                          v_scale: Any = None, head_sink: Any = None, q_norm_gain: Any = None,
                          k_norm_gain: Any = None, qk_norm_eps: Optional[float] = None,
                          slot_ids: Any = None, kept_prefix: Any = None, *,
                          cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
                          output: Any = None,
                          workspace: Optional[Workspace] = None) -> List[Any]:
    """Fused GQA by the parameter list of tensor runtimes (pagedkv/contract.h); returns
    [output, present_key, present_value].

    query                 [T][num_heads * width]; output is like it, [T][num_heads * value width]
    key, value            [T][kv_num_heads * width]; None: attends to the cache and writes nothing
    past_key, past_value  [rows, slots or blocks][kv_num_heads][cells][width]
    kvcache_start         None: the extended caches are new, present_*; a number: every row's append
                          begins there, in place; [B]: one slot a row; [B][max_blocks]: block table
    cu_seqlens_q          [B + 1], the rows' tokens; None = T / B tokens each
    cu_seqlens_k          [B], each row's length after the append, with slots and block tables;
                          [B + 1] cumulative without a cache
    num_heads, kv_num_heads  needed
    rotary_mode           "half_split" or "interleaved"
    q_scale, k_scale, v_scale  numbers or float32 tensors

    All tensors are packed. present_* are the pasts where the append was in place, and None where
    nothing was appended or there is no cache.

    >>> import numpy as np
    >>> pages = np.zeros((2, 4, 1, 16, 2), np.float32)
    >>> token = np.ones((1, 2), np.float32)
    >>> out, present_key, _ = group_query_attention(
    ...     token, token, token, pages[0], pages[1], kvcache_start=[[2]], cu_seqlens_k=[1],
    ...     num_heads=1, kv_num_heads=1)
    >>> out.tolist(), present_key.shape
    ([[1.0, 1.0]], (4, 1, 16, 2))
    """
    options = dict(locals())
    tensors = _Tensors()
    heads = arrays.count("num_heads", num_heads, 1)
    kv_heads = arrays.count("kv_num_heads", kv_num_heads, 1)
    tensors.scalar("num_heads", heads, c_int64, arrays.count)
    tensors.scalar("kv_num_heads", kv_heads, c_int64, arrays.count)
    if query is None:
        raise TypeError("query is needed")
    q = tensors.tensor("query", query, 2)
    tensors.tensor("key", key, 2)
    v = tensors.tensor("value", value, 2)
    past = _take_past(tensors, past_key, past_value, key is not None and kvcache_start is not None)
    _take_start(tensors, kvcache_start)
    _take_options(tensors, options)
    present = _take_present(tensors, past, (out_present_key, out_present_value), key,
                            kvcache_start, q, q.shape[0])
    width = _value_width(tensors, v, past[1], heads, kv_heads, q)
    result = arrays.empty(q, (q.shape[0], width)) if output is None else output
    tensors.tensor("output", result, 2, writable=True)
    workspace_or_own(workspace).call(lib.pkv_gqa_contract, tensors.args)
    return [result] + present
