# SPDX-License-Identifier: MIT
"""torch tensors, in place and without copies. Skipped where torch is not installed."""
import unittest

import numpy as np

import pagedkv
from support import TOLERANCE, Case, naive_row

try:
    import torch
except ImportError:
    torch = None


@unittest.skipUnless(torch, "torch is not installed (Debian: python3-torch)")
class Torch(Case):
    def setUp(self):
        torch.manual_seed(1)

    def dtypes(self):
        return (torch.float32, "float32"), (torch.float16, "float16"), (torch.bfloat16, "bfloat16")

    def test_decode_step_keeps_kind_and_dtype(self):
        for dtype, name in self.dtypes():
            q, k, v = (torch.randn(2, n, 16).to(dtype) for n in (4, 2, 2))
            keys, values = torch.randn(2, 2, 2, 7, 16).to(dtype)
            step = pagedkv.gqa_decode_step(q, k, v, keys, values, 4, 2)
            for array in step.values():
                self.assertIsInstance(array, torch.Tensor)
                self.assertEqual(array.dtype, dtype)
            self.assertTrue(torch.equal(step["new_key_cache"],
                                        torch.cat([keys, k[:, :, None]], dim=2)))
            for b in range(2):
                rows = [x.float().numpy() for x in (q[b:b + 1],
                                                    step["new_key_cache"][b].transpose(0, 1),
                                                    step["new_value_cache"][b].transpose(0, 1))]
                self.near(step["output"][b:b + 1].float().numpy(), naive_row(*rows),
                          TOLERANCE[name])

    def test_the_growing_cache_of_the_text(self):
        q, k, v = [torch.randn(2, 2, 3, 4) for _ in range(3)]
        cache = pagedkv.KVCache()
        with torch.no_grad():
            outputs = [pagedkv.cached_attention(q[:, :, t:t + 1], k[:, :, t:t + 1],
                                                v[:, :, t:t + 1], cache) for t in range(3)]
        got = torch.cat(outputs, dim=2)
        self.assertEqual(got.shape, (2, 2, 3, 4))
        self.assertTrue(torch.equal(cache.keys, k))
        scores = q @ k.transpose(-2, -1) * 4 ** -0.5
        hidden = torch.triu(torch.full((3, 3), float("-inf")), 1)
        self.near(got.numpy(), ((scores + hidden).softmax(-1) @ v).numpy(), 1e-5)

    def test_pages_are_written_in_place_and_out_is_the_callers(self):
        pages = torch.zeros(2, 4, 1, 16, 8, dtype=torch.bfloat16)
        token = torch.randn(1, 1, 8).to(torch.bfloat16)
        out = torch.zeros(1, 2, 8, dtype=torch.bfloat16)
        got, lse = pagedkv.attention(
            token.expand(1, 1, 8).repeat(1, 2, 1), token, token, form="paged", past_key=pages[0],
            past_value=pages[1], block_table=torch.tensor([[2]], dtype=torch.int32),
            kv_lens=torch.tensor([1]), out=out, return_lse=True)
        self.assertIs(got, out)
        self.assertEqual(lse.dtype, torch.float32)
        self.assertTrue(torch.equal(pages[0, 2, 0, 0], token[0, 0]))
        self.assertTrue(torch.equal(out[0, 1], token[0, 0]))

    def test_bool_masks_and_the_parameter_list(self):
        q = torch.randn(3, 8)
        mask = torch.tensor([[True, False, True]] * 3)[None, None]
        got, *_ = pagedkv.group_query_attention(q, q, q, attn_mask=mask, is_causal=False,
                                                num_heads=1, kv_num_heads=1)
        scores = (q @ q.T * 8 ** -0.5).masked_fill(~mask[0, 0], float("-inf"))
        self.near(got.numpy(), (scores.softmax(-1) @ q).numpy(), 1e-5)

    def test_steps_of_a_managed_cache(self):
        group = pagedkv.Group(kv_heads=1, k_width=8, num_blocks=4, k_dtype=torch.bfloat16)
        with pagedkv.Cache([group], [pagedkv.Layer(2)], max_seqs=1, max_seq_len=16,
                           max_step_tokens=4, dtype=torch.bfloat16) as cache:
            seq = cache.sequence()
            fused = torch.randn(3, 4, 8).to(torch.bfloat16)
            with cache.step([seq], torch.tensor([1, 2, 3]), [3]) as step:
                out = step.attend(0, fused[:, :2], fused[:, 2:3], fused[:, 3:])
            want = naive_row(*(x.float().numpy() for x in (fused[:, :2], fused[:, 2:3],
                                                           fused[:, 3:])))
            self.assertEqual((out.dtype, out.shape), (torch.bfloat16, (3, 2, 8)))
            self.near(out.float().numpy(), want, TOLERANCE["bfloat16"])

    def test_tensors_that_cannot_be_read_as_they_lie(self):
        x = torch.randn(1, 1, 8)
        bad = [torch.randn(1, 1, 8, requires_grad=True), x.to("meta"), x.to_sparse(),
               x.to(torch.complex64), x.double(), x.int(), x.expand(4, 1, 8)[:, :, ::2]]
        for tensor in bad:
            with self.assertRaisesRegex(ValueError, "query"):
                pagedkv.attention(tensor, x, x)
        with torch.no_grad():
            pagedkv.attention(bad[0], x, x)

    def test_numpy_and_torch_mix_and_the_query_decides(self):
        x = torch.randn(1, 1, 8)
        self.assertIsInstance(pagedkv.attention(x.numpy(), x, x), np.ndarray)
        self.assertIsInstance(pagedkv.attention(x, x.numpy(), x.numpy()), torch.Tensor)
