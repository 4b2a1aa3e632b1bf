// SPDX-License-Identifier: MIT
//! Caches and sequences.
use crate::config::{Config, Group};
use crate::element::Dtype;
use crate::error::{check, int, refuse, want_length, Refused, Result, Shortage};
use crate::ffi;
use crate::step::{Row, Step};
use crate::ticket::MAX_TIERS;
use crate::tier::Tier;
use std::ops::Range;
use std::os::raw::{c_int, c_void};
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;
use std::time::Duration;

/// What one layer's slices must hold for each token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerShape {
    /// The state group that it is in, and its number among that group's layers.
    pub states: Option<(usize, usize)>,
    pub num_heads: usize,
    pub q: usize,
    pub out: usize,
    /// None: this layer is passed no keys, or no values.
    pub k: Option<usize>,
    pub v: Option<usize>,
}

/// A managed cache: sequences, steps, the prefix cache. Any thread may use it at any time.
pub struct Cache {
    raw: NonNull<ffi::pkv_cache>,
    pub(crate) dtype: Dtype,
    pub(crate) layers: Vec<LayerShape>,
    /// Dropped after the cache is destroyed.
    _tiers: Vec<Arc<Tier>>,
}

// SAFETY: the library locks inside; only pkv_cache_destroy must be the last call, and drop is.
unsafe impl Send for Cache {}
unsafe impl Sync for Cache {}

/// The blocks of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupUsage {
    pub num_blocks: i32,
    pub free: i32,
    pub held: i32,
    /// Of the free ones, those that the prefix cache can still find.
    pub cached: i32,
    /// Of the free ones, those that admitted sequences were promised.
    pub promised: i32,
}

/// One field of a namespace: only sequences with equal fields share cached blocks.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceField<'a> {
    pub tag: i32,
    pub bytes: &'a [u8],
    pub begins_at: i32,
}

/// Options of a sequence; the default is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequenceOptions<'a> {
    /// 0 = none.
    pub tag: u64,
    /// Overrides the groups' kept_prefix.
    pub kept_prefix: Option<i64>,
    /// How far truncate can always go back.
    pub max_rewind: i32,
    /// 0 = max_seq_len.
    pub max_tokens: i32,
    pub namespace: &'a [NamespaceField<'a>],
    pub priority: i32,
    pub no_publish: bool,
}

/// The tokens that a request brings.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    pub tokens: &'a [i32],
    /// What is behind placeholder ids; None = nothing.
    pub extra: Option<&'a [u64]>,
    /// Tokens that see each other, such as an image's.
    pub bidirectional: &'a [Range<i32>],
}

impl<'a> Prompt<'a> {
    /// A prompt of tokens alone.
    pub fn new(tokens: &'a [i32]) -> Prompt<'a> {
        Prompt { tokens, extra: None, bidirectional: &[] }
    }
}

/// What an admission gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Tokens adopted from the prefix cache: the sequence's length now.
    pub num_cached: usize,
    /// Tokens of the prompt left to compute.
    pub num_to_write: usize,
    /// Blocks promised.
    pub num_blocks: usize,
    /// Of num_cached, the tokens that came from each tier.
    pub tier_cached: [i32; MAX_TIERS],
}

/// What an admission would answer to a new sequence.
#[derive(Clone, Debug)]
pub struct Probe {
    /// None: it would be admitted.
    pub refused: Option<Refused>,
    pub num_cached: usize,
    /// Further tokens of the prompt that a running sequence is to compute.
    pub num_pending: usize,
    /// Further tokens that a prefetch could bring, by tier, as far as the cache knows.
    pub tier_cached: [i32; MAX_TIERS],
}

impl Cache {
    /// Makes a cache.
    pub fn new(config: &Config) -> Result<Cache> {
        let mut raw = null_mut();
        // SAFETY: the configuration and what it points to live during the call.
        config.with_raw(|c| check(unsafe { ffi::pkv_cache_create(c, &mut raw) }))?;
        let raw = match NonNull::new(raw) {
            Some(raw) => raw,
            None => return refuse("the library made no cache".to_string()),
        };
        let layers = (0..config.layers.len()).map(|layer| shape(config, layer)).collect();
        Ok(Cache { raw, dtype: config.dtype, layers, _tiers: config.tiers.clone() })
    }

