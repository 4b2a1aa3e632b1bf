// SPDX-License-Identifier: MIT
//! The configuration of a cache, and what a model fixes for each layer.
use crate::element::Dtype;
use crate::error::{int, refuse, want_length, Result};
use crate::ffi;
use crate::tier::Tier;
use std::ffi::CString;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Instruction sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// The best that this machine and build have.
    Best,
    Scalar,
    Avx2,
    Avx512,
    Avx512Vnni,
    Avx512Bf16,
}

impl Isa {
    pub(crate) fn raw(self) -> c_int {
        match self {
            Isa::Best => ffi::PKV_ISA_BEST,
            Isa::Scalar => ffi::PKV_ISA_SCALAR,
            Isa::Avx2 => ffi::PKV_ISA_AVX2,
            Isa::Avx512 => ffi::PKV_ISA_AVX512,
            Isa::Avx512Vnni => ffi::PKV_ISA_AVX512VNNI,
            Isa::Avx512Bf16 => ffi::PKV_ISA_AVX512BF16,
        }
    }
}

/// Rotary embedding: tables of `[positions][width]`, and which channels turn as a pair.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
    /// Pairs that turn: half the number of rotated channels.
    pub width: usize,
    /// The first channel that turns.
    pub offset: usize,
    /// Pairs 2t and 2t + 1 instead of t and t + width.
    pub interleaved: bool,
}

/// What a model fixes for each layer. The default is plain attention over float caches.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    /// The factor of the dot product; None = 1 / sqrt(k_width).
    pub q_scale: Option<f32>,
    /// 0 = off.
    pub softcap: f32,
    /// One logit of each query head; empty = none.
    pub head_sink: Vec<f32>,
    pub rope: Option<Rope>,
    /// Norm weights of queries and keys, `[k_width]`; empty = not normed.
    pub q_norm: Vec<f32>,
    pub k_norm: Vec<f32>,
    pub norm_eps: f32,
    pub norm_before_rope: bool,
    /// Scales of int8 and e4m3 caches: 1 element, or `[kv_heads][width]`; empty for float caches.
    pub k_scale: Vec<f32>,
    pub v_scale: Vec<f32>,
}

fn pointer(values: &[f32]) -> *const f32 {
    if values.is_empty() {
        std::ptr::null()
    } else {
        values.as_ptr()
    }
}

impl Constants {
    /// The struct of the library, which points into self.
    pub(crate) fn raw(&self) -> Result<ffi::pkv_attn_constants> {
        let mut raw = ffi::pkv_attn_constants::zeroed();
        raw.q_scale = self.q_scale.as_ref().map_or(std::ptr::null(), |scale| scale);
        raw.softcap = self.softcap;
        raw.head_sink = pointer(&self.head_sink);
        raw.head_sink_count = int("head_sink", self.head_sink.len())?;
        raw.q_norm_gain = pointer(&self.q_norm) as *const c_void;
        raw.k_norm_gain = pointer(&self.k_norm) as *const c_void;
        raw.q_norm_gain_count = int("q_norm", self.q_norm.len())?;
        raw.k_norm_gain_count = int("k_norm", self.k_norm.len())?;
        raw.qk_norm_eps = self.norm_eps;
        raw.norm_order = if self.norm_before_rope {
            ffi::PKV_NORM_BEFORE_ROPE
        } else {
            ffi::PKV_NORM_AFTER_ROPE
        };
        raw.k_scale = pointer(&self.k_scale);
        raw.v_scale = pointer(&self.v_scale);
        raw.k_scale_count = int("k_scale", self.k_scale.len())?;
        raw.v_scale_count = int("v_scale", self.v_scale.len())?;
        if let Some(rope) = &self.rope {
            rope.set(&mut raw)?;
        }
        Ok(raw)
    }
}

impl Rope {
    fn set(&self, raw: &mut ffi::pkv_attn_constants) -> Result<()> {
        if self.width == 0 || self.cos.is_empty() || self.cos.len() % self.width != 0 {
            return refuse(format!(
                "rope.cos has {} elements, not rows of rope.width = {}",
                self.cos.len(),
                self.width
            ));
        }
        want_length("rope.sin", self.sin.len(), Some(self.cos.len()))?;
        raw.rope_cos = self.cos.as_ptr() as *const c_void;
        raw.rope_sin = self.sin.as_ptr() as *const c_void;
        raw.rope_dtype = ffi::PKV_F32;
        raw.rope_positions = i64::from(int("rope positions", self.cos.len() / self.width)?);
        raw.rope_width = int("rope.width", self.width)?;
        raw.rotary_offset = int("rope.offset", self.offset)?;
        raw.rotary_mode =
            if self.interleaved { ffi::PKV_ROTARY_INTERLEAVED } else { ffi::PKV_ROTARY_HALF_SPLIT };
        Ok(())
    }
}

