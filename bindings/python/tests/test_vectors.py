# SPDX-License-Identifier: MIT
"""The golden vectors of the operator through `attention`, and those that the contract's parameter
list can say through `group_query_attention`."""
import numpy as np

import pagedkv
from support import TOLERANCE, VECTORS, Case, as_float, read_vector

NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def integers(text):
    return [int(word) for word in text.split()]


def constants(v, t):
    chosen = {"rotary_offset": int, "rotary_mode": str, "qk_norm_eps": float, "norm_order": str,
              "softcap": float, "q_scale": float, "smooth_softmax": lambda x: bool(int(x))}
    values = {name: convert(v[name]) for name, convert in chosen.items() if name in v}
    for name in ("head_sink", "rope_cos", "rope_sin", "q_norm_gain", "k_norm_gain"):
        values[name] = t.get(name)
    for name in ("k_scale", "v_scale"):
        scale = t.get(name)
        values[name] = scale.reshape(()) if scale is not None and scale.size == 1 else scale
    return values


def split_heads(x, heads):
    return None if x is None else x.reshape(x.shape[0], heads, -1)


def rows_of(v):
    return np.cumsum([0] + integers(v["q_lens"])).astype(np.int32)


def run_attention(v, t):
    heads, kv_heads = int(v["num_heads"]), int(v["kv_num_heads"])
    latent = v.get("v_in_k") == "1"
    q = split_heads(t["query"], heads)
    out = np.full((q.shape[0], heads, int(v.get("v_width", q.shape[2]))), 7, q.dtype)
    result, lse = pagedkv.attention(
        q, split_heads(t.get("key"), kv_heads), split_heads(t.get("value"), kv_heads),
        form=v["form"], past_key=t["past_key"], past_value=t.get("past_value"),
        cu_seqlens_q=rows_of(v), kv_lens=integers(v["kv_lens"]), block_table=t.get("block_table"),
        slot_ids=t.get("slot_ids"), sliding_window=int(v.get("sliding_window", 0)),
        kept_prefix=integers(v["kept_prefix"]) if "kept_prefix" in v else None,
        causal=v.get("is_causal") != "0", position_ids=t.get("position_ids"),
        attn_mask=t.get("attn_mask"), v_in_k=latent,
        v_width=int(v["v_width"]) if latent and "v_width" in v else None,
        constants=pagedkv.Constants(**constants(v, t)), out=out, return_lse=True)
    assert result is out
    return out.reshape(q.shape[0], -1), lse


def run_contract(v, t):
    c = constants(v, t)
    kept = integers(v["kept_prefix"]) if "kept_prefix" in v else None
    start = t["block_table"] if v["form"] == "paged" else np.zeros(int(v["batch"]), np.int32)
    out, *present = pagedkv.group_query_attention(
        t["query"], t.get("key"), t.get("value"), t["past_key"], t["past_value"], start,
        c["rope_cos"], c["rope_sin"], t.get("position_ids"), t.get("attn_mask"),
        v.get("is_causal") != "0", c.get("q_scale"), c.get("softcap"),
        int(v["sliding_window"]) if "sliding_window" in v else None, c.get("smooth_softmax"),
        c.get("rotary_mode"), int(v["num_heads"]), int(v["kv_num_heads"]), None, None,
        c["k_scale"], c["v_scale"], c["head_sink"], c["q_norm_gain"], c["k_norm_gain"],
        c.get("qk_norm_eps"), t.get("slot_ids"),
        kept[0] if kept is not None and len(kept) == 1 else kept,
        cu_seqlens_q=rows_of(v), cu_seqlens_k=integers(v["kv_lens"]))
    assert present == [None, None] if t.get("key") is None else present[0] is t["past_key"]
    return out


def contract_can_say(v):
    return v["form"] in ("paged", "continuous") and not any(
        key in v for key in ("v_in_k", "rotary_offset", "norm_order"))


def is_close_cache(got, want):
    """Appended cells: within one unit of the last place, or one code."""
    if got.dtype in (np.int8, np.uint8):
        return np.abs(got.astype(int) - want.astype(int)) <= 1
    bound = {np.dtype(np.float32): 2.0**-22, np.dtype(np.float16): 2.0**-10}.get(got.dtype, 2.0**-7)
    got, want = as_float(got), as_float(want)
    return (got == want) | (np.isnan(got) & np.isnan(want)) | \
        (np.abs(got - want) <= 1e-6 + bound * np.abs(want))


