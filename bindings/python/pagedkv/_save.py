# SPDX-License-Identifier: MIT
"""Sequences to files and streams, and back (pagedkv/save.h)."""
import ctypes
import os
from ctypes import byref, c_bool, c_size_t, c_void_p

from . import _abi
from ._library import check, lib, new

_MOVE = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)


def _path_of(place):
    """A path as the library takes it; None for what is none."""
    if not isinstance(place, (str, bytes, os.PathLike)):
        return None
    name = os.fsencode(place)
    if b"\0" in name:
        raise ValueError("a path with a NUL")
    return name


def _guarded(move, raised):
    """A callback that stops at an exception, which is kept."""
    def call(_, data, size):
        try:
            move(data, size)
            return True
        except BaseException as error:  # pylint: disable=broad-except
            raised.append(error)
            return False
    return _MOVE(call)


def _write_from(to, data, size):
    """Raw streams take what they like."""
    left = memoryview(ctypes.string_at(data, size))
    while left:
        taken = to.write(left)
        if not isinstance(taken, int) or not 0 < taken <= len(left):
            raise OSError(f"the stream took {taken!r} of {len(left)} bytes")
        left = left[taken:]


def _finish(status, raised, shortage=None):
    if raised:
        raise raised[0]
    check(status, shortage)


def save(pointer, handle, to):
    """Saves to a path, or to an object with write(bytes)."""
    name = _path_of(to)
    if name is not None:
        check(lib.pkv_seq_save_file(pointer, handle, name))
        return
    if not callable(getattr(to, "write", None)):
        raise TypeError(f"a {type(to).__name__} is no path and has no write")
    raised, writer = [], new(_abi.pkv_writer)
    callback = _guarded(lambda data, size: _write_from(to, data, size), raised)
    writer.write = ctypes.cast(callback, c_void_p)
    _finish(lib.pkv_seq_save(pointer, handle, byref(writer)), raised)


def _read_to(source, data, size):
    at = 0
    while at < size:
        part = bytes(source.read(size - at) or b"")
        if not part:
            raise EOFError(f"the stream ended {size - at} bytes early")
        if len(part) > size - at:
            raise OSError(f"the stream gave {len(part)} bytes instead of {size - at}")
        ctypes.memmove(data + at, part, len(part))
        at += len(part)


def load(pointer, source):
    """Loads from a path, or from an object with read(n); the handle."""
    name, handle, shortage = _path_of(source), _abi.pkv_seq(), new(_abi.pkv_shortage)
    if name is not None:
        check(lib.pkv_seq_load_file(pointer, name, byref(handle), byref(shortage)), shortage)
        return handle
    if not callable(getattr(source, "read", None)):
        raise TypeError(f"a {type(source).__name__} is no path and has no read")
    raised, reader = [], new(_abi.pkv_reader)
    callback = _guarded(lambda data, size: _read_to(source, data, size), raised)
    reader.read = ctypes.cast(callback, c_void_p)
    _finish(lib.pkv_seq_load(pointer, byref(reader), byref(handle), byref(shortage)), raised,
            shortage)
    return handle
