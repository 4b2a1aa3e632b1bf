# SPDX-License-Identifier: MIT
"""Wrong arguments: every one in turn is replaced by values of other types, shapes, dtypes and
layouts. Each call raises TypeError, ValueError or PagedKVError, or the value was fine; nothing
crashes, and caches stay as they were."""
import array
import io
import math
import os
import tempfile

import numpy as np

import pagedkv
from support import Case


def f32(*shape):
    return np.ones(shape, np.float32)


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def odd_address():
    return np.frombuffer(bytearray(8 * 4 + 1), np.uint8)[1:].view(np.float32).reshape(1, 1, 8)


STRANGE = [
    None, True, 0, 1, -1, 7, 2**31, 2**63, 2**64, -2**70, 1.5, math.nan, math.inf, "x", "", b"x",
    bytearray(b"xy"), [], [1], [-1], [[1]], [1.5], ["x"], [None], [2**40], (1, 2), {}, {1: 2},
    set(), object(), len, int, array.array("f", [1.0]), array.array("d", [1.0]), memoryview(b"xy"),
    np.float32(1), np.int32(3), np.zeros(0, np.float32), np.zeros((0, 0, 0), np.float32),
    np.zeros((0, 2, 0, 8), np.float32), f32(8), f32(1, 8), f32(1, 1, 8), f32(1, 1, 1, 8),
    f32(1, 1, 1, 1, 8), f32(1, 1, 9), f32(2, 1, 8), np.zeros((1, 1, 8)),
    np.zeros((1, 1, 8), np.int32), np.zeros((1, 1, 8), ">f4"), np.zeros((1, 1, 8), object),
    np.zeros((1, 1, 8), "U3"), np.zeros((1, 1, 8), "M8[s]"), np.zeros((1, 1, 8), [("a", "f4")]),
    np.zeros((1, 1, 8), np.complex64), np.zeros((1, 1, 8), bool), np.zeros((1, 1, 8), np.float16),
    np.ma.masked_array(f32(1, 1, 8)), np.broadcast_to(f32(1, 1, 1), (1, 1, 8)),
    f32(1, 1, 16)[:, :, ::2], f32(1, 1, 8)[:, :, ::-1], np.asfortranarray(f32(3, 2, 8)),
    np.broadcast_to(f32(1, 1, 8), (3, 1, 8)), f32(3, 1, 8)[::-1], odd_address(),
    read_only(f32(1, 1, 8)), read_only(f32(4, 1, 4, 8)), np.lib.stride_tricks.as_strided(
        f32(64), (4, 1, 4, 8), (4, 4, 4, 4)), np.int64([3]), np.zeros((1, 1), np.int32),
    np.zeros((1, 0), np.int32), np.zeros((2, 3), np.int32), np.array(3), np.array([[2**40]]),
]


