//! A listing in memory: names in order, each with what its object is recognised by, in few bytes.
//!
//! A name is kept as what differs from the one before it, and a mark of hexadecimal digits as the bytes that it
//! means. Blocks of a few names begin with a whole one, for searching. `docs/remote.md` says how many bytes an object
//! takes, and `tests/listing.rs` measures it.

use std::sync::Arc;
use std::time::Duration;

use crate::{Identity, Labelled};

/// Names of a block.
const BLOCK: u64 = 16;
/// Objects that are put in order at once.
const CHUNK: usize = 1 << 14;

/// What a listing says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) identity: Identity,
    pub(crate) label: Labelled,
}

/// Objects in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    bytes: Vec<u8>,
    /// Where each block begins.
    blocks: Vec<usize>,
    n: u64,
    last: Vec<u8>,
    is_labelled: bool,
}

impl Listing {
    /// Whether it has samples with labels of their own.
    pub(crate) fn is_labelled(&self) -> bool {
        self.is_labelled
    }

    /// What is known of the object with this name.
    pub(crate) fn get(&self, name: &str) -> Option<Known> {
        let mut cursor = self.from(name);
        let (found, known) = cursor.next()?;
        (found == name).then_some(known)
    }

    /// All objects from this name on.
    pub(crate) fn from(&self, name: &str) -> Cursor<'_> {
        let is_before = |at: &usize| {
            let mut cursor = Cursor { bytes: &self.bytes[*at..], name: Vec::new() };
            cursor.name().is_some() && cursor.name.as_slice() < name.as_bytes()
        };
        let block = self.blocks.partition_point(is_before).saturating_sub(1);
        let at = self.blocks.get(block).copied().unwrap_or(0);
        let mut cursor = Cursor { bytes: &self.bytes[at..], name: Vec::new() };
        loop {
            // The name is looked at, and given again.
            let (bytes, before) = (cursor.bytes, cursor.name.clone());
            match cursor.next_bytes() {
                Some((found, _)) if found < name.as_bytes() => {}
                _ => return Cursor { bytes, name: before },
            }
        }
    }

    /// Adds an object after all others.
    fn push(&mut self, name: &[u8], known: &Known) {
        let begins = self.n.is_multiple_of(BLOCK);
        if begins {
            self.blocks.push(self.bytes.len());
            self.last.clear();
        }
        let is_same = |(a, b): &(&u8, &u8)| a == b;
        let shared = self.last.iter().zip(name).take_while(is_same).count();
        put(&mut self.bytes, shared as u64);
        put(&mut self.bytes, (name.len() - shared) as u64);
        self.bytes.extend(&name[shared..]);
        self.last.truncate(shared);
        self.last.extend(&name[shared..]);
        encode(known, &mut self.bytes);
        self.is_labelled |= known.label != Labelled::Elsewhere;
        self.n += 1;
    }

    fn shrunk(mut self) -> Self {
        self.bytes.shrink_to_fit();
        self.blocks.shrink_to_fit();
        self
    }
}

/// Objects that are read one after the other.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Of the object before.
    name: Vec<u8>,
}

impl Cursor<'_> {
    /// The next object.
    pub(crate) fn next(&mut self) -> Option<(&str, Known)> {
        let (name, known) = self.next_bytes()?;
        Some((std::str::from_utf8(name).ok()?, known))
    }

    fn next_bytes(&mut self) -> Option<(&[u8], Known)> {
        self.name()?;
        let known = decode(&mut self.bytes)?;
        Some((&self.name, known))
    }

    fn name(&mut self) -> Option<()> {
        let shared = usize::try_from(take(&mut self.bytes)?).ok()?;
        let len = usize::try_from(take(&mut self.bytes)?).ok()?;
        let (suffix, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        self.name.truncate(shared);
        self.name.extend(suffix);
        Some(())
    }
}

/// Puts objects in order that come in any.
#[derive(Debug, Default)]
pub(crate) struct Building {
    chunk: Vec<(Box<str>, Known)>,
    /// Each in order.
    runs: Vec<Listing>,
}

impl Building {
    /// Adds an object.
    pub(crate) fn push(&mut self, name: &str, known: Known) {
        self.chunk.push((name.into(), known));
        if self.chunk.len() >= CHUNK {
            self.end_chunk();
        }
    }

