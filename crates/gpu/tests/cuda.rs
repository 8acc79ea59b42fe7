//! NVIDIA's driver, as this crate calls it, over a stub of its library: real dynamic loading, real
//! calls, host memory behind them.
//!
//! Every test compiles the stub and runs one of the ignored tests below in a child process whose
//! loader finds the stub first. Without a C compiler they print that they were skipped.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![allow(
    unsafe_code,
    reason = "calls the driver as its contract says, and functions of the stub"
)]

use std::ffi::c_int;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bothends_gpu::GpuError;
use bothends_gpu::conformance;
use bothends_gpu::driver::cuda::{Cuda, Places};
use bothends_gpu::driver::{Driver, Launch};
use bothends_gpu::kinds::{DeviceMemory, PageLocked};
use bothends_gpu::owners::{ConsumerStream, Gpu};
use bothends_gpu::staging::DeviceFeed;
use bothends_slots::conformance::memory;
use bothends_slots::{Ring, RingConfig};

const PTX: &str = ".version 8.4\n.target sm_75\n.address_size 64\n";

/// Runs an ignored test of this file with the stub as the driver.
fn in_child(test: &str, mode: &str, flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub/cuda.c");
    let library = folder.path().join("libcuda.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-pthread", "-Wall", "-Werror", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .args(flags)
        .status();
    match built {
        Ok(status) => assert!(status.success(), "the stub does not compile"),
        Err(error) => return println!("skipped: no C compiler ({error})"),
    }
    child(test, mode, folder.path());
}

/// The same without a stub: the loader finds what `folder` has first.
fn child(test: &str, mode: &str, folder: &Path) {
    let before = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", format!("{}:{before}", folder.display()))
        .env("BOTHENDS_STUB", mode)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mode}: {said}\n{failed}");
    assert!(said.contains("1 passed"), "{mode}: no such test: {said}");
}

#[test]
fn the_contract_is_kept() {
    in_child("child_keeps_the_contract", "", &[]);
}

#[test]
fn memory_batches_and_kernels_go_through() {
    in_child("child_moves_batches", "", &[]);
}

#[test]
fn the_context_of_others_is_left_alone() {
    in_child("child_restores_the_context", "", &[]);
}

#[test]
fn a_forked_process_is_told_so() {
    in_child("child_forks", "", &[]);
}

#[test]
fn what_is_missing_is_named() {
    for mode in ["no_device", "init_fails", "old", "none_visible", "no_context"] {
        in_child("child_is_refused", mode, &[]);
    }
    in_child("child_is_refused", "missing", &["-DMISSING"]);
}

#[test]
fn a_card_too_old_for_the_kernels_copies_without_them() {
    in_child("child_is_too_old_for_kernels", "volta", &[]);
}

#[test]
fn kernels_that_do_not_load_are_a_reason() {
    in_child("child_has_bad_kernels", "", &[]);
}

#[test]
fn the_consumers_stream_is_honoured() {
    in_child("child_lends", "", &[]);
}

#[test]
fn a_driver_that_cannot_tell_when_all_is_done_says_so() {
    in_child("child_cannot_record_all", "", &["-DNO_CONTEXT_EVENTS"]);
}

#[test]
fn the_end_of_everything_is_that_of_all_devices_in_use() {
    in_child("child_has_two_devices", "two_devices", &[]);
}

#[test]
fn a_graph_that_another_thread_captures_is_not_spoilt() {
    in_child("child_calls_beside_a_capture", "", &[]);
}

#[test]
fn a_driver_that_hangs_is_left_behind() {
    in_child("child_hangs", "hangs", &[]);
}

#[test]
fn a_device_that_hangs_is_late() {
    in_child("child_is_late", "never_reached", &[]);
}

#[test]
fn a_machine_without_a_driver_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    child("child_has_no_driver", "", folder.path());
}

/// Whether [`child`] has started this: whoever runs ignored tests all at once has no stub.
fn is_child() -> bool {
    std::env::var_os("BOTHENDS_STUB").is_some()
}

/// A number that the stub exports.
fn alive(kind: c_int) -> c_int {
    // SAFETY: the stub is loaded already.
    let stub = unsafe { libloading::Library::new("libcuda.so") }.unwrap();
    // SAFETY: the type is the stub's.
    let count = unsafe { stub.get::<unsafe extern "C" fn(c_int) -> c_int>("stub_alive") };
    // SAFETY: it reads numbers.
    unsafe { count.unwrap()(kind) }
}

