# SPDX-License-Identifier: MIT
"""A managed cache for servers with continuous batching, its sequences and pins."""
import collections
import contextlib
import ctypes
import math
import threading
import time
import weakref
from ctypes import byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint64, c_void_p, sizeof
from typing import Any, Deque, Iterable, List, Optional, Tuple

import numpy as np

from . import _abi, _arrays as arrays, _save
from ._config import U64, CacheConfig, Options, fill_options, fill_prompt, new_field
from ._errors import Busy, Shortage, StaleHandle
from ._library import check, lib, new, read_shortage, reference
from ._records import (BLOCK_STATES, EVENT_KINDS, EVENT_REASONS, Admission, BlockInfo, Description,
                       Event, FieldUsage, FlushReport, Probe, SequenceInfo, Stats, TierStats, Usage,
                       key_of, name_in, read)
from ._step import Step, step_fits
from ._tiers import Ticket, TierUse

_LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
_WRITE = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)
_VISIT_BLOCK = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p)
_VISIT_SEQ = ctypes.CFUNCTYPE(c_bool, c_void_p, _abi.pkv_seq, c_void_p)
#: What waits looks so often whether a signal or the cache's end wants it to return.
_WAIT_SLICE = 0.1


class _Hold:
    """What arrays that show memory of a cache refer to."""

    memory = None


class _Memory:
    """A cache that nobody calls any more: destroyed when no hold refers to this."""

    def __init__(self, pointer, kept):
        self._pointer, self._kept, self._destroy = pointer, kept, lib.pkv_cache_destroy

    def __del__(self):
        self._destroy(self._pointer, True)


class _Live:
    """The pointer to a cache, which is not freed while a call uses it.

    Objects that were dropped without an end leave their handles in `dropped`, since they may be
    collected in the midst of anything; the next call ends them.
    """

    def __init__(self, pointer, callback, tiers=()):
        self._pointer, self._kept = pointer, (callback, tiers)
        self._holds = weakref.WeakSet()
        self._condition = threading.Condition()
        self._uses = 0
        self._ending = False
        self.dropped = collections.deque()

    def __enter__(self):
        with self._condition:
            if self._pointer is None or self._ending:
                raise StaleHandle("the cache was destroyed")
            self._uses += 1
        while self.dropped:
            try:
                function, handle = self.dropped.popleft()
            except IndexError:
                break
            function(self._pointer, handle)
        return self._pointer

    def __exit__(self, *_):
        with self._condition:
            self._uses -= 1
            self._condition.notify_all()

    def wait(self, timeout, call, not_yet):
        """Whether call(pointer, nanoseconds) has answered another status than `not_yet` before the
        time is over; timeout in seconds, None = as long as it takes. Refusals are raised."""
        limit = None
        if timeout is not None:
            limit = time.monotonic() + arrays.real("timeout", timeout)
            if math.isnan(limit):
                raise ValueError("timeout is no number")
        while True:
            left = _WAIT_SLICE if limit is None else min(_WAIT_SLICE, limit - time.monotonic())
            with self as pointer:
                status = call(pointer, int(max(0.0, left) * 1e9))
                if status != not_yet:
                    check(status)
                    return True
            if left <= 0 or (limit is not None and left < _WAIT_SLICE):
                return False

    def hold(self):
        """An object for as long as which the cache's memory is not freed."""
        with self:
            hold = _Hold()
            self._holds.add(hold)
            return hold

    def _end_with_holds(self):
        """Destroys the cache when the last hold on it is gone: now, if there is none."""
        memory = _Memory(self._pointer, self._kept)
        for hold in list(self._holds):
            hold.memory = memory

    def end(self, destroy, force):
        """Waits until no call uses the pointer, then destroys; stays alive if that is refused."""
        with self._condition:
            if self._pointer is None or self._ending:
                return
            self._ending = True
            try:
                while self._uses:
                    self._condition.wait()
                if self._holds and not force:
                    raise Busy("arrays of Step.describe_states show memory of the cache")
                if self._holds:
                    self._end_with_holds()
                else:
                    destroy(self._pointer)
                self._pointer, self._kept = None, ()
            finally:
                self._ending = False


    def drop(self):
        """Destroys when the Cache is collected. No call can be under way then, but finalizers of
        objects that are collected with it may still call."""
        self._end_with_holds()
        self._pointer, self._kept = None, ()


