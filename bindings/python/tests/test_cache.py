# SPDX-License-Identifier: MIT
"""Managed caches against naive attention: random requests that are admitted, stepped, forked, cut
and ended, and every call of the interface once."""
import io
import os
import random
import tempfile
import unittest

import numpy as np

import pagedkv
from support import TOLERANCE, Case, naive_row

HEADS, KV_HEADS, WIDTH, BLOCK = 4, 2, 8, 4
WINDOWS = (0, 9)


def channels(token, kind, layer, heads):
    """What a model would compute from a token alone: the same text has the same keys."""
    rng = np.random.default_rng([token % 1000, ord(kind), layer])
    return rng.standard_normal((heads, WIDTH)).astype(np.float32)


def rows(tokens, kind, layer, heads):
    return np.stack([channels(token, kind, layer, heads) for token in tokens])


def make(num_blocks=40, windows=WINDOWS, **others):
    groups = [pagedkv.Group(KV_HEADS, WIDTH, BLOCK, num_blocks, sliding_window=window)
              for window in windows]
    layers = [pagedkv.Layer(HEADS, group) for group in range(len(groups))] * 2
    fields = dict(max_seqs=8, max_seq_len=64, max_step_tokens=24, num_threads=1, prefix_cache=True,
                  num_events=64, max_pinned_blocks=8, check_tokens=True)
    return pagedkv.Cache(groups, layers, **dict(fields, **others))


def run_step(case, cache, batch, histories):
    """One step of [(seq, new tokens)], each layer compared with naive attention."""
    tokens = [token for _, new in batch for token in new]
    with cache.step([seq for seq, _ in batch], tokens, [len(new) for _, new in batch]) as step:
        case.assertEqual(step.num_tokens, len(tokens))
        for layer, config in enumerate(cache.config.layers):
            out = step.attend(layer, *(rows(tokens, kind, layer, heads) for kind, heads in
                                       (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))))
            at = 0
            for seq, new in batch:
                text = histories[seq.id] + new
                want = naive_row(rows(new, "q", layer, HEADS), rows(text, "k", layer, KV_HEADS),
                                 rows(text, "v", layer, KV_HEADS),
                                 cache.config.groups[config.group].sliding_window)
                case.near(out[at:at + len(new)], want, TOLERANCE["float32"])
                at += len(new)
    for seq, new in batch:
        histories[seq.id] = histories[seq.id] + new


class Requests:
    """A random server: every operation keeps `histories`, the committed text of each sequence."""

    def __init__(self, case, cache, seed):
        self.case, self.cache, self.random = case, cache, random.Random(seed)
        self.live, self.histories, self.left = [], {}, {}
        self.prompts = [[self.random.randrange(100) for _ in range(20)] for _ in range(3)]
        self.hits = self.forks = self.refusals = 0

    def prompt(self):
        text = self.random.choice(self.prompts)[:self.random.randrange(1, 20)]
        return text + [self.random.randrange(100, 900) for _ in range(self.random.randrange(1, 6))]

    def admit(self):
        text = self.prompt()
        try:
            seq = self.cache.sequence(max_rewind=2)
        except pagedkv.NoBlocks:
            self.refusals += 1
            return
        probe = self.cache.probe(text, reserve_tokens=4, options=pagedkv.Options(max_rewind=2))
        try:
            admission = seq.admit(text, reserve_tokens=4)
        except pagedkv.NoBlocks as error:
            self.case.assertEqual(probe.status, "PKV_NO_BLOCKS")
            self.case.assertEqual(error.shortage, probe.shortage)
            self.refusals += 1
            seq.destroy()
            return
        self.case.assertEqual((probe.status, probe.num_cached), ("PKV_OK", admission.num_cached))
        self.hits += admission.num_cached
        self.live.append(seq)
        self.histories[seq.id] = text[:admission.num_cached]
        self.left[seq.id] = text[admission.num_cached:]

    def step(self):
        batch = []
        for seq in self.random.sample(self.live, min(4, len(self.live))):
            new = self.left[seq.id][:self.random.randrange(1, 7)]
            batch.append((seq, new or [self.random.randrange(900)]))
        if not batch:
            return
        try:
            run_step(self.case, self.cache, batch, self.histories)
        except pagedkv.PagedKVError as error:
            self.case.assertRegex(str(error), "blocks|max_seq_len|max_tokens")
            self.refusals += 1
            self.end()
            return
        for seq, new in batch:
            self.left[seq.id] = self.left[seq.id][len(new):]

    def fork(self):
        written = [seq for seq in self.live if not self.left[seq.id] and self.histories[seq.id]]
        if written:
            parent = self.random.choice(written)
            try:
                children = parent.fork(self.random.randrange(1, 3))
            except pagedkv.NoBlocks:
                self.refusals += 1
                return
            self.forks += len(children)
            for child in children:
                self.live.append(child)
                self.histories[child.id] = list(self.histories[parent.id])
                self.left[child.id] = []

    def truncate(self):
        written = [seq for seq in self.live if not self.left[seq.id] and self.histories[seq.id]]
        if written:
            seq = self.random.choice(written)
            length = self.random.randrange(len(self.histories[seq.id]) + 1)
            try:
                seq.truncate(length)
            except pagedkv.NotResident:
                self.case.assertLess(length, seq.info().min_length)
                return
            self.histories[seq.id] = self.histories[seq.id][:length]

    def end(self):
        if self.live:
            seq = self.live.pop(self.random.randrange(len(self.live)))
            seq.destroy()
            with self.case.assertRaises(pagedkv.StaleHandle):
                seq.length

    def run(self, count):
        choices = [self.admit] * 3 + [self.step] * 8 + [self.fork, self.truncate, self.end]
        for _ in range(count):
            self.random.choice(choices)()
            for seq in self.live:
                self.case.assertEqual(seq.length, len(self.histories[seq.id]))
        self.case.assertEqual(self.cache.check(), [])


