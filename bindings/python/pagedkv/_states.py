# SPDX-License-Identifier: MIT
"""A state group's part of a step: where recurrent layers read and write their states."""
import ctypes
from typing import Any

import numpy as np

from . import _arrays as arrays


class StateView:
    """A state group's part of an open step (struct pkv_state_view); Step.describe_states makes it.

    Row i begins with state reads[i], goes over its tokens [cu_seqlens_q[i], cu_seqlens_q[i + 1]),
    and stores what it has after token t in state writes[t] wherever that is not -1: always for its
    last token. Token t of a tree of drafts goes on with the state that was stored after its parent.

        states = step.describe_states(group)
        for layer in the layers of the group:
            for i in range(states.num_rows):
                s = states.read(layer, i).copy()
                for t in range(*states.cu_seqlens_q[i:i + 2]):
                    s = ...
                    if states.writes[t] >= 0:
                        states.write(layer, t)[:] = s

    cu_seqlens_q, reads, writes and parents are copies, which stay valid. The arrays of read and
    write are the cache's own memory: after commit or abort they are another sequence's, and must be
    neither read nor written. They never dangle: a cache that is destroyed keeps its memory until
    the last of them is gone, and refuses with Busy to be destroyed before unless that is forced.
    """

    def __init__(self, num_rows, num_tokens, cu_seqlens_q, reads, writes, state_bytes, parents,
                 layers, memory, live):
        self.num_rows, self.num_tokens, self.cu_seqlens_q = num_rows, num_tokens, cu_seqlens_q
        self.reads, self.writes, self.state_bytes = reads, writes, state_bytes
        self.parents = parents
        self._layers, self._memory, self._live = layers, memory, live
        self._reads, self._writes = reads.tolist(), writes.tolist()

    def read(self, layer: int, row: int, dtype: Any = np.uint8) -> Any:
        """The state that a row begins with: a read-only array of state_bytes bytes. layer is that
        of the model."""
        row = arrays.count("row", row, 0, self.num_rows - 1)
        return self._state(layer, self._reads[row], dtype, False)

    def write(self, layer: int, token: int, dtype: Any = np.uint8) -> Any:
        """Where the state after a token is stored: an array of state_bytes bytes, which may be
        that of read; ValueError where writes has -1."""
        state = self._writes[arrays.count("token", token, 0, self.num_tokens - 1)]
        if state < 0:
            raise ValueError(f"no state is stored after token {token}")
        return self._state(layer, state, dtype, True)

    def _state(self, layer, state, dtype, writable):
        layer = arrays.count("layer", layer)
        if layer not in self._layers:
            raise ValueError(f"layer {layer} is not of this group, which has {self._layers}")
        dtype = np.dtype(dtype)
        if dtype.hasobject or not dtype.itemsize or self.state_bytes % dtype.itemsize:
            raise ValueError(f"dtype {dtype}: a state has {self.state_bytes} bytes")
        first, layer_stride, state_stride = self._memory
        address = first + self._layers.index(layer) * layer_stride + state * state_stride
        memory = (ctypes.c_ubyte * self.state_bytes).from_address(address)
        memory.hold = self._live.hold()
        return np.frombuffer(memory if writable else memoryview(memory).toreadonly(), dtype)
