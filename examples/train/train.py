#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""train.py: trains the embedded model on the stories of stories.py and writes its weights.

Needs Debian's python3-torch. Everything follows from the seed, the number of steps and the number
of threads; the log says all three. A checkpoint, OUT.pkvm.part, is written every 50 steps. A run
can begin from one: its steps warm up for a shorter time, at half the rate, on other stories.

    python3 train.py OUT.pkvm LOG [STEPS [CHECKPOINT.pkvm]]

The architecture (README.md has the formulas and the file format): RMSNorm, rotary positions on
adjacent channels, grouped-query attention, SwiGLU, the embedding used as classifier. Even layers
attend to the last WINDOW tokens, odd layers to all.
"""

import math
import platform
import random
import struct
import sys
import time

import torch
import torch.nn.functional as F

from stories import story

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, WIDTH = 128, 256, 4, 8, 2, 16
VOCAB, BEGIN, END, WINDOW, SEQ_LEN = 258, 256, 257, 64, 1024
SEED, RATE, WARMUP, THREADS = 12, 4e-3, 60, 1
# Rows x tokens of the steps, in turn: mostly short ones, which cost less, and some that are as
# long as the stories. Lengths are multiples of WINDOW.
SIZES = [(10, 320), (10, 320), (10, 320), (5, 640)]
WINDOWS = [WINDOW if layer % 2 == 0 else 0 for layer in range(LAYERS)]


def tensors():
    """Name and shape of each tensor, in the order of the file."""
    yield "embedding", (VOCAB, DIM)
    for layer in range(LAYERS):
        for name, shape in [("attn_norm", (DIM,)), ("wq", (HEADS * WIDTH, DIM)),
                            ("wk", (KV_HEADS * WIDTH, DIM)), ("wv", (KV_HEADS * WIDTH, DIM)),
                            ("wo", (DIM, HEADS * WIDTH)), ("ffn_norm", (DIM,)),
                            ("w1", (HIDDEN, DIM)), ("w3", (HIDDEN, DIM)), ("w2", (DIM, HIDDEN))]:
            yield f"{layer}.{name}", shape
    yield "final_norm", (DIM,)


def initial(name, shape):
    if name.endswith("norm"):
        return torch.ones(shape)
    scale = 0.05 if name == "embedding" else 1 / math.sqrt(shape[1])
    if name.endswith(("wo", "w2")):
        scale /= math.sqrt(2 * LAYERS)
    return torch.randn(shape) * scale


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def rotate(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def scored(q, k, v, hidden):
    """Attention where every matrix of the batch has the same keys hidden (-inf, else 0)."""
    return torch.baddbmm(hidden, q, k.transpose(1, 2)).softmax(-1).bmm(v)


def full_attention(q, k, v):
    """q [rows][group][length][WIDTH], k and v [rows][length][WIDTH]."""
    rows, group, length, _ = q.shape
    position = torch.arange(length)
    hidden = torch.where(position[:, None] < position, -math.inf, 0.0).repeat(group, 1)
    return scored(q.reshape(rows, -1, WIDTH), k, v, hidden).view(q.shape)


def window_attention(q, k, v):
    """The same in blocks of WINDOW queries, each against the block before it and its own."""
    rows, group, length, _ = q.shape
    blocks = length // WINDOW
    q = q.view(rows, group, blocks, WINDOW, WIDTH).transpose(1, 2)

    def in_pairs(x):
        x = F.pad(x, (0, 0, WINDOW, 0)).view(rows, blocks + 1, WINDOW, WIDTH)
        return torch.cat((x[:, :-1], x[:, 1:]), 2).reshape(rows * blocks, 2 * WINDOW, WIDTH)

    back = WINDOW + torch.arange(WINDOW)[:, None] - torch.arange(2 * WINDOW)
    hidden = torch.where((back < 0) | (back >= WINDOW), -math.inf, 0.0).repeat(group, 1)
    hidden = hidden.repeat(rows, blocks, 1, 1)
    hidden[:, 0, :, :WINDOW] = -math.inf
    out = scored(q.reshape(rows * blocks, -1, WIDTH), in_pairs(k), in_pairs(v),
                 hidden.view(rows * blocks, -1, 2 * WINDOW))
    return out.view(rows, blocks, group, WINDOW, WIDTH).transpose(1, 2).reshape(
        rows, group, length, WIDTH)


def attention(w, layer, x, cos, sin):
    batch, length, _ = x.shape

    def project(name, heads):
        return (x @ w[f"{layer}.{name}"].t()).view(batch, length, heads, WIDTH).transpose(1, 2)

    q = rotate(project("wq", HEADS), cos, sin) / math.sqrt(WIDTH)
    q = q.reshape(batch * KV_HEADS, HEADS // KV_HEADS, length, WIDTH)
    k = rotate(project("wk", KV_HEADS), cos, sin).reshape(batch * KV_HEADS, length, WIDTH)
    v = project("wv", KV_HEADS).reshape(batch * KV_HEADS, length, WIDTH)
    out = (window_attention if WINDOWS[layer] else full_attention)(q, k, v)
    out = out.view(batch, HEADS, length, WIDTH).transpose(1, 2).reshape(batch, length, -1)
    return out @ w[f"{layer}.wo"].t()


def forward(w, tokens):
    """Logits [batch][length][vocab]."""
    length = tokens.shape[1]
    angle = torch.arange(length, dtype=torch.float64)[:, None] * \
        10000.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    cos, sin = angle.cos().float(), angle.sin().float()
    x = w["embedding"][tokens]
    for layer in range(LAYERS):
        x = x + attention(w, layer, rms_norm(x, w[f"{layer}.attn_norm"]), cos, sin)
        n = rms_norm(x, w[f"{layer}.ffn_norm"])
        x = x + (F.silu(n @ w[f"{layer}.w1"].t()) * (n @ w[f"{layer}.w3"].t())) \
            @ w[f"{layer}.w2"].t()
    return rms_norm(x, w["final_norm"]) @ w["embedding"].t()


def batch(rng, count, length):
    """Rows of length + 1 tokens: half begin with a story, half somewhere inside one."""
    rows = []
    for r in range(count):
        start = rng.randrange(500) if r % 2 else 0
        row = []
        while len(row) < start + length + 1:
            row += [BEGIN] + list(story(rng).encode()) + [END]
        rows.append(row[start:start + length + 1])
    return torch.tensor(rows)


def loss_of(w, rows):
    logits = forward(w, rows[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCAB), rows[:, 1:].reshape(-1))


def save(path, w):
    """The format of README.md: 64 bytes of header, 4 a layer, then f16."""
    with open(path, "wb") as out:
        out.write(struct.pack("<8s14I", b"PKVMODEL", 1, 1, DIM, HIDDEN, LAYERS, HEADS, KV_HEADS,
                              WIDTH, VOCAB, BEGIN, END, SEQ_LEN, 10000, 0))
        out.write(struct.pack(f"<{LAYERS}I", *WINDOWS))
        for name, _ in tensors():
            out.write(w[name].detach().half().numpy().tobytes())


def load(path):
    """The weights of a checkpoint that save() wrote."""
    w = {}
    with open(path, "rb") as file:
        file.seek(64 + 4 * LAYERS)
        for name, shape in tensors():
            half = torch.frombuffer(bytearray(file.read(2 * math.prod(shape))), dtype=torch.half)
            w[name] = half.float().view(shape)
    return w


def rate(step, steps, highest, warmup):
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (step - warmup) /
                                                        (steps - warmup))))


def train(path, log, steps, checkpoint):
    def say(text):
        print(text, file=log, flush=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    torch.set_flush_denormal(True)
    rng = random.Random(SEED if checkpoint is None else SEED + 2)
    highest, warmup = (RATE, WARMUP) if checkpoint is None else (RATE / 2, 10)
    w = {name: initial(name, shape) for name, shape in tensors()}
    w = {name: t.requires_grad_() for name, t in (load(checkpoint) if checkpoint else w).items()}
    matrices = [t for name, t in w.items() if not name.endswith("norm")]
    norms = [t for name, t in w.items() if name.endswith("norm")]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05},
                                   {"params": norms, "weight_decay": 0.0}], betas=(0.9, 0.98))
    held_out = batch(random.Random(SEED + 1), 16, 640)
    say(f"# torch {torch.__version__}, python {platform.python_version()}, "
        f"{platform.machine()}, {THREADS} threads, seed {SEED}")
    say(f"# {sum(t.numel() for t in w.values())} weights, {steps} steps of 3200 tokens"
        f"{' from ' + checkpoint if checkpoint else ''}")
    say("# step, seconds, loss in nats a byte (the mean since the line before)")
    start, total, count = time.time(), 0.0, 0
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps, highest, warmup)
        loss = loss_of(w, batch(rng, *SIZES[step % len(SIZES)]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        total, count = total + loss.item(), count + 1
        if (step + 1) % 20 == 0 or step + 1 == steps:
            say(f"{step + 1} {time.time() - start:.0f} {total / count:.4f}")
            total, count = 0.0, 0
        if (step + 1) % 50 == 0:
            save(path + ".part", w)
    save(path, w)
    with torch.no_grad():
        before = loss_of(w, held_out).item()
        after = loss_of({name: t.half().float() for name, t in w.items()}, held_out).item()
    say(f"# 16 rows of other stories: {before:.4f}; with the weights rounded to f16: {after:.4f}")


def main():
    with open(sys.argv[2], "w", encoding="ascii") as log:
        train(sys.argv[1], log, int(sys.argv[3]) if len(sys.argv) > 3 else 1200,
              sys.argv[4] if len(sys.argv) > 4 else None)


if __name__ == "__main__":
    main()
