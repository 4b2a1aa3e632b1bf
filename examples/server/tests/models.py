#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The server's models against Python.

Makes folders as Hugging Face lays them out (random weights of the shapes of Llama, Mistral and
Qwen3; a byte-level BPE that it trains on this repository's documents), has server_probe read them,
and compares:

  logits      with a forward pass in numpy, in double, of the same weights
  tokens      with a BPE in plain Python, whose pieces Python's regular expressions find
  refusals    forged safetensors files, configurations and vocabularies

    models.py PROBE [MODELS]     MODELS: a folder with stories260K.bin, whose weights are then
                                 written as a folder too and give the same logits

Needs numpy. Tolerance of logits: each is a sum of dim products of f32, and attention and norms
before it err alike; 1e-4 times the largest logit is a few hundred roundings of 2^-24."""
import functools
import itertools
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

try:
    import numpy as np
except ImportError:
    np = None

TOLERANCE = 1e-4
program = None
failed = 0


def verdict(ok, title, note=""):
    global failed
    failed += not ok
    print(f"{'ok    ' if ok else 'FAILED'} {title}{' (' + note + ')' if note else ''}")


def probe(folder, *words, text=b""):
    return subprocess.run([program, folder, *map(str, words)], input=text, capture_output=True,
                          timeout=120)


# ---- files of weights -----------------------------------------------------------------------

def to_bits(array, dtype):
    """The bytes in the file, and the numbers that they are, in double."""
    if dtype == "F32":
        kept = array.astype("<f4")
        return kept.tobytes(), kept.astype(np.float64)
    if dtype == "F16":
        kept = array.astype("<f2")
        return kept.tobytes(), kept.astype(np.float64)
    high = (array.astype("<f4").view("<u4") >> 16).astype("<u2")
    return high.tobytes(), (high.astype("<u4") << 16).view("<f4").astype(np.float64)


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def shapes_of(config):
    dim, hidden = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or dim // config["num_attention_heads"]
    q, kv = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], dim),
              "model.norm.weight": (dim,)}
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (config["vocab_size"], dim)
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm": (dim,), "post_attention_layernorm": (dim,),
                 "self_attn.q_proj": (q, dim), "self_attn.k_proj": (kv, dim),
                 "self_attn.v_proj": (kv, dim), "self_attn.o_proj": (dim, q),
                 "mlp.gate_proj": (hidden, dim), "mlp.up_proj": (hidden, dim),
                 "mlp.down_proj": (dim, hidden)}
        if config["architectures"] == ["Qwen3ForCausalLM"]:
            parts.update({"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)})
        for part, shape in parts.items():
            shapes[f"model.layers.{layer}.{part}.weight"] = shape
    return shapes


def random_weights(config, dtype, seed):
    rng = np.random.default_rng(seed)
    tensors, values = {}, {}
    for name, shape in shapes_of(config).items():
        if len(shape) == 1:
            array = 1 + 0.2 * rng.standard_normal(shape)
        else:
            array = rng.standard_normal(shape) * (1.5 / shape[1] ** 0.5)
        data, values[name] = to_bits(array, dtype)
        tensors[name] = (dtype, shape, data)
    return tensors, values


def write_folder(folder, config, tensors, tokenizer, shards=1):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file)
    if shards == 1:
        write_safetensors(f"{folder}/model.safetensors", tensors)
        return
    places = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = dict(itertools.islice(tensors.items(), shard, None, shards))
        write_safetensors(f"{folder}/{name}", part)
        places.update({tensor: name for tensor in part})
    with open(f"{folder}/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {}, "weight_map": places}, file)


# ---- a forward pass -------------------------------------------------------------------------

def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def frequencies(config, head):
    theta = config.get("rope_theta", 10000.0)
    base = theta ** (-np.arange(0, head, 2) / head)
    scaling = config.get("rope_scaling")
    if not scaling or scaling["rope_type"] == "default":
        return base
    factor, old = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wave = 2 * np.pi / base
    smooth = (old / wave - low) / (high - low)
    between = (1 - smooth) * base / factor + smooth * base
    return np.where(wave > old / low, base / factor, np.where(wave < old / high, base, between))


def rotate(x, angles):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def window_of(config, layer):
    if "layer_types" in config:
        return config["sliding_window"] if "sliding" in config["layer_types"][layer] else 0
    if config["architectures"] == ["MistralForCausalLM"]:
        return config.get("sliding_window") or 0
    return 0


def numpy_logits(config, w, tokens):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    eps, count = config["rms_norm_eps"], len(tokens)
    place = np.arange(count)
    angles = place[:, None] * frequencies(config, head)[None]
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        def of(part):
            return w[f"model.layers.{layer}.{part}.weight"]
        n = rms(x, of("input_layernorm"), eps)
        q = (n @ of("self_attn.q_proj").T).reshape(count, heads, head)
        k = (n @ of("self_attn.k_proj").T).reshape(count, kv_heads, head)
        v = (n @ of("self_attn.v_proj").T).reshape(count, kv_heads, head)
        if config["architectures"] == ["Qwen3ForCausalLM"]:
            q, k = rms(q, of("self_attn.q_norm"), eps), rms(k, of("self_attn.k_norm"), eps)
        q, k = rotate(q, angles), rotate(k, angles)
        k, v = k.repeat(heads // kv_heads, 1), v.repeat(heads // kv_heads, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / head ** 0.5
        seen = place[None, :] <= place[:, None]
        window = window_of(config, layer)
        if window:
            seen &= place[None, :] > place[:, None] - window
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", weights, v).reshape(count, heads * head)
        x = x + out @ of("self_attn.o_proj").T
        n = rms(x, of("post_attention_layernorm"), eps)
        gate = n @ of("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (n @ of("mlp.up_proj").T)) @ of("mlp.down_proj").T
    tied = config.get("tie_word_embeddings")
    return rms(x, w["model.norm.weight"], eps) @ w[
        "model.embed_tokens.weight" if tied else "lm_head.weight"].T


def probe_logits(path, tokens, chunk):
    run = probe(path, "logits", chunk, *tokens)
    if run.returncode != 0:
        return None, run.stderr.decode().strip()
    return np.frombuffer(run.stdout, "<f4").reshape(len(tokens), -1), ""


# ---- a vocabulary ---------------------------------------------------------------------------

@functools.lru_cache
def ranges_of(major):
    """A regular expression's set of the characters of a major category."""
    text, first = "", None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == major
        if inside and first is None:
            first = code
        if not inside and first is not None:
            text += f"\\U{first:08x}-\\U{code - 1:08x}"
            first = None
    return text


SPACES = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def compiled(pattern):
    """Python has no \\p{..}, and its \\s has other characters."""
    letters, numbers = ranges_of("L"), ranges_of("N")
    text = pattern.replace(r"(?!\S)", f"(?![^{SPACES}])")
    text = text.replace(r"[^\r\n\p{L}\p{N}]", f"[^\\r\\n{letters}{numbers}]")
    text = text.replace(r"[^\s\p{L}\p{N}]", f"[^{SPACES}{letters}{numbers}]")
    text = text.replace(r"\p{L}", f"[{letters}]").replace(r"\p{N}", f"[{numbers}]")
    return re.compile(text.replace(r"\s", f"[{SPACES}]"))


def byte_letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + extra)
            extra += 1
    return letters


