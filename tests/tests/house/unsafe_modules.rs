//! The table of modules that open `unsafe`. It checks nothing: `house.rs` does.

/// The modules that open `unsafe`, each with what it cannot do without.
pub(crate) const UNSAFE_MODULES: &[(&str, &str)] = &[
    ("firmware-sim/programs/guest/src/lib.rs", "gives a device addresses in its program"),
    ("crates/gpu/src/conformance.rs", "calls a driver as its contract says"),
    ("crates/gpu/src/driver.rs", "declares what a GPU's driver cannot check"),
    ("crates/gpu/src/driver/cuda.rs", "hands addresses and handles to a foreign library"),
    ("crates/gpu/src/driver/cuda/calls.rs", "calls functions of a foreign library"),
    ("crates/gpu/src/driver/cuda/everywhere.rs", "hands contexts to a foreign library"),
    ("crates/gpu/src/driver/fake.rs", "reads a kernel's arguments where they are"),
    (
        "crates/gpu/src/driver/fake/state.rs",
        "copies host memory after the call that named it",
    ),
    ("crates/gpu/src/finish/feed.rs", "launches kernels on slots that it has"),
    ("crates/gpu/src/kinds.rs", "tells a driver of memory that it will copy from"),
    ("crates/gpu/src/owners.rs", "vouches to the driver for handles that it owns"),
    ("crates/gpu/src/owners/graveyard.rs", "frees device memory that it was given"),
    (
        "crates/gpu/src/path/cufile.rs",
        "opens a foreign library, calls two functions of it",
    ),
    ("crates/gpu/src/staging.rs", "names streams to the driver that others keep alive"),
    ("crates/gpu/src/staging/feed.rs", "names memory to the driver that it keeps alive"),
    ("crates/gpu/tests/cuda.rs", "calls functions of a stub of a driver"),
    ("crates/gpu/tests/drivers.rs", "enqueues copies as another library would"),
    (
        "crates/gpu/tests/staging/naive.rs",
        "calls a driver wrongly, which is what it is for",
    ),
    ("crates/gpu/tests/staging/world.rs", "launches kernels of the fake driver"),
    (
        "crates/gpu-decode/src/decoder.rs",
        "launches kernels on memory that a driver cannot check",
    ),
    ("crates/gpu-decode/src/prong.rs", "copies to and from a device, and launches there"),
    (
        "crates/gpu-decode/examples/check_gpu/device.rs",
        "enqueues work on memory that is borrowed until it has run",
    ),
    (
        "crates/gpu-decode/tests/support/mod.rs",
        "launches kernels on the CPU twin, with guards round their output",
    ),
    ("crates/gpu/src/adjust.rs", "launches a kernel on memory known by address"),
    ("crates/gpu/tests/adjust.rs", "launches kernels on memory that the test owns"),
    ("crates/gpu/src/finish.rs", "launches a kernel on memory known by address"),
    ("crates/gpu/tests/finish.rs", "launches kernels on memory that the test owns"),
    ("crates/gpu/src/twin.rs", "copies to and from memory that is known by address"),
    ("crates/gpu/src/twin/library.rs", "calls a library that is loaded at run time"),
    (
        "crates/ops/src/kernels/x86.rs",
        "names an instruction whose intrinsic the compiler takes apart",
    ),
    ("crates/ops/src/geometry/flip/x86.rs", "calls what only some processors have"),
    (
        "crates/ops/src/jpeg/store/blocks/neon.rs",
        "calls code compiled for a processor known to be there",
    ),
    (
        "crates/ops/src/jpeg/store/blocks/x86.rs",
        "calls code compiled for a processor known to be there",
    ),
    (
        "crates/ops/src/jpeg/transform/forward/x86.rs",
        "calls code compiled for a processor known to be there",
    ),
    (
        "crates/ops/src/jpeg/transform/idct/x86.rs",
        "vector loads and stores take addresses",
    ),
    (
        "crates/ops/src/jpeg/store/rebuild/scan/x86.rs",
        "calls code compiled for a processor known to be there; gathers from a table",
    ),
    (
        "crates/ops/src/jpeg/entropy/sequential/bmi.rs",
        "calls code compiled for a processor known to be there",
    ),
    (
        "crates/ops/src/jpeg/upsample/x86.rs",
        "calls code compiled for a processor known to be there",
    ),
    (
        "crates/python/src/dlpack.rs",
        "makes C structures that foreign code frees, in capsules of Python's",
    ),
    ("crates/capi/src/batch.rs", "exports names of C; passes on an address"),
    ("crates/capi/src/device.rs", "exports names of C; takes C's word for its streams"),
    ("crates/capi/src/epoch.rs", "exports names of C"),
    ("crates/capi/src/field.rs", "exports names of C"),
    ("crates/capi/src/loader.rs", "exports names of C; passes on addresses"),
    ("crates/capi/src/memory.rs", "follows addresses that C gives"),
    ("crates/capi/src/status.rs", "exports names of C"),
    ("fuzz/src/doors.rs", "calls C's doors as C does, with addresses"),
    (
        "crates/slots/src/heap.rs",
        "takes memory of the kernel or the allocator, and gives it back",
    ),
    ("crates/slots/src/memory.rs", "takes memory of others at their word"),
    ("crates/slots/src/slot.rs", "splits a slot's memory among the workers that fill it"),
    ("crates/slots/src/streaming.rs", "stores past the caches, by address"),
    (
        "crates/energy/src/meters/perf/event.rs",
        "calls perf_event_open, and owns the descriptor that it gives",
    ),
    (
        "crates/io/src/files/drive.rs",
        "gives the kernel addresses of a command's data; asks a node by an ioctl",
    ),
    ("crates/io/src/readers/uring.rs", "gives the kernel addresses to read into"),
    ("crates/runtime/src/threads/priority.rs", "asks the kernel for a scheduling policy"),
    ("crates/ops/src/adjust/blur/x86.rs", "calls what only some processors have"),
    (
        "crates/ops/src/kernels/compiled.rs",
        "calls code compiled for a processor known to be there; cuts off fractions",
    ),
    ("crates/ops/src/adjust/table/avx2.rs", "calls what only some processors have"),
    ("crates/ops/src/adjust/table/avx512.rs", "calls what only some processors have"),
    ("crates/ops/src/adjust/table/neon.rs", "calls what only some processors have"),
    ("crates/ops/src/colour/neon.rs", "calls what only some processors have"),
    ("crates/ops/src/colour/x86.rs", "calls what only some processors have"),
    ("crates/ops/src/geometry/gather/avx512.rs", "calls what only some processors have"),
    (
        "crates/ops/src/geometry/resample/x86/avx2.rs",
        "calls what only some processors have",
    ),
    (
        "crates/ops/src/geometry/resample/x86/avx512/dots.rs",
        "checks the bounds of many inputs at once",
    ),
    (
        "crates/ops/src/geometry/resample/x86/avx512.rs",
        "calls what only some processors have",
    ),
    (
        "crates/ops/src/geometry/resample/x86/blend.rs",
        "calls what only some processors have",
    ),
    ("crates/ops/src/geometry/resample/neon.rs", "calls what only some processors have"),
    ("crates/ops/src/geometry/warp/neon.rs", "calls what only some processors have"),
    (
        "crates/ops/src/geometry/warp/x86.rs",
        "calls code compiled for a processor known to be there",
    ),
    ("crates/ops/src/kernels/vectors.rs", "moves vectors between registers and arrays"),
    ("tests/long-link/src/tun.rs", "makes a network device by an ioctl"),
];
