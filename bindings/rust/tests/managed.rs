// SPDX-License-Identifier: MIT
//! Managed caches: decode against a naive computation, prefix hits, what drop releases.
use pagedkv::{
    Cache, Config, Error, Group, Layer, LayerIo, NamespaceField, Prompt, Row, Sequence,
    SequenceOptions,
};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const WIDTH: usize = 16;
const WINDOW: usize = 6;
/// Window of each layer; 0 = none.
const LAYERS: [usize; 3] = [0, WINDOW, 0];

fn config(num_blocks: usize) -> Config {
    let full =
        Group { kv_heads: KV_HEADS, k_width: WIDTH, block_size: 4, num_blocks, ..Group::default() };
    let windowed = Group { sliding_window: WINDOW as i64, ..full.clone() };
    let layer = |group| Layer { group, num_heads: HEADS, ..Layer::default() };
    Config {
        groups: vec![full, windowed],
        layers: LAYERS.iter().map(|window| layer((*window > 0) as usize)).collect(),
        max_seqs: 8,
        max_seq_len: 64,
        max_step_tokens: 64,
        num_threads: 2,
        prefix_cache: true,
        ..Config::default()
    }
}

/// A number in [-1, 1) that follows from where it stands.
fn number(parts: [usize; 5]) -> f32 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for part in parts {
        state = (state ^ part as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 29;
    }
    (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Channels of a token: they follow from its layer, what they are, its id and its position.
fn channels(layer: usize, what: usize, token: i32, position: usize, count: usize) -> Vec<f32> {
    (0..count).map(|c| number([layer, what, token as usize, position, c])).collect()
}

/// Attention of the query at the end of `tokens`, from its definition.
fn naive(layer: usize, tokens: &[i32]) -> Vec<f32> {
    let last = tokens.len() - 1;
    let first = match LAYERS[layer] {
        0 => 0,
        window => (last + 1).saturating_sub(window),
    };
    let q = channels(layer, 0, tokens[last], last, HEADS * WIDTH);
    let mut out = vec![0.0; HEADS * WIDTH];
    for head in 0..HEADS {
        let of_head = |all: &[f32], h: usize| all[h * WIDTH..(h + 1) * WIDTH].to_vec();
        let (query, kv_head) = (of_head(&q, head), head / (HEADS / KV_HEADS));
        let (mut sum, mut values) = (0.0f64, vec![0.0f64; WIDTH]);
        for (j, token) in tokens.iter().enumerate().skip(first) {
            let key = of_head(&channels(layer, 1, *token, j, KV_HEADS * WIDTH), kv_head);
            let value = of_head(&channels(layer, 2, *token, j, KV_HEADS * WIDTH), kv_head);
            let dot: f64 = query.iter().zip(&key).map(|(a, b)| (a * b) as f64).sum();
            let weight = (dot / (WIDTH as f64).sqrt()).exp();
            sum += weight;
            values.iter_mut().zip(&value).for_each(|(all, v)| *all += weight * *v as f64);
        }
        for c in 0..WIDTH {
            out[head * WIDTH + c] = (values[c] / sum) as f32;
        }
    }
    out
}

/// One step over rows of (sequence, all its tokens so far, how many of them are new): every
/// output is compared with the naive one. Returns the largest difference.
fn step(cache: &Cache, rows: &[(&Sequence<'_>, &[i32], usize)]) -> f32 {
    let batch: Vec<Row<'_>> =
        rows.iter().map(|(s, tokens, new)| Row::new(s, &tokens[tokens.len() - new..])).collect();
    let mut step = cache.begin(&batch).unwrap();
    assert_eq!(step.num_rows(), rows.len());
    let mut largest = 0.0f32;
    for layer in 0..LAYERS.len() {
        let (mut q, mut k, mut v, mut expected) = (vec![], vec![], vec![], vec![]);
        for (_, tokens, new) in rows {
            for position in tokens.len() - new..tokens.len() {
                let of = |what, count| channels(layer, what, tokens[position], position, count);
                q.extend(of(0, HEADS * WIDTH));
                k.extend(of(1, KV_HEADS * WIDTH));
                v.extend(of(2, KV_HEADS * WIDTH));
                expected.extend(naive(layer, &tokens[..position + 1]));
            }
        }
        let mut out = vec![f32::NAN; expected.len()];
        let io = LayerIo { q: &q, k: Some(&k), v: Some(&v), out: &mut out, lse: None };
        step.attend(layer, io).unwrap();
        for (a, b) in out.iter().zip(&expected) {
            let difference = (a - b).abs();
            assert!(difference.is_finite());
            largest = largest.max(difference);
        }
    }
    step.commit(None).unwrap();
    largest
}

fn prompt(seed: i32, length: i32) -> Vec<i32> {
    (0..length).map(|i| (i * 7 + seed * 13) % 97).collect()
}

#[test]
fn managed_decode_is_the_naive_computation() {
    let cache = Cache::new(&config(32)).unwrap();
    let (a, b) = (
        cache.sequence(&SequenceOptions::default()).unwrap(),
        cache.sequence(&SequenceOptions::default()).unwrap(),
    );
    let (mut text_a, mut text_b) = (prompt(1, 9), prompt(2, 14));
    let mut largest = step(&cache, &[(&a, &text_a, 9), (&b, &text_b, 14)]);
    for token in 0..20 {
        text_a.push(token);
        text_b.push(90 - token);
        largest = largest.max(step(&cache, &[(&a, &text_a, 1), (&b, &text_b, 1)]));
    }
    assert!(largest < 1e-5, "{}", largest);
    assert_eq!((a.length().unwrap(), b.length().unwrap()), (29, 34));
    assert_eq!(cache.check(), 0);
}

#[test]
fn a_prompt_that_was_computed_before_is_a_hit() {
    let cache = Cache::new(&config(32)).unwrap();
    let text = prompt(1, 17);
    let first = cache.sequence(&SequenceOptions::default()).unwrap();
    let admission = first.admit(&Prompt::new(&text), 4, text.len()).unwrap();
    assert_eq!((admission.num_cached, admission.num_to_write), (0, 17));
    step(&cache, &[(&first, &text, 17)]);
    drop(first);

    let probe = cache.probe(&SequenceOptions::default(), &Prompt::new(&text), 4, 17).unwrap();
    assert!(probe.refused.is_none());
    assert_eq!(probe.num_cached, 16);
    let second = cache.sequence(&SequenceOptions::default()).unwrap();
    let admission = second.admit(&Prompt::new(&text), 4, text.len()).unwrap();
    assert_eq!((admission.num_cached, admission.num_to_write), (16, 1));
    assert!(step(&cache, &[(&second, &text, 1)]) < 1e-5);

    let field = NamespaceField { tag: 1, bytes: b"other", begins_at: 0 };
    let options = SequenceOptions { namespace: &[field], ..SequenceOptions::default() };
    let stranger = cache.sequence(&options).unwrap();
    assert_eq!(stranger.admit(&Prompt::new(&text), 0, 17).unwrap().num_cached, 0);
}

#[test]
fn dropping_a_sequence_releases_its_blocks() {
    let cache = Cache::new(&config(32)).unwrap();
    let sequence = cache.sequence(&SequenceOptions::default()).unwrap();
    let text = prompt(3, 13);
    step(&cache, &[(&sequence, &text, 13)]);
    assert_eq!(cache.usage(0).unwrap().held, 4);
    let children = sequence.fork(13, 2).unwrap();
    drop(sequence);
    assert_eq!(cache.usage(0).unwrap().held, 4);
    drop(children);
    assert_eq!(cache.usage(0).unwrap().held, 0);
    assert_eq!(cache.usage(1).unwrap().held, 0);
    assert_eq!(cache.stats().unwrap().num_seqs, 0);
}

#[test]
fn a_swapped_sequence_comes_back_and_goes_on() {
    for swap_path in [None, Some(std::env::temp_dir())] {
        let cache = Cache::new(&Config { swap_bytes: 1 << 16, swap_path, ..config(8) }).unwrap();
        let sequence = cache.sequence(&SequenceOptions::default()).unwrap();
        let mut text = prompt(3, 13);
        step(&cache, &[(&sequence, &text, 13)]);
        sequence.swap_out().unwrap();
        assert_eq!(cache.usage(0).unwrap().held, 0);
        assert!(matches!(sequence.fork(13, 1), Err(Error::NotResident(_))));
        assert!(matches!(sequence.swap_out().unwrap_err().error, Error::InvalidArgument(_)));
        let other = cache.sequence(&SequenceOptions::default()).unwrap();
        step(&cache, &[(&other, &prompt(4, 24), 24)]);
        let refused = sequence.swap_in().unwrap_err();
        assert!(matches!(refused.error, Error::NoBlocks(_)), "{}", refused);
        assert_eq!(refused.shortage.unwrap().need(), 4);
        drop(other);
        sequence.swap_in().unwrap();
        text.push(7);
        assert!(step(&cache, &[(&sequence, &text, 1)]) < 1e-5);
    }
}

#[test]
fn a_saved_sequence_goes_on_in_another_cache() {
    let name = format!("pagedkv-rust-{}.pkv", std::process::id());
    let path = std::env::temp_dir().join(name);
    let (cache, other) = (Cache::new(&config(32)).unwrap(), Cache::new(&config(32)).unwrap());
    let sequence = cache.sequence(&SequenceOptions::default()).unwrap();
    let mut text = prompt(3, 13);
    step(&cache, &[(&sequence, &text, 13)]);
    sequence.save(&path).unwrap();
    let loaded = other.load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded.length().unwrap(), 13);
    text.push(7);
    assert!(step(&other, &[(&loaded, &text, 1)]) < 1e-5);
    assert_eq!(other.check(), 0);
    assert!(other.load(&path).is_err());
}

#[test]
fn a_step_that_is_dropped_is_aborted() {
    let cache = Cache::new(&config(32)).unwrap();
    let sequence = cache.sequence(&SequenceOptions::default()).unwrap();
    let text = prompt(3, 5);
    {
        let step = cache.begin(&[Row::new(&sequence, &text)]).unwrap();
        assert_eq!(step.num_tokens(), 5);
        assert!(matches!(cache.begin(&[]).err().unwrap().error, Error::Busy(_)));
    }
    let step_without_layers = cache.begin(&[Row::new(&sequence, &text)]).unwrap();
    assert!(matches!(step_without_layers.commit(None), Err(Error::InvalidArgument(_))));
    assert_eq!(sequence.length().unwrap(), 0);
    assert_eq!(cache.usage(0).unwrap().held, 0);
    assert!(step(&cache, &[(&sequence, &text, 5)]) < 1e-5);
}

#[test]
fn refusals_name_the_culprit() {
    let error = Cache::new(&Config::default()).err().unwrap();
    assert!(matches!(error, Error::InvalidArgument(_)));
    assert!(error.text().starts_with("num_groups = 0"), "{}", error);
    assert!(error.to_string().starts_with("PKV_INVALID_ARGUMENT: "), "{}", error);

    let cache = Cache::new(&config(4)).unwrap();
    let sequence = cache.sequence(&SequenceOptions::default()).unwrap();
    let refused = sequence.admit(&Prompt::new(&prompt(1, 30)), 0, 0).unwrap_err();
    assert!(matches!(refused.error, Error::NeverFits(_)), "{}", refused);
    assert_eq!(refused.shortage.unwrap().group(), Some(0));
    assert_eq!(refused.shortage.unwrap().need(), 8);

    let mut step = cache.begin(&[Row::new(&sequence, &[1, 2])]).unwrap();
    let (short, mut out) = (vec![0.0f32; 3], vec![0.0f32; 2 * HEADS * WIDTH]);
    let io = LayerIo { q: &short, k: None, v: None, out: &mut out, lse: None };
    assert_eq!(step.attend(0, io).unwrap_err().text(), "q has 3 elements, not 128");
    let q = vec![0.0f32; 2 * HEADS * WIDTH];
    let io = LayerIo { q: &q, k: None, v: None, out: &mut out, lse: None };
    assert_eq!(step.attend(0, io).unwrap_err().text(), "k is missing");
    let codes = vec![pagedkv::F16(0); 2 * HEADS * WIDTH];
    let mut outs = codes.clone();
    let io = LayerIo { q: &codes, k: None, v: None, out: &mut outs, lse: None };
    assert_eq!(step.attend(0, io).unwrap_err().text(), "slices of F16, a cache of F32");
}

#[test]
fn a_sequence_of_another_cache_is_refused() {
    let (one, other) = (Cache::new(&config(8)).unwrap(), Cache::new(&config(8)).unwrap());
    let sequence = one.sequence(&SequenceOptions::default()).unwrap();
    let refused = other.begin(&[Row::new(&sequence, &[1])]).err().unwrap();
    assert!(matches!(refused.error, Error::StaleHandle(_)), "{}", refused);
}