LETTER_OF = byte_letters()


def written(data):
    return "".join(LETTER_OF[byte] for byte in data)


def train(pattern, text, num_merges):
    """Merges as byte pairs: the most frequent pair, again and again."""
    counts = {}
    for piece in pattern.findall(text):
        counts[piece] = counts.get(piece, 0) + 1
    words = [([bytes([b]) for b in piece.encode()], n) for piece, n in counts.items()]
    merges = []
    while len(merges) < num_merges:
        pairs = {}
        for word, n in words:
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + n
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = [(merge(word, best), n) for word, n in words]
    return merges


def merge(word, pair):
    out, i = [], 0
    while i < len(word):
        if tuple(word[i:i + 2]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def plain_bpe(vocab, ranks, pattern, whole_pieces, text):
    ids = []
    for match in pattern.finditer(text):
        data = match.group().encode()
        if whole_pieces and data in vocab:
            ids.append(vocab[data])
            continue
        word = [bytes([b]) for b in data]
        while len(word) > 1:
            pairs = [pair for pair in zip(word, word[1:]) if pair in ranks]
            if not pairs:
                break
            word = merge(word, min(pairs, key=ranks.get))
        ids += [vocab[part] for part in word]
    return ids


CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HEADERS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|eot_id|>"]


def tokenizer_of(merges, pattern, special, as_pairs, whole_pieces, extra=(), begin=None):
    """tokenizer.json, and its vocabulary by bytes. extra: tokens that no merge makes."""
    vocab = {bytes([byte]): byte for byte in range(256)}
    for pair in [*merges, *((word, b"") for word in extra)]:
        vocab.setdefault(pair[0] + pair[1], len(vocab))
    first = len(vocab)
    ids = {text: first + i for i, text in enumerate(special)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": pattern == GPT2}
    pre = byte_level
    if pattern != GPT2:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                 "invert": False}
        pre = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    post = byte_level
    if begin is not None:
        token = {"SpecialToken": {"id": begin, "type_id": 0}}
        template = {"type": "TemplateProcessing",
                    "single": [token, {"Sequence": {"id": "A", "type_id": 0}}],
                    "special_tokens": {begin: {"id": begin, "ids": [ids[begin]],
                                               "tokens": [begin]}}}
        post = {"type": "Sequence", "processors": [byte_level, template]}
    pairs = [[written(a), written(b)] for a, b in merges]
    return {"version": "1.0", "normalizer": {"type": "NFC"} if pattern == QWEN else None,
            "added_tokens": [{"id": i, "content": text, "special": True}
                             for text, i in ids.items()],
            "pre_tokenizer": pre, "post_processor": post, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": whole_pieces,
                      "vocab": {written(data): i for data, i in vocab.items()},
                      "merges": pairs if as_pairs else [" ".join(pair) for pair in pairs]}}, vocab


