//! Where the rows of a dataset lie: its shape, the type of its elements, and how they are laid out.

use super::super::{Window, class, signed};
use super::heap::REFERENCE_BYTES;
use super::objects::{
    DATASPACE, DATATYPE, EXTERNAL, FILTERS, LAYOUT, Message, Object, UNDEFINED, messages,
};
use super::{number, read};
use crate::error::DatasetError;

/// Dimensions that HDF5 allows.
const MAX_RANK: u64 = 32;

/// What to do about a layout that is not read.
const REPACK: &str = "run h5repack -f NONE -l CONTI IN OUT";

/// Kinds of types, and how data may be laid out.
const FIXED_POINT: u8 = 0;
const VARYING: u8 = 9;
const CONTIGUOUS: u64 = 1;
const CHUNKED: u64 = 2;

/// What one element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// A whole number of so many bytes.
    Number { len: u64, is_signed: bool, is_big_endian: bool },
    /// Bytes of any number, in the heap.
    Varying,
}

/// A dataset, whose first dimension counts rows.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) name: String,
    /// Where its header is, for messages.
    pub(super) at: u64,
    pub(super) n: u64,
    /// The other dimensions.
    pub(super) shape: Vec<u64>,
    pub(super) element: Element,
    pub(super) row_bytes: u64,
    layout: Layout,
}

#[derive(Debug)]
enum Layout {
    Contiguous(u64),
    /// Addresses of chunks, each of so many rows.
    Chunks {
        n_rows: u64,
        at: Vec<u64>,
    },
}