class Fuzzed(Case):
    def every_argument(self, call, good):
        """call(**good) works, and with any one argument replaced it works or refuses."""
        call(**good())
        refused = 0
        for name in good():
            for i, strange in enumerate(STRANGE):
                arguments = good()
                arguments[name] = strange
                try:
                    call(**arguments)
                except (TypeError, ValueError, pagedkv.PagedKVError) as error:
                    refused += 1
                    self.assertTrue(str(error), f"{name} = STRANGE[{i}]: no text")
                except Exception as error:
                    self.fail(f"{name} = STRANGE[{i}] {strange!r}: {error!r}")
        self.assertGreater(refused, len(good()) * len(STRANGE) // 2)


class Fuzz(Fuzzed):
    def test_decode_step(self):
        self.every_argument(pagedkv.gqa_decode_step, lambda: dict(
            query=f32(1, 1, 8), new_key=f32(1, 1, 8), new_value=f32(1, 1, 8),
            key_cache=f32(1, 1, 3, 8), value_cache=f32(1, 1, 3, 8), num_query_heads=1,
            num_kv_heads=1))

    def test_attention(self):
        self.every_argument(pagedkv.attention, lambda: dict(
            query=f32(1, 2, 8), key=f32(1, 1, 8), value=f32(1, 1, 8), form="paged",
            past_key=f32(4, 1, 4, 8), past_value=f32(4, 1, 4, 8), present_key=None,
            present_value=None, cu_seqlens_q=[0, 1], cu_seqlens_k=None, kv_lens=[5],
            block_table=[[2, 1]], slot_ids=None, sliding_window=3, kept_prefix=[1], causal=True,
            position_ids=[4], attn_mask=f32(1, 1, 1, 5), bidirectional=[[]], v_in_k=False,
            v_width=None, constants=pagedkv.Constants(rope_cos=f32(9, 2), rope_sin=f32(9, 2)),
            out=f32(1, 2, 8), return_lse=True, workspace=None))

    def test_selected_blocks(self):
        self.every_argument(pagedkv.attention, lambda: dict(
            query=f32(1, 2, 8), key=f32(1, 2, 8), value=f32(1, 2, 8), form="paged",
            past_key=f32(4, 2, 4, 8), past_value=f32(4, 2, 4, 8), kv_lens=[5],
            block_table=[[2, 1]], selected=[[[0], [0, 1]]], selection_size=4, selected_newest=1))

    def test_bounds_and_ranks(self):
        self.every_argument(pagedkv.block_bounds, lambda: dict(
            key=f32(4, 2, 4, 8), blocks=[1, 3], bounds=f32(4, 2, 2, 8), num_keys=3,
            constants=None, workspace=None))
        self.every_argument(pagedkv.block_rank, lambda: dict(
            query=f32(1, 2, 8), past_key=f32(4, 2, 4, 8), bounds=f32(4, 2, 2, 8), max_selected=2,
            form="paged", by_head=True, kv_lens=[9], block_table=[[2, 1, 0]], cu_seqlens_q=[0, 1],
            selection_size=4, selected_newest=1, num_candidates=[2], position_ids=[4],
            constants=pagedkv.Constants(rope_cos=f32(9, 2), rope_sin=f32(9, 2))))

    def test_trees_of_drafts(self):
        self.every_argument(pagedkv.attention, lambda: dict(
            query=f32(2, 2, 8), key=f32(2, 2, 8), value=f32(2, 2, 8), cu_seqlens_q=[0, 2],
            parents=[-1, -1]))

    def test_attention_of_other_forms(self):
        for form, others in (("dense", dict(kv_lens=[4])), ("continuous", dict(
                kv_lens=[4], slot_ids=[0])), ("dense_copy", dict(present_key=f32(1, 1, 5, 8),
                                                                 present_value=f32(1, 1, 5, 8)))):
            self.every_argument(pagedkv.attention, lambda: dict(
                query=f32(1, 2, 8), key=f32(1, 1, 8), value=f32(1, 1, 8), form=form,
                past_key=f32(1, 1, 4, 8), past_value=f32(1, 1, 4, 8), **others))

    def test_constants(self):
        def call(**constants):
            pagedkv.attention(f32(1, 2, 8), f32(1, 1, 8), f32(1, 1, 8),
                              constants=pagedkv.Constants(**constants))
        self.every_argument(call, lambda: dict(
            q_scale=0.5, softcap=3.0, smooth_softmax=False, head_sink=f32(2), rope_cos=f32(9, 2),
            rope_sin=f32(9, 2), rotary_offset=1, rotary_mode="interleaved", q_norm_gain=f32(8),
            k_norm_gain=f32(8), qk_norm_eps=1e-6, norm_order="before_rope", k_scale=None,
            v_scale=None))

    def test_the_parameter_list(self):
        def call(**arguments):
            pagedkv.group_query_attention(**arguments)
        self.every_argument(call, lambda: dict(
            query=f32(1, 16), key=f32(1, 8), value=f32(1, 8), past_key=f32(4, 1, 4, 8),
            past_value=f32(4, 1, 4, 8), kvcache_start=[[2, 1]], rope_cos=f32(9, 2),
            rope_sin=f32(9, 2), position_ids=[4], attn_mask=f32(1, 1, 1, 5), is_causal=True,
            q_scale=0.5, softcap=2.0, sliding_window=3, smooth_softmax=False,
            rotary_mode="half_split", num_heads=2, kv_num_heads=1, out_present_key=None,
            out_present_value=None, k_scale=None, v_scale=None, head_sink=f32(2),
            q_norm_gain=f32(8), k_norm_gain=f32(8), qk_norm_eps=1e-6, slot_ids=None,
            kept_prefix=1, cu_seqlens_q=[0, 1], cu_seqlens_k=[5], output=f32(1, 16),
            workspace=None))

    def test_workspaces(self):
        self.every_argument(pagedkv.Workspace, lambda: dict(num_threads=1, isa="scalar"))


def config(**others):
    return dict(dict(groups=[pagedkv.Group(1, 8, 4, 8)], layers=[pagedkv.Layer(2)], max_seqs=4,
                     max_seq_len=32, max_step_tokens=8, num_threads=1), **others)


class Managed(Fuzzed):
    def setUp(self):
        self.cache = pagedkv.Cache(**config(prefix_cache=True, num_events=8, max_pinned_blocks=4))
        self.addCleanup(self.check_and_destroy)

    def check_and_destroy(self):
        self.assertEqual(self.cache.check(), [])
        self.cache.destroy(force=True)

    def test_configurations(self):
        def call(**arguments):
            pagedkv.CacheConfig(**arguments).sizes()
        self.every_argument(call, lambda: config(
            max_step_rows=2, dtype="float32", bytes=0, isa="best", prefix_cache=True,
            num_index_nodes=0, max_namespaces=0, watermark_blocks=0, max_pinned_blocks=0,
            num_events=4, event_tokens=False, fingerprint=b"x", masked_hash_bits=0,
            metrics_label="x", poison_freed=False, zero_freed=False, check_tokens=False,
            no_partial_hits=False,
            min_blank_percent=0, swap_bytes=4096, swap_path=None, tiers=(), num_tier_threads=0,
            max_tickets=0, max_store_blocks=0, no_write_behind=False, required=0))

    def test_groups_and_layers(self):
        def call(num_heads, group, kv_layer, constants, **arguments):
            layer = pagedkv.Layer(num_heads, group, kv_layer, constants)
            pagedkv.CacheConfig(**config(groups=[pagedkv.Group(**arguments)],
                                         layers=[layer])).sizes()
        self.every_argument(call, lambda: dict(
            num_heads=2, group=0, kv_layer=None, constants=None, kv_heads=1, k_width=8,
            block_size=4, num_blocks=8, v_width=8, sliding_window=0, kept_prefix=0,
            k_dtype="float32", v_dtype=None, v_in_k=False, storage="paged", kind="attention",
            state_bytes=0, snapshot_interval=0, max_rewind=0, segment_tokens=0))

    def test_sequences(self):
        def call(**arguments):
            self.cache.sequence(**arguments).destroy()
        self.every_argument(call, lambda: dict(
            tag=1, kept_prefix=2, max_rewind=3, max_tokens=9, namespace={1: b"x"}, priority=1,
            no_publish=False, retention_ns=5))
        for namespace in ({1: 2}, {"a": b"x"}, {1: (b"x", -1)}, {1: (b"x", "y")}, {-1: b"x"},
                          {0: b"x"}, {1: b"x" * 129}, {i: b"" for i in range(1, 7)}, {1: "x"}):
            with self.assertRaises((TypeError, ValueError)):
                self.cache.sequence(namespace=namespace)

    def test_admissions_and_probes(self):
        seq = self.cache.sequence()

        def admit(**arguments):
            seq.truncate(0)
            seq.admit(**arguments)
        arguments = dict(token_ids=[1, 2, 3], token_extra=[0, 0, 2**63], reserve_tokens=2,
                         max_cached=3, bidirectional=[])
        self.every_argument(admit, lambda: dict(arguments))
        self.every_argument(self.cache.probe, lambda: dict(arguments, options=None))
        self.every_argument(lambda **a: seq.fork(**a), lambda: dict(n=0, at=0))
        self.every_argument(lambda **a: seq.truncate(**a), lambda: dict(length=0))
        self.every_argument(lambda **a: seq.table(**a), lambda: dict(group=0))

    def test_steps(self):
        seq = self.cache.sequence()

        def call(seqs, **arguments):
            self.cache.step_fits(seqs, **arguments)
            step = self.cache.step(seqs, **arguments)
            self.assertLessEqual(step.num_tokens, 8)
            step.abort()
        self.every_argument(call, lambda: dict(
            seqs=[seq], token_ids=[1, 2], q_lens=[2], token_extra=[0, 1], position_ids=None,
            num_required=1, now_ns=5, bidirectional=[[]], parents=[-1, -1]))

    def test_attends_and_commits(self):
        def attend(**arguments):
            seq = self.cache.sequence()
            step = self.cache.step([seq], [1, 2], [2])
            try:
                step.attend(**arguments)
            finally:
                step.abort()
                seq.destroy()
        self.every_argument(attend, lambda: dict(
            layer=0, q=f32(2, 16), k=f32(2, 8), v=f32(2, 1, 8), out=f32(2, 16), return_lse=False))
        self.assertEqual(self.cache.usage().held, 0)

    def test_keeps_a_path(self):
        def keep(**arguments):
            seq = self.cache.sequence()
            step = self.cache.step([seq], [1, 2], [2], parents=[-1, -1])
            try:
                step.attend(0, f32(2, 16), f32(2, 8), f32(2, 8))
                step.commit_path(**arguments)
                self.assertEqual((seq.length <= 1, step.is_open), (True, False))
            finally:
                step.abort()
                seq.destroy()
        self.every_argument(keep, lambda: dict(paths=[[1]]))

    def test_the_prefix_cache(self):
        self.every_argument(self.cache.pin, lambda: dict(
            token_ids=[1], token_extra=[0], ttl_ns=5, now_ns=1, options=None))
        self.every_argument(self.cache.set_priority, lambda: dict(
            token_ids=[1], priority=1, from_token=0, to_token=1, token_extra=[0], options=None))
        self.every_argument(self.cache.set_quota, lambda: dict(tag=1, value=b"x", num_blocks=3))
        self.every_argument(self.cache.flush, lambda: dict(tag=1, value=b"x"))
        self.every_argument(self.cache.events, lambda: dict(max_events=3, tokens=False))
        self.every_argument(self.cache.probe_groups, lambda: dict(
            token_ids=[1], token_extra=[0], max_cached=1, options=None))
        self.every_argument(self.cache.config.prefix_keys, lambda: dict(
            token_ids=[1] * 9, token_extra=[0] * 9, options=None))


class Tiered(Fuzzed):
    """Whatever names a file does so in a folder of the test's own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        os.mkdir("tier")
        self.tier = pagedkv.DiskTier("tier", 1 << 20)
        self.addCleanup(self.tier.close)
        self.cache = pagedkv.Cache(**config(prefix_cache=True, tiers=[self.tier]))
        self.addCleanup(self.cache.destroy, force=True)

    def test_tiers(self):
        self.every_argument(lambda **a: pagedkv.DiskTier(**a).close(), lambda: dict(
            path="tier", max_bytes=1 << 20, timeout_ms=1, file_mode=0o600))

    def test_redis_tiers(self):
        good = dict(host="127.0.0.1", port=1, unix_socket=None, user="u", password="p",
                    key_prefix="x:", database=0, ttl_seconds=1, connect_timeout_ms=1,
                    command_timeout_ms=1, min_backoff_ms=1, max_backoff_ms=1, is_cluster=False,
                    more_nodes=None, use_tls=False, ca_file=None, cert_file=None, key_file=None)
        try:
            pagedkv.RedisTier(**good).close()
        except pagedkv.Unsupported:
            self.skipTest("the library was built without hiredis")
        self.every_argument(lambda **a: pagedkv.RedisTier(**a).close(), lambda: dict(good))
        with self.assertRaises(pagedkv.Unsupported):
            pagedkv.RedisTier(use_tls=True)

    def test_configurations(self):
        def call(**arguments):
            pagedkv.CacheConfig(**config(prefix_cache=True, **arguments)).sizes()
        self.every_argument(call, lambda: dict(
            tiers=[self.tier], num_tier_threads=1, max_tickets=3, max_store_blocks=2,
            no_write_behind=True))
        for tiers in ([None], [self.tier, "x"], [object()], [self.tier] * 5, self.tier):
            with self.assertRaises((TypeError, ValueError)):
                call(tiers=tiers)

    def test_calls(self):
        self.every_argument(lambda **a: self.cache.prefetch(**a).close(), lambda: dict(
            token_ids=[1] * 9, token_extra=[0] * 9, max_cached=3, options=None,
            bidirectional=[], now_ns=5))

        def store(**arguments):
            try:
                self.cache.store_prefix(**arguments).close()
            except pagedkv.NotFound:
                pass
        self.every_argument(store, lambda: dict(
            token_ids=[1] * 9, token_extra=[0] * 9, options=None, bidirectional=[], now_ns=5))
        self.cache.flush_tiers()
        self.every_argument(self.cache.tickets, lambda: dict(begun_until_ns=5))
        self.every_argument(self.cache.tier_stats, lambda: dict(tier=0))
        for name, strange in (("flush_tiers", math.nan), ("flush_tiers", "x"),
                              ("work_tiers", True), ("work_tiers", [])):
            with self.assertRaises((TypeError, ValueError)):
                getattr(self.cache, name)(strange)
        with self.cache.prefetch([1] * 9) as ticket:
            ticket.wait()
            self.every_argument(lambda **a: ticket.wait(**a), lambda: dict(timeout=None))

    def test_saves_and_loads(self):
        seq, memory = self.cache.sequence(), io.BytesIO()
        self.cache.save(seq, memory)
        for source in STRANGE + [io.StringIO("x"), io.BytesIO(), io.BytesIO(b"x" * 9999)]:
            with self.assertRaises((TypeError, ValueError, EOFError, pagedkv.PagedKVError)):
                self.cache.load(source)
        self.every_argument(self.cache.save, lambda: dict(seq=seq, to="file"))
        whole = memory.getvalue()
        self.cache.load(io.BytesIO(whole)).destroy()
        for at in range(0, len(whole), 7):
            with self.assertRaises(EOFError):
                self.cache.load(io.BytesIO(whole[:at]))
        self.assertEqual([info.id for info in self.cache.sequences()], [seq.id])


class Names(Case):
    """A refusal says which argument, which value."""

    def test_the_last_error_of_the_library_is_the_text(self):
        with self.assertRaisesRegex(pagedkv.InvalidArgument, r"block_table\[0\]\[1\] = 91"):
            pagedkv.attention(f32(1, 1, 8), f32(1, 1, 8), f32(1, 1, 8), form="paged",
                              past_key=f32(4, 1, 4, 8), past_value=f32(4, 1, 4, 8), kv_lens=[5],
                              block_table=[[2, 91]])

    def test_the_binding_names_the_argument(self):
        good = dict(query=f32(1, 1, 8), key=f32(1, 1, 8), value=f32(1, 1, 8))
        for name in good:
            for bad in (f32(1, 8), np.zeros((1, 1, 8)), f32(1, 1, 16)[:, :, ::2]):
                with self.assertRaisesRegex(ValueError, name):
                    pagedkv.attention(**dict(good, **{name: bad}))
        with self.assertRaisesRegex(ValueError, "out is read-only"):
            pagedkv.attention(**good, out=read_only(f32(1, 1, 8)))
        with self.assertRaisesRegex(ValueError, "past_key is read-only"):
            pagedkv.attention(**good, form="dense", past_key=read_only(f32(1, 1, 4, 8)),
                              past_value=f32(1, 1, 4, 8), kv_lens=[1])

    def test_every_size_that_is_wrong_is_refused(self):
        """What would let C read or write past an array."""
        constants = dict(rope_cos=f32(9, 2), rope_sin=f32(9, 2), head_sink=f32(4),
                         q_norm_gain=f32(8), k_norm_gain=f32(8), qk_norm_eps=1e-6)
        good = dict(query=f32(3, 4, 8), key=f32(3, 2, 8), value=f32(3, 2, 8), form="paged",
                    past_key=f32(4, 2, 4, 8), past_value=f32(4, 2, 4, 8), cu_seqlens_q=[0, 1, 3],
                    kv_lens=[1, 5], block_table=[[0, -1], [1, 2]], position_ids=[0, 3, 4],
                    kept_prefix=[0, 1], attn_mask=f32(2, 4, 2, 5), out=f32(3, 4, 8),
                    bidirectional=[[], [(0, 2)]], constants=pagedkv.Constants(**constants))
        pagedkv.attention(**good)
        wrong = dict(
            query=[f32(2, 4, 8), f32(3, 3, 8), f32(3, 4, 9), f32(4, 4, 8)],
            key=[f32(2, 2, 8), f32(4, 2, 8), f32(3, 1, 8), f32(3, 2, 7), None],
            value=[f32(2, 2, 8), f32(3, 1, 8), f32(3, 2, 7), None],
            past_key=[f32(3, 2, 4, 8), f32(4, 1, 4, 8), f32(4, 2, 3, 8), f32(4, 2, 4, 7)],
            past_value=[f32(3, 2, 4, 8), f32(4, 1, 4, 8), f32(4, 2, 3, 8), f32(4, 2, 4, 7)],
            cu_seqlens_q=[[0, 3], [0, 1, 2], [0, 1, 4], [0, 1, 2, 3], [1, 2, 3], []],
            kv_lens=[[1], [1, 5, 5], [1, 9], [1, 1]],
            block_table=[[[0, 1]], [[0], [1]], [[0, -1], [1, 4]], [[0, -1], [1, -1]]],
            position_ids=[[0, 3], [0, 3, 9], [0, 3, -1]], kept_prefix=[[0, 1, 2], [0, -1]],
            attn_mask=[f32(3, 4, 2, 5), f32(2, 3, 2, 5), f32(2, 4, 1, 5), f32(2, 4, 2, 4)],
            out=[f32(2, 4, 8), f32(3, 3, 8), f32(3, 4, 7)],
            bidirectional=[[[]], [[], [(0, 6)]], [[], [(-1, 2)]], [[], [(4, 6)]]],
            constants=[pagedkv.Constants(**dict(constants, **{name: value}))
                       for name, value in (("rope_sin", f32(8, 2)), ("rope_sin", f32(9, 1)),
                                           ("head_sink", f32(3)), ("q_norm_gain", f32(7)),
                                           ("k_norm_gain", f32(9)), ("k_scale", 1.0))])
        self.refuse_each(pagedkv.attention, good, wrong)
        self.refuse_each(pagedkv.attention, dict(
            query=f32(3, 1, 8), key=f32(3, 1, 8), value=f32(3, 1, 8), cu_seqlens_q=[0, 3],
            cu_seqlens_k=[0, 3]), dict(
            key=[f32(2, 1, 8)], value=[f32(2, 1, 8)], cu_seqlens_k=[[0, 2], [0, 4], [0, -1], [0]]))

    def test_every_size_of_a_step_that_is_wrong_is_refused(self):
        with pagedkv.Cache(**config()) as cache, cache.sequence() as seq:
            self.refuse_each(
                lambda **a: cache.step([seq], **a).abort(),
                dict(token_ids=[1, 2], q_lens=[2], token_extra=[0, 0]),
                dict(token_ids=[[1], [1, 2, 3], [[1, 2]]], q_lens=[[1], [3], [1, 1], [-1], [9]],
                     token_extra=[[0], [0, 0, 0]]))
            step = cache.step([seq], [1, 2], [2])
            good = dict(layer=0, q=f32(2, 2, 8), k=f32(2, 1, 8), v=f32(2, 1, 8), out=f32(2, 2, 8))
            self.refuse_each(step.attend, good, dict(
                layer=[-1, 1], q=[f32(1, 2, 8), f32(2, 1, 8), f32(2, 8), f32(3, 16)],
                k=[f32(1, 1, 8), f32(2, 2, 8), f32(2, 7), None], v=[f32(3, 8), f32(2, 1, 7), None],
                out=[f32(1, 16), f32(2, 8), f32(2, 17)]), works=False)
            step.attend(**good)
            step.abort()

    def refuse_each(self, call, good, wrong, works=True):
        if works:
            call(**good)
        for name, values in wrong.items():
            for value in values:
                shown = getattr(value, "shape", value)
                with self.subTest(f"{name} = {shown}"), self.assertRaises((TypeError, ValueError)):
                    call(**dict(good, **{name: value}))

    def test_one_class_for_each_status(self):
        from pagedkv import _abi, _errors
        statuses = {name: value for name, value in vars(_abi).items() if value in range(-11, 0)
                    and name not in ("PKV_PRIORITY_EVICT_FIRST",)}
        self.assertEqual(len(statuses), 11)
        self.assertEqual(set(_errors.BY_STATUS), set(statuses.values()))
        for kind in _errors.BY_STATUS.values():
            self.assertTrue(issubclass(kind, pagedkv.PagedKVError))
