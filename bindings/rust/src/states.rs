// SPDX-License-Identifier: MIT
//! A state group's part of a step: where recurrent layers read and write their states.
use crate::cache::LayerShape;
use crate::element::StateElement;
use crate::error::{refuse, Result};
use crate::ffi;
use std::mem::{align_of, size_of};

/// A state group's part of an open step, which it borrows: [`Step::states`](crate::Step::states)
/// makes it, for each layer anew where layers of other groups are between.
///
/// Row i begins with its state of [`read`](States::read), goes over its tokens, and stores what it
/// has after token t with [`write`](States::write), wherever that is not None: always for its last
/// token. Token t of a tree of drafts goes on with the state that was stored after its parent.
pub struct States<'s> {
    layers: &'s [LayerShape],
    group: usize,
    raw: ffi::pkv_state_view,
    row_starts: &'s [i32],
    reads: &'s [i32],
    writes: &'s [i32],
    parents: Option<&'s [i32]>,
}

/// An array of the library, which may be NULL where it is empty.
///
/// # Safety
/// `first` points to `length` numbers that stay as they are for `'s`, or length is 0.
unsafe fn array<'s>(first: *const i32, length: usize) -> &'s [i32] {
    if length == 0 || first.is_null() {
        return &[];
    }
    std::slice::from_raw_parts(first, length)
}

impl<'s> States<'s> {
    /// # Safety
    /// `raw` is what pkv_step_describe_states filled in for `group` of a step that stays open, and
    /// has no other view, for `'s`.
    pub(crate) unsafe fn of(
        layers: &'s [LayerShape],
        group: usize,
        raw: ffi::pkv_state_view,
    ) -> States<'s> {
        let (rows, tokens) = (raw.num_rows.max(0) as usize, raw.num_tokens.max(0) as usize);
        States {
            layers,
            group,
            raw,
            row_starts: array(raw.cu_seqlens_q, rows + 1),
            reads: array(raw.reads, rows),
            writes: array(raw.writes, tokens),
            parents: (!raw.parents.is_null()).then(|| array(raw.parents, tokens)),
        }
    }

    /// `[rows + 1]`: row i has the tokens `[row_starts[i], row_starts[i + 1])`.
    pub fn row_starts(&self) -> &'s [i32] {
        self.row_starts
    }

    /// `[rows]`: the number of the state that each row begins with.
    pub fn reads(&self) -> &'s [i32] {
        self.reads
    }

    /// `[tokens]`: the number of the state that is stored after each token, or -1.
    pub fn writes(&self) -> &'s [i32] {
        self.writes
    }

    /// `[tokens]`: parents as the rows had them, None where no row is a tree.
    pub fn parents(&self) -> Option<&'s [i32]> {
        self.parents
    }

    /// What one layer keeps for one sequence.
    pub fn state_bytes(&self) -> usize {
        self.raw.state_bytes
    }

    /// The state that a row begins with: zeros for a new sequence. `layer` is that of the model.
    pub fn read<T: StateElement>(&self, layer: usize, row: usize) -> Result<&[T]> {
        let state = match self.reads.get(row) {
            Some(state) => *state,
            None => return refuse(format!("row = {}, of {}", row, self.reads.len())),
        };
        let (first, count) = self.place::<T>(layer, state)?;
        // SAFETY: see `place`. self is borrowed, so nobody writes meanwhile.
        Ok(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// Where the state after a token is stored, which may be the state that its row begins with;
    /// None where no state is stored.
    pub fn write<T: StateElement>(
        &mut self,
        layer: usize,
        token: usize,
    ) -> Result<Option<&mut [T]>> {
        let state = match self.writes.get(token) {
            Some(state) => *state,
            None => return refuse(format!("token = {}, of {}", token, self.writes.len())),
        };
        if state < 0 {
            return Ok(None);
        }
        let (first, count) = self.place::<T>(layer, state)?;
        // SAFETY: see `place`. self is borrowed mutably, and no other view of this group exists.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(first, count) }))
    }

    /// Where a state of one layer lies, and its elements. All of its bytes are there and belong to
    /// this step while it is open; every pattern of bits is a T.
    fn place<T: StateElement>(&self, layer: usize, state: i32) -> Result<(*mut T, usize)> {
        let nth = match self.layers.get(layer).and_then(|shape| shape.states) {
            Some((group, nth)) if group == self.group => nth,
            _ => return refuse(format!("layer {} is not of state group {}", layer, self.group)),
        };
        if state < 0 {
            return refuse("the row has no state".to_string());
        }
        let bytes = self.raw.state_bytes;
        if bytes % size_of::<T>() != 0 {
            return refuse(format!("a state has {} bytes, not whole elements", bytes));
        }
        let offset =
            nth * self.raw.layer_stride_bytes + state as usize * self.raw.state_stride_bytes;
        // SAFETY: the library's address of this state, within the memory of the group.
        let first = unsafe { (self.raw.first_layer as *mut u8).add(offset) } as *mut T;
        debug_assert_eq!(first as usize % align_of::<T>(), 0);
        Ok((first, bytes / size_of::<T>()))
    }
}
