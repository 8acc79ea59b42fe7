//! What hosts do to a target for hours, in parts whose lengths the caller chooses: a test runs them for a moment, and
//! `scripts/soak-nvme` for long. Each part ends with nothing left of it, and each read is compared with a model.

#![allow(dead_code, reason = "not each test needs all of it")]

use std::collections::BTreeMap;

use bothends_nvme::commands::{
    Admin, BlockSource, Blocks, ByteSource, CopyToBlocks, Durable, FastOnly, Identify,
    Memory, SourceFormat,
};
use bothends_nvme::pdu::Digest;
use bothends_nvme::{Cqe, Data, Sqe, Status};

use crate::device::{BLOCK, Device, content, eventually};
use crate::host::{NAME, Queue, Wish, transport};

const N_BLOCKS: usize = 512;
const MEMORY_BYTES: usize = 8 << 20;

/// Numbers that look random, the same ones for a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }
}

/// What this process holds for connections: descriptors, and threads of the target that serve one.
fn held() -> (usize, usize) {
    let n_threads = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("nvme-") && !name.starts_with("nvme-accept"))
        .count();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), n_threads)
}

/// Has `work` done, after which nothing may be left of its connections.
pub(crate) fn leaves_nothing(device: &Device, work: impl FnOnce()) {
    let nobody_is_left = || {
        eventually("no controller and no connection is left", || {
            device.target.in_use() == (0, 0)
        });
    };
    // The target keeps its image open from the first read on.
    connects(device, 4);
    nobody_is_left();
    eventually("no thread is left", || held().1 == 0);
    let (n_descriptors, _) = held();
    work();
    nobody_is_left();
    eventually("descriptors and threads are as many as before", || {
        held() == (n_descriptors, 0)
    });
}

/// `n` hosts come, use what they have, and go: some of them in order, some in the middle of a PDU.
pub(crate) fn connects(device: &Device, n: usize) {
    let read = Blocks::Read { first: 400, n_blocks: 1 }.entry(1, transport(BLOCK));
    let expected = content(N_BLOCKS * BLOCK)[400 * BLOCK..401 * BLOCK].to_vec();
    for nth in 0..n {
        let wish = Wish {
            host: u8::try_from(nth % 200).unwrap(),
            digests: if nth % 2 == 0 { Digest::Off } else { Digest::On },
            ..Wish::PLAIN
        };
        match nth % 4 {
            0 => drop(Queue::open(device.at(), wish)),
            1 => {
                let (mut admin, _) = Queue::admin(device.at(), wish, NAME);
                admin.raw(&[4, 0, 72]);
            }
            _ => {
                let (mut admin, mut io) = device.queues(wish);
                admin.send(Admin::AwaitEvent.entry(0, Data::NONE), &[]);
                assert!(io.run(read, &[]).1 == expected);
                // Data that are asked for, and never come.
                io.send(
                    Memory::Write { to: 0, bytes: 4096 }.entry(2, transport(4096)),
                    &[],
                );
                if nth % 4 == 2 {
                    drop(admin);
                }
            }
        }
    }
}

/// 64 queues of one controller, each with reads and writes of blocks of its own, round after round. A 65th is refused.
pub(crate) fn many_queues(device: &Device, rounds: usize) {
    let (mut admin, id) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let mut queues: Vec<Queue> =
        (1..=64).map(|nth| Queue::io(device.at(), Wish::PLAIN, id, nth)).collect();
    let mut more = Queue::open(device.at(), Wish::PLAIN);
    let (refused, _) = more.connect((65, 127), Wish::PLAIN, id, NAME);
    assert_eq!(refused.status, Status::CONNECT_BUSY);
    let place = transport(BLOCK);
    for round in 0..rounds {
        let fill = |nth: usize| u8::try_from((nth + 7 * round) % 251).unwrap();
        for (nth, io) in queues.iter_mut().enumerate() {
            let write = Blocks::Write {
                first: nth as u64,
                n_blocks: 1,
                durable: Durable::OnFlush,
            };
            let (cqe, _) = io.run(write.entry(1, place), &[fill(nth); BLOCK]);
            assert_eq!(cqe.status, Status::SUCCESS);
        }
        // All at once, and each read of what another queue wrote.
        let ids: Vec<u16> = queues
            .iter_mut()
            .enumerate()
            .map(|(nth, io)| {
                let first = ((nth + 1) % 64) as u64;
                io.send(Blocks::Read { first, n_blocks: 1 }.entry(1, place), &[])
            })
            .collect();
        for (nth, (io, id)) in queues.iter_mut().zip(ids).enumerate() {
            let (cqe, data) = io.complete(id, &[]);
            assert_eq!(cqe.status, Status::SUCCESS);
            assert!(data == [fill((nth + 1) % 64); BLOCK], "queue {nth}, round {round}");
        }
    }
    assert!(admin.identify(Identify::of(Identify::CONTROLLER, 0)).is_ok());
}

