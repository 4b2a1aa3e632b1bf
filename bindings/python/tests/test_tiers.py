# SPDX-License-Identifier: MIT
"""What outlives a cache: blocks in tiers, tickets, saved sequences."""
import ctypes
import gc
import io
import os
import tempfile
import threading
import unittest

import pagedkv
from pagedkv import _abi, _library
from support import Case
from test_cache import BLOCK, KV_HEADS, WIDTH, make, run_step

TEXT = list(range(17))


def compute(case, cache, text=TEXT, **options):
    """A sequence with this text, whose blocks are indexed."""
    seq = cache.sequence(**options)
    run_step(case, cache, [(seq, text)], {seq.id: []})
    return seq


def cells(cache, seq, layer, num_tokens):
    """The bits of the keys and values of its first tokens, read where they lie."""
    view, group = _library.new(_abi.pkv_kv_view), cache.config.layers[layer].group
    parts = []
    with cache._live as pointer:
        _library.check(_library.lib.pkv_cache_view(pointer, layer, ctypes.byref(view)))
        for at in range(num_tokens):
            block = int(seq.table(group)[at // BLOCK])
            assert block >= 0, "it has left the window"
            for base, *strides in ((view.k, view.k_block_stride, view.k_head_stride,
                                    view.k_cell_stride),
                                   (view.v, view.v_block_stride, view.v_head_stride,
                                    view.v_cell_stride)):
                for head in range(KV_HEADS):
                    offset = block * strides[0] + head * strides[1] + at % BLOCK * strides[2]
                    parts.append(ctypes.string_at(base + 4 * offset, 4 * WIDTH))
    return b"".join(parts)


class Folder(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def tier(self):
        tier = pagedkv.DiskTier(self.folder, 1 << 22)
        self.addCleanup(tier.close)
        return tier


class Tiers(Folder):
    def test_a_second_cache_over_one_directory_hits_what_the_first_stored(self):
        with make(tiers=[self.tier()], windows=(0,)) as first:
            seq = compute(self, first)
            self.assertTrue(first.flush_tiers(20))
            stored = first.tier_stats(0)
            self.assertEqual((stored.stored_blocks, stored.failed_stores), (4, 0))
            offloaded = [e for e in first.events()[0] if e.kind == "offloaded"]
            self.assertEqual([(e.reason, e.tiers) for e in offloaded], [("store", 1)] * 4)
            want = [cells(first, seq, layer, 16) for layer in range(2)]
        with make(tiers=[self.tier()], num_tier_threads=1, windows=(0,)) as second:
            self.assertEqual(second.probe(TEXT).num_cached, 0)
            with second.prefetch(TEXT) as ticket:
                info = ticket.wait(20)
                self.assertEqual((info.state, info.status, info.num_cached, info.num_loaded),
                                 ("done", "PKV_OK", 16, 16))
                self.assertEqual(info.tier_loaded, (16, 0, 0, 0))
                seq = second.sequence()
                admission = seq.admit(TEXT)
                self.assertEqual((admission.num_cached, admission.tier_cached),
                                 (16, (16, 0, 0, 0)))
            self.assertEqual([cells(second, seq, layer, 16) for layer in range(2)], want)
            run_step(self, second, [(seq, [16])], {seq.id: TEXT[:16]})
            loaded = second.tier_stats()
            self.assertEqual((loaded.loaded_blocks, loaded.hit_tokens), (4, 16))
            self.assertIn(("onboarded", "prefetch"),
                          {(e.kind, e.reason) for e in second.events()[0]})
            self.assertEqual(second.check(), [])

    def test_a_server_works_and_polls_by_itself(self):
        with make(tiers=[self.tier()], no_write_behind=True) as cache:
            compute(self, cache).destroy()
            self.assertEqual(cache.work_tiers(), 0)
            with self.assertRaises(pagedkv.NotFound):
                cache.store_prefix([500] * 9)
            with cache.store_prefix(TEXT, now_ns=7) as ticket:
                self.assertEqual((ticket.poll().state, ticket.poll().begun_ns), ("storing", 7))
                self.assertEqual(cache.tickets(6), [])
                self.assertEqual([t.id for t in cache.tickets(7)], [ticket.id])
                self.assertEqual([t.id for t in cache.tickets()], [ticket.id])
                while cache.work_tiers():
                    pass
                self.assertEqual(cache.poll_tiers(), 1)
                info = ticket.poll()
                self.assertEqual((info.state, info.num_left), ("done", 0))
                self.assertGreater(info.num_stored, 4)
            cache.close()
            with self.assertRaises(pagedkv.Busy):
                cache.work_tiers(None)

    def test_tickets_end_once(self):
        with make(tiers=[self.tier()], max_tickets=2) as cache:
            ticket = cache.prefetch(TEXT)
            with self.assertRaises(pagedkv.Busy):
                cache.destroy()
            ticket.close()
            for call in (ticket.close, ticket.poll, ticket.wait):
                with self.assertRaises(pagedkv.StaleHandle):
                    call()
            with cache.prefetch(TEXT) as ticket:
                ticket.close()
            with cache.prefetch(TEXT), cache.prefetch(TEXT):
                with self.assertRaisesRegex(pagedkv.NoBlocks, "tickets"):
                    cache.prefetch(TEXT)
            for _ in range(5):
                dropped = cache.prefetch(TEXT)
                cache.tickets()
                gc.collect()
                self.assertEqual(len(cache.tickets()), 1)
                del dropped
                gc.collect()
                self.assertEqual(len(cache.tickets()), 0)
            last = cache.prefetch(TEXT)
            cache.destroy(force=True)
            with self.assertRaises(pagedkv.StaleHandle):
                last.poll()
            with last:
                pass

    def test_a_cache_without_tiers_says_so(self):
        with make() as cache:
            for call in (lambda: cache.prefetch(TEXT), lambda: cache.store_prefix(TEXT),
                         cache.poll_tiers, cache.work_tiers, cache.flush_tiers, cache.tickets,
                         cache.tier_stats):
                with self.assertRaises(pagedkv.Unsupported):
                    call()
        with self.assertRaises(pagedkv.InvalidArgument):
            make(tiers=[self.tier()], prefix_cache=False)

    def test_a_tier_lives_as_long_as_a_cache_uses_it(self):
        tier = self.tier()
        first, second = make(tiers=[tier], num_tier_threads=1), make(tiers=[tier])
        tier.close()
        tier.close()
        with self.assertRaises(pagedkv.StaleHandle):
            make(tiers=[tier])
        compute(self, first)
        self.assertTrue(first.flush_tiers(20))
        self.assertGreater(first.tier_stats().stored_blocks, 0)
        first.destroy(force=True)
        with second.prefetch(TEXT) as ticket:
            self.assertEqual(ticket.wait(20).num_cached, 16)
        self.assertIsNotNone(tier._owner._pointer)
        second.destroy()
        gc.collect()
        self.assertIsNone(tier._owner._pointer)

    def test_dropped_tiers_and_caches_end_in_any_order(self):
        for is_tier_first in (False, True):
            tier = pagedkv.DiskTier(self.folder, 1 << 22)
            owner, cache = tier._owner, make(tiers=[tier], num_tier_threads=1)
            compute(self, cache)
            if is_tier_first:
                del tier
                gc.collect()
                self.assertIsNotNone(owner._pointer)
            del cache
            tier = None
            gc.collect()
            self.assertIsNone(owner._pointer)

    def test_waits_end_with_their_time_and_with_the_cache(self):
        cache, ended = make(tiers=[self.tier()]), []

        def work():
            try:
                while True:
                    cache.work_tiers(None)
            except (pagedkv.Busy, pagedkv.StaleHandle) as error:
                ended.append(type(error))
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        compute(self, cache).destroy()
        self.assertTrue(cache.flush_tiers(20))
        self.assertEqual(cache.work_tiers(0.01), 0)
        cache.destroy(force=True)
        for thread in threads:
            thread.join(20)
        self.assertEqual(len(ended), 2)

    def test_a_server_that_does_not_answer_is_a_miss(self):
        try:
            tier = pagedkv.RedisTier("127.0.0.1", 1, connect_timeout_ms=100)
        except pagedkv.Unsupported:
            self.skipTest("the library was built without hiredis")
        with tier, make(tiers=[tier]) as cache:
            with cache.prefetch(TEXT) as ticket:
                info = ticket.wait(20)
                self.assertEqual((info.state, info.status, info.num_cached),
                                 ("done", "PKV_IO", 0))
                self.assertEqual(cache.sequence().admit(TEXT).num_cached, 0)
        with self.assertRaises(pagedkv.StoppedOutput):
            pagedkv.DiskTier(os.path.join(self.folder, "nowhere"), 1 << 20)


class Saves(Folder):
    def test_cells_that_were_saved_come_back_with_the_same_bits(self):
        path = os.path.join(self.folder, "chat.pkv")
        with make(windows=(0,)) as first, make(windows=(0,)) as second:
            seq = compute(self, first)
            first.save(seq, path)
            with open(path, "rb", buffering=0) as file:
                loaded = second.load(file)
            for layer in range(2):
                self.assertEqual(cells(second, loaded, layer, 17), cells(first, seq, layer, 17))
            self.assertEqual(second.probe(TEXT).num_cached, 16)

    def test_streams_that_take_or_give_another_number_of_bytes(self):
        class Raw(io.RawIOBase):
            """Takes so many bytes at a time."""

            def __init__(self, most):
                super().__init__()
                self.most, self.taken = most, b""

            def write(self, content):
                self.taken += bytes(content[:self.most])
                return min(self.most, len(content))

        class Generous(io.BytesIO):
            def read(self, size=-1):
                return super().read(size) + b"more"
        memory, slow = io.BytesIO(), Raw(7)
        with make() as cache:
            seq = compute(self, cache)
            cache.save(seq, memory)
            cache.save(seq, slow)
            self.assertEqual(slow.taken, memory.getvalue())
            with self.assertRaisesRegex(OSError, "took 0"):
                cache.save(seq, Raw(0))
            with self.assertRaisesRegex(OSError, "instead of"):
                cache.load(Generous(memory.getvalue()))
            with self.assertRaises(TypeError):
                cache.save(seq, io.StringIO())
            with make(num_blocks=3) as small, self.assertRaises(pagedkv.NeverFits) as caught:
                memory.seek(0)
                small.load(memory)
            self.assertEqual(caught.exception.shortage.group, 0)
            self.assertEqual((len(cache.sequences()), cache.check()), (1, []))


if __name__ == "__main__":
    unittest.main()