class Vectors(Case):
    def check(self, path, run):
        v, t = read_vector(path)
        before = {name: t[name].copy() for name in ("past_key", "past_value") if name in t}
        if v["expect"] != "OK":
            with self.assertRaises(ValueError):
                run(v, t)
            for name, array in before.items():
                self.assertEqual(array.tobytes(), t[name].tobytes())
            return
        result = run(v, t)
        out, lse = result if isinstance(result, tuple) else (result, None)
        tolerance = TOLERANCE[NAMES[v["dtype"]]]
        self.near(out, t["output"], tolerance)
        if lse is not None:
            self.near(lse, t["lse"], tolerance)
        for side in ("key", "value"):
            if f"present_{side}" in t:
                self.assertTrue(is_close_cache(t[f"past_{side}"], t[f"present_{side}"]).all(), side)

    def test_every_vector_through_attention(self):
        paths = sorted(VECTORS.glob("*.txt"))
        self.assertGreater(len(paths), 100)
        for path in paths:
            with self.subTest(path.stem):
                self.check(path, run_attention)

    def test_vectors_through_the_parameter_list_of_tensor_runtimes(self):
        ran = 0
        for path in sorted(VECTORS.glob("*.txt")):
            v, _ = read_vector(path)
            if contract_can_say(v):
                ran += 1
                with self.subTest(path.stem):
                    self.check(path, run_contract)
        self.assertGreater(ran, 60)


def read_key_cases():
    """The cases of keys/prompts.txt as lists of lines' words."""
    cases = []
    for line in (VECTORS / "keys" / "prompts.txt").read_text().splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "case":
            cases.append((words[1], []))
        else:
            cases[-1][1].append(words)
    return cases


class Keys(Case):
    TYPES = ("float32", "float16", "bfloat16", "int8", "e4m3")

    def keys_of(self, lines):
        groups, layers, namespace, one = [], [], {}, {}
        for word, *rest in lines:
            if word == "group":
                kv, k, v, in_k, k_type, v_type, size, window, kept = map(int, rest)
                groups.append(pagedkv.Group(
                    kv, k, size, 1, v, window, kept, self.TYPES[k_type], self.TYPES[v_type],
                    bool(in_k)))
            elif word == "layer":
                group, shares = map(int, rest)
                owner = next((i for i, layer in enumerate(layers) if layer.group == group), 0)
                scales = [0.5 if dtype in ("int8", "e4m3") else None
                          for dtype in (groups[group].k_dtype, groups[group].v_dtype)]
                layers.append(pagedkv.Layer(groups[group].kv_heads, group,
                                            owner if shares else None,
                                            pagedkv.Constants(k_scale=scales[0],
                                                              v_scale=scales[1])))
            elif word == "field":
                text = bytes.fromhex(rest[2]) if len(rest) > 2 else b""
                namespace[int(rest[0])] = (text, int(rest[1]))
            else:
                one[word] = rest
        kept = one.get("kept_prefix")
        config = pagedkv.CacheConfig(
            groups, layers, max_seqs=1, max_seq_len=int(one["max_seq_len"][0]), max_step_tokens=1,
            dtype=self.TYPES[int(one["dtype"][0])], prefix_cache=True,
            fingerprint=bytes.fromhex(one.get("fingerprint", [""])[0]))
        options = pagedkv.Options(kept_prefix=int(kept[0]) if kept else None, namespace=namespace)
        extras = one.get("extras")
        extras = [int(x, 16) for x in extras] if extras else None
        got = config.prefix_keys([int(x) for x in one["tokens"]], extras, options)
        return got, [int(x, 16) for x in one["keys"]]

    def test_keys_of_prompts(self):
        cases = read_key_cases()
        self.assertGreater(len(cases), 2)
        for name, lines in cases:
            with self.subTest(name):
                got, want = self.keys_of(lines)
                self.assertEqual([f"{key:032x}" for key in got], [f"{key:032x}" for key in want])