/// A layer group: layers with one geometry, window and dtype, which share block tables.
#[derive(Clone, Debug)]
pub struct Group {
    /// One slot of max_seq_len tokens for each sequence instead of blocks.
    pub continuous: bool,
    pub kv_heads: usize,
    pub k_width: usize,
    /// 0 = k_width.
    pub v_width: usize,
    /// A value is the first v_width channels of its key.
    pub v_in_k: bool,
    pub k_dtype: Dtype,
    pub v_dtype: Dtype,
    /// Tokens of a block.
    pub block_size: usize,
    /// Keys that a query sees; 0 = all.
    pub sliding_window: i64,
    /// The first so many keys are seen beside the window.
    pub kept_prefix: i64,
    /// 0 = a share of the configuration's `bytes`.
    pub num_blocks: usize,
    /// Recurrent layers, see [`Group::of_states`]: of the fields above only num_blocks is read, the
    /// states of the group. State groups stand behind the attention groups.
    pub is_state: bool,
    /// What one layer keeps for one sequence.
    pub state_bytes: usize,
    /// With the prefix cache, states are cached at multiples of so many tokens; 0 = the least
    /// common multiple of the block sizes.
    pub snapshot_interval: usize,
    /// The greatest max_rewind of a sequence.
    pub max_rewind: usize,
    /// Of what one sequence leaves cached, one snapshot for so many tokens stays, or in an
    /// attention group one window; 0 = all.
    pub segment_tokens: i64,
}

impl Default for Group {
    fn default() -> Group {
        Group {
            continuous: false,
            kv_heads: 0,
            k_width: 0,
            v_width: 0,
            v_in_k: false,
            k_dtype: Dtype::F32,
            v_dtype: Dtype::F32,
            block_size: 64,
            sliding_window: 0,
            kept_prefix: 0,
            num_blocks: 0,
            is_state: false,
            state_bytes: 0,
            snapshot_interval: 0,
            max_rewind: 0,
            segment_tokens: 0,
        }
    }
}

impl Group {
    /// A state group: its layers keep state_bytes for each sequence.
    pub fn of_states(state_bytes: usize, num_states: usize) -> Group {
        Group { is_state: true, state_bytes, num_blocks: num_states, ..Group::default() }
    }

    fn raw(&self) -> Result<ffi::pkv_group_config> {
        let mut raw = ffi::pkv_group_config::zeroed();
        raw.storage =
            if self.continuous { ffi::PKV_STORAGE_CONTINUOUS } else { ffi::PKV_STORAGE_PAGED };
        raw.kv_heads = int("kv_heads", self.kv_heads)?;
        raw.k_width = int("k_width", self.k_width)?;
        raw.v_width = int("v_width", self.v_width)?;
        raw.v_in_k = self.v_in_k;
        raw.k_dtype = self.k_dtype.raw();
        raw.v_dtype = self.v_dtype.raw();
        raw.block_size = int("block_size", self.block_size)?;
        raw.sliding_window = self.sliding_window;
        raw.kept_prefix = self.kept_prefix;
        raw.num_blocks = int("num_blocks", self.num_blocks)?;
        raw.kind = if self.is_state { ffi::PKV_GROUP_STATE } else { ffi::PKV_GROUP_ATTENTION };
        raw.state_bytes = self.state_bytes;
        raw.snapshot_interval = int("snapshot_interval", self.snapshot_interval)?;
        raw.max_rewind = int("max_rewind", self.max_rewind)?;
        raw.segment_tokens = self.segment_tokens;
        Ok(raw)
    }
}

/// One layer of the model. Of a layer in a state group only the group is read.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// Index into the groups.
    pub group: usize,
    pub num_heads: usize,
    /// It has no pages of its own and reads those of this earlier layer of its group.
    pub kv_of: Option<usize>,
    pub constants: Constants,
}

impl Layer {
    fn raw(&self) -> Result<ffi::pkv_layer_config> {
        let mut raw = ffi::pkv_layer_config::zeroed();
        raw.group = int("group", self.group)?;
        raw.num_heads = int("num_heads", self.num_heads)?;
        raw.shares_kv = self.kv_of.is_some();
        raw.kv_layer = int("kv_of", self.kv_of.unwrap_or(0))?;
        raw.constants = self.constants.raw()?;
        Ok(raw)
    }
}

