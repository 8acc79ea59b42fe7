//! NVIDIA's driver, loaded when a GPU is opened: the same program runs with and without it.
//!
//! Three layers: cudarc's raw declarations; `calls`, where they return `Result`s; and
//! [`Cuda`], which knows which device and context it is about. Nothing of CUDA's runtime library,
//! toolkit or compiler is needed, and no file of NVIDIA's is linked or shipped.
//!
//! The context is the device's *primary* one, which PyTorch, JAX and CuPy use as well: their
//! streams, events and addresses are valid here and ours there. A call makes that context
//! current on its thread and puts back what was current before: a training loop's idea
//! of its current device (`torch.cuda.current_device()` reads it off the context) is not changed by
//! a call into this crate. Nor is a graph that another thread captures at that moment (`torch.cuda.graph`): our
//! calls are made in the mode in which a capture does not mind them.
//!
//! Tested by a stub of `libcuda.so.1` over host memory (`tests/stub`), which runs this code
//! as it stands. That NVIDIA's library keeps what its documentation says was seen on an H200
//! (`scripts/check-gpu`).
#![allow(unsafe_code, reason = "hands addresses and handles to a foreign library")]

mod calls;
mod everywhere;
mod place;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::process;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use self::calls::{Api, Called, Failure};
use self::everywhere::Everywhere;
pub use self::place::Places;
use super::{Address, Card, Driver, EventId, KernelId, Launch, StreamId};
use crate::GpuError;
use crate::driver::deadline::within;
use crate::kernels::lacking;

/// The oldest driver that loads our kernels: PTX 8.4 came with CUDA 12.4 (driver 550).
const OLDEST_DRIVER: u32 = 12_040;

/// Longest that opening a device may take. An H100 took 0.2 to 0.34 s, and 1.0 to 1.4 s more where the
/// kernels were compiled for the first time; a machine of many devices whose driver is not kept
/// initialised takes many times that.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// One device through NVIDIA's driver.
#[derive(Debug)]
pub struct Cuda {
    api: Api,
    device: c_int,
    /// The primary context, retained until this is dropped.
    context: u64,
    /// The kernels; why there are none where no PTX was given, or the card is too old for it.
    module: Result<u64, String>,
    card: Card,
    kernels: Mutex<BTreeMap<&'static CStr, KernelId>>,
    everywhere: Everywhere,
    /// Who opened it. Contexts do not survive a fork.
    process: u32,
}

impl Cuda {
    /// Opens the device number `ordinal` of those that `CUDA_VISIBLE_DEVICES` shows, with the
    /// kernels in `ptx`; an empty text means none, and so does a card that is too old for them: it copies, and
    /// says why where a kernel is asked for. Blocks while the driver initialises
    /// (about 0.3 s, and 1 to 2 s the first time that a machine sees the kernels); gives up
    /// after 60 s.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`], which names what is missing; it never panics for want of a
    /// driver.
    pub fn open(ordinal: u32, ptx: &str) -> Result<Self, GpuError> {
        Self::open_at(ordinal, ptx, &Places::default(), OPEN_LIMIT)
    }

