// SPDX-License-Identifier: MIT
//! The operator over slices.
use pagedkv::{Constants, Error, Form, Gqa, Isa, KeyPages, KvPages, Rank, Selected, Workspace};

/// Two rows of one head pair: zero queries, so the result is the mean of the values.
fn call<'a>(q: &'a [f32], k: &'a [f32], out: &'a mut [f32], starts: &'a [i32]) -> Gqa<'a, f32> {
    Gqa {
        num_heads: 2,
        kv_heads: 1,
        k_width: 4,
        v_width: 4,
        row_starts: starts,
        q,
        k: Some(k),
        v: Some(k),
        out,
        lse: None,
        sliding_window: 0,
        not_causal: false,
        selected: None,
        parents: None,
        constants: Constants::default(),
    }
}

#[test]
fn paged_continuous_and_dense_give_the_same_bits() {
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    let starts = [0, 2, 3];
    let q: Vec<f32> = (0..24).map(|i| i as f32 / 24.0).collect();
    let k: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let lens = [2, 1];
    let forms = [
        Form::Dense,
        Form::Continuous { slots: &[1, 0] },
        Form::Paged { table: &[1, -1, 0, -1], max_blocks: 2 },
    ];
    let mut results = Vec::new();
    for form in forms {
        let (mut keys, mut values) = (vec![f32::NAN; 2 * 3 * 4], vec![f32::NAN; 2 * 3 * 4]);
        let mut out = vec![f32::NAN; 24];
        let pages = KvPages {
            form,
            keys: &mut keys,
            values: &mut values,
            num: 2,
            cells: 3,
            kv_lens: &lens,
        };
        workspace.attend_pages(call(&q, &k, &mut out, &starts), pages).unwrap();
        results.push(out);
    }
    let mut out = vec![f32::NAN; 24];
    workspace.attend(call(&q, &k, &mut out, &starts)).unwrap();
    assert!(results.iter().all(|result| *result == out));
    assert_eq!(out[..4], k[..4]);
}

#[test]
fn lengths_of_slices_are_checked() {
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    let (q, k) = (vec![0.0; 8], vec![0.0; 4]);
    let text = |result: pagedkv::Result<()>| match result {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("{:?}", other),
    };
    let mut short = vec![0.0; 7];
    let answer = workspace.attend(call(&q, &k, &mut short, &[0, 1]));
    assert_eq!(text(answer), "out has 7 elements, not 8");
    let mut out = vec![0.0; 8];
    assert_eq!(text(workspace.attend(call(&q, &k, &mut out, &[]))), "row_starts is empty");
    let answer = workspace.attend(call(&q, &k, &mut out, &[0, -1]));
    assert_eq!(text(answer), "row_starts ends with a negative number");
    let (mut keys, mut values) = (vec![0.0; 12], vec![0.0; 12]);
    let mut pages = |table: &[i32], lens: &[i32]| {
        let form = Form::Paged { table, max_blocks: 1 };
        let pages =
            KvPages { form, keys: &mut keys, values: &mut values, num: 1, cells: 3, kv_lens: lens };
        text(workspace.attend_pages(call(&q, &k, &mut out, &[0, 1]), pages))
    };
    assert_eq!(pages(&[0, 0], &[1]), "table has 2 elements, not 1");
    assert_eq!(pages(&[0], &[1, 2]), "kv_lens has 2 elements, not 1");
    // Numbers inside are for the library to check.
    assert!(pages(&[7], &[1]).starts_with("block_table[0][0] = 7"));
}

const BLOCK: usize = 4;

/// 17 keys in 5 blocks of 4, two KV heads of 4 channels, in a table out of order.
struct Pages {
    keys: Vec<f32>,
    bounds: Vec<f32>,
    table: [i32; 5],
}

fn view(keys: &[f32]) -> KeyPages<'_, f32> {
    KeyPages { keys, num: 5, kv_heads: 2, cells: BLOCK, k_width: 4, k_scale: &[] }
}

fn pages(workspace: &mut Workspace) -> Pages {
    let keys: Vec<f32> =
        (0..5 * 2 * BLOCK * 4).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0).collect();
    let mut bounds = vec![f32::NAN; 5 * 2 * 2 * 4];
    workspace.block_bounds(&view(&keys), &[0, 1, 3, 4], BLOCK, &mut bounds).unwrap();
    Pages { keys, bounds, table: [3, 0, 4, 1, 2] }
}