    pub(crate) fn raw(&self) -> *mut ffi::pkv_cache {
        self.raw.as_ptr()
    }

    /// Makes an empty sequence, which is destroyed when it is dropped.
    pub fn sequence(&self, options: &SequenceOptions<'_>) -> Result<Sequence<'_>> {
        let mut seq = ffi::pkv_seq::zeroed();
        // SAFETY: options and what they point to live during the call.
        options.with_raw(|o| check(unsafe { ffi::pkv_seq_create(self.raw(), o, &mut seq) }))?;
        Ok(Sequence { cache: self, raw: seq })
    }

    /// Opens a step that all rows join, or none.
    pub fn begin(&self, rows: &[Row<'_>]) -> std::result::Result<Step<'_>, Refused> {
        Step::begin(self, rows, rows.len(), 0)
    }

    /// Opens a step: the first `required` rows join all or none, the others in order until the
    /// first that finds no blocks. `now_ns` is the server's clock for pins and priorities, or 0.
    pub fn begin_some(
        &self,
        rows: &[Row<'_>],
        required: usize,
        now_ns: u64,
    ) -> std::result::Result<Step<'_>, Refused> {
        Step::begin(self, rows, required, now_ns)
    }

    /// Asks what an admission would answer, without any effect.
    pub fn probe(
        &self,
        options: &SequenceOptions<'_>,
        prompt: &Prompt<'_>,
        reserve: usize,
        max_cached: usize,
    ) -> Result<Probe> {
        let (reserve, max_cached) = (int("reserve", reserve)?, int("max_cached", max_cached)?);
        let mut probe = ffi::pkv_probe::zeroed();
        probe.size = std::mem::size_of_val(&probe);
        let mut shortage = ffi::pkv_shortage::zeroed();
        shortage.size = std::mem::size_of_val(&shortage);
        options.with_raw(|o| {
            prompt.with_raw(|p| {
                // SAFETY: all pointers are to values of this call.
                check(unsafe {
                    let (report, lack) = (&mut probe, &mut shortage);
                    ffi::pkv_cache_probe(self.raw(), o, p, reserve, max_cached, report, lack)
                })
            })
        })?;
        let refused = (probe.status != ffi::PKV_OK).then(|| {
            let text = "an admission would be refused".to_string();
            Refused::by(crate::Error::of(probe.status, text), shortage)
        });
        Ok(Probe {
            refused,
            num_cached: probe.num_cached as usize,
            num_pending: probe.num_pending as usize,
            tier_cached: probe.tier_cached,
        })
    }

    /// Counts the blocks of one group.
    pub fn usage(&self, group: usize) -> Result<GroupUsage> {
        let mut raw = ffi::pkv_group_usage::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        let group = int("group", group)?;
        // SAFETY: the report is a value of this call.
        check(unsafe { ffi::pkv_cache_usage(self.raw(), group, &mut raw) })?;
        Ok(GroupUsage {
            num_blocks: raw.num_blocks,
            free: raw.free,
            held: raw.held,
            cached: raw.cached,
            promised: raw.promised,
        })
    }

    /// The counters of the cache.
    pub fn stats(&self) -> Result<ffi::pkv_stats> {
        let mut raw = ffi::pkv_stats::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        // SAFETY: the report is a value of this call.
        check(unsafe { ffi::pkv_cache_stats(self.raw(), &mut raw) })?;
        Ok(raw)
    }

    /// Verifies every invariant: 0 for a sound cache.
    pub fn check(&self) -> usize {
        // SAFETY: the cache lives.
        unsafe { ffi::pkv_cache_check(self.raw()) }.max(0) as usize
    }

    /// Closes the cache to new work; waiting threads wake up.
    pub fn close(&self) {
        // SAFETY: the cache lives.
        unsafe { ffi::pkv_cache_close(self.raw()) }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: whatever borrows the cache has ended; a step that was forgotten ends with it.
        unsafe {
            ffi::pkv_cache_destroy(self.raw(), true);
        }
    }
}

fn shape(config: &Config, layer: usize) -> LayerShape {
    let earlier = config.layers[..layer].iter();
    let layer = &config.layers[layer];
    let group: &Group = &config.groups[layer.group];
    if group.is_state {
        let nth = earlier.filter(|other| other.group == layer.group).count();
        let states = Some((layer.group, nth));
        return LayerShape { states, num_heads: 0, q: 0, out: 0, k: None, v: None };
    }
    let (num_heads, shares_kv) = (layer.num_heads, layer.kv_of.is_some());
    let v_width = if group.v_width == 0 { group.k_width } else { group.v_width };
    LayerShape {
        states: None,
        num_heads,
        q: num_heads * group.k_width,
        out: num_heads * v_width,
        k: (!shares_kv).then(|| group.kv_heads * group.k_width),
        v: (!shares_kv && !group.v_in_k).then(|| group.kv_heads * v_width),
    }
}

impl SequenceOptions<'_> {
    pub(crate) fn with_raw<T>(
        &self,
        visit: impl FnOnce(&ffi::pkv_seq_options) -> Result<T>,
    ) -> Result<T> {
        let mut fields = Vec::with_capacity(self.namespace.len());
        for field in self.namespace {
            let mut raw = ffi::pkv_namespace_field::zeroed();
            raw.tag = field.tag;
            raw.length = int("namespace field", field.bytes.len())?;
            raw.bytes = field.bytes.as_ptr() as *const c_void;
            raw.begins_at = field.begins_at;
            fields.push(raw);
        }
        let mut raw = ffi::pkv_seq_options::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        raw.tag = self.tag;
        raw.kept_prefix = self.kept_prefix.as_ref().map_or(null(), |kept| kept);
        raw.max_rewind = self.max_rewind;
        raw.max_tokens = self.max_tokens;
        if !fields.is_empty() {
            raw.namespace_fields = fields.as_ptr();
            raw.num_namespace_fields = int("namespace", fields.len())?;
        }
        raw.priority = self.priority;
        raw.no_publish = self.no_publish;
        visit(&raw)
    }
}

impl Prompt<'_> {
    pub(crate) fn with_raw<T>(
        &self,
        visit: impl FnOnce(&ffi::pkv_prompt) -> Result<T>,
    ) -> Result<T> {
        let mut ranges = Vec::with_capacity(self.bidirectional.len());
        for range in self.bidirectional {
            ranges.push(ffi::pkv_token_range { begin: range.start, end: range.end });
        }
        let mut raw = ffi::pkv_prompt::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        raw.token_ids = self.tokens.as_ptr();
        raw.num_tokens = int("tokens", self.tokens.len())?;
        if let Some(extra) = self.extra {
            want_length("extra", extra.len(), Some(self.tokens.len()))?;
            raw.token_extra = extra.as_ptr();
        }
        if !ranges.is_empty() {
            raw.bidirectional = ranges.as_ptr();
            raw.num_bidirectional = int("bidirectional", ranges.len())?;
        }
        visit(&raw)
    }
}

/// One request. Dropping it releases its blocks; indexed ones stay cached.
pub struct Sequence<'c> {
    cache: &'c Cache,
    raw: ffi::pkv_seq,
}