# ---- texts ----------------------------------------------------------------------------------

def texts(corpus):
    fixed = ["", " ", "  ", "\n", " \n", "\n ", "\t", "a", "'", "''s", "'S'T'RE'Ve'lL'D'm'x",
             "'\u017f", "don't I'LL we\u2019re", "1", "12", "1234567", "1a2b", "\u0664\u0665\u0666"
             "\u0667", "\u2163 \u00bd x\u00b2", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u65e5"
             "\u672c\u8a9e123\u30c6\u30b9\u30c8", "\U0001f600\U0001f44d\U0001f3fd", "\U0001f468"
             "\u200d\U0001f469\u200d\U0001f467!", "caf\u00e9 cafe\u0301", "\u00a0x\u00a0 \u3000y",
             "a  b   c    d", "  lead", "trail  ", "x \n\n  y", "x\r\n\r\ny", "\r\n", "\n\n\n",
             "   \n   \n  z", "#!/bin/sh\n\techo $x;\n", "\tfoo\tbar", "(foo)[bar]{baz}",
             "...\n\nnext", " !?\n", "<|im_start|>system<|im_end|>", "<|endoftext|>",
             "<|begin_of_text|><|eot_id|>", "\u0000x".replace("\u0000", "\x01"), "\x1c\x1d\x85z",
             "\u2028\u2029a", "\U0002a6d6\U000e0100", "e\u0301\u0301", "\u0e2a\u0e27\u0e31",
             "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "\u0928\u092e\u0938\u094d\u0924\u0947"]
    rng = np.random.default_rng(5)
    alphabet = list("ab'sStT1 23  \n\n\r\t.!") + ["\u00e9", "\u4e2d", "\U0001f600", "\u0664",
                                                 "\u00a0", "re", "'ll", "the "]
    for length in range(1, 300):
        fixed.append("".join(rng.choice(alphabet, length % 40 + 1)))
    for _ in range(60):
        start = int(rng.integers(0, len(corpus) - 400))
        fixed.append(corpus[start:start + int(rng.integers(1, 400))])
    return fixed


def framed(list_of_texts):
    return b"".join(struct.pack("<I", len(data)) + data
                    for data in (text.encode() for text in list_of_texts))


def probe_ids(folder, list_of_texts):
    run = probe(folder, "encode", text=framed(list_of_texts))
    if run.returncode != 0:
        return None, run.stderr.decode().strip()
    return [[int(word) for word in line.split()] for line in run.stdout.decode().split("\n")[:-1]
            ], ""


# ---- what is compared -----------------------------------------------------------------------

BASE = {"hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "bos_token_id": 0, "eos_token_id": 2}
LLAMA = {**BASE, "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
         "intermediate_size": 172, "num_hidden_layers": 3, "num_attention_heads": 8,
         "num_key_value_heads": 2, "rope_theta": 500000.0, "tie_word_embeddings": False,
         "attention_bias": False, "mlp_bias": False, "rope_scaling": None}
LLAMA_SCALED = {**LLAMA, "tie_word_embeddings": True, "rope_theta": 10000.0, "eos_token_id": [2, 3],
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                 "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": 64}}
MISTRAL = {**LLAMA, "architectures": ["MistralForCausalLM"], "sliding_window": 13,
           "head_dim": 16}
QWEN3 = {**BASE, "architectures": ["Qwen3ForCausalLM"], "hidden_size": 48,
         "intermediate_size": 100, "num_hidden_layers": 4, "num_attention_heads": 6,
         "num_key_value_heads": 3, "head_dim": 16, "rope_theta": 1000000.0,
         "tie_word_embeddings": True, "rms_norm_eps": 1e-6, "use_sliding_window": False,
         "sliding_window": None, "max_window_layers": 28, "rope_scaling": None}
QWEN3_WINDOWS = {**QWEN3, "tie_word_embeddings": False, "use_sliding_window": True,
                 "sliding_window": 9, "max_window_layers": 2,
                 "layer_types": ["full_attention", "full_attention", "sliding_attention",
                                 "sliding_attention"]}


def check_logits(work, tokenizer, vocab_size):
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, vocab_size, 90)]
    cases = [("Llama, f32", LLAMA, "F32", 1), ("Llama, bf16", LLAMA, "BF16", 1),
             ("Llama, scaled rope, tied, f16", LLAMA_SCALED, "F16", 1),
             ("Mistral, windows, bf16, 3 files", MISTRAL, "BF16", 3),
             ("Qwen3, bf16", QWEN3, "BF16", 1), ("Qwen3, f32, 2 files", QWEN3, "F32", 2),
             ("Qwen3, windows, f16", QWEN3_WINDOWS, "F16", 1)]
    for seed, (title, config, dtype, shards) in enumerate(cases):
        config = {**config, "vocab_size": vocab_size}
        tensors, values = random_weights(config, dtype, seed)
        folder = f"{work}/logits{seed}"
        write_folder(folder, config, tensors, tokenizer, shards)
        expected = numpy_logits(config, values, tokens)
        whole, said = probe_logits(folder, tokens, 90)
        if whole is None:
            verdict(False, title, said)
            continue
        error = np.abs(whole - expected).max() / np.abs(expected).max()
        verdict(error < TOLERANCE, f"logits: {title}", f"{error:.1e} of the largest")
        parts, _ = probe_logits(folder, tokens, 7)
        verdict(parts is not None and parts.tobytes() == whole.tobytes(),
                f"logits: {title}: in chunks of 7, the same bits")


