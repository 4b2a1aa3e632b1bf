// SPDX-License-Identifier: MIT
//! Refusals: the library's statuses with the text of its last error.
use crate::ffi;
use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_int;

/// Why a call was refused. Each has one line for people that names the culprit, as
/// `pkv_last_error` does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument is missing, out of range or does not go with another one.
    InvalidArgument(String),
    /// The system has no memory.
    NoMemory(String),
    /// No free block, slot, sequence or namespace at the moment: others may release theirs.
    NoBlocks(String),
    /// More than this cache has in total.
    NeverFits(String),
    /// Keys are needed that have left a window.
    NotResident(String),
    /// A handle of another cache.
    StaleHandle(String),
    /// An open step or a closed cache prevents the call.
    Busy(String),
    /// A dtype, option or instruction set that this build, or this CPU, does not have.
    Unsupported(String),
    /// Saved data fails its checks.
    Corrupt(String),
    /// A stream stopped the output or the input, or a file, disk or server failed.
    Io(String),
    /// Nothing of that name.
    NotFound(String),
    /// A status that this crate does not know.
    Other(i32, String),
}

/// What calls of this crate answer.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The line for people.
    pub fn text(&self) -> &str {
        match self {
            Error::InvalidArgument(text)
            | Error::NoMemory(text)
            | Error::NoBlocks(text)
            | Error::NeverFits(text)
            | Error::NotResident(text)
            | Error::StaleHandle(text)
            | Error::Busy(text)
            | Error::Unsupported(text)
            | Error::Corrupt(text)
            | Error::Io(text)
            | Error::NotFound(text)
            | Error::Other(_, text) => text,
        }
    }

    /// The status that the library returned, or would have.
    pub fn status(&self) -> i32 {
        match self {
            Error::InvalidArgument(_) => ffi::PKV_INVALID_ARGUMENT,
            Error::NoMemory(_) => ffi::PKV_NO_MEMORY,
            Error::NoBlocks(_) => ffi::PKV_NO_BLOCKS,
            Error::NeverFits(_) => ffi::PKV_NEVER_FITS,
            Error::NotResident(_) => ffi::PKV_NOT_RESIDENT,
            Error::StaleHandle(_) => ffi::PKV_STALE_HANDLE,
            Error::Busy(_) => ffi::PKV_BUSY,
            Error::Unsupported(_) => ffi::PKV_UNSUPPORTED,
            Error::Corrupt(_) => ffi::PKV_CORRUPT,
            Error::Io(_) => ffi::PKV_IO,
            Error::NotFound(_) => ffi::PKV_NOT_FOUND,
            Error::Other(status, _) => *status,
        }
    }

    pub(crate) fn of(status: c_int, text: String) -> Error {
        match status {
            ffi::PKV_INVALID_ARGUMENT => Error::InvalidArgument(text),
            ffi::PKV_NO_MEMORY => Error::NoMemory(text),
            ffi::PKV_NO_BLOCKS => Error::NoBlocks(text),
            ffi::PKV_NEVER_FITS => Error::NeverFits(text),
            ffi::PKV_NOT_RESIDENT => Error::NotResident(text),
            ffi::PKV_STALE_HANDLE => Error::StaleHandle(text),
            ffi::PKV_BUSY => Error::Busy(text),
            ffi::PKV_UNSUPPORTED => Error::Unsupported(text),
            ffi::PKV_CORRUPT => Error::Corrupt(text),
            ffi::PKV_IO => Error::Io(text),
            ffi::PKV_NOT_FOUND => Error::NotFound(text),
            _ => Error::Other(status, text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: a text in static storage, for any value.
        let name = unsafe { CStr::from_ptr(ffi::pkv_status_name(self.status())) };
        write!(f, "{}: {}", name.to_string_lossy(), self.text())
    }
}

impl std::error::Error for Error {}

/// The status of a call as a result; the text is copied before this thread's next refusal.
pub(crate) fn check(status: c_int) -> Result<()> {
    if status == ffi::PKV_OK {
        return Ok(());
    }
    // SAFETY: the calling thread's own text.
    let text = unsafe { CStr::from_ptr(ffi::pkv_last_error()) };
    Err(Error::of(status, text.to_string_lossy().into_owned()))
}

/// A refusal of this crate's own.
pub(crate) fn refuse<T>(text: String) -> Result<T> {
    Err(Error::InvalidArgument(text))
}

/// A length or count as the library takes it.
pub(crate) fn int(name: &str, value: usize) -> Result<i32> {
    i32::try_from(value).or_else(|_| refuse(format!("{} = {}, above {}", name, value, i32::MAX)))
}

/// Refuses a slice of another length than what it must hold.
pub(crate) fn want_length(name: &str, length: usize, wanted: Option<usize>) -> Result<()> {
    match wanted {
        Some(wanted) if wanted == length => Ok(()),
        Some(wanted) => refuse(format!("{} has {} elements, not {}", name, length, wanted)),
        None => refuse(format!("{} would need more elements than there can be", name)),
    }
}

/// The product of sizes, None where it overflows.
pub(crate) fn product(factors: &[usize]) -> Option<usize> {
    factors.iter().try_fold(1usize, |all, factor| all.checked_mul(*factor))
}

/// What a refused admission or step lacked.
#[derive(Clone, Copy, Debug)]
pub struct Shortage(pub(crate) ffi::pkv_shortage);

impl Shortage {
    /// The row of the batch that it is about.
    pub fn row(&self) -> Option<usize> {
        usize::try_from(self.0.row).ok()
    }
    /// The group that is short; None: a quota or the sequence's length refuses.
    pub fn group(&self) -> Option<usize> {
        usize::try_from(self.0.group).ok()
    }
    /// Blocks needed; tokens where `max_tokens` is not 0.
    pub fn need(&self) -> i64 {
        self.0.need
    }
    /// Free blocks that the call could have used.
    pub fn free(&self) -> i64 {
        self.0.free
    }
    /// The most tokens that the sequence may have, when that refuses; else 0.
    pub fn max_tokens(&self) -> i32 {
        self.0.max_tokens
    }
}

/// A refused admission or step: the error, and what was lacking when it is [`Error::NoBlocks`] or
/// [`Error::NeverFits`].
#[derive(Clone, Debug)]
pub struct Refused {
    pub error: Error,
    pub shortage: Option<Shortage>,
}

impl Refused {
    pub(crate) fn by(error: Error, shortage: ffi::pkv_shortage) -> Refused {
        let told = matches!(error, Error::NoBlocks(_) | Error::NeverFits(_));
        Refused { error, shortage: told.then(|| Shortage(shortage)) }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused { error, shortage: None }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {}
