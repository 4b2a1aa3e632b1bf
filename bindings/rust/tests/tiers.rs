// SPDX-License-Identifier: MIT
//! What outlives a cache: blocks in tiers, tickets, saved sequences.
use pagedkv::{
    Cache, Config, DiskConfig, Error, Group, Layer, LayerIo, Prompt, RedisConfig, Row, Sequence,
    SequenceOptions, TicketState, Tier,
};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const WIDTH: usize = 8;
const LONG: Duration = Duration::from_secs(20);

/// A directory of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pagedkv-{}-{}", name, std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn disk(folder: &Path) -> Arc<Tier> {
    let config =
        DiskConfig { path: folder.to_path_buf(), max_bytes: 1 << 22, ..DiskConfig::default() };
    Arc::new(Tier::disk(&config).unwrap())
}

fn config(tiers: Vec<Arc<Tier>>) -> Config {
    let group =
        Group { kv_heads: 1, k_width: WIDTH, block_size: 4, num_blocks: 16, ..Group::default() };
    Config {
        groups: vec![group],
        layers: vec![Layer { num_heads: 1, ..Layer::default() }; 2],
        max_seqs: 4,
        max_seq_len: 48,
        max_step_tokens: 48,
        num_threads: 1,
        prefix_cache: true,
        max_store_blocks: 8,
        tiers,
        ..Config::default()
    }
}

/// Computes the last `new` tokens; the outputs of all layers follow from the bits of all keys.
fn step(cache: &Cache, sequence: &Sequence<'_>, text: &[i32], new: usize) -> Vec<f32> {
    let first = text.len() - new;
    let mut step = cache.begin(&[Row::new(sequence, &text[first..])]).unwrap();
    let mut outs = vec![];
    for layer in 0..2 {
        let of = |what: usize| -> Vec<f32> {
            (first..text.len())
                .flat_map(|at| (0..WIDTH).map(move |c| (at * 31 + c * 7 + what + layer) as f32))
                .map(|x| (x * 0.7).sin())
                .collect()
        };
        let (q, k, v) = (of(1), of(2), of(3));
        let mut out = vec![0.0; new * WIDTH];
        let io = LayerIo { q: &q, k: Some(&k), v: Some(&v), out: &mut out, lse: None };
        step.attend(layer, io).unwrap();
        outs.extend(out);
    }
    step.commit(None).unwrap();
    outs
}

fn text() -> Vec<i32> {
    (0..17).collect()
}

fn none() -> SequenceOptions<'static> {
    SequenceOptions::default()
}

#[test]
fn a_second_cache_over_one_directory_hits_what_the_first_stored() {
    let (folder, text) = (Folder::new("tiers"), text());
    let first = Cache::new(&config(vec![disk(&folder.0)])).unwrap();
    let sequence = first.sequence(&none()).unwrap();
    step(&first, &sequence, &text[..16], 16);
    let expected = step(&first, &sequence, &text, 1);
    assert!(first.flush_tiers(LONG).unwrap());
    assert_eq!(first.tier_stats(0).unwrap().stored_blocks, 4);
    drop(sequence);
    drop(first);

    let second =
        Cache::new(&Config { num_tier_threads: 1, ..config(vec![disk(&folder.0)]) }).unwrap();
    let ticket = second.prefetch(&none(), &Prompt::new(&text), text.len(), 5).unwrap();
    let info = ticket.wait(LONG).unwrap().unwrap();
    assert_eq!((info.state, info.error.clone()), (TicketState::Done, None));
    assert_eq!((info.num_cached, info.tier_loaded, info.begun_ns), (16, [16, 0, 0, 0], 5));
    let sequence = second.sequence(&none()).unwrap();
    let admission = sequence.admit(&Prompt::new(&text), 0, text.len()).unwrap();
    assert_eq!((admission.num_cached, admission.tier_cached), (16, [16, 0, 0, 0]));
    drop(ticket);
    assert_eq!(step(&second, &sequence, &text, 1), expected, "not the same bits");
    assert_eq!(second.tier_stats(0).unwrap().hit_tokens, 16);
    assert_eq!(second.check(), 0);
}

#[test]
fn a_server_works_and_polls_by_itself() {
    let (folder, text) = (Folder::new("work"), text());
    let config = Config { no_write_behind: true, max_tickets: 1, ..config(vec![disk(&folder.0)]) };
    let cache = Cache::new(&config).unwrap();
    step(&cache, &cache.sequence(&none()).unwrap(), &text, 17);
    assert_eq!(cache.work_tiers(Duration::ZERO).unwrap(), 0);
    let unknown = cache.store_prefix(&none(), &Prompt::new(&[99; 8]), 0).err().unwrap();
    assert!(matches!(unknown, Error::NotFound(_)), "{}", unknown);
    let ticket = cache.store_prefix(&none(), &Prompt::new(&text), 0).unwrap();
    assert_eq!(ticket.poll().unwrap().state, TicketState::Storing);
    let refused = cache.prefetch(&none(), &Prompt::new(&text), 17, 0).err().unwrap();
    assert!(matches!(refused, Error::NoBlocks(_)), "{}", refused);
    while cache.work_tiers(Duration::ZERO).unwrap() > 0 {}
    assert_eq!(cache.poll_tiers().unwrap(), 1);
    let info = ticket.poll().unwrap();
    assert_eq!((info.state, info.num_stored, info.num_left), (TicketState::Done, 4, 0));
    drop(ticket);
    assert!(cache.prefetch(&none(), &Prompt::new(&text), 17, 0).is_ok(), "drop closes a ticket");
    cache.close();
    assert!(cache.flush_tiers(LONG).unwrap());
    assert!(matches!(cache.work_tiers(Duration::MAX), Err(Error::Busy(_))));
}

