// SPDX-License-Identifier: MIT
//! Safe wrappers of pagedkv, a C library for servers that run language models on CPUs: it keeps
//! keys and values of running requests in blocks, and computes grouped-query attention over them.
//!
//! ```
//! use pagedkv::{Cache, Config, Group, Layer, LayerIo, Prompt, Row};
//!
//! # fn main() -> Result<(), pagedkv::Error> {
//! let cache = Cache::new(&Config {
//!     groups: vec![Group { kv_heads: 1, k_width: 8, block_size: 4, num_blocks: 16, ..Group::default() }],
//!     layers: vec![Layer { num_heads: 2, ..Layer::default() }],
//!     max_seqs: 4,
//!     max_seq_len: 64,
//!     max_step_tokens: 32,
//!     prefix_cache: true,
//!     ..Config::default()
//! })?;
//! let sequence = cache.sequence(&Default::default())?;
//! let tokens = [3, 1, 4];
//! let admission = sequence.admit(&Prompt::new(&tokens), 8, tokens.len())?;
//! assert_eq!(admission.num_to_write, 3);
//!
//! let mut step = cache.begin(&[Row::new(&sequence, &tokens)])?;
//! let (q, k, v) = (vec![0.0; 3 * 16], vec![1.0; 3 * 8], vec![2.0; 3 * 8]);
//! let mut out = vec![0.0f32; 3 * 16];
//! step.attend(0, LayerIo { q: &q, k: Some(&k), v: Some(&v), out: &mut out, lse: None })?;
//! step.commit(None)?; // without it, the step is aborted when it goes out of scope
//! assert_eq!(sequence.length()?, 3);
//! assert_eq!(out, vec![2.0; 3 * 16]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Sequence`] and a [`Step`] borrow their [`Cache`], so neither outlives it:
//!
//! ```compile_fail
//! # use pagedkv::{Cache, Config};
//! let sequence = {
//!     let cache = Cache::new(&Config::default()).unwrap();
//!     cache.sequence(&Default::default()).unwrap()
//! };
//! ```
//!
//! [`States`] borrow their step, so no slice over a state outlives it:
//!
//! ```compile_fail
//! # fn f(mut step: pagedkv::Step<'_>) -> pagedkv::Result<()> {
//! let states = step.states(1)?;
//! let state = states.read::<f32>(0, 0)?;
//! step.commit(None)?;
//! println!("{:?}", state);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Ticket`] borrows its cache too; a [`Tier`] is shared by the caches that use it, and ends with the last.
//!
//! A cache may be used by several threads at once, a [`Workspace`] by one at a time:
//!
//! ```compile_fail
//! fn shared<T: Sync>() {}
//! shared::<pagedkv::Workspace>();
//! ```
//!
//! Lengths of slices are checked here before the library sees a pointer; what it refuses itself
//! comes back as an [`Error`] with its text. What has no wrapper is declared in [`ffi`].

mod attention;
mod cache;
mod config;
mod element;
mod error;
pub mod ffi;
mod save;
mod select;
mod states;
mod step;
mod ticket;
mod tier;

pub use attention::{Form, Gqa, KvPages, Selected, Workspace};
pub use cache::{
    Admission, Cache, GroupUsage, NamespaceField, Probe, Prompt, Sequence, SequenceOptions,
};
pub use config::{Config, Constants, Group, Isa, Layer, Rope};
pub use element::{Activation, Bf16, CacheElement, Dtype, E4m3, StateElement, F16};
pub use error::{Error, Refused, Result, Shortage};
pub use select::{KeyPages, Lists, Rank};
pub use states::States;
pub use step::{LayerIo, Row, Step};
pub use ticket::{Ticket, TicketInfo, TicketState, MAX_TIERS};
pub use tier::{DiskConfig, RedisConfig, Tier};

use std::ffi::CStr;

/// The version of the library that is linked, such as "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: a text in static storage.
    unsafe { CStr::from_ptr(ffi::pkv_version()) }.to_str().unwrap_or("")
}

/// How the library was built and what it found in this process, in one line.
pub fn build_info() -> &'static str {
    // SAFETY: a text in static storage.
    unsafe { CStr::from_ptr(ffi::pkv_build_info()) }.to_str().unwrap_or("")
}
