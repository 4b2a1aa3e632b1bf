# SPDX-License-Identifier: MIT
"""Refusals of the library as exceptions, one class for each status of enum pkv_status.

Arguments that the binding itself finds wrong, before any pointer is passed on, are TypeError and
ValueError as everywhere in Python; InvalidArgument is a ValueError too.
"""
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Shortage:
    """Why a call found no room (struct pkv_shortage): what to wait for, or what to preempt."""

    row: int
    group: int
    need: int
    free: int
    evictable: int
    quota: int
    max_tokens: int


class PagedKVError(Exception):
    """A call that the library refused; nothing has changed. str() is the library's own line."""

    status = 0
    #: Filled by NoBlocks and NeverFits where the call explains its refusal.
    shortage: Optional[Shortage] = None


class InvalidArgument(PagedKVError, ValueError):
    """An argument is missing, out of range or does not go with another one."""

    status = -1


class NoMemory(PagedKVError, MemoryError):
    """The system has no memory."""

    status = -2


class NoBlocks(PagedKVError):
    """No free block, sequence, pin or namespace at the moment: waiting or preempting helps."""

    status = -3


class NeverFits(PagedKVError):
    """More than the object has in total: no waiting helps."""

    status = -4


class NotResident(PagedKVError):
    """The call needs keys that have left a sliding window."""

    status = -5


class StaleHandle(PagedKVError):
    """A sequence, step, pin or cache that has ended."""

    status = -6


class Busy(PagedKVError):
    """An open step, a copy that is under way, or a closed cache prevents the call."""

    status = -7


class Unsupported(PagedKVError, NotImplementedError):
    """A dtype, option or instruction set that this build or this processor does not have."""

    status = -8


class Corrupt(PagedKVError):
    """Saved data fails its checks."""

    status = -9


class StoppedOutput(PagedKVError):
    """PKV_IO: a callback stopped the output or the input, or a file, disk or server failed."""

    status = -10


class NotFound(PagedKVError, LookupError):
    """Nothing of that name."""

    status = -11


BY_STATUS = {c.status: c for c in (InvalidArgument, NoMemory, NoBlocks, NeverFits, NotResident,
                                   StaleHandle, Busy, Unsupported, Corrupt, StoppedOutput,
                                   NotFound)}
