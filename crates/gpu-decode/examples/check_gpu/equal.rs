//! What is right or wrong: the driver's contract, batches on their way to the device, and the kernels'
//! samples against the host's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bothends_core::recipe::Numerics;
use bothends_gpu::conformance;
use bothends_gpu::staging::DeviceFeed;
use bothends_slots::RingConfig;

use crate::device::Device;
use crate::pictures::{Crops, Form, Pictures};
use crate::said::{Bar, Said};
use crate::{Extent, Failed};

/// The driver keeps its contract.
pub fn driver(device: &Device, said: &mut Said) {
    eprintln!("the driver's contract");
    let kept = catch_unwind(AssertUnwindSafe(|| conformance::all(&*device.driver)));
    let kept = kept.map(|()| String::new()).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text =
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "it panicked".to_owned())
    });
    said.right("the driver keeps its contract", kept);
}

/// Slots of the ring below, and how many batches it sees at a time.
const SLOTS: u32 = 6;
const ROUND: usize = 100;

/// Stamped batches under a slow consumer, without a wrong byte and without a wait: how fast, and how
/// long a call takes at most.
pub fn staging(device: &Device, extent: Extent, said: &mut Said) -> Result<(), Failed> {
    eprintln!("stamped batches on their way to the device");
    let (n_batches, bytes) = match extent {
        Extent::Whole => (10_000, 1 << 20),
        Extent::Quick => (1000, 1 << 20),
        Extent::Twin => (200, 1 << 12),
    };
    let ring = device.page_locked_ring(SLOTS, bytes)?;
    let config = RingConfig { n_slots: SLOTS, slot_bytes: bytes };
    let mut feed = DeviceFeed::new(&device.gpu, config)?;
    let slow = [device.gpu.allocate(8 * bytes)?, device.gpu.allocate(8 * bytes)?];
    let mut seen = device.page_locked(ROUND * bytes)?;
    let (mut n_wrong, mut calls) = (0_usize, Vec::with_capacity(n_batches));
    for round in 0..n_batches / ROUND {
        for (nth, to) in seen.chunks_mut(bytes).enumerate() {
            let mut host = loop {
                feed.poll()?;
                if let Some(slot) = ring.take(Duration::ZERO) {
                    break slot.host().map_err(|_| "a slot that is not the host's")?;
                }
                std::thread::yield_now();
            };
            stamp(round * ROUND + nth, &mut host);
            let began = Instant::now();
            let batch = feed.submit(host, bytes);
            calls.push(began.elapsed());
            device.consume(&mut batch?, to, (&slow[0], &slow[1]))?;
        }
        device.settle()?;
        let mut need = vec![0; bytes];
        for (nth, seen) in seen.chunks(bytes).enumerate() {
            stamp(round * ROUND + nth, &mut need);
            n_wrong += usize::from(seen != need);
        }
    }
    let detail = format!("{n_wrong} of {n_batches} batches arrived with a wrong byte");
    let seen = if n_wrong == 0 { Ok(detail) } else { Err(detail) };
    said.right("stamped batches under a slow consumer", seen);
    submitting(&mut calls, said);
    Ok(())
}

/// How long calls that submit a batch took. The longest alone says little: a thread may be taken off its processor in
/// the middle of a call.
fn submitting(calls: &mut [Duration], said: &mut Said) {
    const MOST: Duration = Duration::from_micros(50);
    let n_slow = calls.iter().filter(|took| **took > MOST).count();
    let first = calls.first().map_or(0.0, |took| took.as_secs_f64() * 1e6);
    calls.sort_unstable();
    let at = |part: usize| {
        let nth = (calls.len() * part / 1000).min(calls.len().saturating_sub(1));
        calls.get(nth).map_or(0.0, |took| took.as_secs_f64() * 1e6)
    };
    let most = Bar::AtMost(50.0);
    said.figure("median call that submits a batch", (at(500), "µs"), Bar::None);
    said.figure(
        "99.9 % of the calls that submit a batch take up to",
        (at(999), "µs"),
        most,
    );
    said.figure("longest call that submits a batch", (at(1000), "µs"), most);
    said.figure("the first such call", (first, "µs"), Bar::None);
    said.figure("calls of more than 50 µs", (n_slow as f64, "calls"), Bar::None);
}

