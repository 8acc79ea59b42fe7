//! A whole scan, read from two places at once although nothing says where its MCUs begin.
//!
//! Where a symbol begins depends on all symbols before it, so a scan without entry points is one long chain.
//! But Huffman codes synchronise themselves: a decoder that begins at any byte soon reaches a place
//! where an MCU begins, and is right from there on (on photographs after 210 bytes). So while one lane
//! reads the scan from where it is known, a second one *guesses*: it begins further on, as if an MCU did,
//! and marks where each of its MCUs begins. When the first lane ends an MCU at one of these marks, both
//! have the same state except for the MCU's number and the DCs, which the first lane knows; what the second
//! has decoded from the mark on is then taken over, and the first goes on behind it.
//!
//! A guess can only be confirmed by the lane that knows, so results and errors are those of reading the
//! scan from its first bit to its last. With restart markers the second lane begins behind one of them,
//! and what it guesses is only that none is missing. Without, nothing is guessed where all blocks have the
//! same codes: an MCU's first block then looks like the others.
//!
//! Photographs of the first epoch are made 1.25 times as fast (Xeon model 167, one thread). What becomes of
//! the blocks is up to [`TakeRows`]; scans of which entry points are known are `decoder.rs`'s. Read
//! `entry_points.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a DC is kept in 16 bits, whatever its sum"
)]

use super::note::{STEP_BLOCKS, step_mcus};
use super::sequential::{
    BlockCodes, BrokenLane, EntryPoint, Lane, Scan, run_one, run_two,
};
use crate::error::SampleFault;
use crate::jpeg::block::RowBlocks;
use crate::jpeg::{Broken, unreadable};
use crate::kernels::Level;

/// When to guess, and how far ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guessing {
    /// Bytes of the scan that must be left for a guess.
    pub(crate) worth_bytes: u64,
    /// Blocks between the two lanes, if that many are left. The second lane's are read again soon: 1536
    /// (192 KiB) suit a cache of the second level. Between 768 and 6144 there is little difference.
    pub(crate) n_blocks: usize,
    /// If the second lane fails within so many MCUs its guess was wrong, and it guesses again. Later, the
    /// data are damaged, or at their end.
    pub(crate) settled_mcus: usize,
}

impl Default for Guessing {
    fn default() -> Self {
        // A fuzzer's files are small.
        let worth_bytes = if cfg!(fuzzing) { 16 } else { 4096 };
        Self { worth_bytes, n_blocks: 1536, settled_mcus: 64 }
    }
}

/// A guess that is not confirmed within so many bytes was wrong.
const GIVE_UP_BYTES: u64 = 4096;

/// So many wrong guesses, one after the other, are the last ones in a scan. One says little: where an image is
/// flat, the same few bits come again and again, and a lane may take the second block of an MCU for its
/// first as long as they do.
const MOST_WRONG: u32 = 4;

/// A lane that fails so near to the end of the data fails because they end.
const END_BYTES: u64 = 64;

/// All of a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) level: Level,
    pub(crate) scan: Scan<'a>,
    /// The first bit behind the data.
    pub(crate) end: u64,
    /// MCUs across and down.
    pub(crate) size: [usize; 2],
    pub(crate) guessing: Guessing,
}

/// Takes what comes out of a scan, in order.
pub(crate) trait TakeRows {
    /// Whether the blocks of MCU row `y` are asked for.
    fn wants(&self, y: usize) -> bool;

    /// The next entry point.
    fn point(&mut self, point: EntryPoint);

    /// The next row that is wanted.
    fn row(&mut self, row: DecodedRow<'_>) -> Result<(), SampleFault>;
}

/// A row of MCUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodedRow<'a> {
    pub(crate) y: usize,
    pub(crate) blocks: &'a RowBlocks,
    /// The row's first block among them.
    pub(crate) from: usize,
}

