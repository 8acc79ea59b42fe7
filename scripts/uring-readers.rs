//! Reads records of one file by io_uring, with our reader or with tokio-uring, and prints what that took.
//!
//! For scripts/measure-uring, which builds it outside of the workspace: nothing of ours depends on tokio-uring.
//! Both read the same records in the same order, as many at once, into buffers that are used again, from one open
//! file, and look at one byte of each page that they were given.

use std::cell::Cell;
use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_io::{Direct, OpenFile, ReadRequest, ReaderConfig, ReaderKind, open_reader};
use nix::sys::resource::{UsageWho, getrusage};
use tokio_uring::buf::fixed::FixedBufPool;

const RECORD: usize = 110_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [reader, file, n_records, depth] = &words[..] else {
        panic!("uring-readers ours|tokio-uring|tokio-uring-fixed FILE RECORDS DEPTH");
    };
    let (n_records, depth): (u64, usize) = (n_records.parse().unwrap(), depth.parse().unwrap());
    // A permutation, so that the kernel does not read ahead: 7919 divides none of the numbers used here.
    let offsets: Vec<u64> =
        (0..n_records).map(|n| n * 7919 % n_records * RECORD as u64).collect();
    let (begin, cpu) = (Instant::now(), cpu());
    let sum = match reader.as_str() {
        "ours" => ours(Path::new(file), &offsets, depth),
        "tokio-uring" => tokio_uring(Path::new(file), offsets, depth),
        "tokio-uring-fixed" => tokio_uring_fixed(Path::new(file), offsets, depth),
        other => panic!("{other}?"),
    };
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), (self::cpu() - cpu).as_secs_f64());
    println!("{:.3} {:.1} {sum}", cpu / n_records as f64 * 1e6, n_records as f64 / seconds);
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let both = [usage.user_time(), usage.system_time()];
    both.iter().map(|t| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1000)).sum()
}

fn look(bytes: &[u8]) -> u64 {
    black_box(bytes).iter().step_by(4096).map(|byte| u64::from(*byte)).sum()
}

fn ours(path: &Path, offsets: &[u64], depth: usize) -> u64 {
    let config = ReaderConfig {
        kind: ReaderKind::Uring,
        depth: depth as u32,
        buffer_bytes: 128 << 10,
        n_buffers: depth as u32 + 8,
        ..ReaderConfig::default()
    };
    let mut reader = open_reader(&config).unwrap();
    let file = Arc::new(OpenFile::open(path, Direct::Off).unwrap());
    let (mut sum, mut left) = (0, offsets.len());
    let mut offsets = offsets.iter();
    while left > 0 {
        while reader.in_flight() < depth {
            let Some(offset) = offsets.next() else { break };
            let file = Arc::clone(&file);
            reader.submit(ReadRequest { file, offset: *offset, len: RECORD as u32, tag: *offset }).unwrap();
        }
        let done = reader.poll(Duration::from_secs(10)).expect("a read ends");
        sum += look(&done.result.unwrap());
        left -= 1;
    }
    sum
}

/// As many tasks as reads at once; each reads into a buffer of its own, again and again.
fn tokio_uring(path: &Path, offsets: Vec<u64>, depth: usize) -> u64 {
    tokio_uring::builder().entries(depth as u32).start(async {
        let file = Rc::new(tokio_uring::fs::File::open(path).await.unwrap());
        let shared = Rc::new((offsets, Cell::new(0_usize), Cell::new(0_u64)));
        let task = |_| {
            let (file, shared) = (Rc::clone(&file), Rc::clone(&shared));
            tokio_uring::spawn(async move {
                let mut buffer = vec![0; RECORD];
                while let Some(offset) = next(&shared) {
                    let (result, back) = file.read_at(buffer, offset).await;
                    assert_eq!(result.unwrap(), RECORD, "a short read from the page cache");
                    shared.2.set(shared.2.get() + look(&back));
                    buffer = back;
                }
            })
        };
        for task in (0..depth).map(task).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        shared.2.get()
    })
}

/// The same with buffers that the kernel knows, as ours are.
fn tokio_uring_fixed(path: &Path, offsets: Vec<u64>, depth: usize) -> u64 {
    tokio_uring::builder().entries(depth as u32).start(async {
        let file = Rc::new(tokio_uring::fs::File::open(path).await.unwrap());
        let pool = FixedBufPool::new((0..depth).map(|_| Vec::with_capacity(RECORD)));
        pool.register().unwrap();
        let shared = Rc::new((offsets, Cell::new(0_usize), Cell::new(0_u64)));
        let task = |_| {
            let (file, shared, pool) = (Rc::clone(&file), Rc::clone(&shared), pool.clone());
            tokio_uring::spawn(async move {
                let mut buffer = pool.try_next(RECORD).unwrap();
                while let Some(offset) = next(&shared) {
                    let (result, back) = file.read_fixed_at(buffer, offset).await;
                    assert_eq!(result.unwrap(), RECORD, "a short read from the page cache");
                    shared.2.set(shared.2.get() + look(&back));
                    buffer = back;
                }
            })
        };
        for task in (0..depth).map(task).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        shared.2.get()
    })
}

fn next(shared: &(Vec<u64>, Cell<usize>, Cell<u64>)) -> Option<u64> {
    let at = shared.1.get();
    shared.1.set(at + 1);
    shared.0.get(at).copied()
}
