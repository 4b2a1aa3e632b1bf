# SPDX-License-Identifier: MIT
"""What calls answer: structs of C copied into plain values."""
import ctypes
from dataclasses import dataclass, fields
from typing import Any, Optional, Tuple

from ._errors import Shortage


def key_of(key) -> int:
    """struct pkv_block_key as one number of 128 bits; 0 = no block."""
    return key.high << 64 | key.low


def read(cls, struct, **others):
    """A record from the fields of a struct that have its names."""
    values = {f.name: getattr(struct, f.name) for f in fields(cls) if f.name not in others}
    arrays = {name: tuple(x) for name, x in values.items() if isinstance(x, ctypes.Array)}
    return cls(**values | arrays, **others)


@dataclass(frozen=True)
class Sizes:
    """Exact sizes of a cache in bytes (struct pkv_cache_sizes)."""

    payload_bytes: int
    table_bytes: int
    metadata_bytes: int
    token_bytes: int
    swap_bytes: int


@dataclass(frozen=True)
class Description:
    """A cache's configuration with every default filled in; tuples have an entry for each group."""

    num_threads: int
    isa: str
    num_blocks: Tuple[int, ...]
    sliding_window: Tuple[int, ...]
    num_index_nodes: int
    max_namespaces: int
    max_step_rows: int


@dataclass(frozen=True)
class Usage:
    """The blocks of one group: free + held = num_blocks (struct pkv_group_usage)."""

    num_blocks: int
    free: int
    held: int
    cached: int
    pinned: int
    promised: int


@dataclass(frozen=True)
class SequenceInfo:
    """A sequence at the moment (struct pkv_seq_info)."""

    id: int
    tag: int
    max_rewind: int
    max_tokens: int
    length: int
    num_cached: int
    num_blocks: int
    min_length: int
    in_step: bool
    is_swapped: bool


@dataclass(frozen=True)
class Admission:
    """What an admission gave: of the prompt, num_cached tokens were adopted from the prefix cache
    (the last num_copied of them behind a whole block), num_to_write are left to compute.
    tier_cached has an entry for each tier: those of num_cached that came from it."""

    num_cached: int
    num_to_write: int
    num_blocks: int
    num_copied: int
    tier_cached: Tuple[int, ...]


@dataclass(frozen=True)
class Probe:
    """What an admission would answer: status is "PKV_OK", "PKV_NO_BLOCKS", "PKV_NEVER_FITS" or
    "PKV_BUSY"; shortage says what is missing. tier_cached are further tokens that a prefetch could
    bring, by tier, as far as the cache knows."""

    status: str
    num_cached: int
    num_pending: int
    num_blocks: int
    num_copied: int
    tier_cached: Tuple[int, ...]
    shortage: Optional[Shortage]


@dataclass(frozen=True)
class FieldUsage:
    """The blocks of one namespace field; quota 0 = none."""

    held: int
    quota: int
    cached: int


@dataclass(frozen=True)
class FlushReport:
    """What a flush or a reset met, in blocks."""

    held: int
    orphaned: int
    removed: int


@dataclass(frozen=True)
class Stats:
    """Counters of a cache (struct pkv_stats, pagedkv/metrics.h)."""

    num_admissions: int
    queried_tokens: int
    hit_tokens: int
    readmitted_tokens: int
    rehit_tokens: int
    stored_blocks: int
    deduplicated_blocks: int
    unpublished_blocks: int
    evicted_blocks: int
    evicted_age_ns: int
    copied_blocks: int
    collisions: int
    num_events: int
    lost_events: int
    expired_pins: int
    attention_bytes: int
    num_blocks: int
    held_blocks: int
    free_blocks: int
    cached_blocks: int
    pinned_blocks: int
    table_cells: int
    used_cells: int
    num_seqs: int
    num_pins: int
    num_nodes: int
    max_nodes: int
    index_bytes: int
    copied_hit_tokens: int
    table_blocks: int
    table_runs: int
    swap_outs: int
    swap_ins: int
    swap_out_bytes: int
    swap_in_bytes: int
    swap_units: int
    used_swap_units: int
    swapped_seqs: int


#: By enum pkv_ticket_state.
TICKET_STATES = ("finding", "loading", "storing", "done")


@dataclass(frozen=True)
class TicketInfo:
    """How far a prefetch or store is (struct pkv_ticket_info). state is "finding", "loading",
    "storing" or "done"; status is "PKV_OK", or the name of the first thing that went wrong, which
    never makes an admission fail. tier_loaded has an entry for each tier."""

    state: str
    status: str
    num_cached: int
    num_loaded: int
    tier_loaded: Tuple[int, ...]
    num_stored: int
    num_left: int
    begun_ns: int


@dataclass(frozen=True)
class TierStats:
    """What a cache has done with one of its tiers (struct pkv_tier_stats)."""

    stored_blocks: int
    stored_bytes: int
    failed_stores: int
    skipped_stores: int
    loaded_blocks: int
    loaded_bytes: int
    missed_blocks: int
    void_blocks: int
    collisions: int
    failed_loads: int
    corrupt_blocks: int
    hit_tokens: int
    waiting_stores: int
    num_tickets: int


#: By enum pkv_block_state, pkv_event_kind and pkv_event_reason.
BLOCK_STATES = ("free", "cached", "held", "pinned")
EVENT_KINDS = ("stored", "removed", "cleared", "offloaded", "onboarded")
EVENT_REASONS = ("commit", "capacity", "flush", "reset", "demoted", "corrupt", "prefetch",
                 "store")


def name_in(names, value):
    return names[value] if 0 <= value < len(names) else f"unknown {value}"


@dataclass(frozen=True)
class BlockInfo:
    """One block of one group; keys are 0 where it is not indexed (struct pkv_block_info)."""

    group: int
    block: int
    state: str
    ref_count: int
    is_indexed: bool
    priority: int
    key: int
    parent_key: int
    namespace_key: int
    depth: int


@dataclass(frozen=True)
class Event:
    """What happened to a block of the prefix index (struct pkv_event); token_ids and token_extra
    are filled where they were requested. groups and tiers have a bit for each that has it."""

    number: int
    kind: str
    reason: str
    key: int
    parent_key: int
    namespace_key: int
    groups: int
    depth: int
    tiers: int
    token_ids: Any = None
    token_extra: Any = None


@dataclass(frozen=True)
class StepView:
    """One group's part of an open step: copies, which stay valid (struct pkv_step_view)."""

    num_rows: int
    num_tokens: int
    block_tables: Any
    slot_ids: Any
    cu_seqlens_q: Any
    kv_lens: Any
    position_ids: Any
    kept_prefix: Any
    sliding_window: int
    copies: Any
    parents: Any