def check_tokens(work, corpus):
    cases = [("Llama 3", LLAMA3, HEADERS, True, True), ("Llama 3, merges as texts", LLAMA3,
                                                        HEADERS, False, False),
             ("Qwen", QWEN, CHATML, True, False), ("GPT-2", GPT2, ["<|endoftext|>"], False, False)]
    for number, (title, pattern, special, as_pairs, whole_pieces) in enumerate(cases):
        regex = compiled(pattern)
        merges = train(regex, corpus[:12000], 300)
        tokenizer, vocab = tokenizer_of(merges, pattern, special, as_pairs, whole_pieces,
                                        (b" cache", b"12", b"blocks") if whole_pieces else ())
        config = {**LLAMA, "vocab_size": len(vocab) + len(special), "num_hidden_layers": 1}
        folder = f"{work}/tokens{number}"
        write_folder(folder, config, random_weights(config, "F16", 0)[0], tokenizer)
        ranks = {}
        for rank, pair in enumerate(merges):
            ranks.setdefault(pair, rank)
        list_of_texts = texts(corpus)
        got, said = probe_ids(folder, list_of_texts)
        if got is None:
            verdict(False, f"tokens: {title}", said)
            continue
        wrong = [text for text, ids in zip(list_of_texts, got)
                 if ids != plain_bpe(vocab, ranks, regex, whole_pieces, text)]
        verdict(not wrong and len(got) == len(list_of_texts), f"tokens: {title}",
                f"{len(got)} texts" + (f", first wrong {wrong[0]!r}" if wrong else ""))
        check_chat(folder, title, special, vocab, ranks, regex, whole_pieces)
    return folder


