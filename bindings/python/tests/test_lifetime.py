# SPDX-License-Identifier: MIT
"""Nothing leaks and nothing outlives its memory: exceptions in a `with`, dropped objects, destroyed
caches, references to arrays, threads."""
import gc
import os
import subprocess
import sys
import threading
import unittest
import weakref

import numpy as np

import pagedkv
from support import Case


def make(**others):
    fields = dict(max_seqs=8, max_seq_len=64, max_step_tokens=16, num_threads=1)
    return pagedkv.Cache([pagedkv.Group(1, 8, 4, 16)], [pagedkv.Layer(2)] * 2,
                         **dict(fields, **others))


def attend_all(step):
    q, k = np.ones((step.num_tokens, 16), np.float32), np.ones((step.num_tokens, 8), np.float32)
    for layer in range(2):
        step.attend(layer, q, k, k)


class Stop(Exception):
    pass


class Lifetime(Case):
    def test_an_exception_in_a_step_leaves_everything_as_before(self):
        with make() as cache:
            with cache.sequence() as seq:
                with cache.step([seq], [1, 2, 3, 4, 5], [5]) as step:
                    attend_all(step)
                for where in range(3):
                    with self.assertRaises(Stop):
                        with cache.step([seq], [1] * 9, [9]) as step:
                            if where > 0:
                                step.attend(0, np.ones((9, 16), "f"), *np.ones((2, 9, 8), "f"))
                            if where > 1:
                                step.attend(1, np.ones((9, 16), "f"), *np.ones((2, 9, 8), "f"))
                            raise Stop
                    self.assertFalse(step.is_open)
                    self.assertEqual((seq.length, cache.usage().held), (5, 2))
                with self.assertRaises(Stop):
                    with cache.sequence() as other:
                        with cache.step([other], [1]):
                            raise Stop
                self.assertEqual((cache.stats().num_seqs, cache.usage().held), (1, 2))
            self.assertEqual(cache.usage().held, 0)
            self.assertEqual(cache.check(), [])

    def test_a_commit_that_is_refused_ends_the_step(self):
        with make() as cache, cache.sequence() as seq:
            with self.assertRaisesRegex(pagedkv.InvalidArgument, "layer"):
                with cache.step([seq], [1]):
                    pass
            with cache.step([seq], [1]) as step:
                attend_all(step)
                with self.assertRaises(ValueError):
                    step.commit([2])
                with self.assertRaises(ValueError):
                    step.commit([1, 1])
                self.assertTrue(step.is_open)
                with self.assertRaises(pagedkv.Busy):
                    cache.step([seq], [1])
                with self.assertRaises(pagedkv.Busy):
                    cache.destroy()
            self.assertEqual(seq.length, 1)
            with self.assertRaises(pagedkv.StaleHandle):
                step.attend(0, np.ones((1, 16), "f"), *np.ones((2, 1, 8), "f"))
            with self.assertRaises(pagedkv.StaleHandle):
                step.commit()
            step.abort()

    def test_dropped_objects_are_ended_by_the_next_call(self):
        with make() as cache:
            for _ in range(20):
                seq = cache.sequence()
                attend_all(cache.step([seq], [1, 2, 3], [3]))
                del seq
                gc.collect()
                self.assertEqual((cache.usage().held, cache.stats().num_seqs), (0, 0))

    def test_blocks_are_free_again_after_many_requests(self):
        with make() as cache:
            for i in range(300):
                with cache.sequence() as seq:
                    seq.admit([1, 2, 3], reserve_tokens=3)
                    with cache.step([seq], [1, 2, 3], [3]) as step:
                        attend_all(step)
                    children = seq.fork(2)
                    with cache.step(children, [5, 6]) as step:
                        attend_all(step)
                    for child in children:
                        child.destroy()
            self.assertEqual(cache.usage().held, 0)
            self.assertEqual(cache.check(), [])

    def test_everything_refuses_after_destroy(self):
        cache = make()
        seq, pin_options = cache.sequence(), pagedkv.Options()
        step = cache.step([seq], [1])
        cache.destroy(force=True)
        cache.destroy()
        cache.destroy(force=True)
        calls = [lambda: seq.length, seq.info, lambda: seq.admit([1]), seq.fork,
                 lambda: seq.truncate(0), seq.table, cache.usage, cache.check, cache.stats,
                 cache.metrics, cache.blocks, cache.sequences, cache.describe, cache.sequence,
                 cache.close, lambda: cache.step([seq], [1]), lambda: cache.probe([1]),
                 lambda: cache.pin([1], options=pin_options), step.commit, step.describe,
                 lambda: step.attend(0, np.ones((1, 16), "f"), *np.ones((2, 1, 8), "f"))]
        for call in calls:
            with self.assertRaises(pagedkv.StaleHandle):
                call()
        seq.destroy()
        step.abort()

    def test_caches_are_freed_when_they_are_dropped(self):
        cache = make()
        seq = cache.sequence()
        alive = weakref.ref(cache)
        end = cache._end
        del cache
        gc.collect()
        self.assertIsNotNone(alive(), "a sequence keeps its cache")
        del seq
        gc.collect()
        self.assertIsNone(alive())
        self.assertFalse(end.alive)

    def test_finalizers_that_are_collected_with_the_cache_find_it_destroyed(self):
        seen = []

        class Holder:
            def __del__(self):
                try:
                    seen.append(self.seq.length)
                except pagedkv.StaleHandle:
                    seen.append("stale")
        holder = Holder()
        holder.me, holder.cache = holder, make()
        holder.seq = holder.cache.sequence()
        del holder
        gc.collect()
        self.assertEqual(seen, ["stale"])

    def test_no_array_is_kept_after_a_call(self):
        def counts(arrays):
            return [sys.getrefcount(array) for array in arrays]
        q, k, v = (np.ones((1, heads, 8), np.float32) for heads in (2, 1, 1))
        pages = np.zeros((4, 1, 4, 8), np.float32)
        table, out = np.array([[1]], np.int32), np.zeros((1, 2, 8), np.float32)
        with make() as cache, cache.sequence() as seq:
            arrays = [q, k, v, pages, table, out]
            before = counts(arrays)
            for _ in range(3):
                pagedkv.attention(q, k, v, form="paged", past_key=pages, past_value=pages.copy(),
                                  block_table=table, kv_lens=[1], out=out)
                pagedkv.gqa_decode_step(q, k, v, k[:, :, None], v[:, :, None], 2, 1)
                pagedkv.group_query_attention(q[:, :, :4].reshape(1, 8), k[0], v[0], num_heads=1,
                                              kv_num_heads=1)
                with cache.step([seq], [1]) as step:
                    step.attend(0, q, k, v, out=out)
                    step.attend(1, q, k, v, out=out)
                with self.assertRaises(ValueError):
                    pagedkv.attention(q, k, v[:, :, :4], form="dense", past_key=pages,
                                      past_value=pages)
            gc.collect()
            self.assertEqual(counts(arrays), before)

    def test_an_array_that_is_passed_cannot_be_resized_meanwhile(self):
        memory = bytearray(32)
        kept = pagedkv._arrays.borrow("x", memory)
        with self.assertRaises(BufferError):
            memory.extend(b"x")
        del kept
        memory.extend(b"x")


