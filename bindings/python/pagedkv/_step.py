# SPDX-License-Identifier: MIT
"""Steps of a managed cache: one forward pass over a batch of sequences."""
import ctypes
import threading
from ctypes import byref
from typing import Any, Iterable, List

import numpy as np

from . import _abi, _arrays as arrays
from ._config import U64, take_extra
from ._errors import StaleHandle
from ._library import check, lib, new, read_shortage
from ._records import StepView, read
from ._states import StateView


def _fill_ranges(batch, ranges, num_rows, keep):
    if ranges is None:
        return
    rows = [arrays.integers(f"bidirectional[{i}]", row, np.int32).reshape(-1, 2)
            for i, row in enumerate(ranges)]
    if len(rows) != num_rows:
        raise ValueError(f"bidirectional has {len(rows)} rows, the batch has {num_rows}")
    starts = np.cumsum([0] + [len(row) for row in rows]).astype(np.int32)
    flat = np.ascontiguousarray(np.concatenate(rows + [np.zeros((0, 2), np.int32)]))
    keep += [starts, flat]
    batch.cu_bidirectional = starts.ctypes.data
    batch.bidirectional = flat.ctypes.data if flat.size else None


def _fill_batch(seqs, token_ids, q_lens, token_extra=None, position_ids=None, num_required=None,
                now_ns=0, bidirectional=None, parents=None):
    """struct pkv_batch, its q_lens and what it needs."""
    seqs = list(seqs)
    for i, seq in enumerate(seqs):
        if not isinstance(getattr(seq, "_handle", None), _abi.pkv_seq):
            raise TypeError(f"seqs[{i}] is a {type(seq).__name__}, no Sequence")
    batch = new(_abi.pkv_batch)
    handles = (_abi.pkv_seq * max(1, len(seqs)))(*[seq._handle for seq in seqs])
    lens = np.ones(len(seqs), np.int32) if q_lens is None else \
        arrays.integers("q_lens", q_lens, np.int32, (len(seqs),)).copy()
    if lens.size and lens.min() < 0:
        raise ValueError(f"q_lens[{int(lens.argmin())}] = {lens.min()}, negative")
    total = arrays.count("the sum of q_lens", int(lens.astype(np.int64).sum()))
    ids = arrays.integers("token_ids", token_ids, np.int32, (total,))
    keep = [seqs, handles, lens, ids]
    batch.seqs, batch.q_lens = ctypes.cast(handles, ctypes.c_void_p), lens.ctypes.data
    batch.num_rows, batch.token_ids = len(seqs), ids.ctypes.data
    batch.num_required_rows = len(seqs) if num_required is None else \
        arrays.count("num_required", num_required, 0, len(seqs))
    batch.token_extra = take_extra(token_extra, total, keep)
    batch.now_ns = arrays.count("now_ns", now_ns, 0, U64)
    if position_ids is not None:
        positions = arrays.integers("position_ids", position_ids, np.int64, (total,))
        keep.append(positions)
        batch.position_ids = positions.ctypes.data
    if parents is not None:
        tree = arrays.integers("parents", parents, np.int32, (total,))
        keep.append(tree)
        batch.parents = tree.ctypes.data
    _fill_ranges(batch, bidirectional, len(seqs), keep)
    return batch, lens, keep


def _check_batch(status, shortage):
    """Every refusal of a batch says its row."""
    try:
        check(status, shortage)
    except (ValueError, StaleHandle) as error:
        error.shortage = read_shortage(shortage)
        raise


def step_fits(cache, seqs, token_ids, q_lens, **others):
    batch, _, keep = _fill_batch(seqs, token_ids, q_lens, **others)
    shortage = new(_abi.pkv_shortage)
    with cache._live as pointer:
        _check_batch(lib.pkv_step_fits(pointer, byref(batch), byref(shortage)), shortage)
    del keep


def _copy_of(address, dtype, *shape):
    """A numpy copy of an array of the cache; None where it is absent."""
    if not address:
        return None
    size = np.dtype(dtype).itemsize * int(np.prod(shape))
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape).copy()


