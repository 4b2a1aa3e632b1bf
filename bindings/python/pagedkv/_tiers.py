# SPDX-License-Identifier: MIT
"""Tiers: where caches store full blocks and find them again, and tickets for what is under way."""
import threading
import weakref
from ctypes import byref, c_void_p
from typing import Any, Optional

from . import _abi, _arrays as arrays
from ._errors import StaleHandle
from ._library import check, lib, new
from ._records import TICKET_STATES, TicketInfo, name_in, read


class _Owner:
    """The pointer to a tier, which is destroyed when it was closed and no cache uses it any more.

    The lock is reentrant, since objects may be collected in the midst of anything."""

    def __init__(self, pointer):
        self._pointer, self._lock = pointer, threading.RLock()
        self._uses, self._closed = 0, False

    def use(self):
        with self._lock:
            if self._closed:
                raise StaleHandle("the tier was closed")
            self._uses += 1
            return TierUse(self, self._pointer)

    def release(self):
        with self._lock:
            self._uses -= 1
            self._end_unused()

    def close(self):
        with self._lock:
            self._closed = True
            self._end_unused()

    def _end_unused(self):
        if self._closed and not self._uses:
            pointer, self._pointer = self._pointer, None
            if pointer is not None:
                lib.pkv_tier_destroy(pointer)


class TierUse:
    """A tier's pointer for a cache that uses it: while this object lives, the tier does."""

    def __init__(self, owner, pointer):
        self.pointer = pointer
        # Not at the interpreter's end, where caches are left as they are, with their threads.
        weakref.finalize(self, owner.release).atexit = False


class Tier:
    """A place outside of caches that keeps full blocks (pagedkv/tier.h): DiskTier or RedisTier.

    Several caches may use one. close, or leaving a `with`, ends it as soon as none does; what it
    holds stays. CacheConfig.tiers has them, nearest first; pagedkv/offload.h says what is stored.
    """

    def __init__(self, create: Any, config: Any):
        pointer = c_void_p()
        check(create(byref(config), byref(pointer)))
        self._owner = _Owner(pointer)
        weakref.finalize(self, self._owner.close).atexit = False

    def close(self) -> None:
        """Ends it: now, or with the last cache that uses it. New caches refuse it from now on. A
        second time does nothing."""
        self._owner.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class DiskTier(Tier):
    """A tier in a directory, which exists, for any number of processes at once
    (struct pkv_disk_config): the values take at most max_bytes, and the oldest ones go.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, DiskTier(folder, 1 << 20) as tier:
    ...     print(tier)
    <pagedkv.DiskTier>
    """

    def __init__(self, path: Any, max_bytes: int, timeout_ms: int = 0, file_mode: int = 0):
        config = new(_abi.pkv_disk_config)
        config.path = arrays.path("path", path)
        config.max_bytes = arrays.count("max_bytes", max_bytes, 0, 2**64 - 1)
        config.timeout_ms = arrays.count("timeout_ms", timeout_ms)
        config.file_mode = arrays.count("file_mode", file_mode, 0, 2**32 - 1)
        super().__init__(lib.pkv_tier_create_disk, config)

    def __repr__(self):
        return "<pagedkv.DiskTier>"


class RedisTier(Tier):
    """A tier in a Redis or Valkey server, or a cluster, for machines that share what they compute
    (struct pkv_redis_config). Nothing is sent before the first use. Keys, values and password
    cross the network as they are: pagedkv/tier.h says what follows. None and 0 are the defaults of
    the library; Unsupported where that was built without hiredis."""

    def __init__(self, host: Optional[str] = None, port: int = 0, *,
                 unix_socket: Optional[str] = None, user: Optional[str] = None,
                 password: Optional[str] = None, key_prefix: Optional[str] = None,
                 database: int = 0, ttl_seconds: int = 0, connect_timeout_ms: int = 0,
                 command_timeout_ms: int = 0, min_backoff_ms: int = 0, max_backoff_ms: int = 0,
                 is_cluster: bool = False, more_nodes: Optional[str] = None,
                 use_tls: bool = False, ca_file: Optional[str] = None,
                 cert_file: Optional[str] = None, key_file: Optional[str] = None):
        config = new(_abi.pkv_redis_config)
        for name, value in dict(host=host, unix_socket=unix_socket, user=user, password=password,
                                key_prefix=key_prefix, more_nodes=more_nodes, ca_file=ca_file,
                                cert_file=cert_file, key_file=key_file).items():
            setattr(config, name, None if value is None else arrays.text(name, value))
        for name, value in dict(port=port, database=database, ttl_seconds=ttl_seconds,
                                connect_timeout_ms=connect_timeout_ms,
                                command_timeout_ms=command_timeout_ms,
                                min_backoff_ms=min_backoff_ms,
                                max_backoff_ms=max_backoff_ms).items():
            setattr(config, name, arrays.count(name, value))
        config.is_cluster = arrays.flag("is_cluster", is_cluster)
        config.use_tls = arrays.flag("use_tls", use_tls)
        super().__init__(lib.pkv_tier_create_redis, config)

    def __repr__(self):
        return "<pagedkv.RedisTier>"


class Ticket:
    """A prefetch or a store under way; Cache.prefetch and Cache.store_prefix make it. What a
    prefetch has brought is held until the ticket is closed, or a `with` is left.

    A ticket that is dropped without that is closed by the next call on its cache.
    """

    def __init__(self, cache, handle, is_owner=True):
        self._cache, self._handle = cache, handle
        self._alive = is_owner

    @property
    def id(self) -> int:
        """The handle as a number, for logs."""
        return self._handle.id

    def poll(self) -> TicketInfo:
        """Lets what was done take effect, and says how far it is."""
        info = new(_abi.pkv_ticket_info)
        with self._cache._live as pointer:
            check(lib.pkv_ticket_describe(pointer, self._handle, byref(info)))
        return _info(info)

    def wait(self, timeout: Optional[float] = None) -> Optional[TicketInfo]:
        """Waits until it is done, timeout seconds at most, None = as long as it takes; works itself
        where no other thread does. None when the time is over."""
        info = new(_abi.pkv_ticket_info)
        done = self._cache._live.wait(timeout, lambda pointer, ns: lib.pkv_ticket_wait(
            pointer, self._handle, ns, byref(info)), _abi.PKV_BUSY)
        return _info(info) if done else None

    def close(self) -> None:
        """Ends it, done or not; StaleHandle when it has ended before. A store goes on."""
        self._alive = False
        with self._cache._live as pointer:
            check(lib.pkv_ticket_close(pointer, self._handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.close()
        except StaleHandle:
            pass

    def __del__(self):
        if getattr(self, "_alive", False):
            self._cache._live.dropped.append((lib.pkv_ticket_close, self._handle))

    def __repr__(self):
        return f"<pagedkv.Ticket {self.id:#x}>"


def _info(info):
    return read(TicketInfo, info, state=name_in(TICKET_STATES, info.state),
                status=lib.pkv_status_name(info.status).decode())
