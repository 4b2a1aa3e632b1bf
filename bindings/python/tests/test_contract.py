# SPDX-License-Identifier: MIT
"""The decode step, the growing cache and the parameter list: the texts' examples, and random calls
against naive attention."""
import numpy as np

import pagedkv
from support import TOLERANCE, Case, as_float, naive_row, stored

DTYPES = ("float32", "float16", "uint16")


def random(rng, shape, dtype="float32"):
    return stored(rng.standard_normal(shape).astype(np.float32), dtype)


class DecodeStep(Case):
    def example(self, query, new_key, new_value, key_cache, value_cache, heads, kv_heads):
        given = (query, new_key, new_value, key_cache, value_cache)
        arrays = [np.array(x, np.float32) for x in given]
        return pagedkv.gqa_decode_step(*arrays, num_query_heads=heads, num_kv_heads=kv_heads)

    def expect(self, step, output, keys, values):
        self.assertEqual(set(step), {"output", "new_key_cache", "new_value_cache"})
        for name, want in zip(("output", "new_key_cache", "new_value_cache"),
                              (output, keys, values)):
            self.assertEqual(step[name].dtype, np.float32)
            self.near(step[name], want, 1e-6)

    def test_equal_keys_get_equal_weights(self):
        self.expect(self.example([[[0.1, 0.2]]], [[[0.2, 0.4]]], [[[0.3, 0.6]]], [[[[0.2, 0.4]]]],
                                 [[[[0.1, 0.2]]]], 1, 1),
                    [[[0.2, 0.4]]], [[[[0.2, 0.4], [0.2, 0.4]]]], [[[[0.1, 0.2], [0.3, 0.6]]]])

    def test_a_query_of_zero_sees_the_mean(self):
        self.expect(self.example([[[0]]], [[[2]]], [[[6]]], [[[[1]]]], [[[[2]]]], 1, 1),
                    [[[4]]], [[[[1], [2]]]], [[[[2], [6]]]])

    def test_two_query_heads_share_a_kv_head(self):
        self.expect(self.example([[[0], [1]]], [[[1.09861229]]], [[[6]]], [[[[0]]]], [[[[2]]]],
                                 2, 1),
                    [[[4], [5]]], [[[[0], [1.098612]]]], [[[[2], [6]]]])

    def test_random_steps_against_naive_attention(self):
        rng = np.random.default_rng(1)
        for trial in range(60):
            dtype = DTYPES[trial % 3]
            batch, kv_heads, group = rng.integers(1, 4, 3)
            cached, width = int(rng.integers(0, 40)), int(rng.integers(1, 70))
            heads = kv_heads * group
            q = random(rng, (batch, heads, width), dtype)
            k, v = random(rng, (2, batch, kv_heads, width), dtype)
            keys, values = random(rng, (2, batch, kv_heads, cached, width), dtype)
            with self.subTest(dtype=dtype, shape=keys.shape, heads=heads):
                step = pagedkv.gqa_decode_step(q, k, v, keys, values, heads, kv_heads)
                for name, old, new in (("key", keys, k), ("value", values, v)):
                    got = step[f"new_{name}_cache"]
                    self.assertEqual(got.dtype, old.dtype)
                    want = np.concatenate([old, new[:, :, None]], axis=2)
                    self.assertEqual(got.tobytes(), want.tobytes())
                for b in range(batch):
                    want = naive_row(q[b:b + 1], step["new_key_cache"][b].transpose(1, 0, 2),
                                     step["new_value_cache"][b].transpose(1, 0, 2))
                    self.near(step["output"][b:b + 1], want, TOLERANCE[dtype])

    def test_strided_inputs_are_read_in_place(self):
        rng = np.random.default_rng(2)
        fused = random(rng, (3, 4 + 2 + 2, 8))
        q, k, v = fused[:, :4], fused[:, 4:6], fused[:, 6:]
        pages = random(rng, (2, 3, 9, 2, 8)).transpose(0, 1, 3, 2, 4)  # [tokens][heads] in memory
        got = pagedkv.gqa_decode_step(q, k, v, pages[0], pages[1], 4, 2)
        plain = [np.ascontiguousarray(x) for x in (q, k, v, pages[0], pages[1])]
        want = pagedkv.gqa_decode_step(*plain, 4, 2)
        for name in want:
            self.assertEqual(got[name].tobytes(), want[name].tobytes())


