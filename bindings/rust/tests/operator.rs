// SPDX-License-Identifier: MIT
//! The operator over slices.
use pagedkv::{Constants, Error, Form, Gqa, Isa, KvPages, Workspace};

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
