//! From the superblock to the datasets of the root group, each with the messages of its header.
//!
//! Nothing is followed without a bound: trees have a depth that falls, and nodes, messages and links are counted.

use super::super::Window;
use super::read;
use crate::error::DatasetError;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

/// No address.
pub(super) const UNDEFINED: u64 = u64::MAX;

/// Most links of the root group, messages of an object and nodes of a tree that are looked at.
const MAX_LINKS: usize = 1 << 12;
const MAX_MESSAGES: usize = 1 << 12;
const MAX_NODES: usize = 1 << 16;
const MAX_NAME_BYTES: u64 = 1 << 12;

/// Messages that matter here (specification, IV.A.2).
pub(super) const DATASPACE: u16 = 0x01;
const LINK_INFO: u16 = 0x02;
pub(super) const DATATYPE: u16 = 0x03;
const LINK: u16 = 0x06;
pub(super) const EXTERNAL: u16 = 0x07;
pub(super) const LAYOUT: u16 = 0x08;
pub(super) const FILTERS: u16 = 0x0b;
const CONTINUATION: u16 = 0x10;
const SYMBOL_TABLE: u16 = 0x11;

/// A message that lies elsewhere in the file.
const SHARED: u8 = 2;

const DAMAGED: &str = "not what HDF5 has here, or damaged; fetch the file again";

/// A message of an object's header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) kind: u16,
    pub(super) at: u64,
    pub(super) len: u64,
    is_shared: bool,
}

/// Something that the root group has a name for.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) name: String,
    /// Where its header is.
    pub(super) at: u64,
}

/// What the root group has names for.
pub(super) fn datasets(file: &mut Window<'_>) -> Result<Vec<Object>, DatasetError> {
    let root = superblock(file)?;
    let messages = messages(file, root)?;
    let mut objects = Vec::new();
    for message in &messages {
        match message.kind {
            SYMBOL_TABLE => {
                let (tree, heap) =
                    (read(file, message.at, 8)?, read(file, message.at + 8, 8)?);
                symbols(file, (tree, heap), &mut objects)?;
            }
            LINK => objects.extend(link(file, *message)?),
            LINK_INFO => {
                // A flag, and the greatest order before the heap's address.
                let flags = read(file, message.at + 1, 1)?;
                let heap = message.at + 2 + if flags & 1 == 1 { 8 } else { 0 };
                if read(file, heap, 8)? != UNDEFINED {
                    let why = "the root group keeps its names in a heap, which is not read; write the file with \
                               libver=\"earliest\", or at most eight datasets";
                    return Err(file.broken(message.at, why));
                }
            }
            _ => {}
        }
        if objects.len() > MAX_LINKS {
            return Err(file.broken(message.at, DAMAGED));
        }
    }
    Ok(objects)
}

/// The address of the root group's header.
fn superblock(file: &mut Window<'_>) -> Result<u64, DatasetError> {
    let is_hdf5 = file.len() >= 96 && file.bytes(0, 8)? == SIGNATURE;
    if !is_hdf5 {
        let why = "it does not start like an HDF5 file; fetch it again, or remove a user block with h5unjam";
        return Err(file.broken(0, why));
    }
    let version = read(file, 8, 1)?;
    let (sizes, base, root) = match version {
        0 => (13, 24, 64),
        1 => (13, 28, 68),
        2 | 3 => (9, 12, 36),
        _ => {
            let why = format!(
                "a superblock of version {version} is not read; write the file with libver=\"v110\" or earlier"
            );
            return Err(file.broken(8, why));
        }
    };
    if file.bytes(sizes, 2)? != [8, 8] || read(file, base, 8)? != 0 {
        let why = "addresses that are not eight bytes long, or do not count from the beginning of \
        the file, are not supported; write the file with h5py";
        return Err(file.broken(sizes, why));
    }
    read(file, root, 8)
}

/// The messages of the object's header at `at`.
pub(super) fn messages(
    file: &mut Window<'_>,
    at: u64,
) -> Result<Vec<Message>, DatasetError> {
    let mut messages = Vec::new();
    // Where the blocks of messages begin and end.
    let mut blocks = Vec::new();
    let begin = file.bytes(at, 6)?;
    let form = match begin {
        [b'O', b'H', b'D', b'R', 2, flags] => {
            let flags = *flags;
            let times = if flags & 0x20 == 0 { 0 } else { 16 };
            let phases = if flags & 0x10 == 0 { 0 } else { 4 };
            let size_at = at + 6 + times + phases;
            let n = 1_usize << (flags & 3);
            let start = size_at + n as u64;
            blocks.push((start, read(file, size_at, n)?));
            Form::New { has_order: flags & 4 != 0 }
        }
        [1, ..] => {
            blocks.push((at + 16, read(file, at + 8, 4)?));
            Form::Old
        }
        _ => return Err(file.broken(at, DAMAGED)),
    };
    while let Some((mut at, len)) = blocks.pop() {
        let end = at.checked_add(len).filter(|end| *end <= file.len());
        let end = end.ok_or_else(|| file.broken(at, DAMAGED))?;
        while at + form.head_bytes() <= end {
            let message = form.message(file, at)?;
            let next = message.at.checked_add(message.len).filter(|next| *next <= end);
            at = next.ok_or_else(|| file.broken(at, DAMAGED))?;
            if message.kind == CONTINUATION && message.len >= 16 {
                let start = read(file, message.at, 8)?;
                let len = read(file, message.at + 8, 8)?;
                blocks.push(form.continued(file, start, len)?);
            }
            messages.push(message);
            if messages.len() > MAX_MESSAGES || blocks.len() > MAX_MESSAGES {
                return Err(file.broken(at, DAMAGED));
            }
        }
    }
    Ok(messages)
}