class GrowingCache(Case):
    def run_steps(self, q, k, v, cache):
        outputs = [pagedkv.cached_attention(q[:, :, t:t + 1], k[:, :, t:t + 1], v[:, :, t:t + 1],
                                            cache) for t in range(q.shape[2])]
        return np.concatenate(outputs, axis=2)

    def test_the_example_of_the_text(self):
        q, k, v = random(np.random.default_rng(0), (3, 2, 2, 3, 4))
        cache = pagedkv.KVCache()
        self.assertIsNone(cache.keys)
        self.assertIsNone(cache.values)
        outputs = self.run_steps(q, k, v, cache)
        self.assertEqual(outputs.shape, (2, 2, 3, 4))
        self.assertEqual(cache.keys.shape, (2, 2, 3, 4))
        for b in range(2):
            want = naive_row(*(x[b].transpose(1, 0, 2) for x in (q, k, v)))
            self.near(outputs[b].transpose(1, 0, 2), want, TOLERANCE["float32"])

    def test_groups_of_query_heads_prompts_and_growth(self):
        rng = np.random.default_rng(3)
        for dtype in DTYPES:
            q = random(rng, (2, 6, 40, 8), dtype)
            k, v = random(rng, (2, 2, 2, 60, 8), dtype)
            cache = pagedkv.KVCache()
            cache.append(k[:, :, :20], v[:, :, :20])
            early = cache.keys
            outputs = self.run_steps(q, k[:, :, 20:], v[:, :, 20:], cache)
            self.assertEqual(len(cache), 60)
            self.assertEqual(cache.keys.tobytes(), k.tobytes())
            self.assertEqual(cache.values.tobytes(), v.tobytes())
            self.assertEqual(early.tobytes(), k[:, :, :20].tobytes())
            for b in range(2):
                want = naive_row(*(x[b].transpose(1, 0, 2) for x in (q, k, v)))
                self.near(outputs[b].transpose(1, 0, 2), want, TOLERANCE[dtype])

    def test_what_does_not_go_with_the_cache_is_refused_and_changes_nothing(self):
        rng = np.random.default_rng(4)
        k = random(rng, (1, 2, 3, 8))
        cache = pagedkv.KVCache()
        cache.append(k, k)
        for keys, values in ((k[:, :1], k[:, :1]), (k[..., :4], k[..., :4]), (k[0], k[0]),
                             (k.astype(np.float16), k.astype(np.float16)), (k, k[:, :, :2]),
                             (k.astype(np.float64), k), (None, k), (k, [1.0])):
            with self.assertRaises((TypeError, ValueError)):
                cache.append(keys, values)
        one = k[:, :, :1]
        for q in (k, one[..., :4], random(rng, (1, 3, 1, 8)), one.astype(np.float16), None):
            with self.assertRaises((TypeError, ValueError)):
                pagedkv.cached_attention(q, one, one, cache)
        with self.assertRaises(TypeError):
            pagedkv.cached_attention(one, one, one, None)
        self.assertEqual(len(cache), 3)
        self.assertEqual(cache.keys.tobytes(), k.tobytes())


