//! The kernels' shared library, loaded: `kernels/cpu/library.cpp` in Rust's types.
//!
//! Whoever runs a kernel vouches for its arguments; nothing here knows what they are.
#![allow(
    unsafe_code,
    reason = "calls functions of a library that is loaded while the program runs"
)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;

use crate::GpuError;
use crate::driver::{KernelId, Launch};

type Find = unsafe extern "C" fn(*const c_char) -> c_int;
type CountArguments = unsafe extern "C" fn(c_int) -> c_uint;
type Run = unsafe extern "C" fn(
    c_int,
    *const c_uint,
    *const c_uint,
    u64,
    *const [u64; 2],
    usize,
    *const *const c_void,
    *mut c_char,
    usize,
) -> c_int;

/// What a kernel runs in.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    /// 0, or what gives the order of blocks and threads.
    pub(super) seed: u64,
    /// Where device memory begins and ends, in order.
    pub(super) allocations: &'a [[u64; 2]],
}

/// Bytes of a message.
const MESSAGE_BYTES: usize = 512;

/// The loaded library. It stays loaded as long as this lives.
#[derive(Debug)]
pub(super) struct Library {
    find: Find,
    count_arguments: CountArguments,
    run: Run,
    /// Owns what the functions are in.
    _loaded: libloading::Library,
}

impl Library {
    /// Loads the library at `path`.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`] where it cannot be loaded, or is another.
    pub(super) fn open(path: &Path) -> Result<Self, GpuError> {
        // SAFETY: the library only makes a list of its kernels when it is loaded.
        let loaded = unsafe { libloading::Library::new(path) };
        let loaded = loaded.map_err(|error| unavailable(path, &error))?;
        // SAFETY: `library.cpp` declares the function with these types.
        let find = unsafe { loaded.get::<Find>(b"bothends_find_kernel\0") };
        let find = *find.map_err(|error| unavailable(path, &error))?;
        // SAFETY: as above.
        let count =
            unsafe { loaded.get::<CountArguments>(b"bothends_kernel_arguments\0") };
        let count_arguments = *count.map_err(|error| unavailable(path, &error))?;
        // SAFETY: as above.
        let run = unsafe { loaded.get::<Run>(b"bothends_run_kernel\0") };
        let run = *run.map_err(|error| unavailable(path, &error))?;
        Ok(Self { find, count_arguments, run, _loaded: loaded })
    }

    /// A kernel by name.
    pub(super) fn find(&self, name: &CStr) -> Option<KernelId> {
        // SAFETY: the name ends with a zero, and the function only compares it.
        let found = unsafe { (self.find)(name.as_ptr()) };
        u64::try_from(found).ok().map(KernelId)
    }

    /// Runs a kernel to its end on this thread.
    ///
    /// # Errors
    /// What a GPU would have left undefined, as text.
    ///
    /// # Safety
    /// The arguments are what the kernel takes, and it stays within the memory that they name.
    pub(super) unsafe fn run(
        &self,
        kernel: KernelId,
        launch: Launch,
        surroundings: &Surroundings<'_>,
        arguments: &[*const c_void],
    ) -> Result<(), String> {
        let Ok(kernel) = c_int::try_from(kernel.0) else {
            return Err(format!("there is no kernel {}", kernel.0));
        };
        // SAFETY: the number came from `find`.
        let n = unsafe { (self.count_arguments)(kernel) };
        if n as usize != arguments.len() {
            return Err(format!("{} arguments for a kernel of {n}", arguments.len()));
        }
        let block = [launch.block, launch.shared_bytes];
        let mut message = [0; MESSAGE_BYTES];
        // SAFETY: the kernel is the library's, it has as many arguments as it takes, and the
        // caller vouches for what they point to; the message has as many bytes as is said.
        let rc = unsafe {
            (self.run)(
                kernel,
                launch.grid.as_ptr(),
                block.as_ptr(),
                surroundings.seed,
                surroundings.allocations.as_ptr(),
                surroundings.allocations.len(),
                arguments.as_ptr(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        if rc == 0 { Ok(()) } else { Err(text(&message)) }
    }
}

fn text(message: &[c_char]) -> String {
    let bytes = message.iter().map(|byte| byte.to_ne_bytes()[0]);
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn unavailable(path: &Path, error: &libloading::Error) -> GpuError {
    GpuError::Unavailable { why: format!("{} cannot be loaded: {error}", path.display()) }
}
