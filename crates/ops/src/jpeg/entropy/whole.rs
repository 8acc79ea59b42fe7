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
//! and what it guesses is only that none is missing.
//!
//! Photographs of the first epoch are made 1.26 times as fast (Xeon model 167, one thread). Nothing is
//! guessed where all blocks have the same codes, because an MCU's first block looks like the others then.

#![allow(
    clippy::cast_possible_truncation,
    reason = "a DC is kept in 16 bits, whatever its sum"
)]

use super::sequential::{
    BlockCodes, BrokenLane, EntryPoint, Lane, Scan, run_one, run_two,
};
use crate::error::SampleFault;
use crate::jpeg::block::RowBlocks;
use crate::jpeg::{Broken, unreadable};
use crate::kernels::Level;

/// When to guess, and how much to decode on the strength of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guessing {
    /// Bytes that must be left of the scan.
    pub(crate) worth_bytes: u64,
    /// Blocks that a lane should be ahead. What it decodes is read again soon: 1536 blocks (192 KiB)
    /// suit a cache of the second level. Between 768 and 6144 there is little difference.
    pub(crate) n_blocks: usize,
    /// MCUs after which something that cannot be is taken for damage, or for the end of the data.
    /// Before, the guess is taken to have been wrong.
    pub(crate) settled_mcus: usize,
}

impl Default for Guessing {
    fn default() -> Self {
        Self { worth_bytes: 4096, n_blocks: 1536, settled_mcus: 64 }
    }
}

/// Bytes within which a guess must be confirmed, or no other is made in this scan.
const GIVE_UP_BYTES: u64 = 4096;

/// Bytes before the end of the data in which a lane fails because they end.
const END_BYTES: u64 = 64;