    /// Stores list in order, most often: then there is one run.
    fn end_chunk(&mut self) {
        self.chunk.sort_by(|(a, _), (b, _)| a.cmp(b));
        let first = self.chunk.first().map(|(name, _)| name.as_bytes());
        let goes_on = self
            .runs
            .last()
            .zip(first)
            .is_some_and(|(run, first)| run.n > 0 && run.last.as_slice() < first);
        if !goes_on {
            self.runs.push(Listing::default());
        }
        if let Some(run) = self.runs.last_mut() {
            for (name, known) in self.chunk.drain(..) {
                // Of two with one name, the first counts.
                if run.n == 0 || run.last != name.as_bytes() {
                    run.push(name.as_bytes(), &known);
                }
            }
        }
        // Two of nearly one size become one, so that there are few.
        while let [.., a, b] = &self.runs[..]
            && a.n < 2 * b.n
        {
            self.merge_last();
        }
    }

    fn merge_last(&mut self) {
        if let (Some(b), Some(a)) = (self.runs.pop(), self.runs.pop()) {
            self.runs.push(merged(&a, &b));
        }
    }

    /// All of them.
    pub(crate) fn end(mut self) -> Listing {
        self.end_chunk();
        self.chunk = Vec::new();
        while self.runs.len() > 1 {
            self.merge_last();
        }
        self.runs.pop().unwrap_or_default().shrunk()
    }
}

fn merged(a: &Listing, b: &Listing) -> Listing {
    let mut merged = Listing::default();
    let (mut of_a, mut of_b) = (a.from(""), b.from(""));
    let owned = |(name, known): (&[u8], Known)| (name.to_vec(), known);
    let (mut next_a, mut next_b) =
        (of_a.next_bytes().map(owned), of_b.next_bytes().map(owned));
    loop {
        let takes_a = match (&next_a, &next_b) {
            (Some((a, _)), Some((b, _))) => a <= b,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return merged,
        };
        let next = match takes_a {
            true => std::mem::replace(&mut next_a, of_a.next_bytes().map(owned)),
            false => std::mem::replace(&mut next_b, of_b.next_bytes().map(owned)),
        };
        if let Some((name, known)) = next
            && (merged.n == 0 || merged.last != name)
        {
            merged.push(&name, &known);
        }
    }
}

/// Identities by number, in few bytes each.
#[derive(Debug, Default)]
pub struct Identities {
    bytes: Vec<u8>,
    blocks: Vec<usize>,
    n: u64,
    has_versions: bool,
}

impl Identities {
    /// Adds one, with the next number.
    pub fn push(&mut self, identity: &Identity) {
        if self.n.is_multiple_of(BLOCK) {
            self.blocks.push(self.bytes.len());
        }
        let known = Known { identity: identity.clone(), label: Labelled::Elsewhere };
        encode(&known, &mut self.bytes);
        self.has_versions |= identity.etag.is_some() || identity.modified.is_some();
        self.n += 1;
    }

    /// Whether one of them tells versions of its object apart, and not only lengths.
    #[must_use]
    pub fn has_versions(&self) -> bool {
        self.has_versions
    }

    /// The one with this number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<Identity> {
        let block = usize::try_from(number / BLOCK).ok()?;
        let mut bytes = self.bytes.get(*self.blocks.get(block)?..)?;
        for _ in 0..number % BLOCK {
            skip(&mut bytes)?;
        }
        decode(&mut bytes).map(|known| known.identity)
    }
}

impl FromIterator<Identity> for Identities {
    fn from_iter<T: IntoIterator<Item = Identity>>(identities: T) -> Self {
        let mut all = Self::default();
        identities.into_iter().for_each(|identity| all.push(&identity));
        all.bytes.shrink_to_fit();
        all.blocks.shrink_to_fit();
        all
    }
}

const HAS_TIME: u64 = 1;
const HAS_TEXT: u64 = 2;
const HAS_HEX: u64 = 4;
/// From here on, the label: elsewhere, none, or its number and 2.
const LABEL: u32 = 3;

fn encode(Known { identity, label }: &Known, out: &mut Vec<u8>) {
    let Identity { len, modified, etag } = identity;
    let hex = etag.as_deref().and_then(of_hex);
    let label = match label {
        Labelled::Elsewhere => 0,
        Labelled::No => 1,
        Labelled::As(label) => u64::from(*label) + 2,
    };
    let time = if modified.is_some() { HAS_TIME } else { 0 };
    let mark = match (etag, &hex) {
        (None, _) => 0,
        (Some(_), None) => HAS_TEXT,
        (Some(_), Some(_)) => HAS_HEX,
    };
    put(out, label << LABEL | time | mark);
    put(out, *len);
    if let Some(modified) = modified {
        put(out, modified.as_secs());
        put(out, modified.subsec_nanos().into());
    }
    let mark = hex.as_deref().or(etag.as_deref().map(str::as_bytes));
    if let Some(mark) = mark {
        put(out, mark.len() as u64);
        out.extend(mark);
    }
}

