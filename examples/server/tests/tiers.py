# SPDX-License-Identifier: MIT
"""The server with tiers: what one process has computed another finds, whatever became of the first,
and nothing that a tier does or fails to do changes an answer or ends a request.

Python's standard library alone, and redis-server or valkey-server. scripts/check_tiers.sh runs it."""
import contextlib
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import redis_server
from redis_server import Garbage, Redis, SlowWay
from server import IDLE_SECONDS, Server, texts

BLOCK_SIZE = 16  # the server's default
SEEDS = range(int(os.environ.get('PKV_TIER_SEED', '0')),
              int(os.environ.get('PKV_TIER_SEED', '0')) + int(os.environ.get('PKV_TIER_KILLS', '4')))
FAULT_SECONDS = float(os.environ.get('PKV_TIER_FAULT_SECONDS', '2'))
NAMES = ('Lily', 'Tom', 'Sara', 'Ben', 'Mia', 'Sam', 'Anna', 'Max', 'Tim', 'Lucy', 'Jack', 'Emma')
THINGS = ('dog', 'cat', 'ball', 'tree', 'car', 'book')


def prompt(number):
    """None begins like another, so what is found was computed for it."""
    name, thing = NAMES[number % len(NAMES)], THINGS[number // len(NAMES) % len(THINGS)]
    return f'{name} and the {thing}. ' + (f'One day {name} went to the park with a {thing}. '
                                          f'The {thing} was big and {name} was happy. ') * 5


REQUESTS = [{'prompt': prompt(number), 'max_tokens': 24, 'seed': number,
             'temperature': (0, 1)[number % 2]} for number in range(36)]


def whole_blocks(answer):
    """What a prompt can find: whole blocks, and never its last token."""
    return (answer['usage']['prompt_tokens'] - 1) // BLOCK_SIZE * BLOCK_SIZE


class TierServer(Server):
    """On one thread; it may complain about blocks that a broken tier did not take."""

    def __init__(self, *options):
        super().__init__('--threads', 1, *options)

    def complaints(self):
        lines = super().complaints().splitlines()
        return '\n'.join(line for line in lines if 'blocks were not stored' not in line)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def wait_idle(self):
        """Blocks may be held for a tier as long as it takes to fail."""
        until = time.monotonic() + IDLE_SECONDS
        while any(group['held'] for group in self.status()['groups']):
            assert time.monotonic() < until, self.status()
            time.sleep(0.02)
        return super().wait_idle()

    def tier(self, name):
        """The counters of a tier, as /metrics tells them."""
        counters = {}
        for line in self.get('/metrics').splitlines():
            found = re.fullmatch(r'pagedkv_tier_(\w+?)(?:_total)?{.*tier_name="(\w+)"} (\d+)', line)
            if found and found.group(2) == name:
                counters[found.group(1)] = int(found.group(3))
        assert counters, name
        return counters

    def check_status(self):
        """/status tells the same."""
        for tier in self.status()['tiers']:
            counters = self.tier(tier.pop('name'))
            assert tier.items() <= counters.items(), (tier, counters)

    def wait_for(self, name, least, *counters):
        """Waits until so many were counted by these counters of a tier together: its thread yields
        to all others, so nothing is certain to have happened after some time."""
        until = time.monotonic() + IDLE_SECONDS
        while sum(self.tier(name)[counter] for counter in counters) < least:
            assert time.monotonic() < until, (counters, self.tier(name))
            time.sleep(0.02)

    def ask(self, number):
        return self.complete(**REQUESTS[number])


class Expected:
    """What each request is answered by a server that has no tier."""
    answers = []

    @classmethod
    def get(cls):
        if not cls.answers:
            with TierServer('--max-batch', 1, '--prefix-cache', 0) as server:
                cls.answers = [texts(server.ask(number)) for number in range(len(REQUESTS))]
        return cls.answers


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Case(unittest.TestCase):
    def check_all(self, server, numbers, at_once=4):
        """Answers are the expected ones; they are returned."""
        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(server.ask, numbers))
        for number, answer in zip(numbers, answers):
            self.assertEqual(texts(answer), Expected.get()[number])
        return answers

    def check_hits(self, server, answers, name, others=0):
        """Every whole block of the prompts came from this tier."""
        hits = sum(whole_blocks(answer) for answer in answers)
        self.assertGreater(hits, 0)
        for answer in answers:
            self.assertGreaterEqual(answer['usage']['prompt_tokens_details']['cached_tokens'],
                                    whole_blocks(answer))
        self.assertEqual(server.tier(name)['hit_tokens'] + others, hits)
        self.assertEqual(server.tier(name)['corrupt_blocks'], 0)


