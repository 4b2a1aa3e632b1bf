# SPDX-License-Identifier: MIT
"""State groups: a small hybrid model, served over hits, forks, rewinds and trees of drafts, against
the same recurrence and attention in plain numpy; and how long the cache's memory is there."""
import gc
import random
import unittest
import weakref

import numpy as np

import pagedkv
from support import TOLERANCE, Case, naive_row

HEADS, KV_HEADS, WIDTH, CELLS = 2, 1, 8, 6
ATTENTION, WINDOW, STATES = 0, 1, 2
#: Layers in the order of the model: state, attention, state, window.
GROUPS = (STATES, ATTENTION, STATES, WINDOW)


def make(**others):
    groups = [pagedkv.Group(KV_HEADS, WIDTH, 4, 60),
              pagedkv.Group(KV_HEADS, WIDTH, 8, 40, sliding_window=9),
              pagedkv.Group(kind="state", num_blocks=120, state_bytes=4 * CELLS,
                            snapshot_interval=8, max_rewind=4)]
    layers = [pagedkv.Layer(group=g) if g == STATES else pagedkv.Layer(HEADS, g) for g in GROUPS]
    fields = dict(max_seqs=8, max_seq_len=64, max_step_tokens=32, num_threads=1, prefix_cache=True,
                  required=pagedkv.REQUIRE_HITS, poison_freed=True)
    return pagedkv.Cache(groups, layers, **dict(fields, **others))


def channels(token, layer, heads, kind):
    rng = np.random.default_rng([token, layer, kind])
    return rng.standard_normal((heads, WIDTH)).astype(np.float32)


def advance(state, token, layer):
    """The recurrence: a decay, and what the token adds; in float32, so every order of calls that is
    right gives the same bits."""
    added = np.random.default_rng([token, layer]).standard_normal(CELLS).astype(np.float32)
    return state * np.float32(0.75) + added


def state_of(text, layer):
    state = np.zeros(CELLS, np.float32)
    for token in text:
        state = advance(state, token, layer)
    return state


class Server:
    """Texts of sequences, and steps that compare every layer with the plain computation."""

    def __init__(self, case, cache):
        self.case, self.cache, self.texts = case, cache, {}

    def start(self, prompt, **options):
        seq = self.cache.sequence(**options)
        cached = seq.admit(prompt, reserve_tokens=20).num_cached
        self.texts[seq.id] = list(prompt[:cached])
        return seq, cached

    def run(self, batch, parents=None):
        """Opens a step of [(seq, new tokens)] and computes it; parents, of one row, make a tree."""
        tokens = [token for _, new in batch for token in new]
        step = self.cache.step([seq for seq, _ in batch], tokens, [len(new) for _, new in batch],
                               parents=parents)
        paths = self.paths(batch, parents)
        states = step.describe_states(STATES)
        for layer, group in enumerate(GROUPS):
            if group == STATES:
                self.run_states(states, layer, batch, paths)
            else:
                self.attend(step, layer, tokens, paths)
        return step

    def paths(self, batch, parents):
        """For each new token the text that ends with it, in the order of the batch."""
        found = []
        for seq, new in batch:
            first = len(found)
            for i, token in enumerate(new):
                parent = i - 1 if parents is None else parents[i]
                before = self.texts[seq.id] if parent < 0 else found[first + parent]
                found.append(before + [token])
        return found

    def run_states(self, states, layer, batch, paths):
        for row, (_, new) in enumerate(batch):
            first, last = states.cu_seqlens_q[row:row + 2]
            self.case.assertEqual(last - first, len(new))
            begin = states.read(layer, row, np.float32).copy()
            self.case.assertEqual(begin.tobytes(), state_of(paths[first][:-1], layer).tobytes())
            after = {}
            for t in range(first, last):
                parent = t - first - 1 if states.parents is None else states.parents[t]
                after[t] = advance(begin if parent < 0 else after[first + parent], paths[t][-1],
                                   layer)
            for t in range(first, last):
                if states.writes[t] >= 0:
                    states.write(layer, t, np.float32)[:] = after[t]
                self.case.assertEqual(after[t].tobytes(), state_of(paths[t], layer).tobytes())

    def attend(self, step, layer, tokens, paths):
        group = self.cache.config.groups[GROUPS[layer]]
        q, k, v = (np.stack([channels(token, layer, heads, kind) for token in tokens])
                   for kind, heads in enumerate((HEADS, KV_HEADS, KV_HEADS)))
        out = step.attend(layer, q, k, v)
        for t, path in enumerate(paths):
            keys, values = (np.stack([channels(token, layer, KV_HEADS, kind) for token in path])
                            for kind in (1, 2))
            self.case.near(out[t:t + 1], naive_row(q[t:t + 1], keys, values, group.sliding_window),
                           TOLERANCE["float32"])

    def append(self, *batch):
        with self.run(batch):
            pass
        for seq, new in batch:
            self.texts[seq.id] = self.texts[seq.id] + list(new)


