# SPDX-License-Identifier: MIT
"""What the tests share: a naive attention in float64, bits of bfloat16 and e4m3, golden vectors."""
import os
import unittest
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
VECTORS = Path(os.environ.get("PKV_VECTORS", ROOT / "tests" / "vectors"))

#: The tolerances of docs/operator.md, Numerics, for inputs of unit scale.
TOLERANCE = {"float32": 2e-5, "float16": 1e-3, "bfloat16": 8e-3, "uint16": 8e-3}


def to_bf16(x):
    """float32 -> the bits of bfloat16, rounded to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)


def from_bf16(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def as_float(x):
    """Any float array as float64; uint16 are bits of bfloat16."""
    x = np.asarray(x)
    return (from_bf16(x) if x.dtype == np.uint16 else x).astype(np.float64)


def stored(x, dtype):
    """float values in a dtype of activations."""
    return to_bf16(x) if dtype == "uint16" else np.asarray(x).astype(dtype)


def naive_row(q, k, v, window=0, scale=None):
    """Causal attention of the last len(q) positions: q [n][heads][D], k, v [L][kv_heads][D]."""
    q, k, v = as_float(q), as_float(k), as_float(v)
    n, heads, width = q.shape
    group = heads // k.shape[1]
    out = np.zeros((n, heads, v.shape[2]))
    scale = width ** -0.5 if scale is None else scale
    for i in range(n):
        last = len(k) - n + i
        first = max(0, last - window + 1) if window else 0
        for h in range(heads):
            x = k[first:last + 1, h // group] @ q[i, h] * scale
            p = np.exp(x - x.max())
            out[i, h] = p @ v[first:last + 1, h // group] / p.sum()
    return out


class Case(unittest.TestCase):
    """Comparisons that say by how much they fail."""

    def near(self, got, want, tolerance):
        got, want = as_float(got), np.asarray(want, np.float64)
        self.assertEqual(got.shape, want.shape)
        with np.errstate(invalid="ignore"):
            excess = np.abs(got - want) - tolerance * (1 + np.abs(want))
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        bad = ~same & ~(excess <= 0)
        self.assertFalse(bad.any(), f"{bad.sum()} of {bad.size} differ, e.g. "
                         f"{got[bad][:3]} instead of {want[bad][:3]}")


# ---- golden vectors ----------------------------------------------------------------------------

def _store_e4m3(x):
    return np.asarray(x).astype(np.uint8)


_STORES = {
    "f32": lambda x: x.astype(np.float32), "f16": lambda x: x.astype(np.float16), "bf16": to_bf16,
    "int8": lambda x: x.astype(np.int8), "e4m3": _store_e4m3, "bool": lambda x: x != 0,
    "i32": lambda x: x.astype(np.int32), "i64": lambda x: x.astype(np.int64),
    "f64": lambda x: x,
}


def read_vector(path):
    """({key: text}, {tensor: array in its dtype, bfloat16 as uint16 and e4m3 as uint8})"""
    values, tensors = {}, {}
    with open(path) as file:
        assert next(file).strip() == "pkv-vector 1", path
        for line in file:
            words = line.split()
            if words[0] == "end":
                return values, tensors
            if words[0] != "tensor":
                values[words[0]] = " ".join(words[1:])
                continue
            name, dtype, shape = words[1], words[2], [int(n) for n in words[4:]]
            numbers = np.array([float(n) for n in next(file).split()], np.float64)
            tensors[name] = _STORES[dtype](numbers.reshape(shape))
    raise AssertionError(f"{path} has no line `end`")