class Again(Case):
    """A process answers, another answers the same: its prompts are hits. Memory has room for all
    that waits to be stored, and a request waits as long as it takes."""
    NUMBERS = range(16)
    PATIENT = ('--tier-wait', 20000, '--cache-mb', 1024)

    def check_again(self, name, *options):
        options = (*self.PATIENT, *options)
        with TierServer(*options) as server:
            answers = self.check_all(server, self.NUMBERS)
            self.assertEqual(server.tier(name)['hit_tokens'], 0)
            self.assertEqual(server.tier(name)['skipped_stores'], 0)
        with TierServer(*options) as server:
            answers = self.check_all(server, self.NUMBERS)
            self.check_hits(server, answers, name)
            server.wait_idle()
            server.check_status()

    def test_redis(self):
        with Redis() as redis:
            self.check_again('redis', '--redis', redis.address)

    def test_disk(self):
        with folder() as path:
            self.check_again('disk', '--disk-tier', f'{path}/blocks:64M')

    def test_password(self):
        with Redis('--requirepass', 'a b"c') as redis, folder() as path:
            with open(f'{path}/password', 'w') as file:
                file.write('a b"c\n')
            self.check_again('redis', '--redis', redis.address,
                             '--redis-password-file', f'{path}/password')

    def test_nearest_first(self):
        """With both, the disk has it; when the disk is lost, Redis."""
        with Redis() as redis, folder() as path:
            options = (*self.PATIENT, '--redis', redis.address, '--disk-tier', f'{path}/blocks')
            self.check_again('disk', *options)
            shutil.rmtree(f'{path}/blocks')
            with TierServer(*options) as server:
                self.check_hits(server, self.check_all(server, self.NUMBERS), 'redis')

    def test_tenants(self):
        """Nobody finds what another tenant has stored."""
        with folder() as path:
            options = (*self.PATIENT, '--disk-tier', f'{path}/blocks')
            with TierServer(*options) as server:
                server.complete(tenant='a', **REQUESTS[0])
            with TierServer(*options) as server:
                server.complete(tenant='b', **REQUESTS[0])
                server.complete(**REQUESTS[0])
                self.assertEqual(server.tier('disk')['hit_tokens'], 0)
                server.complete(tenant='a', **REQUESTS[0])
                self.assertGreater(server.tier('disk')['hit_tokens'], 0)


class Killed(Case):
    """kill -9 while requests run and blocks are stored."""

    def kill_in_the_middle(self, server, chance):
        def client(number):
            with contextlib.suppress(Exception):
                server.ask(number)

        numbers = list(range(len(REQUESTS)))
        chance.shuffle(numbers)
        with ThreadPoolExecutor(6) as pool:
            for number in numbers:
                pool.submit(client, number)
            time.sleep(chance.uniform(0.005, 0.4))
            server.kill()
        return numbers

    def check_killed(self, name, *options):
        options = ('--tier-wait', 20000, *options)
        for seed in SEEDS:
            with self.subTest(seed=seed):
                chance = random.Random(seed)
                numbers = self.kill_in_the_middle(TierServer(*options).__enter__(), chance)
                with TierServer(*options) as server:
                    self.check_all(server, numbers[:6])
                    tier = server.tier(name)
                    self.assertGreaterEqual(tier['hit_tokens'], 0)
                    self.assertEqual(tier['corrupt_blocks'], 0)
        with TierServer(*options) as server:
            self.check_all(server, numbers[:6])
            self.assertGreater(server.tier(name)['hit_tokens'], 0)

    def test_redis(self):
        with Redis() as redis:
            self.check_killed('redis', '--redis', redis.address)

    def test_disk(self):
        with folder() as path:
            self.check_killed('disk', '--disk-tier', f'{path}/blocks')