class ParameterList(Case):
    """Forms by the rank of kvcache_start; options are tested with the golden vectors."""

    def setUp(self):
        rng = np.random.default_rng(5)
        self.heads, self.kv_heads, self.width = 4, 2, 8
        self.q = random(rng, (6, 4 * 8))
        self.k, self.v = random(rng, (2, 6, 2 * 8))
        self.past = random(rng, (2, 2, 2, 5, 8))

    def call(self, *args, **others):
        return pagedkv.group_query_attention(self.q, *args, num_heads=4, kv_num_heads=2, **others)

    def expect_rows(self, out, keys, values):
        """keys, values [2][kv_heads][8][width] with the 3 new tokens of each row at the end"""
        for b in range(2):
            rows = slice(3 * b, 3 * b + 3)
            want = naive_row(self.q[rows].reshape(3, 4, 8), keys[b].transpose(1, 0, 2),
                             values[b].transpose(1, 0, 2))
            self.near(out[rows].reshape(3, 4, 8), want, TOLERANCE["float32"])

    def extended(self):
        new = [x.reshape(2, 3, 2, 8).transpose(0, 2, 1, 3) for x in (self.k, self.v)]
        return [np.concatenate([past, x], axis=2) for past, x in zip(self.past, new)]

    def test_without_a_cache(self):
        out, *present = self.call(self.k, self.v, cu_seqlens_q=[0, 3, 6])
        self.assertEqual(present, [None, None])
        for b in range(2):
            rows = slice(3 * b, 3 * b + 3)
            want = naive_row(self.q[rows].reshape(3, 4, 8), self.k[rows].reshape(3, 2, 8),
                             self.v[rows].reshape(3, 2, 8))
            self.near(out[rows].reshape(3, 4, 8), want, TOLERANCE["float32"])

    def test_extended_caches_are_new(self):
        before = self.past.copy()
        out, key, value = self.call(self.k, self.v, *self.past)
        want = self.extended()
        self.assertEqual(self.past.tobytes(), before.tobytes())
        self.assertEqual(key.tobytes(), want[0].tobytes())
        self.assertEqual(value.tobytes(), want[1].tobytes())
        self.expect_rows(out, key, value)

    def test_extended_caches_of_the_caller(self):
        room = np.zeros((2, 2, 2, 8, 8), np.float32)
        output = np.zeros_like(self.q)
        got = self.call(self.k, self.v, *self.past, out_present_key=room[0],
                        out_present_value=room[1], output=output)
        self.assertIs(got[0], output)
        self.expect_rows(output, *room)

    def test_dense_in_place_from_a_position(self):
        cache = np.zeros((2, 2, 2, 9, 8), np.float32)
        cache[:, :, :, :5] = self.past
        key, value = cache
        out, present_key, present_value = self.call(self.k, self.v, key, value, 5)
        self.assertIs(present_key, key)
        self.assertIs(present_value, value)
        self.expect_rows(out, key[:, :, :8], value[:, :, :8])

    def test_continuous_slots(self):
        cache = np.zeros((2, 3, 2, 9, 8), np.float32)
        cache[:, [2, 0], :, :5] = self.past
        out, *_ = self.call(self.k, self.v, *cache, [0, 0], slot_ids=[2, 0], cu_seqlens_k=[8, 8])
        self.expect_rows(out, *cache[:, [2, 0], :, :8])

    def test_a_block_table_and_a_read_only_attend(self):
        pages = np.zeros((2, 6, 2, 4, 8), np.float32)
        table = np.array([[5, 1], [0, 3]], np.int32)
        for side, past in zip(pages, self.past):
            for b in range(2):
                side[table[b, 0]] = past[b, :, :4]
                side[table[b, 1], :, 0] = past[b, :, 4]
        out, *_ = self.call(self.k, self.v, *pages, table, cu_seqlens_k=[8, 8])
        whole = [np.stack([np.concatenate(list(side[row]), axis=1) for row in table])
                 for side in pages]
        self.expect_rows(out, *whole)
        again, *present = self.call(None, None, *pages, table, cu_seqlens_k=[8, 8])
        self.assertEqual(present, [None, None])
        self.assertEqual(again.tobytes(), out.tobytes())
        with self.assertRaises(pagedkv.InvalidArgument):
            self.call(None, None, *pages, table, cu_seqlens_k=[8, 8], out_present_key=pages[0],
                      out_present_value=pages[1])