/// How messages are written.
#[derive(Debug, Clone, Copy)]
enum Form {
    Old,
    New { has_order: bool },
}

impl Form {
    fn head_bytes(self) -> u64 {
        match self {
            Self::Old => 8,
            Self::New { has_order: false } => 4,
            Self::New { has_order: true } => 6,
        }
    }

    fn message(self, file: &mut Window<'_>, at: u64) -> Result<Message, DatasetError> {
        let head = file.bytes(at, 5)?;
        let (kind, len, flags) = match self {
            Self::Old => {
                let [a, b, c, d, flags] = *head else {
                    return Err(file.broken(at, DAMAGED));
                };
                (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]), flags)
            }
            Self::New { .. } => {
                let [kind, c, d, flags, _] = *head else {
                    return Err(file.broken(at, DAMAGED));
                };
                (kind.into(), u16::from_le_bytes([c, d]), flags)
            }
        };
        Ok(Message {
            kind,
            at: at + self.head_bytes(),
            len: len.into(),
            is_shared: flags & SHARED != 0,
        })
    }

    /// The messages in a block that continues a header.
    fn continued(
        self,
        file: &mut Window<'_>,
        start: u64,
        len: u64,
    ) -> Result<(u64, u64), DatasetError> {
        match self {
            Self::Old => Ok((start, len)),
            // After a signature, before a checksum.
            Self::New { .. } if len >= 8 && file.bytes(start, 4)? == b"OCHK" => {
                Ok((start + 4, len - 8))
            }
            Self::New { .. } => Err(file.broken(start, DAMAGED)),
        }
    }
}

impl Message {
    /// The only message of this kind; one that lies elsewhere is refused.
    pub(super) fn of(
        file: &Window<'_>,
        messages: &[Self],
        kind: u16,
    ) -> Result<Option<Self>, DatasetError> {
        let found = messages.iter().find(|message| message.kind == kind);
        match found {
            Some(shared) if shared.is_shared => {
                let why = "a dataset with a type of its own name is not read; write it without a named type";
                Err(file.broken(shared.at, why))
            }
            found => Ok(found.copied()),
        }
    }
}

/// The names in a group of the old form: a tree of nodes, whose names are in a heap.
fn symbols(
    file: &mut Window<'_>,
    (tree, heap): (u64, u64),
    objects: &mut Vec<Object>,
) -> Result<(), DatasetError> {
    if file.bytes(heap, 4)? != b"HEAP" {
        return Err(file.broken(heap, DAMAGED));
    }
    let names = read(file, heap + 24, 8)?;
    let mut nodes = vec![(tree, u64::MAX)];
    let mut n_nodes = 0;
    while let Some((at, above)) = nodes.pop() {
        n_nodes += 1;
        let begin = file.bytes(at, 8)?.to_vec();
        let (level, n) = (u64::from(begin[5]), super::number(&begin[6..8]));
        let is_sound = n_nodes <= MAX_NODES && objects.len() <= MAX_LINKS;
        if &begin[..4] == b"TREE" && begin[4] == 0 && level < above && is_sound {
            for nth in 0..n {
                nodes.push((read(file, at + 32 + 16 * nth, 8)?, level));
            }
        } else if &begin[..4] == b"SNOD" && above == 0 && is_sound {
            for nth in 0..n {
                let entry = at + 8 + 40 * nth;
                let name = names.checked_add(read(file, entry, 8)?);
                let name = name.ok_or_else(|| file.broken(entry, DAMAGED))?;
                let header = read(file, entry + 8, 8)?;
                objects.push(Object { name: name_at(file, name)?, at: header });
            }
        } else {
            return Err(file.broken(at, DAMAGED));
        }
        if nodes.len() > MAX_NODES {
            return Err(file.broken(at, DAMAGED));
        }
    }
    Ok(())
}

/// A name that ends with a zero.
fn name_at(file: &mut Window<'_>, at: u64) -> Result<String, DatasetError> {
    let n = file.len().saturating_sub(at).min(MAX_NAME_BYTES);
    let bytes = file.bytes(at, usize::try_from(n).unwrap_or(0))?;
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The object that a link leads to; `None` for one to a name or another file.
fn link(file: &mut Window<'_>, message: Message) -> Result<Option<Object>, DatasetError> {
    let flags = read(file, message.at + 1, 1)?;
    let mut at = message.at + 2;
    let mut kind = 0;
    if flags & 8 != 0 {
        kind = read(file, at, 1)?;
        at += 1;
    }
    at += if flags & 4 != 0 { 8 } else { 0 };
    at += u64::from(flags & 16 != 0);
    let size = 1_usize << (flags & 3);
    let len = read(file, at, size)?;
    at += size as u64;
    if len > MAX_NAME_BYTES {
        return Err(file.broken(at, DAMAGED));
    }
    let name = file.bytes(at, usize::try_from(len).unwrap_or(0))?;
    let name = String::from_utf8_lossy(name).into_owned();
    let header = if kind == 0 { Some(read(file, at + len, 8)?) } else { None };
    Ok(header.map(|at| Object { name, at }))
}
