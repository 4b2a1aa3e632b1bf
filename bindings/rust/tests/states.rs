// SPDX-License-Identifier: MIT
//! State groups, groups of different block sizes and trees of drafts: a small hybrid model against
//! the plain computation, over hits, forks, rewinds and paths.
use pagedkv::{
    Cache, Config, Error, Group, Layer, LayerIo, Prompt, Row, Sequence, SequenceOptions, Step,
};

const WIDTH: usize = 4;
const CELLS: usize = 3;
const WINDOW: usize = 5;
const FULL: usize = 0;
const WINDOWED: usize = 1;
const STATES: usize = 2;
/// Groups of the layers, in the order of the model.
const LAYERS: [usize; 4] = [STATES, FULL, STATES, WINDOWED];

fn config() -> Config {
    let full =
        Group { kv_heads: 1, k_width: WIDTH, block_size: 4, num_blocks: 40, ..Group::default() };
    let windowed = Group { sliding_window: WINDOW as i64, block_size: 8, ..full.clone() };
    let states = Group {
        snapshot_interval: 8,
        max_rewind: 4,
        ..Group::of_states(CELLS * std::mem::size_of::<f32>(), 60)
    };
    let layer = |group: &usize| Layer {
        group: *group,
        num_heads: if *group == STATES { 0 } else { 1 },
        ..Layer::default()
    };
    Config {
        groups: vec![full, windowed, states],
        layers: LAYERS.iter().map(layer).collect(),
        max_seqs: 8,
        max_seq_len: 64,
        max_step_tokens: 32,
        num_threads: 1,
        prefix_cache: true,
        requires_hits: true,
        poison_freed: true,
        ..Config::default()
    }
}

/// A decay, and what the token adds: every right order of calls gives the same bits.
fn advance(state: [f32; CELLS], token: i32, layer: usize) -> [f32; CELLS] {
    let mut next = state;
    for (c, cell) in next.iter_mut().enumerate() {
        *cell = *cell * 0.75 + (token * (c as i32 + 1)) as f32 + layer as f32;
    }
    next
}

fn state_of(text: &[i32], layer: usize) -> [f32; CELLS] {
    text.iter().fold([0.0; CELLS], |state, token| advance(state, *token, layer))
}

