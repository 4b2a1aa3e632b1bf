# SPDX-License-Identifier: MIT
"""Arrays of callers: numpy arrays, torch tensors, and whatever else exports a buffer or DLPack.

Nothing is copied. An Array is the description of memory that the caller owns: address, dtype,
shape, strides in elements. It holds what keeps that memory alive, so it has to live as long as the
C side may read: for all calls of this package that is the call itself. Everything that would let C
read or write outside the memory described is checked here, and a refusal names the argument.
"""
import ctypes
import math
import os
import sys

import numpy as np

from . import _abi

MAX_COUNT = 2**31 - 1

#: dtype names -> enum pkv_dtype. numpy has no bfloat16 and no fp8: their bits are uint16, uint8.
DTYPES = {
    "float32": _abi.PKV_F32, "float16": _abi.PKV_F16, "bfloat16": _abi.PKV_BF16,
    "uint16": _abi.PKV_BF16, "int8": _abi.PKV_INT8, "uint8": _abi.PKV_E4M3,
    "float8_e4m3fn": _abi.PKV_E4M3,
}
_ALIASES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn"}
FLOATS = ("float32", "float16", "bfloat16", "uint16")
CACHE_TYPES = tuple(DTYPES)
_NUMPY_OF = {_abi.PKV_F32: np.float32, _abi.PKV_F16: np.float16, _abi.PKV_BF16: np.uint16,
             _abi.PKV_INT8: np.int8, _abi.PKV_E4M3: np.uint8}
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "uint16": 2, "int32": 4, "int64": 8,
          "float64": 8}


def dtype_code(name, value, allowed=CACHE_TYPES):
    """enum pkv_dtype of a dtype given by name ("bfloat16", "bf16"), numpy dtype or torch dtype."""
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        text = np.dtype(value).name
    text = text.replace("torch.", "")
    text = _ALIASES.get(text, text)
    if text not in allowed or text not in DTYPES:
        raise ValueError(f"{name} is {value!r}; it can be {', '.join(allowed)}")
    return DTYPES[text]


class Array:
    """Borrowed memory. `strides` are in elements, `kind` makes new arrays of the caller's sort."""

    __slots__ = ("name", "address", "dtype", "shape", "strides", "readonly", "like", "keep")

    def __init__(self, name, address, dtype, shape, strides, readonly, like, keep):
        self.name = name
        self.address = address
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = strides if strides is not None else packed_strides(self.shape)
        self.readonly = readonly
        self.like = like
        self.keep = keep

    @property
    def code(self):
        return DTYPES[self.dtype]

    @property
    def pointer(self):
        """NULL is "absent" in C, so memory of no element gets an address that nobody reads."""
        return self.address if math.prod(self.shape) else _NOTHING

    def is_packed(self):
        wanted = packed_strides(self.shape)
        return math.prod(self.shape) == 0 or all(
            n == 1 or have == want for n, have, want in zip(self.shape, self.strides, wanted))


_nothing = ctypes.create_string_buffer(64)
_NOTHING = ctypes.addressof(_nothing)