impl Whole<'_> {
    /// Reads all of the scan; where it ended.
    pub(crate) fn read(
        &self,
        lanes: &mut [Lane; 2],
        take: &mut impl TakeRows,
    ) -> Result<EntryPoint, SampleFault> {
        let [lane, second] = lanes;
        lane.enter(&self.scan, EntryPoint::default(), 0, self.end);
        let n_mcus = self.size[0] * self.size[1];
        let state = if self.is_ambiguous() { State::Off } else { State::Idle };
        let ahead = Ahead { lane: second, state, next: 0, first_mcu: None, n_wrong: 0 };
        let step = step_mcus(STEP_BLOCKS, self.scan.blocks.len());
        let mut reading = Reading { whole: self, step, lane, ahead, take, mcu: 0 };
        while reading.mcu < n_mcus {
            reading.advance()?;
            if reading.mcu < n_mcus
                && let Some(mark) = reading.met().map_err(unreadable)?
            {
                reading.take_over(mark)?;
            }
        }
        let place = lane.place();
        take.point(place);
        lane.check_end(&self.scan)?;
        Ok(place)
    }

    /// Whether nothing tells an MCU's first block from the others.
    fn is_ambiguous(&self) -> bool {
        if self.scan.restart_interval > 0 {
            return false;
        }
        let [first, others @ ..] = self.scan.blocks else { return true };
        let is_same = |codes: &BlockCodes<'_>| {
            codes.dc.code() == first.dc.code() && codes.ac.code() == first.ac.code()
        };
        !others.is_empty() && others.iter().all(is_same)
    }

    /// MCUs that the second lane should be ahead. It has room for a quarter more, as it may be faster.
    fn distance(&self) -> usize {
        (self.guessing.n_blocks / self.scan.blocks.len()).max(1)
    }
}

/// The lane that guesses.
#[derive(Debug)]
struct Ahead<'l> {
    lane: &'l mut Lane,
    state: State,
    /// The first of its marks that the other lane has not passed.
    next: usize,
    /// The number of the MCU at its first mark, where a restart marker tells.
    first_mcu: Option<usize>,
    /// Wrong guesses since the last one that was right.
    n_wrong: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// May begin.
    Idle,
    Decoding,
    /// Has no more room, or met what cannot be.
    Stopped,
    /// No other guess in this scan.
    Off,
}

/// A scan being read.
struct Reading<'r, 'w, T> {
    whole: &'r Whole<'w>,
    /// MCUs of a row from one entry point to the next. Only at these places can the two lanes meet.
    step: usize,
    /// Reads from where the scan is known.
    lane: &'r mut Lane,
    ahead: Ahead<'r>,
    take: &'r mut T,
    /// The number of the next MCU.
    mcu: usize,
}

impl<T: TakeRows> Reading<'_, '_, T> {
    /// Decodes as far as the next entry point.
    fn advance(&mut self) -> Result<(), SampleFault> {
        let Whole { scan, size: [across, _], .. } = self.whole;
        let step = self.step;
        let (y, x) = (self.mcu / across, self.mcu % across);
        if x == 0 {
            self.lane.begin_row(scan, *across);
        }
        let point = self.lane.entry_point(scan).map_err(unreadable)?;
        if x.is_multiple_of(step) {
            self.take.point(point);
        }
        if self.ahead.state == State::Idle {
            self.guess(point.position);
        }
        let n_mcus = (step - x % step).min(across - x);
        self.lane.begin(scan, n_mcus).map_err(unreadable)?;
        self.run().map_err(unreadable)?;
        self.mcu += n_mcus;
        if x + n_mcus == *across && self.take.wants(y) {
            self.take.row(DecodedRow { y, blocks: &self.lane.row, from: 0 })?;
        }
        Ok(())
    }

