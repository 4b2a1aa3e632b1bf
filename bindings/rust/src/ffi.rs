// SPDX-License-Identifier: MIT
//! The C declarations as they are, for what the safe part lacks. tests/layout.rs compares every
//! size, offset and constant with what a C compiler makes of the headers.
//!
//! Zeroed structs are valid, as in C: a struct whose first field is `size` gets its own size there.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_void};

/// One field of a struct, or a struct as a whole (then the name of the field is empty).
pub struct Place {
    pub structure: &'static str,
    pub field: &'static str,
    pub offset: usize,
    pub size: usize,
}

fn size_of_target<T>(_: *const T) -> usize {
    std::mem::size_of::<T>()
}

macro_rules! c_structs {
    ($(pub struct $name:ident { $(pub $field:ident: $type:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub struct $name { $(pub $field: $type,)* }

            impl $name {
                /// All bytes zero.
                pub fn zeroed() -> Self {
                    // SAFETY: integers, floats, bools, raw pointers, optional functions and arrays alone.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        /// Where every field of every struct here is.
        pub fn places() -> Vec<Place> {
            let mut list = Vec::new();
            $(
                let whole = std::mem::MaybeUninit::<$name>::uninit();
                let base = whole.as_ptr();
                list.push(Place {
                    structure: stringify!($name),
                    field: "",
                    offset: 0,
                    size: std::mem::size_of::<$name>(),
                });
                $(
                    // SAFETY: the address of a field of memory that is there; nothing is read.
                    let field = unsafe { std::ptr::addr_of!((*base).$field) };
                    list.push(Place {
                        structure: stringify!($name),
                        field: stringify!($field).trim_start_matches("r#"),
                        offset: field as usize - base as usize,
                        size: size_of_target(field),
                    });
                )*
            )*
            list
        }
    };
}

macro_rules! c_constants {
    ($($name:ident = $value:expr;)*) => {
        $(pub const $name: c_int = $value;)*
        /// Every constant here with its name.
        pub const CONSTANTS: &[(&str, c_int)] = &[$((stringify!($name), $value),)*];
    };
}

c_constants! {
    PKV_VERSION_MAJOR = 0;
    PKV_VERSION_MINOR = 1;
    PKV_VERSION_PATCH = 0;
    PKV_OK = 0;
    PKV_INVALID_ARGUMENT = -1;
    PKV_NO_MEMORY = -2;
    PKV_NO_BLOCKS = -3;
    PKV_NEVER_FITS = -4;
    PKV_NOT_RESIDENT = -5;
    PKV_STALE_HANDLE = -6;
    PKV_BUSY = -7;
    PKV_UNSUPPORTED = -8;
    PKV_CORRUPT = -9;
    PKV_IO = -10;
    PKV_NOT_FOUND = -11;
    PKV_F32 = 0;
    PKV_F16 = 1;
    PKV_BF16 = 2;
    PKV_INT8 = 3;
    PKV_E4M3 = 4;
    PKV_ISA_BEST = 0;
    PKV_ISA_SCALAR = 1;
    PKV_ISA_AVX2 = 2;
    PKV_ISA_AVX512 = 3;
    PKV_ISA_AVX512VNNI = 5;
    PKV_ISA_AVX512BF16 = 4;
    PKV_CACHE_NONE = 0;
    PKV_CACHE_DENSE = 1;
    PKV_CACHE_DENSE_COPY = 2;
    PKV_CACHE_CONTINUOUS = 3;
    PKV_CACHE_PAGED = 4;
    PKV_ROTARY_HALF_SPLIT = 0;
    PKV_ROTARY_INTERLEAVED = 1;
    PKV_NORM_AFTER_ROPE = 0;
    PKV_NORM_BEFORE_ROPE = 1;
    PKV_GROUP_ATTENTION = 0;
    PKV_GROUP_STATE = 1;
    PKV_STORAGE_PAGED = 0;
    PKV_STORAGE_CONTINUOUS = 1;
    PKV_REQUIRE_HITS = 1;
    PKV_MAX_TIERS = 4;
    PKV_MAX_TIER_NAME = 95;
    PKV_TICKET_FINDING = 0;
    PKV_TICKET_LOADING = 1;
    PKV_TICKET_STORING = 2;
    PKV_TICKET_DONE = 3;
}

/// Opaque.
#[repr(C)]
pub struct pkv_cache {
    _private: [u8; 0],
}

/// Opaque.
#[repr(C)]
pub struct pkv_workspace {
    _private: [u8; 0],
}

/// Opaque.
#[repr(C)]
pub struct pkv_tier {
    _private: [u8; 0],
}

/// Functions of pkv_writer and pkv_reader.
pub type pkv_write = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> bool;
pub type pkv_read = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> bool;
pub type pkv_read_at = unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> bool;

c_structs! {
    pub struct pkv_piece {
        pub bytes: *mut c_void,
        pub length: usize,
    }

    pub struct pkv_tier_item {
        pub name: *const c_char,
        pub pieces: *const pkv_piece,
        pub num_pieces: i32,
        pub bytes: usize,
        pub status: c_int,
        pub reserved: [u64; 2],
    }

    pub struct pkv_tier_counter {
        pub name: *const c_char,
        pub add: u64,
        pub value: u64,
        pub status: c_int,
        pub reserved: [u64; 2],
    }

    pub struct pkv_tier_ops {
        pub size: usize,
        pub name: *const c_char,
        pub context: *mut c_void,
        pub put: *mut c_void,
        pub get: *mut c_void,
        pub find: *mut c_void,
        pub remove: *mut c_void,
        pub count: *mut c_void,
        pub list: *mut c_void,
        pub destroy: *mut c_void,
    }

    pub struct pkv_disk_config {
        pub size: usize,
        pub path: *const c_char,
        pub max_bytes: u64,
        pub timeout_ms: i32,
        pub file_mode: u32,
    }

    pub struct pkv_redis_config {
        pub size: usize,
        pub host: *const c_char,
        pub unix_socket: *const c_char,
        pub user: *const c_char,
        pub password: *const c_char,
        pub key_prefix: *const c_char,
        pub port: i32,
        pub database: i32,
        pub ttl_seconds: i32,
        pub connect_timeout_ms: i32,
        pub command_timeout_ms: i32,
        pub min_backoff_ms: i32,
        pub max_backoff_ms: i32,
        pub is_cluster: bool,
        pub use_tls: bool,
        pub more_nodes: *const c_char,
        pub ca_file: *const c_char,
        pub cert_file: *const c_char,
        pub key_file: *const c_char,
    }

    pub struct pkv_ticket {
        pub id: u64,
    }

    pub struct pkv_ticket_info {
        pub size: usize,
        pub state: c_int,
        pub status: c_int,
        pub num_cached: i32,
        pub num_loaded: i32,
        pub tier_loaded: [i32; PKV_MAX_TIERS as usize],
        pub num_stored: i32,
        pub num_left: i32,
        pub begun_ns: u64,
    }

    pub struct pkv_tier_stats {
        pub size: usize,
        pub stored_blocks: u64,
        pub stored_bytes: u64,
        pub failed_stores: u64,
        pub skipped_stores: u64,
        pub loaded_blocks: u64,
        pub loaded_bytes: u64,
        pub missed_blocks: u64,
        pub void_blocks: u64,
        pub collisions: u64,
        pub failed_loads: u64,
        pub corrupt_blocks: u64,
        pub hit_tokens: u64,
        pub waiting_stores: i32,
        pub num_tickets: i32,
    }

    pub struct pkv_writer {
        pub size: usize,
        pub context: *mut c_void,
        pub write: Option<pkv_write>,
    }

    pub struct pkv_reader {
        pub size: usize,
        pub context: *mut c_void,
        pub read: Option<pkv_read>,
        pub read_at: Option<pkv_read_at>,
        pub num_bytes: u64,
    }

    pub struct pkv_hooks {
        pub context: *mut c_void,
        pub alloc: *mut c_void,
        pub free: *mut c_void,
        pub map_pages: *mut c_void,
        pub unmap_pages: *mut c_void,
        pub log: *mut c_void,
        pub parallel_for: *mut c_void,
        pub reserved: [u64; 4],
    }

    pub struct pkv_kv_view {
        pub k: *mut c_void,
        pub v: *mut c_void,
        pub k_dtype: c_int,
        pub v_dtype: c_int,
        pub num_blocks: i32,
        pub kv_heads: i32,
        pub block_size: i32,
        pub k_width: i32,
        pub v_width: i32,
        pub k_block_stride: usize,
        pub k_head_stride: usize,
        pub k_cell_stride: usize,
        pub v_block_stride: usize,
        pub v_head_stride: usize,
        pub v_cell_stride: usize,
        pub reserved: [u64; 4],
    }

    pub struct pkv_namespace_field {
        pub tag: i32,
        pub length: i32,
        pub bytes: *const c_void,
        pub begins_at: i32,
    }

    pub struct pkv_attn_constants {
        pub q_scale: *const f32,
        pub softcap: f32,
        pub smooth_softmax: bool,
        pub head_sink: *const f32,
        pub head_sink_count: i32,
        pub rope_cos: *const c_void,
        pub rope_sin: *const c_void,
        pub rope_dtype: c_int,
        pub rope_positions: i64,
        pub rope_width: i32,
        pub rotary_offset: i32,
        pub rotary_mode: c_int,
        pub q_norm_gain: *const c_void,
        pub k_norm_gain: *const c_void,
        pub q_norm_gain_dtype: c_int,
        pub k_norm_gain_dtype: c_int,
        pub q_norm_gain_count: i32,
        pub k_norm_gain_count: i32,
        pub qk_norm_eps: f32,
        pub norm_order: c_int,
        pub k_scale: *const f32,
        pub v_scale: *const f32,
        pub k_scale_count: i32,
        pub v_scale_count: i32,
        pub reserved: [u64; 8],
    }

    pub struct pkv_token_range {
        pub begin: i32,
        pub end: i32,
    }

    pub struct pkv_gqa_args {
        pub size: usize,
        pub form: c_int,
        pub dtype: c_int,
        pub num_heads: i32,
        pub kv_heads: i32,
        pub k_width: i32,
        pub v_width: i32,
        pub v_in_k: bool,
        pub batch: i32,
        pub num_tokens: i32,
        pub cu_seqlens_q: *const i32,
        pub cu_seqlens_k: *const i32,
        pub kv_lens: *const i32,
        pub block_table: *const i32,
        pub max_blocks: i32,
        pub slot_ids: *const i32,
        pub q: *const c_void,
        pub k: *const c_void,
        pub v: *const c_void,
        pub out: *mut c_void,
        pub lse: *mut f32,
        pub q_stride: usize,
        pub k_stride: usize,
        pub v_stride: usize,
        pub out_stride: usize,
        pub past: pkv_kv_view,
        pub present: pkv_kv_view,
        pub sliding_window: i64,
        pub kept_prefix: *const i64,
        pub kept_prefix_count: i32,
        pub not_causal: bool,
        pub position_ids: *const i64,
        pub attn_mask: *const c_void,
        pub mask_dtype: c_int,
        pub mask_batch: i32,
        pub mask_heads: i32,
        pub mask_queries: i32,
        pub mask_keys: i32,
        pub constants: pkv_attn_constants,
        pub bidirectional: *const pkv_token_range,
        pub cu_bidirectional: *const i32,
        pub selected: *const i32,
        pub cu_selected: *const i32,
        pub num_selected_lists: i32,
        pub selection_size: i32,
        pub selected_newest: i64,
        pub parents: *const i32,
    }

    pub struct pkv_rank_args {
        pub size: usize,
        pub bounds: *const f32,
        pub num_candidates: *const i32,
        pub max_selected: i32,
        pub selected: *mut i32,
        pub cu_selected: *mut i32,
        pub scores: *mut f32,
        pub scores_stride: usize,
    }

    pub struct pkv_seq {
        pub id: u64,
    }

    pub struct pkv_group_config {
        pub kind: c_int,
        pub storage: c_int,
        pub kv_heads: i32,
        pub k_width: i32,
        pub v_width: i32,
        pub v_in_k: bool,
        pub k_dtype: c_int,
        pub v_dtype: c_int,
        pub block_size: i32,
        pub sliding_window: i64,
        pub kept_prefix: i64,
        pub num_blocks: i32,
        pub state_bytes: usize,
        pub snapshot_interval: i32,
        pub max_rewind: i32,
        pub segment_tokens: i64,
        pub reserved: [u64; 5],
    }

    pub struct pkv_layer_config {
        pub group: i32,
        pub num_heads: i32,
        pub shares_kv: bool,
        pub kv_layer: i32,
        pub constants: pkv_attn_constants,
        pub reserved: [u64; 8],
    }

    pub struct pkv_cache_config {
        pub size: usize,
        pub groups: *const pkv_group_config,
        pub num_groups: i32,
        pub layers: *const pkv_layer_config,
        pub num_layers: i32,
        pub dtype: c_int,
        pub bytes: usize,
        pub max_seqs: i32,
        pub max_seq_len: i32,
        pub max_step_rows: i32,
        pub max_step_tokens: i32,
        pub num_threads: c_int,
        pub isa: c_int,
        pub hooks: pkv_hooks,
        pub poison_freed: bool,
        pub zero_freed: bool,
        pub prefix_cache: bool,
        pub num_index_nodes: i32,
        pub max_namespaces: i32,
        pub watermark_blocks: i32,
        pub max_pinned_blocks: i32,
        pub num_events: i32,
        pub fingerprint: *const c_void,
        pub fingerprint_bytes: i32,
        pub masked_hash_bits: i32,
        pub event_tokens: bool,
        pub metrics_label: *const c_char,
        pub check_tokens: bool,
        pub no_partial_hits: bool,
        pub min_blank_percent: i32,
        pub swap_bytes: usize,
        pub swap_path: *const c_char,
        pub tiers: *const *mut pkv_tier,
        pub num_tiers: i32,
        pub num_tier_threads: i32,
        pub max_tickets: i32,
        pub max_store_blocks: i32,
        pub no_write_behind: bool,
        pub required: u64,
    }

    pub struct pkv_cache_sizes {
        pub size: usize,
        pub payload_bytes: usize,
        pub table_bytes: usize,
        pub metadata_bytes: usize,
        pub token_bytes: usize,
        pub swap_bytes: usize,
    }

    pub struct pkv_group_usage {
        pub size: usize,
        pub num_blocks: i32,
        pub free: i32,
        pub held: i32,
        pub cached: i32,
        pub pinned: i32,
        pub promised: i32,
    }

    pub struct pkv_seq_options {
        pub size: usize,
        pub tag: u64,
        pub kept_prefix: *const i64,
        pub max_rewind: i32,
        pub max_tokens: i32,
        pub namespace_fields: *const pkv_namespace_field,
        pub num_namespace_fields: i32,
        pub priority: i32,
        pub no_publish: bool,
        pub retention_ns: u64,
    }

    pub struct pkv_seq_info {
        pub size: usize,
        pub tag: u64,
        pub max_rewind: i32,
        pub max_tokens: i32,
        pub length: i32,
        pub num_cached: i32,
        pub num_blocks: i32,
        pub min_length: i32,
        pub in_step: bool,
        pub is_swapped: bool,
    }

    pub struct pkv_shortage {
        pub size: usize,
        pub row: i32,
        pub group: i32,
        pub need: i64,
        pub free: i64,
        pub evictable: i64,
        pub quota: i64,
        pub max_tokens: i32,
    }

    pub struct pkv_prompt {
        pub size: usize,
        pub token_ids: *const i32,
        pub token_extra: *const u64,
        pub num_tokens: i32,
        pub bidirectional: *const pkv_token_range,
        pub num_bidirectional: i32,
    }

    pub struct pkv_admission {
        pub size: usize,
        pub num_cached: i32,
        pub num_to_write: i32,
        pub num_blocks: i32,
        pub num_copied: i64,
        pub tier_cached: [i32; PKV_MAX_TIERS as usize],
    }

    pub struct pkv_probe {
        pub size: usize,
        pub status: c_int,
        pub num_cached: i32,
        pub num_pending: i32,
        pub num_blocks: i32,
        pub num_copied: i64,
        pub tier_cached: [i32; PKV_MAX_TIERS as usize],
    }

    pub struct pkv_step {
        pub id: u64,
    }

    pub struct pkv_batch {
        pub size: usize,
        pub seqs: *const pkv_seq,
        pub q_lens: *const i32,
        pub num_rows: i32,
        pub num_required_rows: i32,
        pub token_ids: *const i32,
        pub token_extra: *const u64,
        pub position_ids: *const i64,
        pub now_ns: u64,
        pub bidirectional: *const pkv_token_range,
        pub cu_bidirectional: *const i32,
        pub parents: *const i32,
    }

    pub struct pkv_state_view {
        pub size: usize,
        pub num_rows: i32,
        pub num_tokens: i32,
        pub cu_seqlens_q: *const i32,
        pub reads: *const i32,
        pub writes: *const i32,
        pub first_layer: *mut c_void,
        pub state_bytes: usize,
        pub state_stride_bytes: usize,
        pub layer_stride_bytes: usize,
        pub parents: *const i32,
    }

    pub struct pkv_layer_io {
        pub size: usize,
        pub q: *const c_void,
        pub k: *const c_void,
        pub v: *const c_void,
        pub out: *mut c_void,
        pub lse: *mut f32,
        pub q_stride: usize,
        pub k_stride: usize,
        pub v_stride: usize,
        pub out_stride: usize,
        pub selected: *const i32,
        pub cu_selected: *const i32,
        pub num_selected_lists: i32,
        pub selection_size: i32,
        pub selected_newest: i64,
    }

    pub struct pkv_stats {
        pub size: usize,
        pub num_admissions: u64,
        pub queried_tokens: u64,
        pub hit_tokens: u64,
        pub readmitted_tokens: u64,
        pub rehit_tokens: u64,
        pub stored_blocks: u64,
        pub deduplicated_blocks: u64,
        pub unpublished_blocks: u64,
        pub evicted_blocks: u64,
        pub evicted_age_ns: u64,
        pub copied_blocks: u64,
        pub collisions: u64,
        pub num_events: u64,
        pub lost_events: u64,
        pub expired_pins: u64,
        pub attention_bytes: u64,
        pub num_blocks: i64,
        pub held_blocks: i64,
        pub free_blocks: i64,
        pub cached_blocks: i64,
        pub pinned_blocks: i64,
        pub table_cells: i64,
        pub used_cells: i64,
        pub num_seqs: i32,
        pub num_pins: i32,
        pub num_nodes: i32,
        pub max_nodes: i32,
        pub index_bytes: usize,
        pub copied_hit_tokens: u64,
        pub table_blocks: i64,
        pub table_runs: i64,
        pub swap_outs: u64,
        pub swap_ins: u64,
        pub swap_out_bytes: u64,
        pub swap_in_bytes: u64,
        pub swap_units: i64,
        pub used_swap_units: i64,
        pub swapped_seqs: i64,
    }
}

extern "C" {
    pub fn pkv_status_name(status: c_int) -> *const c_char;
    pub fn pkv_last_error() -> *const c_char;
    pub fn pkv_version() -> *const c_char;
    pub fn pkv_build_info() -> *const c_char;

    pub fn pkv_workspace_create(
        num_threads: c_int,
        isa: c_int,
        hooks: *const pkv_hooks,
        workspace: *mut *mut pkv_workspace,
    ) -> c_int;
    pub fn pkv_workspace_destroy(workspace: *mut pkv_workspace);
    pub fn pkv_workspace_isa(workspace: *const pkv_workspace) -> c_int;
    pub fn pkv_workspace_num_threads(workspace: *const pkv_workspace) -> c_int;
    pub fn pkv_gqa(workspace: *mut pkv_workspace, args: *const pkv_gqa_args) -> c_int;
    pub fn pkv_block_bounds(
        workspace: *mut pkv_workspace,
        keys: *const pkv_kv_view,
        k_scale: *const f32,
        k_scale_count: i32,
        blocks: *const i32,
        num_blocks: i32,
        num_keys: i32,
        bounds: *mut f32,
    ) -> c_int;
    pub fn pkv_block_rank(
        workspace: *mut pkv_workspace,
        args: *const pkv_gqa_args,
        rank: *const pkv_rank_args,
    ) -> c_int;

    pub fn pkv_cache_size(config: *const pkv_cache_config, sizes: *mut pkv_cache_sizes) -> c_int;
    pub fn pkv_cache_create(config: *const pkv_cache_config, cache: *mut *mut pkv_cache) -> c_int;
    pub fn pkv_cache_close(cache: *mut pkv_cache);
    pub fn pkv_cache_destroy(cache: *mut pkv_cache, force: bool) -> c_int;
    pub fn pkv_cache_describe(cache: *const pkv_cache, config: *mut pkv_cache_config) -> c_int;
    pub fn pkv_cache_check(cache: *mut pkv_cache) -> i32;
    pub fn pkv_cache_usage(cache: *mut pkv_cache, group: i32, usage: *mut pkv_group_usage)
        -> c_int;
    pub fn pkv_cache_stats(cache: *mut pkv_cache, stats: *mut pkv_stats) -> c_int;
    pub fn pkv_cache_probe(
        cache: *mut pkv_cache,
        options: *const pkv_seq_options,
        prompt: *const pkv_prompt,
        reserve_tokens: i32,
        max_cached: i32,
        probe: *mut pkv_probe,
        shortage: *mut pkv_shortage,
    ) -> c_int;

    pub fn pkv_seq_create(
        cache: *mut pkv_cache,
        options: *const pkv_seq_options,
        seq: *mut pkv_seq,
    ) -> c_int;
    pub fn pkv_seq_destroy(cache: *mut pkv_cache, seq: pkv_seq) -> c_int;
    pub fn pkv_seq_length(cache: *mut pkv_cache, seq: pkv_seq, length: *mut i32) -> c_int;
    pub fn pkv_seq_describe(
        cache: *mut pkv_cache,
        seq: pkv_seq,
        info: *mut pkv_seq_info,
        num_blocks: *mut i32,
    ) -> c_int;
    pub fn pkv_seq_fork(
        cache: *mut pkv_cache,
        seq: pkv_seq,
        at: i32,
        n: i32,
        children: *mut pkv_seq,
    ) -> c_int;
    pub fn pkv_seq_truncate(cache: *mut pkv_cache, seq: pkv_seq, length: i32) -> c_int;
    pub fn pkv_seq_swap_out(
        cache: *mut pkv_cache,
        seq: pkv_seq,
        shortage: *mut pkv_shortage,
    ) -> c_int;
    pub fn pkv_seq_swap_in(
        cache: *mut pkv_cache,
        seq: pkv_seq,
        shortage: *mut pkv_shortage,
    ) -> c_int;
    pub fn pkv_seq_admit(
        cache: *mut pkv_cache,
        seq: pkv_seq,
        prompt: *const pkv_prompt,
        reserve_tokens: i32,
        max_cached: i32,
        admission: *mut pkv_admission,
        shortage: *mut pkv_shortage,
    ) -> c_int;
    pub fn pkv_wait_free(
        cache: *mut pkv_cache,
        seq: pkv_seq,
        shortage: *const pkv_shortage,
        timeout_ns: u64,
    ) -> c_int;

    pub fn pkv_seq_save(cache: *mut pkv_cache, seq: pkv_seq, writer: *const pkv_writer) -> c_int;
    pub fn pkv_seq_load(
        cache: *mut pkv_cache,
        reader: *const pkv_reader,
        seq: *mut pkv_seq,
        shortage: *mut pkv_shortage,
    ) -> c_int;
    pub fn pkv_seq_save_file(cache: *mut pkv_cache, seq: pkv_seq, path: *const c_char) -> c_int;
    pub fn pkv_seq_load_file(
        cache: *mut pkv_cache,
        path: *const c_char,
        seq: *mut pkv_seq,
        shortage: *mut pkv_shortage,
    ) -> c_int;

    pub fn pkv_tier_create(ops: *const pkv_tier_ops, tier: *mut *mut pkv_tier) -> c_int;
    pub fn pkv_tier_create_disk(config: *const pkv_disk_config, tier: *mut *mut pkv_tier) -> c_int;
    pub fn pkv_tier_create_redis(
        config: *const pkv_redis_config,
        tier: *mut *mut pkv_tier,
    ) -> c_int;
    pub fn pkv_tier_destroy(tier: *mut pkv_tier);

    pub fn pkv_tier_prefetch(
        cache: *mut pkv_cache,
        options: *const pkv_seq_options,
        prompt: *const pkv_prompt,
        max_cached: i32,
        now_ns: u64,
        ticket: *mut pkv_ticket,
    ) -> c_int;
    pub fn pkv_tier_store(
        cache: *mut pkv_cache,
        options: *const pkv_seq_options,
        prompt: *const pkv_prompt,
        now_ns: u64,
        ticket: *mut pkv_ticket,
    ) -> c_int;
    pub fn pkv_tier_poll(cache: *mut pkv_cache, num_done: *mut i32) -> c_int;
    pub fn pkv_tier_work(cache: *mut pkv_cache, timeout_ns: u64, num_moved: *mut i32) -> c_int;
    pub fn pkv_tier_flush(cache: *mut pkv_cache, timeout_ns: u64, num_left: *mut i32) -> c_int;
    pub fn pkv_tier_read_stats(
        cache: *mut pkv_cache,
        tier: i32,
        stats: *mut pkv_tier_stats,
    ) -> c_int;
    pub fn pkv_ticket_describe(
        cache: *mut pkv_cache,
        ticket: pkv_ticket,
        info: *mut pkv_ticket_info,
    ) -> c_int;
    pub fn pkv_ticket_wait(
        cache: *mut pkv_cache,
        ticket: pkv_ticket,
        timeout_ns: u64,
        info: *mut pkv_ticket_info,
    ) -> c_int;
    pub fn pkv_ticket_close(cache: *mut pkv_cache, ticket: pkv_ticket) -> c_int;
    pub fn pkv_ticket_list(
        cache: *mut pkv_cache,
        begun_until_ns: u64,
        tickets: *mut pkv_ticket,
        max_tickets: i32,
        count: *mut i32,
    ) -> c_int;

    pub fn pkv_step_begin(
        cache: *mut pkv_cache,
        batch: *const pkv_batch,
        step: *mut pkv_step,
        shortage: *mut pkv_shortage,
    ) -> c_int;
    pub fn pkv_step_attend(
        cache: *mut pkv_cache,
        step: pkv_step,
        layer: i32,
        io: *const pkv_layer_io,
    ) -> c_int;
    pub fn pkv_step_commit(cache: *mut pkv_cache, step: pkv_step, num_keep: *const i32) -> c_int;
    pub fn pkv_step_commit_path(
        cache: *mut pkv_cache,
        step: pkv_step,
        num_keep: *const i32,
        path: *const i32,
    ) -> c_int;
    pub fn pkv_step_describe_states(
        cache: *mut pkv_cache,
        step: pkv_step,
        group: i32,
        view: *mut pkv_state_view,
    ) -> c_int;
    pub fn pkv_step_abort(cache: *mut pkv_cache, step: pkv_step) -> c_int;
}
