//! The entries of the fuzz targets, as plain functions: everything here that reads bytes
//! from elsewhere, with what must hold whatever the bytes are.
//!
//! Each entry panics when a rule is broken and says nothing otherwise. `fuzz_targets/`
//! hands them to libFuzzer; `tests/replay.rs` runs them over `tests/bad` on any toolchain.

mod controllers;
mod doors;
mod nvme;
mod peers;
mod texts;

use std::cell::RefCell;

use bothends_core::blocks::{
    Blocks, Colour, Component, GroupLengths, Head, Profile, RowLengths, write_profile,
};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{BatchKey, Recipe, RecordShape, Size, Truncated};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_csd::wire::{Header, Message};
use bothends_dataset::conformance::{self, MemoryStorage};
use bothends_dataset::store::{self, Index, Manifest, RecordKind};
use bothends_dataset::{Table, block_cache, side_index};
use bothends_ops::decode::{ImageDecoder, decode};
use bothends_ops::image::Image;
use bothends_ops::jpeg::rebuild::{Parts, put_together, take_apart};
use bothends_ops::jpeg::{
    Chroma, Coefficients, Decoder, EntryPoints, Noted, Opened, Plane, Region, ScanNote,
    Stored, unpack,
};
use bothends_ops::kernels::Level;
use bothends_ops::{Finish, Pipeline, Scratch};
use bothends_report::{Recording, ReportInput, html, table, trace};
use twox_hash::XxHash3_64;

pub use doors::capi;
pub use peers::{answers, keys, notice, remote, serving};
pub use texts::{compressed, list, loader, preset, shards, state};

/// A message of the wire: what is accepted comes back as it was. The bytes are tried as
/// they are, and as the fields and body of a message whose lengths and checks are right,
/// which no fuzzer would find.
pub fn wire(bytes: &[u8]) {
    message(bytes);
    if let Some(sealed) = peers::sealed(bytes) {
        message(&sealed);
    }
}

fn message(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk() else { return };
    let Ok(header) = Header::decode(head) else { return };
    let Some(body) = rest.get(..header.body_bytes()) else { return };
    let Ok(message) = Message::decode(&header, body) else { return };
    peers::members(&message);
    let again = message.encode();
    let (head, body) = again.split_first_chunk().expect("a message has a header");
    let header = Header::decode(head).expect("an encoded header is a header");
    let again = Message::decode(&header, body).expect("an encoded body is a body");
    // A decimal fraction need not come back to the last bit.
    assert!(message == again || matches!(message, Message::Stats(_)));
}

/// A manifest: what is accepted encodes to itself.
pub fn manifest(bytes: &[u8]) {
    if let Ok(table) = Table::decode(bytes) {
        assert_eq!(table.encode(), bytes);
    }
}

/// A batch of CIFAR-10 as Python pickles it: what is accepted is a table that leads nowhere
/// out of the file.
pub fn pickle(bytes: &[u8]) {
    let storage = MemoryStorage::new().with("data_batch_1", bytes);
    if let Ok(found) = bothends_dataset::find(&storage, "data_batch_1") {
        conformance::check(&storage, &found);
    }
}

/// A part of a store: what is accepted as a manifest says the same when it is written again,
/// and behind what is accepted as a shard's index nothing leads out of it. The bytes are tried
/// as an index's file, and as a shard whose checksums are right, which no fuzzer would find.
pub fn store(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode(bytes) {
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }
    if let Some((head, index_bytes)) = bytes.split_first_chunk()
        && let Ok(header) = store::Header::decode(head)
    {
        index(index_bytes, &header);
    }
    if let Some((bytes, header)) = sealed_index(bytes) {
        index(bytes, &header);
    }
}

fn index(bytes: &[u8], header: &store::Header) {
    let Ok(index) = Index::decode(bytes, header) else { return };
    let mut n_samples = 0;
    let mut end = 4096;
    for (number, line) in index.lines().iter().enumerate() {
        assert_eq!(line.offset(), end);
        end += u64::from(line.len).next_multiple_of(4096);
        assert!(!index.name(line.name).is_empty());
        let has_blocks = line.kind == RecordKind::Blocks;
        assert_eq!(!index.head(number).is_empty(), has_blocks);
        assert_eq!(!index.profile(number).is_empty(), has_blocks);
        n_samples += u64::from(line.kind != RecordKind::Rest);
    }
    assert_eq!(index.n_samples(), n_samples);
    assert_eq!(header.index_range().start, end);
}

