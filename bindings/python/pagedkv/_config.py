# SPDX-License-Identifier: MIT
"""The configuration of a cache, options of sequences and prompts, as structs of C."""
import ctypes
from ctypes import byref, c_int64, cast, c_void_p
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Sequence as Seq

import numpy as np

from . import _abi, _arrays as arrays
from ._library import check, lib, new, reference
from ._operator import ISAS, Constants, MAX_THREADS, set_constants, take_constants
from ._records import Sizes, key_of, read
from ._tiers import Tier

REQUIRE_HITS = _abi.PKV_REQUIRE_HITS
KINDS = {"attention": _abi.PKV_GROUP_ATTENTION, "state": _abi.PKV_GROUP_STATE}
STORAGES = {"paged": _abi.PKV_STORAGE_PAGED, "continuous": _abi.PKV_STORAGE_CONTINUOUS}
U64 = 2**64 - 1


@dataclass(frozen=True)
class Group:
    """A layer group: layers of one geometry and window share block tables.

    kv_heads, k_width, v_width  heads, and channels of one; v_width None = k_width
    block_size, num_blocks      tokens of a block; blocks, 0 = a share of the cache's bytes
    sliding_window, kept_prefix  newest keys that a query sees, and first ones beside them; 0 = none
    k_dtype, v_dtype            "float32", "float16", "bfloat16", "int8" or "e4m3"
    v_in_k                      values are the first v_width channels of keys (MLA)
    storage                     "paged" or "continuous"

    A state group, kind "state", has recurrent layers, and stands behind the attention groups. Of
    the fields above only num_blocks is read, the states of the group.

    state_bytes        what one layer keeps for one sequence
    snapshot_interval  with a prefix cache, states are cached at multiples of so many tokens; 0 =
                       the least common multiple of the block sizes
    max_rewind         the greatest max_rewind of a sequence
    segment_tokens     of what one sequence leaves cached, one snapshot for so many tokens stays, or
                       in an attention group one window; 0 = all
    """

    kv_heads: int = 0
    k_width: int = 0
    block_size: int = 16
    num_blocks: int = 0
    v_width: Optional[int] = None
    sliding_window: int = 0
    kept_prefix: int = 0
    k_dtype: Any = "float32"
    v_dtype: Any = None
    v_in_k: bool = False
    storage: str = "paged"
    kind: str = "attention"
    state_bytes: int = 0
    snapshot_interval: int = 0
    max_rewind: int = 0
    segment_tokens: int = 0

    @property
    def value_width(self) -> int:
        return self.k_width if self.v_width is None else self.v_width

    def fill(self, out, name):
        """Fills struct pkv_group_config."""
        for key in ("kv_heads", "k_width", "num_blocks", "block_size"):
            setattr(out, key, arrays.count(f"{name}.{key}", getattr(self, key)))
        for key in ("snapshot_interval", "max_rewind"):
            setattr(out, key, arrays.count(f"{name}.{key}", getattr(self, key)))
        for key in ("sliding_window", "kept_prefix", "state_bytes", "segment_tokens"):
            setattr(out, key, arrays.count(f"{name}.{key}", getattr(self, key), 0, 2**62))
        if self.v_width is not None:
            out.v_width = arrays.count(f"{name}.v_width", self.v_width)
        out.v_in_k = arrays.flag(f"{name}.v_in_k", self.v_in_k)
        out.kind = arrays.choice(f"{name}.kind", self.kind, KINDS)
        out.storage = arrays.choice(f"{name}.storage", self.storage, STORAGES)
        out.k_dtype = arrays.dtype_code(f"{name}.k_dtype", self.k_dtype)
        v_dtype = self.k_dtype if self.v_dtype is None else self.v_dtype
        out.v_dtype = arrays.dtype_code(f"{name}.v_dtype", v_dtype)


