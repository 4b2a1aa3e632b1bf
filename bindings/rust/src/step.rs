// SPDX-License-Identifier: MIT
//! Steps: one forward pass over a batch of sequences.
use crate::cache::{Cache, Sequence};
use crate::element::Activation;
use crate::error::{check, int, product, refuse, want_length, Error, Refused, Result};
use crate::ffi;
use crate::states::States;
use std::os::raw::c_void;
use std::ptr::null;

/// One sequence's part of a step: the tokens that it appends.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub sequence: &'a Sequence<'a>,
    pub tokens: &'a [i32],
    /// What is behind placeholder ids; None = nothing.
    pub extra: Option<&'a [u64]>,
    /// A tree of drafts: for each token the number of its parent among the row's tokens, below its
    /// own, or -1 for one that follows the sequence; None = a chain.
    pub parents: Option<&'a [i32]>,
}

impl<'a> Row<'a> {
    /// A row of tokens alone.
    pub fn new(sequence: &'a Sequence<'a>, tokens: &'a [i32]) -> Row<'a> {
        Row { sequence, tokens, extra: None, parents: None }
    }
}

/// The activations of one layer: the tokens of all rows that joined, packed.
pub struct LayerIo<'a, T: Activation> {
    /// `[tokens][num_heads * k_width]`
    pub q: &'a [T],
    /// `[tokens][kv_heads * k_width]`; None for a layer that shares another one's.
    pub k: Option<&'a [T]>,
    /// `[tokens][kv_heads * v_width]`; None also where values are part of the keys.
    pub v: Option<&'a [T]>,
    /// `[tokens][num_heads * v_width]`
    pub out: &'a mut [T],
    /// `[tokens][num_heads]`, natural logarithm of the sum of the softmax.
    pub lse: Option<&'a mut [f32]>,
}

/// An open step. One is open in a cache at a time; dropped without commit, it is aborted.
pub struct Step<'c> {
    cache: &'c Cache,
    raw: ffi::pkv_step,
    num_rows: usize,
    num_tokens: usize,
    is_open: bool,
}

struct Packed {
    seqs: Vec<ffi::pkv_seq>,
    q_lens: Vec<i32>,
    tokens: Vec<i32>,
    extra: Vec<u64>,
    parents: Vec<i32>,
}