/// A pattern that no other batch has at any place.
fn stamp(nth: usize, bytes: &mut [u8]) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (at, word) in words.iter_mut().enumerate() {
        let stamp = (nth as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at as u64;
        *word = stamp.to_le_bytes();
    }
}

/// Every picture, in both forms and numerics, in many boxes.
pub fn kernels(
    device: &Device,
    (what, pictures): (&str, &Pictures),
    extent: Extent,
    said: &mut Said,
) -> Result<(), Failed> {
    let (rounds, most) = match extent {
        Extent::Whole => (20, 1024),
        Extent::Quick => (1, 64),
        Extent::Twin => (1, 8),
    };
    for form in Form::ALL {
        for numerics in [Numerics::Exact, Numerics::Planar] {
            eprintln!("samples of {what}, {} in {numerics:?} numerics", form.name());
            let (mut n, mut n_different, mut n_flagged) = (0, 0, 0);
            let all = pictures.len() * rounds;
            let mut first = 0;
            while first < all {
                let crops = pictures.crops((form, numerics), first..all, most)?;
                first = crops.next;
                if crops.batch.is_empty() {
                    continue;
                }
                let (batch, bytes) = (&crops.batch, pictures.sample_bytes());
                let mut lane = device.lane(batch, (&crops.upload, bytes))?;
                let (samples, status) = device.decode(&mut lane, batch)?;
                n += status.len();
                n_flagged += status.iter().filter(|status| !status.is_made()).count();
                n_different += pictures.different(&crops, &samples)?.len();
            }
            let form = form.name();
            let check = format!("{what}: {form} in {numerics:?} numerics is the host's");
            let detail =
                format!("of {n} crops {n_different} differ and {n_flagged} are flagged");
            let is_right = n > 0 && n_different == 0 && n_flagged == 0;
            let seen = if is_right { Ok(detail) } else { Err(detail) };
            said.right(&check.to_lowercase(), seen);
        }
    }
    Ok(())
}

/// Batches in which every crop's bytes are damaged: flagged, or the host's pixels all the same.
pub fn damage(
    device: &Device,
    pictures: &Pictures,
    extent: Extent,
    said: &mut Said,
) -> Result<(), Failed> {
    let (rounds, most) = match extent {
        Extent::Whole => (20, 512),
        Extent::Quick => (2, 64),
        Extent::Twin => (1, 8),
    };
    for form in Form::ALL {
        eprintln!("damaged bytes of {}", form.name());
        let mut crops = pictures.crops((form, Numerics::Exact), 0..4 * most, most)?;
        let whole = crops.upload.clone();
        let mut random = Random(9);
        let (mut n, mut n_flagged, mut n_wrong) = (0, 0, 0);
        for round in 0..rounds {
            crops.upload.copy_from_slice(&whole);
            harm(&mut crops, round % 3, &mut random);
            let memory = (&crops.upload[..], pictures.sample_bytes());
            let mut lane = device.lane(&crops.batch, memory)?;
            let (samples, status) = device.decode(&mut lane, &crops.batch)?;
            n += status.len();
            n_flagged += status.iter().filter(|status| !status.is_made()).count();
            let different = pictures.different(&crops, &samples)?;
            let is_made = |row: &usize| status[*row].is_made();
            n_wrong += different.into_iter().filter(is_made).count();
        }
        let detail = format!(
            "of {n} crops of damaged bytes {n_flagged} are flagged and {n_wrong} have wrong \
             pixels without a flag"
        );
        let seen = if n_wrong == 0 { Ok(detail) } else { Err(detail) };
        said.right(&format!("{}: damage is flagged", form.name().to_lowercase()), seen);
    }
    Ok(())
}

/// Changes bytes of every crop: one bit, four bytes, or all.
fn harm(crops: &mut Crops, how: usize, random: &mut Random) {
    for range in &crops.ranges {
        let bytes = &mut crops.upload[range.clone()];
        match how {
            0 => bytes[random.below(bytes.len())] ^= 1 << random.below(8),
            1 => (0..4).for_each(|_| bytes[random.below(bytes.len())] = random.byte()),
            _ => bytes.iter_mut().for_each(|byte| *byte = random.byte()),
        }
    }
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        let (factor, step) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(factor).wrapping_add(step);
        usize::try_from(self.0 >> 33).unwrap_or(0) % n.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }
}