@dataclass(frozen=True)
class Layer:
    """One layer of the model: num_heads query heads over the pages of a group.

    kv_layer is the earlier layer whose keys and values this one reads; None = its own. Of a layer
    in a state group only the group is read.
    """

    num_heads: int = 0
    group: int = 0
    kv_layer: Optional[int] = None
    constants: Optional[Constants] = None

    def fill(self, out, name, groups, keep):
        """Fills struct pkv_layer_config."""
        out.group = arrays.count(f"{name}.group", self.group, 0, len(groups) - 1)
        group = groups[self.group]
        if group.kind == "state":
            return
        out.num_heads = arrays.count(f"{name}.num_heads", self.num_heads, 1)
        if self.kv_layer is not None:
            out.shares_kv = True
            out.kv_layer = arrays.count(f"{name}.kv_layer", self.kv_layer)
        try:
            set_constants(out.constants, take_constants(self.constants), keep, group.kv_heads,
                          (group.k_width, group.value_width))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None


_COUNTS = ("max_seqs", "max_seq_len", "max_step_rows", "max_step_tokens", "num_index_nodes",
           "max_namespaces", "watermark_blocks", "max_pinned_blocks", "num_events",
           "masked_hash_bits", "min_blank_percent", "num_tier_threads", "max_tickets",
           "max_store_blocks", "required")
_FLAGS = ("poison_freed", "zero_freed", "prefix_cache", "event_tokens", "check_tokens",
          "no_partial_hits", "no_write_behind")