def _copied(struct, address):
    """A struct of the library, which may be smaller or larger than the one of this package."""
    value = new(struct)
    size = min(sizeof(struct), c_size_t.from_address(address).value)
    ctypes.memmove(byref(value), address, size)
    return value


class Cache:
    """A managed KV cache: blocks, pages, block tables, admission, prefix cache (pagedkv/cache.h).

    Cache(config) or Cache(groups, layers, max_seqs=.., ..), the fields of CacheConfig. Any thread
    may call anything. Leaving a `with` destroys the cache and all that is left in it.
    Its memory stays as long as arrays of StateView show it.

    >>> import numpy as np
    >>> from pagedkv import Group, Layer
    >>> q, kv = np.ones((3, 2, 4), np.float32), np.ones((3, 1, 4), np.float32)
    >>> with Cache([Group(kv_heads=1, k_width=4, num_blocks=8)], [Layer(num_heads=2)], max_seqs=2,
    ...            max_seq_len=32, max_step_tokens=8) as cache:
    ...     with cache.sequence() as seq:
    ...         with cache.step([seq], token_ids=[5, 6, 7], q_lens=[3]) as step:
    ...             out = step.attend(0, q, kv, kv)
    ...         seq.length, out[2].tolist(), cache.usage(0).held
    (3, [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], 1)
    """

    def __init__(self, groups: Any, layers: Any = None, **fields: Any):
        config = groups
        if not isinstance(config, CacheConfig):
            config = CacheConfig(groups, layers, **fields)
        elif layers is not None or fields:
            raise TypeError("Cache takes a CacheConfig or its fields, not both")
        self.config = config
        self._log: Deque[str] = collections.deque(maxlen=1000)
        out, keep = config.build()
        self._dtype_code = out.dtype
        callback = _logger(self._log)
        out.hooks.log = ctypes.cast(callback, c_void_p)
        pointer = c_void_p()
        check(lib.pkv_cache_create(byref(out), byref(pointer)))
        self._live = _Live(pointer, callback, [kept for kept in keep if isinstance(kept, TierUse)])
        del keep
        self._end = weakref.finalize(self, self._live.drop)
        self._end.atexit = False

    # ---- the cache itself

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy(force=True)

    def close(self) -> None:
        """Closes it to new work: waiting threads wake up, an open step goes on."""
        with self._live as pointer:
            lib.pkv_cache_close(pointer)

    def destroy(self, force: bool = False) -> None:
        """Frees it and all its sequences, after calls of other threads have returned; a second time
        does nothing. Busy while a step is open, unless forced."""
        force = arrays.flag("force", force)
        if force and self._end.alive:
            try:
                self.close()
            except StaleHandle:
                return
        self._live.end(lambda pointer: check(lib.pkv_cache_destroy(pointer, force)), force)
        self._end.detach()

    def describe(self) -> Description:
        """The configuration with every default filled in."""
        config = new(_abi.pkv_cache_config)
        with self._live as pointer:
            check(lib.pkv_cache_describe(pointer, byref(config)))
            groups = (_abi.pkv_group_config * config.num_groups).from_address(config.groups)
            return read(Description, config, isa=lib.pkv_isa_name(config.isa).decode(),
                        num_blocks=tuple(g.num_blocks for g in groups),
                        sliding_window=tuple(g.sliding_window for g in groups))

    def usage(self, group: int = 0) -> Usage:
        """Counts the blocks of one group."""
        usage = new(_abi.pkv_group_usage)
        with self._live as pointer:
            check(lib.pkv_cache_usage(pointer, arrays.count("group", group), byref(usage)))
        return read(Usage, usage)

    def check(self) -> List[str]:
        """Verifies every invariant; gives a line for each broken one: [] for a sound cache."""
        with self._live as pointer:
            self._log.clear()
            broken = lib.pkv_cache_check(pointer)
            return list(self._log) if broken == 0 or self._log else [f"{broken} broken invariants"]

    @property
    def log(self) -> List[str]:
        """The newest lines that the library has logged."""
        return list(self._log)

    # ---- sequences and steps

    def sequence(self, options: Optional[Options] = None, **fields: Any) -> "Sequence":
        """Makes an empty sequence, by Options or their fields; NoBlocks when max_seqs exist."""
        if fields and options is not None:
            raise TypeError("sequence takes Options or their fields, not both")
        struct, keep = fill_options(Options(**fields) if fields else options)
        handle = _abi.pkv_seq()
        with self._live as pointer:
            check(lib.pkv_seq_create(pointer, reference(struct), byref(handle)))
        del keep
        return Sequence(self, handle)

    def save(self, seq: "Sequence", to: Any) -> None:
        """Saves a sequence, which stays as it is: to a path, whose file is replaced whole, or to
        an object with write(bytes). Busy while it is in the open step or being saved."""
        if not isinstance(seq, Sequence):
            raise TypeError(f"a {type(seq).__name__} is no Sequence")
        with self._live as pointer:
            _save.save(pointer, seq._handle, to)

    def load(self, source: Any) -> "Sequence":
        """Makes a sequence of what save has written, in this cache or another one of the same
        model: from a path, or from an object with read(n). Corrupt, Unsupported or InvalidArgument
        for anything else, before a block is taken; NoBlocks and NeverFits carry a shortage."""
        with self._live as pointer:
            return Sequence(self, _save.load(pointer, source))

    def step(self, seqs: Iterable["Sequence"], token_ids: Any, q_lens: Any = None,
             **others: Any) -> Step:
        """Opens a step: seqs[i] gets q_lens[i] new tokens (None = one each); token_ids are those of
        all rows, one after the other. See Step."""
        return Step(self, seqs, token_ids, q_lens, **others)

    def step_fits(self, seqs: Iterable["Sequence"], token_ids: Any, q_lens: Any = None,
                  **others: Any) -> None:
        """Raises what step would raise, without opening one."""
        step_fits(self, seqs, token_ids, q_lens, **others)

    def sequences(self) -> List[SequenceInfo]:
        """A SequenceInfo for each sequence that exists."""
        found = []

        def visit(_, seq, info):
            found.append((seq.id, _copied(_abi.pkv_seq_info, info)))
            return True
        callback = _VISIT_SEQ(visit)
        with self._live as pointer:
            check(lib.pkv_cache_visit_seqs(pointer, ctypes.cast(callback, c_void_p), None))
        return [read(SequenceInfo, info, id=id) for id, info in found]

    def destroy_tagged(self, tag: int) -> int:
        """Ends every sequence with a tag; gives their number."""
        number = c_int32()
        with self._live as pointer:
            check(lib.pkv_seq_destroy_tagged(pointer, arrays.count("tag", tag, 1, U64),
                                             byref(number)))
        return number.value

    def probe(self, token_ids: Any, token_extra: Any = None, reserve_tokens: int = 0,
              max_cached: Optional[int] = None, options: Optional[Options] = None,
              bidirectional: Any = None) -> Probe:
        """What the admission of a new sequence would answer, without any effect."""
        prompt, keep = fill_prompt(token_ids, token_extra, bidirectional)
        fields, kept = fill_options(options)
        probe, shortage = new(_abi.pkv_probe), new(_abi.pkv_shortage)
        reserve = arrays.count("reserve_tokens", reserve_tokens)
        with self._live as pointer:
            check(lib.pkv_cache_probe(pointer, reference(fields), byref(prompt), reserve,
                                      _max_cached(max_cached, prompt), byref(probe),
                                      byref(shortage)))
        del keep, kept
        missing = probe.status in (_abi.PKV_NO_BLOCKS, _abi.PKV_NEVER_FITS)
        return read(Probe, probe, status=lib.pkv_status_name(probe.status).decode(),
                    shortage=read_shortage(shortage) if missing else None)

    def probe_groups(self, token_ids: Any, token_extra: Any = None,
                     max_cached: Optional[int] = None,
                     options: Optional[Options] = None) -> Tuple[int, List[int]]:
        """(hit that all groups allow, [the hit of each group alone]) of a prompt."""
        prompt, keep = fill_prompt(token_ids, token_extra)
        fields, kept = fill_options(options)
        cached, common = np.zeros(len(self.config.groups), np.int32), c_int32()
        with self._live as pointer:
            check(lib.pkv_cache_probe_groups(pointer, reference(fields), byref(prompt),
                                             _max_cached(max_cached, prompt), cached.ctypes.data,
                                             byref(common)))
        del keep, kept
        return common.value, cached.tolist()

    # ---- the prefix cache

    def pin(self, token_ids: Any, token_extra: Any = None, ttl_ns: int = 0, now_ns: int = 0,
            options: Optional[Options] = None) -> Optional["Pin"]:
        """Pins the longest cached prefix of a prompt; a Pin, or None when nothing was cached."""
        prompt, keep = fill_prompt(token_ids, token_extra)
        fields, kept = fill_options(options)
        handle, number = _abi.pkv_pin(), c_int32()
        ttl, now = arrays.count("ttl_ns", ttl_ns, 0, U64), arrays.count("now_ns", now_ns, 0, U64)
        with self._live as pointer:
            check(lib.pkv_prefix_pin(pointer, reference(fields), byref(prompt), ttl, now,
                                     byref(handle), byref(number)))
        del keep, kept
        return Pin(self, handle, number.value) if number.value else None

    def expire(self, now_ns: int) -> int:
        """Ends every pin whose time is up; gives their number."""
        number, now = c_int32(), arrays.count("now_ns", now_ns, 0, U64)
        with self._live as pointer:
            check(lib.pkv_prefix_expire(pointer, now, byref(number)))
        return number.value

    def set_priority(self, token_ids: Any, priority: int, from_token: int = 0,
                     to_token: Optional[int] = None, token_extra: Any = None,
                     options: Optional[Options] = None) -> int:
        """Changes the priority (-1 = evicted first, to 3) of the cached blocks that a prompt begins
        with; gives the tokens whose priority has changed."""
        prompt, keep = fill_prompt(token_ids, token_extra)
        fields, kept = fill_options(options)
        to_token = prompt.num_tokens if to_token is None else to_token
        begin, end = arrays.count("from_token", from_token), arrays.count("to_token", to_token)
        number, level = c_int32(), arrays.count("priority", priority, -1)
        with self._live as pointer:
            check(lib.pkv_prefix_set_priority(pointer, reference(fields), byref(prompt), begin, end,
                                              level, byref(number)))
        del keep, kept
        return number.value

    def set_quota(self, tag: int, value: bytes, num_blocks: int) -> None:
        """Limits the blocks that sequences of one namespace field hold together; 0 = no limit."""
        struct, keep = new_field(tag, value)
        limit = arrays.count("num_blocks", num_blocks, 0, 2**62)
        with self._live as pointer:
            check(lib.pkv_namespace_quota(pointer, byref(struct), limit))
        del keep

    def namespace_usage(self, tag: int, value: bytes) -> FieldUsage:
        """Counts the blocks of one namespace field; NotFound when nothing names it."""
        struct, keep = new_field(tag, value)
        usage = new(_abi.pkv_field_usage)
        with self._live as pointer:
            check(lib.pkv_namespace_usage(pointer, byref(struct), byref(usage)))
        del keep
        return read(FieldUsage, usage)

    def flush(self, tag: int, value: bytes) -> FlushReport:
        """Flushes everything cached under one namespace field."""
        struct, keep = new_field(tag, value)
        report = new(_abi.pkv_flush_report)
        with self._live as pointer:
            check(lib.pkv_namespace_flush(pointer, byref(struct), byref(report)))
        del keep
        return read(FlushReport, report)

    def reset(self, force: bool = False) -> FlushReport:
        """Flushes everything cached; Busy while something is held, unless forced."""
        report, force = new(_abi.pkv_flush_report), arrays.flag("force", force)
        with self._live as pointer:
            check(lib.pkv_cache_reset(pointer, force, byref(report)))
        return read(FlushReport, report)

    # ---- tiers

    def prefetch(self, token_ids: Any, token_extra: Any = None, max_cached: Optional[int] = None,
                 options: Optional[Options] = None, bidirectional: Any = None,
                 now_ns: int = 0) -> Ticket:
        """Begins to bring the blocks of a prompt from the tiers into the cache: what a sequence
        with these options could adopt. now_ns is the caller's clock, for `tickets`."""
        prompt, keep = fill_prompt(token_ids, token_extra, bidirectional)
        fields, kept = fill_options(options)
        handle, now = _abi.pkv_ticket(), arrays.count("now_ns", now_ns, 0, U64)
        with self._live as pointer:
            check(lib.pkv_tier_prefetch(pointer, reference(fields), byref(prompt),
                                        _max_cached(max_cached, prompt), now, byref(handle)))
        del keep, kept
        return Ticket(self, handle)

    def store_prefix(self, token_ids: Any, token_extra: Any = None,
                     options: Optional[Options] = None, bidirectional: Any = None,
                     now_ns: int = 0) -> Ticket:
        """Begins to store the cached prefix of a prompt in all tiers; NotFound when nothing of it
        is cached."""
        prompt, keep = fill_prompt(token_ids, token_extra, bidirectional)
        fields, kept = fill_options(options)
        handle, now = _abi.pkv_ticket(), arrays.count("now_ns", now_ns, 0, U64)
        with self._live as pointer:
            check(lib.pkv_tier_store(pointer, reference(fields), byref(prompt), now,
                                     byref(handle)))
        del keep, kept
        return Ticket(self, handle)

    def poll_tiers(self) -> int:
        """Lets what was read and written take effect, between steps; gives how many tickets are
        done since the last time."""
        number = c_int32()
        with self._live as pointer:
            check(lib.pkv_tier_poll(pointer, byref(number)))
        return number.value

    def work_tiers(self, timeout: Optional[float] = 0.0) -> int:
        """Reads or writes a piece of what is waiting, for a server without num_tier_threads; gives
        the blocks moved. It waits for work timeout seconds at most, None = as long as it takes;
        Busy when the cache is closed and nothing is left."""
        number, nothing = c_int32(), object()

        def work(pointer, ns):
            status = lib.pkv_tier_work(pointer, ns, byref(number))
            return status if status != _abi.PKV_OK or number.value else nothing
        self._live.wait(timeout, work, nothing)
        return number.value

    def flush_tiers(self, timeout: Optional[float] = None) -> bool:
        """Works and polls until every store, prefetch and flush is through or has failed, timeout
        seconds at most, None = as long as it takes. False when the time is over."""
        return self._live.wait(timeout, lambda pointer, ns: lib.pkv_tier_flush(pointer, ns, None),
                               _abi.PKV_BUSY)

    def tickets(self, begun_until_ns: int = U64) -> List[Ticket]:
        """The open tickets that were begun at or before a time. They are not closed when this list
        is dropped."""
        until, number, room = arrays.count("begun_until_ns", begun_until_ns, 0, U64), c_int32(), 0
        with self._live as pointer:
            while True:
                handles = (_abi.pkv_ticket * max(1, room))()
                check(lib.pkv_ticket_list(pointer, until, byref(handles), room, byref(number)))
                if number.value <= room:
                    break
                room = number.value
        return [Ticket(self, _abi.pkv_ticket(handles[i].id), is_owner=False)
                for i in range(number.value)]

    def tier_stats(self, tier: int = 0) -> TierStats:
        """The counters of one tier, by its index in CacheConfig.tiers."""
        stats = new(_abi.pkv_tier_stats)
        with self._live as pointer:
            check(lib.pkv_tier_read_stats(pointer, arrays.count("tier", tier), byref(stats)))
        return read(TierStats, stats)

    # ---- what it tells about itself

    def stats(self) -> Stats:
        """The counters."""
        stats = new(_abi.pkv_stats)
        with self._live as pointer:
            check(lib.pkv_cache_stats(pointer, byref(stats)))
        return read(Stats, stats)

    def metrics(self) -> str:
        """The counters in the Prometheus text format."""
        return metrics([self])

    def blocks(self) -> Tuple[List[BlockInfo], int]:
        """(a BlockInfo for each block of every paged group, the number of the first event that may
        be missing from it)."""
        found, following = [], c_uint64()

        def visit(_, info):
            found.append(_copied(_abi.pkv_block_info, info))
            return True
        callback = _VISIT_BLOCK(visit)
        with self._live as pointer:
            check(lib.pkv_cache_visit(pointer, ctypes.cast(callback, c_void_p), None,
                                      byref(following)))
        return [read(BlockInfo, b, state=name_in(BLOCK_STATES, b.state), key=key_of(b.key),
                     parent_key=key_of(b.parent_key), namespace_key=key_of(b.namespace_key))
                for b in found], following.value

    def events(self, max_events: int = 1024,
               tokens: bool = False) -> Tuple[List[Event], int]:
        """Takes the oldest events: (a list of Event, how many were lost before them). With tokens
        each has those of its block (config.event_tokens)."""
        limit = arrays.count("max_events", max_events, 0, 2**20)
        events, number, lost = (_abi.pkv_event * max(1, limit))(), c_int32(), c_uint64()
        size = sizeof(_abi.pkv_event)
        ids = extra = None
        with self._live as pointer:
            if arrays.flag("tokens", tokens):
                block_size = min(group.block_size for group in self.config.groups
                                 if group.kind == "attention")
                ids = np.zeros((max(1, limit), block_size), np.int32)
                extra = np.zeros(ids.shape, np.uint64)
                check(lib.pkv_events_drain_tokens(pointer, byref(events), size, limit,
                                                  ids.ctypes.data, extra.ctypes.data, byref(number),
                                                  byref(lost)))
            else:
                check(lib.pkv_events_drain(pointer, byref(events), size, limit, byref(number),
                                           byref(lost)))
        return [_event(events[i], ids, extra, i) for i in range(number.value)], lost.value


