//! CUDA's driver API, call by call: integers and `Result`s in place of out-parameters and
//! codes.
//!
//! [`Api`] is the proof that the library is there and has every function below: cudarc would
//! panic where it is not. The functions take handles as numbers, check nothing about
//! them, and keep no state; `cuda.rs` does. `sys` is the raw layer.
#![allow(unsafe_code, reason = "calls functions of a foreign library with addresses")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use cudarc::driver::sys;

use crate::GpuError;
use crate::driver::Launch;

/// Every function that is called here, under the name that the library exports. cudarc looks
/// them up one by one at their first call, and panics where one is missing.
const SYMBOLS: [&str; 33] = [
    "cuInit",
    "cuGetErrorName",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxGetState",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuDeviceGetPCIBusId",
];

/// Called by hand: of the two versions cudarc has only the newer, which drivers before 12.8 lack. It
/// is not among [`SYMBOLS`], since only a figure depends on it.
const ELAPSED: &str = "cuEventElapsedTime";
type Elapsed =
    unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// What is called where the library has it: it came with CUDA 12.5.
const RECORDS_CONTEXTS: &str = "cuCtxRecordEvent";

/// The driver's library, loaded and complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Api {
    records_contexts: bool,
}

/// What a call that failed is told by: the driver's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) code: sys::CUresult,
}

/// A call's outcome, before anybody decided what its failure means.
pub(super) type Called<T> = Result<T, Failure>;

impl Api {
    /// Loads the library, for good. May block while the loader does.
    ///
    /// # Errors
    /// Which library or function is missing, for people.
    pub(super) fn load() -> Result<Self, String> {
        // SAFETY: NVIDIA's library may be opened in any process; its initialisers do nothing.
        if !unsafe { sys::is_culib_present() } {
            return Err("there is no libcuda.so.1; install NVIDIA's driver".to_owned());
        }
        // SAFETY: it could be opened a moment ago. Had it vanished since, this would panic,
        // on the thread that opens the GPU under a deadline.
        let library = unsafe { sys::culib() };
        let has = |name: &str| {
            // SAFETY: the symbol is only looked up; nothing is called by this type.
            unsafe { library.get::<*const c_void>(name.as_bytes()) }.is_ok()
        };
        if let Some(name) = SYMBOLS.into_iter().find(|name| !has(name)) {
            return Err(format!(
                "libcuda.so.1 has no {name}; install a newer driver of NVIDIA's"
            ));
        }
        Ok(Self { records_contexts: has(RECORDS_CONTEXTS) })
    }

