//! What a function returns: a code, and for an error a line that is kept per thread.
//!
//! `runtime` decides what is an error.
#![allow(
    unsafe_code,
    reason = "exporting a name of C is unsafe: it may be taken already"
)]
#![allow(non_camel_case_types, reason = "C's names")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bothends_core::setting::Setting;
use bothends_runtime::{ErrorKind, RuntimeError, one_line_with};

/// Version of this interface: it grows by one when a program compiled with an older header
/// would no longer work.
pub const BE_ABI_VERSION: u32 = 1;

/// What a function returns. Negative values are errors; `be_last_error` has the details.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum be_status {
    /// Done.
    BE_OK = 0,
    /// There is a batch.
    BE_BATCH = 1,
    /// No batch within the time given; ask again.
    BE_PENDING = 2,
    /// The epoch has no more batches.
    BE_END = 3,
    /// `be_epoch_cancel` cancelled the epoch, which may have had more batches.
    BE_STOPPED = 4,
    /// An argument is NULL, not UTF-8 or out of range.
    BE_ERROR_ARGUMENT = -1,
    /// An option is unknown, or options, recipe and data do not fit together.
    BE_ERROR_OPTIONS = -2,
    /// The data cannot be opened, listed or read.
    BE_ERROR_DATA = -3,
    /// A sample cannot be read or decoded and `on_bad` is `raise`.
    BE_ERROR_SAMPLE = -4,
    /// A device cannot be reached, refuses, or made different bytes than the host.
    BE_ERROR_DEVICE = -5,
    /// The consumer holds so many batches that the epoch cannot continue.
    BE_ERROR_STARVED = -6,
    /// The epoch ended with an error that was reported to one of its consumers.
    BE_ERROR_ENDED = -7,
    /// The handle was created before this process was forked.
    BE_ERROR_FORKED = -8,
    /// The state belongs to another run, or cannot be saved now.
    BE_ERROR_STATE = -9,
    /// The system refuses memory or threads.
    BE_ERROR_SYSTEM = -10,
    /// A bug in this library; please report it.
    BE_ERROR_BUG = -11,
}

/// An error on its way out.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: be_status,
    line: String,
}

impl Refusal {
    /// An argument that violates the header.
    pub(crate) fn argument(line: impl Into<String>) -> Self {
        Self { status: be_status::BE_ERROR_ARGUMENT, line: line.into() }
    }

    /// What cannot happen.
    pub(crate) fn bug(said: &dyn Display) -> Self {
        let line = format!("internal error: {said}; please report this");
        Self { status: be_status::BE_ERROR_BUG, line }
    }

    fn panicked(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::bug(&said.unwrap_or("no details are known"))
    }

    /// Keeps the line for `be_last_error`.
    fn tell(self) -> be_status {
        let line = self.line.replace(['\0', '\n'], " ");
        // Neither fails: no zero byte is left, and a thread that ends does not ask again.
        let line = CString::new(line).unwrap_or_default();
        let _ = LAST.try_with(|last| last.replace(line));
        self.status
    }
}

impl From<RuntimeError> for Refusal {
    fn from(error: RuntimeError) -> Self {
        Self { status: code(&error), line: one_line_with(&error, name) }
    }
}

/// The name of a setting in C, where a loader's methods are functions.
pub(crate) fn name(setting: Setting) -> &'static str {
    if setting == Setting::SaveState {
        "be_loader_state"
    } else if setting == Setting::LoadState {
        "be_loader_load_state"
    } else {
        setting.key()
    }
}

fn code(error: &RuntimeError) -> be_status {
    match error.kind() {
        ErrorKind::Options => be_status::BE_ERROR_OPTIONS,
        ErrorKind::Data => be_status::BE_ERROR_DATA,
        ErrorKind::Sample => be_status::BE_ERROR_SAMPLE,
        ErrorKind::Device => be_status::BE_ERROR_DEVICE,
        ErrorKind::Starved => be_status::BE_ERROR_STARVED,
        ErrorKind::Ended => be_status::BE_ERROR_ENDED,
        ErrorKind::Forked => be_status::BE_ERROR_FORKED,
        ErrorKind::State => be_status::BE_ERROR_STATE,
        ErrorKind::System => be_status::BE_ERROR_SYSTEM,
        ErrorKind::Bug => be_status::BE_ERROR_BUG,
    }
}

thread_local! {
    /// What the last error of this thread said.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Wraps every exported function: a panic becomes an error, and an error a code and a line.
pub(crate) fn door<T>(body: impl FnOnce() -> Result<T, Refusal>) -> Result<T, be_status> {
    let refusal = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(refusal)) => refusal,
        Err(panic) => Refusal::panicked(&*panic),
    };
    Err(refusal.tell())
}

/// As [`door`], for a function that returns a code.
pub(crate) fn answer(body: impl FnOnce() -> Result<be_status, Refusal>) -> be_status {
    door(body).unwrap_or_else(|status| status)
}

/// The message of this thread's last error: one line with a remedy, empty before the first one.
/// It is valid until the next failing call by this thread.
#[unsafe(no_mangle)]
pub extern "C" fn be_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The library's version, as in `0.1.0`. Never released.
#[unsafe(no_mangle)]
pub extern "C" fn be_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(
        concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
    ) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

/// The `BE_ABI_VERSION` that the library was built with; a program's own must be the same.
#[unsafe(no_mangle)]
pub extern "C" fn be_abi_version() -> u32 {
    BE_ABI_VERSION
}

#[cfg(test)]
mod tests {
    use bothends_core::resume::{Compared, Resume, ResumeError};

    use super::*;

    fn last() -> String {
        LAST.with(|last| last.borrow().to_str().unwrap().to_owned())
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_line() {
        let status = answer(|| panic!("one\ntwo \0 {}", 3));
        assert_eq!(status, be_status::BE_ERROR_BUG);
        assert_eq!(last(), "internal error: one two   3; please report this");
    }

    #[test]
    fn a_line_names_what_c_has_and_every_cause() {
        let error =
            RuntimeError::CannotResume { why: "the state is of another run".to_owned() };
        let status = answer(|| Err(error.into()));
        assert_eq!(status, be_status::BE_ERROR_STATE);
        assert_eq!(last(), "cannot resume: the state is of another run");
        let unread = Resume::from_json("{").err().unwrap();
        answer(|| Err(RuntimeError::Resume(unread).into()));
        let line = "the resume state cannot be read; give what be_loader_state wrote: \
                    EOF while parsing";
        assert!(last().starts_with(line), "{}", last());
        let differs = ResumeError::Differs {
            what: Compared::Setting(Setting::BatchSize),
            theirs: "4".to_owned(),
            ours: "8".to_owned(),
        };
        answer(|| Err(RuntimeError::Resume(differs).into()));
        let line = "the resume state was made with batch_size 4 and this run has 8; give the \
                    same, or start without be_loader_load_state";
        assert_eq!(last(), line);
        let source = std::io::Error::other("too many threads");
        let error = RuntimeError::Spawning { thread: "feed", source };
        assert_eq!(answer(|| Err(error.into())), be_status::BE_ERROR_SYSTEM);
        assert_eq!(last(), "cannot start thread `feed`: too many threads");
    }

    #[test]
    fn every_thread_has_its_own_last_error() {
        let _ = answer(|| Err(Refusal::argument("here")));
        let there = std::thread::spawn(last).join().unwrap();
        assert_eq!((last().as_str(), there.as_str()), ("here", ""));
    }
}