fn rank<'a>(pages: &'a Pages, q: &'a [f32]) -> Rank<'a, f32, f32> {
    Rank {
        num_heads: 2,
        pages: view(&pages.keys),
        row_starts: &[0, 1],
        q,
        form: Form::Paged { table: &pages.table, max_blocks: 5 },
        kv_lens: &[17],
        bounds: &pages.bounds,
        num_candidates: None,
        max_selected: 2,
        by_head: true,
        size: 0,
        newest: 1,
        constants: Constants::default(),
    }
}

#[test]
fn bounds_are_the_least_and_the_greatest_of_each_channel() {
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    let pages = pages(&mut workspace);
    for (i, bound) in pages.bounds.iter().enumerate() {
        let (block, head, is_max, c) = (i / 16, i / 8 % 2, i / 4 % 2 == 1, i % 4);
        let key = |cell: usize| pages.keys[((block * 2 + head) * BLOCK + cell) * 4 + c];
        let channel = (0..BLOCK).map(key);
        let wanted = if is_max {
            channel.fold(f32::MIN, f32::max)
        } else {
            channel.fold(f32::MAX, f32::min)
        };
        assert!(if block == 2 { bound.is_nan() } else { *bound == wanted });
    }
}

#[test]
fn ranked_blocks_are_those_whose_bounds_are_largest() {
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    let pages = pages(&mut workspace);
    let q = [1.0, -0.5, 0.25, 2.0, -1.0, 0.5, 1.5, -2.0];
    let lists = workspace.block_rank(&rank(&pages, &q)).unwrap();
    assert_eq!(lists.count(), 2);
    for head in 0..2 {
        let score = |n: usize| -> f32 {
            let at = (pages.table[n] as usize * 2 + head) * 8;
            let channel = |c: usize| {
                let x = q[head * 4 + c];
                x * pages.bounds[at + c + if x < 0.0 { 0 } else { 4 }]
            };
            (0..4).map(channel).sum()
        };
        let mut best: Vec<usize> = (0..4).collect();
        best.sort_by(|a, b| score(*b).partial_cmp(&score(*a)).unwrap());
        let mut best = vec![best[0] as i32, best[1] as i32];
        best.sort_unstable();
        assert_eq!(lists.list(head), best);
    }
    let slots = Rank {
        form: Form::Continuous { slots: &[0] },
        pages: KeyPages { num: 1, cells: 5 * BLOCK, ..view(&pages.keys) },
        size: BLOCK,
        max_selected: usize::MAX,
        by_head: false,
        num_candidates: Some(&[2]),
        ..rank(&pages, &q)
    };
    assert_eq!(workspace.block_rank(&slots).unwrap().list(0), [0, 1]);
}

/// Attention with selected blocks over two KV heads; the values are the keys.
fn attend_selected(pages: &mut Pages, selected: Selected<'_>) -> pagedkv::Result<Vec<f32>> {
    let mut workspace = Workspace::new(1, Isa::Best)?;
    let (q, mut values) = (vec![0.0f32; 8], pages.keys.clone());
    let mut out = vec![f32::NAN; 8];
    let call = Gqa {
        kv_heads: 2,
        k: None,
        v: None,
        selected: Some(selected),
        ..call(&q, &[], &mut out, &[0, 1])
    };
    let form = Form::Paged { table: &pages.table, max_blocks: 5 };
    let keys = &mut pages.keys;
    let kept = KvPages { form, keys, values: &mut values, num: 5, cells: BLOCK, kv_lens: &[17] };
    workspace.attend_pages(call, kept)?;
    Ok(out)
}