def metrics(caches: Iterable[Cache]) -> str:
    """The counters of several caches of a process in one Prometheus text; if there are several,
    each has a metrics_label of its own."""
    parts = []

    def write(_, text, size):
        parts.append(ctypes.string_at(text, size))
        return True
    callback = _WRITE(write)
    with contextlib.ExitStack() as stack:
        found = []
        for cache in caches:
            if not isinstance(cache, Cache):
                raise TypeError(f"a {type(cache).__name__} is no Cache")
            found.append(stack.enter_context(cache._live).value)
        pointers = (c_void_p * max(1, len(found)))(*found)
        check(lib.pkv_metrics_write_caches(byref(pointers), len(found),
                                           ctypes.cast(callback, c_void_p), None))
    return b"".join(parts).decode()


def _event(event, ids, extra, i):
    return read(Event, event, kind=name_in(EVENT_KINDS, event.kind), key=key_of(event.key),
                reason=name_in(EVENT_REASONS, event.reason), parent_key=key_of(event.parent_key),
                namespace_key=key_of(event.namespace_key),
                token_ids=None if ids is None else ids[i].copy(),
                token_extra=None if extra is None else extra[i].copy())


def _max_cached(max_cached, prompt):
    return prompt.num_tokens if max_cached is None else arrays.count("max_cached", max_cached)


