//! Tar archives as WebDataset writes them: members with the same name up to its first dot are one sample.
//!
//! `0017.jpg` is the image, and `0017.cls` (a number as text) or the key `label` or `cls` of `0017.json` the
//! class. JSON that is not an object has none. Members of a sample follow one another, as in WebDataset; every member (`0017.txt`) is a field that can
//! be asked for. Headers are those of POSIX.1-1988 (ustar), with GNU's long names and sizes and the extended
//! headers of POSIX.1-2001 (pax). Sparse files are refused by name; compressed archives have
//! to be decompressed first.

use std::collections::BTreeMap;

use bothends_core::sample::{Encoding, Extent, FileIdx};
use serde_json::Value;

use super::walk::{Walk, walk};
use super::{Labels, Window, class, find, found, one_split, with_fields};
use crate::error::DatasetError;
use crate::fields::{BYTES, FieldKind, FieldsBuilder, Kept, Number, TEXT, scalar};
use crate::formats::class_folders::is_image;
use crate::formats::{Format, Found};
use crate::storage::Storage;
use crate::table::TableBuilder;

/// Headers and payloads fill blocks of so many bytes.
const BLOCK: usize = 512;

/// Bytes that one read brings: a header and a short payload, which classes are.
const STEP: usize = 2 * BLOCK;

/// Longest name, extended header or label that is read.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Whether a file's name is that of an archive.
pub(crate) fn is_archive(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, kind)| kind.eq_ignore_ascii_case("tar"))
}

/// Reads the archives at `target`, in the order of their names.
pub(crate) fn parse(
    storage: &dyn Storage,
    target: &str,
    fields: FieldsBuilder,
) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_archive)?;
    one_split(storage, target, &shards)?;
    let mut reading = Reading { n_ignored: n_others, ..Reading::new(fields) };
    walk(&mut reading, storage, &shards)?;
    // Where other samples have their class in such a member, this one would be trained on as class 0.
    if let Some(error) = reading.unread.take().filter(|_| reading.n_in_json > 0) {
        return Err(error);
    }
    if reading.n_samples == 0 {
        let path = storage.shown(target);
        return Err(DatasetError::NoImages { path, n_ignored: reading.n_ignored });
    }
    let Reading { builder, n_ignored, labels, fields, .. } = reading;
    let found = found(Format::WebDataset, builder, n_ignored, labels)?;
    with_fields(found, (storage, target), fields)
}

/// The table in the making.
struct Reading {
    builder: TableBuilder,
    n_ignored: u64,
    labels: Labels,
    n_samples: u64,
    /// Samples whose class is from their JSON.
    n_in_json: u64,
    /// Why the JSON of the first sample could not be read that has no class from elsewhere.
    unread: Option<DatasetError>,
    fields: FieldsBuilder,
}

/// A sample in the making: what the members of one name had.
struct Sample {
    key: String,
    /// Where its first member begins.
    at: u64,
    image: Option<(u64, u32)>,
    label: Option<Label>,
    /// Why its JSON could not be read.
    unread: Option<DatasetError>,
    fields: Vec<(Kept, Held)>,
}

/// What a member says about the class.
enum Label {
    /// `None` for -1: there is none.
    Cls(Option<u32>),
    Json(u32),
}

/// The value of a field.
enum Held {
    Int(i64),
    Extent(u64, u32),
}

/// A member of an archive.
struct Member {
    name: String,
    /// Where its bytes are.
    data: u64,
    len: u64,
    is_file: bool,
    /// Where the next header is.
    next: u64,
}

impl Walk for Reading {
    fn part(&self) -> Self {
        Self::new(self.fields.part())
    }

    fn shard(&mut self, storage: &dyn Storage, path: &str) -> Result<(), DatasetError> {
        let mut archive = Window::open(storage, path, STEP)?;
        let file = self.builder.file(path)?;
        let mut at = 0;
        let mut sample: Option<Sample> = None;
        while let Some(member) = next_member(&mut archive, at)? {
            let here = std::mem::replace(&mut at, member.next);
            if !member.is_file {
                continue;
            }
            let Some((key, suffix)) = split(&member.name) else {
                self.n_ignored += 1;
                continue;
            };
            if sample.as_ref().is_none_or(|sample| sample.key != key) {
                self.finish(&archive, sample.take(), file)?;
                let key = key.to_owned();
                let (image, label, unread, fields) = (None, None, None, Vec::new());
                sample = Some(Sample { key, at: here, image, label, unread, fields });
            }
            let Some(sample) = &mut sample else { continue };
            let is_class = !self.fields.is_taken_for_text_or_bytes(suffix);
            add(&mut archive, sample, &member, (suffix, is_class))?;
            if self.fields.looks() {
                self.field(&mut archive, sample, &member, suffix)?;
            }
        }
        self.finish(&archive, sample, file)
    }