#[test]
fn rows_see_their_selected_blocks_alone() {
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    let mut pages = pages(&mut workspace);
    let q = [1.0, -0.5, 0.25, 2.0, -1.0, 0.5, 1.5, -2.0];
    let lists = workspace.block_rank(&rank(&pages, &q)).unwrap();
    let out = attend_selected(&mut pages, lists.selected()).unwrap();
    for (i, got) in out.iter().enumerate() {
        let (head, c) = (i / 4, i % 4);
        let key = |n: usize, cell: usize| {
            pages.keys[((pages.table[n] as usize * 2 + head) * BLOCK + cell) * 4 + c]
        };
        let mut seen = vec![key(4, 0)];
        for block in lists.list(head) {
            seen.extend((0..BLOCK).map(|cell| key(*block as usize, cell)));
        }
        let mean = seen.iter().sum::<f32>() / seen.len() as f32;
        assert!((got - mean).abs() < 1e-5, "{} instead of {}", got, mean);
    }
}

#[test]
fn lists_and_bounds_are_checked() {
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    let mut pages = pages(&mut workspace);
    for starts in [&[][..], &[0, 2][..], &[1, 1][..], &[0, 9, 1][..], &[0, -1, 1][..]] {
        let selected = Selected { blocks: &[0], starts, size: 0, newest: 1 };
        let error = attend_selected(&mut pages, selected).unwrap_err();
        assert_eq!(error.text(), "starts do not rise from 0 to the 1 blocks");
    }
    let selected = Selected { blocks: &[9], starts: &[0, 1], size: 0, newest: 1 };
    assert!(attend_selected(&mut pages, selected).is_err());

    let q = [1.0; 8];
    let whole = view(&pages.keys);
    let texts = [
        workspace.block_rank(&Rank { q: &q[1..], ..rank(&pages, &q) }),
        workspace.block_rank(&Rank { bounds: &pages.bounds[1..], ..rank(&pages, &q) }),
        workspace.block_rank(&Rank { kv_lens: &[], ..rank(&pages, &q) }),
        workspace.block_rank(&Rank { num_candidates: Some(&[]), ..rank(&pages, &q) }),
        workspace.block_rank(&Rank {
            pages: KeyPages { keys: &[], cells: 0, ..whole },
            ..rank(&pages, &q)
        }),
        workspace.block_rank(&Rank { row_starts: &[], ..rank(&pages, &q) }),
        workspace
            .block_rank(&Rank { pages: KeyPages { num: usize::MAX, ..whole }, ..rank(&pages, &q) }),
    ];
    let wanted = [
        "q has 7 elements, not 8",
        "bounds has 79 elements, not 80",
        "kv_lens has 0 elements, not 1",
        "num_candidates has 0 elements, not 1",
        "cells = 0",
        "row_starts is empty",
        "keys would need more elements than there can be",
    ];
    for (answer, wanted) in texts.iter().zip(wanted) {
        assert_eq!(answer.as_ref().unwrap_err().text(), wanted);
    }
    let view = KeyPages { keys: &q, num: 1, kv_heads: 1, cells: 2, k_width: 4, k_scale: &[] };
    let mut bounds = [0.0; 8];
    let mut text = |blocks: &[i32], num_keys, bounds: &mut [f32]| {
        let answer = workspace.block_bounds(&view, blocks, num_keys, bounds);
        answer.unwrap_err().text().to_string()
    };
    assert_eq!(text(&[0], 2, &mut bounds[1..]), "bounds has 7 elements, not 8");
    assert!(text(&[1], 2, &mut bounds).contains("blocks[0] = 1"));
    assert!(text(&[0], 3, &mut bounds).contains("num_keys = 3"));
}

#[test]
fn tokens_of_a_tree_see_their_ancestors() {
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    let q = vec![0.0; 4 * 8];
    let k: Vec<f32> = [1.0, 2.0, 4.0, 8.0].iter().flat_map(|x| [*x; 4]).collect();
    let mut out = vec![f32::NAN; 4 * 8];
    let parents = [-1, 0, 0, 2];
    let tree = Gqa { parents: Some(&parents), ..call(&q, &k, &mut out, &[0, 4]) };
    workspace.attend(tree).unwrap();
    let means: Vec<f32> = out.iter().step_by(8).copied().collect();
    for (got, wanted) in means.iter().zip([1.0, 1.5, 2.5, 13.0 / 3.0]) {
        assert!((got - wanted).abs() < 1e-5, "{:?}", means);
    }
    let tree = Gqa { parents: Some(&parents[1..]), ..call(&q, &k, &mut out, &[0, 4]) };
    assert_eq!(workspace.attend(tree).unwrap_err().text(), "parents has 3 elements, not 4");
}