/// For each new token of the rows (all of their text before, the new ones, their parents) the text
/// that ends with it.
fn paths(rows: &[(&Sequence<'_>, &[i32], &[i32], Option<&[i32]>)]) -> Vec<Vec<i32>> {
    let mut found: Vec<Vec<i32>> = Vec::new();
    for (_, text, new, parents) in rows {
        let first = found.len();
        for (i, token) in new.iter().enumerate() {
            let parent = parents.map_or(i as i32 - 1, |parents| parents[i]);
            let mut path =
                if parent < 0 { text.to_vec() } else { found[first + parent as usize].clone() };
            path.push(*token);
            found.push(path);
        }
    }
    found
}

fn run_states(step: &mut Step<'_>, layer: usize, paths: &[Vec<i32>]) {
    let mut states = step.states(STATES).unwrap();
    assert_eq!(states.state_bytes(), CELLS * 4);
    let (starts, parents) = (states.row_starts(), states.parents());
    assert_eq!(*starts.last().unwrap() as usize, paths.len());
    let mut after = vec![[0.0; CELLS]; paths.len()];
    for row in 0..starts.len() - 1 {
        let (first, last) = (starts[row] as usize, starts[row + 1] as usize);
        let mut begin = [0.0; CELLS];
        begin.copy_from_slice(states.read::<f32>(layer, row).unwrap());
        let text = &paths[first][..paths[first].len() - 1];
        assert_eq!(begin, state_of(text, layer));
        for t in first..last {
            let parent = parents.map_or(t as i32 - first as i32 - 1, |parents| parents[t]);
            let before = if parent < 0 { begin } else { after[first + parent as usize] };
            after[t] = advance(before, *paths[t].last().unwrap(), layer);
            assert_eq!(after[t], state_of(&paths[t], layer));
        }
    }
    let last = starts[1..].iter().map(|end| *end as usize - 1).collect::<Vec<_>>();
    for (t, state) in after.iter().enumerate() {
        match states.write::<f32>(layer, t).unwrap() {
            Some(place) => place.copy_from_slice(state),
            None => assert!(!last.contains(&t)),
        }
    }
}

/// Queries of zero: the mean of the values that they see, which are the tokens.
fn attend(step: &mut Step<'_>, layer: usize, paths: &[Vec<i32>]) {
    let q = vec![0.0f32; paths.len() * WIDTH];
    let values: Vec<f32> = paths.iter().map(|path| *path.last().unwrap() as f32).collect();
    let v: Vec<f32> = values.iter().flat_map(|value| [*value; WIDTH]).collect();
    let mut out = vec![f32::NAN; q.len()];
    let io = LayerIo { q: &q, k: Some(&v), v: Some(&v), out: &mut out, lse: None };
    step.attend(layer, io).unwrap();
    for (t, path) in paths.iter().enumerate() {
        let window = if LAYERS[layer] == WINDOWED { WINDOW } else { path.len() };
        let seen = &path[path.len().saturating_sub(window)..];
        let mean = seen.iter().sum::<i32>() as f32 / seen.len() as f32;
        assert!((out[t * WIDTH] - mean).abs() < 1e-3, "{} instead of {}", out[t * WIDTH], mean);
    }
}

/// A step in which every layer is compared with the plain computation.
fn run<'c>(cache: &'c Cache, rows: &[(&Sequence<'_>, &[i32], &[i32], Option<&[i32]>)]) -> Step<'c> {
    let batch: Vec<Row<'_>> = rows
        .iter()
        .map(|(sequence, _, new, parents)| Row { parents: *parents, ..Row::new(sequence, new) })
        .collect();
    let mut step = cache.begin(&batch).unwrap();
    let paths = paths(rows);
    for (layer, group) in LAYERS.iter().enumerate() {
        match *group {
            STATES => run_states(&mut step, layer, &paths),
            _ => attend(&mut step, layer, &paths),
        }
    }
    step
}

fn append(cache: &Cache, sequence: &Sequence<'_>, text: &mut Vec<i32>, new: &[i32]) {
    run(cache, &[(sequence, text, new, None)]).commit(None).unwrap();
    text.extend_from_slice(new);
}

fn start<'c>(cache: &'c Cache, prompt: &[i32], max_rewind: i32) -> (Sequence<'c>, Vec<i32>, usize) {
    let options = SequenceOptions { max_rewind, ..SequenceOptions::default() };
    let sequence = cache.sequence(&options).unwrap();
    let hit = sequence.admit(&Prompt::new(prompt), 16, prompt.len()).unwrap().num_cached;
    let mut text = prompt[..hit].to_vec();
    append(cache, &sequence, &mut text, &prompt[hit..]);
    (sequence, text, hit)
}

fn words(seed: i32, count: i32) -> Vec<i32> {
    (0..count).map(|i| (i * 7 + seed * 13) % 97 + 1).collect()
}

#[test]
fn a_hit_goes_on_from_a_snapshot() {
    let cache = Cache::new(&config()).unwrap();
    let prompt = words(1, 21);
    for wanted in [0, 16, 16] {
        let (sequence, mut text, hit) = start(&cache, &prompt, 0);
        assert_eq!(hit, wanted);
        append(&cache, &sequence, &mut text, &[7]);
        append(&cache, &sequence, &mut text, &[8, 9]);
    }
    let (_, _, hit) = start(&cache, &[&prompt[..5], &words(2, 9)].concat(), 0);
    assert_eq!(hit, 0);
    assert_eq!(cache.usage(STATES).unwrap().held, 0);
    assert_eq!(cache.check(), 0);
}

#[test]
fn forks_share_a_state_and_part() {
    let cache = Cache::new(&config()).unwrap();
    let (sequence, text, _) = start(&cache, &words(3, 10), 0);
    let children = sequence.fork(10, 2).unwrap();
    let news = [[1, 2], [3, 4], [5, 6]];
    let all = [&sequence, &children[0], &children[1]];
    let rows: Vec<_> =
        all.iter().zip(&news).map(|(s, new)| (*s, &text[..], &new[..], None)).collect();
    run(&cache, &rows).commit(None).unwrap();
    drop(sequence);
    for (child, new) in children.iter().zip(&news[1..]) {
        let mut text = [&text[..], new].concat();
        append(&cache, child, &mut text, &[30]);
    }
    assert_eq!(cache.check(), 0);
}

#[test]
fn a_rewind_finds_the_state_of_its_length() {
    let cache = Cache::new(&config()).unwrap();
    let (sequence, mut text, _) = start(&cache, &words(4, 9), 3);
    append(&cache, &sequence, &mut text, &[1, 2, 3]);
    sequence.truncate(10).unwrap();
    text.truncate(10);
    append(&cache, &sequence, &mut text, &[4]);
    run(&cache, &[(&sequence, &text, &[6, 7, 8], None)]).commit(Some(&[1])).unwrap();
    text.push(6);
    append(&cache, &sequence, &mut text, &[9]);
    assert!(matches!(sequence.truncate(3), Err(Error::NotResident(_))));
    assert_eq!(cache.check(), 0);
}

#[test]
fn a_swapped_sequence_brings_its_states_back() {
    let cache = Cache::new(&Config { swap_bytes: 1 << 16, ..config() }).unwrap();
    let (sequence, mut text, _) = start(&cache, &words(11, 13), 3);
    append(&cache, &sequence, &mut text, &[1, 2]);
    sequence.swap_out().unwrap();
    assert_eq!(cache.usage(STATES).unwrap().held, 0);
    let (other, mut other_text, _) = start(&cache, &words(12, 20), 0);
    sequence.swap_in().unwrap();
    sequence.truncate(14).unwrap();
    text.truncate(14);
    append(&cache, &sequence, &mut text, &[7]);
    append(&cache, &other, &mut other_text, &[3]);
    assert_eq!(cache.check(), 0);
}

#[test]
fn a_path_of_a_tree_is_kept() {
    let cache = Cache::new(&config()).unwrap();
    let (sequence, mut text, _) = start(&cache, &words(5, 6), 4);
    let (other, mut other_text, _) = start(&cache, &words(6, 7), 4);
    let drafts = [21, 22, 23, 24, 25];
    let parents = [-1, -1, 0, 1, 2];
    for path in [&[0, 2][..], &[1, 3], &[0, 2, 4], &[]] {
        let rows = [
            (&sequence, &text[..], &drafts[..], Some(&parents[..])),
            (&other, &other_text[..], &[5, 6][..], None),
        ];
        run(&cache, &rows).commit_path(&[path, &[0, 1]]).unwrap();
        text.extend(path.iter().map(|i| drafts[*i as usize]));
        other_text.extend([5, 6]);
        assert_eq!(sequence.length().unwrap(), text.len());
    }
    append(&cache, &sequence, &mut text, &[3]);

    let step = run(&cache, &[(&sequence, &text, &drafts, Some(&parents))]);
    let refused = step.commit_path(&[&[0, 1]]).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument(_)), "{}", refused);
    let step = run(&cache, &[(&sequence, &text, &drafts, Some(&parents))]);
    assert_eq!(step.commit_path(&[]).unwrap_err().text(), "paths has 0 elements, not 1");
    let row = Row { parents: Some(&[-1]), ..Row::new(&sequence, &drafts) };
    assert_eq!(cache.begin(&[row]).err().unwrap().error.text(), "parents has 1 elements, not 5");
    append(&cache, &sequence, &mut text, &[4]);
    assert_eq!(cache.check(), 0);
}

#[test]
fn a_dropped_step_without_rewind_loses_the_state() {
    let cache = Cache::new(&config()).unwrap();
    let (sequence, text, _) = start(&cache, &words(7, 6), 0);
    drop(run(&cache, &[(&sequence, &text, &[1], None)]));
    let refused = cache.begin(&[Row::new(&sequence, &[1])]).err().unwrap();
    assert!(matches!(refused.error, Error::NotResident(_)), "{}", refused);
    sequence.truncate(0).unwrap();
    append(&cache, &sequence, &mut Vec::new(), &words(8, 6));
}

#[test]
fn states_stay_while_a_step_is_open_whatever_ends() {
    let cache = Cache::new(&config()).unwrap();
    let (sequence, text, _) = start(&cache, &words(9, 9), 0);
    let mut step = cache.begin(&[Row::new(&sequence, &[1])]).unwrap();
    {
        let states = step.states(STATES).unwrap();
        let before = states.read::<f32>(0, 0).unwrap();
        drop(sequence);
        drop(start_waiting(&cache));
        assert_eq!(before, state_of(&text, 0));
    }
    step.abort().unwrap();
    assert_eq!(cache.usage(STATES).unwrap().held, 0);
    assert_eq!(cache.check(), 0);
}

fn start_waiting(cache: &Cache) -> Sequence<'_> {
    let sequence = cache.sequence(&SequenceOptions::default()).unwrap();
    sequence.admit(&Prompt::new(&words(10, 20)), 4, 20).unwrap();
    sequence
}