fn open() -> Arc<Cuda> {
    Arc::new(Cuda::open(0, PTX).unwrap())
}

#[test]
#[ignore = "needs the stub: run by the test of the contract"]
fn child_keeps_the_contract() {
    if !is_child() {
        return;
    }
    let cuda = open();
    conformance::all(&*cuda);
    let card = cuda.card();
    assert_eq!((card.name.as_str(), card.capability), ("Stub of a device", (9, 0)));
    assert_eq!((card.n_multiprocessors, card.memory_bytes), (132, 80 << 30));
    assert!(card.driver.ends_with("CUDA 13.0") || card.driver.ends_with("(CUDA 13.0)"));
    drop(cuda);
    assert_eq!([0, 1, 2, 3, 4, 5].map(alive), [0; 6], "everything is given back");
}

#[test]
#[ignore = "needs the stub: run by the test of batches"]
fn child_moves_batches() {
    if !is_child() {
        return;
    }
    let cuda = open();
    let gpu = Gpu::new(cuda.clone()).unwrap();
    memory::all(&PageLocked::of(&gpu));
    memory::all(&DeviceMemory::of(&gpu));
    let config = RingConfig { n_slots: 2, slot_bytes: 10_000 };
    let ring = Ring::of(&PageLocked::of(&gpu), config).unwrap();
    let mut feed = DeviceFeed::new(&gpu, config).unwrap();
    for stamp in 1..=50 {
        let mut host = ring.take(Duration::ZERO).unwrap().host().unwrap();
        host.fill(stamp);
        let mut batch = feed.submit(host, 9_999).unwrap();
        batch.lend(ConsumerStream::DEFAULT).unwrap();
        let (bytes, len) = (batch.address().0, batch.len() as u64);
        let more: u8 = 3;
        let arguments = [
            (&raw const bytes).cast(),
            (&raw const len).cast(),
            (&raw const more).cast(),
        ];
        let launch = Launch { grid: [2, 3, 4], block: 128, shared_bytes: 16 };
        let kernel = cuda.kernel(c"stub_add").unwrap();
        let stream = ConsumerStream::DEFAULT.id();
        // SAFETY: the kernel's arguments, and memory that the batch has.
        unsafe { cuda.launch(kernel, launch, stream, &arguments) }.unwrap();
        let mut back = vec![0; 9_999];
        // SAFETY: the stub copies before it returns.
        unsafe { cuda.download(&mut back, batch.address(), stream) }.unwrap();
        assert!(back.iter().all(|byte| *byte == stamp + 3), "batch {stamp}");
        batch.release(ConsumerStream::DEFAULT);
    }
    assert_eq!(feed.poll().unwrap(), 0);
    let error = gpu.allocate(1 << 40).unwrap_err();
    assert_eq!(error, GpuError::OutOfMemory { bytes: 1 << 40 });
    drop((feed, ring));
    gpu.shut_down(Duration::from_secs(60)).unwrap();
    drop((gpu, cuda));
    assert_eq!([0, 1, 2, 3, 4, 5].map(alive), [0; 6], "everything is given back");
}

/// How often work on a stream was made to wait, and its place recorded.
fn noted(stream: u64) -> [c_int; 2] {
    // SAFETY: the stub is loaded already.
    let stub = unsafe { libloading::Library::new("libcuda.so") }.unwrap();
    type Noted = unsafe extern "C" fn(usize, c_int) -> c_int;
    // SAFETY: the type is the stub's.
    let noted = unsafe { stub.get::<Noted>("stub_noted") }.unwrap();
    let stream = usize::try_from(stream).unwrap();
    // SAFETY: it reads numbers.
    [0, 1].map(|records| unsafe { noted(stream, records) })
}

#[test]
#[ignore = "needs the stub: run by the test of consumers' streams"]
fn child_lends() {
    if !is_child() {
        return;
    }
    let gpu = Gpu::new(open()).unwrap();
    let config = RingConfig { n_slots: 2, slot_bytes: 4096 };
    let ring = Ring::of(&PageLocked::of(&gpu), config).unwrap();
    let mut feed = DeviceFeed::new(&gpu, config).unwrap();
    let theirs = gpu.driver().create_stream().unwrap().0;
    // The per-thread stream's end is recorded on the legacy one: any thread may release.
    for (handle, end) in [(0, 0), (1, 1), (2, 0), (theirs, theirs)] {
        let host = ring.take(Duration::ZERO).unwrap().host().unwrap();
        let mut batch = feed.submit(host, 4096).unwrap();
        let (before, end_before) = (noted(handle)[0], noted(end)[1]);
        // SAFETY: default streams, and one that is never destroyed.
        batch.lend(unsafe { ConsumerStream::of_handle(handle) }).unwrap();
        assert_eq!(noted(handle)[0], before + 1, "stream {handle} waits");
        assert_eq!(noted(end)[1], end_before, "and nothing is released yet");
        std::thread::spawn(move || drop(batch)).join().unwrap();
        assert_eq!(noted(end)[1], end_before + 1, "the end of stream {handle}");
    }
}