    fn agrees(&self, part: &Self) -> bool {
        self.fields.agrees(&part.fields)
    }

    fn append(&mut self, part: Self) -> Result<(), DatasetError> {
        let files = self.builder.append(part.builder)?;
        self.fields.append(part.fields, &files);
        self.n_ignored += part.n_ignored;
        self.labels.append(part.labels);
        self.n_samples += part.n_samples;
        self.n_in_json += part.n_in_json;
        self.unread = self.unread.take().or(part.unread);
        Ok(())
    }
}

impl Reading {
    fn new(fields: FieldsBuilder) -> Self {
        Self {
            builder: TableBuilder::new(Encoding::Image),
            n_ignored: 0,
            labels: Labels::default(),
            n_samples: 0,
            n_in_json: 0,
            unread: None,
            fields,
        }
    }

    /// A member as a field: its name is what follows the sample's.
    fn field(
        &mut self,
        archive: &mut Window<'_>,
        sample: &mut Sample,
        member: &Member,
        suffix: &str,
    ) -> Result<(), DatasetError> {
        let is_number =
            is(suffix, &INTS) && !self.fields.is_taken_for_text_or_bytes(suffix);
        let kind = match is_number {
            true => scalar(Number::I64),
            false if is(suffix, &TEXTS) => TEXT,
            false => BYTES,
        };
        let kept = self
            .fields
            .field(suffix, kind)
            .map_err(|why| archive.broken(member.data, why))?;
        let Some(kept) = kept else { return Ok(()) };
        let value = match kept.kind {
            FieldKind::Numbers(_) => Held::Int(whole(archive, member)?),
            FieldKind::Bytes | FieldKind::Text => {
                Held::Extent(member.data, archive.record_len(member.data, member.len)?)
            }
        };
        sample.fields.push((kept, value));
        Ok(())
    }

    fn finish(
        &mut self,
        archive: &Window<'_>,
        sample: Option<Sample>,
        file: FileIdx,
    ) -> Result<(), DatasetError> {
        let Some(sample) = sample else { return Ok(()) };
        let Some((offset, len)) = sample.image else {
            self.n_ignored += 1;
            return Ok(());
        };
        let label = match sample.label {
            Some(Label::Cls(class)) => class,
            Some(Label::Json(class)) => {
                self.n_in_json += 1;
                Some(class)
            }
            None => {
                self.unread = self.unread.take().or(sample.unread);
                None
            }
        };
        let label = self.labels.take(label);
        self.builder.sample(Extent { file, offset, len }, label);
        self.n_samples += 1;
        if !self.fields.looks() {
            return Ok(());
        }
        let refused = |why: String| {
            archive.broken(sample.at, format!("the sample `{}`: {why}", sample.key))
        };
        for (kept, value) in &sample.fields {
            match *value {
                Held::Int(number) => {
                    let kept = self.fields.value(*kept, &number.to_le_bytes());
                    kept.map_err(refused)?;
                }
                Held::Extent(offset, len) => {
                    self.fields.extent(*kept, Extent { file, offset, len });
                }
            }
        }
        self.fields.check_rows(self.n_samples).map_err(refused)
    }
}

/// Members that are whole numbers as text, and those that are text (WebDataset's `autodecode.py`). All others are
/// bytes.
const INTS: [&str; 6] = ["cls", "cls2", "index", "inx", "id", "count"];
const TEXTS: [&str; 6] = ["txt", "text", "transcript", "json", "jsn", "caption"];

/// Whether the last part of a member's name is one of these.
fn is(suffix: &str, names: &[&str]) -> bool {
    let kind = suffix.rsplit('.').next().unwrap_or_default();
    names.iter().any(|name| kind.eq_ignore_ascii_case(name))
}

/// The name of the sample that a member belongs to, and what it is of it: WebDataset's rule, the first
/// dot of the file's own name.
fn split(name: &str) -> Option<(&str, &str)> {
    let leaf = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = leaf + name.get(leaf..)?.find('.')?;
    // `__…__` is about the archive.
    let is_meta = name[leaf..].starts_with("__");
    (dot > leaf && !is_meta).then(|| (&name[..dot], &name[dot + 1..]))
}