#[test]
fn refusals_name_the_culprit() {
    let cache = Cache::new(&config()).unwrap();
    let sequence = cache.sequence(&SequenceOptions::default()).unwrap();
    let mut step = cache.begin(&[Row::new(&sequence, &[1, 2, 3])]).unwrap();
    for group in [FULL, 3] {
        let error = step.states(group).err().unwrap();
        assert!(error.text().starts_with("group = "), "{}", error);
    }
    let mut out = [];
    let io = LayerIo::<f32> { q: &[], k: None, v: None, out: &mut out, lse: None };
    let error = step.attend(0, io).unwrap_err();
    assert_eq!(error.text(), "layer 0 keeps states, which Step::states shows");
    let mut states = step.states(STATES).unwrap();
    assert_eq!(states.read::<f32>(1, 0).unwrap_err().text(), "layer 1 is not of state group 2");
    assert_eq!(states.read::<f32>(9, 0).unwrap_err().text(), "layer 9 is not of state group 2");
    assert_eq!(states.read::<f32>(0, 1).unwrap_err().text(), "row = 1, of 1");
    assert_eq!(states.write::<u8>(0, 3).unwrap_err().text(), "token = 3, of 3");
    let error = states.read::<f64>(0, 0).unwrap_err();
    assert_eq!(error.text(), "a state has 12 bytes, not whole elements");
    assert!(states.write::<u8>(0, 0).unwrap().is_none());
    assert_eq!(states.write::<u8>(0, 2).unwrap().unwrap().len(), CELLS * 4);

    for wrong in [Group { state_bytes: 0, ..Group::of_states(12, 8) }, Group::of_states(12, 0)] {
        let mut config = config();
        config.groups[STATES] = wrong;
        assert!(Cache::new(&config).is_err());
    }
}
