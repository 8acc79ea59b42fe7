//! Modules that do what they may, and all that they may not.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod batch;
#[path = "../../../../tests/nvme/module.rs"]
mod module;

use bothends_nvme::commands::MemoryRange;

use super::super::super::memory::Memory;
use super::super::{Ranges, Stop};
use super::*;
use module::{
    DATA, DATA_BYTES, END, Module as Built, RANGE_BYTES, READ, RUN, WRITE, call,
};

/// A runtime with a memory, whose first 8 bytes are range 1 and whose next 8 are range 2.
struct Bench {
    wasm: Wasm,
    ranges: Ranges,
    stop: Stop,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let all = [0, 8].map(|from| MemoryRange { nsid: 2, from, bytes: 8 });
        let memory = Arc::new(Memory::new(64));
        let ranges = Ranges { memory, all: Arc::new(all) };
        ranges.write(1, 0, &100_u64.to_le_bytes()).unwrap();
        Self { wasm: Wasm::new(limits).unwrap(), ranges, stop: Stop::default() }
    }

    fn prepare(&self, module: &[u8]) -> Result<Arc<dyn Program>, Status> {
        self.wasm.prepare(module, 7)
    }

    fn run(&self, program: &dyn Program) -> Result<Done, Status> {
        let ranges = &self.ranges;
        let data = b"inline";
        program.run(&Call {
            ranges,
            parameter_1: 20,
            parameter_2: 3,
            data,
            stop: self.stop.clone(),
        })
    }

    fn run_body(&self, body: &[u8]) -> Result<Done, Status> {
        self.run(&*self.prepare(&Built::of(body).bytes())?)
    }

    fn written(&self) -> u64 {
        let mut own = [0; 8];
        self.ranges.read(2, 0, &mut own).unwrap();
        u64::from_le_bytes(own)
    }
}

/// A limit that ends a test at once.
const SMALL: Limits = Limits { fuel: 100_000, ..Limits::DEFAULT };

/// `loop { … }`
fn forever(body: &[u8]) -> Vec<u8> {
    [&[0x03, 0x40][..], body, &[0x0c, 0, 0x0b, 0x42, 0]].concat()
}

#[test]
fn a_program_reads_writes_and_returns() {
    let bench = Bench::new(SMALL);
    let program = bench.prepare(&module::adds()).unwrap();
    assert_eq!((program.kind(), program.id()), (KIND, 7));
    let done = bench.run(&*program).unwrap();
    assert_eq!((bench.written(), done.value), (120, 123));
    let Work::Fuel(fuel) = done.work else { panic!("{done:?}") };
    assert!((10..100).contains(&fuel), "{fuel}");
}

#[test]
fn the_same_input_costs_the_same_fuel() {
    let bench = Bench::new(SMALL);
    let program = bench.prepare(&module::adds()).unwrap();
    let first = bench.run(&*program).unwrap();
    for _ in 0..5 {
        assert_eq!(bench.run(&*program).unwrap(), first);
    }
    // In another runtime, too.
    let other = Bench::new(Limits::DEFAULT);
    let program = other.prepare(&module::adds()).unwrap();
    assert_eq!(other.run(&*program).unwrap(), first);
}

#[test]
fn a_program_has_the_data_of_its_command() {
    let bench = Bench::new(SMALL);
    // Its bytes 2 to 6 to address 0, and from there to range 2; then how many there are.
    let body = [
        call(DATA, [2, 0, 4]),
        call(WRITE, [2, 0, 0, 8]),
        call(DATA_BYTES, []),
        vec![0xad],
    ];
    assert_eq!(bench.run_body(&body.concat()).unwrap().value, 6);
    assert_eq!(bench.written().to_le_bytes(), *b"line\0\0\0\0");
}

#[test]
fn ranges_have_lengths_and_those_that_are_not_there_have_none() {
    let bench = Bench::new(SMALL);
    for (range, bytes) in [(0, u64::MAX), (1, 8), (2, 8), (3, u64::MAX)] {
        let done = bench.run_body(&call(RANGE_BYTES, [range])).unwrap();
        assert_eq!(done.value, bytes, "range {range}");
    }
}