def _logger(lines):
    @_LOG
    def log(_, level, line):
        lines.append(line.decode("utf-8", "replace"))
    return log


class Sequence:
    """The cache's side of one request; Cache.sequence makes it. Leaving a `with` destroys it.

    A sequence that is dropped without that is destroyed by the next call on its cache.
    """

    def __init__(self, cache, handle):
        self._cache, self._handle = cache, handle
        self._alive = True

    @property
    def id(self) -> int:
        """The handle as a number, for logs."""
        return self._handle.id

    @property
    def length(self) -> int:
        """Committed tokens."""
        length = c_int32()
        with self._cache._live as pointer:
            check(lib.pkv_seq_length(pointer, self._handle, byref(length)))
        return length.value

    def info(self) -> SequenceInfo:
        """The sequence as it is at the moment."""
        info = new(_abi.pkv_seq_info)
        with self._cache._live as pointer:
            check(lib.pkv_seq_describe(pointer, self._handle, byref(info), None))
        return read(SequenceInfo, info, id=self.id)

    def admit(self, token_ids: Any, token_extra: Any = None, reserve_tokens: int = 0,
              max_cached: Optional[int] = None, bidirectional: Any = None) -> Admission:
        """Adopts the longest cached prefix of a prompt, and promises blocks for the rest and for
        reserve_tokens more. NoBlocks and NeverFits carry a shortage."""
        prompt, keep = fill_prompt(token_ids, token_extra, bidirectional)
        admission, shortage = new(_abi.pkv_admission), new(_abi.pkv_shortage)
        reserve = arrays.count("reserve_tokens", reserve_tokens)
        with self._cache._live as pointer:
            check(lib.pkv_seq_admit(pointer, self._handle, byref(prompt), reserve,
                                    _max_cached(max_cached, prompt), byref(admission),
                                    byref(shortage)), shortage)
        del keep
        return read(Admission, admission)

    def wait_free(self, shortage: Shortage, timeout: Optional[float] = None) -> bool:
        """Waits until what an admission lacked (error.shortage) has come free, timeout seconds at
        most, None = as long as it takes, 0 = only looks. False when the time is over."""
        struct = new(_abi.pkv_shortage)
        for name in ("row", "group", "need", "free", "evictable", "quota", "max_tokens"):
            setattr(struct, name, getattr(shortage, name))
        return self._cache._live.wait(timeout, lambda pointer, ns: lib.pkv_wait_free(
            pointer, self._handle, byref(struct), ns), _abi.PKV_NO_BLOCKS)

    def fork(self, n: int = 1, at: Optional[int] = None) -> List["Sequence"]:
        """n sequences that share the first `at` tokens, None = all; nothing is copied."""
        n = arrays.count("n", n, 0, 2**24)
        handles = (_abi.pkv_seq * max(1, n))()
        with self._cache._live as pointer:
            at = self.length if at is None else arrays.count("at", at)
            check(lib.pkv_seq_fork(pointer, self._handle, at, n, byref(handles)))
        return [Sequence(self._cache, _abi.pkv_seq(handles[i].id)) for i in range(n)]

    def truncate(self, length: int) -> None:
        """Shortens it to its first tokens: after rejected drafts, or with 0 to preempt it."""
        with self._cache._live as pointer:
            check(lib.pkv_seq_truncate(pointer, self._handle, arrays.count("length", length)))

    def swap_out(self) -> None:
        """Moves its keys, values and states to swap memory (CacheConfig.swap_bytes) and releases
        its blocks. NoBlocks and NeverFits, when the swap memory is full, carry a shortage in
        units."""
        self._swap(lib.pkv_seq_swap_out)

    def swap_in(self) -> None:
        """Brings it back. NoBlocks and NeverFits carry a shortage, for which wait_free waits."""
        self._swap(lib.pkv_seq_swap_in)

    def _swap(self, function):
        shortage = new(_abi.pkv_shortage)
        with self._cache._live as pointer:
            check(function(pointer, self._handle, byref(shortage)), shortage)

    def table(self, group: int = 0) -> Any:
        """Its block table of one group, int32, -1 where a window has released a block."""
        number, group = c_int32(), arrays.count("group", group)
        room = self.info().num_blocks + 1
        with self._cache._live as pointer:
            while True:
                entries = np.zeros(room, np.int32)
                check(lib.pkv_seq_table(pointer, self._handle, group, entries.ctypes.data, room,
                                        byref(number)))
                if number.value <= room:
                    return entries[:number.value].copy()
                room = number.value

    def destroy(self) -> None:
        """Ends it; a second time does nothing."""
        if self._alive:
            self._alive = False
            try:
                with self._cache._live as pointer:
                    check(lib.pkv_seq_destroy(pointer, self._handle))
            except StaleHandle:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()

    def __del__(self):
        if getattr(self, "_alive", False):
            self._cache._live.dropped.append((lib.pkv_seq_destroy, self._handle))

    def __repr__(self):
        return f"<pagedkv.Sequence {self.id:#x}>"


class Pin:
    """A pinned prefix of num_tokens tokens: it stays cached until the pin's time is up or unpin.
    Leaving a `with` unpins; a pin that is dropped stays."""

    def __init__(self, cache, handle, num_tokens):
        self._cache, self._handle = cache, handle
        self.num_tokens = num_tokens

    def refresh(self, ttl_ns: int = 0, now_ns: int = 0) -> None:
        """Gives it a new end, now_ns + ttl_ns; ttl_ns 0 = only by unpin."""
        ttl, now = arrays.count("ttl_ns", ttl_ns, 0, U64), arrays.count("now_ns", now_ns, 0, U64)
        with self._cache._live as pointer:
            check(lib.pkv_prefix_refresh(pointer, self._handle, ttl, now))

    def unpin(self) -> None:
        """Ends it; StaleHandle when it has ended before."""
        with self._cache._live as pointer:
            check(lib.pkv_prefix_unpin(pointer, self._handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.unpin()
        except StaleHandle:
            pass