impl<'c> Sequence<'c> {
    pub(crate) fn of(cache: &'c Cache, raw: ffi::pkv_seq) -> Sequence<'c> {
        Sequence { cache, raw }
    }

    pub(crate) fn cache(&self) -> &'c Cache {
        self.cache
    }

    pub(crate) fn raw(&self) -> ffi::pkv_seq {
        self.raw
    }

    /// Its committed tokens.
    pub fn length(&self) -> Result<usize> {
        let mut length = 0;
        // SAFETY: the cache lives as long as self.
        check(unsafe { ffi::pkv_seq_length(self.cache.raw(), self.raw, &mut length) })?;
        Ok(length as usize)
    }

    /// Adopts the longest cached prefix of a prompt, at most `max_cached` tokens, and promises
    /// blocks for the rest of it and `reserve` tokens more.
    pub fn admit(
        &self,
        prompt: &Prompt<'_>,
        reserve: usize,
        max_cached: usize,
    ) -> std::result::Result<Admission, Refused> {
        let (reserve, max_cached) = (int("reserve", reserve)?, int("max_cached", max_cached)?);
        let mut given = ffi::pkv_admission::zeroed();
        given.size = std::mem::size_of_val(&given);
        let mut shortage = ffi::pkv_shortage::zeroed();
        shortage.size = std::mem::size_of_val(&shortage);
        let answer = prompt.with_raw(|p| {
            // SAFETY: all pointers are to values of this call.
            check(unsafe {
                let (report, lack) = (&mut given, &mut shortage);
                ffi::pkv_seq_admit(self.cache.raw(), self.raw, p, reserve, max_cached, report, lack)
            })
        });
        answer.map_err(|error| Refused::by(error, shortage))?;
        Ok(Admission {
            num_cached: given.num_cached as usize,
            num_to_write: given.num_to_write as usize,
            num_blocks: given.num_blocks as usize,
            tier_cached: given.tier_cached,
        })
    }

