//! The columns of a table that holds objects: one row for each, with a key, the bytes, and perhaps a label and a
//! length.
//!
//! Two layouts are read, whatever else is in the table. That of cassandra-dali-plugin is `id uuid PRIMARY KEY, label
//! int, data blob`. `bothends upload` makes `name text PRIMARY KEY, label int, size bigint, data blob`. Without
//! `size`, a listing has to read every object to know its length.

use bytes::Bytes;

use super::frame::Rows;
use super::token::hashed;

/// What the user is told to have.
pub(super) const EXPECTED: &str = "expected one row for each object, with a primary key of one \
    column of type text or uuid, its bytes in a column `data` of type blob, and perhaps columns \
    `label` and `size` of whole numbers";

/// How a table is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) key: Key,
    key_column: String,
    data_column: String,
    label: Option<Label>,
    size: Option<Whole>,
}

/// The type of the primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Text,
    Uuid,
}

/// What the column `label` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Number(Whole),
    /// Of another type: masks, several labels, texts.
    Other,
}

/// A type of whole numbers, by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(usize);

impl Whole {
    fn of(name: &str) -> Option<Self> {
        let types = [("tinyint", 1), ("smallint", 2), ("int", 4), ("bigint", 8)];
        let found = types.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, n_bytes)| Self(n_bytes))
    }

    /// The number, if it fits.
    fn bytes(self, number: u64) -> Option<Vec<u8>> {
        let bytes = i64::try_from(number).ok()?.to_be_bytes();
        let (high, low) = bytes.split_at(bytes.len() - self.0);
        let fits = high.iter().all(|byte| *byte == 0) && low[0] < 0x80;
        fits.then(|| low.to_vec())
    }
}

/// A row as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Nothing where the row does not say.
    pub(super) len: Option<u64>,
    /// When that was written, in microseconds since 1970.
    pub(super) written: Option<i64>,
    pub(super) label: Option<i64>,
}

impl Layout {
    /// Of the columns' names, kinds and types, as `system_schema.columns` has them.
    pub(super) fn of(columns: &Rows) -> Result<Self, String> {
        let text = |cell: &Option<Bytes>| {
            let text = cell.as_deref().and_then(|cell| std::str::from_utf8(cell).ok());
            text.unwrap_or_default().to_owned()
        };
        let columns = columns.rows.iter().filter_map(|row| {
            let [name, kind, of] = &row[..] else { return None };
            Some((text(name), text(kind), text(of)))
        });
        let columns: Vec<_> = columns.collect();
        let is_key = |kind: &str| matches!(kind, "partition_key" | "clustering");
        let keys: Vec<_> = columns.iter().filter(|(_, kind, _)| is_key(kind)).collect();
        let [(key_column, _, of_key)] = &keys[..] else {
            let names: Vec<_> = keys.iter().map(|(name, ..)| name.as_str()).collect();
            return Err(format!(
                "its primary key has the columns {}; {EXPECTED}",
                names.join(", ")
            ));
        };
        let key = match &**of_key {
            "text" | "varchar" | "ascii" => Key::Text,
            "uuid" | "timeuuid" => Key::Uuid,
            other => {
                return Err(format!(
                    "its key `{key_column}` is of type {other}; {EXPECTED}"
                ));
            }
        };
        let rest = || columns.iter().filter(|(_, kind, _)| kind == "regular");
        let typed = |name: &str| rest().find(|(of, ..)| of == name).map(|(.., of)| &**of);
        if typed("data") != Some("blob") {
            return Err(format!("it has no column `data` of type blob; {EXPECTED}"));
        }
        let label =
            typed("label").map(|of| Whole::of(of).map_or(Label::Other, Label::Number));
        Ok(Self {
            key,
            key_column: quoted(key_column),
            data_column: quoted("data"),
            label,
            size: typed("size").and_then(Whole::of),
        })
    }

    /// Whether rows say how long their objects are.
    pub(super) fn has_size(&self) -> bool {
        self.size.is_some()
    }

    /// Whether rows have labels that are numbers.
    pub(super) fn has_label(&self) -> bool {
        matches!(self.label, Some(Label::Number(_)))
    }

    /// Whether samples have labels of their own, which no name says.
    pub(super) fn label(&self) -> Option<Label> {
        self.label
    }

    /// What says how long an object is, and when it was written: the column that is small, where there is
    /// one. A server that is asked about a column reads it, and it may not read the bytes of all rows.
    fn measure(&self) -> &str {
        if self.has_size() { "size" } else { &self.data_column }
    }

