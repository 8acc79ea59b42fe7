//! The part of Python's pickle format that data sets use: numbers, texts, lists, tuples, dictionaries,
//! and NumPy arrays as plain objects. Nothing is ever called: a global is only a name, and an object only
//! its arguments and its state.
//!
//! The opcodes are those of CPython's `Lib/pickletools.py` (protocols 0x80 to 5, without persistent ids,
//! instances and out-of-band buffers). Long texts stay in the file: a value says where they are. The file
//! is read once, in windows, and long texts are skipped.

use std::collections::BTreeMap;

use crate::error::DatasetError;
use crate::storage::{Kind, Storage, kind, read};

/// Texts up to this length are kept; of longer ones only the place is.
const MOST_KEPT: u64 = 64;
/// Bytes read at a time.
const WINDOW: usize = 64 << 10;
/// Opcodes of a file at most: a batch of CIFAR-10 has 31 000.
const MOST_OPCODES: u32 = 1_000_000;
/// Values in one another: a batch of CIFAR-10 has 5. Values are dropped by recursion.
const DEEPEST: u32 = 32;

/// What a pickle holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// None, a truth value, a global, or a list or dictionary met a second time.
    Nothing,
    /// A whole number.
    Int(i64),
    /// Text or bytes.
    Text(Text),
    /// A list or a tuple.
    Items(Vec<Self>),
    /// A dictionary, in the order of the file.
    Pairs(Vec<(Self, Self)>),
    /// What was built of a global: its state where it has one, else the arguments.
    Object(Box<Self>),
}

/// Text or bytes in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    /// Where they begin.
    pub(crate) offset: u64,
    /// How many they are.
    pub(crate) len: u64,
    /// They themselves, where they are few.
    pub(crate) kept: Option<Vec<u8>>,
}

impl Value {
    /// What a dictionary has under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Pairs(pairs) = self else { return None };
        let is_it = |value: &Self| {
            let Self::Text(text) = value else { return false };
            text.kept.as_deref() == Some(key.as_bytes())
        };
        pairs.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value)
    }

    /// The items of a list or a tuple.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        let Self::Items(items) = self else { return None };
        Some(items)
    }

    /// The number.
    pub(crate) fn int(&self) -> Option<i64> {
        let Self::Int(number) = self else { return None };
        Some(*number)
    }
}

/// Reads the pickle at `path`.
pub(crate) fn load(storage: &dyn Storage, path: &str) -> Result<Value, DatasetError> {
    let Kind::File { len } = kind(storage, path)? else {
        return Err(DatasetError::Unrecognised { path: storage.shown(path) });
    };
    let bytes = Bytes { storage, path, len, at: 0, first: 0, window: Vec::new() };
    let mut machine =
        Machine { bytes, stack: Vec::new(), marks: Vec::new(), memo: BTreeMap::new() };
    for _ in 0..MOST_OPCODES {
        if let Some(value) = machine.step()? {
            return Ok(value);
        }
    }
    Err(machine.bytes.wrong("has more opcodes than any batch"))
}

/// The file, read forward.
struct Bytes<'a> {
    storage: &'a dyn Storage,
    path: &'a str,
    len: u64,
    /// What is read next.
    at: u64,
    /// Where `window` lies in the file.
    first: u64,
    window: Vec<u8>,
}