@dataclass(frozen=True)
class CacheConfig:
    """What a Cache is made with; its fields are those of struct pkv_cache_config (pagedkv/cache.h).

    >>> config = CacheConfig([Group(kv_heads=2, k_width=64, num_blocks=100)], [Layer(8)] * 4,
    ...                      max_seqs=8, max_seq_len=1024, max_step_tokens=256)
    >>> config.sizes().token_bytes                # 4 layers, K and V, 2 heads of 64 float32
    4096
    """

    groups: Seq[Group]
    layers: Seq[Layer]
    max_seqs: int = 1
    max_seq_len: int = 0
    max_step_tokens: int = 0
    max_step_rows: int = 0
    dtype: Any = "float32"
    bytes: int = 0
    num_threads: int = 0
    isa: str = "best"
    prefix_cache: bool = False
    num_index_nodes: int = 0
    max_namespaces: int = 0
    watermark_blocks: int = 0
    max_pinned_blocks: int = 0
    num_events: int = 0
    event_tokens: bool = False
    fingerprint: Any = b""
    masked_hash_bits: int = 0
    metrics_label: Optional[str] = None
    poison_freed: bool = False
    zero_freed: bool = False
    check_tokens: bool = False
    no_partial_hits: bool = False
    min_blank_percent: int = 0
    swap_bytes: int = 0
    swap_path: Any = None
    tiers: Seq[Tier] = ()
    num_tier_threads: int = 0
    max_tickets: int = 0
    max_store_blocks: int = 0
    no_write_behind: bool = False
    required: int = 0  # REQUIRE_HITS

    def __post_init__(self):
        for name, kind in (("groups", Group), ("layers", Layer), ("tiers", Tier)):
            items = getattr(self, name)
            if not isinstance(items, (list, tuple)) or not all(isinstance(i, kind) for i in items):
                raise TypeError(f"{name} is {items!r}, no list of {kind.__name__}")
            object.__setattr__(self, name, tuple(items))

    def build(self):
        """struct pkv_cache_config, and the list of what its pointers need."""
        out, keep = new(_abi.pkv_cache_config), []
        self._fill_arrays(out, keep)
        for name in _COUNTS:
            setattr(out, name, arrays.count(name, getattr(self, name)))
        for name in _FLAGS:
            setattr(out, name, arrays.flag(name, getattr(self, name)))
        out.num_threads = arrays.count("num_threads", self.num_threads, 0, MAX_THREADS)
        out.isa = arrays.choice("isa", self.isa, ISAS)
        out.bytes = arrays.count("bytes", self.bytes, 0, 2**63 - 1)
        out.swap_bytes = arrays.count("swap_bytes", self.swap_bytes, 0, 2**63 - 1)
        out.dtype = arrays.dtype_code("dtype", self.dtype, arrays.FLOATS)
        self._fill_texts(out, keep)
        return out, keep

    def _fill_arrays(self, out, keep):
        groups = (_abi.pkv_group_config * len(self.groups))()
        for i, group in enumerate(self.groups):
            group.fill(groups[i], f"groups[{i}]")
        layers = (_abi.pkv_layer_config * len(self.layers))()
        for i, layer in enumerate(self.layers):
            layer.fill(layers[i], f"layers[{i}]", self.groups, keep)
        keep += [groups, layers]
        out.groups, out.num_groups = cast(groups, c_void_p), len(groups)
        out.layers, out.num_layers = cast(layers, c_void_p), len(layers)
        uses = [tier._owner.use() for tier in self.tiers]
        tiers = (c_void_p * max(1, len(uses)))(*[use.pointer.value for use in uses])
        keep += [*uses, tiers]
        out.tiers, out.num_tiers = cast(tiers, c_void_p), len(uses)

    def _fill_texts(self, out, keep):
        if not isinstance(self.fingerprint, (bytes, bytearray)):
            raise TypeError(f"fingerprint is a {type(self.fingerprint).__name__}, no bytes")
        if self.fingerprint:
            text = ctypes.create_string_buffer(bytes(self.fingerprint), len(self.fingerprint))
            keep.append(text)
            out.fingerprint, out.fingerprint_bytes = cast(text, c_void_p), len(self.fingerprint)
        if self.metrics_label is not None:
            out.metrics_label = arrays.text("metrics_label", self.metrics_label)
        if self.swap_path is not None:
            out.swap_path = arrays.path("swap_path", self.swap_path)

    def sizes(self) -> Sizes:
        """Exact bytes of the cache, without making it."""
        out, keep = self.build()
        sizes = new(_abi.pkv_cache_sizes)
        check(lib.pkv_cache_size(byref(out), byref(sizes)))
        del keep
        return read(Sizes, sizes)

    def blocks_for_bytes(self, bytes: int) -> List[int]:
        """How many blocks each group gets from a payload budget."""
        out, keep = self.build()
        blocks = np.zeros(len(self.groups), np.int32)
        budget = arrays.count("bytes", bytes, 0, 2**63 - 1)
        check(lib.pkv_cache_blocks_for_bytes(byref(out), budget, blocks.ctypes.data))
        del keep
        return blocks.tolist()

    def prefix_keys(self, token_ids: Any, token_extra: Any = None,
                    options: Optional["Options"] = None) -> List[int]:
        """The 128-bit keys of a prompt's full blocks, as every cache with this configuration has
        them: for a router."""
        out, keep = self.build()
        prompt, kept = fill_prompt(token_ids, token_extra)
        fields, kept_options = fill_options(options)
        keys = (_abi.pkv_block_key * max(1, prompt.num_tokens))()
        num_keys = ctypes.c_int32()
        check(lib.pkv_prefix_keys(byref(out), reference(fields), byref(prompt), len(keys),
                                  byref(keys), byref(num_keys)))
        del keep, kept, kept_options
        return [key_of(keys[i]) for i in range(num_keys.value)]


@dataclass(frozen=True)
class Options:
    """Options of a sequence (struct pkv_seq_options).

    tag           names a set of sequences for Cache.destroy_tagged; 0 = none
    kept_prefix   overrides that of every group
    max_rewind    how far truncate can always go back
    max_tokens    the most tokens that it and its forks may have; 0 = max_seq_len
    namespace     {tag: bytes} or {tag: (bytes, begins_at)}: whose cached blocks it may share
    priority      of the blocks that it computes, 0 to 3; retention_ns is how long it lasts
    no_publish    what it computes is not indexed
    """

    tag: int = 0
    kept_prefix: Optional[int] = None
    max_rewind: int = 0
    max_tokens: int = 0
    namespace: Mapping = field(default_factory=dict)
    priority: int = 0
    no_publish: bool = False
    retention_ns: int = 0


