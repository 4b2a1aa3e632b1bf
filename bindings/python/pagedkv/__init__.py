# SPDX-License-Identifier: MIT
"""Paged KV caches and grouped-query attention on CPUs: the Python binding of libpagedkv.

For a step on plain arrays   gqa_decode_step, KVCache and cached_attention, group_query_attention
For servers                  Cache, Sequence and Step, with Group, Layer, CacheConfig and Options;
                             StateView for recurrent layers
What outlives a process      DiskTier and RedisTier, Ticket; Cache.save and Cache.load
The operator itself          attention, Workspace, Constants; block_bounds, block_rank

Arrays are numpy arrays, torch tensors or anything else that exports a buffer or DLPack; they are
not copied, and results come in the kind of the query. numpy has no bfloat16: its bits are uint16,
and those of e4m3 uint8. The interpreter's lock is released while the library works.
"""
from ._errors import (Busy, Corrupt, InvalidArgument, NeverFits, NoBlocks, NoMemory, NotFound,
                      NotResident, PagedKVError, Shortage, StaleHandle, StoppedOutput, Unsupported)
from ._library import build_info, version
from ._operator import Constants, Workspace, attention
from ._select import block_bounds, block_rank
from ._contract import KVCache, cached_attention, gqa_decode_step, group_query_attention
from ._records import (Admission, BlockInfo, Description, Event, FieldUsage, FlushReport, Probe,
                       SequenceInfo, Sizes, Stats, StepView, TicketInfo, TierStats, Usage)
from ._tiers import DiskTier, RedisTier, Ticket, Tier
from ._config import REQUIRE_HITS, CacheConfig, Group, Layer, Options
from ._states import StateView
from ._step import Step
from ._cache import Cache, Pin, Sequence, metrics

__version__ = version()
__all__ = [
    "Admission", "BlockInfo", "Busy", "Cache", "CacheConfig", "Constants", "Corrupt",
    "Description", "DiskTier", "Event", "FieldUsage", "FlushReport", "Group", "InvalidArgument",
    "KVCache", "Layer", "NeverFits", "NoBlocks", "NoMemory", "NotFound", "NotResident",
    "Options", "PagedKVError", "Pin", "Probe", "REQUIRE_HITS", "RedisTier", "Sequence",
    "SequenceInfo", "Shortage", "Sizes", "StaleHandle", "StateView", "Stats", "Step",
    "StepView", "StoppedOutput", "Ticket", "TicketInfo", "Tier", "TierStats", "Unsupported",
    "Usage", "Workspace", "attention", "block_bounds", "block_rank", "build_info",
    "cached_attention", "gqa_decode_step", "group_query_attention", "metrics", "version",
]