    /// Waits until what an admission of this sequence lacked has come free. True: it has; false:
    /// the time is over.
    pub fn wait_free(&self, shortage: &Shortage, timeout: Duration) -> Result<bool> {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the borrowed cache cannot be destroyed while this thread waits.
        let answer =
            check(unsafe { ffi::pkv_wait_free(self.cache.raw(), self.raw, &shortage.0, timeout) });
        match answer {
            Ok(()) => Ok(true),
            Err(crate::Error::NoBlocks(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes n children that share the first `at` tokens, without copying.
    pub fn fork(&self, at: usize, n: usize) -> Result<Vec<Sequence<'c>>> {
        let mut children = vec![ffi::pkv_seq::zeroed(); n];
        let (at, n) = (int("at", at)?, int("n", n)?);
        // SAFETY: children has n elements.
        check(unsafe {
            ffi::pkv_seq_fork(self.cache.raw(), self.raw, at, n, children.as_mut_ptr())
        })?;
        let cache = self.cache;
        Ok(children.into_iter().map(|raw| Sequence { cache, raw }).collect())
    }

    /// Shortens it to its first `length` tokens; 0 preempts it.
    pub fn truncate(&self, length: usize) -> Result<()> {
        let length = int("length", length)?;
        // SAFETY: the cache lives as long as self.
        check(unsafe { ffi::pkv_seq_truncate(self.cache.raw(), self.raw, length) })
    }

    /// Moves its keys, values and states to swap memory (`Config::swap_bytes`) and releases its
    /// blocks.
    pub fn swap_out(&self) -> std::result::Result<(), Refused> {
        self.swap(ffi::pkv_seq_swap_out)
    }

    /// Brings it back; a refusal says what to wait for.
    pub fn swap_in(&self) -> std::result::Result<(), Refused> {
        self.swap(ffi::pkv_seq_swap_in)
    }

    fn swap(&self, call: SwapCall) -> std::result::Result<(), Refused> {
        let mut shortage = ffi::pkv_shortage::zeroed();
        shortage.size = std::mem::size_of_val(&shortage);
        // SAFETY: the cache lives as long as self, and shortage is a value of this call.
        check(unsafe { call(self.cache.raw(), self.raw, &mut shortage) })
            .map_err(|error| Refused::by(error, shortage))
    }
}

type SwapCall =
    unsafe extern "C" fn(*mut ffi::pkv_cache, ffi::pkv_seq, *mut ffi::pkv_shortage) -> c_int;

impl Drop for Sequence<'_> {
    fn drop(&mut self) {
        // SAFETY: the cache lives as long as self; a stale handle is refused.
        unsafe {
            ffi::pkv_seq_destroy(self.cache.raw(), self.raw);
        }
    }
}