class Step:
    """An open step (pagedkv/step.h); Cache.step makes it.

        with cache.step(seqs, token_ids, q_lens) as step:
            for layer in range(num_layers):
                out = step.attend(layer, q, k, v)

    Leaving the `with` commits the step, or aborts it when an exception flies out: then sequences
    are as before. Arguments beside seqs, token_ids and q_lens:

    num_required   the first so many rows join all or none, the rest as far as blocks suffice;
                   None = all. num_rows says how many joined
    token_extra, position_ids, now_ns, bidirectional, parents: as in struct pkv_batch
    """

    def __init__(self, cache: Any, seqs: Iterable[Any], token_ids: Any, q_lens: Any = None,
                 **others: Any):
        batch, lens, keep = _fill_batch(seqs, token_ids, q_lens, **others)
        self._cache, self._seqs = cache, keep[0]
        self._lock = threading.Lock()
        self._handle, shortage = _abi.pkv_step(), new(_abi.pkv_shortage)
        self._open = False
        with cache._live as pointer:
            _check_batch(lib.pkv_step_begin(pointer, byref(batch), byref(self._handle),
                                            byref(shortage)), shortage)
            self._open = True
        #: Rows that joined, and their tokens.
        self.num_rows = shortage.row
        self.num_tokens = int(lens[:self.num_rows].sum())
        #: What the first row that did not join lacked; None when all did.
        self.shortage = read_shortage(shortage) if self.num_rows < len(lens) else None

    @property
    def is_open(self) -> bool:
        """Neither committed nor aborted."""
        return self._open

    def attend(self, layer: int, q: Any, k: Any = None, v: Any = None, out: Any = None,
               return_lse: bool = False) -> Any:
        """Appends one layer's keys and values and attends.

        q    [tokens][num_heads * k_width] or [tokens][num_heads][k_width], of the cache's dtype
        k    [tokens][kv_heads * k_width] or with heads apart; None for a layer with kv_layer
        v    [tokens][kv_heads * v_width] likewise; None with v_in_k too
        out  to write to, like q with v_width; None = a new array of q's kind

        Tokens are those of the rows that joined, packed in their order; they may be strided, so q,
        k and v can be parts of one fused row. Returns out, or (out, lse) with lse float32
        [tokens][num_heads].
        """
        config = self._cache.config
        layer = arrays.count("layer", layer, 0, len(config.layers) - 1)
        heads, group = config.layers[layer].num_heads, config.groups[config.layers[layer].group]
        if group.kind == "state":
            raise ValueError(f"layer {layer} keeps states, which describe_states shows")
        io = new(_abi.pkv_layer_io)
        keep: List[Any] = []
        q_array = self._tokens(io, "q", q, heads, group.k_width, keep)
        if k is not None:
            self._tokens(io, "k", k, group.kv_heads, group.k_width, keep)
        if v is not None:
            self._tokens(io, "v", v, group.kv_heads, group.value_width, keep)
        result = out
        if out is None:
            shape = (heads * group.value_width,) if len(q_array.shape) == 2 else \
                (heads, group.value_width)
            result = arrays.empty(q_array, (self.num_tokens,) + shape)
        self._tokens(io, "out", result, heads, group.value_width, keep, writable=True)
        lse = None
        if arrays.flag("return_lse", return_lse):
            lse = arrays.empty_f32(q_array, (self.num_tokens, heads))
            array = arrays.take_packed("lse", lse, 2, ("float32",), writable=True)
            keep.append(array)
            io.lse = array.pointer
        with self._lock, self._cache._live as pointer:
            check(lib.pkv_step_attend(pointer, self._handle, layer, byref(io)))
        return (result, lse) if return_lse else result

    def _tokens(self, io, name, x, heads, width, keep, writable=False):
        array = arrays.take(name, x, (2, 3), arrays.FLOATS, writable)
        wanted = (heads * width,) if len(array.shape) == 2 else (heads, width)
        arrays.expect_shape(array, (self.num_tokens,) + wanted)
        if array.code != self._cache._dtype_code:
            raise ValueError(f"{name} has dtype {array.dtype}, the cache "
                             f"{self._cache.config.dtype}")
        keep.append(array)
        setattr(io, name, array.pointer)
        setattr(io, f"{name}_stride", arrays.token_stride(array))
        return array

    def commit(self, num_keep: Any = None) -> None:
        """Keeps the step's tokens; of row i the first num_keep[i], None = all."""
        keep = None
        if num_keep is not None:
            keep = arrays.integers("num_keep", num_keep, np.int32, (self.num_rows,))
        with self._lock, self._cache._live as pointer:
            check(lib.pkv_step_commit(pointer, self._handle,
                                      None if keep is None else keep.ctypes.data))
            self._open = False

    def commit_path(self, paths: Iterable[Any]) -> None:
        """Keeps of each row's draft tree one path: a list for each row that joined, of numbers of
        its new tokens, the first a root and each the child of the one before."""
        rows = [arrays.integers(f"paths[{i}]", path, np.int32).reshape(-1)
                for i, path in enumerate(paths)]
        if len(rows) != self.num_rows:
            raise ValueError(f"paths has {len(rows)} rows, the step has {self.num_rows}")
        keep = np.array([len(path) for path in rows], np.int32)
        flat = np.ascontiguousarray(np.concatenate(rows + [np.zeros(1, np.int32)]))
        with self._lock, self._cache._live as pointer:
            check(lib.pkv_step_commit_path(pointer, self._handle, keep.ctypes.data,
                                           flat.ctypes.data))
            self._open = False

    def abort(self) -> None:
        """Ends the step as if it had never begun; once it has ended, does nothing."""
        with self._lock:
            if not self._open:
                return
            try:
                with self._cache._live as pointer:
                    check(lib.pkv_step_abort(pointer, self._handle))
            except StaleHandle:
                pass
            self._open = False

    def describe(self, group: int = 0) -> StepView:
        """One group's part of the step in plain integers: for another kernel, or a debugger."""
        view, group = new(_abi.pkv_step_view), arrays.count("group", group)
        with self._lock, self._cache._live as pointer:
            check(lib.pkv_step_describe(pointer, self._handle, group, byref(view)))
            rows, tokens = view.num_rows, view.num_tokens
            return read(
                StepView, view, block_tables=_tables(view),
                slot_ids=_copy_of(view.slot_ids, np.int32, rows),
                cu_seqlens_q=_copy_of(view.cu_seqlens_q, np.int32, rows + 1),
                kv_lens=_copy_of(view.kv_lens, np.int32, rows),
                position_ids=_copy_of(view.position_ids, np.int64, tokens),
                parents=_copy_of(view.parents, np.int32, tokens),
                kept_prefix=_copy_of(view.kept_prefix, np.int64, rows),
                copies=_copy_of(view.copies, np.int32, view.num_copies, 3))

    def describe_states(self, group: int) -> StateView:
        """A state group's part of the step, for the program to run its layers by. From then on the
        step counts as one that has written its states: without max_rewind a row that is dropped
        loses its state (NotResident until it is cut to 0)."""
        view = new(_abi.pkv_state_view)
        config, group = self._cache.config, arrays.count("group", group)
        with self._lock, self._cache._live as pointer:
            check(lib.pkv_step_describe_states(pointer, self._handle, group, byref(view)))
            rows, tokens = view.num_rows, view.num_tokens
            return StateView(
                rows, tokens, _copy_of(view.cu_seqlens_q, np.int32, rows + 1),
                _copy_of(view.reads, np.int32, rows), _copy_of(view.writes, np.int32, tokens),
                view.state_bytes, _copy_of(view.parents, np.int32, tokens),
                [i for i, layer in enumerate(config.layers) if layer.group == group],
                (view.first_layer, view.layer_stride_bytes, view.state_stride_bytes),
                self._cache._live)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if not self._open:
            return
        if kind is not None:
            self.abort()
            return
        try:
            self.commit()
        except BaseException:
            self.abort()
            raise

    def __del__(self):
        if getattr(self, "_open", False):
            self._cache._live.dropped.append((lib.pkv_step_abort, self._handle))


def _tables(view):
    """[rows][max_blocks], -1 where nothing is mapped; None for a continuous group."""
    if not view.block_tables or view.slot_ids:
        return None
    table = np.full((view.num_rows, view.max_blocks), -1, np.int32)
    rows = _copy_of(view.table_rows, np.int32, view.num_rows)
    for i in range(view.num_rows):
        address = view.block_tables + int(rows[i]) * view.table_stride * 4
        table[i] = _copy_of(address, np.int32, view.max_blocks)
    return table
