#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check.py: the embedded model computed anew, by numpy in float64 from the file's description in
README.md, and compared with what the C program says. Shares no line with train.py or the examples.

    python3 check.py DEMO stories.pkvm     DEMO is the built examples/demo

Exit status 0; 1 when a logit differs by more than TOLERANCE times the largest of its row; 77
without numpy.
"""

import subprocess
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)

# f32 against float64: the longest sums have 256 products, each rounded by up to 2^-24.
TOLERANCE = 256 * 2.0 ** -24

PROMPTS = [
    "",
    "I",
    "It was a quiet night in May",
    "An owl called Clara lived there, and she was very shy. \"Who is there?\" asked Clara.",
    "It was a windy day in autumn at the harbour by the sea, and the leaves flew over the fields. "
    "In a burrow lived a shy rabbit called Jon. One morning the roof fell down with a loud noise. "
    "\"We need a new roof,\" said Anna the goat. But Jon went home and came back with a green box "
    "of tools. First he took the roof apart, and then he counted the pieces. At last the roof",
    "bytes that no story has: \x7e\x7b\x01 0123456789",
]


def read_model(path):
    data = open(path, "rb").read()
    assert data[:8] == b"PKVMODEL", "magic"
    word = np.frombuffer(data, "<u4", 14, 8)
    version, dtype, dim, hidden, layers, heads, kv_heads, width, vocab, begin = map(int, word[:10])
    assert (version, dtype) == (1, 1), "version and dtype"
    shape = dict(dim=dim, layers=layers, heads=heads, kv_heads=kv_heads, width=width, begin=begin,
                 theta=float(word[12]), windows=np.frombuffer(data, "<u4", layers, 64).tolist())
    numbers = np.frombuffer(data, "<f2", -1, 64 + 4 * layers).astype(np.float64)
    at = 0

    def take(rows, columns):
        nonlocal at
        at += rows * columns
        return numbers[at - rows * columns:at].reshape(rows, columns)

    names = [("attn_norm", 1, dim), ("wq", heads * width, dim), ("wk", kv_heads * width, dim),
             ("wv", kv_heads * width, dim), ("wo", dim, heads * width), ("ffn_norm", 1, dim),
             ("w1", hidden, dim), ("w3", hidden, dim), ("w2", dim, hidden)]
    shape["embedding"] = take(vocab, dim)
    shape["layer"] = [{name: take(rows, columns) for name, rows, columns in names}
                      for _ in range(layers)]
    shape["final_norm"] = take(1, dim)
    assert at == len(numbers), "size"
    return shape


def norm(x, weight):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * weight


def turn(x, theta):
    """Rope on [tokens][heads][width]: channels 2i and 2i + 1 as a complex number."""
    tokens, _, width = x.shape
    turns = np.exp(1j * np.outer(np.arange(tokens), theta ** (-np.arange(0, width, 2) / width)))
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * turns[:, None, :]
    return np.stack((z.real, z.imag), axis=-1).reshape(x.shape)


def attend(m, w, x, window):
    tokens = len(x)
    q = turn((x @ w["wq"].T).reshape(tokens, m["heads"], m["width"]), m["theta"])
    k = turn((x @ w["wk"].T).reshape(tokens, m["kv_heads"], m["width"]), m["theta"])
    v = (x @ w["wv"].T).reshape(tokens, m["kv_heads"], m["width"])
    out = np.zeros_like(q)
    for head in range(m["heads"]):
        kv_head = head * m["kv_heads"] // m["heads"]
        for t in range(tokens):
            first = max(0, t + 1 - window) if window else 0
            scores = k[first:t + 1, kv_head] @ q[t, head] / np.sqrt(m["width"])
            p = np.exp(scores - scores.max())
            out[t, head] = (p / p.sum()) @ v[first:t + 1, kv_head]
    return out.reshape(tokens, -1) @ w["wo"].T


def logits(m, text):
    x = m["embedding"][[m["begin"]] + list(text.encode())]
    for w, window in zip(m["layer"], m["windows"]):
        x = x + attend(m, w, norm(x, w["attn_norm"]), window)
        n = norm(x, w["ffn_norm"])
        gate = n @ w["w1"].T
        x = x + (gate / (1 + np.exp(-gate)) * (n @ w["w3"].T)) @ w["w2"].T
    return norm(x[-1:], m["final_norm"])[0] @ m["embedding"].T


def main():
    demo, path = sys.argv[1:]
    model = read_model(path)
    worst = 0.0
    for prompt in PROMPTS:
        said = subprocess.run([demo, "--logits", prompt], check=True, capture_output=True).stdout
        ours = np.array(said.split(), dtype=np.float64)
        expected = logits(model, prompt)
        if ours.shape != expected.shape or not np.isfinite(ours).all():
            sys.exit(f"check.py: {prompt!r}: {ours.shape} numbers, not {expected.shape}")
        worst = max(worst, np.abs(ours - expected).max() / np.abs(expected).max())
    print(f"{len(PROMPTS)} prompts: logits differ by at most {worst:.1e} of the largest")
    sys.exit(0 if worst <= TOLERANCE else 1)


if __name__ == "__main__":
    main()