def words(seed, count):
    return [random.Random(seed * 1000 + i).randrange(1, 500) for i in range(count)]


class Hybrid(Case):
    def setUp(self):
        self.cache = make()
        self.server = Server(self, self.cache)
        self.addCleanup(self.finish)

    def finish(self):
        self.assertEqual(self.cache.check(), [])
        self.cache.destroy(force=True)

    def test_a_hit_goes_on_from_a_snapshot(self):
        prompt = words(1, 21)
        seq, cached = self.server.start(prompt)
        self.assertEqual(cached, 0)
        self.server.append((seq, prompt))
        seq.destroy()
        for tail, hit in (([], 16), (words(2, 3), 16)):
            again, cached = self.server.start(prompt + tail)
            self.assertEqual(cached, hit)
            self.assertEqual(self.cache.probe(prompt + tail).num_cached, hit)
            self.server.append((again, (prompt + tail)[hit:]))
            self.server.append((again, [7]))
            again.destroy()
        self.assertEqual(self.server.start(prompt[:5] + words(3, 9))[1], 0)
        self.assertEqual(self.cache.usage(STATES).held, 0)

    def test_forks_share_a_state_and_part(self):
        seq, _ = self.server.start(words(4, 10))
        self.server.append((seq, words(4, 10)))
        children = seq.fork(2)
        for child in children:
            self.server.texts[child.id] = list(self.server.texts[seq.id])
        for turn in range(3):
            self.server.append(*[(s, [10 * i + turn]) for i, s in enumerate([seq] + children)])
        seq.destroy()
        self.server.append(*[(s, [90 + i, 5]) for i, s in enumerate(children)])

    def test_a_rewind_finds_the_state_of_its_length(self):
        seq, _ = self.server.start(words(5, 9), max_rewind=3)
        self.server.append((seq, words(5, 9)))
        self.server.append((seq, [1, 2, 3]))
        seq.truncate(10)
        self.server.texts[seq.id] = self.server.texts[seq.id][:10]
        self.server.append((seq, [4]))
        with self.server.run([(seq, [6, 7, 8])]) as step:
            step.commit([1])
        self.server.texts[seq.id] += [6]
        self.server.append((seq, [9]))
        with self.assertRaisesRegex(pagedkv.NotResident, "nearest|possible"):
            seq.truncate(3)

    def test_a_path_of_a_tree_is_kept(self):
        seq, _ = self.server.start(words(6, 6), max_rewind=4)
        self.server.append((seq, words(6, 6)))
        for path in ([0, 2], [1, 3], [0, 2, 4], []):
            drafts = [21, 22, 23, 24, 25]
            step = self.server.run([(seq, drafts)], [-1, -1, 0, 1, 2])
            step.commit_path([path])
            self.server.texts[seq.id] += [drafts[i] for i in path]
            self.assertEqual(seq.length, len(self.server.texts[seq.id]))
        self.server.append((seq, [3]))

    def test_a_dropped_step_without_rewind_loses_the_state(self):
        seq, _ = self.server.start(words(7, 6))
        self.server.append((seq, words(7, 6)))
        self.server.run([(seq, [1])]).abort()
        with self.assertRaises(pagedkv.NotResident):
            self.cache.step([seq], [1])
        seq.truncate(0)
        cached = seq.admit(words(7, 6), reserve_tokens=2).num_cached
        self.server.texts[seq.id] = words(7, 6)[:cached]
        self.server.append((seq, words(7, 6)[cached:]))

    def test_a_swapped_sequence_brings_its_states_back(self):
        with make(swap_bytes=1 << 16) as cache:
            server = Server(self, cache)
            seq, _ = server.start(words(8, 13), max_rewind=3)
            server.append((seq, words(8, 13)))
            server.append((seq, [1, 2]))
            seq.swap_out()
            self.assertEqual(cache.usage(STATES).held, 0)
            other, _ = server.start(words(9, 20))
            server.append((other, words(9, 20)))
            seq.swap_in()
            seq.truncate(14)
            server.texts[seq.id] = server.texts[seq.id][:14]
            server.append((seq, [7]), (other, [3]))
            self.assertEqual(cache.check(), [])

    def test_random_requests(self):
        rng, seqs = random.Random(3), []
        for _ in range(60):
            if len(seqs) < 4:
                prompt = words(rng.randrange(3), rng.randrange(3, 25))
                seq, cached = self.server.start(prompt, max_rewind=rng.choice((0, 3)))
                self.server.append((seq, prompt[cached:]))
                seqs.append(seq)
            if rng.random() < 0.3:
                (child,) = seqs[0].fork()
                self.server.texts[child.id] = list(self.server.texts[seqs[0].id])
                seqs.append(child)
            self.server.append(*[(seq, words(rng.randrange(9), rng.randrange(1, 3)))
                                 for seq in seqs])
            for seq in [s for s in seqs if s.length > 30 or rng.random() < 0.2]:
                seqs.remove(seq)
                seq.destroy()
        self.assertGreater(self.cache.stats().hit_tokens, 100)


