//! The JPEG decoder against itself: a region is a crop of the image, entry points change no
//! pixel, and neither do kernels; whatever the bytes are, nothing panics. That the image is
//! libjpeg's is `golden.rs`'s to show, and `scripts/compare-jpeg`'s.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use bothends_core::recipe::Size;
use bothends_ops::jpeg::{
    Chroma, Decoder, EntryPoints, Noted, Opened, Plane, Region, ScanNote,
};
use bothends_ops::kernels::Level;
use proptest::prelude::*;
use proptest::sample::Index;

/// Every kind of file: sampling, process, restarts, sizes that fill no MCU.
const FILES: [&str; 17] = [
    "411.jpg",
    "420-1x1.jpg",
    "420-17x33.jpg",
    "420-48x64.jpg",
    "420-progressive.jpg",
    "420-q100.jpg",
    "422-31x18.jpg",
    "422-48x64.jpg",
    "440.jpg",
    "441.jpg",
    "444-48x64.jpg",
    "444-q100.jpg",
    "cmyk-17x33.jpg",
    "grey-48x64.jpg",
    "optimised.jpg",
    "restart-blocks.jpg",
    "restart-rows.jpg",
];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder("fixtures/ops").join(name)).unwrap()
}

/// What a region needs of each plane, sample by sample.
fn samples(decoder: &Decoder, region: &Region) -> Vec<Vec<u8>> {
    let of_plane = |plane: &Plane| {
        let [across, down] = plane.ratio();
        let columns = region.columns.start / across..region.columns.end.div_ceil(across);
        let rows = region.rows.start / down..region.rows.end.div_ceil(down);
        rows.flat_map(|y| plane.row(y, columns.clone()).to_vec()).collect()
    };
    decoder.planes().iter().map(of_plane).collect()
}

/// Decodes all of a file and leaves its entry points.
fn whole(decoder: &mut Decoder, bytes: &[u8]) -> Vec<u8> {
    let file = Opened::new(bytes).unwrap();
    let region = Region::whole(file.size());
    decoder.decode(file, &region, Chroma::Upsampled, None).unwrap();
    decoder.entry_points().to_vec()
}

/// The entry points of a note, row by row and the scan's end.
fn points_of(note: &ScanNote<'_>) -> Vec<u64> {
    (0..).map_while(|nth| note.point(nth)).map(|point| point.packed).collect()
}

/// The note as earlier versions wrote it: entry points alone, one for every eight MCUs of a row.
/// `None` where the note has none at these places.
fn old_form(note: &[u8]) -> Option<Vec<u8>> {
    let note = ScanNote::read(note)?;
    let points = points_of(&note);
    let apart = (8 / note.step()).max(1);
    let (end, rows) = points.split_last()?;
    let rows = rows.chunks(note.points_per_row());
    let kept = rows.flat_map(|row| row.iter().step_by(apart)).chain([end]);
    (apart * note.step() == 8).then(|| kept.flat_map(|p| p.to_le_bytes()).collect())
}

/// The part of a file that a region needs where its note describes it, and where that begins. `None` for a file
/// without a note.
fn noted_part<'a>(
    bytes: &'a [u8],
    note: &[u8],
    region: &Region,
) -> Option<(u32, &'a [u8])> {
    let part = Noted::new(note, 0, &[]).ok()?.bytes_for(region).unwrap();
    Some((part.start, &bytes[part.start as usize..part.end as usize]))
}

/// A part of an image of `size`.
fn part(size: [usize; 2], at: [Index; 4]) -> Region {
    let range = |len: usize, start: Index, n: Index| {
        let start = start.index(len);
        start..start + 1 + n.index(len - start)
    };
    Region { rows: range(size[0], at[0], at[1]), columns: range(size[1], at[2], at[3]) }
}

