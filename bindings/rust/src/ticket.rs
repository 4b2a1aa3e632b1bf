// SPDX-License-Identifier: MIT
//! What a cache does with its tiers, and tickets for what is under way.
use crate::cache::{Cache, Prompt, SequenceOptions};
use crate::error::{check, int, Error, Result};
use crate::ffi;
use std::os::raw::c_int;
use std::ptr::null_mut;
use std::time::Duration;

/// Tiers that a cache can have.
pub const MAX_TIERS: usize = ffi::PKV_MAX_TIERS as usize;

/// A prefetch or a store under way. Dropping it closes it: what a prefetch holds is released, and a
/// store goes on.
pub struct Ticket<'c> {
    cache: &'c Cache,
    raw: ffi::pkv_ticket,
}

/// What a ticket is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TicketState {
    Finding,
    Loading,
    Storing,
    Done,
}

/// A ticket at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketInfo {
    pub state: TicketState,
    /// The first thing that went wrong, which never makes an admission fail.
    pub error: Option<Error>,
    /// A prefetch that is done: tokens of the prompt that are cached and held.
    pub num_cached: usize,
    /// Of them, those that the ticket has loaded, and from which tier.
    pub num_loaded: usize,
    pub tier_loaded: [i32; MAX_TIERS],
    /// A store: blocks that are in every tier, and that are not yet.
    pub num_stored: usize,
    pub num_left: usize,
    pub begun_ns: u64,
}

impl TicketInfo {
    fn of(raw: &ffi::pkv_ticket_info) -> TicketInfo {
        TicketInfo {
            state: match raw.state {
                ffi::PKV_TICKET_FINDING => TicketState::Finding,
                ffi::PKV_TICKET_LOADING => TicketState::Loading,
                ffi::PKV_TICKET_STORING => TicketState::Storing,
                _ => TicketState::Done,
            },
            error: (raw.status != ffi::PKV_OK)
                .then(|| Error::of(raw.status, "a tier failed, or there was no room".to_string())),
            num_cached: raw.num_cached as usize,
            num_loaded: raw.num_loaded as usize,
            tier_loaded: raw.tier_loaded,
            num_stored: raw.num_stored as usize,
            num_left: raw.num_left as usize,
            begun_ns: raw.begun_ns,
        }
    }
}

fn new_info() -> ffi::pkv_ticket_info {
    let mut raw = ffi::pkv_ticket_info::zeroed();
    raw.size = std::mem::size_of_val(&raw);
    raw
}

/// `Duration::MAX` is as long as it takes.
fn nanoseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
}

/// Some(()) for PKV_OK, None when the time is over.
fn in_time(status: c_int) -> Result<Option<()>> {
    match check(status) {
        Ok(()) => Ok(Some(())),
        Err(Error::Busy(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Ticket<'_> {
    /// Lets what was done take effect, and says how far it is.
    pub fn poll(&self) -> Result<TicketInfo> {
        let mut raw = new_info();
        // SAFETY: the cache lives as long as self, and the report is a value of this call.
        check(unsafe { ffi::pkv_ticket_describe(self.cache.raw(), self.raw, &mut raw) })?;
        Ok(TicketInfo::of(&raw))
    }

    /// Waits until it is done, and works itself where no other thread does. None: the time is over.
    pub fn wait(&self, timeout: Duration) -> Result<Option<TicketInfo>> {
        let (mut raw, timeout) = (new_info(), nanoseconds(timeout));
        // SAFETY: the borrowed cache cannot be destroyed while this thread waits.
        let status = unsafe { ffi::pkv_ticket_wait(self.cache.raw(), self.raw, timeout, &mut raw) };
        Ok(in_time(status)?.map(|()| TicketInfo::of(&raw)))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // SAFETY: the cache lives as long as self; a stale handle is refused.
        unsafe {
            ffi::pkv_ticket_close(self.cache.raw(), self.raw);
        }
    }
}

/// Tiers: [`Config::tiers`](crate::Config).
impl Cache {
    /// Begins to bring a prompt's blocks from the tiers: what a sequence with these options could
    /// adopt. `now_ns` is the server's clock, or 0.
    pub fn prefetch(
        &self,
        options: &SequenceOptions<'_>,
        prompt: &Prompt<'_>,
        max_cached: usize,
        now_ns: u64,
    ) -> Result<Ticket<'_>> {
        let (max_cached, mut raw) = (int("max_cached", max_cached)?, ffi::pkv_ticket::zeroed());
        options.with_raw(|o| {
            prompt.with_raw(|p| {
                // SAFETY: all pointers are to values of this call.
                check(unsafe {
                    ffi::pkv_tier_prefetch(self.raw(), o, p, max_cached, now_ns, &mut raw)
                })
            })
        })?;
        Ok(Ticket { cache: self, raw })
    }

    /// Begins to store the cached prefix of a prompt in all tiers.
    pub fn store_prefix(
        &self,
        options: &SequenceOptions<'_>,
        prompt: &Prompt<'_>,
        now_ns: u64,
    ) -> Result<Ticket<'_>> {
        let mut raw = ffi::pkv_ticket::zeroed();
        options.with_raw(|o| {
            prompt.with_raw(|p| {
                // SAFETY: all pointers are to values of this call.
                check(unsafe { ffi::pkv_tier_store(self.raw(), o, p, now_ns, &mut raw) })
            })
        })?;
        Ok(Ticket { cache: self, raw })
    }

    /// Lets what was read and written take effect, between steps; gives how many tickets are done
    /// since the last time.
    pub fn poll_tiers(&self) -> Result<usize> {
        let mut number = 0;
        // SAFETY: the cache lives, and the number is a value of this call.
        check(unsafe { ffi::pkv_tier_poll(self.raw(), &mut number) })?;
        Ok(number as usize)
    }

    /// Reads or writes a piece of what is waiting, or waits for it; gives the blocks moved. For a
    /// thread of the server's own. [`Error::Busy`] when the cache is closed and nothing is left.
    pub fn work_tiers(&self, timeout: Duration) -> Result<usize> {
        let mut number = 0;
        // SAFETY: the borrowed cache cannot be destroyed while this thread works.
        check(unsafe { ffi::pkv_tier_work(self.raw(), nanoseconds(timeout), &mut number) })?;
        Ok(number as usize)
    }

    /// Works and polls until every store, prefetch and flush is through or has failed. False: the
    /// time is over.
    pub fn flush_tiers(&self, timeout: Duration) -> Result<bool> {
        // SAFETY: the borrowed cache cannot be destroyed while this thread works.
        let status = unsafe { ffi::pkv_tier_flush(self.raw(), nanoseconds(timeout), null_mut()) };
        Ok(in_time(status)?.is_some())
    }

    /// The counters of one tier, by its index in the configuration.
    pub fn tier_stats(&self, tier: usize) -> Result<ffi::pkv_tier_stats> {
        let mut raw = ffi::pkv_tier_stats::zeroed();
        raw.size = std::mem::size_of_val(&raw);
        // SAFETY: the report is a value of this call.
        check(unsafe { ffi::pkv_tier_read_stats(self.raw(), int("tier", tier)?, &mut raw) })?;
        Ok(raw)
    }
}