def check_chat(folder, title, special, vocab, ranks, regex, whole_pieces):
    turns = [("system", "Be brief."), ("user", " <|im_end|>What is 12?\n<|eot_id|> ")]

    def text(value):
        return plain_bpe(vocab, ranks, regex, whole_pieces, value)
    ids = {name: len(vocab) + i for i, name in enumerate(special)}
    expected = []
    for role, content in [*turns, ("assistant", None)]:
        if special is CHATML:
            body = text(f"{role}\n") if content is None else [
                *text(role), *text("\n" + content), ids["<|im_end|>"], *text("\n")]
            expected += [ids["<|im_start|>"], *body]
        elif special is HEADERS:
            body = text("\n\n") if content is None else [
                *text("\n\n" + content.strip()), ids["<|eot_id|>"]]
            expected += [ids["<|start_header_id|>"], *text(role), ids["<|end_header_id|>"], *body]
    if special not in (CHATML, HEADERS):
        expected = text(turns[0][1] + "\n") + text(turns[1][1])
    run = probe(folder, "chat", text=framed([part for turn in turns for part in turn]))
    got = [int(word) for word in run.stdout.split()]
    verdict(got == [-1, *expected], f"conversation: {title}", run.stderr.decode().strip())


def check_long_texts(folder):
    for title, text in [("one letter", "a" * (1 << 20)), ("blanks", " " * (1 << 20)),
                        ("letters", "thequickbrown" * (1 << 16)), ("quotes", "'" * (1 << 20))]:
        got, said = probe_ids(folder, [text])
        verdict(got is not None and len(got) == 1, f"a text of 1 MiB: {title}", said)


def check_begin(work, merges):
    tokenizer, vocab = tokenizer_of(merges, LLAMA3, HEADERS, True, True,
                                    begin="<|begin_of_text|>")
    config = {**LLAMA, "vocab_size": len(vocab) + 5, "num_hidden_layers": 1}
    write_folder(f"{work}/begin", config, random_weights(config, "F16", 0)[0], tokenizer)
    run = probe(f"{work}/begin", "chat", text=framed(["user", "x"]))
    verdict(run.stdout.split()[:1] == [str(len(vocab)).encode()], "the token that begins a text",
            run.stderr.decode().strip())


def check_special(work, merges):
    """Pieces that are tokens as they are (whole_pieces), but special ones."""
    special = ["word", " word", "<", "\n"]
    tokenizer, vocab = tokenizer_of(merges, LLAMA3, special, True, True)
    config = {**LLAMA, "vocab_size": len(vocab) + len(special), "num_hidden_layers": 1,
              "max_position_embeddings": 10 ** 9}
    write_folder(f"{work}/special", config, random_weights(config, "F16", 0)[0], tokenizer)
    got, said = probe_ids(f"{work}/special", ["word", "a word", "<", "\n", "word word\n\nword"])
    verdict(got is not None and max(max(ids) for ids in got) < len(vocab),
            "no text becomes a special token", said)


# ---- stories260K ----------------------------------------------------------------------------

