# SPDX-License-Identifier: MIT
"""Finds and loads the shared library, and calls it.

ctypes.CDLL releases the interpreter's lock during every call, so other threads run while attention
does; the text of the last error is the calling thread's own.
"""
import ctypes
import os
from ctypes import byref, sizeof
from pathlib import Path

from . import _abi
from ._errors import BY_STATUS, PagedKVError, Shortage, Unsupported

_FULL = (_abi.PKV_VERSION_MAJOR, _abi.PKV_VERSION_MINOR)
#: What the soname carries: before 1.0.0 a minor version may change the interface.
ABI_VERSION = f"{_FULL[0]}.{_FULL[1]}" if _FULL[0] == 0 else f"{_FULL[0]}"


def _candidates():
    named = os.environ.get("PAGEDKV_LIBRARY")
    if named:
        return [named]
    soname = f"libpagedkv.so.{ABI_VERSION}"
    bundled = Path(__file__).parent / soname
    return ([str(bundled)] if bundled.exists() else []) + [soname]


def _load():
    failures = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name), name
        except OSError as error:
            failures.append(f"{name} ({error})")
    raise ImportError(
        "pagedkv finds no libpagedkv: tried " + ", ".join(failures) + ". Set PAGEDKV_LIBRARY to "
        "the file, install the library, or install this package from a clone with make and a C "
        "compiler")


def _missing(name):
    def call(*_):
        raise Unsupported(f"{name} is not in {PATH}, which is older than this package")
    return call


def _bind(library):
    """Gives every function its types; one that an older library lacks refuses when called."""
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            setattr(library, name, _missing(name))
        else:
            function.restype, function.argtypes = result, arguments


def _check_version(library):
    try:
        found = library.pkv_version().decode()
    except Unsupported:
        raise ImportError(f"{PATH} is no libpagedkv: it has no pkv_version") from None
    if found.split(".")[:len(ABI_VERSION.split("."))] != ABI_VERSION.split("."):
        raise ImportError(f"{PATH} is version {found}; this package needs {ABI_VERSION}")


lib, PATH = _load()
_bind(lib)
_check_version(lib)


def new(struct):
    """A zeroed struct that says its size, where it has a field for it."""
    value = struct()
    if struct._fields_[0][0] == "size":
        value.size = sizeof(struct)
    return value


def read_shortage(shortage):
    """struct pkv_shortage as its exception carries it; None where nothing was filled."""
    names = Shortage.__dataclass_fields__
    return Shortage(**{name: getattr(shortage, name) for name in names})


def check(status, shortage=None):
    """Raises the exception of a status; PKV_OK passes."""
    if status == _abi.PKV_OK:
        return
    text = lib.pkv_last_error().decode("utf-8", "replace")
    error = BY_STATUS.get(status, PagedKVError)(text)
    if shortage is not None and status in (_abi.PKV_NO_BLOCKS, _abi.PKV_NEVER_FITS):
        error.shortage = read_shortage(shortage)
    raise error


def reference(value):
    """byref, or None for an absent struct."""
    return None if value is None else byref(value)


def version():
    """The version of the library that is loaded, such as "0.1.0"."""
    return lib.pkv_version().decode()


def build_info():
    """One line about the library: version, compiler, instruction sets, threads, allocator."""
    return lib.pkv_build_info().decode()
