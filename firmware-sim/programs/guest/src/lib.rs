//! What a program on a computational storage device may call: safe functions over the imports of `csd_1`, and
//! the entry.
//!
//! ```ignore
//! #![cfg_attr(target_arch = "wasm32", no_std)]
//! csd_program::entry!(run);
//! csd_program::panics_trap!();
//!
//! fn run(first: u64, second: u64) -> u64 {
//!     csd_program::range_bytes(1).map_or(0, u64::from)
//! }
//! ```
//!
//! The functions are there in a WebAssembly module alone. What a program computes goes into functions of its own,
//! which are then tested as on any machine.
#![no_std]
#![allow(unsafe_code, reason = "imports take addresses")]

/// Makes `run` the function that an execution calls with its two parameters, and whose result it returns.
#[macro_export]
macro_rules! entry {
    ($run:expr) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            #[unsafe(export_name = "run")]
            extern "C" fn called_by_the_device(
                parameter_1: u64,
                parameter_2: u64,
            ) -> u64 {
                $run(parameter_1, parameter_2)
            }
        };
    };
}

/// For a program without Rust's standard library: a panic is a trap.
#[macro_export]
macro_rules! panics_trap {
    () => {
        #[cfg(target_arch = "wasm32")]
        #[panic_handler]
        fn panic(_: &::core::panic::PanicInfo<'_>) -> ! {
            ::core::arch::wasm32::unreachable()
        }
    };
}

/// Why an execution ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The status code type: 0, 1, or a vendor's 7.
    pub kind: u8,
    /// The status code.
    pub code: u8,
}

impl Status {
    /// Invalid Field in Command.
    pub const INVALID_FIELD: Self = Self { kind: 0, code: 0x02 };
}

#[cfg(target_arch = "wasm32")]
mod imports {
    #[link(wasm_import_module = "csd_1")]
    unsafe extern "C" {
        pub(super) safe fn range_bytes(range: u32) -> u64;
        pub(super) unsafe fn read(range: u32, at: u32, to: *mut u8, bytes: u32);
        pub(super) unsafe fn write(range: u32, at: u32, from: *const u8, bytes: u32);
        pub(super) safe fn data_bytes() -> u32;
        pub(super) unsafe fn data(at: u32, to: *mut u8, bytes: u32);
        pub(super) safe fn end(status: u32);
    }
}

/// On any other machine there is no device.
#[cfg(not(target_arch = "wasm32"))]
mod imports {
    fn nowhere() -> ! {
        panic!("this function exists only on a device")
    }

    pub(super) fn range_bytes(_: u32) -> u64 {
        nowhere()
    }

    pub(super) unsafe fn read(_: u32, _: u32, _: *mut u8, _: u32) {
        nowhere()
    }

    pub(super) unsafe fn write(_: u32, _: u32, _: *const u8, _: u32) {
        nowhere()
    }

    pub(super) fn data_bytes() -> u32 {
        nowhere()
    }

    pub(super) unsafe fn data(_: u32, _: *mut u8, _: u32) {
        nowhere()
    }

    pub(super) fn end(_: u32) {
        nowhere()
    }
}

/// Bytes of range `range`; the first one is 1. `None` if the execution has no such range.
#[must_use]
pub fn range_bytes(range: u32) -> Option<u32> {
    u32::try_from(imports::range_bytes(range)).ok()
}

/// Reads range `range` from byte `at` on. An execution whose range has not all of these bytes ends.
pub fn read(range: u32, at: u32, to: &mut [u8]) {
    // SAFETY: the device writes these bytes alone.
    unsafe { imports::read(range, at, to.as_mut_ptr(), len(to)) }
}

/// Writes range `range` from byte `at` on. An execution whose range has not all of these bytes ends.
pub fn write(range: u32, at: u32, from: &[u8]) {
    // SAFETY: the device reads these bytes alone.
    unsafe { imports::write(range, at, from.as_ptr(), len(from)) }
}

/// Bytes of data of the command. A Linux host sends none: it uses ranges and parameters.
#[must_use]
pub fn data_bytes() -> u32 {
    imports::data_bytes()
}

/// Reads the data of the command from byte `at` on. An execution that has not all of these bytes ends.
pub fn data(at: u32, to: &mut [u8]) {
    // SAFETY: the device writes these bytes alone.
    unsafe { imports::data(at, to.as_mut_ptr(), len(to)) }
}

/// Ends the execution with a status in place of a result.
pub fn end(status: Status) -> ! {
    imports::end(u32::from(status.kind) << 8 | u32::from(status.code));
    unreachable!("an execution that has ended")
}

/// No slice is longer than a program's memory.
fn len(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}