#[test]
fn what_a_program_may_not_do_ends_it_with_its_status() {
    let bench = Bench::new(SMALL);
    let good = bench.prepare(&module::adds()).unwrap();
    let with = |ending: &[u8]| [ending, &[0x42, 0][..]].concat();
    let grow = |pages: usize| {
        [vec![0x41], module::number(pages), vec![0x40, 0, 0x1a, 0x42, 0]].concat()
    };
    let own = Status { kind: 7, code: 0x41 };
    for (what, body, status) in [
        ("loops", forever(&[]), Status::PROGRAM_RESOURCES),
        ("calls itself", vec![0x42, 0, 0x42, 0, 0x10, RUN], Status::PROGRAM_RESOURCES),
        ("grows", grow(1 << 13), Status::PROGRAM_RESOURCES),
        ("traps", vec![0x00], Status::INTERNAL_ERROR),
        ("loads elsewhere", vec![0x41, 0x7f, 0x29, 3, 0], Status::INTERNAL_ERROR),
        ("reads too much", with(&call(READ, [1, 0, 0, 9])), Status::INVALID_FIELD),
        ("reads behind", with(&call(READ, [1, 8, 0, 1])), Status::INVALID_FIELD),
        ("writes behind", with(&call(WRITE, [2, 4, 0, 8])), Status::INVALID_FIELD),
        ("writes no range", with(&call(WRITE, [3, 0, 0, 1])), Status::INVALID_FIELD),
        ("has no such data", with(&call(DATA, [4, 0, 3])), Status::INVALID_FIELD),
        // To the address of which only the last bit is missing.
        (
            "reads elsewhere",
            with(&[0x41, 1, 0x41, 0, 0x41, 0x7f, 0x41, 1, 0x10, READ]),
            Status::INTERNAL_ERROR,
        ),
        ("ends itself", with(&[0x41, 0xc1, 0x0e, 0x10, END]), own),
        ("ends well", with(&call(END, [0])), Status::INTERNAL_ERROR),
        ("ends oddly", with(&[0x41, 0x7f, 0x10, END]), Status::INTERNAL_ERROR),
    ] {
        assert_eq!(bench.run_body(&body).unwrap_err(), status, "a program that {what}");
        assert_eq!(bench.run(&*good).unwrap().value, 123, "after one that {what}");
    }
    // As far as the limit, a program may grow.
    assert_eq!(bench.run_body(&grow(1000)).unwrap().value, 0);
}

/// Moving bytes costs fuel too, so that a loop of the largest reads comes to its end as any other.
#[test]
fn bytes_that_are_moved_are_paid_for() {
    let bench = Bench::new(SMALL);
    let cost = |bytes| {
        let body = [call(READ, [1, 0, 0, bytes]), vec![0x42, 0]].concat();
        let Work::Fuel(fuel) = bench.run_body(&body).unwrap().work else { panic!() };
        fuel
    };
    assert_eq!(cost(8), cost(0) + 1);
}

#[test]
fn time_ends_what_fuel_does_not() {
    let limits =
        Limits { fuel: u64::MAX, time: Duration::from_millis(30), ..Limits::DEFAULT };
    let bench = Bench::new(limits);
    // Fills all its memory again and again.
    let fill = [0x41, 0, 0x41, 0, 0x41, 0x80, 0x80, 0x04, 0xfc, 0x0b, 0];
    let ended = bench.run_body(&forever(&fill));
    assert_eq!(ended.unwrap_err(), Status::PROGRAM_RESOURCES);
}

#[test]
fn a_program_that_runs_ends_when_it_is_asked_to() {
    let bench = Bench::new(Limits { fuel: u64::MAX, ..Limits::DEFAULT });
    bench.stop.ask(Status::ABORT_REQUESTED);
    let ended = bench.run_body(&forever(&[]));
    assert_eq!(ended.unwrap_err(), Status::ABORT_REQUESTED);
}

#[test]
fn modules_that_cannot_run_are_not_activated() {
    let bench = Bench::new(SMALL);
    let nothing = || Built::of(&[0x42, 0]);
    let foreign = ("wasi_snapshot_preview1", "fd_write", 2);
    let data = Status::PROGRAM_DATA;
    let large = Status::PROGRAM_RESOURCES;
    let no_memory = vec![("run", 0, RUN)];
    let no_entry = vec![("memory", 2, 0)];
    for (what, module, status) in [
        (
            "imports others' functions",
            Built { imports: vec![foreign; 6], ..nothing() },
            data,
        ),
        ("shows no memory", Built { exports: no_memory, ..nothing() }, data),
        ("has no entry", Built { exports: no_entry, ..nothing() }, data),
        ("has another entry", Built { entry: 1, ..nothing() }, data),
        ("starts by itself", Built { start: vec![RUN], ..nothing() }, data),
        ("does not type-check", Built::of(&[0x41, 0]), data),
        ("wants memory", Built { pages: 4097, ..nothing() }, large),
        ("wants locals", Built { locals: vec![1 << 19, 1 << 19, 1], ..nothing() }, large),
        ("has many functions", Built { more: 1 << 14, ..nothing() }, large),
        ("has many types", Built { types: 1 << 14, ..nothing() }, large),
        ("is long", Built::of(&vec![0x01; 257 << 10]), large),
    ] {
        let bytes = module.bytes();
        assert_eq!(bench.prepare(&bytes).err(), Some(status), "a module that {what}");
    }
    assert_eq!(bench.prepare(&vec![0; 5 << 20]).err(), Some(large));
    assert_eq!(bench.prepare(b"(module)").err(), Some(data));
    let largest = Built { pages: 4096, ..nothing() };
    assert!(bench.prepare(&largest.bytes()).is_ok(), "the limit itself is refused");
}

/// Whatever is loaded is a program or is refused, and what it does harms nobody.
#[test]
fn no_bytes_harm_the_device() {
    let bench = Bench::new(SMALL);
    let good = module::adds();
    for n in 0..good.len() {
        assert!(bench.prepare(&good[..n]).is_err(), "cut after {n} bytes");
        for flip in [0x01, 0x10, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[n] ^= flip;
            if let Ok(program) = bench.prepare(&bytes) {
                let _ = bench.run(&*program);
            }
        }
    }
    let program = bench.prepare(&good).unwrap();
    bench.ranges.write(1, 0, &100_u64.to_le_bytes()).unwrap();
    assert_eq!(bench.run(&*program).unwrap().value, 123);
}