    /// The driver's name of an error: `CUDA_ERROR_NO_DEVICE`.
    pub(super) fn name(self, code: sys::CUresult) -> String {
        let mut name: *const c_char = ptr::null();
        // SAFETY: `name` is a place for a pointer.
        let told = unsafe { sys::cuGetErrorName(code, &raw mut name) };
        if told != sys::CUresult::CUDA_SUCCESS || name.is_null() {
            return format!("error {}", code as u32);
        }
        // SAFETY: the driver points to a text of its own, which ends with a zero and stays.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// A failure as this crate's callers see it.
    pub(super) fn error(self, failure: Failure) -> GpuError {
        GpuError::Driver { call: failure.call, why: self.name(failure.code) }
    }

    pub(super) fn init(self) -> Called<()> {
        // SAFETY: may be called at any time, from any thread.
        check("cuInit", unsafe { sys::cuInit(0) })
    }

    /// The newest CUDA that the driver serves: 12,040 is 12.4.
    pub(super) fn version(self) -> Called<u32> {
        let mut version: c_int = 0;
        // SAFETY: `version` is a place for a number.
        let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        check("cuDriverGetVersion", code)?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    pub(super) fn n_devices(self) -> Called<u32> {
        let mut count: c_int = 0;
        // SAFETY: `count` is a place for a number.
        let code = unsafe { sys::cuDeviceGetCount(&raw mut count) };
        check("cuDeviceGetCount", code)?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub(super) fn device(self, ordinal: u32) -> Called<c_int> {
        let mut device: c_int = 0;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: `device` is a place for a number.
        let code = unsafe { sys::cuDeviceGet(&raw mut device, ordinal) };
        check("cuDeviceGet", code)?;
        Ok(device)
    }

    pub(super) fn device_name(self, device: c_int) -> Called<String> {
        text("cuDeviceGetName", |buffer, len| {
            // SAFETY: `buffer` has room for `len` characters, the zero included.
            unsafe { sys::cuDeviceGetName(buffer, len, device) }
        })
    }

    /// Where on the bus: `0000:1B:00.0`.
    pub(super) fn bus_id(self, device: c_int) -> Called<String> {
        text("cuDeviceGetPCIBusId", |buffer, len| {
            // SAFETY: `buffer` has room for `len` characters, the zero included.
            unsafe { sys::cuDeviceGetPCIBusId(buffer, len, device) }
        })
    }

    pub(super) fn attribute(
        self,
        of: sys::CUdevice_attribute,
        device: c_int,
    ) -> Called<u32> {
        let mut value: c_int = 0;
        // SAFETY: `value` is a place for a number.
        let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, of, device) };
        check("cuDeviceGetAttribute", code)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    pub(super) fn memory_bytes(self, device: c_int) -> Called<u64> {
        let mut bytes: usize = 0;
        // SAFETY: `bytes` is a place for a number.
        let code = unsafe { sys::cuDeviceTotalMem_v2(&raw mut bytes, device) };
        check("cuDeviceTotalMem", code)?;
        Ok(bytes as u64)
    }

    pub(super) fn retain_context(self, device: c_int) -> Called<u64> {
        let mut context: sys::CUcontext = ptr::null_mut();
        // SAFETY: `context` is a place for a handle.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", code)?;
        Ok(number(context))
    }

    /// Whether some library of this process uses a device: has its primary context.
    pub(super) fn is_in_use(self, device: c_int) -> Called<bool> {
        let (mut flags, mut is_active) = (0, 0);
        let (flags, place) = (&raw mut flags, &raw mut is_active);
        // SAFETY: both are places for numbers.
        let code = unsafe { sys::cuDevicePrimaryCtxGetState(device, flags, place) };
        check("cuDevicePrimaryCtxGetState", code)?;
        Ok(is_active != 0)
    }

    /// # Safety
    /// Retained before, and no handle made in it is used any more.
    pub(super) unsafe fn release_context(self, device: c_int) -> Called<()> {
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
        check("cuDevicePrimaryCtxRelease", code)
    }

    /// The calling thread's; 0 for none.
    pub(super) fn current_context(self) -> Called<u64> {
        let mut context: sys::CUcontext = ptr::null_mut();
        // SAFETY: `context` is a place for a handle.
        let code = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        check("cuCtxGetCurrent", code)?;
        Ok(number(context))
    }

    /// # Safety
    /// It is alive, or 0.
    pub(super) unsafe fn set_current_context(self, context: u64) -> Called<()> {
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuCtxSetCurrent(handle(context)) };
        check("cuCtxSetCurrent", code)
    }

    /// Makes a call that another thread's capture of a graph does not forbid, and that does not spoil it.
    ///
    /// By default (and with `torch.cuda.graph`) a capture forbids all threads what could be unsafe in one:
    /// asking about an event, allocating, pinning. Who does so gets an error, and the capture is void.
    /// Nothing that is captured depends on our memory and events, so for us none of it is unsafe. The mode is
    /// a variable of the calling thread; it is put back, since what else the thread does is others' concern.
    pub(super) fn beside_captures<T>(
        self,
        call: impl FnOnce(Self) -> Called<T>,
    ) -> Called<T> {
        let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let before = self.exchange_capture_mode(relaxed)?;
        let called = call(self);
        let restored = self.exchange_capture_mode(before);
        let value = called?;
        restored.map(|_| value)
    }

    /// Sets how the calling thread and captures of graphs interact; returns what was set before.
    fn exchange_capture_mode(
        self,
        mode: sys::CUstreamCaptureMode,
    ) -> Called<sys::CUstreamCaptureMode> {
        let mut mode = mode;
        // SAFETY: `mode` is a place for a mode.
        let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(mode)
    }
}

/// The calls below work in the calling thread's context; their safety is that of the calls of
/// the same name in [`crate::driver::Driver`].
impl Api {
    pub(super) fn allocate(self, bytes: usize) -> Called<u64> {
        let mut at: sys::CUdeviceptr = 0;
        // SAFETY: `at` is a place for an address.
        let code = unsafe { sys::cuMemAlloc_v2(&raw mut at, bytes) };
        check("cuMemAlloc", code)?;
        Ok(at)
    }