/// The index of a shard, with a header whose checksums are right.
fn sealed_index(shard: &[u8]) -> Option<(&[u8], store::Header)> {
    let start = u64::from_le_bytes(*shard.get(16..)?.first_chunk()?);
    let len = u64::from_le_bytes(*shard.get(24..)?.first_chunk()?);
    let range =
        usize::try_from(start).ok()?..usize::try_from(start.checked_add(len)?).ok()?;
    let index = shard.get(range)?;
    Some((index, store::Header::new(start, index).ok()?))
}

/// An image file of a different format than JPEG: what is accepted has as many pixels as its shape says.
pub fn image(bytes: &[u8]) {
    let mut image = Image::default();
    if decode(Record::new(bytes, Encoding::Image), &mut image).is_ok() {
        assert_eq!(image.pixels().len(), image.shape().len());
        assert!(!image.pixels().is_empty());
    }
}

/// An image file: what is accepted has as many pixels as its shape says, the same ones with
/// every kernel, and a part of it is a part of the whole, with entry points and without. A file
/// that the fast path refuses goes through the slow one, and once more to be filled up.
pub fn jpeg(bytes: &[u8]) {
    let mut image = Image::default();
    let record = Record::new(bytes, Encoding::Image);
    let is_accepted = decode(record, &mut image).is_ok();
    let mut filling = ImageDecoder::default().with_truncated(Truncated::Fill);
    let mut filled = Image::default();
    let is_filled = filling.decode(record, &mut filled).is_ok();
    if !is_accepted {
        return;
    }
    assert!(is_filled && image.pixels() == filled.pixels());
    assert_eq!(image.pixels().len(), image.shape().len());
    assert!(!image.pixels().is_empty());
    let (Ok(file), Ok(again)) = (Opened::new(bytes), Opened::new(bytes)) else { return };
    let size = file.size();
    // Some part of it, chosen by the bytes.
    let choice = XxHash3_64::oneshot(bytes);
    let range = |len: u32, bits: u64| {
        let len = u64::from(len);
        let start = bits % len;
        let n = 1 + (bits >> 8) % (len - start);
        start as usize..(start + n) as usize
    };
    let rows = range(size.height, choice & 0xffff_ffff);
    let region = Region { rows, columns: range(size.width, choice >> 32) };
    let mut straight = Decoder::new(Level::Scalar);
    let decoded = straight.decode(file, &region, Chroma::Upsampled, None);
    if filling.damage().is_some() || decoded.is_err() {
        // The slow path made it, which knows no parts.
        assert!(decoded.is_err());
        return;
    }
    let points = EntryPoints::new(straight.entry_points());
    let mut parts = Decoder::default();
    parts.decode(again, &region, Chroma::Upsampled, points).expect("as the whole was");
    for (a, b) in straight.planes().iter().zip(parts.planes()) {
        let [across, down] = a.ratio();
        let columns = region.columns.start / across..region.columns.end.div_ceil(across);
        for y in region.rows.start / down..region.rows.end.div_ceil(down) {
            assert_eq!(a.row(y, columns.clone()), b.row(y, columns.clone()));
        }
    }
}

/// A segment of the block cache. Nothing panics; what is accepted stays inside it, and every record has an
/// outline.
pub fn block_cache(bytes: &[u8]) {
    let Some((header, _)) = bytes.split_first_chunk() else { return };
    let Ok(range) = block_cache::directory_range(header, bytes.len() as u64) else {
        return;
    };
    let Some(part) = bytes.get(range.start as usize..range.end as usize) else { return };
    // Checksums would keep nearly all inputs out: this one is made to fit.
    let mut header = *header;
    header[24..32].copy_from_slice(&XxHash3_64::oneshot(part).to_le_bytes());
    let Ok(directory) = block_cache::directory(&header, part, |_, _| true) else {
        return;
    };
    for (number, line) in directory.lines().iter().enumerate() {
        assert!(line.offset + u64::from(line.len) <= range.start);
        if directory.checksum(number).is_some() && header.starts_with(b"BERECOR1") {
            continue;
        }
        let outline = directory.outline(number).expect("it was checked");
        assert!(outline.blocks().is_some_and(|blocks| blocks.head().lies_in(line.len)));
    }
    let again = directory.encode();
    assert_eq!(again.len(), directory.n_bytes());
}