    /// Gives all rows, for `Self::row`.
    pub(super) fn list(&self, table: &str) -> String {
        let (key, len) = (&self.key_column, self.measure());
        let label = if self.has_label() { ", label" } else { "" };
        format!("SELECT {key}, {len}, writetime({len}){label} FROM {table}")
    }

    /// Gives an object and when it was written.
    pub(super) fn get(&self, table: &str) -> String {
        let (key, data, len) = (&self.key_column, &self.data_column, self.measure());
        format!("SELECT {data}, writetime({len}) FROM {table} WHERE {key} = ?")
    }

    /// Gives an object's length, if the table has it, or its bytes, and when it was written.
    pub(super) fn identify(&self, table: &str) -> String {
        let (key, len) = (&self.key_column, self.measure());
        format!("SELECT {len}, writetime({len}) FROM {table} WHERE {key} = ?")
    }

    /// Gives when an object's label was written, and the label. For tables that have labels.
    pub(super) fn labelled(&self, table: &str) -> String {
        let key = &self.key_column;
        format!("SELECT writetime(label), label FROM {table} WHERE {key} = ?")
    }

    /// Takes a key, the bytes, and those of a label and a length that there are.
    pub(super) fn put(&self, table: &str) -> String {
        let (key, data) = (&self.key_column, &self.data_column);
        let more = [(self.has_label(), "label"), (self.has_size(), "size")];
        let more: Vec<_> = more.iter().filter(|(is, _)| *is).map(|(_, it)| *it).collect();
        let columns: String = more.iter().map(|name| format!(", {name}")).collect();
        let marks = ", ?".repeat(more.len());
        format!("INSERT INTO {table} ({key}, {data}{columns}) VALUES (?, ?{marks})")
    }

    /// What [`Self::put`] takes besides the key and the bytes.
    pub(super) fn values(
        &self,
        label: Option<u32>,
        len: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, String> {
        let mut values = Vec::new();
        if let Some(Label::Number(of)) = self.label {
            let too_large = || "its label is too large for the column `label`".to_owned();
            let label = label.map(|label| of.bytes(label.into()).ok_or_else(too_large));
            values.push(label.transpose()?);
        }
        if let Some(of) = self.size {
            let too_large = || "it is too long for the column `size`".to_owned();
            values.push(Some(of.bytes(len as u64).ok_or_else(too_large)?));
        }
        Ok(values)
    }

    /// What an object is called that is to have this name.
    pub(super) fn named(&self, wanted: &str) -> String {
        match self.key {
            Key::Uuid if uuid(wanted).is_none() => uuid_text(&uuid_of(wanted)),
            Key::Uuid | Key::Text => wanted.to_owned(),
        }
    }

    /// A length in a row: the number that the table has, or that of the bytes.
    pub(super) fn len(&self, cell: Option<&Bytes>) -> Option<u64> {
        match self.has_size() {
            true => number(cell).and_then(|len| u64::try_from(len).ok()),
            false => cell.map(|bytes| bytes.len() as u64),
        }
    }

    /// A row of a listing; nothing of one that has no name.
    pub(super) fn row(&self, cells: &[Option<Bytes>]) -> Option<Row> {
        let [key, len, written, rest @ ..] = cells else { return None };
        let name = self.name(key.as_deref()?)?;
        let written = number(written.as_ref());
        let label = number(rest.first().and_then(Option::as_ref));
        Some(Row { name, len: self.len(len.as_ref()), written, label })
    }

    fn name(&self, key: &[u8]) -> Option<String> {
        match self.key {
            Key::Text => String::from_utf8(key.to_vec()).ok(),
            Key::Uuid => Some(uuid_text(key.try_into().ok()?)),
        }
    }

    /// The key of an object.
    pub(super) fn key(&self, name: &str) -> Option<Vec<u8>> {
        match self.key {
            Key::Text => Some(name.as_bytes().to_vec()),
            Key::Uuid => uuid(name),
        }
    }
}

/// A number of one, two, four or eight bytes.
pub(super) fn number(cell: Option<&Bytes>) -> Option<i64> {
    let cell = cell?;
    match **cell {
        [byte] => Some(byte.cast_signed().into()),
        [a, b] => Some(i16::from_be_bytes([a, b]).into()),
        [a, b, c, d] => Some(i32::from_be_bytes([a, b, c, d]).into()),
        _ => Some(i64::from_be_bytes(cell[..].try_into().ok()?)),
    }
}

/// A name as CQL has it exactly.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts: [String; 5] =
        [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| hex(&bytes[part]));
    parts.join("-")
}