fn pack(rows: &[Row<'_>]) -> Result<Packed> {
    let mut packed = Packed {
        seqs: Vec::new(),
        q_lens: Vec::new(),
        tokens: Vec::new(),
        extra: Vec::new(),
        parents: Vec::new(),
    };
    let has_extra = rows.iter().any(|row| row.extra.is_some());
    let has_parents = rows.iter().any(|row| row.parents.is_some());
    for row in rows {
        packed.seqs.push(row.sequence.raw());
        let q_len = int("tokens of a row", row.tokens.len())?;
        packed.q_lens.push(q_len);
        packed.tokens.extend_from_slice(row.tokens);
        match row.extra {
            Some(extra) => {
                want_length("extra", extra.len(), Some(row.tokens.len()))?;
                packed.extra.extend_from_slice(extra);
            }
            None if has_extra => packed.extra.resize(packed.tokens.len(), 0),
            None => {}
        }
        match row.parents {
            Some(parents) => {
                want_length("parents", parents.len(), Some(row.tokens.len()))?;
                packed.parents.extend_from_slice(parents);
            }
            None if has_parents => packed.parents.extend(-1..q_len - 1),
            None => {}
        }
    }
    Ok(packed)
}

impl<'c> Step<'c> {
    pub(crate) fn begin(
        cache: &'c Cache,
        rows: &[Row<'_>],
        required: usize,
        now_ns: u64,
    ) -> std::result::Result<Step<'c>, Refused> {
        let packed = pack(rows)?;
        let mut batch = ffi::pkv_batch::zeroed();
        batch.size = std::mem::size_of_val(&batch);
        batch.seqs = packed.seqs.as_ptr();
        batch.q_lens = packed.q_lens.as_ptr();
        batch.num_rows = int("rows", rows.len())?;
        batch.num_required_rows = int("required", required)?;
        batch.token_ids = packed.tokens.as_ptr();
        batch.token_extra = if packed.extra.is_empty() { null() } else { packed.extra.as_ptr() };
        batch.parents = if packed.parents.is_empty() { null() } else { packed.parents.as_ptr() };
        batch.now_ns = now_ns;
        let mut raw = ffi::pkv_step::zeroed();
        let mut shortage = ffi::pkv_shortage::zeroed();
        shortage.size = std::mem::size_of_val(&shortage);
        // SAFETY: the arrays of the batch have the lengths that it says, and live until the end.
        check(unsafe { ffi::pkv_step_begin(cache.raw(), &batch, &mut raw, &mut shortage) })
            .map_err(|error| Refused::by(error, shortage))?;
        let num_rows = shortage.row.max(0) as usize;
        let num_tokens = rows[..num_rows].iter().map(|row| row.tokens.len()).sum();
        Ok(Step { cache, raw, num_rows, num_tokens, is_open: true })
    }

    /// Rows that joined.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Tokens of the rows that joined.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Appends one layer's keys and values to its pages, and attends.
    pub fn attend<T: Activation>(&mut self, layer: usize, io: LayerIo<'_, T>) -> Result<()> {
        let shape = match self.cache.layers.get(layer) {
            Some(shape) => *shape,
            None => return refuse(format!("layer = {}, of {}", layer, self.cache.layers.len())),
        };
        if shape.states.is_some() {
            return refuse(format!("layer {} keeps states, which Step::states shows", layer));
        }
        if T::DTYPE != self.cache.dtype {
            return refuse(format!("slices of {:?}, a cache of {:?}", T::DTYPE, self.cache.dtype));
        }
        let tokens = self.num_tokens;
        want_length("q", io.q.len(), product(&[tokens, shape.q]))?;
        want_length("out", io.out.len(), product(&[tokens, shape.out]))?;
        let mut raw = ffi::pkv_layer_io::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        raw.q = io.q.as_ptr() as *const c_void;
        raw.out = io.out.as_mut_ptr() as *mut c_void;
        raw.k = part("k", io.k, tokens, shape.k)?;
        raw.v = part("v", io.v, tokens, shape.v)?;
        if let Some(lse) = io.lse {
            want_length("lse", lse.len(), product(&[tokens, shape.num_heads]))?;
            raw.lse = lse.as_mut_ptr();
        }
        let layer = int("layer", layer)?;
        // SAFETY: lengths are checked; outputs are borrowed mutably, so they overlap nothing.
        check(unsafe { ffi::pkv_step_attend(self.cache.raw(), self.raw, layer, &raw) })
    }

    /// Ends the step and keeps its tokens: of row i the first keep\[i\], None = all. Where it is
    /// refused, because a layer has not been attended for instance, the step is aborted.
    pub fn commit(mut self, keep: Option<&[i32]>) -> Result<()> {
        if let Some(keep) = keep {
            want_length("keep", keep.len(), Some(self.num_rows))?;
        }
        let keep = keep.map_or(null(), |keep| keep.as_ptr());
        // SAFETY: keep has a number for each row that joined.
        check(unsafe { ffi::pkv_step_commit(self.cache.raw(), self.raw, keep) })?;
        self.is_open = false;
        Ok(())
    }

    /// Ends the step and keeps of each row's tree of drafts one path: numbers of the row's tokens,
    /// each the child of the one before. A row that is a chain keeps 0, 1, 2, ... A slice for each
    /// row that joined. Where it is refused, the step is aborted.
    pub fn commit_path(mut self, paths: &[&[i32]]) -> Result<()> {
        want_length("paths", paths.len(), Some(self.num_rows))?;
        let lens = paths.iter().map(|path| int("tokens of a path", path.len()));
        let keep = lens.collect::<Result<Vec<i32>>>()?;
        let path = paths.concat();
        // SAFETY: keep has a number for each row that joined, and path as many as they add up to.
        check(unsafe {
            let (keep, path) = (keep.as_ptr(), path.as_ptr());
            ffi::pkv_step_commit_path(self.cache.raw(), self.raw, keep, path)
        })?;
        self.is_open = false;
        Ok(())
    }

    /// A state group's part of the step, for the caller to run its layers by. From then on the step
    /// counts as one that has written its states: without max_rewind a row that is dropped loses
    /// its state ([`Error::NotResident`] until it is cut to 0).
    pub fn states(&mut self, group: usize) -> Result<States<'_>> {
        let mut raw = ffi::pkv_state_view::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        let number = int("group", group)?;
        // SAFETY: the view is a value of this call.
        check(unsafe {
            ffi::pkv_step_describe_states(self.cache.raw(), self.raw, number, &mut raw)
        })?;
        // SAFETY: the library has filled it for the open step, which `States` borrows mutably.
        Ok(unsafe { States::of(&self.cache.layers, group, raw) })
    }

    /// Ends the step as if it had never begun.
    pub fn abort(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> std::result::Result<(), Error> {
        self.is_open = false;
        // SAFETY: the cache lives as long as self; a stale handle is refused.
        check(unsafe { ffi::pkv_step_abort(self.cache.raw(), self.raw) })
    }
}

/// Keys or values: there must be some where the layer has pages of its own for them.
fn part<T>(
    name: &str,
    given: Option<&[T]>,
    tokens: usize,
    wanted: Option<usize>,
) -> Result<*const c_void> {
    match (given, wanted) {
        (Some(given), Some(wanted)) => {
            want_length(name, given.len(), product(&[tokens, wanted]))?;
            Ok(given.as_ptr() as *const c_void)
        }
        (None, None) => Ok(null()),
        (None, Some(_)) => refuse(format!("{} is missing", name)),
        (Some(_), None) => refuse(format!("{} is given to a layer that takes none", name)),
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let _ = self.end();
        }
    }
}
