// SPDX-License-Identifier: MIT
//! Which blocks sparse attention should read: bounds of blocks, and ranks by them.
use crate::attention::{Form, Selected, Workspace};
use crate::config::Constants;
use crate::element::{Activation, CacheElement};
use crate::error::{check, int, product, refuse, want_length, Result};
use crate::ffi;
use std::os::raw::c_void;

/// Keys of a cache, packed `[num][kv_heads][cells][width]`.
#[derive(Clone, Copy, Debug)]
pub struct KeyPages<'a, C: CacheElement> {
    pub keys: &'a [C],
    /// Blocks, slots or batch rows.
    pub num: usize,
    pub kv_heads: usize,
    /// Tokens of one of them.
    pub cells: usize,
    pub k_width: usize,
    /// The scale of int8 and e4m3 keys; empty for float caches.
    pub k_scale: &'a [f32],
}

impl<C: CacheElement> KeyPages<'_, C> {
    /// The view of the library, whose values are part of the keys.
    fn view(&self) -> Result<ffi::pkv_kv_view> {
        let wanted = product(&[self.num, self.kv_heads, self.cells, self.k_width]);
        want_length("keys", self.keys.len(), wanted)?;
        let mut view = ffi::pkv_kv_view::zeroed();
        view.k = self.keys.as_ptr() as *mut c_void;
        view.k_dtype = C::DTYPE.raw();
        view.v_dtype = view.k_dtype;
        view.num_blocks = int("num", self.num)?;
        view.kv_heads = int("kv_heads", self.kv_heads)?;
        view.block_size = int("cells", self.cells)?;
        view.k_width = int("k_width", self.k_width)?;
        view.v_width = view.k_width;
        Ok(view)
    }

    fn scales(&self) -> Result<(*const f32, i32)> {
        let count = int("k_scale", self.k_scale.len())?;
        Ok((if count == 0 { std::ptr::null() } else { self.k_scale.as_ptr() }, count))
    }
}

/// Queries that rank the blocks of their rows. Queries, rows and lengths are those of the attention
/// call that follows; keys are not read.
#[derive(Clone, Debug)]
pub struct Rank<'a, T: Activation, C: CacheElement> {
    pub num_heads: usize,
    /// The pages that attention will read; here only their shape counts.
    pub pages: KeyPages<'a, C>,
    /// `[rows + 1]`: row b has the tokens `[starts[b], starts[b + 1])`.
    pub row_starts: &'a [i32],
    /// `[tokens][num_heads * k_width]`
    pub q: &'a [T],
    pub form: Form<'a>,
    /// `[rows]`, keys of each row after the append.
    pub kv_lens: &'a [i32],
    /// `[num][kv_heads][2][k_width]`, by [`Workspace::block_bounds`]; of slots and batch rows
    /// `[num][blocks of one][kv_heads][2][k_width]`.
    pub bounds: &'a [f32],
    /// `[rows]`: the first so many blocks of a row can be chosen; None = those that are full and
    /// have a key that `newest` does not show.
    pub num_candidates: Option<&'a [i32]>,
    /// The most blocks of a list.
    pub max_selected: usize,
    /// A list for each row and KV head, not for each row.
    pub by_head: bool,
    /// Keys of a block; 0 = a block of the pages.
    pub size: usize,
    /// Keys that are seen without being selected.
    pub newest: i64,
    /// What rotates and norms the queries; scales of the cache are those of `pages`.
    pub constants: Constants,
}

/// The best blocks of each row, or of each row and KV head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    blocks: Vec<i32>,
    starts: Vec<i32>,
    size: usize,
    newest: i64,
}

impl Lists {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The blocks of one list, ascending.
    pub fn list(&self, i: usize) -> &[i32] {
        &self.blocks[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    /// As attention takes them.
    pub fn selected(&self) -> Selected<'_> {
        let (size, newest) = (self.size, self.newest);
        Selected { blocks: &self.blocks, starts: &self.starts, size, newest }
    }
}

impl Workspace {
    /// Writes the least and the greatest value of each channel of some blocks' keys: of the first
    /// num_keys of each. `bounds` is that of all blocks, `[num][kv_heads][2][k_width]`; what it has
    /// of others stays.
    pub fn block_bounds<C: CacheElement>(
        &mut self,
        pages: &KeyPages<'_, C>,
        blocks: &[i32],
        num_keys: usize,
        bounds: &mut [f32],
    ) -> Result<()> {
        let wanted = product(&[pages.num, pages.kv_heads, 2, pages.k_width]);
        want_length("bounds", bounds.len(), wanted)?;
        let view = pages.view()?;
        let (scale, scales) = pages.scales()?;
        let (count, num_keys) = (int("blocks", blocks.len())?, int("num_keys", num_keys)?);
        // SAFETY: each slice has the length that the arguments say; keys are only read. Numbers
        // inside of slices are checked by the library.
        check(unsafe {
            let (blocks, bounds) = (blocks.as_ptr(), bounds.as_mut_ptr());
            let workspace = self.raw.as_ptr();
            ffi::pkv_block_bounds(workspace, &view, scale, scales, blocks, count, num_keys, bounds)
        })
    }