def half_split(matrix, heads):
    """Rows of interleaved pairs as Hugging Face orders them."""
    head = matrix.shape[0] // heads
    return matrix.reshape(heads, head // 2, 2, -1).transpose(0, 2, 1, 3).reshape(matrix.shape)


def read_checkpoint(path):
    data = open(path, "rb").read()
    dim, hidden, layers, heads, kv_heads, vocab, positions = struct.unpack("<7i", data[:28])
    floats, at = np.frombuffer(data, "<f4", offset=28), 0
    kv = dim // heads * kv_heads
    values = {}

    def take(name, *shape):
        nonlocal at
        count = int(np.prod(shape))
        values[name] = floats[at:at + count].reshape(shape)
        at += count
    take("embed", vocab, dim)
    for name, *shape in [("input_layernorm", dim), ("self_attn.q_proj", dim, dim),
                         ("self_attn.k_proj", kv, dim), ("self_attn.v_proj", kv, dim),
                         ("self_attn.o_proj", dim, dim), ("post_attention_layernorm", dim),
                         ("mlp.gate_proj", hidden, dim), ("mlp.down_proj", dim, hidden),
                         ("mlp.up_proj", hidden, dim)]:
        take(name, layers, *shape)
    take("norm", dim)
    tensors = {"model.embed_tokens.weight": values["embed"], "model.norm.weight": values["norm"]}
    for layer in range(layers):
        for name in set(values) - {"embed", "norm"}:
            matrix = values[name][layer]
            if name in ("self_attn.q_proj", "self_attn.k_proj"):
                matrix = half_split(matrix, heads if "q_" in name else kv_heads)
            tensors[f"model.layers.{layer}.{name}.weight"] = matrix
    config = {**BASE, "architectures": ["LlamaForCausalLM"], "hidden_size": dim,
              "intermediate_size": hidden, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
              "max_position_embeddings": positions, "rope_theta": 10000.0,
              "tie_word_embeddings": True}
    return config, {name: ("F32", m.shape, np.ascontiguousarray(m).tobytes())
                    for name, m in tensors.items()}


def check_stories(work, models, merges):
    path = f"{models}/stories260K.bin"
    if not models or not os.path.exists(path):
        print("skipped: stories260K as a folder, no models")
        return
    config, tensors = read_checkpoint(path)
    tokenizer, _ = tokenizer_of(merges[:200], QWEN, CHATML, False, False)
    write_folder(f"{work}/stories", config, tensors, tokenizer, 2)
    lines = [line for line in open(f"{models}/expected_greedy.txt") if line.startswith("0 0 ")]
    wrong, error = 0, 0.0
    for line in lines:
        prompt, reply = [[int(word) for word in part.split()] for part in line.split("|")[1:3]]
        tokens = (prompt + reply)[:200]
        folder, said = probe_logits(f"{work}/stories", tokens, 64)
        file, _ = probe_logits(path, tokens, 64)
        if folder is None:
            verdict(False, "stories260K as a folder", said)
            return
        chosen = folder.argmax(-1)[len(prompt) - 1:len(tokens) - 1]
        wrong += list(chosen) != tokens[len(prompt):]
        error = max(error, np.abs(folder - file).max() / np.abs(file).max())
    verdict(wrong == 0 and error < TOLERANCE, "stories260K as a folder: the known tokens, the "
            "logits of the file", f"{len(lines)} prompts, {error:.1e} of the largest")


# ---- refusals -------------------------------------------------------------------------------

def refused(folder, title, part):
    run = probe(folder, "load")
    said = run.stderr.decode().strip()
    verdict(run.returncode == 1 and part in said and "\n" not in said, f"refused: {title}",
            said.replace(os.path.dirname(folder), "") if part not in said else "")


def check_forged_files(work, tokenizer, vocab_size):
    small = {"a": ("F32", (2, 3), bytes(24)), "b.weight": ("BF16", (4,), bytes(8)),
             "c": ("F16", (1, 2), bytes(4))}
    path = f"{work}/small.safetensors"
    write_safetensors(path, small)
    run = probe(path, "forge")
    said = run.stdout.decode().strip()
    verdict(run.returncode == 0 and re.match(r"\d+ truncations, 0 taken; .* whole: 1$", said)
            is not None, "forged safetensors", said + run.stderr.decode())

    config = {**LLAMA, "vocab_size": vocab_size, "num_hidden_layers": 1}
    folder = f"{work}/forged"
    tensors, _ = random_weights(config, "F32", 0)
    write_folder(folder, config, tensors, tokenizer)
    path = f"{folder}/model.safetensors"
    good = open(path, "rb").read()
    length = struct.unpack("<Q", good[:8])[0]
    header, data = json.loads(good[8:8 + length]), good[8 + length:]
    norm, q = "model.norm.weight", "model.layers.0.self_attn.q_proj.weight"

    def forged(title, part, change, raw=None):
        changed = json.loads(json.dumps(header))
        change(changed)
        text = (raw or json.dumps(changed)).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
        refused(folder, title, part)

    def put(name, field, value):
        return lambda changed: changed[name].update({field: value})

    forged("a dtype", "dtype", put(q, "dtype", "F8_E4M3"))
    forged("a shape whose product is 2^64", "shape", put(q, "shape", [2 ** 32, 2 ** 32]))
    forged("a shape of 2^62 elements", "makes it", put(q, "shape", [2 ** 31 - 1, 2 ** 31 - 1]))
    forged("a shape of three", "shape", put(q, "shape", [1, 64, 64]))
    forged("a negative shape", "shape", put(q, "shape", [-64, -64]))
    forged("no shape", "shape", lambda c: c[q].pop("shape"))
    forged("offsets behind the end", "outside", put(q, "data_offsets", [2 ** 52, 2 ** 52 + 16384]))
    forged("offsets of 2^64", "data_offsets", put(q, "data_offsets", [0, 2 ** 64]))
    forged("offsets the wrong way round", "outside", put(q, "data_offsets", [16384, 0]))
    forged("offsets that overlap", "begins at",
           put(norm, "data_offsets", [0, 256]))
    forged("a tensor that is a number", "dtype", lambda c: c.update({q: 3}))
    forged("a shape that the configuration has not", "configuration",
           lambda c: c[q].update(shape=[32, 128]))
    forged("a name twice", "twice", lambda c: None, json.dumps(header)[:-1].replace(
        '"model.layers.0.mlp.down_proj.weight"', '"model.layers.0.mlp.up_proj.weight"') + "}")
    forged("a weight that is missing", "there is no weight",
           lambda c: c.update({"x": c.pop(q)}))
    forged("a header that is no object", "JSON", lambda c: None, "[]")
    forged("brackets, a million deep", "JSON", lambda c: None, "[" * 1000000)
    extra = {**tensors, "model.layers.0.self_attn.q_proj.bias": ("F32", (64,), bytes(256))}
    write_safetensors(path, extra)
    refused(folder, "a bias", "q_proj.bias")
    for title, lead in [("a header of 2^64 - 1 bytes", 2 ** 64 - 1), ("of 2^63", 2 ** 63),
                        ("of one byte more than the file", len(good) - 7), ("of none", 0)]:
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", lead) + good[8:])
        refused(folder, title, "header of" if lead else "JSON")
    shifted = json.dumps(header).encode()
    shifted += b" " * (-len(shifted) % 8 + 1)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(shifted)) + shifted + data)
    refused(folder, "weights that are not aligned", "aligned")
    open(path, "wb").close()
    refused(folder, "an empty file", "empty")
    os.remove(path)
    refused(folder, "no weights", "No such file")
    with open(f"{folder}/model.safetensors.index.json", "w") as file:
        json.dump({"weight_map": {norm: "../forged/model.safetensors"}}, file)
    refused(folder, "a shard outside of the folder", "lies in no file")


