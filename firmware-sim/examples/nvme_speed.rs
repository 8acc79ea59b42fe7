//! What the NVMe/TCP target costs: CPU time of its threads for each read, over the loopback interface, asked by a
//! host that does little but count.
//!
//! The rate by the clock depends on what else runs; CPU time hardly does. `reads per CPU second` is what one core that
//! does nothing else would serve. `scripts/measure-nvme` runs this.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]
#![allow(clippy::print_stdout, reason = "what it is for")]

#[path = "../tests/nvme/device.rs"]
mod device;
#[path = "../tests/nvme/host.rs"]
mod host;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bothends_firmware_sim::thread_cpu_ns;
use bothends_nvme::commands::Blocks;
use bothends_nvme::layout::{cqe, pdu, sqe};
use bothends_nvme::pdu::{Digest, Format};

use device::{BLOCK, Device};
use host::{Wish, transport};

/// Blocks of the image: 256 MiB, which the page cache holds.
const N_BLOCKS: u64 = 65_536;
const ROUNDS: usize = 7;

fn main() {
    let seconds = std::env::args().nth(1).map_or(1.0, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut blocks = vec![0_u8; usize::try_from(N_BLOCKS).unwrap() * BLOCK];
    for (number, block) in blocks.chunks_mut(BLOCK).enumerate() {
        block[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    std::fs::write(&image, &blocks).unwrap();
    drop(blocks);
    let device = Device::of(&image, folder);
    println!(
        "| read | depth | digests | µs of the target, least | median | reads per CPU second, median | GB per CPU \
         second, median | reads/s by the clock, most | µs of the host, median |"
    );
    println!("|---:|---:|---|---:|---:|---:|---:|---:|---:|");
    for (kib, depth, digests) in [
        (4, 1, Digest::Off),
        (4, 32, Digest::Off),
        (4, 32, Digest::On),
        (4, 128, Digest::Off),
        (128, 32, Digest::Off),
        (1024, 8, Digest::Off),
        (1024, 8, Digest::On),
    ] {
        let load = Load { kib, depth, digests };
        let rounds: Vec<Round> = (0..ROUNDS)
            .map(|_| load.round(&device, Duration::from_secs_f64(seconds)))
            .collect();
        load.report(&rounds);
    }
}

/// Reads of one size, so many at a time.
#[derive(Clone, Copy)]
struct Load {
    kib: u32,
    depth: u16,
    digests: Digest,
}

/// What a round came to.
struct Round {
    reads: u64,
    seconds: f64,
    target_us: f64,
    host_us: f64,
}

impl Load {
    fn round(self, device: &Device, length: Duration) -> Round {
        let wish = Wish { digests: self.digests, ..Wish::PLAIN };
        let (_admin, io) = device.queues(wish);
        let (stream, format) = io.into_parts();
        let mut host = Host::new(self, stream, format);
        host.run(Instant::now() + length / 10);
        let (began, target, own) = (Instant::now(), target_cpu_ns(), thread_cpu_ns());
        let reads = host.run(began + length);
        let seconds = began.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let each = |ns: u64| ns as f64 / 1e3 / reads as f64;
        let (target, own) = (target_cpu_ns() - target, thread_cpu_ns() - own);
        Round { reads, seconds, target_us: each(target), host_us: each(own) }
    }

    fn report(self, rounds: &[Round]) {
        let sorted = |of: fn(&Round) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let target = sorted(|round| round.target_us);
        let host = sorted(|round| round.host_us);
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let clock = sorted(|round| round.reads as f64 / round.seconds);
        let median = target[ROUNDS / 2];
        println!(
            "| {} KiB | {} | {} | {:.2} | {median:.2} | {:.0} | {:.2} | {:.0} | {:.2} |",
            self.kib,
            self.depth,
            if self.digests == Digest::On { "yes" } else { "no" },
            target[0],
            1e6 / median,
            f64::from(self.kib) * 1024.0 / median / 1e3,
            clock[ROUNDS - 1],
            host[ROUNDS / 2],
        );
    }
}

/// A host that keeps `depth` reads in flight: as soon as some are answered, it asks for as many more.
struct Host {
    load: Load,
    stream: TcpStream,
    commands: Vec<Vec<u8>>,
    asked: Vec<u64>,
    format: Format,
    random: u64,
    arrived: Vec<u8>,
    end: usize,
    /// Bytes of data that are still to come and that nobody looks at.
    skip: usize,
}

impl Host {
    fn new(load: Load, stream: TcpStream, format: Format) -> Self {
        let bytes = load.kib as usize * 1024;
        let read = Blocks::Read { first: 0, n_blocks: load.kib / 4 };
        let commands = (0..load.depth)
            .map(|id| {
                let mut own = Vec::new();
                format.command(
                    &read.entry(1, transport(bytes)).with_id(id),
                    &[],
                    &mut own,
                );
                own
            })
            .collect();
        Self {
            load,
            stream,
            commands,
            asked: vec![0; load.depth.into()],
            format,
            random: 0x9e37_79b9_7f4a_7c15,
            arrived: vec![0; 4 << 20],
            end: 0,
            skip: 0,
        }
    }

    /// Reads until `by`, lets what is in flight end, and says how many there were.
    fn run(&mut self, by: Instant) -> u64 {
        let mut out = Vec::new();
        (0..self.load.depth).for_each(|id| self.ask(id, &mut out));
        let (mut in_flight, mut n_reads) = (usize::from(self.load.depth), 0);
        let mut ended = Vec::new();
        while in_flight > 0 {
            self.stream.write_all(&out).unwrap();
            out.clear();
            self.end += self.stream.read(&mut self.arrived[self.end..]).unwrap();
            self.take(&mut ended);
            n_reads += ended.len() as u64;
            let goes_on = Instant::now() < by;
            for id in ended.drain(..) {
                if goes_on {
                    self.ask(id, &mut out);
                } else {
                    in_flight -= 1;
                }
            }
        }
        n_reads
    }

    fn ask(&mut self, id: u16, out: &mut Vec<u8>) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let first = self.random % (N_BLOCKS - u64::from(self.load.kib / 4));
        self.asked[usize::from(id)] = first;
        let command = &mut self.commands[usize::from(id)];
        let at = pdu::BYTES + sqe::CDW10.offset();
        command[at..at + 8].copy_from_slice(&first.to_le_bytes());
        if self.format.header_digest == Digest::On {
            let body = pdu::BYTES + sqe::BYTES;
            let digest = crc32c::crc32c(&command[..body]).to_le_bytes();
            command[body..body + 4].copy_from_slice(&digest);
        }
        out.extend_from_slice(command);
    }

    /// Takes what has arrived, and appends the identifiers of reads that have ended.
    fn take(&mut self, ended: &mut Vec<u16>) {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(self.end - at);
            at += skipped;
            self.skip -= skipped;
            // A response is 24 or 28 bytes; the first 32 of data have the number of their block.
            let there = &self.arrived[at..self.end];
            if there.len() < 24 {
                break;
            }
            let plen = pdu::PLEN.get(there.first_chunk().unwrap()) as usize;
            if there[0] == 5 {
                if there.len() < plen {
                    break;
                }
                let entry = there[pdu::BYTES..].first_chunk().unwrap();
                assert_eq!(cqe::STATUS.get(entry), 0);
                ended.push(cqe::CID.get(entry));
                at += plen;
                continue;
            }
            let data_at = usize::from(there[3]);
            if there.len() < data_at + 8 {
                break;
            }
            let id = u16::from_le_bytes([there[8], there[9]]);
            // A PDU begins with the first block of its part of the data.
            let from = u32::from_le_bytes(*there[12..].first_chunk().unwrap()) / 4096;
            let number = u64::from_le_bytes(*there[data_at..].first_chunk().unwrap());
            let asked = self.asked[usize::from(id)] + u64::from(from);
            assert_eq!((there[0], number), (7, asked));
            self.skip = plen;
        }
        self.arrived.copy_within(at..self.end, 0);
        self.end -= at;
    }
}

/// CPU time of the target's threads.
fn target_cpu_ns() -> u64 {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            let task = task.unwrap().path();
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            let is_own = name.starts_with("nvme-") || name.starts_with("csd-core-");
            let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
            times.split(' ').next()?.parse::<u64>().ok().filter(|_| is_own)
        })
        .sum()
}
