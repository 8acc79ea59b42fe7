//! Arguments and results in C's memory: handles, text, numbers.
//!
//! Only this code dereferences addresses, and it relies on nothing but what the header demands.
#![allow(unsafe_code, reason = "text and room of C come as addresses")]

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;

use crate::status::{Refusal, door};

/// An argument that must not be NULL.
pub(crate) fn given<T>(argument: Option<T>, name: &str) -> Result<T, Refusal> {
    argument.ok_or_else(|| null(name))
}

fn null(name: &str) -> Refusal {
    Refusal::argument(format!("`{name}` is NULL"))
}

/// Text from C.
///
/// # Safety
/// `text` is NULL, or ends with a zero byte and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(
    text: *const c_char,
    name: &str,
) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, and the caller guarantees that it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| Refusal::argument(format!("`{name}` is not UTF-8 ({e})")))
}

/// Writes `numbers` to `room` in C's memory.
///
/// # Safety
/// `room` is NULL, or has room for as many numbers, which nobody else uses in the meantime.
pub(crate) unsafe fn fill(room: *mut f32, numbers: &[f32]) -> Result<(), Refusal> {
    if room.is_null() {
        return Err(null("out"));
    }
    // SAFETY: there is room for all, and `numbers` is our own memory.
    unsafe { room.copy_from_nonoverlapping(numbers.as_ptr(), numbers.len()) };
    Ok(())
}

/// Gives text to C, which returns it to [`be_text_release`].
pub(crate) fn hand_over(text: String, out: &mut MaybeUninit<*mut c_char>) {
    // Our text has no zero byte; if it had one, it would end there.
    let end = text.find('\0').unwrap_or(text.len());
    let text = CString::new(&text[..end]).unwrap_or_default();
    out.write(text.into_raw());
}

/// Releases text returned by a function of this library. NULL is ignored.
///
/// # Safety
/// `text` comes from a function here that says so, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn be_text_release(text: *mut c_char) {
    let _ = door(|| {
        if !text.is_null() {
            // SAFETY: `hand_over` has made it, and nobody else uses it.
            drop(unsafe { CString::from_raw(text) });
        }
        Ok(())
    });
}