#[test]
fn a_tier_ends_with_the_last_cache_that_uses_it() {
    let folder = Folder::new("owner");
    let tier = disk(&folder.0);
    let alive = Arc::downgrade(&tier);
    let config = Config { num_tier_threads: 1, ..config(vec![tier]) };
    let (one, two) = (Cache::new(&config).unwrap(), Cache::new(&config).unwrap());
    drop(config);
    step(&one, &one.sequence(&none()).unwrap(), &text(), 17);
    drop(one);
    assert!(alive.upgrade().is_some());
    step(&two, &two.sequence(&none()).unwrap(), &text(), 17);
    assert!(two.flush_tiers(LONG).unwrap());
    assert_eq!(two.tier_stats(0).unwrap().failed_stores, 0);
    drop(two);
    assert!(alive.upgrade().is_none());
}

#[test]
fn what_is_wrong_with_a_tier_is_said() {
    let folder = Folder::new("wrong");
    let missing = DiskConfig { path: folder.0.join("x"), max_bytes: 1 << 20, ..Default::default() };
    assert!(matches!(Tier::disk(&missing), Err(Error::Io(_))));
    let small = DiskConfig { path: folder.0.clone(), max_bytes: 1, ..Default::default() };
    assert!(matches!(Tier::disk(&small), Err(Error::InvalidArgument(_))));
    let nul = DiskConfig { path: "a\0b".into(), max_bytes: 1 << 20, ..Default::default() };
    assert!(Tier::disk(&nul).unwrap_err().text().contains("NUL"));
    let plain = Cache::new(&config(vec![])).unwrap();
    assert!(matches!(plain.poll_tiers(), Err(Error::Unsupported(_))));
    assert!(matches!(plain.tier_stats(0), Err(Error::Unsupported(_))));
    let without = Config { prefix_cache: false, ..config(vec![disk(&folder.0)]) };
    assert!(matches!(Cache::new(&without).err(), Some(Error::InvalidArgument(_))));

    let silent = RedisConfig { host: Some("127.0.0.1".into()), port: 1, ..Default::default() };
    let tier = match Tier::redis(&silent) {
        Err(Error::Unsupported(_)) => return, // the library was built without hiredis
        tier => Arc::new(tier.unwrap()),
    };
    let cache = Cache::new(&config(vec![tier])).unwrap();
    let ticket = cache.prefetch(&none(), &Prompt::new(&text()), 17, 0).unwrap();
    let info = ticket.wait(LONG).unwrap().unwrap();
    assert!(matches!(info.error, Some(Error::Io(_))));
    assert_eq!((info.state, info.num_cached), (TicketState::Done, 0));
}

#[test]
fn a_saved_sequence_goes_on_in_another_cache() {
    let (folder, text) = (Folder::new("saves"), text());
    let (path, mut memory) = (folder.0.join("chat.pkv"), vec![]);
    let first = Cache::new(&config(vec![])).unwrap();
    let sequence = first.sequence(&none()).unwrap();
    step(&first, &sequence, &text[..16], 16);
    sequence.save(&path).unwrap();
    sequence.save_to(&mut memory).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), memory);
    let expected = step(&first, &sequence, &text, 1);

    let second = Cache::new(&config(vec![])).unwrap();
    for loaded in [second.load(&path), second.load_from(&memory[..])] {
        let loaded = loaded.unwrap();
        assert_eq!(loaded.length().unwrap(), 16);
        assert_eq!(step(&second, &loaded, &text, 1), expected, "not the same bits");
    }
    let middle = memory.len() / 2;
    memory[middle] ^= 1;
    let damaged = second.load_from(&memory[..]).err().unwrap();
    assert!(matches!(damaged.error, Error::Corrupt(_)), "{}", damaged);
    let missing = second.load(folder.0.join("none")).err().unwrap();
    assert!(matches!(missing.error, Error::Io(_)), "{}", missing);
    assert_eq!((second.usage(0).unwrap().held, second.check()), (0, 0));
}

/// Refuses, or panics.
struct Broken(bool);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        assert!(!self.0, "the stream panics");
        Err(io::Error::new(io::ErrorKind::Other, "the line is cut"))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Broken {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.write(bytes)
    }
}

#[test]
fn a_stream_that_fails_or_panics_changes_nothing() {
    let cache = Cache::new(&config(vec![])).unwrap();
    let sequence = cache.sequence(&none()).unwrap();
    step(&cache, &sequence, &text(), 17);
    let refused = sequence.save_to(Broken(false)).unwrap_err();
    assert!(matches!(&refused, Error::Io(text) if text.ends_with("the line is cut")));
    let refused = cache.load_from(Broken(false)).err().unwrap();
    assert!(refused.error.text().ends_with("the line is cut"), "{}", refused);
    for call in [
        &(|| drop(sequence.save_to(Broken(true)))) as &dyn Fn(),
        &(|| drop(cache.load_from(Broken(true)).map(|_| ()))),
    ] {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    }
    let mut memory = vec![];
    sequence.save_to(&mut memory).unwrap();
    assert_eq!(cache.load_from(&memory[..]).unwrap().length().unwrap(), 17);
    assert_eq!((cache.stats().unwrap().num_seqs, cache.check()), (1, 0));
}