impl Rows {
    pub(super) fn read(
        file: &mut Window<'_>,
        object: &Object,
    ) -> Result<Self, DatasetError> {
        let messages = messages(file, object.at)?;
        let name = &object.name;
        let refused = |file: &Window<'_>, why: &str| {
            file.broken(object.at, format!("the dataset `{name}` {why}"))
        };
        let one = |file: &Window<'_>, kind: u16| -> Result<Message, DatasetError> {
            Message::of(file, &messages, kind)?.ok_or_else(|| {
                refused(file, "has no shape, type or data; is it a group?")
            })
        };
        let (space, kind, layout) =
            (one(file, DATASPACE)?, one(file, DATATYPE)?, one(file, LAYOUT)?);
        let mut shape = shape(file, space)?;
        if shape.is_empty() {
            return Err(refused(
                file,
                "is a single value; write one row for each sample",
            ));
        }
        let element = element(file, kind)?.ok_or_else(|| {
            refused(
                file,
                "is of a type that is not read; images are bytes (uint8), also of variable length, and classes \
                 whole numbers",
            )
        })?;
        let n = shape.remove(0);
        let size = match element {
            Element::Number { len, .. } => len,
            Element::Varying => REFERENCE_BYTES,
        };
        let row_bytes = shape.iter().try_fold(size, |sum, n| sum.checked_mul(*n));
        let row_bytes =
            row_bytes.filter(|bytes| *bytes > 0 && bytes.checked_mul(n).is_some());
        let row_bytes =
            row_bytes.ok_or_else(|| refused(file, "has an impossible shape"))?;
        if messages.iter().any(|message| message.kind == EXTERNAL) {
            let why = format!("has its data in another file; {REPACK}");
            return Err(refused(file, &why));
        }
        if let Some(filters) = messages.iter().find(|message| message.kind == FILTERS)
            && read(file, filters.at + 1, 1)? > 0
        {
            let why = format!(
                "is compressed or filtered in chunks, so that no row in it can be read alone; {REPACK}"
            );
            return Err(refused(file, &why));
        }
        let mut rows = Self {
            name: name.clone(),
            at: object.at,
            n,
            shape,
            element,
            row_bytes,
            layout: Layout::Contiguous(0),
        };
        rows.layout = rows.layout(file, layout)?;
        Ok(rows)
    }

    /// Elements of a row.
    pub(super) fn n_elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1_u64, |n, more| n.checked_mul(*more))
    }

    fn refused(&self, file: &Window<'_>, why: &str) -> DatasetError {
        file.broken(self.at, format!("the dataset `{}` {why}", self.name))
    }

    fn layout(
        &self,
        file: &mut Window<'_>,
        message: Message,
    ) -> Result<Layout, DatasetError> {
        let head = file.bytes(message.at, 2)?;
        let (version, class) = (head[0], u64::from(head[1]));
        match (version, class) {
            (3..=5, CONTIGUOUS) => {
                let (at, len) =
                    (read(file, message.at + 2, 8)?, read(file, message.at + 10, 8)?);
                let needed = self.row_bytes * self.n;
                if at == UNDEFINED && self.n > 0 {
                    let why = "has no bytes: its row was never written; write all rows";
                    return Err(self.refused(file, why));
                }
                let end = at.checked_add(needed);
                if self.n > 0 && (len < needed || end.is_none_or(|end| end > file.len()))
                {
                    let why = "reaches beyond the end of the file; fetch the file again";
                    return Err(self.refused(file, why));
                }
                Ok(Layout::Contiguous(at))
            }
            (3, CHUNKED) => self.chunks(file, message),
            _ => {
                let why = format!(
                    "is laid out in a way that is not read (version {version}, class {class}); {REPACK}"
                );
                Err(self.refused(file, &why))
            }
        }
    }

    /// Chunks by a B-tree of version 1.
    fn chunks(
        &self,
        file: &mut Window<'_>,
        message: Message,
    ) -> Result<Layout, DatasetError> {
        let rank = self.shape.len() as u64 + 1;
        if read(file, message.at + 2, 1)? != rank + 1 {
            return Err(self.refused(file, "is damaged; fetch the file again"));
        }
        let tree = read(file, message.at + 3, 8)?;
        let mut sides = Vec::new();
        for nth in 0..rank {
            sides.push(read(file, message.at + 11 + 4 * nth, 4)?);
        }
        let n_rows = sides[0];
        if n_rows == 0 || sides[1..] != self.shape {
            let why = format!("has rows that span several chunks; {REPACK}");
            return Err(self.refused(file, &why));
        }
        let n_chunks = self.n.div_ceil(n_rows);
        // Each takes an address and a key in the tree, at least.
        if n_chunks > file.len() / 8 {
            let why = "reaches beyond the end of the file; fetch the file again";
            return Err(self.refused(file, why));
        }
        let len = usize::try_from(n_chunks).unwrap_or(usize::MAX);
        let mut at = vec![UNDEFINED; len];
        self.tree(file, (tree, rank), n_rows, &mut at)?;
        if at.contains(&UNDEFINED) {
            return Err(self.refused(file, "has chunks that were never written"));
        }
        // Each row has bytes of its own, so there are no more rows than the file has room for.
        let mut sorted = at.clone();
        sorted.sort_unstable();
        let chunk_bytes = n_rows.saturating_mul(self.row_bytes);
        if sorted.windows(2).any(|pair| pair[1] - pair[0] < chunk_bytes) {
            let why = "has several chunks in the same bytes; fetch the file again";
            return Err(self.refused(file, why));
        }
        Ok(Layout::Chunks { n_rows, at })
    }

    /// Fills in the chunks' addresses.
    fn tree(
        &self,
        file: &mut Window<'_>,
        (root, rank): (u64, u64),
        n_rows: u64,
        chunks: &mut [u64],
    ) -> Result<(), DatasetError> {
        const DAMAGED: &str = "has a damaged table of chunks; fetch the file again";
        let key_bytes = 8 + 8 * (rank + 1);
        let mut nodes =
            if root == UNDEFINED { Vec::new() } else { vec![(root, u64::MAX)] };
        // No node has fewer entries than one.
        let mut left = 64 + 4 * chunks.len() as u64;
        while let Some((at, above)) = nodes.pop() {
            let begin = file.bytes(at, 8)?.to_vec();
            let (level, n) = (u64::from(begin[5]), number(&begin[6..8]));
            let is_node = begin.starts_with(b"TREE\x01") && level < above;
            left = left.saturating_sub(n + 1);
            if !is_node || left == 0 {
                return Err(self.refused(file, DAMAGED));
            }
            for nth in 0..n {
                let key = at + 24 + nth * (key_bytes + 8);
                let child = read(file, key + key_bytes, 8)?;
                if level > 0 {
                    nodes.push((child, level));
                    continue;
                }
                let chunk = read(file, key + 8, 8)? / n_rows;
                let end = child.checked_add(n_rows.saturating_mul(self.row_bytes));
                let slot =
                    usize::try_from(chunk).ok().and_then(|nth| chunks.get_mut(nth));
                match slot.filter(|_| end.is_some_and(|end| end <= file.len())) {
                    Some(slot) => *slot = child,
                    None => return Err(self.refused(file, DAMAGED)),
                }
            }
        }
        Ok(())
    }

    /// Where a row is.
    pub(super) fn place(&self, file: &Window<'_>, nth: u64) -> Result<u64, DatasetError> {
        let place = match &self.layout {
            Layout::Contiguous(at) => at.checked_add(nth.saturating_mul(self.row_bytes)),
            Layout::Chunks { n_rows, at } => {
                let chunk =
                    usize::try_from(nth / n_rows).ok().and_then(|nth| at.get(nth));
                chunk.and_then(|at| at.checked_add(nth % n_rows * self.row_bytes))
            }
        };
        place.ok_or_else(|| self.refused(file, "is damaged; fetch the file again"))
    }

    /// The class in a row, if it has one.
    pub(super) fn class(
        &self,
        file: &mut Window<'_>,
        nth: u64,
    ) -> Result<Option<u32>, DatasetError> {
        let at = self.place(file, nth)?;
        let Element::Number { len, is_signed, is_big_endian } = self.element else {
            return Err(self.refused(file, "has no numbers"));
        };
        let mut bytes = file.bytes(at, usize::try_from(len).unwrap_or(8))?.to_vec();
        if is_big_endian {
            bytes.reverse();
        }
        let number = match is_signed {
            true => Some(signed(&bytes)),
            false => i64::try_from(number(&bytes)).ok(),
        };
        let class = number.and_then(|number| class(number).ok());
        class.ok_or_else(|| {
            file.broken(at, "a class is not a number from 0 to 4294967295")
        })
    }
}