    /// Ranks the blocks of each row by the bounds of their keys.
    pub fn block_rank<T: Activation, C: CacheElement>(
        &mut self,
        call: &Rank<'_, T, C>,
    ) -> Result<Lists> {
        let mut raw = call.args()?;
        let size = if call.size == 0 { call.pages.cells } else { call.size };
        if size == 0 {
            return refuse("cells = 0".to_string());
        }
        let slot_blocks = call.pages.cells / size + (call.pages.cells % size != 0) as usize;
        let (per_row, shape) = match call.form {
            Form::Paged { max_blocks, .. } => (max_blocks, [call.pages.num, 1]),
            _ => (slot_blocks, [call.pages.num, slot_blocks]),
        };
        let wanted = product(&[shape[0], shape[1], call.pages.kv_heads, 2, call.pages.k_width]);
        want_length("bounds", call.bounds.len(), wanted)?;
        let rows = call.row_starts.len() - 1;
        let lists = if call.by_head { product(&[rows, call.pages.kv_heads]) } else { Some(rows) };
        let lists = int("lists", lists.unwrap_or(usize::MAX))? as usize;
        let most = call.max_selected.min(per_row.max(1));
        let room = int("blocks of all lists", product(&[lists, most]).unwrap_or(usize::MAX))?;
        raw.num_selected_lists = lists as i32;
        let mut blocks = vec![0i32; (room as usize).max(1)];
        let mut starts = vec![0i32; lists + 1];
        let mut rank = ffi::pkv_rank_args::zeroed();
        rank.size = std::mem::size_of_val(&rank);
        rank.bounds = call.bounds.as_ptr();
        if let Some(counts) = call.num_candidates {
            want_length("num_candidates", counts.len(), Some(rows))?;
            rank.num_candidates = counts.as_ptr();
        }
        rank.max_selected = most as i32;
        rank.selected = blocks.as_mut_ptr();
        rank.cu_selected = starts.as_mut_ptr();
        // SAFETY: each slice has the length that the arguments say; the lists have room for
        // max_selected blocks each. Numbers inside of slices are checked by the library.
        check(unsafe { ffi::pkv_block_rank(self.raw.as_ptr(), &raw, &rank) })?;
        blocks.truncate(starts[lists] as usize);
        Ok(Lists { blocks, starts, size: call.size, newest: call.newest })
    }
}

impl<T: Activation, C: CacheElement> Rank<'_, T, C> {
    /// The arguments of the attention call, as far as a rank reads them.
    fn args(&self) -> Result<ffi::pkv_gqa_args> {
        let last = self.row_starts.last().map(|last| usize::try_from(*last));
        let tokens = match last {
            Some(Ok(tokens)) => tokens,
            Some(Err(_)) => return refuse("row_starts ends with a negative number".to_string()),
            None => return refuse("row_starts is empty".to_string()),
        };
        if self.pages.k_width == 0 {
            return refuse("k_width = 0".to_string());
        }
        let rows = self.row_starts.len() - 1;
        want_length("q", self.q.len(), product(&[tokens, self.num_heads, self.pages.k_width]))?;
        want_length("kv_lens", self.kv_lens.len(), Some(rows))?;
        let mut raw = ffi::pkv_gqa_args::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        raw.dtype = T::DTYPE.raw();
        raw.num_heads = int("num_heads", self.num_heads)?;
        raw.kv_heads = int("kv_heads", self.pages.kv_heads)?;
        raw.k_width = int("k_width", self.pages.k_width)?;
        raw.v_in_k = true; // values are not read
        raw.v_width = raw.k_width;
        raw.batch = int("row_starts", rows)?;
        raw.num_tokens = int("tokens", tokens)?;
        raw.cu_seqlens_q = self.row_starts.as_ptr();
        raw.kv_lens = self.kv_lens.as_ptr();
        raw.q = self.q.as_ptr() as *const c_void;
        raw.past = self.pages.view()?;
        raw.selection_size = int("size", self.size)?;
        raw.selected_newest = self.newest;
        raw.constants = self.constants.raw()?;
        let (scale, scales) = self.pages.scales()?;
        raw.constants.k_scale = scale;
        raw.constants.k_scale_count = scales;
        raw.constants.v_scale = std::ptr::null();
        raw.constants.v_scale_count = 0;
        self.form.set(&mut raw)?;
        Ok(raw)
    }
}