fn add(
    archive: &mut Window<'_>,
    sample: &mut Sample,
    member: &Member,
    (suffix, is_class): (&str, bool),
) -> Result<(), DatasetError> {
    let is_plain = !suffix.contains('.');
    if is_plain && is_image(&member.name) {
        if sample.image.is_some() {
            let why = format!(
                "the sample `{}` has two images; name all but one of them with two dots, as \
                 `{}.mask.png`",
                sample.key, sample.key
            );
            return Err(archive.broken(sample.at, why));
        }
        let len = archive.record_len(member.data, member.len)?;
        sample.image = Some((member.data, len));
    } else if suffix.eq_ignore_ascii_case("cls") && is_class {
        sample.label = Some(Label::Cls(class_of(archive, member)?));
    } else if suffix.eq_ignore_ascii_case("json") && sample.label.is_none() {
        match class_in_json(archive, member)? {
            Ok(class) => sample.label = class.map(Label::Json),
            Err(unread) => sample.unread = Some(unread),
        }
    }
    Ok(())
}

fn whole(archive: &mut Window<'_>, member: &Member) -> Result<i64, DatasetError> {
    let text = text(archive, member.data, member.len)?;
    let text = String::from_utf8_lossy(text).trim().to_owned();
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        let why = format!(
            "`{}` is {shown:?}, not a whole number; ask for its field with `:text` after the name",
            member.name
        );
        archive.broken(member.data, why)
    })
}

fn class_of(
    archive: &mut Window<'_>,
    member: &Member,
) -> Result<Option<u32>, DatasetError> {
    let text = text(archive, member.data, member.len)?;
    let text = String::from_utf8_lossy(text).trim().to_owned();
    let class = text.parse().ok().and_then(|number| class(number).ok());
    class.ok_or_else(|| {
        let why =
            format!("the class of `{}` is {text:?}, not a number from 0", member.name);
        archive.broken(member.data, why)
    })
}

/// The class in a member that is JSON, if it has one, or why it could not be read; reading the archive may fail.
fn class_in_json(
    archive: &mut Window<'_>,
    member: &Member,
) -> Result<Result<Option<u32>, DatasetError>, DatasetError> {
    if member.len > MAX_TEXT_BYTES {
        let why = format!(
            "`{}` has {} bytes, and other samples have their class in such a member, of which at most \
             {MAX_TEXT_BYTES} are read; put the class into a `.cls` member",
            member.name, member.len
        );
        return Ok(Err(archive.broken(member.data, why)));
    }
    let text = text(archive, member.data, member.len)?;
    let value = serde_json::from_slice::<Value>(text)
        .or_else(|_| serde_json::from_slice(&without_nan(text)));
    Ok(match value {
        Ok(value) => {
            let label = value.get("label").or_else(|| value.get("cls"));
            // A label that is no number (a word, a list of boxes) is not a class.
            Ok(label.and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()))
        }
        Err(error) => {
            let why = format!(
                "`{}` is not JSON, and other samples have their class in such a member: {error}; write it \
                 again, or put the class into a `.cls` member",
                member.name
            );
            Err(archive.broken(member.data, why))
        }
    })
}

/// The text with `null` for the numbers that Python writes and JSON does not have: NaN, Infinity, -Infinity.
fn without_nan(text: &[u8]) -> Vec<u8> {
    const NAMES: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let (mut out, mut at, mut is_text) = (Vec::with_capacity(text.len()), 0, false);
    while at < text.len() {
        let rest = &text[at..];
        let name = NAMES.iter().find(|name| !is_text && rest.starts_with(name));
        let (n, kept) = match (name, rest[0]) {
            (Some(name), _) => (name.len(), &b"null"[..]),
            // What is escaped ends no text.
            (None, b'\\') if is_text && rest.len() > 1 => (2, &rest[..2]),
            (None, _) => (1, &rest[..1]),
        };
        is_text ^= kept == b"\"";
        out.extend(kept);
        at += n;
    }
    out
}

/// The whole payload of a member that is read as text.
fn text<'a>(
    archive: &'a mut Window<'_>,
    at: u64,
    len: u64,
) -> Result<&'a [u8], DatasetError> {
    if len > MAX_TEXT_BYTES {
        let why = format!(
            "a header, class or JSON of {len} bytes; at most {MAX_TEXT_BYTES} are read"
        );
        return Err(archive.broken(at, why));
    }
    archive.bytes(at, usize::try_from(len).unwrap_or(usize::MAX))
}

