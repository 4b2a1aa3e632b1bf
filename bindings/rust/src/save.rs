// SPDX-License-Identifier: MIT
//! Sequences to and from files and streams.
use crate::cache::{Cache, Sequence};
use crate::config::path_text;
use crate::error::{check, Error, Refused, Result};
use crate::ffi;
use std::any::Any;
use std::io::{self, Read, Write};
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;

/// A stream, and what went wrong in a callback: no panic crosses C.
struct Stream<S> {
    stream: S,
    error: Option<io::Error>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<S> Stream<S> {
    fn new(stream: S) -> Stream<S> {
        Stream { stream, error: None, panic: None }
    }

    fn run(&mut self, call: impl FnOnce(&mut S) -> io::Result<()>) -> bool {
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.stream))) {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => self.error = Some(error),
            Err(panic) => self.panic = Some(panic),
        }
        false
    }

    /// The answer of the call that has used the stream, with the stream's own words.
    fn answer(&mut self, answer: Result<()>) -> Result<()> {
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        match (answer, self.error.take()) {
            (Err(Error::Io(text)), Some(error)) => Err(Error::Io(format!("{}: {}", text, error))),
            (answer, _) => answer,
        }
    }
}

unsafe extern "C" fn write<W: Write>(context: *mut c_void, bytes: *const c_void, n: usize) -> bool {
    // The context of save_to below, and n bytes that the library wants written.
    let stream = &mut *(context as *mut Stream<W>);
    let bytes = std::slice::from_raw_parts(bytes.cast(), n);
    stream.run(|w| w.write_all(bytes))
}

unsafe extern "C" fn read<R: Read>(context: *mut c_void, bytes: *mut c_void, n: usize) -> bool {
    // The context of load_from below, and memory of n bytes, which get a value first.
    let stream = &mut *(context as *mut Stream<R>);
    std::ptr::write_bytes(bytes.cast::<u8>(), 0, n);
    let bytes = std::slice::from_raw_parts_mut(bytes.cast(), n);
    stream.run(|r| r.read_exact(bytes))
}

impl<'c> Sequence<'c> {
    /// Writes it with its tokens, keys and values to a file, which is replaced whole.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text("path", path.as_ref())?;
        // SAFETY: the cache lives as long as self, and the path during the call.
        check(unsafe { ffi::pkv_seq_save_file(self.cache().raw(), self.raw(), path.as_ptr()) })
    }

    /// The same to a stream. [`Error::Io`] with its words when it fails.
    pub fn save_to<W: Write>(&self, stream: W) -> Result<()> {
        let mut stream = Stream::new(stream);
        let mut writer = ffi::pkv_writer::zeroed();
        writer.size = std::mem::size_of_val(&writer);
        writer.context = &mut stream as *mut Stream<W> as *mut c_void;
        writer.write = Some(write::<W>);
        // SAFETY: the cache lives as long as self, and the stream during the call.
        let status = unsafe { ffi::pkv_seq_save(self.cache().raw(), self.raw(), &writer) };
        stream.answer(check(status))
    }
}

type Loaded<'c> = std::result::Result<Sequence<'c>, Refused>;

impl Cache {
    /// A new sequence from what [`Sequence::save`] has written.
    pub fn load(&self, path: impl AsRef<Path>) -> Loaded<'_> {
        let path = path_text("path", path.as_ref())?;
        self.loaded(|seq, shortage| {
            // SAFETY: all pointers are to values of this call.
            check(unsafe { ffi::pkv_seq_load_file(self.raw(), path.as_ptr(), seq, shortage) })
        })
    }

    /// The same from a stream, of which nothing behind the sequence is read.
    pub fn load_from<R: Read>(&self, stream: R) -> Loaded<'_> {
        let mut stream = Stream::new(stream);
        let mut reader = ffi::pkv_reader::zeroed();
        reader.size = std::mem::size_of_val(&reader);
        reader.read = Some(read::<R>);
        self.loaded(|seq, shortage| {
            reader.context = &mut stream as *mut Stream<R> as *mut c_void;
            // SAFETY: all pointers are to values of this call, and the stream stays where it is.
            let status = unsafe { ffi::pkv_seq_load(self.raw(), &reader, seq, shortage) };
            stream.answer(check(status))
        })
    }

    fn loaded(
        &self,
        call: impl FnOnce(&mut ffi::pkv_seq, &mut ffi::pkv_shortage) -> Result<()>,
    ) -> Loaded<'_> {
        let (mut seq, mut shortage) = (ffi::pkv_seq::zeroed(), ffi::pkv_shortage::zeroed());
        shortage.size = std::mem::size_of_val(&shortage);
        match call(&mut seq, &mut shortage) {
            Ok(()) => Ok(Sequence::of(self, seq)),
            Err(error) => Err(Refused::by(error, shortage)),
        }
    }
}