/// The side index of a data set: the bytes as a segment, as the note of an image, and as a mask that is
/// applied to the image's own note. Nothing panics; what is accepted as a segment stays inside it, and
/// what a note says keeps the rules.
pub fn side_index(bytes: &[u8]) {
    if let Some((header, _)) = bytes.split_first_chunk()
        && let Ok(range) = side_index::directory_range(header, bytes.len() as u64)
        && let Some(directory) = bytes.get(range.start as usize..range.end as usize)
        && let Ok(lines) = side_index::directory(header, directory, |_, _| true)
    {
        for line in lines {
            assert!(line.offset + u64::from(line.len) <= range.start);
        }
    }
    // One of them per input, and a decoder that lives on: three fresh ones are nine times slower.
    let images = [
        &include_bytes!("../../tests/fixtures/ops/420-48x64.jpg")[..],
        &include_bytes!("../../tests/fixtures/ops/restart-rows.jpg")[..],
        &include_bytes!("../../tests/fixtures/ops/444-17x33.jpg")[..],
    ];
    let image = images[bytes.len() % images.len()];
    thread_local!(static DECODER: RefCell<Decoder> = RefCell::default());
    let decode = |note: Option<EntryPoints<'_>>| {
        let Ok(file) = Opened::new(image) else { return Vec::new() };
        let region = Region::whole(file.size());
        DECODER.with_borrow_mut(|decoder| {
            let decoded = decoder.decode(file, &region, Chroma::Upsampled, note);
            assert!(decoded.is_ok(), "the file itself is good");
            decoder.entry_points().to_vec()
        })
    };
    decode(EntryPoints::new(bytes));
    let mut note = decode(None);
    // Where the bytes go is theirs to say; a zero leaves what is there.
    let at = usize::from(bytes.first().copied().unwrap_or(0)) % note.len().max(1);
    for (place, byte) in note[at..].iter_mut().zip(bytes.iter().skip(1)) {
        *place ^= byte;
    }
    decode(EntryPoints::new(&note));
    [&note, bytes].into_iter().for_each(|note| decode_noted(note, image));
    // An overlay keeps the length, and so the number of codes and tables: the bytes alone need not.
    [&note, bytes]
        .into_iter()
        .filter_map(ScanNote::read)
        .for_each(|note| keeps_rules(&note));
}

/// Decodes the middle of an image by this note, from the bytes that the note names.
fn decode_noted(note: &[u8], image: &[u8]) {
    thread_local!(static DECODER: RefCell<Decoder> = RefCell::default());
    let Ok(noted) = Noted::new(note, 0, &[]) else { return };
    let Size { height, width } = noted.size();
    let [height, width] = [height, width].map(|side| side as usize);
    let region = Region { rows: height / 3..height / 3 + 1, columns: 0..width };
    let Some(named) = noted.bytes_for(&region) else { return };
    let bytes = image.get(named.start as usize..image.len().min(named.end as usize));
    if let Ok(noted) = Noted::new(note, named.start, bytes.unwrap_or_default()) {
        DECODER.with_borrow_mut(|decoder| {
            let _ = decoder.decode_noted(&noted, &region, Chroma::Upsampled);
        });
    }
}

/// Everything that a note says is there and within what a machine that decodes it has room for.
fn keeps_rules(note: &ScanNote<'_>) {
    assert!(note.blocks().all(|block| block.component < 3 && block.dc < 3));
    assert!(note.blocks().all(|block| note.steps(block.component).len() == 64));
    assert!(note.codes().len() <= 6 && note.step() > 0 && note.rows_per_check() > 0);
    for code in note.codes() {
        let n_symbols: usize = code.counts.iter().map(|&n| usize::from(n)).sum();
        assert!(n_symbols == code.symbols.len() && n_symbols <= 256);
        // Of the 65,536 words of 16 bits, those that begin with one of its codes.
        let lengths = (1..=16).zip(code.counts);
        let taken: u32 = lengths.map(|(length, &n)| u32::from(n) << (16 - length)).sum();
        assert!(taken < 1 << 16, "more codes than fit");
    }
    assert!(note.point(0).is_some() && note.check(0).is_some());
    assert!(note.point(usize::MAX).is_none() && note.check(usize::MAX).is_none());
}

