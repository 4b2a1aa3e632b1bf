# SPDX-License-Identifier: MIT
"""How the engine serves does not change what it answers: batches, chunks, blocks, prefix cache,
drafts, preemption, quotas and priorities."""
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from server import IDLE_SECONDS, Server, texts

SYSTEM = 'Once upon a time there was a little girl who lived near the forest. She had a dog. '
REQUESTS = [{'prompt': SYSTEM * (number % 4) + 'One day she saw a red dog and a red cat and',
             'max_tokens': 30 + 7 * (number % 5), 'seed': number, 'n': 1 + (number % 5 == 0) * 3,
             'temperature': (0, 1, 0.6)[number % 3], 'logprobs': number % 2}
            for number in range(16)]
ALONE = ('--max-batch', 1, '--prefix-cache', 0, '--drafts', 0, '--chunk', 4096, '--threads', 1,
         '--block-size', 64)


def answers(server, requests, at_once):
    """Texts, reasons and logprobs of each request."""
    with ThreadPoolExecutor(at_once) as pool:
        done = list(pool.map(lambda fields: server.complete(**fields), requests))
    return [[(choice['text'], choice['finish_reason'], choice['logprobs'])
             for choice in answer['choices']] for answer in done]


class Equal(unittest.TestCase):
    """Every way of serving against requests that run alone."""

    @classmethod
    def setUpClass(cls):
        with Server(*ALONE) as server:
            cls.expected = answers(server, REQUESTS, 1)

    def check(self, *options, rounds=1):
        with Server('--threads', 1, *options) as server:
            for _ in range(rounds):
                self.assertEqual(answers(server, REQUESTS, len(REQUESTS)), self.expected)
            return server.wait_idle()

    def test_batch_sizes(self):
        for size in (3, 32):
            self.check('--max-batch', size)

    def test_chunk_sizes(self):
        for size in (1, 50):
            self.check('--chunk', size)

    def test_block_sizes(self):
        for size in (1, 16):
            self.check('--block-size', size)

    def test_threads(self):
        self.check('--threads', 2)

    def test_prefix_cache(self):
        status = self.check('--prefix-cache', 1, rounds=2)
        self.assertGreater(status['hit_tokens'], status['queried_tokens'] / 3)
        status = self.check('--prefix-cache', 0)
        self.assertEqual(status['hit_tokens'], 0)

    def test_drafts(self):
        status = self.check('--drafts', 8)
        self.assertGreater(status['accepted'], 0)
        self.assertLess(status['accepted'], status['drafted'])
        status = self.check('--drafts', 0)
        self.assertEqual(status['drafted'], 0)

    def test_preemption(self):
        for cache in (0, 1):
            status = self.check('--cache-mb', 2, '--block-size', 16, '--prefix-cache', cache)
            self.assertGreater(status['preemptions'], 0)
            self.assertEqual(status['failed'], 0)


class Order(unittest.TestCase):
    def queue_up(self, server, clients):
        """Starts clients one after the other, each behind the first, and says in which order they
        ended; None when the first was done before all of them waited."""
        ended = []

        def client(name, priority, max_tokens):
            server.complete(prompt=SYSTEM, max_tokens=max_tokens, priority=priority, temperature=1)
            ended.append(name)

        threads = [threading.Thread(target=client, args=each) for each in clients]
        for number, thread in enumerate(threads):
            thread.start()
            until = time.monotonic() + IDLE_SECONDS
            while server.status()['waiting'] < number and not ended and time.monotonic() < until:
                time.sleep(0.005)
            if number == 0:
                while server.status()['running'] == 0 and not ended:
                    time.sleep(0.005)
        in_time = not ended
        for thread in threads:
            thread.join()
        return ended if in_time else None

    def test_higher_priority_is_served_first(self):
        clients = (('first', 2, 800), ('low', 0, 90), ('middle', 1, 90), ('high', 2, 90))
        with Server('--threads', 1, '--max-batch', 1, '--pause-ms', 2) as server:
            ended = None
            for _ in range(20):
                ended = ended or self.queue_up(server, clients)
            self.assertEqual(ended, ['first', 'high', 'middle', 'low'])
            server.wait_idle()

    def test_queue_is_bounded(self):
        with Server('--threads', 1, '--max-batch', 1, '--max-queue', 2,
                    '--pause-ms', 2) as server:
            statuses = []

            def client():
                statuses.append(server.post('/v1/completions',
                                            {'prompt': SYSTEM, 'max_tokens': 300})[0])

            threads = [threading.Thread(target=client) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertGreaterEqual(statuses.count(200), 2)
            self.assertGreaterEqual(statuses.count(429), 1)
            self.assertEqual(statuses.count(200) + statuses.count(429), 12)
            server.wait_idle()


class Quota(unittest.TestCase):
    NUM_BLOCKS = 40

    def held_most(self, server, until_done):
        """The most blocks that are held, looked at again and again."""
        most = 0
        while not until_done.is_set():
            most = max(most, sum(group['held'] for group in server.status()['groups']))
        return most

    def test_tenant_keeps_to_its_quota(self):
        requests = [{**fields, 'prompt': fields['prompt'][:100], 'n': 1} for fields in REQUESTS]
        with Server(*ALONE) as server:
            expected = answers(server, requests, 1)
        with Server('--threads', 1, '--block-size', 16, '--pause-ms', 1,
                    '--tenant-blocks', self.NUM_BLOCKS) as server:
            done = threading.Event()
            with ThreadPoolExecutor(1) as watcher:
                most = watcher.submit(self.held_most, server, done)
                try:
                    got = answers(server, [{**fields, 'tenant': 'a'} for fields in requests], 16)
                finally:
                    done.set()
            self.assertEqual(got, expected)
            self.assertLessEqual(most.result(), self.NUM_BLOCKS)
            self.assertGreater(most.result(), 0)
            server.wait_idle()

    def test_request_beyond_the_quota_is_refused(self):
        with Server('--threads', 1, '--block-size', 16, '--tenant-blocks', 10) as server:
            fields = {'prompt': SYSTEM * 4, 'max_tokens': 60}
            status, answer = server.post('/v1/completions', fields, {'X-Tenant': 'a'})
            self.assertEqual((status, answer['error']['param']), (400, 'max_tokens'))
            self.assertEqual(server.post('/v1/completions', fields)[0], 200)
            fields = {'prompt': 'Once', 'max_tokens': 40, 'n': 8}
            self.assertEqual(server.post('/v1/completions', fields, {'X-Tenant': 'a'})[0], 200)
            server.wait_idle()

    def test_one_tenant_does_not_keep_another_waiting(self):
        with Server('--threads', 1, '--block-size', 16, '--pause-ms', 1,
                    '--tenant-blocks', 30) as server:
            ended = []

            def client(tenant, max_tokens):
                server.complete(tenant=tenant, prompt='Once', max_tokens=max_tokens)
                ended.append(tenant)

            threads = [threading.Thread(target=client, args=each)
                       for each in 6 * [('a', 300)] + [('b', 5)]]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertNotEqual(ended[-1], 'b')
            server.wait_idle()


if __name__ == '__main__':
    unittest.main()