/// A scan of whole MCUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) level: Level,
    pub(crate) scan: Scan<'a>,
    /// The first bit behind the data.
    pub(crate) end: u64,
    /// MCUs across and down.
    pub(crate) size: [usize; 2],
    /// MCUs of a row from one entry point to the next.
    pub(crate) step: usize,
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
        let ahead = Ahead { lane: second, state, next: 0, first_mcu: None };
        let mut reading = Reading { whole: self, lane, ahead, take, mcu: 0 };
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

    /// Whether an MCU's first block cannot be told from the others.
    fn is_ambiguous(&self) -> bool {
        let [first, others @ ..] = self.scan.blocks else { return true };
        let is_same = |codes: &BlockCodes<'_>| {
            codes.dc.code() == first.dc.code() && codes.ac.code() == first.ac.code()
        };
        !others.is_empty() && others.iter().all(is_same)
    }

    /// MCUs that the second lane has room for.
    fn room(&self) -> usize {
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
        let Whole { scan, size: [across, _], step, .. } = self.whole;
        let (y, x) = (self.mcu / across, self.mcu % across);
        if x == 0 {
            self.lane.begin_row(scan, *across);
        }
        let point = self.lane.entry_point(scan).map_err(unreadable)?;
        if x.is_multiple_of(*step) {
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
        let n_ahead = (n_mcus / 2).min(self.whole.room() as u64);
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
        let room = self.whole.room();
        for position in (byte * 8..*end).step_by(8).take(64) {
            let from = EntryPoint { position, ..EntryPoint::default() };
            ahead.lane.enter(scan, from, 0, *end);
            if ahead.lane.set_out(scan, room + room / 4).is_ok() {
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
        let n_mcus = (across * down).saturating_sub(mcu).min(self.whole.room());
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

    /// The second lane's mark at which the first lane has arrived, if it has at one.
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
            Some(_) => {
                if here.position > marks[0].position + 8 * GIVE_UP_BYTES {
                    ahead.state = State::Off;
                }
                Ok(None)
            }
            None => {
                if ahead.state == State::Stopped {
                    ahead.state = State::Idle;
                }
                Ok(None)
            }
        }
    }

    /// Takes what the second lane has decoded from its mark number `mark` on, which is where the first
    /// lane is.
    fn take_over(&mut self, mark: usize) -> Result<(), SampleFault> {
        let Whole { scan, size: [across, down], end, step, .. } = self.whole;
        let here = self.lane.place();
        let marks = self.ahead.lane.marks();
        let first_dc = marks[mark].dc;
        let offset: [i32; 4] =
            std::array::from_fn(|i| here.dc[i].wrapping_sub(first_dc[i]));
        let last = (marks.len() - 1).min(mark + across * down - self.mcu);
        let mut at = mark;
        while at < last {
            let x = self.mcu % across;
            let n_mcus = (across - x).min(last - at);
            for within in (0..n_mcus).filter(|within| (x + within).is_multiple_of(*step))
            {
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
        self.lane.begin_row(scan, *across);
        self.lane.go_to(scan, self.mcu % across);
        self.ahead.state = State::Idle;
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
        ours.reserve(across * per_mcu);
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
mod tests {
    use std::path::PathBuf;
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::jpeg::decoder::{Decoder, ScanKind};
    use crate::jpeg::file::Opened;
    use crate::jpeg::planes::{Chroma, Region};

    /// Reads with one lane alone: the meaning.
    const NEVER: Guessing =
        Guessing { worth_bytes: u64::MAX, n_blocks: 1, settled_mcus: 0 };

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
            "ops/rgb-noise.jpg",
            "ops/restart-blocks.jpg",
            "ops/restart-rows.jpg",
            "stream/photos/ant/below/a.jpeg",
            "stream/photos/ant/B.jpg",
        ];
        names.map(|name| std::fs::read(fixture(name)).unwrap()).to_vec()
    });

    fn fixture(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
    }

    /// What there is to see of a file: its planes and entry points, or what is said of it.
    fn seen(decoder: &mut Decoder, bytes: &[u8], guessing: Guessing) -> Seen {
        decoder.guessing = guessing;
        let file = Opened::new(bytes).map_err(|fault| fault.to_string())?;
        let region = Region::whole(file.size());
        decoder
            .decode(file, &region, Chroma::Upsampled, None)
            .map_err(|fault| fault.to_string())?;
        let planes = decoder.planes().iter().map(|plane| {
            let [across, down] = plane.ratio();
            let columns = 0..region.columns.end.div_ceil(across);
            let rows = 0..region.rows.end.div_ceil(down);
            rows.flat_map(|y| plane.row(y, columns.clone()).to_vec()).collect()
        });
        Ok((planes.collect(), decoder.entry_points().to_vec()))
    }

    type Seen = Result<(Vec<Vec<u8>>, Vec<u8>), String>;

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

        /// Bytes of the data are replaced, removed and added, so that lanes meet what cannot be.
        #[test]
        fn guessing_changes_nothing(
            nth in 0..FILES.len(),
            edits in prop::collection::vec((any::<Index>(), any::<u8>(), 0..3_u8), 0..4),
            guessing in guessing(),
        ) {
            let mut bytes = FILES[nth].clone();
            let data = Opened::new(&bytes).unwrap().scan.data;
            for (at, value, edit) in edits {
                let at = data + at.index(bytes.len() - data);
                match edit {
                    0 => bytes[at] = value,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, value),
                }
            }
            let expected = seen(&mut Decoder::default(), &bytes, NEVER);
            let mut decoder = Decoder::default();
            // Memory that other images have used.
            seen(&mut decoder, &FILES[14], guessing).unwrap();
            prop_assert!(seen(&mut decoder, &bytes, guessing) == expected);
        }
    }

    /// Which rows the second lane has made.
    struct FromAhead {
        rows: Vec<usize>,
    }

    impl TakeRows for FromAhead {
        fn wants(&self, _: usize) -> bool {
            true
        }

        fn point(&mut self, _: EntryPoint) {}

        fn row(&mut self, row: DecodedRow<'_>) -> Result<(), SampleFault> {
            if row.from > 0 {
                self.rows.push(row.y);
            }
            Ok(())
        }
    }

    fn rows_from_ahead(bytes: &[u8], guessing: Guessing) -> (Vec<usize>, usize) {
        let mut decoder = Decoder::default();
        let mut file = Opened::new(bytes).unwrap();
        let kind = ScanKind::new(&file).unwrap();
        let scan = file.scan;
        decoder.set_codes(&file, &scan).unwrap();
        let restart_interval = decoder.take_only_scan(&mut file, &kind).unwrap();
        let blocks = kind.codes(&decoder.codes);
        let whole = Whole {
            level: decoder.level(),
            scan: Scan {
                padded: decoder.data.padded(),
                blocks: &blocks[..kind.n_blocks],
                restart_interval,
                restarts: decoder.data.restarts(),
            },
            end: 8 * decoder.data.len() as u64,
            size: file.frame.n_mcus(),
            step: 4,
            guessing,
        };
        let mut rows = FromAhead { rows: Vec::new() };
        whole.read(&mut decoder.lanes, &mut rows).unwrap();
        (rows.rows, file.frame.n_mcus()[1])
    }

    #[test]
    fn a_second_lane_decodes_the_second_half_of_a_photograph() {
        let (rows, down) = rows_from_ahead(&FILES[14], Guessing::default());
        assert!(rows.len() > down / 3, "{rows:?} of {down}");
        assert!(rows_from_ahead(&FILES[14], NEVER).0.is_empty());
    }

    #[test]
    fn with_restarts_the_second_lane_begins_behind_one() {
        let small = Guessing { worth_bytes: 1, ..Guessing::default() };
        let file = std::fs::read(fixture("ops/restart-rows.jpg")).unwrap();
        let (rows, down) = rows_from_ahead(&file, small);
        assert!(rows.len() + 2 >= down / 2, "{rows:?} of {down}");
    }

    /// Red, green and blue have the same codes: where an MCU begins cannot be told.
    #[test]
    fn nothing_is_guessed_where_all_blocks_have_the_same_codes() {
        let file = std::fs::read(fixture("ops/rgb-noise.jpg")).unwrap();
        let small = Guessing { worth_bytes: 1, ..Guessing::default() };
        assert!(rows_from_ahead(&file, small).0.is_empty());
    }
}
