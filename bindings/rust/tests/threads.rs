// SPDX-License-Identifier: MIT
//! What may be shared and sent between threads, and a cache that several use at once.
use pagedkv::{Cache, Config, Error, Group, Isa, Layer, LayerIo, Prompt, Row, Sequence, Workspace};
use std::time::Duration;

fn send<T: Send>() {}
fn sync<T: Sync>() {}

#[test]
fn caches_are_shared_and_workspaces_are_sent() {
    send::<Cache>();
    sync::<Cache>();
    send::<Sequence<'static>>();
    send::<pagedkv::Step<'static>>();
    send::<Workspace>();
    let mut workspace = Workspace::new(1, Isa::Best).unwrap();
    assert_eq!(workspace.num_threads(), 1);
    workspace = std::thread::spawn(move || workspace).join().unwrap();
    drop(workspace);
}

fn cache(num_blocks: usize) -> Cache {
    let group = Group { kv_heads: 1, k_width: 8, block_size: 4, num_blocks, ..Group::default() };
    Cache::new(&Config {
        groups: vec![group],
        layers: vec![Layer { num_heads: 1, ..Layer::default() }],
        max_seqs: 32,
        max_seq_len: 64,
        max_step_tokens: 64,
        num_threads: 1,
        prefix_cache: true,
        ..Config::default()
    })
    .unwrap()
}

/// One thread runs the steps, others bring requests, as in a server.
#[test]
fn several_threads_admit_while_one_steps() {
    let cache = cache(64);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..200 {
                    let sequence = cache.sequence(&Default::default()).unwrap();
                    let tokens = [thread, round % 5, 1, 2, 3, 4];
                    let admission = sequence.admit(&Prompt::new(&tokens), 2, 6).unwrap();
                    assert_eq!(admission.num_cached + admission.num_to_write, 6);
                    run(cache, &sequence, &tokens[admission.num_cached..]);
                    assert_eq!(sequence.length().unwrap(), 6);
                }
            });
        }
    });
    assert_eq!(cache.usage(0).unwrap().held, 0);
    assert!(cache.stats().unwrap().hit_tokens > 0);
    assert_eq!(cache.check(), 0);
}

/// A step of one row; waits while another thread's is open.
fn run(cache: &Cache, sequence: &Sequence<'_>, tokens: &[i32]) {
    let mut step = loop {
        match cache.begin(&[Row::new(sequence, tokens)]) {
            Ok(step) => break step,
            Err(refused) => assert!(matches!(refused.error, Error::Busy(_)), "{}", refused),
        }
        std::thread::yield_now();
    };
    let values: Vec<f32> = vec![1.5; tokens.len() * 8];
    let mut out = vec![0.0f32; values.len()];
    let io = LayerIo { q: &values, k: Some(&values), v: Some(&values), out: &mut out, lse: None };
    step.attend(0, io).unwrap();
    step.commit(None).unwrap();
    assert!(out.iter().all(|x| (x - 1.5).abs() < 1e-6));
}

#[test]
fn a_thread_that_waits_wakes_when_blocks_come_free() {
    let cache = cache(2);
    let holder = cache.sequence(&Default::default()).unwrap();
    holder.admit(&Prompt::new(&[1, 2, 3, 4, 5]), 0, 0).unwrap();
    let waiter = cache.sequence(&Default::default()).unwrap();
    let refused = waiter.admit(&Prompt::new(&[9, 9]), 0, 0).unwrap_err();
    assert!(matches!(refused.error, Error::NoBlocks(_)), "{}", refused);
    let shortage = refused.shortage.unwrap();
    assert!(!waiter.wait_free(&shortage, Duration::from_millis(1)).unwrap());
    std::thread::scope(|scope| {
        let waiter = &waiter;
        let woken = scope.spawn(move || waiter.wait_free(&shortage, Duration::from_secs(20)));
        drop(holder);
        assert!(woken.join().unwrap().unwrap());
    });
    waiter.admit(&Prompt::new(&[9, 9]), 0, 0).unwrap();
}