/// The dimensions.
fn shape(file: &mut Window<'_>, message: Message) -> Result<Vec<u64>, DatasetError> {
    let (version, rank) = (read(file, message.at, 1)?, read(file, message.at + 1, 1)?);
    let first = match version {
        1 => 8,
        2 => 4,
        _ => {
            return Err(
                file.broken(message.at, "a shape written by an unknown version of HDF5")
            );
        }
    };
    if rank > MAX_RANK || first + 8 * rank > message.len {
        return Err(file.broken(message.at, "a damaged shape; fetch the file again"));
    }
    (0..rank).map(|nth| read(file, message.at + first + 8 * nth, 8)).collect()
}

/// What an element is; `None` for what is not read.
fn element(
    file: &mut Window<'_>,
    message: Message,
) -> Result<Option<Element>, DatasetError> {
    let head = file.bytes(message.at, 8)?.to_vec();
    let (class, flags, len) = (head[0] & 0x0f, head[1], number(&head[4..8]));
    match class {
        FIXED_POINT if (1..=8).contains(&len) => Ok(Some(Element::Number {
            len,
            is_big_endian: flags & 1 != 0,
            is_signed: flags & 8 != 0,
        })),
        VARYING if len == REFERENCE_BYTES && message.len >= 16 => {
            let base = file.bytes(message.at + 8, 8)?;
            // A sequence of bytes, or a string.
            let is_bytes = number(&base[4..8]) == 1;
            let is_read = flags & 0x0f == 1 || base[0] & 0x0f == FIXED_POINT;
            Ok(Some(Element::Varying).filter(|_| is_bytes && is_read))
        }
        _ => Ok(None),
    }
}