    /// As [`Self::open`], with the system's files elsewhere and another deadline.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_at(
        ordinal: u32,
        ptx: &str,
        places: &Places,
        limit: Duration,
    ) -> Result<Self, GpuError> {
        let Ok(ptx) = CString::new(ptx) else {
            return unavailable("the text of the kernels contains a NUL byte");
        };
        let places = places.clone();
        let open = move || Self::open_here(ordinal, &ptx, &places);
        within(limit, "open-cuda", open).unwrap_or_else(|| {
            unavailable(format!(
                "NVIDIA's driver did not open device {ordinal} within {} s; see whether \
                 `nvidia-smi` answers",
                limit.as_secs()
            ))
        })
    }

    fn open_here(ordinal: u32, ptx: &CStr, places: &Places) -> Result<Self, GpuError> {
        let api = Api::load().or_else(unavailable)?;
        let refuse = |failure: Failure| -> GpuError {
            let why = format!("{} failed with {}", failure.call, api.name(failure.code));
            GpuError::Unavailable { why }
        };
        api.init().map_err(refuse)?;
        let version = api.version().map_err(refuse)?;
        if version < OLDEST_DRIVER {
            return unavailable(format!(
                "the driver serves CUDA {} and {} is the least; update NVIDIA's driver",
                dotted(version),
                dotted(OLDEST_DRIVER)
            ));
        }
        let n_devices = api.n_devices().map_err(refuse)?;
        if ordinal >= n_devices {
            return unavailable(format!(
                "there is no device {ordinal}: the driver shows {n_devices}, counted from 0 \
                 (see CUDA_VISIBLE_DEVICES)"
            ));
        }
        let device = api.device(ordinal).map_err(refuse)?;
        let mut card = describe(api, device, places).map_err(refuse)?;
        card.ordinal = ordinal;
        let module = places.kernel_module();
        card.driver = match module {
            Some(module) => format!("{module} (CUDA {})", dotted(version)),
            None => format!("CUDA {}", dotted(version)),
        };
        let context = api.retain_context(device).map_err(refuse)?;
        let mut cuda = Self {
            api,
            device,
            context,
            module: Err("no kernels were loaded".to_owned()),
            card,
            kernels: Mutex::default(),
            everywhere: Everywhere::default(),
            process: process::id(),
        };
        // From here on the context is released by dropping it.
        if let Some(why) = lacking(&cuda.card) {
            cuda.module = Err(why);
        } else if !ptx.is_empty() {
            let loaded = cuda.within_context(|api| api.load_module(ptx));
            cuda.module = Ok(loaded.map_err(|error| GpuError::Unavailable {
                why: format!("the kernels cannot be loaded: {error}"),
            })?);
        }
        Ok(cuda)
    }

    /// Whether it was opened by this process, and not by one that this was forked from.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        process::id() == self.process
    }

    /// Calls the driver with our context current on this thread, whatever graph others capture.
    ///
    /// Asking the driver for the thread's context is a look at a variable of the thread, so
    /// nothing is remembered here: others change it, too.
    fn within_context<T>(
        &self,
        call: impl FnOnce(Api) -> Called<T>,
    ) -> Result<T, GpuError> {
        if !self.is_of_this_process() {
            return Err(GpuError::Driver {
                call: "fork",
                why: "this process was forked from the one that opened the GPU; open it \
                      after forking, or start workers by `spawn`"
                    .to_owned(),
            });
        }
        let error = |failure| self.api.error(failure);
        let before = self.api.current_context().map_err(error)?;
        if before == self.context {
            return self.api.beside_captures(call).map_err(error);
        }
        // SAFETY: `self` retains it.
        unsafe { self.api.set_current_context(self.context) }.map_err(error)?;
        let called = self.api.beside_captures(call);
        // SAFETY: it was current when this began, so its owner had it alive, and this thread
        // has not left the call since.
        let restored = unsafe { self.api.set_current_context(before) };
        let value = called.map_err(error)?;
        restored.map_err(error)?;
        Ok(value)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // In a forked child the driver must not be called; while a process ends, it answers
        // that it is gone. Either is no matter here.
        if let Ok(module) = self.module {
            // SAFETY: loaded by `open`; whoever launches holds this value.
            let _ = self.within_context(|api| unsafe { api.unload_module(module) });
        }
        let mut everywhere = std::mem::take(&mut self.everywhere);
        let _ = self.within_context(|api| {
            // SAFETY: our context is current in here.
            unsafe { everywhere.end(api) };
            Ok(())
        });
        if self.is_of_this_process() {
            // SAFETY: retained once by `open`; what was made in it has been freed by its owners,
            // who hold this value.
            let _ = unsafe { self.api.release_context(self.device) };
        }
    }
}

impl Driver for Cuda {
    fn card(&self) -> &Card {
        &self.card
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let out_of_memory = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let made = self.within_context(|api| match api.allocate(bytes) {
            Err(failure) if failure.code == out_of_memory => Ok(None),
            made => made.map(Some),
        })?;
        made.map(Address).ok_or(GpuError::OutOfMemory { bytes })
    }

    unsafe fn free(&self, at: Address) {
        // SAFETY: the caller's promise.
        let _ = self.within_context(|api| unsafe { api.free(at.0) });
    }