/// A row group whose checksum is right, of an image of few pixels: nothing panics, and every
/// kernel makes the same planes of it, or refuses it.
pub fn row_groups(bytes: &[u8]) {
    let [kind, height, width, body @ ..] = bytes else { return };
    let part = |h, v, table| Component { h, v, table };
    let (colour, components) = match kind % 4 {
        0 => (Colour::Grey, vec![part(1, 1, 0)]),
        1 => (Colour::YCbCr, vec![part(1, 1, 0); 3]),
        2 => (Colour::YCbCr, vec![part(2, 2, 0), part(1, 1, 1), part(1, 1, 1)]),
        _ => (
            Colour::Cmyk,
            vec![part(2, 1, 0), part(1, 1, 1), part(1, 1, 1), part(2, 1, 0)],
        ),
    };
    let mut profile = Vec::new();
    let tables = [[u16::from(*kind) << 2; 64], [9; 64]];
    write_profile(colour, &components, &tables, &mut profile);
    let row_lengths = if kind & 64 == 0 { RowLengths::Narrow } else { RowLengths::Wide };
    let size =
        Size { height: 1 + u32::from(height % 16), width: 1 + u32::from(width % 80) };
    let mut group = [&[0; 4], body].concat();
    let Some(lengths) = GroupLengths::new(&[group.len()]) else { return };
    group.resize(group.len().next_multiple_of(lengths.unit_bytes()), 0);
    let check = XxHash3_64::oneshot(&group[4..]).to_le_bytes();
    group[..4].copy_from_slice(&check[..4]);
    let head = lengths.head(size, 0, row_lengths).expect("a small image");
    let profile = Profile::read(&profile).expect("just written");
    let blocks = Blocks::new(profile, Head::read(&head).expect("just written"));
    let stored =
        Stored::new(blocks.expect("one group"), 0, &group).expect("a small image");

    let region = Region::whole(size);
    let planes = |decoder: &mut Decoder| {
        decoder.decode_stored(&stored, &region, Chroma::Upsampled).ok()?;
        let of_plane = |plane: &Plane| {
            let [columns, rows] = plane.size();
            (0..rows).flat_map(|y| plane.row(y, 0..columns).to_vec()).collect::<Vec<_>>()
        };
        Some(decoder.planes().iter().map(of_plane).collect::<Vec<_>>())
    };
    // Decoders that live on: making them takes longer than what they do here.
    thread_local!(static DECODERS: RefCell<(Vec<Decoder>, Coefficients)> = RefCell::new((
        Level::available().into_iter().map(Decoder::new).collect(),
        Coefficients::default(),
    )));
    DECODERS.with_borrow_mut(|(decoders, coefficients)| {
        let [scalar, others @ ..] = &mut decoders[..] else { return };
        let meaning = planes(scalar);
        for decoder in others {
            let level = decoder.level();
            assert_eq!(planes(decoder), meaning, "{}", level.name());
            let unpacked = unpack(level, &stored, coefficients);
            assert_eq!(unpacked.is_ok(), meaning.is_some(), "{}", level.name());
        }
    });
}

/// A JPEG taken apart: what is put together again is the file, or an error, and what comes
/// apart can be decoded. The bytes are also changes of a remainder whose checksum is right:
/// they give the file that it was taken from, or an error.
pub fn rebuild(bytes: &[u8]) {
    #[derive(Default)]
    struct Memory {
        decoder: Decoder,
        parts: Parts,
        out: Vec<u8>,
    }
    thread_local!(static MEMORY: RefCell<Memory> = RefCell::default());
    let level = Level::of_process();
    MEMORY.with_borrow_mut(|Memory { decoder, parts, out }| {
        if take_apart(decoder, bytes, parts).is_some() {
            let file = Opened::new(bytes).expect("it was taken apart");
            let region = Region::whole(file.size());
            let decoded = decoder.decode(file, &region, Chroma::Upsampled, None);
            assert!(decoded.is_ok(), "it was taken apart");
            for level in Level::available() {
                if put_together(level, &parts.coefficients, &parts.remainder, out).is_ok()
                {
                    assert_eq!(out, bytes);
                }
            }
        }
        let files = [
            &include_bytes!("../../tests/fixtures/ops/420-17x33.jpg")[..],
            &include_bytes!("../../tests/fixtures/ops/restart-rows.jpg")[..],
            &include_bytes!("../../tests/fixtures/ops/grey-17x33.jpg")[..],
        ];
        let file = files[bytes.len() % files.len()];
        take_apart(decoder, file, parts).expect("the file is good");
        let _ = put_together(level, &parts.coefficients, bytes, out);
        let remainder = &mut parts.remainder;
        for change in bytes.chunks_exact(3).take(16) {
            let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
            // The checksum of the file is a promise that a liar could keep.
            if let Some(byte) = remainder.get_mut(place)
                && !(12..20).contains(&place)
            {
                *byte = change[2];
            }
        }
        let check = XxHash3_64::oneshot(&remainder[4..]).to_le_bytes();
        remainder[..4].copy_from_slice(&check[..4]);
        if put_together(level, &parts.coefficients, remainder, out).is_ok() {
            assert_eq!(out, file);
        }
    });
}