class Threads(Case):
    def run_threads(self, targets):
        failures = []

        def guarded(target):
            try:
                target()
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(failures, [])

    def test_each_thread_has_a_workspace_and_its_own_last_error(self):
        def work(number):
            def target():
                x = np.full((1, 1, 8), number, np.float32)
                for _ in range(100):
                    self.assertEqual(pagedkv.attention(x, x, x)[0, 0, 0], number)
                    with self.assertRaisesRegex(pagedkv.InvalidArgument, rf"= {number + 100}\b"):
                        pagedkv.attention(x, x, x, form="paged", kv_lens=[1],
                                          block_table=[[number + 100]],
                                          past_key=np.zeros((2, 1, 4, 8), "f"),
                                          past_value=np.zeros((2, 1, 4, 8), "f"))
            return target
        self.run_threads([work(number) for number in range(6)])

    def test_other_threads_run_while_attention_does(self):
        x = np.ones((700, 4, 128), np.float32)
        begun = threading.Event()

        def long_call():
            with pagedkv.Workspace(1, "scalar") as workspace:
                begun.set()
                pagedkv.attention(x, x, x, cu_seqlens_q=[0, 700], workspace=workspace)
        thread = threading.Thread(target=long_call)
        thread.start()
        begun.wait()
        turns = 0
        while thread.is_alive():
            turns += 1
            thread.join(0.001)
        self.assertGreater(turns, 3)

    def test_one_workspace_takes_turns(self):
        with pagedkv.Workspace(1) as workspace:
            def target():
                x = np.ones((4, 2, 8), np.float32)
                for _ in range(100):
                    got = pagedkv.attention(x, x, x, cu_seqlens_q=[0, 4], workspace=workspace)
                    self.assertTrue((got == 1).all())
            self.run_threads([target] * 4)

    def test_requests_from_many_threads_while_another_steps(self):
        with make(max_seqs=32) as cache:
            done = threading.Event()

            def requests():
                for i in range(60):
                    with cache.sequence() as seq:
                        cache.probe([1, 2, i])
                        try:
                            seq.admit([1, 2, i], reserve_tokens=2)
                        except pagedkv.NoBlocks as error:
                            seq.wait_free(error.shortage, 0.01)
                        cache.stats(), cache.usage(), cache.sequences()

            def steps():
                with cache.sequence() as seq:
                    while not done.is_set():
                        with cache.step([seq], [1]) as step:
                            attend_all(step)
                        if seq.length == 20:
                            seq.truncate(0)
            stepper = threading.Thread(target=steps)
            stepper.start()
            try:
                self.run_threads([requests] * 4)
            finally:
                done.set()
                stepper.join(60)
            self.assertEqual((cache.usage().held, cache.check()), (0, []))

    def test_destroy_waits_for_calls_and_wakes_those_that_wait(self):
        cache = make()
        first, second = cache.sequence(), cache.sequence()
        first.admit([1] * 60)
        with self.assertRaises(pagedkv.NoBlocks) as caught:
            second.admit([1] * 60)
        results = []

        def wait():
            try:
                second.wait_free(caught.exception.shortage)
            except pagedkv.PagedKVError as error:
                results.append(type(error))
        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        cache.destroy(force=True)
        for thread in threads:
            thread.join(10)
        self.assertEqual(len(results), 3)
        self.assertLessEqual(set(results), {pagedkv.Busy, pagedkv.StaleHandle})

    def test_destroy_waits_for_attention_that_runs(self):
        group = pagedkv.Group(4, 128, 16, 64)
        cache = pagedkv.Cache([group], [pagedkv.Layer(4)], max_seqs=1, max_seq_len=1024,
                              max_step_tokens=700, num_threads=1, isa="scalar")
        step = cache.step([cache.sequence()], [1] * 700, [700])
        x, out = np.ones((700, 4, 128), np.float32), np.zeros((700, 4, 128), np.float32)
        begun = threading.Event()

        def attend():
            begun.set()
            step.attend(0, x, x, x, out=out)
        thread = threading.Thread(target=attend)
        thread.start()
        begun.wait()
        while thread.is_alive() and not cache._live._uses:
            pass
        cache.destroy(force=True)
        self.assertTrue((out[-1] == 1).all(), "destroy has returned before attention")
        thread.join()

    def test_the_interpreter_ends_with_open_objects(self):
        program = ("import pagedkv, numpy as np; x = np.ones((1, 1, 8), 'f'); "
                   "c = pagedkv.Cache([pagedkv.Group(1, 8, 4, 8)], [pagedkv.Layer(1)], "
                   "max_seqs=2, max_seq_len=8, max_step_tokens=2); s = c.sequence(); "
                   "t = c.step([s], [1]); pagedkv.attention(x, x, x); print('ok')")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("ok\n", "", 0))


class Loading(Case):
    def run_with(self, library):
        return subprocess.run([sys.executable, "-c", "import pagedkv"], capture_output=True,
                              text=True, env=dict(os.environ, PAGEDKV_LIBRARY=library))

    def test_a_library_that_is_not_there_or_is_none_says_so(self):
        for library in ("nowhere/libpagedkv.so", "libm.so.6", __file__):
            done = self.run_with(library)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"ImportError: .*" + library.split("/")[-1])

    def test_the_library_that_is_named_is_taken(self):
        done = self.run_with(pagedkv._library.PATH)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_version(self):
        self.assertEqual(pagedkv.__version__, pagedkv.version())
        self.assertIn(pagedkv.version(), pagedkv.build_info())


if __name__ == "__main__":
    unittest.main()