impl Bytes<'_> {
    fn wrong(&self, why: &'static str) -> DatasetError {
        let path = self.storage.shown(self.path);
        DatasetError::Pickle { path, offset: self.at, why }
    }

    /// The next `n` bytes, [`WINDOW`] at most.
    fn take(&mut self, n: usize) -> Result<&[u8], DatasetError> {
        let end = self.at + n as u64;
        if end > self.len {
            return Err(self.wrong("ends in the middle of an object"));
        }
        if end > self.first + self.window.len() as u64 || self.at < self.first {
            let left = usize::try_from(self.len - self.at).unwrap_or(WINDOW);
            self.window.resize(left.min(WINDOW), 0);
            self.first = self.at;
            read(self.storage, self.path, self.at, &mut self.window)?;
        }
        let start = usize::try_from(self.at - self.first).unwrap_or(0);
        self.at = end;
        Ok(&self.window[start..start + n])
    }

    /// A number of `n` bytes, little-endian, unsigned.
    fn number(&mut self, n: usize) -> Result<u64, DatasetError> {
        let bytes = self.take(n)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A line of a global's name, which nobody needs.
    fn pass_line(&mut self) -> Result<(), DatasetError> {
        while self.take(1)? != b"\n" {}
        Ok(())
    }

    /// A length of `n` bytes and as much text: kept where it is short, else passed over.
    fn text(&mut self, n: usize) -> Result<Value, DatasetError> {
        let len = self.number(n)?;
        let offset = self.at;
        if len > self.len - self.at {
            return Err(self.wrong("has a text that is longer than the file"));
        }
        let kept = match usize::try_from(len).ok().filter(|_| len <= MOST_KEPT) {
            Some(few) => Some(self.take(few)?.to_vec()),
            None => None,
        };
        self.at = offset + len;
        Ok(Value::Text(Text { offset, len, kept }))
    }
}

/// The pickle machine: a stack, marks in it, and a memo.
struct Machine<'a> {
    bytes: Bytes<'a>,
    stack: Vec<Held>,
    /// How high the stack was at each mark.
    marks: Vec<usize>,
    memo: BTreeMap<u64, Value>,
}

/// A value on the stack.
struct Held {
    value: Value,
    /// How many values are in one another here, itself included.
    depth: u32,
}

impl Held {
    fn leaf(value: Value) -> Self {
        Self { value, depth: 1 }
    }
}

/// Values off the stack, and the depth of the deepest.
type Taken = (Vec<Value>, u32);

fn taken(held: impl IntoIterator<Item = Held>) -> Taken {
    let (values, depths): (Vec<_>, Vec<_>) =
        held.into_iter().map(|held| (held.value, held.depth)).unzip();
    (values, depths.into_iter().max().unwrap_or(0))
}