/// The configuration of a cache; zeros and None are the defaults of the library.
#[derive(Clone, Debug)]
pub struct Config {
    pub groups: Vec<Group>,
    /// In the order of the model.
    pub layers: Vec<Layer>,
    /// Of queries, new keys and values, and outputs.
    pub dtype: Dtype,
    /// Bytes for the keys and values of groups without num_blocks.
    pub bytes: usize,
    pub max_seqs: usize,
    pub max_seq_len: usize,
    /// 0 = max_seqs.
    pub max_step_rows: usize,
    pub max_step_tokens: usize,
    /// 0 = as many as this process can run at once.
    pub num_threads: usize,
    pub isa: Isa,
    /// Full blocks stay cached for later prompts.
    pub prefix_cache: bool,
    pub watermark_blocks: usize,
    /// Whatever else decides what cached keys mean, such as the model's weights.
    pub fingerprint: Vec<u8>,
    pub no_partial_hits: bool,
    pub check_tokens: bool,
    pub poison_freed: bool,
    pub zero_freed: bool,
    /// Memory that sequences can be swapped out to; 0 = none.
    pub swap_bytes: usize,
    /// The folder of a file that is this memory; None = memory of the process.
    pub swap_path: Option<PathBuf>,
    /// Where full blocks are stored and prefetched from, nearest first, at most
    /// [`MAX_TIERS`](crate::MAX_TIERS). The cache keeps them.
    pub tiers: Vec<Arc<Tier>>,
    /// Threads that read and write tiers; 0 = those that call
    /// [`work_tiers`](crate::Cache::work_tiers).
    pub num_tier_threads: usize,
    /// Tickets that may be open at once; 0 = 64.
    pub max_tickets: usize,
    /// Blocks of each group that may wait to be stored; 0 = an eighth of its blocks.
    pub max_store_blocks: usize,
    /// Blocks are stored by [`store_prefix`](crate::Cache::store_prefix) alone.
    pub no_write_behind: bool,
    /// With the prefix cache, prompts can be hit: beside a continuous group the configuration is
    /// refused, instead of a cache whose hits are all 0.
    pub requires_hits: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            groups: Vec::new(),
            layers: Vec::new(),
            dtype: Dtype::F32,
            bytes: 0,
            max_seqs: 0,
            max_seq_len: 0,
            max_step_rows: 0,
            max_step_tokens: 0,
            num_threads: 0,
            isa: Isa::Best,
            prefix_cache: false,
            watermark_blocks: 0,
            fingerprint: Vec::new(),
            no_partial_hits: false,
            check_tokens: false,
            poison_freed: false,
            zero_freed: false,
            swap_bytes: 0,
            swap_path: None,
            tiers: Vec::new(),
            num_tier_threads: 0,
            max_tickets: 0,
            max_store_blocks: 0,
            no_write_behind: false,
            requires_hits: false,
        }
    }
}

/// A text as the library reads it, or none.
pub(crate) type Text = Option<CString>;

/// A path as the library reads it.
pub(crate) fn path_text(name: &str, path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .or_else(|_| refuse(format!("{} = {:?} has a NUL", name, path)))
}

pub(crate) fn text(name: &str, value: &Option<String>) -> Result<Text> {
    let text = value.as_ref().map(|value| CString::new(value.as_bytes())).transpose();
    text.or_else(|_| refuse(format!("{} has a NUL", name)))
}

/// Its address while it lives, or NULL.
pub(crate) fn optional(text: &Text) -> *const c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

impl Config {
    /// Calls `visit` with the struct of the library, which is valid during the call.
    pub(crate) fn with_raw<T>(
        &self,
        visit: impl FnOnce(&ffi::pkv_cache_config) -> Result<T>,
    ) -> Result<T> {
        let groups = self.groups.iter().map(Group::raw).collect::<Result<Vec<_>>>()?;
        let layers = self.layers.iter().map(Layer::raw).collect::<Result<Vec<_>>>()?;
        let mut raw = ffi::pkv_cache_config::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        raw.groups = groups.as_ptr();
        raw.num_groups = int("groups", groups.len())?;
        raw.layers = layers.as_ptr();
        raw.num_layers = int("layers", layers.len())?;
        raw.dtype = self.dtype.raw();
        raw.bytes = self.bytes;
        raw.max_seqs = int("max_seqs", self.max_seqs)?;
        raw.max_seq_len = int("max_seq_len", self.max_seq_len)?;
        raw.max_step_rows = int("max_step_rows", self.max_step_rows)?;
        raw.max_step_tokens = int("max_step_tokens", self.max_step_tokens)?;
        raw.num_threads = int("num_threads", self.num_threads)?;
        raw.isa = self.isa.raw();
        raw.prefix_cache = self.prefix_cache;
        raw.watermark_blocks = int("watermark_blocks", self.watermark_blocks)?;
        if !self.fingerprint.is_empty() {
            raw.fingerprint = self.fingerprint.as_ptr() as *const c_void;
            raw.fingerprint_bytes = int("fingerprint", self.fingerprint.len())?;
        }
        raw.no_partial_hits = self.no_partial_hits;
        raw.check_tokens = self.check_tokens;
        raw.poison_freed = self.poison_freed;
        raw.zero_freed = self.zero_freed;
        raw.swap_bytes = self.swap_bytes;
        let path = self.swap_path.as_ref().map(|path| path_text("swap_path", path)).transpose()?;
        raw.swap_path = optional(&path);
        let tiers: Vec<_> = self.tiers.iter().map(|tier| tier.raw()).collect();
        raw.tiers = tiers.as_ptr();
        raw.num_tiers = int("tiers", tiers.len())?;
        raw.num_tier_threads = int("num_tier_threads", self.num_tier_threads)?;
        raw.max_tickets = int("max_tickets", self.max_tickets)?;
        raw.max_store_blocks = int("max_store_blocks", self.max_store_blocks)?;
        raw.no_write_behind = self.no_write_behind;
        raw.required = if self.requires_hits { ffi::PKV_REQUIRE_HITS as u64 } else { 0 };
        visit(&raw)
    }
}