#[test]
#[ignore = "needs the stub: run by the test of two devices"]
fn child_has_two_devices() {
    if !is_child() {
        return;
    }
    // SAFETY: the stub is loaded already, or is now.
    let stub = unsafe { libloading::Library::new("libcuda.so") }.unwrap();
    type Records = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the type is the stub's.
    let records = unsafe { stub.get::<Records>("stub_context_records") }.unwrap();
    // SAFETY: it reads numbers.
    let records = || [0, 1].map(|other| unsafe { records(other) });
    let gpu = Gpu::new(open()).unwrap();
    gpu.can_record_all().unwrap();
    assert_eq!(records(), [1, 0], "nobody uses the other device");
    // As another library of the process would.
    let other = Gpu::new(Arc::new(Cuda::open(1, PTX).unwrap())).unwrap();
    gpu.can_record_all().unwrap();
    assert_eq!(records(), [2, 1]);
    other.can_record_all().unwrap();
    assert_eq!(records(), [3, 2], "from either side");
    conformance::all(gpu.driver());
    conformance::all(other.driver());
}

#[test]
#[ignore = "needs the stub: run by the test of captures"]
fn child_calls_beside_a_capture() {
    if !is_child() {
        return;
    }
    use cudarc::driver::sys;
    let cuda = open();
    let gpu = Gpu::new(cuda.clone()).unwrap();
    // SAFETY: the stub is loaded already.
    let stub = unsafe { libloading::Library::new("libcuda.so") }.unwrap();
    type Capture = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the type is the stub's.
    let capture = unsafe { stub.get::<Capture>("stub_capture") }.unwrap();
    // SAFETY: it sets a number.
    let capture = |begins| unsafe { capture(begins) };
    capture(1);
    let event = gpu.stream().unwrap().record().unwrap();
    assert_eq!(event.is_reached(), Ok(true), "no error that says nothing of the work");
    conformance::a_stream_runs_in_order(&*cuda);
    conformance::registered_memory_can_be_registered_again(&*cuda);
    drop(gpu.allocate(64).unwrap());
    assert_eq!(gpu.sweep(), 0);
    assert_eq!(capture(1), 1, "the capture goes on");
    // What the thread does itself is as forbidden as before.
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stub is there, and `mode` is a place for a mode.
    let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
    assert_eq!(mode, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
}

#[test]
#[ignore = "needs the stub: run by the test of old drivers"]
fn child_cannot_record_all() {
    if !is_child() {
        return;
    }
    let gpu = Gpu::new(open()).unwrap();
    let error = gpu.can_record_all().unwrap_err();
    let expected = "failed in cuCtxRecordEvent: CUDA_ERROR_NOT_SUPPORTED";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
#[ignore = "needs the stub: run by the test of contexts"]
fn child_restores_the_context() {
    if !is_child() {
        return;
    }
    use cudarc::driver::sys;
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: the stub is there, and `context` is a place for a handle.
        let code = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
        context
    };
    let cuda = open();
    assert!(current().is_null(), "opening leaves the thread as it was");
    conformance::a_stream_runs_in_order(&*cuda);
    assert!(current().is_null());
    // SAFETY: the stub is loaded already.
    let stub = unsafe { libloading::Library::new("libcuda.so") }.unwrap();
    type Other = unsafe extern "C" fn() -> sys::CUcontext;
    // SAFETY: the type is the stub's.
    let other = unsafe { stub.get::<Other>("stub_other_context") }.unwrap();
    // SAFETY: it returns an address.
    let other = unsafe { other() };
    // SAFETY: the stub knows it.
    let code = unsafe { sys::cuCtxSetCurrent(other) };
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
    conformance::a_stream_runs_in_order(&*cuda);
    cuda.kernel(c"nothing").unwrap_err();
    assert_eq!(current(), other, "another library's device is still its device");
}

#[test]
#[ignore = "needs the stub: run by the test of forks"]
fn child_forks() {
    if !is_child() {
        return;
    }
    let cuda = open();
    let in_fork = {
        let cuda = cuda.clone();
        move || match cuda.create_event() {
            Err(GpuError::Driver { call: "fork", .. }) => Ok(()),
            _ => Err(io::Error::other("the driver was called in a forked process")),
        }
    };
    let mut command = Command::new("true");
    // SAFETY: the closure compares numbers and allocates, which glibc allows after a fork.
    unsafe { command.pre_exec(in_fork) };
    assert!(command.status().unwrap().success());
    cuda.create_event().expect("the parent may");
}

#[test]
#[ignore = "needs the stub: run by the test of refusals"]
fn child_is_refused() {
    if !is_child() {
        return;
    }
    let mode = std::env::var("BOTHENDS_STUB").unwrap();
    let expected = match mode.as_str() {
        "no_device" => "cuInit failed with CUDA_ERROR_NO_DEVICE",
        "init_fails" => "cuInit failed with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "old" => "serves CUDA 11.8 and 12.4 is the least; update NVIDIA's driver",
        "none_visible" => "there is no device 0: the driver shows 0",
        "no_context" => "cuDevicePrimaryCtxRetain failed with CUDA_ERROR_OUT_OF_MEMORY",
        "missing" => "libcuda.so.1 has no cuLaunchKernel",
        other => panic!("no mode {other}"),
    };
    let error = Cuda::open(0, PTX).unwrap_err();
    assert!(matches!(error, GpuError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
#[ignore = "needs the stub: run by the test of old cards"]
fn child_is_too_old_for_kernels() {
    if !is_child() {
        return;
    }
    // It is never given the text: what the driver says of one that it cannot compile helps nobody.
    let cuda = Cuda::open(0, "no PTX").unwrap();
    conformance::a_stream_runs_in_order(&cuda);
    conformance::registered_memory_can_be_registered_again(&cuda);
    let error = cuda.kernel(c"stub_add").unwrap_err();
    let expected = "no usable GPU: Stub of a device has compute capability 7.0, and the kernels need 7.5";
    assert_eq!(error.to_string(), expected);
}

#[test]
#[ignore = "needs the stub: run by the test of kernels"]
fn child_has_bad_kernels() {
    if !is_child() {
        return;
    }
    for (ptx, expected) in [
        (
            "no PTX",
            "kernels cannot be loaded: the GPU driver failed in cuModuleLoadData: \
                    CUDA_ERROR_INVALID_PTX",
        ),
        (".version 99.0\n", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        (".version 8.4\0", "contains a NUL byte"),
    ] {
        let error = Cuda::open(0, ptx).unwrap_err();
        assert!(matches!(error, GpuError::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(alive(5), 0, "the context is released");
    let error = Cuda::open(1, PTX).unwrap_err();
    assert!(error.to_string().contains("there is no device 1"), "{error}");
    let without = Cuda::open(0, "").unwrap();
    let error = without.kernel(c"stub_add").unwrap_err();
    assert!(error.to_string().contains("no kernels were loaded"), "{error}");
}

#[test]
#[ignore = "needs the stub: run by the test of drivers that hang"]
fn child_hangs() {
    if !is_child() {
        return;
    }
    let limit = Duration::from_millis(100);
    let error = Cuda::open_at(0, PTX, &Places::default(), limit).unwrap_err();
    assert!(error.to_string().contains("did not open device 0 within"), "{error}");
}

#[test]
#[ignore = "needs the stub: run by the test of devices that hang"]
fn child_is_late() {
    if !is_child() {
        return;
    }
    let gpu = Gpu::new(open()).unwrap();
    let event = gpu.stream().unwrap().record().unwrap();
    assert_eq!(event.is_reached(), Ok(false));
    let error = event.wait(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, GpuError::Late { .. }), "{error}");
}

#[test]
#[ignore = "needs a loader that finds nothing first: run by the test of no driver"]
fn child_has_no_driver() {
    if !is_child() {
        return;
    }
    match Cuda::open(0, PTX) {
        Ok(cuda) => {
            println!("skipped: this machine has a driver and a {}", cuda.card().name);
        }
        Err(error) => {
            assert!(matches!(error, GpuError::Unavailable { .. }), "{error:?}");
            println!("{error}");
        }
    }
}