/// A queue of 4 entries, whose head wraps around many times, and one of 1,024 that is filled in one go, again and
/// again.
pub(crate) fn depths(device: &Device, rounds: usize) {
    let (_admin, id) = Queue::admin(device.at(), Wish::PLAIN, NAME);
    let mut small = Queue::io_of(device.at(), Wish::PLAIN, id, (1, 3));
    let read = |first| Blocks::Read { first, n_blocks: 1 }.entry(1, transport(BLOCK));
    for nth in 0..70_000_usize.min(50 * rounds) {
        let (cqe, _) = small.run(read(nth as u64 % 64), &[]);
        // Connect was the first command of this queue.
        assert_eq!(usize::from(cqe.sq_head), (nth + 2) % 4);
    }
    let mut deep = Queue::io_of(device.at(), Wish::PLAIN, id, (2, 1023));
    let expected = content(N_BLOCKS * BLOCK);
    for round in 0..rounds {
        let mut burst = Vec::new();
        for nth in 0..1024_u16 {
            let first = 64 + (usize::from(nth) + round) % 448;
            burst.extend(deep.encoded(read(first as u64).with_id(nth), &[]));
        }
        let reader = std::thread::scope(|scope| {
            let mut writer = deep.writer();
            scope.spawn(move || std::io::Write::write_all(&mut writer, &burst).unwrap());
            let mut found = BTreeMap::new();
            let mut n_ended = 0;
            while n_ended < 1024 {
                match deep.next_of_reads() {
                    Ok(cqe) => {
                        assert_eq!(cqe.status, Status::SUCCESS);
                        n_ended += 1;
                    }
                    Err((id, data)) => {
                        assert!(found.insert(id, data).is_none());
                    }
                }
            }
            found
        });
        for (nth, data) in reader {
            let first = 64 + (usize::from(nth) + round) % 448;
            assert!(data == expected[first * BLOCK..][..BLOCK], "read {nth}");
        }
    }
}

/// A write and a read, cut in two at every byte, and sent a byte at a time.
pub(crate) fn splits(device: &Device, digests: Digest) {
    let (_admin, mut io) = device.queues(Wish { digests, ..Wish::PLAIN });
    let length = 64;
    let place = Data::InCapsule { offset: 0, length };
    let write = Memory::Write { to: 128, bytes: length }.entry(2, place);
    let read = Memory::Read { from: 128, bytes: length }.entry(2, transport(64));
    let whole = io.encoded(write.with_id(0), &[0; 64]).len();
    for cut in 1..=whole {
        let data = [u8::try_from(cut % 251).unwrap(); 64];
        let bytes = io.encoded(write.with_id(500), &data);
        if cut == whole {
            bytes.iter().for_each(|byte| io.raw(&[*byte]));
        } else {
            io.raw(&bytes[..cut]);
            io.raw(&bytes[cut..]);
        }
        assert_eq!(io.complete(500, &[]).0.status, Status::SUCCESS, "cut at {cut}");
        assert!(io.run(read, &[]).1 == data, "cut at {cut}");
    }
}

/// `n` hosts that say anything: bytes, and PDUs with a byte changed. Whatever becomes of their connections, that of a
/// host that behaves goes on.
pub(crate) fn hostile(device: &Device, n: usize) {
    let (_admin, mut good) = device.queues(Wish::PLAIN);
    let read = Blocks::Read { first: 300, n_blocks: 2 }.entry(1, transport(2 * BLOCK));
    let expected = content(N_BLOCKS * BLOCK)[300 * BLOCK..302 * BLOCK].to_vec();
    let mut random = Random(0x5eed);
    for nth in 0..n {
        let wish = Wish { host: 9, ..Wish::PLAIN };
        let mut bad = if nth % 3 == 0 {
            Queue::open(device.at(), wish)
        } else {
            device.queues(wish).1
        };
        for _ in 0..8 {
            let id = u16::try_from(nth % 60_000).unwrap();
            let mut bytes = bad.encoded(read.with_id(id), &[]);
            let at = random.below(bytes.len());
            bytes[at] = random.next().to_le_bytes()[0];
            if nth % 5 == 0 {
                bytes.iter_mut().for_each(|byte| *byte = random.next().to_le_bytes()[0]);
            }
            bad.raw(&bytes);
        }
        assert!(good.run(read, &[]).1 == expected);
    }
}

/// Blocks, and as many bytes of memory.
struct Run {
    first: usize,
    n_blocks: u32,
    at: usize,
}

