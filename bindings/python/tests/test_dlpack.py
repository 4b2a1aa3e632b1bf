# SPDX-License-Identifier: MIT
"""Arrays of other libraries: DLPack capsules made here, old and versioned, and buffers."""
import array
import ctypes

import numpy as np

import pagedkv
from pagedkv import _arrays
from support import Case, to_bf16

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Old(ctypes.Structure):
    _fields_ = [("tensor", _arrays._DLTensor), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class Exporter:
    """An array of some other library: a numpy array that only DLPack shows."""

    CODES = {"f": 2, "i": 0, "u": 1}

    def __init__(self, x, versioned, code=None, device=1, flags=0, lanes=1, major=1, offset=0):
        self.x, self.versioned, self.device, self.flags = x, versioned, device, flags
        self.code = self.CODES[x.dtype.kind] if code is None else code
        self.lanes, self.major, self.offset = lanes, major, offset

    def __dlpack_device__(self):
        return self.device, 0

    def fill(self, tensor):
        x = self.x
        self.shape = (ctypes.c_int64 * x.ndim)(*x.shape)
        self.strides = (ctypes.c_int64 * x.ndim)(*(s // x.itemsize for s in x.strides))
        tensor.data, tensor.byte_offset = x.ctypes.data - self.offset, self.offset
        tensor.device_type, tensor.ndim, tensor.code = self.device, x.ndim, self.code
        tensor.bits, tensor.lanes, tensor.shape = x.itemsize * 8, self.lanes, self.shape
        tensor.strides = None if x.flags.c_contiguous else self.strides

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("max_version is unknown")
        self.managed = _arrays._DLVersioned() if self.versioned else Old()
        self.fill(self.managed.tensor)
        name = b"dltensor"
        if self.versioned:
            self.managed.major, self.managed.flags = self.major, self.flags
            name = b"dltensor_versioned"
        self.name = name        # a capsule does not copy it
        return new_capsule(ctypes.addressof(self.managed), name, None)


class DLPack(Case):
    def test_exporters_of_both_kinds(self):
        x = np.random.default_rng(1).standard_normal((3, 2, 8)).astype(np.float32)
        wide = np.zeros((3, 5, 8), np.float32)
        wide[:, 1:3] = x
        want = pagedkv.attention(x, x, x, cu_seqlens_q=[0, 3])
        for versioned in (False, True):
            for shown in (x, wide[:, 1:3]):
                for offset in (0, 8):
                    e = Exporter(shown, versioned, offset=offset)
                    got = pagedkv.attention(e, e, e, cu_seqlens_q=[0, 3])
                    self.assertEqual(got.tobytes(), want.tobytes())

    def test_bfloat16(self):
        x = to_bf16(np.ones((1, 1, 8), np.float32))
        e = Exporter(x, False, code=4)
        self.assertEqual(_arrays.borrow("x", e).dtype, "bfloat16")
        self.assertEqual(pagedkv.attention(e, e, e).tobytes(), x.tobytes())

    def test_what_cannot_be_used_is_refused_by_name(self):
        x = np.ones((1, 1, 8), np.float32)
        for bad in (Exporter(x, True, device=2), Exporter(x, True, lanes=2),
                    Exporter(x, True, major=2), Exporter(x, False, code=5),
                    Exporter(x.astype(np.float64), True), Exporter(x[0], True)):
            with self.assertRaisesRegex(ValueError, "key"):
                pagedkv.attention(x, bad, x)
        with self.assertRaisesRegex(ValueError, "out is read-only"):
            pagedkv.attention(x, x, x, out=Exporter(x, True, flags=1))
        pagedkv.attention(Exporter(x, True, flags=1), x, x)

    def test_exporters_that_fail(self):
        class Failing:
            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, **_):
                raise RuntimeError("no")

        class Strange(Failing):
            def __dlpack__(self, **_):
                return 5

        class Lost(Failing):
            def __dlpack_device__(self):
                raise RuntimeError("nowhere")
        x = np.ones((1, 1, 8), np.float32)
        for bad in (Failing(), Strange(), Lost()):
            with self.assertRaisesRegex(ValueError, "value"):
                pagedkv.attention(x, x, bad)

    def test_buffers(self):
        raw = array.array("f", [1.0] * 8)
        shaped = memoryview(raw).cast("B").cast("f", (1, 1, 8))
        out = pagedkv.attention(shaped, shaped, shaped)
        self.assertEqual(out.tolist(), [[[1.0] * 8]])
        target = memoryview(array.array("f", [0.0] * 8)).cast("B").cast("f", (1, 1, 8))
        self.assertIs(pagedkv.attention(shaped, shaped, shaped, out=target), target)
        self.assertEqual(target[0, 0, 7], 1.0)
        with self.assertRaisesRegex(ValueError, "out is read-only"):
            pagedkv.attention(shaped, shaped, shaped,
                              out=memoryview(bytes(32)).cast("f", (1, 1, 8)))
