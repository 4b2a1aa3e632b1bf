# SPDX-License-Identifier: MIT
"""Load: many streams at once, half of them cut off at random, each checked against the same request
run alone on a server without batching, prefix cache and drafts.

    load.py [--seconds S] [--streams N] [--seed K] [--compare] [-- options of the server]

Prints wrong answers, blocks still held, and the time to the first token and per token. --compare
runs the same load, nothing cut off, with the prefix cache, without, and one request at a time. Ends
with status 1 when an answer was wrong or a block is still held."""
import argparse
import asyncio
import json
import random
import sys
import time

from server import Server, texts

SYSTEM = ('Once upon a time there was a little girl who lived near the forest. She had a dog and a '
          'cat, and a friend who lived at the other end of the village, behind the mill. ')
BEGINNINGS = ('One day she saw', 'Her best friend was', 'She had a red', 'The dog ran', 'It was',
              'In the morning', 'They went to', 'The cat said')
NUM_REQUESTS = 96
SINGLE = ('--max-batch', 1, '--prefix-cache', 0, '--drafts', 0)


def make_requests(random_numbers):
    """Requests of all kinds: most begin alike, lengths differ."""
    requests = []
    for number in range(NUM_REQUESTS):
        prompt = random_numbers.choice(BEGINNINGS)
        if number % 4:
            prompt = SYSTEM * random_numbers.randint(1, 3) + prompt
        requests.append({'prompt': prompt, 'seed': number, 'n': 2 if number % 8 == 0 else 1,
                         'max_tokens': random_numbers.randint(8, 96),
                         'temperature': random_numbers.choice((0, 0.7, 1))})
    return requests


def run_alone(requests, options):
    """The texts that each request gives when nothing else runs."""
    with Server(*options, *SINGLE) as server:
        return [texts(server.complete(**request)) for request in requests]


class Load:
    def __init__(self, server, requests, expected, cancel, random_numbers):
        self.server, self.requests, self.expected = server, requests, expected
        self.cancel, self.random = cancel, random_numbers
        self.num_done = self.num_cancelled = self.num_tokens = 0
        self.wrong = []
        self.first, self.between = [], []

    async def run(self, num_streams, seconds):
        self.until = time.monotonic() + seconds
        await asyncio.gather(*(self.client() for _ in range(num_streams)))

    async def client(self):
        while time.monotonic() < self.until:
            await self.one(self.random.randrange(len(self.requests)))

    async def one(self, number):
        request = self.requests[number]
        cut = self.cancel and self.random.random() < 0.5
        left = self.random.randint(0, request['max_tokens']) if cut else -1
        began = last = time.monotonic()
        reader, writer = await self.open(request)
        got = [''] * request['n']
        ended = False
        while left != 0:
            line = await reader.readline()
            if not line.startswith(b'data: '):
                if not line:
                    break
                continue
            if line.startswith(b'data: [DONE]'):
                ended = True
                break
            now = time.monotonic()
            self.take(json.loads(line[6:]), got, number)
            (self.first if last == began else self.between).append(now - last)
            last = now
            left -= 1
        self.judge(number, got, ended, cut)
        if cut and self.random.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()

    async def open(self, request):
        body = json.dumps({**request, 'stream': True}).encode()
        reader, writer = await asyncio.open_connection(self.server.address, self.server.port)
        writer.write(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n'
                     b'Content-Length: %d\r\n\r\n%s' % (len(body), body))
        return reader, writer

    def take(self, event, got, number):
        if 'error' in event:
            self.wrong.append((number, event))
            return
        for choice in event['choices']:
            got[choice['index']] += choice['text']
            self.num_tokens += choice['finish_reason'] is None

    def judge(self, number, got, ended, cut):
        expected = self.expected[number]
        if cut and not ended:
            self.num_cancelled += 1
            right = all(whole.startswith(part) for whole, part in zip(expected, got))
        else:
            self.num_done += 1
            right = ended and got == expected
        if not right:
            self.wrong.append((number, got))


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def run(name, options, requests, expected, arguments, cancel, seconds):
    """One load on a server of its own; true when all was right."""
    with Server(*options) as server:
        load = Load(server, requests, expected, cancel, random.Random(arguments.seed))
        began = time.monotonic()
        asyncio.run(load.run(arguments.streams, seconds))
        took = time.monotonic() - began
        status = server.wait_idle()
    ms = [1000 * percentile(values, share) for values in (load.first, load.between)
          for share in (0.5, 0.99)]
    print(f'{name}: {arguments.streams} streams, {took:.0f} s, {load.num_done} done, '
          f'{load.num_cancelled} cut off, {len(load.wrong)} wrong, 0 blocks held, '
          f'{status["preemptions"]} preempted\n'
          f'    time to first token p50 {ms[0]:.1f} ms, p99 {ms[1]:.1f} ms; '
          f'per token p50 {ms[2]:.1f} ms, p99 {ms[3]:.1f} ms; '
          f'{load.num_tokens / took:.0f} tokens/s', flush=True)
    for number, got in load.wrong[:3]:
        print('    wrong:', requests[number], got, 'instead of', expected[number])
    return not load.wrong and load.num_done > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--streams', type=int, default=64)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--compare', action='store_true')
    parser.add_argument('options', nargs='*')
    arguments = parser.parse_args()
    options = ['--max-batch', 64, *arguments.options]
    requests = make_requests(random.Random(arguments.seed))
    expected = run_alone(requests, arguments.options)
    ok = run('load', options, requests, expected, arguments, True, arguments.seconds)
    if arguments.compare:
        for more in (('--prefix-cache', 1), ('--prefix-cache', 0), SINGLE):
            ok = run(' '.join(map(str, more)), [*options, *more], requests, expected, arguments,
                     False, arguments.seconds / 2) and ok
    return 0 if ok else 1


if __name__ == '__main__':
    sys.exit(main())