class RandomRequests(Case):
    def test_random_requests_against_naive_attention(self):
        hits = forks = refusals = 0
        for seed in range(4):
            with self.subTest(seed=seed), make() as cache:
                requests = Requests(self, cache, seed)
                requests.run(120)
                hits += requests.hits
                forks += requests.forks
                refusals += requests.refusals
                for seq in requests.live:
                    seq.destroy()
                for group in range(len(WINDOWS)):
                    self.assertEqual(cache.usage(group).held, 0)
        self.assertGreater(min(hits, forks, refusals), 0)


class Calls(Case):
    """Every call of the interface, with an answer that can be checked by hand."""

    def written(self, cache, text, **options):
        seq = cache.sequence(**options)
        run_step(self, cache, [(seq, text)], {seq.id: []})
        return seq

    def test_a_second_request_adopts_the_first_ones_blocks(self):
        with make(windows=(0,)) as cache:
            self.written(cache, list(range(13))).destroy()
            self.assertEqual(cache.probe(list(range(13))).num_cached, 12)
            self.assertEqual(cache.probe_groups(list(range(13))), (12, [12]))
            seq = cache.sequence()
            admission = seq.admit(list(range(13)), reserve_tokens=3)
            self.assertEqual((admission.num_cached, admission.num_to_write), (12, 1))
            self.assertEqual(seq.info().num_cached, 12)
            stats = cache.stats()
            self.assertEqual((stats.queried_tokens, stats.hit_tokens), (13, 12))
            self.assertIn("pagedkv_prefix_cache_hits_total 12", cache.metrics())

    def test_several_caches_in_one_scrape(self):
        with make(metrics_label="a") as one, make(metrics_label="b") as two:
            text = pagedkv.metrics([one, two])
            self.assertIn('{cache="a"}', text)
            self.assertIn('{cache="b"}', text)
            self.assertEqual(text.count("# TYPE pagedkv_blocks_held"), 1)
            with self.assertRaisesRegex(pagedkv.InvalidArgument, "caches"):
                pagedkv.metrics([one, one])
            with self.assertRaises(TypeError):
                pagedkv.metrics([one, None])

    def test_namespaces_separate_and_quotas_limit(self):
        with make(windows=(0,)) as cache:
            options = pagedkv.Options(namespace={1: b"acme"})
            self.written(cache, list(range(9)), namespace={1: b"acme"}).destroy()
            self.assertEqual(cache.probe(list(range(9))).num_cached, 0)
            self.assertEqual(cache.probe(list(range(9)), options=options).num_cached, 8)
            cache.set_quota(1, b"acme", 2)
            self.assertEqual(cache.namespace_usage(1, b"acme").quota, 2)
            with cache.sequence(options) as seq:
                with self.assertRaises(pagedkv.PagedKVError) as caught:
                    seq.admit(list(range(100, 120)))
                self.assertEqual(caught.exception.shortage.quota, 2)
            self.assertGreater(cache.flush(1, b"acme").removed, 0)
            self.assertEqual(cache.probe(list(range(9)), options=options).num_cached, 0)
            with self.assertRaises(pagedkv.NotFound):
                cache.namespace_usage(2, b"nobody")

    def test_pins_hold_and_expire(self):
        with make(windows=(0,)) as cache:
            self.assertIsNone(cache.pin([1, 2, 3, 4, 5]))
            self.written(cache, list(range(9))).destroy()
            with cache.pin(list(range(9)), ttl_ns=10, now_ns=1) as pin:
                self.assertEqual(pin.num_tokens, 8)
                self.assertEqual(cache.usage().pinned, 2)
                with self.assertRaises(pagedkv.Busy):
                    cache.reset()
                pin.refresh(100, 2)
                self.assertEqual(cache.expire(50), 0)
                self.assertEqual(cache.expire(102), 1)
                with self.assertRaises(pagedkv.StaleHandle):
                    pin.unpin()
            self.assertEqual(cache.usage().pinned, 0)
            self.assertEqual(cache.set_priority(list(range(9)), 2), 8)
            self.assertEqual(cache.reset().removed, 3)

    def test_events_tell_what_blocks_hold(self):
        with make(windows=(0,), event_tokens=True) as cache:
            self.written(cache, list(range(9))).destroy()
            events, lost = cache.events(tokens=True)
            self.assertEqual((len(events), lost), (2, 0))
            self.assertEqual([e.kind for e in events], ["stored", "stored"])
            self.assertEqual(events[1].token_ids.tolist(), [4, 5, 6, 7])
            self.assertEqual([e.key for e in events], cache.config.prefix_keys(list(range(9))))
            self.assertEqual(events[1].parent_key, events[0].key)
            blocks, following = cache.blocks()
            self.assertEqual((len(blocks), following), (40, 3))
            self.assertEqual({b.key for b in blocks if b.is_indexed}, {e.key for e in events})

    def test_steps_take_rows_as_far_as_blocks_suffice(self):
        with make(num_blocks=3, windows=(0,), prefix_cache=False) as cache:
            first, second = cache.sequence(), cache.sequence()
            with cache.step([first, second], [7] * 16, [8, 8], num_required=1) as step:
                self.assertEqual((step.num_rows, step.num_tokens), (1, 8))
                self.assertEqual((step.shortage.row, step.shortage.need), (1, 2))
                view = step.describe()
                self.assertEqual(view.kv_lens.tolist(), [8])
                self.assertEqual(view.cu_seqlens_q.tolist(), [0, 8])
                q, k = rows([7] * 8, "q", 0, HEADS), rows([7] * 8, "k", 0, KV_HEADS)
                for layer in range(len(cache.config.layers)):
                    step.attend(layer, q, k, k)
                self.assertEqual(view.block_tables[0].tolist(), step.describe().block_tables[0]
                                 .tolist())
                step.commit(num_keep=[5])
            self.assertEqual((first.length, second.length), (5, 0))
            self.assertEqual(len(first.table()), 2)
            with self.assertRaises(pagedkv.NoBlocks) as caught:
                cache.step([first, second], [7] * 9, [1, 8])
            self.assertEqual(caught.exception.shortage.row, 1)
            with self.assertRaises(pagedkv.NeverFits):
                cache.step_fits([second], [7] * 16, [16])
            self.assertEqual(cache.usage().held, 2)

    def test_a_refused_batch_names_its_row(self):
        with make() as cache:
            good, stale = cache.sequence(), cache.sequence()
            stale.destroy()
            with self.assertRaises(pagedkv.StaleHandle) as caught:
                cache.step([good, stale], [1, 2])
            self.assertEqual(caught.exception.shortage.row, 1)
            with self.assertRaisesRegex(pagedkv.InvalidArgument, "seqs"):
                cache.step([good, good], [1, 2])
            other = make()
            with self.assertRaises(pagedkv.StaleHandle):
                other.step([good], [1])
            other.destroy()

    def test_waiting_ends_when_blocks_come_free_or_time_is_over(self):
        with make(num_blocks=4, windows=(0,), prefix_cache=False) as cache:
            first, second = cache.sequence(tag=5), cache.sequence()
            first.admit(list(range(12)))
            with self.assertRaises(pagedkv.NoBlocks) as caught:
                second.admit(list(range(12)))
            shortage = caught.exception.shortage
            self.assertEqual((shortage.need, shortage.free), (3, 1))
            self.assertFalse(second.wait_free(shortage, 0))
            self.assertFalse(second.wait_free(shortage, 0.15))
            self.assertEqual(len(cache.sequences()), 2)
            self.assertEqual(cache.destroy_tagged(5), 1)
            self.assertTrue(second.wait_free(shortage, 5))
            self.assertEqual([info.id for info in cache.sequences()], [second.id])

    def test_a_swapped_sequence_comes_back_and_goes_on(self):
        for path in (None, tempfile.gettempdir()):
            with make(num_blocks=8, swap_bytes=1 << 16, swap_path=path) as cache:
                first, second = cache.sequence(), cache.sequence()
                histories = {first.id: [], second.id: []}
                run_step(self, cache, [(first, list(range(17)))], histories)
                held = cache.usage(0).held
                first.swap_out()
                self.assertTrue(first.info().is_swapped)
                self.assertEqual((cache.usage(0).held, len(first.table())), (0, 0))
                with self.assertRaises(pagedkv.NotResident):
                    first.fork()
                run_step(self, cache, [(second, list(range(100, 120)))], histories)
                with self.assertRaises(pagedkv.NoBlocks) as refused:
                    first.swap_in()
                self.assertEqual((refused.exception.shortage.group,
                                  refused.exception.shortage.need), (0, held))
                second.destroy()
                first.swap_in()
                self.assertFalse(first.info().is_swapped)
                run_step(self, cache, [(first, [20, 21])], histories)
                self.assertEqual((cache.stats().swap_outs, cache.stats().swap_ins), (1, 1))
                self.assertEqual(cache.check(), [])
        with make() as cache, self.assertRaises(pagedkv.Unsupported):
            cache.sequence().swap_out()

    def test_a_saved_sequence_goes_on_in_another_cache(self):
        with tempfile.TemporaryDirectory() as folder, make() as cache, make() as other:
            path, stream, histories = folder + "/a.pkv", io.BytesIO(), {}
            seq = cache.sequence(max_rewind=1, namespace={1: b"tenant"})
            histories[seq.id] = []
            run_step(self, cache, [(seq, list(range(1, 19)))], histories)
            cache.save(seq, path)
            cache.save(seq, stream)
            with open(path, "rb") as file:
                self.assertEqual(file.read(), stream.getvalue())
            stream.seek(0)
            for source in (path, stream):
                loaded = other.load(source)
                self.assertEqual((loaded.length, loaded.info().max_rewind), (18, 1))
                histories[loaded.id] = histories[seq.id]
                run_step(self, other, [(loaded, [41, 42])], histories)
            self.assertEqual(other.check(), [])
            self.assertEqual(os.listdir(folder), ["a.pkv"])

    def test_a_damaged_saved_sequence_is_refused(self):
        with make() as cache, make(windows=(0,)) as other:
            stream, seq = io.BytesIO(), cache.sequence()
            run_step(self, cache, [(seq, [1, 2, 3])], {seq.id: []})
            cache.save(seq, stream)
            data = bytearray(stream.getvalue())
            data[-20] ^= 1
            held = cache.usage(0).held
            with self.assertRaisesRegex(pagedkv.Corrupt, "checksum"):
                cache.load(io.BytesIO(bytes(data)))
            with self.assertRaises(EOFError):
                cache.load(io.BytesIO(bytes(data[:100])))
            with self.assertRaisesRegex(pagedkv.InvalidArgument, "num_groups"):
                other.load(io.BytesIO(stream.getvalue()))
            with self.assertRaises(pagedkv.StoppedOutput):
                cache.load("no-folder/a.pkv")
            self.assertEqual(cache.usage(0).held, held)
            for strange in (None, 7, object(), "a\0b"):
                self.assertRaises((TypeError, ValueError), cache.load, strange)
                self.assertRaises((TypeError, ValueError), cache.save, seq, strange)
            self.assertRaises(TypeError, cache.save, None, stream)

    def test_what_create_filled_in(self):
        config = make().config
        self.assertEqual(config.blocks_for_bytes(2**20), [40, 40])
        self.assertEqual(config.sizes().token_bytes, 4 * 2 * KV_HEADS * WIDTH * 4)
        with pagedkv.Cache(config) as cache:
            described = cache.describe()
            self.assertEqual((described.num_threads, described.num_blocks), (1, (40, 40)))
            self.assertEqual(described.sliding_window, WINDOWS)
            self.assertNotEqual(described.isa, "best")
            self.assertEqual(cache.log, [])

    def test_layers_of_every_kind(self):
        groups = [pagedkv.Group(1, 8, 4, 8, v_width=4, v_in_k=True),
                  pagedkv.Group(2, 8, storage="continuous", k_dtype="int8")]
        layers = [pagedkv.Layer(2, 0), pagedkv.Layer(4, 0, kv_layer=0), pagedkv.Layer(
            4, 1, constants=pagedkv.Constants(k_scale=0.05, v_scale=np.full((2, 8), 0.05, "f"),
                                              head_sink=np.zeros(4, "f")))]
        with pagedkv.Cache(groups, layers, max_seqs=2, max_seq_len=16, max_step_tokens=4) as cache:
            seq, ones = cache.sequence(), np.ones((1, 32), np.float32)
            with cache.step([seq], [3]) as step:
                self.assertEqual(step.attend(0, ones[:, :16], ones[:, :8]).tolist(), [[1] * 8])
                self.assertEqual(step.attend(1, ones).tolist(), [[1] * 16])
                out, lse = step.attend(2, ones, ones[:, :16], ones[:, :16], return_lse=True)
                self.near(out, np.full((1, 32), 1 / (1 + np.exp(-8 ** 0.5))), 1e-5)
                self.assertEqual(lse.shape, (1, 4))
            self.assertEqual(seq.table(1).tolist(), [0])


if __name__ == "__main__":
    unittest.main()