/// A UUID of this name: the same each time, of version 8, which leaves its making to us.
fn uuid_of(name: &str) -> [u8; 16] {
    let (high, low) = hashed(name.as_bytes());
    let mut bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    bytes[6] = bytes[6] & 0x0F | 0x80;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

fn uuid(text: &str) -> Option<Vec<u8>> {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let are_dashes =
        text.bytes().enumerate().all(|(at, byte)| is_dash(at) == (byte == b'-'));
    // An upper-case text would be a second name of the same row.
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if text.len() != 36 || !are_dashes || !is_lower {
        return None;
    }
    let hex = text.replace('-', "");
    let pairs = (0..hex.len()).step_by(2).map(|at| hex.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(columns: &[[&'static str; 3]]) -> Rows {
        let row = |row: &[&'static str; 3]| row.map(|text| Some(text.into())).to_vec();
        Rows { rows: columns.iter().map(row).collect(), more: None }
    }

    #[test]
    fn both_layouts_are_read() {
        let plugin = Layout::of(&columns(&[
            ["id", "partition_key", "uuid"],
            ["label", "regular", "int"],
            ["data", "regular", "blob"],
        ]))
        .unwrap();
        assert_eq!(
            plugin.list("k.t"),
            "SELECT \"id\", \"data\", writetime(\"data\"), label FROM k.t"
        );
        let named = plugin.named("cat/1.jpg");
        assert_eq!(plugin.named(&named), named);
        assert!(plugin.key(&named).is_some() && named != plugin.named("cat/2.jpg"));
        assert_eq!(plugin.values(Some(7), 9), Ok(vec![Some(vec![0, 0, 0, 7])]));
        assert_eq!(plugin.values(None, 9), Ok(vec![None]));
        assert!(plugin.values(Some(1 << 31), 9).unwrap_err().starts_with("its label is"));
        assert_eq!(
            plugin.put("k.t"),
            "INSERT INTO k.t (\"id\", \"data\", label) VALUES (?, ?, ?)"
        );
        let text = "0123ab45-6789-abcd-ef01-23456789abcd";
        let key = plugin.key(text).unwrap();
        assert_eq!(plugin.name(&key).unwrap(), text);
        for no_key in ["", "x", &text.to_uppercase(), &text[1..], &text.replace('-', "0")]
        {
            assert_eq!(plugin.key(no_key), None, "{no_key}");
        }
        let own = Layout::of(&columns(&[
            ["name", "partition_key", "text"],
            ["label", "regular", "int"],
            ["size", "regular", "bigint"],
            ["data", "regular", "blob"],
        ]))
        .unwrap();
        assert_eq!(
            own.list("k.t"),
            "SELECT \"name\", size, writetime(size), label FROM k.t"
        );
        let cells = [&b"a/1.jpg"[..], &[0, 0, 0, 0, 0, 0, 0, 9], &[0; 8], &[0, 0, 0, 3]];
        let cells: Vec<_> = cells.map(|cell| Some(Bytes::copy_from_slice(cell))).to_vec();
        let name = "a/1.jpg".to_owned();
        let row = Row { name, len: Some(9), written: Some(0), label: Some(3) };
        assert_eq!(own.row(&cells), Some(row));
        let without_size = [&cells[..1], &[None, None], &cells[3..]].concat();
        let row = own.row(&without_size).unwrap();
        assert_eq!((row.len, row.written, row.label), (None, None, Some(3)));
    }

    #[test]
    fn other_tables_are_refused_with_what_is_expected() {
        for (table, words) in [
            (&[["a", "partition_key", "int"]][..], "its key `a` is of type int"),
            (&[["a", "partition_key", "text"]], "it has no column `data` of type blob"),
            (
                &[["a", "partition_key", "text"], ["b", "clustering", "text"]],
                "its primary key has the columns a, b",
            ),
            (
                &[["a", "partition_key", "text"], ["data", "regular", "text"]],
                "it has no column `data` of type blob",
            ),
            (&[], "its primary key has the columns "),
        ] {
            let why = Layout::of(&columns(table)).unwrap_err();
            assert!(why.starts_with(words) && why.ends_with(EXPECTED), "{why}");
        }
    }
}