class Operator(Case):
    def test_every_form_in_every_kind_of_memory(self):
        rng = np.random.default_rng(6)
        for dtype in DTYPES:
            q = random(rng, (5, 4, 16), dtype)
            k, v = random(rng, (2, 5, 2, 16), dtype)
            want = naive_row(q, k, v)
            out, lse = pagedkv.attention(q, k, v, cu_seqlens_q=[0, 5], return_lse=True)
            self.near(out, want, TOLERANCE[dtype])
            self.assertEqual((lse.shape, lse.dtype), ((5, 4), np.float32))
            pages = np.zeros((2, 4, 2, 3, 16), k.dtype)
            paged = pagedkv.attention(q, k, v, form="paged", past_key=pages[0],
                                      past_value=pages[1], block_table=[[3, 1]], kv_lens=[5],
                                      cu_seqlens_q=[0, 5])
            self.assertEqual(paged.tobytes(), out.tobytes())
            nhd = np.zeros((2, 4, 3, 2, 16), k.dtype).transpose(0, 1, 3, 2, 4)
            paged = pagedkv.attention(q, k, v, form="paged", past_key=nhd[0], past_value=nhd[1],
                                      block_table=[[3, 1]], kv_lens=[5], cu_seqlens_q=[0, 5])
            self.assertEqual(paged.tobytes(), out.tobytes())
            self.assertEqual(nhd.tobytes(), pages.tobytes())

    def test_ranges_see_each_other(self):
        v = np.arange(10, dtype=np.float32).reshape(10, 1, 1)
        zero = np.zeros((10, 1, 1), np.float32)
        out = pagedkv.attention(zero, zero, v, cu_seqlens_q=[0, 10], bidirectional=[[(3, 7)]])
        self.near(out[[2, 3, 6, 7], 0, 0], [1.0, 3.0, 3.0, 3.5], 1e-6)

    def test_queries_see_selected_blocks_alone(self):
        v = np.arange(10, dtype=np.float32).reshape(10, 1, 1)
        zero = np.zeros((10, 1, 1), np.float32)
        for lists in ([[1, 3]], [[[1, 3]]]):
            out = pagedkv.attention(zero, zero, v, cu_seqlens_q=[0, 10], selected=lists,
                                    selection_size=2, selected_newest=1)
            self.near(out[[1, 2, 5, 9], 0, 0], [1.0, 2.0, 10 / 3, 5.4], 1e-6)
        with self.assertRaises(ValueError):
            pagedkv.attention(zero, zero, v, cu_seqlens_q=[0, 10], selected=[[5]],
                              selection_size=2)
        with self.assertRaises(ValueError):
            pagedkv.attention(zero, zero, v, cu_seqlens_q=[0, 10], selected=[[0], [1]],
                              selection_size=2)

    def test_ranked_blocks_are_those_whose_bounds_are_largest(self):
        keys = random(np.random.default_rng(3), (6, 2, 4, 8))
        q = random(np.random.default_rng(4), (1, 4, 8))
        bounds = np.full((6, 2, 2, 8), np.nan, np.float32)
        table = [[5, 0, 3, 2, -1, -1]]
        pagedkv.block_bounds(keys, table[0][:4], bounds)
        self.assertEqual(bounds[3, 1].tolist(), [keys[3, 1].min(0).tolist(),
                                                 keys[3, 1].max(0).tolist()])
        want = [[max((np.where(head < 0, bounds[b, h, 0], bounds[b, h, 1]) * head).sum()
                     for head in q[0, 2 * h:2 * h + 2]) for b in table[0][:4]] for h in range(2)]
        lists = pagedkv.block_rank(q, keys, bounds, max_selected=2, by_head=True, kv_lens=[17],
                                   block_table=table)
        for h in range(2):
            self.assertEqual(lists[0][h].tolist(), sorted(np.argsort(want[h])[2:].tolist()))
        (one,) = pagedkv.block_rank(q, keys, bounds, max_selected=1, kv_lens=[17],
                                    block_table=table, num_candidates=[3])
        self.assertEqual(one.tolist(), [int(np.argmax(np.max(want, 0)[:3]))])
        slots = np.ascontiguousarray(keys.reshape(2, 3, 2, 4, 8).transpose(0, 2, 1, 3, 4))
        lists = pagedkv.block_rank(q, slots.reshape(2, 2, 12, 8), bounds.reshape(2, 3, 2, 2, 8),
                                   form="continuous", slot_ids=[1], kv_lens=[12], max_selected=3,
                                   selection_size=4, num_candidates=[1])
        self.assertEqual([x.tolist() for x in lists], [[0]])

    def test_tokens_of_a_tree_see_their_ancestors(self):
        v = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
        zero = np.zeros((5, 1, 1), np.float32)
        out = pagedkv.attention(zero, zero, v, cu_seqlens_q=[0, 5], parents=[-1, 0, 0, 2, -1])
        self.near(out[:, 0, 0], [0.0, 0.5, 1.0, 5 / 3, 4.0], 1e-6)
        for parents in ([-1, 0, 0, 3, -1], [-1, 0]):
            with self.assertRaises(ValueError):
                pagedkv.attention(zero, zero, v, cu_seqlens_q=[0, 5], parents=parents)

    def test_levels_agree_and_a_destroyed_workspace_refuses(self):
        q = random(np.random.default_rng(7), (3, 2, 8))
        workspace = pagedkv.Workspace(1, "scalar")
        self.assertEqual((workspace.isa, workspace.num_threads), ("scalar", 1))
        got = pagedkv.attention(q, q, q, cu_seqlens_q=[0, 3], workspace=workspace)
        self.near(got, as_float(pagedkv.attention(q, q, q, cu_seqlens_q=[0, 3])), 1e-5)
        workspace.destroy()
        workspace.destroy()
        with self.assertRaises(ValueError):
            pagedkv.attention(q, q, q, cu_seqlens_q=[0, 3], workspace=workspace)