/// The member whose headers begin at `at`; `None` at the archive's end.
fn next_member(
    archive: &mut Window<'_>,
    mut at: u64,
) -> Result<Option<Member>, DatasetError> {
    let mut long_name = None;
    let mut extended = BTreeMap::new();
    loop {
        // Two blocks of zeros end an archive; one that was cut off after a member is taken as well.
        if at == archive.len() {
            return Ok(None);
        }
        let Some(header) = Header::read(archive, at)? else { return Ok(None) };
        let data = at + BLOCK as u64;
        let stated = extended
            .get("size")
            .map_or(Some(header.len), |size: &String| size.parse().ok());
        let len = stated.ok_or_else(|| {
            archive.broken(at, "an extended header's size is not a number")
        })?;
        let is_about_next = matches!(header.kind, b'L' | b'K' | b'x' | b'X' | b'g');
        let len = if is_about_next { header.len } else { len };
        let end = data.checked_add(len).filter(|end| *end <= archive.len());
        let end = end.ok_or_else(|| {
            archive.broken(at, "a member reaches beyond the end of the archive")
        })?;
        let next = end.next_multiple_of(BLOCK as u64).min(archive.len());
        match header.kind {
            b'L' => {
                let name = until_nul(text(archive, data, len)?);
                long_name = Some(String::from_utf8_lossy(name).into_owned());
            }
            b'x' | b'X' => {
                let records = text(archive, data, len)?.to_vec();
                extended = pax(&records).ok_or_else(|| {
                    archive.broken(data, "an extended header is damaged")
                })?;
            }
            // Names of links, and what is said of all members: nothing that is needed here.
            b'K' | b'g' => {}
            b'S' => {
                return Err(archive.broken(
                    at,
                    "sparse files are not supported; unpack and pack the archive again",
                ));
            }
            kind => {
                if extended.keys().any(|key| key.starts_with("GNU.sparse")) {
                    return Err(archive.broken(at, "sparse files are not supported; unpack and pack the archive again"));
                }
                let name = extended.remove("path").or(long_name).unwrap_or(header.name);
                let is_file = matches!(kind, b'0' | b'\0' | b'7');
                return Ok(Some(Member { name, data, len, is_file, next }));
            }
        }
        at = next;
    }
}

/// What one header block says.
struct Header {
    name: String,
    len: u64,
    kind: u8,
}

impl Header {
    /// `None` for a block of zeros.
    fn read(archive: &mut Window<'_>, at: u64) -> Result<Option<Self>, DatasetError> {
        let block = archive.bytes(at, BLOCK)?;
        if block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        // The sum of all bytes, those of the sum itself as blanks.
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        let own: u64 = block[148..156].iter().map(|&byte| u64::from(byte)).sum();
        let is_sound = number(&block[148..156]) == Some(sum - own + 8 * u64::from(b' '));
        let fields = (number(&block[124..136]), block[156], name(block));
        match fields {
            (Some(len), kind, name) if is_sound => Ok(Some(Self { name, len, kind })),
            _ => Err(archive
                .broken(at, "not the header of a tar archive; fetch the shard again")),
        }
    }
}

/// The name, after its folder where the block has the prefix of POSIX.1-1988.
fn name(block: &[u8]) -> String {
    let name = String::from_utf8_lossy(until_nul(&block[..100]));
    let prefix = until_nul(&block[345..500]);
    match &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        true => format!("{}/{name}", String::from_utf8_lossy(prefix)),
        false => name.into_owned(),
    }
}

/// A field's number: octal text, or GNU's binary form where that is too short.
fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, rest @ ..] = field {
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        let is_small = high.iter().all(|&byte| byte == 0);
        return is_small
            .then(|| low.iter().fold(0, |sum, &byte| (sum << 8) | u64::from(byte)));
    }
    let text = until_nul(field).trim_ascii();
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The records of an extended header, `length key=value` and a line feed each.
fn pax(mut bytes: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut records = BTreeMap::new();
    while !until_nul(bytes).is_empty() {
        let blank = bytes.iter().position(|&byte| byte == b' ')?;
        let len: usize = std::str::from_utf8(&bytes[..blank]).ok()?.parse().ok()?;
        let record = bytes.get(blank + 1..len)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|&byte| byte == b'=')?;
        let [key, value] = [&record[..equals], &record[equals + 1..]]
            .map(|part| String::from_utf8_lossy(part).into_owned());
        records.insert(key, value);
        bytes = &bytes[len..];
    }
    Some(records)
}

#[cfg(test)]
mod tests;