    /// Decodes what the first lane has set out for, and meanwhile ahead of it.
    fn run(&mut self) -> Result<(), Broken> {
        let Whole { level, scan, .. } = self.whole;
        while !self.lane.is_done() {
            if self.ahead.state != State::Decoding {
                return run_one(*level, scan, self.lane);
            }
            match run_two(*level, scan, [self.lane, self.ahead.lane]) {
                Ok(()) if self.ahead.lane.is_done() => self.ahead.state = State::Stopped,
                Ok(()) => {}
                Err(BrokenLane::First) => return Err(Broken),
                Err(BrokenLane::Second) => {
                    self.ahead.state = State::Stopped;
                    if let Some(byte) = self.unsettled() {
                        self.guess_at(byte + 1);
                    }
                }
            }
        }
        Ok(())
    }

    /// The byte at which the second lane failed, if that can only mean that its guess was wrong.
    fn unsettled(&self) -> Option<u64> {
        let Whole { end, guessing, .. } = self.whole;
        let [.., last] = self.ahead.lane.marks() else { return None };
        let is_early = self.ahead.lane.marks().len() <= guessing.settled_mcus;
        let is_guess = self.ahead.first_mcu.is_none();
        let is_inside = last.position + 8 * END_BYTES < *end;
        (is_early && is_guess && is_inside).then_some(last.position / 8)
    }

    /// Lets the second lane begin where both have equally much to do, if there is enough of it.
    fn guess(&mut self, here: u64) {
        let Whole { scan, end, size: [across, down], guessing, .. } = self.whole;
        let n_bytes = end.saturating_sub(here) / 8;
        if n_bytes < guessing.worth_bytes {
            self.ahead.state = State::Off;
            return;
        }
        let n_mcus = (across * down - self.mcu) as u64;
        let n_ahead = (n_mcus / 2).min(self.whole.distance() as u64);
        let target = here / 8 + n_bytes * n_ahead / n_mcus;
        if scan.restart_interval == 0 {
            self.guess_at(target);
        } else {
            self.begin_behind_restart(target);
        }
    }

    /// Lets the second lane begin at `byte`, or soon after it.
    fn guess_at(&mut self, byte: u64) {
        let Whole { scan, end, .. } = self.whole;
        let ahead = &mut self.ahead;
        (ahead.next, ahead.first_mcu) = (0, None);
        ahead.state = State::Off;
        let distance = self.whole.distance();
        for position in (byte * 8..*end).step_by(8).take(64) {
            let from = EntryPoint { position, ..EntryPoint::default() };
            ahead.lane.enter(scan, from, 0, *end);
            if ahead.lane.set_out(scan, distance + distance / 4).is_ok() {
                ahead.state = State::Decoding;
                return;
            }
        }
    }

    /// Lets the second lane begin at the first restart marker from `byte` on.
    fn begin_behind_restart(&mut self, byte: u64) {
        let Whole { scan, end, size: [across, down], .. } = self.whole;
        let ahead = &mut self.ahead;
        ahead.state = State::Off;
        let nth = scan.restarts.partition_point(|restart| (restart.at as u64) < byte);
        let Some(restart) = scan.restarts.get(nth) else { return };
        let mcu = (nth + 1).saturating_mul(scan.restart_interval as usize);
        // As many MCUs as there are, so that it does not look for a restart behind the last.
        let n_mcus = (across * down).saturating_sub(mcu).min(self.whole.distance());
        if n_mcus == 0 {
            return;
        }
        let from =
            EntryPoint { position: 8 * restart.at as u64, ..EntryPoint::default() };
        ahead.lane.enter(scan, from, mcu as u64, *end);
        ahead.lane.pass_restarts(nth + 1);
        (ahead.next, ahead.first_mcu) = (0, Some(mcu));
        if ahead.lane.set_out(scan, n_mcus).is_ok() {
            ahead.state = State::Decoding;
        }
    }