def check_configurations(work, tokenizer, vocab_size):
    config = {**LLAMA, "vocab_size": vocab_size, "num_hidden_layers": 1}
    folder = f"{work}/configured"
    tensors, _ = random_weights(config, "F32", 0)
    write_folder(folder, config, tensors, tokenizer)
    for title, change, part in [
            ("another architecture", {"architectures": ["GemmaForCausalLM"]}, "architectures"),
            ("biases of attention", {"attention_bias": True}, "attention_bias"),
            ("biases of the feed-forward part", {"mlp_bias": True}, "mlp_bias"),
            ("another activation", {"hidden_act": "gelu"}, "hidden_act"),
            ("quantized weights", {"quantization_config": {"bits": 4}}, "quantization_config"),
            ("rope by yarn", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
            ("rope of llama3 without factors", {"rope_scaling": {"rope_type": "llama3"}},
             "llama3 with factor"),
            ("rope scaling without a type", {"rope_scaling": {"factor": 2.0}}, "without a type"),
            ("half of the channels turned", {"partial_rotary_factor": 0.5}, "partial_rotary"),
            ("no layers", {"num_hidden_layers": 0}, "num_hidden_layers"),
            ("no count of layers", {"num_hidden_layers": None}, "num_hidden_layers is missing"),
            ("heads of no whole width", {"num_attention_heads": 7}, "head_dim is missing"),
            ("a billion layers", {"num_hidden_layers": 10 ** 9}, "num_hidden_layers"),
            ("heads that do not divide", {"num_key_value_heads": 3}, "heads"),
            ("odd heads", {"head_dim": 7}, "even width"),
            ("a vocabulary that is a text", {"vocab_size": "512"}, "vocab_size"),
            ("a fractional size", {"hidden_size": 64.5}, "hidden_size"),
            ("an end behind the vocabulary", {"eos_token_id": [2, 10 ** 6]}, "eos_token_id"),
            ("an epsilon of 0", {"rms_norm_eps": 0}, "rms_norm_eps"),
            ("a vocabulary larger than the model's", {"vocab_size": 300}, "makes it [300]")]:
        with open(f"{folder}/config.json", "w") as file:
            json.dump({**config, **change}, file)
        refused(folder, title, part)
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)

    def changed(title, part, change):
        text = json.loads(json.dumps(tokenizer))
        change(text)
        with open(f"{folder}/tokenizer.json", "w") as file:
            json.dump(text, file)
        refused(folder, title, part)
    model = tokenizer["model"]
    changed("another pattern", "pattern", lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(
        pattern={"Regex": r"\w+|\W+"}))
    changed("a pre-tokenizer", "Metaspace", lambda t: t.update(
        pre_tokenizer={"type": "Metaspace"}))
    changed("a normalizer", "Lowercase", lambda t: t.update(normalizer={"type": "Lowercase"}))
    changed("Unigram", "Unigram", lambda t: t["model"].update(type="Unigram"))
    changed("byte_fallback", "byte_fallback", lambda t: t["model"].update(byte_fallback=True))
    changed("a merge of unknown tokens", "merges[0]", lambda t: t["model"].update(
        merges=[["zq", "qz"], *model["merges"]]))
    changed("a merge of one", "merges[0]", lambda t: t["model"].update(merges=["a"]))
    changed("no token for a byte", "byte 97", lambda t: t["model"]["vocab"].pop("a"))
    changed("an id twice", "twice", lambda t: t["model"]["vocab"].update(a=98))
    changed("an id behind the model's", "has no id below",
            lambda t: t["model"]["vocab"].update(a=10 ** 6))
    changed("an added id that is negative", "has no id below",
            lambda t: t["added_tokens"].append({"id": -1, "content": "x"}))
    changed("a token of 5,000 bytes", "too long",
            lambda t: t["model"]["vocab"].update({"x" * 5000: vocab_size - 1}))
    with open(f"{folder}/tokenizer.json", "w") as file:
        file.write("{")
    refused(folder, "half a tokenizer.json", "JSON")


def main():
    global program
    if np is None:
        print("skipped: models against Python, there is no numpy")
        return 0
    program = os.path.abspath(sys.argv[1])
    models = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/../../..")
    corpus = open("docs/guide.md").read() + open("docs/design.md").read()
    merges = train(compiled(QWEN), corpus[:12000], 300)
    tokenizer, vocab = tokenizer_of(merges, QWEN, CHATML, True, False)
    vocab_size = len(vocab) + len(CHATML)
    with tempfile.TemporaryDirectory() as work:
        check_logits(work, tokenizer, vocab_size)
        check_stories(work, models, merges)
        folder = check_tokens(work, corpus)
        check_long_texts(folder)
        check_begin(work, merges)
        check_special(work, merges)
        check_forged_files(work, tokenizer, vocab_size)
        check_configurations(work, tokenizer, vocab_size)
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
