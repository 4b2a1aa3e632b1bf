// SPDX-License-Identifier: MIT
//! The attention operator over slices, for servers with a cache manager of their own.
use crate::config::{Constants, Isa};
use crate::element::{Activation, CacheElement};
use crate::error::{check, int, product, refuse, want_length, Result};
use crate::ffi;
use std::marker::PhantomData;
use std::os::raw::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

/// The scratch memory, kernels and threads of attention calls. One thread at a time uses it.
pub struct Workspace {
    pub(crate) raw: NonNull<ffi::pkv_workspace>,
    // Send, and not Sync.
    _one_thread: PhantomData<std::cell::Cell<()>>,
}

// SAFETY: a workspace belongs to no thread; it is only used by one at a time, as &mut self says.
unsafe impl Send for Workspace {}

/// Where row b has its keys, in pages of `[num][kv_heads][cells][width]`.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// Batch row b.
    Dense,
    /// Slot slots\[b\].
    Continuous { slots: &'a [i32] },
    /// Key j is in cell j % cells of block table\[b\]\[j / cells\]; table is `[rows][max_blocks]`.
    Paged { table: &'a [i32], max_blocks: usize },
}

/// Keys and values of a cache, packed `[num][kv_heads][cells][width]`.
pub struct KvPages<'a, C: CacheElement> {
    pub form: Form<'a>,
    pub keys: &'a mut [C],
    pub values: &'a mut [C],
    /// Blocks, slots or batch rows.
    pub num: usize,
    /// Tokens of one of them.
    pub cells: usize,
    /// `[rows]`, keys of each row after the append.
    pub kv_lens: &'a [i32],
}

/// Blocks that rows see, beside their newest keys: sparse attention, in
/// [`attend_pages`](Workspace::attend_pages).
#[derive(Clone, Copy, Debug)]
pub struct Selected<'a> {
    /// Lists of ascending blocks of a row, one list after the other.
    pub blocks: &'a [i32],
    /// `[lists + 1]`, from where to where; a list for each row, or for each row and KV head.
    pub starts: &'a [i32],
    /// Keys of such a block; 0 = a block of the pages.
    pub size: usize,
    /// Keys that are seen without being selected.
    pub newest: i64,
}

impl Selected<'_> {
    fn set(&self, raw: &mut ffi::pkv_gqa_args) -> Result<()> {
        let ends = self.starts.first() == Some(&0)
            && self.starts.windows(2).all(|pair| pair[0] <= pair[1])
            && self.starts.last().map(|last| *last as usize) == Some(self.blocks.len());
        if !ends {
            let count = self.blocks.len();
            return refuse(format!("starts do not rise from 0 to the {} blocks", count));
        }
        raw.selected = self.blocks.as_ptr();
        raw.cu_selected = self.starts.as_ptr();
        raw.num_selected_lists = int("starts", self.starts.len() - 1)?;
        raw.selection_size = int("size", self.size)?;
        raw.selected_newest = self.newest;
        Ok(())
    }
}

/// One call of attention, of one layer.
pub struct Gqa<'a, T: Activation> {
    pub num_heads: usize,
    pub kv_heads: usize,
    pub k_width: usize,
    pub v_width: usize,
    /// `[rows + 1]`: row b has the tokens `[starts[b], starts[b + 1])`.
    pub row_starts: &'a [i32],
    /// `[tokens][num_heads * k_width]`
    pub q: &'a [T],
    /// `[tokens][kv_heads * k_width]`, new keys; None: nothing is appended.
    pub k: Option<&'a [T]>,
    /// `[tokens][kv_heads * v_width]`
    pub v: Option<&'a [T]>,
    /// `[tokens][num_heads * v_width]`
    pub out: &'a mut [T],
    /// `[tokens][num_heads]`
    pub lse: Option<&'a mut [f32]>,
    /// Keys that a query sees; 0 = all.
    pub sliding_window: i64,
    pub not_causal: bool,
    pub selected: Option<Selected<'a>>,
    /// Trees of drafts, `[tokens]`: the number of each token's parent in its row, or -1.
    pub parents: Option<&'a [i32]>,
    pub constants: Constants,
}

impl Workspace {
    /// Makes a workspace; 0 threads = as many as this process can run at once.
    pub fn new(num_threads: usize, isa: Isa) -> Result<Workspace> {
        let mut raw = null_mut();
        let num_threads = int("num_threads", num_threads)? as c_int;
        // SAFETY: without hooks; the out-parameter is a value of this call.
        check(unsafe {
            ffi::pkv_workspace_create(num_threads, isa.raw(), std::ptr::null(), &mut raw)
        })?;
        match NonNull::new(raw) {
            Some(raw) => Ok(Workspace { raw, _one_thread: PhantomData }),
            None => refuse("the library made no workspace".to_string()),
        }
    }

    /// The threads that it runs calls on.
    pub fn num_threads(&self) -> usize {
        // SAFETY: the workspace lives.
        unsafe { ffi::pkv_workspace_num_threads(self.raw.as_ptr()) as usize }
    }

    /// Attends to the keys and values of the call alone.
    pub fn attend<T: Activation>(&mut self, call: Gqa<'_, T>) -> Result<()> {
        if call.k.is_none() || call.v.is_none() {
            return refuse("without a cache, k and v are all keys there are".to_string());
        }
        self.run(call, |raw| {
            raw.form = ffi::PKV_CACHE_NONE;
            Ok(())
        })
    }

