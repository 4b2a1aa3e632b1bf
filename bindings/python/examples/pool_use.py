# SPDX-License-Identifier: MIT
"""Pool use over time: a small server with a stand-in for the model, and a chart of what it did.

    python3 pool_use.py [CHART.png]

Requests arrive, share a system prompt, wait when the pool is full, and end. A line says what
happened; with a file name, matplotlib draws the pool after every step.
"""
import random
import sys

import numpy as np

import pagedkv

# %% The model's shape: four layers, eight query heads on two KV heads.
HEADS, KV_HEADS, WIDTH, LAYERS = 8, 2, 32, 4
SYSTEM_PROMPT = list(range(1000, 1048))

config = pagedkv.CacheConfig(
    groups=[pagedkv.Group(KV_HEADS, WIDTH, block_size=16, num_blocks=64)],
    layers=[pagedkv.Layer(HEADS)] * LAYERS,
    max_seqs=32, max_seq_len=256, max_step_tokens=64, prefix_cache=True, num_events=1024)


# %% A request: its sequence, the tokens that are not computed yet, and how many it still makes.
class Request:
    def __init__(self, number, rng):
        self.number = number
        question = [rng.randrange(1000) for _ in range(rng.randrange(8, 48))]
        self.prompt = SYSTEM_PROMPT + question
        self.to_make = rng.randrange(8, 64)
        self.sequence, self.left = None, []

    def admit(self, cache):
        """True when there was room; the cached part of the prompt need not be computed."""
        self.sequence = cache.sequence(tag=self.number + 1)
        try:
            admission = self.sequence.admit(self.prompt, reserve_tokens=self.to_make)
        except pagedkv.NoBlocks:
            self.sequence.destroy()
            return False
        self.left = self.prompt[admission.num_cached:]
        return True

    def next_tokens(self, room):
        """The next part of the prompt, or one token of the answer."""
        if self.left:
            return self.left[:max(0, room)]
        return [self.number % 1000] if room > 0 else []

    def took(self, count):
        if self.left:
            self.left = self.left[count:]
        else:
            self.to_make -= 1


# %% One step: the rows that have tokens, through all layers.
def step(cache, requests, rng):
    rows, room = [], config.max_step_tokens
    for request in requests:
        tokens = request.next_tokens(room)
        if tokens:
            rows.append((request, tokens))
            room -= len(tokens)
    flat = [token for _, tokens in rows for token in tokens]
    with cache.step([request.sequence for request, _ in rows], flat,
                    [len(tokens) for _, tokens in rows]) as open_step:
        for layer in range(LAYERS):
            q = rng.standard_normal((len(flat), HEADS, WIDTH), np.float32)
            k, v = rng.standard_normal((2, len(flat), KV_HEADS, WIDTH), np.float32)
            open_step.attend(layer, q, k, v)
    for request, tokens in rows:
        request.took(len(tokens))


# %% The server: admits what fits, steps, ends what is done, and notes the pool.
def serve(cache, number_of_requests=40, seed=1):
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    waiting = [Request(i, choose) for i in range(number_of_requests)]
    running, history, waits = [], [], 0
    while waiting or running:
        while waiting and len(running) < 12:
            if not waiting[0].admit(cache):
                waits += 1
                break
            running.append(waiting.pop(0))
        step(cache, running, rng)
        for request in [r for r in running if r.to_make == 0]:
            request.sequence.destroy()
            running.remove(request)
        usage = cache.usage()
        history.append((usage.held, usage.cached, usage.num_blocks, len(running), len(waiting)))
    return np.array(history), waits


# %% The chart.
def draw(history, path):
    try:
        import matplotlib
    except ImportError:
        print("no chart: matplotlib is not installed (Debian: python3-matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    held, cached, blocks, running, waiting = history.T
    figure, (pool, queue) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 5))
    pool.stackplot(range(len(history)), held, cached, blocks - held - cached,
                   labels=["held by sequences", "free, cached", "free"],
                   colors=["#3b6ea5", "#9dc3e6", "#eeeeee"])
    pool.set_ylabel("blocks")
    pool.legend(loc="lower center")
    queue.plot(running, label="running")
    queue.plot(waiting, label="waiting")
    queue.set_xlabel("step")
    queue.set_ylabel("requests")
    queue.legend(loc="upper right")
    figure.savefig(path)
    print(f"chart: {path}")


if __name__ == "__main__":
    with pagedkv.Cache(config) as cache:
        history, waits = serve(cache)
        stats = cache.stats()
        print(f"{len(history)} steps, {history[:, 0].max()} of {history[0, 2]} blocks held at most,"
              f" {waits} waits, {stats.hit_tokens} of {stats.queried_tokens} prompt tokens cached,"
              f" {cache.usage().held} blocks held at the end")
    if len(sys.argv) > 1:
        draw(history, sys.argv[1])