class Refusals(Case):
    def test_a_refusal_names_the_argument(self):
        with make() as cache, cache.sequence() as seq, cache.step([seq], [1, 2, 3], [3]) as step:
            for group in (ATTENTION, 3):
                with self.assertRaisesRegex(pagedkv.InvalidArgument, "group"):
                    step.describe_states(group)
            with self.assertRaisesRegex(ValueError, "layer 0 keeps states"):
                step.attend(0, np.zeros((3, 16), np.float32))
            states = step.describe_states(STATES)
            self.assertEqual((states.num_rows, states.num_tokens, states.state_bytes),
                             (1, 3, 4 * CELLS))
            self.assertEqual(states.cu_seqlens_q.tolist(), [0, 3])
            self.assertIsNone(states.parents)
            for call, text in ((lambda: states.read(1, 0), "layer 1"),
                               (lambda: states.read(0, 1), "row = 1"),
                               (lambda: states.write(0, 3), "token = 3"),
                               (lambda: states.write(0, 0), "no state is stored after token 0"),
                               (lambda: states.read(0, 0, "S7"), "dtype"),
                               (lambda: states.read(0, 0, object), "dtype")):
                with self.assertRaisesRegex(ValueError, text):
                    call()
            with self.assertRaises(ValueError):
                states.read(0, 0)[:] = 1
            step.abort()

    def test_configurations(self):
        state = dict(kind="state", num_blocks=8, state_bytes=64)
        pages = pagedkv.Group(1, 8, 4, 8)

        def sizes(*groups):
            layers = [pagedkv.Layer(2 if g.kind == "attention" else 0, i)
                      for i, g in enumerate(groups)]
            pagedkv.CacheConfig(groups, layers, max_seqs=2, max_seq_len=16, max_step_tokens=4,
                                prefix_cache=True).sizes()
        sizes(pages, pagedkv.Group(**state))
        for wrong in (dict(kind="states"), dict(state_bytes=0), dict(snapshot_interval=3),
                      dict(max_rewind=2**17), dict(segment_tokens=6), dict(state_bytes=-1)):
            with self.subTest(wrong), self.assertRaises(ValueError):
                sizes(pages, pagedkv.Group(**dict(state, **wrong)))
        with self.assertRaises(pagedkv.PagedKVError):
            sizes(pagedkv.Group(**state))


class Lifetime(Case):
    def shown(self, cache):
        seq = cache.sequence()
        step = cache.step([seq], [1, 2], [2])
        array = step.describe_states(STATES).write(0, 1)
        step.abort()
        seq.destroy()
        return array

    def test_an_array_outlives_a_destroyed_cache(self):
        with make() as cache:
            array = self.shown(cache)[2:]
            with self.assertRaisesRegex(pagedkv.Busy, "describe_states"):
                cache.destroy()
        array[:] = 5
        self.assertEqual(array.tolist(), [5] * (4 * CELLS - 2))
        with self.assertRaises(pagedkv.StaleHandle):
            cache.sequence()

    def test_an_array_outlives_a_dropped_cache_and_ends_it(self):
        cache = make()
        array = self.shown(cache)
        dropped = weakref.ref(cache)
        del cache
        gc.collect()
        self.assertIsNone(dropped())
        array[:] = 7
        self.assertEqual(array.sum(), 7 * array.size)
        base = array
        while getattr(base, "base", None) is not None:
            base = base.base
        memory = weakref.ref((base.obj if isinstance(base, memoryview) else base).hold.memory)
        del array, base
        gc.collect()
        self.assertIsNone(memory())

    def test_without_arrays_nothing_is_held(self):
        with make() as cache:
            self.shown(cache)
            gc.collect()
            cache.destroy()


if __name__ == "__main__":
    unittest.main()