    pub(super) unsafe fn free(self, at: u64) -> Called<()> {
        // SAFETY: the caller's promise.
        check("cuMemFree", unsafe { sys::cuMemFree_v2(at) })
    }

    pub(super) unsafe fn register(self, base: *mut c_void, bytes: usize) -> Called<()> {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuMemHostRegister_v2(base, bytes, flags) };
        check("cuMemHostRegister", code)
    }

    pub(super) unsafe fn unregister(self, base: *mut c_void) -> Called<()> {
        // SAFETY: the caller's promise.
        check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(base) })
    }

    pub(super) fn create_stream(self) -> Called<u64> {
        let mut stream: sys::CUstream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is a place for a handle.
        let code = unsafe { sys::cuStreamCreate(&raw mut stream, flags) };
        check("cuStreamCreate", code)?;
        Ok(number(stream))
    }

    pub(super) unsafe fn destroy_stream(self, stream: u64) -> Called<()> {
        // SAFETY: the caller's promise.
        check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(handle(stream)) })
    }

    pub(super) fn create_event(self) -> Called<u64> {
        self.event(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    pub(super) fn create_timed_event(self) -> Called<u64> {
        self.event(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn event(self, flags: sys::CUevent_flags) -> Called<u64> {
        let mut event: sys::CUevent = ptr::null_mut();
        let flags = flags as u32;
        // SAFETY: `event` is a place for a handle.
        let code = unsafe { sys::cuEventCreate(&raw mut event, flags) };
        check("cuEventCreate", code)?;
        Ok(number(event))
    }

    pub(super) unsafe fn destroy_event(self, event: u64) -> Called<()> {
        // SAFETY: the caller's promise.
        check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(handle(event)) })
    }

    pub(super) unsafe fn record(self, event: u64, stream: u64) -> Called<()> {
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuEventRecord(handle(event), handle(stream)) };
        check("cuEventRecord", code)
    }

    /// Whether [`Self::record_context`] is there.
    pub(super) fn records_contexts(self) -> bool {
        self.records_contexts
    }

    /// Records the end of what all of a context's streams have.
    pub(super) unsafe fn record_context(self, event: u64, context: u64) -> Called<()> {
        if !self.records_contexts {
            let code = sys::CUresult::CUDA_ERROR_NOT_SUPPORTED;
            return check(RECORDS_CONTEXTS, code);
        }
        // SAFETY: the caller's promise; the library has the function.
        let code = unsafe { sys::cuCtxRecordEvent(handle(context), handle(event)) };
        check(RECORDS_CONTEXTS, code)
    }

    pub(super) unsafe fn stream_waits(self, stream: u64, event: u64) -> Called<()> {
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuStreamWaitEvent(handle(stream), handle(event), 0) };
        check("cuStreamWaitEvent", code)
    }

    pub(super) unsafe fn is_reached(self, event: u64) -> Called<bool> {
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuEventQuery(handle(event)) };
        if code == sys::CUresult::CUDA_ERROR_NOT_READY {
            return Ok(false);
        }
        check("cuEventQuery", code)?;
        Ok(true)
    }

    /// Milliseconds between two events that are reached.
    pub(super) unsafe fn elapsed(self, from: u64, to: u64) -> Called<f32> {
        let not_found = sys::CUresult::CUDA_ERROR_NOT_FOUND;
        // SAFETY: this value is the proof that the library is loaded.
        let library = unsafe { sys::culib() };
        // SAFETY: the driver's documentation gives the function this type.
        let found = unsafe { library.get::<Elapsed>(ELAPSED.as_bytes()) };
        let elapsed = found.map_err(|_| Failure { call: ELAPSED, code: not_found })?;
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is a place for a number; the rest is the caller's promise.
        let code = unsafe { elapsed(&raw mut milliseconds, handle(from), handle(to)) };
        check(ELAPSED, code)?;
        Ok(milliseconds)
    }

    pub(super) unsafe fn upload(self, to: u64, from: &[u8], stream: u64) -> Called<()> {
        let (source, len) = (from.as_ptr().cast(), from.len());
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, source, len, handle(stream)) };
        check("cuMemcpyHtoDAsync", code)
    }

    pub(super) unsafe fn download(
        self,
        to: &mut [u8],
        from: u64,
        stream: u64,
    ) -> Called<()> {
        let (target, len) = (to.as_mut_ptr().cast(), to.len());
        // SAFETY: the caller's promise.
        let code =
            unsafe { sys::cuMemcpyDtoHAsync_v2(target, from, len, handle(stream)) };
        check("cuMemcpyDtoHAsync", code)
    }

    pub(super) unsafe fn copy(
        self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: u64,
    ) -> Called<()> {
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, handle(stream)) };
        check("cuMemcpyDtoDAsync", code)
    }

    /// Compiles PTX for the device, or finds it compiled in the driver's cache; may take
    /// seconds.
    pub(super) fn load_module(self, ptx: &CStr) -> Called<u64> {
        let mut module: sys::CUmodule = ptr::null_mut();
        let text = ptx.as_ptr().cast();
        // SAFETY: `module` is a place for a handle; the text ends with a zero.
        let code = unsafe { sys::cuModuleLoadData(&raw mut module, text) };
        check("cuModuleLoadData", code)?;
        Ok(number(module))
    }

    pub(super) unsafe fn unload_module(self, module: u64) -> Called<()> {
        // SAFETY: the caller's promise: nothing of it runs or will be launched.
        check("cuModuleUnload", unsafe { sys::cuModuleUnload(handle(module)) })
    }

    /// # Safety
    /// The module is loaded.
    pub(super) unsafe fn function(self, module: u64, name: &CStr) -> Called<u64> {
        let mut function: sys::CUfunction = ptr::null_mut();
        let (place, name) = (&raw mut function, name.as_ptr());
        // SAFETY: `function` is a place for a handle, the name ends with a zero, and the
        // module is loaded, as the caller promises.
        let code = unsafe { sys::cuModuleGetFunction(place, handle(module), name) };
        check("cuModuleGetFunction", code)?;
        Ok(number(function))
    }

    pub(super) unsafe fn launch(
        self,
        function: u64,
        launch: Launch,
        stream: u64,
        arguments: &[*const c_void],
    ) -> Called<()> {
        let ([x, y, z], block, shared) = (launch.grid, launch.block, launch.shared_bytes);
        let (function, stream) = (handle(function), handle(stream));
        // The driver declares them writable and only reads them.
        let arguments = arguments.as_ptr().cast_mut().cast();
        let none = ptr::null_mut();
        // SAFETY: the caller's promise.
        let code = unsafe {
            sys::cuLaunchKernel(
                function, x, y, z, block, 1, 1, shared, stream, arguments, none,
            )
        };
        check("cuLaunchKernel", code)
    }
}

/// A code as a `Result`. (Were the driver to answer with a code that cudarc does not know, the
/// enum would hold a value it has no name for; it is only compared and passed back here.)
fn check(call: &'static str, code: sys::CUresult) -> Called<()> {
    if code == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Failure { call, code })
}

/// A text that the driver writes into a buffer.
fn text(
    call: &'static str,
    write: impl FnOnce(*mut c_char, c_int) -> sys::CUresult,
) -> Called<String> {
    let mut buffer = [0_u8; 128];
    check(call, write(buffer.as_mut_ptr().cast(), 127))?;
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}

/// A handle of the driver's as a number, and back.
fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

fn handle<T>(number: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(usize::try_from(number).unwrap_or(0))
}