    unsafe fn register(&self, base: NonNull<u8>, bytes: usize) -> Result<(), GpuError> {
        let base = base.as_ptr().cast();
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe { api.register(base, bytes) })
    }

    unsafe fn unregister(&self, base: NonNull<u8>) {
        let base = base.as_ptr().cast();
        // SAFETY: the caller's promise.
        let _ = self.within_context(|api| unsafe { api.unregister(base) });
    }

    fn create_stream(&self) -> Result<StreamId, GpuError> {
        self.within_context(Api::create_stream).map(StreamId)
    }

    unsafe fn destroy_stream(&self, stream: StreamId) {
        // SAFETY: the caller's promise.
        let _ = self.within_context(|api| unsafe { api.destroy_stream(stream.0) });
    }

    fn create_event(&self) -> Result<EventId, GpuError> {
        self.within_context(Api::create_event).map(EventId)
    }

    fn create_timed_event(&self) -> Result<EventId, GpuError> {
        self.within_context(Api::create_timed_event).map(EventId)
    }

    unsafe fn elapsed(&self, from: EventId, to: EventId) -> Result<Duration, GpuError> {
        // SAFETY: the caller's promise.
        let milliseconds =
            self.within_context(|api| unsafe { api.elapsed(from.0, to.0) })?;
        Ok(Duration::try_from_secs_f32(milliseconds / 1e3).unwrap_or_default())
    }

    unsafe fn destroy_event(&self, event: EventId) {
        // SAFETY: the caller's promise.
        let _ = self.within_context(|api| unsafe { api.destroy_event(event.0) });
    }

    unsafe fn record(&self, event: EventId, stream: StreamId) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe { api.record(event.0, stream.0) })
    }

    fn records_all(&self) -> bool {
        self.api.records_contexts()
    }

    unsafe fn record_all(&self, event: EventId) -> Result<(), GpuError> {
        let own = (self.device, self.context);
        // SAFETY: the caller's promise; `self` retains the context.
        self.within_context(|api| unsafe { self.everywhere.record(api, own, event.0) })
    }

    unsafe fn stream_waits(
        &self,
        stream: StreamId,
        event: EventId,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe { api.stream_waits(stream.0, event.0) })
    }

    unsafe fn is_reached(&self, event: EventId) -> Result<bool, GpuError> {
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe { api.is_reached(event.0) })
    }

    /// Asks again and again: the driver's own wait has no deadline.
    unsafe fn wait_for(&self, event: EventId, timeout: Duration) -> Result<(), GpuError> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(20);
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.is_reached(event) }? {
                return Ok(());
            }
            if began.elapsed() >= timeout {
                let seconds = timeout.as_secs();
                return Err(GpuError::Late { what: "the work before an event", seconds });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    unsafe fn upload(
        &self,
        to: Address,
        from: &[u8],
        stream: StreamId,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe { api.upload(to.0, from, stream.0) })
    }

    unsafe fn download(
        &self,
        to: &mut [u8],
        from: Address,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe { api.download(to, from.0, stream.0) })
    }

    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe { api.copy(to.0, from.0, bytes, stream.0) })
    }

    fn kernel(&self, name: &'static CStr) -> Result<KernelId, GpuError> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kernels.get(name) {
            return Ok(*found);
        }
        let call = "cuModuleGetFunction";
        let module = match &self.module {
            Ok(module) => *module,
            Err(why) => return unavailable(why.clone()),
        };
        // SAFETY: `self` has it loaded.
        let found = self.within_context(|api| unsafe { api.function(module, name) });
        let found = found.map_err(|error| GpuError::Driver {
            call,
            why: format!("there is no kernel {}: {error}", name.to_string_lossy()),
        })?;
        kernels.insert(name, KernelId(found));
        Ok(KernelId(found))
    }

    unsafe fn launch(
        &self,
        kernel: KernelId,
        launch: Launch,
        stream: StreamId,
        arguments: &[*const c_void],
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        self.within_context(|api| unsafe {
            api.launch(kernel.0, launch, stream.0, arguments)
        })
    }
}

/// What the driver and the system say of a device.
fn describe(api: Api, device: c_int, places: &Places) -> Called<Card> {
    use sys::CUdevice_attribute as Attribute;
    let attribute = |of| api.attribute(of, device);
    Ok(Card {
        ordinal: 0,
        name: api.device_name(device)?,
        driver: String::new(),
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        n_multiprocessors: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        )?,
        memory_bytes: api.memory_bytes(device)?,
        numa_node: places.numa_node(&api.bus_id(device)?),
    })
}

/// CUDA's way of writing versions: 12,040 is 12.4.
fn dotted(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn unavailable<T>(why: impl Into<String>) -> Result<T, GpuError> {
    Err(GpuError::Unavailable { why: why.into() })
}