/// A recipe: what is read comes back from its canonical form, says what it does, and makes a
/// sample of the promised size of a small image, or refuses it; so does what comes after
/// the cut.
pub fn recipe(bytes: &[u8]) {
    let Ok(json) = std::str::from_utf8(bytes) else { return };
    let Ok(recipe) = Recipe::from_json(json) else { return };
    let canonical = recipe.to_json();
    let again = Recipe::from_json(&canonical).expect("the canonical form is a recipe");
    assert_eq!(again.to_json(), canonical);
    assert!(!recipe.words().is_empty());
    let [height, width, channels] = [9, 13, 3];
    let record = RecordShape::Planar { height, width, channels };
    let Ok(views) = recipe.views(record) else { return };
    // What is large is slow, and not another case.
    if views.len() > 1 << 16 || is_large(&canonical) {
        return;
    }
    let planes: Vec<u8> = (0..height * width * channels).map(|i| (i * 7) as u8).collect();
    let record = Record::new(&planes, Encoding::Planar { height, width, channels });
    let pipeline = Pipeline::new(&recipe, views.clone());
    let mut sample = vec![0; pipeline.sample_bytes()];
    let mut scratch = Scratch::default();
    for sample_id in 0..3 {
        let (epoch, id) = (EpochIdx(1), SampleId(sample_id));
        let key = SampleKey { seed: 5, epoch, sample: id };
        if pipeline.run(&mut scratch, key, record, &mut sample).is_err() {
            continue;
        }
        let output = Output { dtype: Dtype::F16, layout: Layout::Nchw };
        let Ok(finish) = Finish::new(&recipe, &views, output) else { continue };
        let mut batch = vec![0; 3 * finish.sample_bytes()];
        for row in batch.chunks_exact_mut(finish.sample_bytes()) {
            finish.run(Some(key), &sample, row);
        }
        let shape = views.shapes()[0];
        let size = Size { height: shape.height, width: shape.width };
        let batch_key = BatchKey { seed: 5, epoch, position: sample_id };
        if let Some(mixture) = recipe.decide_mixture(batch_key, size) {
            finish.mix(mixture, &mut batch, &mut Vec::new());
        }
    }
}

/// An event file: what is accepted, also one that is cut off, makes a page that holds its own
/// data, and a trace.
pub fn events(bytes: &[u8]) {
    let Ok(recording) = Recording::read(&mut &*bytes) else { return };
    let input = ReportInput::from(&recording);
    let json = input.to_json().expect("every report has a form in JSON");
    assert_eq!(ReportInput::from_json(&json).expect("just written"), input);
    let page = html(&input);
    assert!(page.ends_with("</html>\n"));
    // A title may say so; a figure may not.
    assert!(json.contains("NaN") || !page.contains("NaN"));
    assert!(!table(&input).is_empty());
    assert!(trace(&recording).is_ok());
}

/// Whether a number of four digits or more stands in it, which may be a side.
fn is_large(json: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let numbers = json.split(|c: char| !c.is_ascii_digit() && c != '.' && c != 'e');
    numbers.into_iter().any(|number| digits(number) > 3)
}

/// NVMe over TCP: the same bytes as a host's for a device, and as a controller's for a host.
pub fn nvme(bytes: &[u8]) {
    nvme::nvme_commands(bytes);
    controllers::controllers(bytes);
}