    /// Appends the call's keys and values to pages and attends to all that these hold then.
    pub fn attend_pages<T: Activation, C: CacheElement>(
        &mut self,
        call: Gqa<'_, T>,
        pages: KvPages<'_, C>,
    ) -> Result<()> {
        let (kv_heads, widths) = (call.kv_heads, (call.k_width, call.v_width));
        self.run(call, |raw| pages.set(raw, kv_heads, widths))
    }

    fn run<T: Activation>(
        &mut self,
        call: Gqa<'_, T>,
        pages: impl FnOnce(&mut ffi::pkv_gqa_args) -> Result<()>,
    ) -> Result<()> {
        let mut raw = ffi::pkv_gqa_args::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        let Gqa { row_starts, q, k, v, out, lse, constants, .. } = call;
        let (heads, kv_heads) = (call.num_heads, call.kv_heads);
        let (k_width, v_width) = (call.k_width, call.v_width);
        let last = match row_starts.last() {
            Some(last) => usize::try_from(*last).ok(),
            None => return refuse("row_starts is empty".to_string()),
        };
        let tokens = match last {
            Some(tokens) => tokens,
            None => return refuse("row_starts ends with a negative number".to_string()),
        };
        if k_width == 0 || v_width == 0 {
            return refuse("k_width or v_width = 0".to_string());
        }
        want_length("q", q.len(), product(&[tokens, heads, k_width]))?;
        want_length("out", out.len(), product(&[tokens, heads, v_width]))?;
        raw.dtype = T::DTYPE.raw();
        raw.num_heads = int("num_heads", heads)?;
        raw.kv_heads = int("kv_heads", kv_heads)?;
        raw.k_width = int("k_width", k_width)?;
        raw.v_width = int("v_width", v_width)?;
        raw.batch = int("row_starts", row_starts.len() - 1)?;
        raw.num_tokens = int("tokens", tokens)?;
        raw.cu_seqlens_q = row_starts.as_ptr();
        raw.q = q.as_ptr() as *const c_void;
        raw.out = out.as_mut_ptr() as *mut c_void;
        if let Some(k) = k {
            want_length("k", k.len(), product(&[tokens, kv_heads, k_width]))?;
            raw.k = k.as_ptr() as *const c_void;
        }
        if let Some(v) = v {
            want_length("v", v.len(), product(&[tokens, kv_heads, v_width]))?;
            raw.v = v.as_ptr() as *const c_void;
        }
        if let Some(lse) = lse {
            want_length("lse", lse.len(), product(&[tokens, heads]))?;
            raw.lse = lse.as_mut_ptr();
        }
        raw.sliding_window = call.sliding_window;
        raw.not_causal = call.not_causal;
        if let Some(selected) = call.selected {
            selected.set(&mut raw)?;
        }
        if let Some(parents) = call.parents {
            want_length("parents", parents.len(), Some(tokens))?;
            raw.parents = parents.as_ptr();
        }
        raw.constants = constants.raw()?;
        pages(&mut raw)?;
        // SAFETY: each slice has the length that the arguments say, and outlives the call; what is
        // written is borrowed mutably. Numbers inside of slices are checked by the library.
        check(unsafe { ffi::pkv_gqa(self.raw.as_ptr(), &raw) })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // SAFETY: the last use.
        unsafe { ffi::pkv_workspace_destroy(self.raw.as_ptr()) }
    }
}

impl<C: CacheElement> KvPages<'_, C> {
    fn set(
        self,
        raw: &mut ffi::pkv_gqa_args,
        kv_heads: usize,
        (k_width, v_width): (usize, usize),
    ) -> Result<()> {
        let rows = raw.batch as usize;
        want_length("keys", self.keys.len(), product(&[self.num, kv_heads, self.cells, k_width]))?;
        want_length(
            "values",
            self.values.len(),
            product(&[self.num, kv_heads, self.cells, v_width]),
        )?;
        want_length("kv_lens", self.kv_lens.len(), Some(rows))?;
        raw.kv_lens = self.kv_lens.as_ptr();
        raw.past.k = self.keys.as_mut_ptr() as *mut c_void;
        raw.past.v = self.values.as_mut_ptr() as *mut c_void;
        raw.past.k_dtype = C::DTYPE.raw();
        raw.past.v_dtype = C::DTYPE.raw();
        raw.past.num_blocks = int("num", self.num)?;
        raw.past.kv_heads = int("kv_heads", kv_heads)?;
        raw.past.block_size = int("cells", self.cells)?;
        raw.past.k_width = int("k_width", k_width)?;
        raw.past.v_width = int("v_width", v_width)?;
        self.form.set(raw)
    }
}

impl Form<'_> {
    pub(crate) fn set(self, raw: &mut ffi::pkv_gqa_args) -> Result<()> {
        let rows = raw.batch as usize;
        match self {
            Form::Dense => raw.form = ffi::PKV_CACHE_DENSE,
            Form::Continuous { slots } => {
                want_length("slots", slots.len(), Some(rows))?;
                raw.form = ffi::PKV_CACHE_CONTINUOUS;
                raw.slot_ids = slots.as_ptr();
            }
            Form::Paged { table, max_blocks } => {
                want_length("table", table.len(), product(&[rows, max_blocks]))?;
                raw.form = ffi::PKV_CACHE_PAGED;
                raw.block_table = table.as_ptr();
                raw.max_blocks = int("max_blocks", max_blocks)?;
            }
        }
        Ok(())
    }
}