def packed_strides(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


# ---- numpy and buffers -------------------------------------------------------------------------

#: numpy works a dtype's name out at every look: those of plain types are kept.
_PLAIN = {np.dtype(t): (np.dtype(t).name, np.dtype(t).itemsize) for t in
          (np.float32, np.float16, np.uint16, np.int8, np.uint8, np.int32, np.int64, np.bool_)}


def _from_numpy(name, x):
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; its mask would be ignored")
    if not x.dtype.isnative:
        raise ValueError(f"{name} has dtype {x.dtype.str}, not in this machine's byte order")
    dtype, item = _PLAIN.get(x.dtype) or (x.dtype.name, x.dtype.itemsize)
    if item == 0 or any(stride % item for stride, n in zip(x.strides, x.shape) if n > 1):
        raise ValueError(f"{name} has strides {x.strides}, no multiples of its {item} bytes")
    strides = tuple(stride // item for stride in x.strides)
    return Array(name, x.ctypes.data, dtype, x.shape, strides, not x.flags.writeable, x, x)


def _from_buffer(name, x):
    try:
        x = np.asarray(memoryview(x))
    except (TypeError, ValueError, BufferError, NotImplementedError):
        raise TypeError(
            f"{name} is a {type(x).__name__}, which is no numpy array, torch tensor, buffer or "
            "DLPack exporter") from None
    return _from_numpy(name, x)


# ---- DLPack ------------------------------------------------------------------------------------

class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


class _DLVersioned(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack 1.0; the older DLManagedTensor begins with its tensor."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor),
    ]


_CPU_DEVICES = (1,)
_DL_NAMES = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64",
             (1, 8): "uint8", (1, 16): "uint16", (2, 16): "float16", (2, 32): "float32",
             (2, 64): "float64", (4, 16): "bfloat16", (6, 8): "bool", (10, 8): "float8_e4m3fn"}
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.restype, _is_capsule.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _export(name, x):
    """The capsule of an exporter. It is not consumed: when it is dropped, the exporter is told."""
    try:
        device = x.__dlpack_device__()
        device_type = int(device[0])
    except Exception as error:
        raise ValueError(f"{name} does not say its device: {error}") from None
    if device_type not in _CPU_DEVICES:
        raise ValueError(f"{name} is on device {tuple(map(int, device))}, not in memory of the CPU")
    try:
        try:
            return x.__dlpack__(max_version=(1, 0))
        except TypeError:
            return x.__dlpack__()
    except Exception as error:
        raise ValueError(f"{name} cannot be exported: {error}") from None


def _from_dlpack(name, x):
    capsule = _export(name, x)
    readonly = False
    if _is_capsule(capsule, b"dltensor_versioned"):
        managed = _DLVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise ValueError(f"{name} is exported as DLPack {managed.major}.{managed.minor}")
        readonly, tensor = bool(managed.flags & 1), managed.tensor
    elif _is_capsule(capsule, b"dltensor"):
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    else:
        raise ValueError(f"{name} exports no DLPack capsule")
    if tensor.device_type not in _CPU_DEVICES or tensor.lanes != 1 or tensor.ndim < 0:
        raise ValueError(f"{name} is no plain tensor in memory of the CPU")
    dtype = _DL_NAMES.get((tensor.code, tensor.bits), f"DLPack code {tensor.code}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    return Array(name, address, dtype, shape, strides, readonly, x, (x, capsule))


def _torch():
    return sys.modules.get("torch")


def is_torch(x):
    torch = _torch()
    return torch is not None and isinstance(x, torch.Tensor)


def _from_torch(name, x):
    """torch exports no bool, and says less when it refuses than a caller needs."""
    torch = _torch()
    if x.device.type != "cpu":
        raise ValueError(f"{name} is on {x.device}, not in memory of the CPU")
    if x.layout != torch.strided or x.is_quantized or x.is_complex():
        raise ValueError(f"{name} is no plain tensor: {x.layout}, {x.dtype}")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires a gradient, which is not computed: pass its detach() or "
                         "call under torch.no_grad()")
    plain = x.detach()
    array = _from_dlpack(name, plain.view(torch.uint8) if x.dtype == torch.bool else plain)
    if x.dtype == torch.bool:
        array.dtype = "bool"
    array.like = x
    return array


def borrow(name, x):
    """Describes any array without copying it. TypeError for what is none, ValueError for memory
    that cannot be read as it lies."""
    if x is None:
        raise TypeError(f"{name} is None, but it is needed here")
    if isinstance(x, np.ndarray):
        array = _from_numpy(name, x)
    elif is_torch(x):
        array = _from_torch(name, x)
    elif hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        array = _from_dlpack(name, x)
    else:
        array = _from_buffer(name, x)
    _check_memory(array)
    return array


def _check_memory(array):
    size = _SIZES.get(array.dtype, 1)
    if any(n < 0 or n > MAX_COUNT for n in array.shape):
        raise ValueError(f"{array.name} has shape {array.shape}, with a side above {MAX_COUNT}")
    if math.prod(array.shape) and (not array.address or array.address % size):
        raise ValueError(f"{array.name} is not aligned to its elements of {size} bytes")


# ---- what calls need of an array ---------------------------------------------------------------

def take(name, x, rank, dtypes=FLOATS, writable=False):
    """Borrows an array of a rank (or one of several) and of one of some dtypes."""
    array = borrow(name, x)
    ranks = rank if isinstance(rank, tuple) else (rank,)
    if len(array.shape) not in ranks:
        wanted = " or ".join(str(r) for r in ranks)
        raise ValueError(f"{name} has shape {array.shape}; it needs {wanted} dimensions")
    if array.dtype not in dtypes:
        raise ValueError(f"{name} has dtype {array.dtype}; it can be {', '.join(dtypes)}")
    if writable and array.readonly:
        raise ValueError(f"{name} is read-only")
    return array


def take_packed(name, x, rank, dtypes=FLOATS, writable=False):
    """The same for an array that has to be packed: row-major without gaps."""
    array = take(name, x, rank, dtypes, writable)
    if not array.is_packed():
        raise ValueError(f"{name} has shape {array.shape} and strides {array.strides}; "
                         "it has to be contiguous")
    return array


def expect_shape(array, shape):
    if array.shape != tuple(shape):
        raise ValueError(f"{array.name} has shape {array.shape}, not {tuple(shape)}")


def expect_dtype(array, other):
    if array.code != other.code:
        raise ValueError(f"{array.name} has dtype {array.dtype}, but {other.name} "
                         f"{other.dtype}")


def token_stride(array):
    """Elements between tokens of [tokens][hidden] or [tokens][heads][width], whose channels are
    adjacent; 0 = packed, as C has it."""
    shape, strides = array.shape, array.strides
    if 0 in shape:
        return 0
    inner = packed_strides(shape[1:])
    if any(n > 1 and have != want for n, have, want in zip(shape[1:], strides[1:], inner)):
        raise ValueError(f"{array.name} has shape {shape} and strides {strides}; all but the first "
                         "dimension have to be contiguous")
    hidden = math.prod(shape[1:])
    if shape[0] <= 1:
        return 0
    if strides[0] < hidden:
        raise ValueError(f"{array.name} has strides {strides}; its tokens overlap or run backwards")
    return strides[0]


def cache_strides(array):
    """(block, head, cell) strides of [blocks][kv_heads][cells][width] in elements."""
    shape, strides = array.shape, array.strides
    packed = packed_strides(shape)
    if 0 in shape:
        return tuple(max(stride, shape[3]) for stride in packed[:3])
    if shape[3] > 1 and strides[3] != 1:
        raise ValueError(f"{array.name} has strides {strides}; its channels have to be adjacent")
    found = tuple(have if n > 1 else want for n, have, want in zip(shape, strides, packed))[:3]
    if any(stride < shape[3] for stride in found):
        raise ValueError(f"{array.name} has strides {strides}; its cells overlap or run backwards")
    return found


# ---- new arrays, integers, bytes ---------------------------------------------------------------

def empty(like, shape, code=None):
    """A new array of the caller's kind: torch beside torch, else numpy."""
    if is_torch(like.like) and code in (None, like.code):
        return _torch().empty(tuple(shape), dtype=like.like.dtype)
    if isinstance(like.like, np.ndarray) and code in (None, like.code):
        return np.empty(tuple(shape), dtype=like.like.dtype)
    return np.empty(tuple(shape), dtype=_NUMPY_OF[like.code if code is None else code])


def empty_f32(like, shape):
    if is_torch(like.like):
        return _torch().empty(tuple(shape), dtype=_torch().float32)
    return np.empty(tuple(shape), dtype=np.float32)


def _wide_integers(x):
    """A list of integers of which some need all 64 bits would become floats otherwise."""
    found = np.asarray(x)
    if found.dtype.kind == "f" and isinstance(x, (list, tuple)) and x and all(
            isinstance(i, (int, np.integer)) and 0 <= i < 2**64 for i in x):
        found = np.array([int(i) for i in x], dtype=np.uint64)
    return found


def integers(name, x, dtype, shape=None):
    """A packed numpy array of integers from a list, an array or a tensor. It is the caller's own
    memory where that has the dtype already; values are checked before they are narrowed."""
    if isinstance(x, (str, bytes)) or x is None:
        raise TypeError(f"{name} is a {type(x).__name__}, no array of integers")
    if is_torch(x):
        _from_torch(name, x)
        x = x.detach()
    try:
        found = _wide_integers(x) if dtype == np.uint64 else np.asarray(x)
    except Exception as error:
        raise TypeError(f"{name} is no array of integers: {error}") from None
    if found.size == 0 and not isinstance(x, np.ndarray):
        found = found.astype(dtype)
    if found.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {found.dtype}, no integers")
    limits = np.iinfo(dtype)
    if found.size and found.dtype != dtype and (
            int(found.min()) < limits.min or int(found.max()) > limits.max):
        raise ValueError(f"{name} has an element outside [{limits.min}, {limits.max}]")
    found = np.ascontiguousarray(found, dtype=dtype).reshape(found.shape)
    if shape is not None and found.shape != tuple(shape):
        raise ValueError(f"{name} has shape {found.shape}, not {tuple(shape)}")
    return found


def count(name, value, low=0, high=MAX_COUNT):
    """An integer within a range; bool is none."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}, no integer")
    value = value.__index__()
    if not low <= value <= high:
        raise ValueError(f"{name} = {value}, outside [{low}, {high}]")
    return value


def flag(name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {value!r}, neither True nor False")
    return bool(value)


def real(name, value):
    if isinstance(value, (bool, np.bool_, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {value!r}, no number")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is no number: {error}") from None


def text(name, value):
    """A text as C reads it."""
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(f"{name} is {value!r}, no text without NUL")
    return value.encode()


def path(name, value):
    """A path as C reads it."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} is a {type(value).__name__}, no path")
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError(f"{name} is {value!r}, no path")
    return encoded


def choice(name, value, choices):
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}; it can be {', '.join(choices)}")
    return choices[value]