    /// Where the first lane has arrived at one of the second lane's marks, the number of that mark.
    fn met(&mut self) -> Result<Option<usize>, Broken> {
        let ahead = &mut self.ahead;
        if matches!(ahead.state, State::Idle | State::Off) {
            return Ok(None);
        }
        let here = self.lane.entry_point(&self.whole.scan)?;
        let marks = ahead.lane.marks();
        let n_passed =
            marks[ahead.next..].iter().take_while(|mark| mark.position < here.position);
        ahead.next += n_passed.count();
        match marks.get(ahead.next) {
            Some(mark) if mark.position == here.position => {
                let is_known = |first: usize| first + ahead.next == self.mcu;
                Ok(ahead.first_mcu.is_none_or(is_known).then_some(ahead.next))
            }
            Some(_) if here.position <= marks[0].position + 8 * GIVE_UP_BYTES => Ok(None),
            // Not at one of its marks for too long, or behind all of them.
            Some(_) | None => {
                ahead.n_wrong += 1;
                let is_last = ahead.n_wrong == MOST_WRONG;
                ahead.state = if is_last { State::Off } else { State::Idle };
                Ok(None)
            }
        }
    }

    /// Takes what the second lane has decoded from its mark number `mark` on, which is where the first
    /// lane is.
    fn take_over(&mut self, mark: usize) -> Result<(), SampleFault> {
        let Whole { scan, size: [across, down], end, .. } = self.whole;
        let step = self.step;
        let here = self.lane.place();
        let marks = self.ahead.lane.marks();
        let first_dc = marks[mark].dc;
        let offset: [i32; 4] =
            std::array::from_fn(|i| here.dc[i].wrapping_sub(first_dc[i]));
        let last = (marks.len() - 1).min(mark + across * down - self.mcu);
        #[cfg(test)]
        N_TAKEN.set(N_TAKEN.get() + last - mark);
        let mut at = mark;
        while at < last {
            let x = self.mcu % across;
            let n_mcus = (across - x).min(last - at);
            for within in (0..n_mcus).filter(|within| (x + within).is_multiple_of(step)) {
                let point = self.ahead.lane.marks()[at + within];
                self.take.point(moved(point, offset));
            }
            self.take_part(at, n_mcus, offset)?;
            at += n_mcus;
            self.mcu += n_mcus;
        }
        let point = moved(self.ahead.lane.marks()[last], offset);
        self.lane.enter(scan, point, self.mcu as u64, *end);
        let interval = scan.restart_interval as usize;
        self.lane.pass_restarts(self.mcu.checked_div(interval).unwrap_or(0));
        self.lane.go_to(scan, self.mcu % across);
        (self.ahead.state, self.ahead.n_wrong) = (State::Idle, 0);
        Ok(())
    }

    /// The blocks of `n_mcus` MCUs from mark number `at` on, which lie in one row.
    fn take_part(
        &mut self,
        at: usize,
        n_mcus: usize,
        offset: [i32; 4],
    ) -> Result<(), SampleFault> {
        let Whole { scan, size: [across, _], .. } = self.whole;
        let (y, x) = (self.mcu / across, self.mcu % across);
        if !self.take.wants(y) {
            return Ok(());
        }
        let per_mcu = scan.blocks.len();
        let theirs = &mut self.ahead.lane.row;
        let blocks = theirs.blocks_mut(at * per_mcu..(at + n_mcus) * per_mcu);
        for mcu in blocks.chunks_exact_mut(per_mcu) {
            for (block, codes) in mcu.iter_mut().zip(scan.blocks) {
                let dc = i32::from(block[0]).wrapping_add(offset[codes.component & 3]);
                block[0] = dc as i16;
            }
        }
        if n_mcus == *across {
            return self.take.row(DecodedRow { y, blocks: theirs, from: at * per_mcu });
        }
        let ours = &mut self.lane.row;
        ours.blocks_mut(x * per_mcu..(x + n_mcus) * per_mcu).copy_from_slice(blocks);
        if x + n_mcus == *across {
            self.take.row(DecodedRow { y, blocks: ours, from: 0 })?;
        }
        Ok(())
    }
}