def fill_field(out, tag, value, keep):
    """Fills struct pkv_namespace_field from bytes, or bytes and where they begin to count."""
    text, begins_at = value if isinstance(value, tuple) and len(value) == 2 else (value, 0)
    if not isinstance(text, (bytes, bytearray)):
        raise TypeError(f"namespace[{tag!r}] is a {type(text).__name__}, no bytes")
    memory = ctypes.create_string_buffer(bytes(text), max(1, len(text)))
    keep.append(memory)
    out.tag = arrays.count("a namespace's tag", tag)
    out.bytes, out.length = cast(memory, c_void_p), len(text)
    out.begins_at = arrays.count(f"namespace[{tag}] begins_at", begins_at)


def new_field(tag, value):
    out, keep = _abi.pkv_namespace_field(), []
    fill_field(out, tag, value, keep)
    return out, keep


def fill_options(options):
    """struct pkv_seq_options and what it needs; None for no options."""
    if options is None:
        return None, None
    if not isinstance(options, Options):
        raise TypeError(f"options is a {type(options).__name__}, no Options")
    out, keep = new(_abi.pkv_seq_options), []
    for name in ("tag", "retention_ns"):
        setattr(out, name, arrays.count(name, getattr(options, name), 0, U64))
    for name in ("max_rewind", "max_tokens", "priority"):
        setattr(out, name, arrays.count(name, getattr(options, name)))
    out.no_publish = arrays.flag("no_publish", options.no_publish)
    if options.kept_prefix is not None:
        kept = c_int64(arrays.count("kept_prefix", options.kept_prefix, 0, 2**62))
        keep.append(kept)
        out.kept_prefix = cast(byref(kept), c_void_p)
    if not isinstance(options.namespace, Mapping):
        raise TypeError(f"namespace is a {type(options.namespace).__name__}, no dict")
    fields = (_abi.pkv_namespace_field * max(1, len(options.namespace)))()
    for i, (tag, value) in enumerate(options.namespace.items()):
        fill_field(fields[i], tag, value, keep)
    keep.append(fields)
    out.namespace_fields = cast(fields, c_void_p)
    out.num_namespace_fields = len(options.namespace)
    return out, keep


def take_extra(token_extra, num_tokens, keep):
    """The address of token_extra [num_tokens], None where it is absent."""
    if token_extra is None:
        return None
    extra = arrays.integers("token_extra", token_extra, np.uint64, (num_tokens,))
    keep.append(extra)
    return extra.ctypes.data


def fill_prompt(token_ids, token_extra=None, bidirectional=None):
    """struct pkv_prompt and what it needs."""
    out, keep = new(_abi.pkv_prompt), []
    ids = arrays.integers("token_ids", token_ids, np.int32)
    if ids.ndim != 1:
        raise ValueError(f"token_ids has shape {ids.shape}; it needs 1 dimension")
    keep.append(ids)
    out.token_ids = ids.ctypes.data
    out.num_tokens = arrays.count("tokens", ids.size)
    out.token_extra = take_extra(token_extra, ids.size, keep)
    if bidirectional is not None:
        ranges = arrays.integers("bidirectional", bidirectional, np.int32)
        if ranges.size and (ranges.ndim != 2 or ranges.shape[1] != 2):
            raise ValueError(f"bidirectional has shape {ranges.shape}, not (ranges, 2)")
        keep.append(ranges)
        out.bidirectional = ranges.ctypes.data if ranges.size else None
        out.num_bidirectional = ranges.shape[0] if ranges.size else 0
    return out, keep