proptest! {
    #[test]
    fn a_region_is_a_crop_of_the_image(
        name in prop::sample::select(&FILES[..]),
        at in prop::array::uniform4(any::<Index>()),
    ) {
        let bytes = file(name);
        let mut decoder = Decoder::default();
        let points = whole(&mut decoder, &bytes);
        let size = Opened::new(&bytes).unwrap().size();
        let region = part([size.height as usize, size.width as usize], at);
        let expected = samples(&decoder, &region);
        for level in Level::available() {
            let old = old_form(&points).unwrap_or_default();
            for points in [EntryPoints::new(&points), EntryPoints::new(&old), None] {
                let mut decoder = Decoder::new(level);
                let file = Opened::new(&bytes).unwrap();
                decoder.decode(file, &region, Chroma::AsStored, points).unwrap();
                let kind = format!("{name} {region:?} {} {points:?}", level.name());
                prop_assert!(samples(&decoder, &region) == expected, "{}", kind);
                // Nobody is told twice.
                let is_new = !decoder.entry_points().is_empty();
                prop_assert!(!is_new || points.is_none(), "{}", kind);
            }
            if let Some((from, part)) = noted_part(&bytes, &points, &region) {
                let noted = Noted::new(&points, from, part).unwrap();
                let mut decoder = Decoder::new(level);
                decoder.decode_noted(&noted, &region, Chroma::Upsampled).unwrap();
                let kind = format!("{name} {region:?} {} noted", level.name());
                prop_assert!(samples(&decoder, &region) == expected, "{}", kind);
                prop_assert!(decoder.entry_points().is_empty(), "{}", kind);
            }
        }
    }

    /// Entry points that are not the file's give its pixels or other ones, and no panic: who
    /// keeps them keeps the file's hash.
    #[test]
    fn wrong_entry_points_never_panic(
        name in prop::sample::select(&FILES[..]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..20),
        at in prop::array::uniform4(any::<Index>()),
    ) {
        let bytes = file(name);
        let mut decoder = Decoder::default();
        let mut points = whole(&mut decoder, &bytes);
        for (place, value) in changes {
            if !points.is_empty() {
                let place = place.index(points.len());
                points[place] = value;
            }
        }
        let opened = Opened::new(&bytes).unwrap();
        let size = opened.size();
        let region = part([size.height as usize, size.width as usize], at);
        let points = EntryPoints::new(&points);
        decoder.decode(opened, &region, Chroma::Upsampled, points).unwrap();
    }

    #[test]
    fn changed_bytes_never_panic(
        name in prop::sample::select(&FILES[..]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = file(name);
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(file) = Opened::new(&bytes) {
            let region = Region::whole(file.size());
            let _ = Decoder::default().decode(file, &region, Chroma::Upsampled, None);
        }
    }
}

/// Rows of a large image: a part of the file is read for a part of the rows, and little more than its share.
#[test]
fn a_part_of_the_rows_takes_a_part_of_the_file() {
    let bytes = file("444-q100.jpg");
    let note = whole(&mut Decoder::default(), &bytes);
    let Size { height, width } = Opened::new(&bytes).unwrap().size();
    let [height, width] = [height, width].map(|side| side as usize);
    let half = Region { rows: height / 4..height * 3 / 4, columns: 0..width };
    let (from, part) = noted_part(&bytes, &note, &half).unwrap();
    assert!(from > 0 && part.len() < bytes.len() * 3 / 4, "{} bytes", part.len());
}

/// Whatever byte of what was read is another one, or is not there: an error, and no other pixels.
#[test]
fn a_part_of_a_file_that_has_changed_is_refused() {
    for name in ["420-48x64.jpg", "444-17x33.jpg", "restart-rows.jpg", "grey-48x64.jpg"] {
        let bytes = file(name);
        let mut decoder = Decoder::default();
        let note = whole(&mut decoder, &bytes);
        let Size { height, width } = Opened::new(&bytes).unwrap().size();
        let region = Region { rows: 4..height as usize / 2, columns: 3..width as usize };
        let (from, part) = noted_part(&bytes, &note, &region).unwrap();
        let mut decode = |from, part: &[u8]| {
            let noted = Noted::new(&note, from, part)?;
            decoder.decode_noted(&noted, &region, Chroma::Upsampled)
        };
        decode(from, part).unwrap();
        for at in 0..part.len() {
            let mut changed = part.to_vec();
            changed[at] ^= 1 << (at % 8);
            decode(from, &changed).expect_err(name);
            decode(from, &part[..at]).expect_err(name);
        }
        for elsewhere in [0, from - 1, from + 1, u32::MAX] {
            decode(elsewhere, part).expect_err(name);
        }
        decode(0, &bytes).expect_err("the headers are no part of the scan");
    }
}

/// A file's own entry points are used: decoding without them finds the same ones.
#[test]
fn good_points_are_followed() {
    for name in FILES {
        let bytes = file(name);
        let points = whole(&mut Decoder::default(), &bytes);
        let opened = Opened::new(&bytes).unwrap();
        let region = Region::whole(opened.size());
        let mut decoder = Decoder::default();
        let points = EntryPoints::new(&points);
        decoder.decode(opened, &region, Chroma::Upsampled, points).unwrap();
        assert!(points.is_none() || decoder.entry_points().is_empty(), "{name}");
    }
}

/// A row that ends inside the byte before the one that it begins with: the part of the file
/// between the points is empty, and does not hold the byte that the last bits would lie in.
#[test]
fn points_that_run_backwards_by_a_byte_never_panic() {
    let bytes = file("444-17x33.jpg");
    let points = old_form(&whole(&mut Decoder::default(), &bytes)).unwrap();
    for row in 0..points.len() / 8 - 1 {
        for bit in 1..8_u64 {
            let mut points = points.clone();
            let numbers = points.as_chunks_mut::<8>().0;
            let (from, to) = (1_u64, bit << 25);
            numbers[row] = from.to_le_bytes();
            numbers[row + 1] = to.to_le_bytes();
            let opened = Opened::new(&bytes).unwrap();
            let region = Region::whole(opened.size());
            let points = EntryPoints::new(&points);
            Decoder::default()
                .decode(opened, &region, Chroma::Upsampled, points)
                .expect("the file itself is good");
        }
    }
}

/// Every kind that can have entry points has them, and those that cannot have none.
#[test]
fn sequential_files_of_one_scan_leave_entry_points() {
    for name in FILES {
        let bytes = file(name);
        let points = whole(&mut Decoder::default(), &bytes);
        let cannot = name.contains("progressive") || name.contains("cmyk");
        assert_eq!(points.is_empty(), cannot, "{name}");
        assert_eq!(ScanNote::read(&points).is_none(), cannot, "{name}");
    }
}

/// The first entry point is the start of the scan, and the others follow one another.
#[test]
fn entry_points_go_forward() {
    let note = whole(&mut Decoder::default(), &file("444-q100.jpg"));
    let points = points_of(&ScanNote::read(&note).unwrap());
    let numbers: Vec<u64> = points.iter().map(|point| point & ((1 << 25) - 1)).collect();
    assert_eq!(numbers[0], 0);
    assert!(numbers.is_sorted());
}

/// Whatever entry points say, a damaged file is refused when it is read without them, even
/// where the damage lies outside the region.
#[test]
fn damage_anywhere_is_damage() {
    let mut bytes = file("444-48x64.jpg");
    let end = bytes.len() - 2;
    // All ones are no code of the standard's tables.
    bytes[end - 8..end].copy_from_slice(&[0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0]);
    let region = Region { rows: 0..8, columns: 0..8 };
    let file = Opened::new(&bytes).unwrap();
    let outcome = Decoder::default().decode(file, &region, Chroma::Upsampled, None);
    assert!(outcome.is_err());
}

/// Files that are cut, and cut in the middle of a byte's stuffing.
#[test]
fn every_cut_is_noticed() {
    for name in FILES {
        let bytes = file(name);
        for end in (0..bytes.len()).step_by(1 + bytes.len() / 400) {
            let Ok(file) = Opened::new(&bytes[..end]) else { continue };
            let region = Region::whole(file.size());
            let outcome =
                Decoder::default().decode(file, &region, Chroma::Upsampled, None);
            assert!(outcome.is_err(), "{name}: {end} of {} bytes", bytes.len());
        }
    }
}

/// A restart interval between a scan and the end of the image is for no scan.
#[test]
fn what_stands_behind_a_scan_does_not_change_it() {
    let bytes = file("420-48x64.jpg");
    let (scan, end) = bytes.split_at(bytes.len() - 2);
    let changed = [scan, &[0xff, 0xdd, 0, 4, 0, 1], end].concat();
    let (mut decoder, mut other) = (Decoder::default(), Decoder::default());
    whole(&mut decoder, &bytes);
    whole(&mut other, &changed);
    let region = Region::whole(Opened::new(&bytes).unwrap().size());
    assert_eq!(samples(&decoder, &region), samples(&other, &region));
}

/// Old notes are read like new ones: decoding with them finds nothing to add.
#[test]
fn notes_of_the_earlier_version_are_followed() {
    let mut n_old = 0;
    for name in FILES {
        let bytes = file(name);
        let Some(old) = old_form(&whole(&mut Decoder::default(), &bytes)) else {
            continue;
        };
        n_old += 1;
        let opened = Opened::new(&bytes).unwrap();
        let region = Region::whole(opened.size());
        let mut decoder = Decoder::default();
        decoder
            .decode(opened, &region, Chroma::Upsampled, EntryPoints::new(&old))
            .unwrap();
        assert!(decoder.entry_points().is_empty(), "{name}");
    }
    assert!(n_old >= 8, "only {n_old} files");
}

/// What a note says is what the file's headers and its bytes say.
#[test]
fn a_note_describes_its_file() {
    for name in FILES {
        let bytes = file(name);
        let note = whole(&mut Decoder::default(), &bytes);
        let Some(note) = ScanNote::read(&note) else { continue };
        let opened = Opened::new(&bytes).unwrap();
        assert_eq!(note.size(), opened.size(), "{name}");
        // After the last header's own length: where a start of scan ends.
        let data_at = note.data_at() as usize;
        let sos = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
        let len = usize::from(u16::from_be_bytes([bytes[sos + 2], bytes[sos + 3]]));
        assert_eq!(data_at, sos + 2 + len, "{name}");
        let rows = note.rows_per_check();
        let per_row = note.points_per_row();
        let n_rows = (points_of(&note).len() - 1) / per_row;
        for row in (0..n_rows).step_by(rows) {
            let from = note.point(row * per_row).unwrap();
            let to = note.point((row + rows).min(n_rows) * per_row).unwrap();
            let end = to.byte + usize::from(to.is_within);
            let sum = twox_hash::XxHash3_64::oneshot(&bytes[data_at..][from.byte..end]);
            assert_eq!(
                note.check(row).map(u64::from),
                Some(sum & 0xffff_ffff),
                "{name}, row {row}"
            );
        }
        let blocks = note.blocks().count();
        assert!((1..=10).contains(&blocks), "{name}: {blocks} blocks");
        assert!(note.codes().all(|code| code.symbols.len() <= 256));
    }
}

proptest! {
    /// Whatever a note's bytes are, it is none, or what it says keeps the rules.
    #[test]
    fn changed_notes_never_panic(
        name in prop::sample::select(&FILES[..]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..8),
        cut in any::<Index>(),
    ) {
        let bytes = file(name);
        let mut note = whole(&mut Decoder::default(), &bytes);
        for (place, value) in changes {
            if !note.is_empty() {
                // Mostly where it describes, not its points.
                let place = place.index(note.len().min(120));
                note[place] = value;
            }
        }
        if cut.index(4) == 0 {
            note.truncate(cut.index(note.len() + 1));
        }
        let opened = Opened::new(&bytes).unwrap();
        let region = Region::whole(opened.size());
        let points = EntryPoints::new(&note);
        Decoder::default().decode(opened, &region, Chroma::Upsampled, points).unwrap();
        for region in [region, Region { rows: 0..1, columns: 0..1 }] {
            let Ok(noted) = Noted::new(&note, 0, &[]) else { continue };
            let range = noted.bytes_for(&region).unwrap_or(0..u32::MAX);
            let [start, end] = [range.start, range.end].map(|at| bytes.len().min(at as usize));
            if let Ok(noted) = Noted::new(&note, range.start, &bytes[start..end]) {
                // Of a note that says something else, another region than the image has.
                let size = noted.size();
                let is_within = region.rows.end <= size.height as usize
                    && region.columns.end <= size.width as usize;
                if is_within {
                    let _ = Decoder::default().decode_noted(&noted, &region, Chroma::Upsampled);
                }
            }
        }
        if let Some(note) = ScanNote::read(&note) {
            prop_assert!(note.blocks().all(|block| block.component < 3 && block.dc < 3));
            prop_assert!(note.codes().all(|code| code.symbols.len() <= 256));
            prop_assert!(note.step() > 0 && note.point(0).is_some());
        }
    }
}

/// A note with one more code behind its own, which no component names.
fn with_code(note: &[u8], counts: [u8; 16], n_symbols: usize) -> Vec<u8> {
    let mut at = code_section(note);
    for _ in 0..note[15] {
        let counts = note[at..at + 16].iter().map(|&n| usize::from(n));
        // 255: one of the standard's codes, by its number.
        at += if note[at] == 255 { 2 } else { 16 + counts.sum::<usize>() };
    }
    let mut changed = note.to_vec();
    changed[15] += 1;
    let code = counts.into_iter().chain(std::iter::repeat_n(0, n_symbols));
    changed.splice(at..at, code);
    changed
}

/// Where the codes of a note begin (`entropy/note.rs` has the layout).
fn code_section(note: &[u8]) -> usize {
    let mut at = 28 + 6 * usize::from(note[13]);
    for _ in 0..note[14] {
        at += 1 + 64 * usize::from(note[at]);
    }
    at
}

#[test]
fn a_code_that_no_component_names_keeps_the_rules_too() {
    let bytes = file("grey-48x64.jpg");
    let note = whole(&mut Decoder::default(), &bytes);
    let mut one_of_each_length = [0; 16];
    one_of_each_length[1..].fill(1);
    let good = with_code(&note, one_of_each_length, 15);
    assert!(ScanNote::read(&good).is_some(), "the place for a code is the right one");
    let mut many = [0; 16];
    many[14..].copy_from_slice(&[2, 255]);
    assert!(ScanNote::read(&with_code(&note, many, 257)).is_none(), "257 symbols");
    let full = with_code(&note, [255; 16], 16 * 255);
    assert!(ScanNote::read(&full).is_none(), "all counts as large as can be");
    let mut too_many = [0; 16];
    too_many[0] = 3;
    let overfull = with_code(&note, too_many, 3);
    assert!(ScanNote::read(&overfull).is_none(), "three codes of one bit");
}

/// Each byte of the description at its limits, and the numbers of several bytes as large as can be:
/// the note is refused or keeps the rules, and the image is decoded all the same.
#[test]
fn notes_with_numbers_at_their_limits_are_refused_or_keep_the_rules() {
    for name in ["grey-48x64.jpg", "420-48x64.jpg", "restart-rows.jpg", "444-17x33.jpg"] {
        let bytes = file(name);
        let mut decoder = Decoder::default();
        let note = whole(&mut decoder, &bytes);
        let size = Opened::new(&bytes).unwrap().size();
        let region = Region::whole(size);
        let described = code_section(&note) + 40;
        for (at, width) in (0..described).flat_map(|at| [1, 2, 4].map(|n| (at, n))) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = note.clone();
                changed[at..at + width].fill(value);
                let points = EntryPoints::new(&changed);
                let file = Opened::new(&bytes).unwrap();
                decoder.decode(file, &region, Chroma::Upsampled, points).unwrap();
                let Some(note) = ScanNote::read(&changed) else { continue };
                let kind = format!("{name}: {width} bytes of {value} at {at}");
                assert!(note.codes().all(|code| code.symbols.len() <= 256), "{kind}");
                assert!(note.blocks().all(|b| b.component < 3 && b.dc < 3), "{kind}");
                assert!(note.step() > 0 && note.points_per_row() > 0, "{kind}");
                assert!(note.point(usize::MAX).is_none(), "{kind}");
                let n_rows = (points_of(&note).len() - 1) / note.points_per_row();
                let are_there = (0..n_rows).all(|row| note.check(row).is_some());
                assert!(are_there && note.check(usize::MAX).is_none(), "{kind}");
            }
        }
    }
}