/// `point` with its DCs counted from the beginning of the scan.
fn moved(point: EntryPoint, offset: [i32; 4]) -> EntryPoint {
    let dc = std::array::from_fn(|i| point.dc[i].wrapping_add(offset[i]));
    EntryPoint { dc, ..point }
}

#[cfg(test)]
thread_local! {
    /// MCUs that were taken over.
    static N_TAKEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::jpeg::decoder::Decoder;
    use crate::jpeg::file::Opened;
    use crate::jpeg::file::code::{Class, Code};
    use crate::jpeg::planes::{Chroma, Region};
    use crate::jpeg::rebuild::{Parts, take_apart};

    /// Reads with one lane alone: the meaning.
    const NEVER: Guessing =
        Guessing { worth_bytes: u64::MAX, n_blocks: 1, settled_mcus: 0 };

    /// Guesses even in small files.
    const ALWAYS: Guessing =
        Guessing { worth_bytes: 1, n_blocks: 1536, settled_mcus: 64 };

    const GREY_PHOTOGRAPH: &str = "stream/photos/ant/B.jpg";
    /// 4:4:4 and 4:2:2.
    const PHOTOGRAPHS: [&str; 2] =
        ["stream/photos/ant/10.jpeg", "stream/photos/bee/10.jpg"];
    const SAME_CODES: &str = "ops/rgb-noise.jpg";
    const RESTARTS: &str = "ops/restart-rows.jpg";

    /// Sequential files of every sampling, with restarts and without, and photographs.
    static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let names = [
            "ops/411.jpg",
            "ops/420-1x1.jpg",
            "ops/420-48x64.jpg",
            "ops/422-q100.jpg",
            "ops/440.jpg",
            "ops/441.jpg",
            "ops/444-q100.jpg",
            "ops/cmyk-noise.jpg",
            "ops/grey-48x64.jpg",
            "ops/optimised.jpg",
            "ops/restart-blocks.jpg",
            "stream/photos/ant/below/a.jpeg",
            GREY_PHOTOGRAPH,
            PHOTOGRAPHS[0],
            PHOTOGRAPHS[1],
            SAME_CODES,
            RESTARTS,
            RESTARTS,
        ];
        names.map(fixture).to_vec()
    });

    fn fixture(name: &str) -> Vec<u8> {
        let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests");
        std::fs::read(tests.join("fixtures").join(name)).unwrap()
    }

    /// What there is to see of a part of a file: its planes and entry points, or what is said of it; and
    /// what a transcoder makes of all of it.
    fn seen(
        decoder: &mut Decoder,
        bytes: &[u8],
        part: [Index; 4],
        guessing: Guessing,
    ) -> (Seen, Option<Transcoded>) {
        decoder.guessing = guessing;
        let mut parts = Parts::default();
        let transcoded = take_apart(decoder, bytes, &mut parts).map(|()| {
            let Parts { coefficients, remainder } = parts;
            let sizes = coefficients.sizes();
            let rows = sizes.iter().enumerate().flat_map(|(component, [_, down])| {
                (0..*down).map(move |y| (component, y))
            });
            let blocks = rows.flat_map(|(component, y)| coefficients.row(component, y));
            (blocks.copied().collect(), remainder)
        });
        (planes(decoder, bytes, part), transcoded)
    }

    type Seen = Result<(Vec<Vec<u8>>, Vec<u8>), String>;
    type Transcoded = (Vec<[i16; 64]>, Vec<u8>);

    fn planes(decoder: &mut Decoder, bytes: &[u8], part: [Index; 4]) -> Seen {
        let file = Opened::new(bytes).map_err(|fault| fault.to_string())?;
        let range = |len: u32, start: Index, n: Index| {
            let start = start.index(len as usize);
            start..start + 1 + n.index(len as usize - start)
        };
        let [top, height, left, width] = part;
        let region = Region {
            rows: range(file.size().height, top, height),
            columns: range(file.size().width, left, width),
        };
        decoder
            .decode(file, &region, Chroma::Upsampled, None)
            .map_err(|fault| fault.to_string())?;
        let planes = decoder.planes().iter().map(|plane| {
            let [across, down] = plane.ratio();
            let columns =
                region.columns.start / across..region.columns.end.div_ceil(across);
            let rows = region.rows.start / down..region.rows.end.div_ceil(down);
            rows.flat_map(|y| plane.row(y, columns.clone()).to_vec()).collect()
        });
        Ok((planes.collect(), decoder.entry_points().to_vec()))
    }

    /// Changes a file at a place behind `data`.
    fn edit(bytes: &mut Vec<u8>, data: usize, (at, value, kind): (Index, u8, u8)) {
        let marker = [0xff, 0xd0 | value & 7];
        let is_restart = |two: &[u8]| matches!(two, [0xff, 0xd0..=0xd7]);
        let restarts = bytes[data..].windows(2).enumerate();
        let restarts: Vec<usize> = restarts
            .filter(|(_, two)| is_restart(two))
            .map(|(at, _)| data + at)
            .collect();
        let anywhere = data + at.index(bytes.len() - data);
        let restart = match restarts.as_slice() {
            [] => anywhere..anywhere,
            all => {
                let from = all[at.index(all.len())];
                from..from + 2
            }
        };
        match kind {
            0 => bytes[anywhere] = value,
            1 => drop(bytes.remove(anywhere)),
            2 => bytes.insert(anywhere, value),
            // A marker with another number, one too many, one that is missing, and one anywhere.
            3 => drop(bytes.splice(restart, marker)),
            4 => drop(bytes.splice(restart.start..restart.start, marker)),
            5 => drop(bytes.splice(restart, [])),
            _ => drop(bytes.splice(anywhere..anywhere, marker)),
        }
    }

    prop_compose! {
        fn guessing()(
            worth_bytes in 1..200_u64,
            n_blocks in 1..500_usize,
            settled_mcus in 0..100_usize,
        ) -> Guessing {
            Guessing { worth_bytes, n_blocks, settled_mcus }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn guessing_changes_nothing(
            nth in 0..FILES.len(),
            edits in prop::collection::vec((any::<Index>(), any::<u8>(), 0..7_u8), 0..4),
            part in any::<[Index; 4]>(),
            guessing in guessing(),
        ) {
            let mut bytes = FILES[nth].clone();
            let data = Opened::new(&bytes).unwrap().scan.data;
            for made in edits {
                edit(&mut bytes, data, made);
            }
            let expected = seen(&mut Decoder::default(), &bytes, part, NEVER);
            let mut decoder = Decoder::default();
            // Memory that other images have used.
            seen(&mut decoder, &FILES[13], part, guessing).0.unwrap();
            prop_assert!(seen(&mut decoder, &bytes, part, guessing) == expected);
        }
    }

    /// MCUs that the second lane has decoded, of all.
    fn taken_over(bytes: &[u8], guessing: Guessing) -> [usize; 2] {
        let mut decoder = Decoder::default();
        decoder.guessing = guessing;
        let file = Opened::new(bytes).unwrap();
        let [across, down] = file.frame.n_mcus();
        let region = Region::whole(file.size());
        N_TAKEN.set(0);
        decoder.decode(file, &region, Chroma::AsStored, None).unwrap();
        [N_TAKEN.get(), across * down]
    }

    #[test]
    fn a_second_lane_decodes_nearly_half_of_a_photograph() {
        for name in PHOTOGRAPHS.into_iter().chain([GREY_PHOTOGRAPH]) {
            let file = fixture(name);
            let [n, all] = taken_over(&file, Guessing::default());
            assert!(5 * n > 2 * all && 3 * n < 2 * all, "{name}: {n} of {all}");
            assert_eq!(taken_over(&file, NEVER)[0], 0);
        }
    }

    /// A file of 64 × 64 MCUs, 4:2:0, with the standard's codes: all have noise, except those from
    /// `n_before` to `n_flat`.
    fn with_flat_part(n_before: usize, n_flat: usize) -> Vec<u8> {
        let mut bits = String::new();
        let mut seed = 1_u32;
        for mcu in 0..64 * 64 {
            for block in 0..6 {
                // A DC difference of 0; coefficients of 1 bit; the end of the block.
                let [one, end] = if block < 4 { ["00", "1010"] } else { ["01", "00"] };
                bits += "00";
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let is_flat = (n_before..n_flat).contains(&mcu);
                for nth in 0..if is_flat { 0 } else { seed >> 27 } {
                    bits += one;
                    bits += if seed >> nth & 1 == 1 { "1" } else { "0" };
                }
                bits += end;
            }
        }
        bits += &"1".repeat(bits.len().wrapping_neg() % 8);
        let mut file = b"\xff\xd8\xff\xdb\x00\x43\x00".to_vec();
        file.extend([1; 64]);
        file.extend(b"\xff\xc0\x00\x11\x08\x04\x00\x04\x00\x03\x01\x22\x00\x02\x11\x00\x03\x11\x00");
        for (class, number) in [(Class::Dc, 0), (Class::Ac, 0x10)] {
            for slot in [0, 1] {
                let code = Code::standard_bytes(class, slot);
                file.extend([0xff, 0xc4, 0, 3 + u8::try_from(code.len()).unwrap()]);
                file.push(number + u8::try_from(slot).unwrap());
                file.extend(code);
            }
        }
        file.extend(b"\xff\xda\x00\x0c\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00");
        for byte in bits.as_bytes().chunks(8) {
            let byte = str::from_utf8(byte).unwrap();
            file.push(u8::from_str_radix(byte, 2).unwrap());
            if file.last() == Some(&0xff) {
                file.push(0);
            }
        }
        file.extend([0xff, 0xd9]);
        file
    }

    /// Whichever bit of a flat MCU the first guess falls on.
    #[test]
    fn a_guess_in_a_flat_part_is_not_the_last_one() {
        for n_before in 0..40 {
            let n_flat = 2000;
            let file = with_flat_part(n_before, n_flat);
            let [n, all] = taken_over(&file, Guessing::default());
            assert!(5 * n > 2 * (all - n_flat), "{n} of {all}, {n_before} before");
            let of = |guessing| {
                let (mut decoder, mut parts) = (Decoder::default(), Parts::default());
                decoder.guessing = guessing;
                take_apart(&mut decoder, &file, &mut parts).unwrap();
                let Parts { coefficients, .. } = parts;
                (0..128).flat_map(|y| coefficients.row(0, y).to_vec()).collect::<Vec<_>>()
            };
            assert!(of(Guessing::default()) == of(NEVER));
        }
    }

    #[test]
    fn a_transcoder_has_a_second_lane_too() {
        let mut decoder = Decoder::default();
        N_TAKEN.set(0);
        take_apart(&mut decoder, &fixture(PHOTOGRAPHS[0]), &mut Parts::default())
            .unwrap();
        assert!(N_TAKEN.get() > 400, "{} of 1200", N_TAKEN.get());
    }

    /// All MCUs but those before the marker that it chooses, and the last, which no marker follows.
    #[test]
    fn with_restarts_the_second_lane_begins_behind_one() {
        let [n, all] = taken_over(&fixture(RESTARTS), ALWAYS);
        assert!(4 * n >= all, "{n} of {all}");
    }

    /// Red, green and blue have the same codes: where an MCU begins cannot be told.
    #[test]
    fn nothing_is_guessed_where_all_blocks_have_the_same_codes() {
        assert_eq!(taken_over(&fixture(SAME_CODES), ALWAYS)[0], 0);
    }
}