fn decode(from: &mut &[u8]) -> Option<Known> {
    let kind = take(from)?;
    let len = take(from)?;
    let modified = match kind & HAS_TIME {
        0 => None,
        _ => Some(Duration::new(take(from)?, u32::try_from(take(from)?).ok()?)),
    };
    let etag: Option<Arc<str>> = match kind & (HAS_TEXT | HAS_HEX) {
        0 => None,
        kind => {
            let len = usize::try_from(take(from)?).ok()?;
            let (mark, rest) = from.split_at_checked(len)?;
            *from = rest;
            Some(match kind {
                HAS_HEX => hex(mark).into(),
                _ => std::str::from_utf8(mark).ok()?.into(),
            })
        }
    };
    let label = match kind >> LABEL {
        0 => Labelled::Elsewhere,
        1 => Labelled::No,
        label => Labelled::As(u32::try_from(label - 2).ok()?),
    };
    Some(Known { identity: Identity { len, modified, etag }, label })
}

/// Passes over what [`decode`] reads: a mark is memory of its own, and only that of one object is wanted.
fn skip(from: &mut &[u8]) -> Option<()> {
    let kind = take(from)?;
    take(from)?;
    if kind & HAS_TIME != 0 {
        take(from)?;
        take(from)?;
    }
    if kind & (HAS_TEXT | HAS_HEX) != 0 {
        let len = usize::try_from(take(from)?).ok()?;
        (_, *from) = from.split_at_checked(len)?;
    }
    Some(())
}

/// The bytes that an even number of lower-case hexadecimal digits means.
fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// A number of seven bits in each byte, the lowest first.
fn put(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7F;
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn known(n: u64) -> Known {
        let etag = match n % 4 {
            0 => None,
            1 => Some(format!("{:032x}", u128::from(n) << 64)),
            2 => Some(format!("{n:x}-2")),
            _ => Some("ABCD".to_owned()),
        };
        let identity = Identity {
            len: n << (n % 40),
            modified: (!n.is_multiple_of(3))
                .then(|| Duration::new(1_700_000_000 + n, 7_000_000)),
            etag: etag.map(Arc::from),
        };
        let label = match n % 3 {
            0 => Labelled::Elsewhere,
            1 => Labelled::No,
            _ => Labelled::As(u32::try_from(n).unwrap()),
        };
        Known { identity, label }
    }

    /// Names in an order of no meaning, some twice, and beyond ASCII.
    fn names(n: u64) -> impl Iterator<Item = String> {
        (0..n).map(move |at| {
            let at = at.wrapping_mul(7919) % (n - n / 10);
            format!("cl\u{e4}ss-{:02}/image-{at}.jpg", at % 17)
        })
    }

    #[test]
    fn a_listing_is_as_a_map_of_what_came() {
        for n in [0, 1, 15, 16, 17, 1000, 70_000] {
            let (mut map, mut building) = (BTreeMap::new(), Building::default());
            for (at, name) in (0..).zip(names(n)) {
                building.push(&name, known(at));
                map.entry(name).or_insert_with(|| known(at));
            }
            let listing = building.end();
            let mut cursor = listing.from("");
            for (name, expected) in &map {
                assert_eq!(cursor.next(), Some((name.as_str(), expected.clone())));
            }
            assert_eq!(cursor.next(), None);
            for (name, expected) in map.iter().step_by(97) {
                assert_eq!(listing.get(name), Some(expected.clone()), "{name}");
                assert_eq!(listing.get(&format!("{name}x")), None);
                let after = map.range(format!("{name}0")..).next();
                let mut cursor = listing.from(&format!("{name}0"));
                let expected = after.map(|(name, known)| (name.as_str(), known.clone()));
                assert_eq!(cursor.next(), expected);
            }
        }
    }

    #[test]
    fn identities_are_as_they_were() {
        let all: Identities = (0..100).map(|n| known(n).identity).collect();
        for n in (0..100).rev() {
            assert_eq!(all.get(n), Some(known(n).identity));
        }
        assert_eq!(all.get(100), None);
    }
}