impl Run {
    fn bytes(&self) -> u32 {
        self.n_blocks * 4096
    }

    fn to(&self) -> u64 {
        self.at as u64
    }

    fn blocks(&self) -> std::ops::Range<usize> {
        let n = self.n_blocks as usize;
        self.first * BLOCK..(self.first + n) * BLOCK
    }

    fn memory(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.n_blocks as usize * BLOCK
    }
}

/// Who has commands carried out, one after the other.
pub(crate) trait Host {
    /// Has a command carried out with these data, if it has any for the device; its completion, and its data for the host.
    fn run(&mut self, entry: Sqe, data: &[u8]) -> (Cqe, Vec<u8>);
}

impl Host for Queue {
    fn run(&mut self, entry: Sqe, data: &[u8]) -> (Cqe, Vec<u8>) {
        Self::run(self, entry, data)
    }
}

/// What blocks and memory hold, as a host knows it who is the only one to write.
pub(crate) struct Model {
    blocks: Vec<u8>,
    memory: Vec<u8>,
    random: Random,
}

impl Model {
    /// The content of a fresh device.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            blocks: content(N_BLOCKS * BLOCK),
            memory: vec![0; MEMORY_BYTES],
            random: Random(seed),
        }
    }

    /// `n` commands of all kinds, of which each read has to be what the model says. How many reads there were.
    pub(crate) fn run(&mut self, io: &mut impl Host, n: usize) -> usize {
        (0..n).filter(|_| self.command(io)).count()
    }

    /// What a block holds.
    pub(crate) fn block(&self, nth: usize) -> &[u8] {
        &self.blocks[nth * BLOCK..][..BLOCK]
    }

    /// One command; whether it is a read.
    fn command(&mut self, io: &mut impl Host) -> bool {
        let n = 1 + self.random.below(16);
        let run = Run {
            n_blocks: u32::try_from(n).unwrap(),
            first: self.random.below(N_BLOCKS - n),
            at: 4 * self.random.below(1 << 20),
        };
        let place = transport(n * BLOCK);
        match self.random.below(8) {
            5 => {
                let read = Memory::Read { from: run.to(), bytes: run.bytes() };
                let (_, data) = io.run(read.entry(2, place), &[]);
                assert!(data == self.memory[run.memory()], "memory at {}", run.at);
            }
            6 | 7 => {
                let read =
                    Blocks::Read { first: run.first as u64, n_blocks: run.n_blocks };
                let (_, data) = io.run(read.entry(1, place), &[]);
                assert!(data == self.blocks[run.blocks()], "block {}", run.first);
            }
            kind => {
                self.write(io, kind, &run);
                return false;
            }
        }
        true
    }

    fn write(&mut self, io: &mut impl Host, kind: usize, run: &Run) {
        let (first, n_blocks) = (run.first as u64, run.n_blocks);
        let (to, bytes) = (run.to(), run.bytes());
        let (blocks, memory) = (run.blocks(), run.memory());
        let mut data = self.data(memory.len());
        let place = transport(data.len());
        let entry = match kind {
            0 => {
                self.blocks[blocks].copy_from_slice(&data);
                let durable = Durable::OnFlush;
                Blocks::Write { first, n_blocks, durable }.entry(1, place)
            }
            1 => {
                self.memory[memory].copy_from_slice(&data);
                Memory::Write { to, bytes }.entry(2, place)
            }
            2 => {
                self.memory[memory].fill(0);
                Memory::Fill { from: to, bytes }.entry(2, Data::NONE)
            }
            3 => {
                self.memory[memory].copy_from_slice(&self.blocks[blocks]);
                let source =
                    BlockSource { nsid: 1, first, n_blocks, fast_only: FastOnly::No };
                data = source.bytes().to_vec();
                let (n_sources, format) = (1, SourceFormat::Blocks2);
                Memory::Copy { bytes: bytes.into(), to, n_sources, format }
                    .entry(2, transport(32))
            }
            _ => {
                self.blocks[blocks].copy_from_slice(&self.memory[memory]);
                let source =
                    ByteSource { nsid: 2, from: to, bytes, fast_only: FastOnly::No };
                data = source.bytes().to_vec();
                let (n_sources, format) = (1, SourceFormat::Bytes);
                Blocks::Copy(CopyToBlocks { first, n_sources, format })
                    .entry(1, transport(32))
            }
        };
        assert_eq!(io.run(entry, &data).0.status, Status::SUCCESS, "{entry:?}");
    }

    fn data(&mut self, n: usize) -> Vec<u8> {
        let begin = self.random.next();
        (0..n as u64).map(|i| ((begin >> 9).wrapping_add(i * 7) % 251) as u8).collect()
    }
}