impl Machine<'_> {
    /// One opcode; the value at the end.
    fn step(&mut self) -> Result<Option<Value>, DatasetError> {
        let opcode = self.bytes.number(1)?;
        match u8::try_from(opcode).unwrap_or(0) {
            b'.' => return self.pop().map(|held| Some(held.value)),
            0x80 => self.pass(1)?,
            0x95 => self.pass(8)?,
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'q' => self.remember(1)?,
            b'r' => self.remember(4)?,
            0x94 => {
                let key = self.memo.len() as u64;
                self.remember_as(key);
            }
            b'h' => self.recall(1)?,
            b'j' => self.recall(4)?,
            code => {
                let value = match self.leaf(code)? {
                    Some(value) => value,
                    None => return self.compound(code).map(|()| None),
                };
                self.stack.push(Held::leaf(value));
            }
        }
        Ok(None)
    }

    /// Opcodes that make a value of nothing but the file.
    fn leaf(&mut self, code: u8) -> Result<Option<Value>, DatasetError> {
        let bytes = &mut self.bytes;
        Ok(Some(match code {
            b'N' | 0x88 | 0x89 => Value::Nothing,
            b'}' => Value::Pairs(Vec::new()),
            b']' | b')' => Value::Items(Vec::new()),
            b'K' => Value::Int(bytes.number(1)?.cast_signed()),
            b'M' => Value::Int(bytes.number(2)?.cast_signed()),
            b'J' => {
                let number = u32::try_from(bytes.number(4)?).unwrap_or(0);
                Value::Int(i64::from(number.cast_signed()))
            }
            0x8a => long(bytes)?,
            b'U' | b'C' | 0x8c => bytes.text(1)?,
            b'T' | b'B' | b'X' => bytes.text(4)?,
            0x8e | 0x8d | 0x96 => bytes.text(8)?,
            b'c' => {
                bytes.pass_line()?;
                bytes.pass_line()?;
                Value::Nothing
            }
            _ => return Ok(None),
        }))
    }

    /// Opcodes that make a value of others.
    fn compound(&mut self, code: u8) -> Result<(), DatasetError> {
        match code {
            b't' => {
                let (items, depth) = self.above_mark()?;
                self.push_around(Value::Items(items), depth)?;
            }
            0x85..=0x87 => {
                let n = usize::from(code - 0x84);
                let first = self.stack.len().checked_sub(n);
                let first = first.ok_or_else(|| self.empty())?;
                let (items, depth) = taken(self.stack.drain(first..));
                self.push_around(Value::Items(items), depth)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(taken([item]))?;
            }
            b'e' => {
                let items = self.above_mark()?;
                self.append(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(taken([key, value]))?;
            }
            b'u' => {
                let items = self.above_mark()?;
                self.set(items)?;
            }
            // STACK_GLOBAL: a name of two texts.
            0x93 => {
                let (_, _) = (self.pop()?, self.pop()?);
                self.stack.push(Held::leaf(Value::Nothing));
            }
            // REDUCE, BUILD: a name and its arguments, an object and its state.
            b'R' | b'b' => {
                let (Held { value, depth }, _) = (self.pop()?, self.pop()?);
                self.push_around(Value::Object(Box::new(value)), depth)?;
            }
            _ => return Err(self.bytes.wrong("has an opcode that no batch has")),
        }
        Ok(())
    }

    /// A value around others, the deepest of which has this depth.
    fn push_around(&mut self, value: Value, depth: u32) -> Result<(), DatasetError> {
        let depth = self.around(depth)?;
        self.stack.push(Held { value, depth });
        Ok(())
    }

    fn around(&self, depth: u32) -> Result<u32, DatasetError> {
        match depth {
            DEEPEST.. => Err(self.bytes.wrong("has values nested too deeply")),
            _ => Ok(depth + 1),
        }
    }

    fn append(&mut self, (items, depth): Taken) -> Result<(), DatasetError> {
        let around = self.around(depth)?;
        let Some(Held { value: Value::Items(list), depth }) = self.stack.last_mut()
        else {
            return Err(self.bytes.wrong("appends to something that is not a list"));
        };
        list.extend(items);
        *depth = around.max(*depth);
        Ok(())
    }

    fn set(&mut self, (items, depth): Taken) -> Result<(), DatasetError> {
        let around = self.around(depth)?;
        let Some(Held { value: Value::Pairs(pairs), depth }) = self.stack.last_mut()
        else {
            return Err(self
                .bytes
                .wrong("sets a key of something that is not a dictionary"));
        };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key, value));
        }
        *depth = around.max(*depth);
        Ok(())
    }

    fn above_mark(&mut self) -> Result<Taken, DatasetError> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        let mark = mark.ok_or_else(|| self.empty())?;
        Ok(taken(self.stack.drain(mark..)))
    }

    fn pop(&mut self) -> Result<Held, DatasetError> {
        self.stack.pop().ok_or_else(|| self.empty())
    }

    fn empty(&self) -> DatasetError {
        self.bytes.wrong("takes more from the stack than there is")
    }

    fn pass(&mut self, n: usize) -> Result<(), DatasetError> {
        self.bytes.take(n).map(|_| ())
    }

    fn remember(&mut self, n: usize) -> Result<(), DatasetError> {
        let key = self.bytes.number(n)?;
        self.remember_as(key);
        Ok(())
    }

    /// Texts and numbers; what can still grow is not followed.
    fn remember_as(&mut self, key: u64) {
        let value = match self.stack.last().map(|held| &held.value) {
            Some(value @ (Value::Text(_) | Value::Int(_))) => value.clone(),
            _ => Value::Nothing,
        };
        self.memo.insert(key, value);
    }

    fn recall(&mut self, n: usize) -> Result<(), DatasetError> {
        let key = self.bytes.number(n)?;
        let Some(value) = self.memo.get(&key) else {
            return Err(self.bytes.wrong("reads a memo that was not stored"));
        };
        self.stack.push(Held::leaf(value.clone()));
        Ok(())
    }
}

/// A signed number of so many bytes as its first one says.
fn long(bytes: &mut Bytes<'_>) -> Result<Value, DatasetError> {
    let len = usize::try_from(bytes.number(1)?).unwrap_or(0);
    if len > 8 {
        return Err(bytes.wrong("has a number of more than 64 bits"));
    }
    let number = bytes.number(len)?.cast_signed();
    let unused = 64 - 8 * u32::try_from(len).unwrap_or(8);
    Ok(Value::Int(number.checked_shl(unused).map_or(0, |high| high >> unused)))
}