class Faults(Case):
    """A tier fails while the server decodes. Its memory is small, so that prompts come from the
    tier again and again."""
    SMALL = ('--cache-mb', 3, '--max-batch', 4)

    def load(self, server, while_it_runs):
        """Clients that ask all the time, until while_it_runs has ended; each answer is checked.
        Returns how many there were."""
        ended = threading.Event()

        def client(first):
            count = 0
            while not ended.is_set() or count < 3:
                number = (first + 7 * count) % len(REQUESTS)
                self.assertEqual(texts(server.ask(number)), Expected.get()[number])
                count += 1
            return count

        Expected.get()
        with ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(client, 5 * first) for first in range(6)]
            try:
                time.sleep(0.2)
                while_it_runs()
            finally:
                ended.set()
            return sum(client.result() for client in clients)

    def check(self, options, while_it_runs, name='redis'):
        """The counters of the tier in the end."""
        with TierServer(*self.SMALL, *options) as server:
            self.assertGreaterEqual(self.load(server, lambda: while_it_runs(server)), 18)
            server.wait_idle()
            self.assertEqual(server.status()['failed'], 0)
            return server.tier(name)

    def test_killed(self):
        """And it comes back: what is stored then is found."""
        with Redis() as redis:
            def kill(server):
                time.sleep(FAULT_SECONDS / 4)
                before = server.tier('redis')
                redis.kill()
                time.sleep(FAULT_SECONDS)
                server.wait_for('redis', before['failed_loads'] + before['failed_stores'] + 1,
                                'failed_loads', 'failed_stores')
                after = server.tier('redis')
                redis.start()
                server.wait_for('redis', after['loaded_blocks'] + 1, 'loaded_blocks')
            self.check(('--redis', redis.address), kill)

    def test_paused(self):
        with Redis() as redis:
            def pause(server):
                redis.pause()
                time.sleep(FAULT_SECONDS + 1.5)
                server.wait_for('redis', 1, 'failed_loads', 'failed_stores')
                redis.resume()
            self.check(('--redis', redis.address), pause)

    def test_slow(self):
        with Redis() as redis, SlowWay(redis.port, 2e6, 0.01) as way:
            tier = self.check(('--redis', way.address), lambda _: time.sleep(FAULT_SECONDS))
            self.assertGreater(tier['stored_blocks'] + tier['failed_stores'], 0)

    def test_wrong_password(self):
        with Redis('--requirepass', 'right') as redis, folder() as path:
            with open(f'{path}/password', 'w') as file:
                file.write('wrong\n')
            for options in ((), ('--redis-password-file', f'{path}/password')):
                tier = self.check(('--redis', redis.address, *options),
                                  lambda _: time.sleep(FAULT_SECONDS / 2))
                self.assertGreater(tier['failed_stores'], 0)
                self.assertEqual(tier['stored_blocks'], 0)

    def test_garbage(self):
        with Garbage() as garbage:
            def last(server):
                time.sleep(FAULT_SECONDS)
                server.wait_for('redis', 1, 'failed_loads', 'failed_stores')
            tier = self.check(('--redis', garbage.address), last)
            self.assertEqual((tier['stored_blocks'], tier['hit_tokens']), (0, 0))
            self.assertGreater(garbage.count, 0)

    def test_nobody_there(self):
        tier = self.check(('--redis', f'127.0.0.1:{redis_server.free_port()}'),
                          lambda _: time.sleep(FAULT_SECONDS / 2))
        self.assertGreater(tier['failed_stores'], 0)

    def test_evicting(self):
        with Redis('--maxmemory', '3mb', '--maxmemory-policy', 'allkeys-lru') as redis:
            def evict(server):
                time.sleep(FAULT_SECONDS)
                server.wait_for('redis', 1, 'stored_blocks')
                until = time.monotonic() + IDLE_SECONDS
                while b'evicted_keys:0\r' in redis.command('INFO stats'):
                    self.assertLess(time.monotonic(), until)
                    time.sleep(0.05)
            self.check(('--redis', redis.address), evict)
            self.assertIn(b'evicted_keys:', redis.command('INFO stats'))

    def test_disk_bound(self):
        with folder() as path:
            tier = self.check(('--disk-tier', f'{path}/blocks:600K'),
                              lambda _: time.sleep(FAULT_SECONDS), 'disk')
            self.assertGreater(tier['stored_blocks'], 0)

    def test_disk_full(self):
        with folder() as path:
            mount = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', path],
                                   capture_output=True, check=False)
            if mount.returncode != 0:
                self.skipTest('a small file system cannot be mounted here')
            try:
                self.check(('--disk-tier', f'{path}/blocks:100M'),
                           lambda server: server.wait_for('disk', 1, 'failed_stores'), 'disk')
            finally:
                subprocess.run(['umount', '-l', path], check=True)

    def test_disk_lost(self):
        """The directory is removed."""
        with folder() as path:
            def lose(server):
                shutil.rmtree(f'{path}/blocks', ignore_errors=True)
                time.sleep(FAULT_SECONDS / 2)
                server.wait_for('disk', 1, 'missed_blocks', 'failed_loads')
            self.check(('--disk-tier', f'{path}/blocks'), lose, 'disk')


if __name__ == '__main__':
    unittest.main()
