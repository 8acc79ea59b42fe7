//! Fields under construction: formats name what they come across, and hand over the values of what was asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bothends_core::sample::{Extent, FileIdx};

use super::column::Places;
use super::{Ask, Field, FieldKind, FieldType, Fields, NamedField, Number, Part};
use crate::error::DatasetError;
use crate::storage::Storage;

/// Names that are kept for a message or a listing; a data set of more has them made up.
const MOST_NAMES: usize = 4096;

/// Names that a message lists.
const MOST_SHOWN: usize = 40;

/// Bytes of values that are kept in memory: a small file can state a long value for each of its rows.
const MOST_BYTES: u64 = 1 << 30;

/// Fields that can be asked for.
const MOST_ASKED: usize = 256;

/// A field of bytes or text as a format declares it.
pub(crate) const BYTES: (FieldKind, Option<&[u32]>) = (FieldKind::Bytes, None);
/// As [`BYTES`].
pub(crate) const TEXT: (FieldKind, Option<&[u32]>) = (FieldKind::Text, None);

/// A field of one number.
pub(crate) fn scalar(number: Number) -> (FieldKind, Option<&'static [u32]>) {
    (FieldKind::Numbers(number), Some(&[]))
}

/// A field whose values are wanted: its number, and what its values are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) nth: usize,
    pub(crate) kind: FieldKind,
}

/// What formats put fields into.
#[derive(Debug, Default)]
pub struct FieldsBuilder {
    ask: Ask,
    /// All that were come across.
    known: BTreeMap<String, FieldKind>,
    columns: Vec<Column>,
    /// Of values that are kept in memory.
    n_bytes: u64,
    /// The same of all parts: together they may have no more than the whole.
    of_parts: Arc<AtomicU64>,
    is_part: bool,
}

#[derive(Debug)]
struct Column {
    name: String,
    /// What the user says that its bytes are.
    taken_for: Option<FieldKind>,
    found: Option<Found>,
    places: Places,
}

/// What a field was when it was come across first.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    kind: FieldKind,
    shape: Option<Vec<u32>>,
}

impl FieldsBuilder {
    /// Takes what is asked for.
    ///
    /// # Errors
    /// [`DatasetError::Field`] where a name is empty or there twice.
    pub fn new(ask: Ask) -> Result<Self, DatasetError> {
        let mut columns: Vec<Column> = Vec::new();
        let names: &[String] = if let Ask::Fields(names) = &ask { names } else { &[] };
        for text in names {
            let (name, taken_for) = match text.rsplit_once(':') {
                Some((name, "text")) => (name, Some(FieldKind::Text)),
                Some((name, "bytes")) => (name, Some(FieldKind::Bytes)),
                _ => (text.as_str(), None),
            };
            let refuse = |why: &str| {
                let name = name.escape_debug().to_string();
                Err(DatasetError::Field { name, why: why.to_owned() })
            };
            if name.is_empty() {
                return refuse(
                    "has no name; give the names of fields, which `bothends inspect` lists",
                );
            }
            if columns.iter().any(|known| known.name == name) {
                return refuse("is requested twice; name it once");
            }
            if columns.len() == MOST_ASKED {
                return refuse("is one of too many; at most 256 can be requested");
            }
            let (found, places) = (None, Places::default());
            columns.push(Column { name: name.to_owned(), taken_for, found, places });
        }
        let (known, of_parts) = (BTreeMap::new(), Arc::default());
        Ok(Self { ask, known, columns, n_bytes: 0, of_parts, is_part: false })
    }

    /// One that looks for the same and has found nothing yet.
    pub(crate) fn part(&self) -> Self {
        let column = |column: &Column| Column {
            name: column.name.clone(),
            taken_for: column.taken_for,
            found: None,
            places: Places::default(),
        };
        Self {
            ask: self.ask.clone(),
            known: BTreeMap::new(),
            columns: self.columns.iter().map(column).collect(),
            n_bytes: 0,
            of_parts: Arc::clone(&self.of_parts),
            is_part: true,
        }
    }

    /// Whether `part`, of the samples that follow, is what this one would have taken from them.
    pub(crate) fn agrees(&self, part: &Self) -> bool {
        let is_new = |name: &&String| !self.known.contains_key(*name);
        // Which names find room depends on their order, which the part does not tell.
        let n_names = match part.known.len() {
            MOST_NAMES => usize::MAX,
            _ => self.known.len() + part.known.keys().filter(is_new).count(),
        };
        let mut columns = self.columns.iter().zip(&part.columns);
        (self.known.len() == MOST_NAMES || n_names <= MOST_NAMES)
            && self.n_bytes + part.n_bytes <= MOST_BYTES
            && columns.all(|(column, later)| match (&column.found, &later.found) {
                (Some(found), Some(later)) => found == later,
                (_, None) | (None, _) => true,
            })
    }

    /// Adds a part that agrees, whose files have these numbers now.
    pub(crate) fn append(&mut self, part: Self, files: &[FileIdx]) {
        if self.known.len() < MOST_NAMES {
            for (name, kind) in part.known {
                self.known.entry(name).or_insert(kind);
            }
        }
        for (column, later) in self.columns.iter_mut().zip(part.columns) {
            column.found = column.found.take().or(later.found);
            column.places.append(&later.places, files);
        }
        self.n_bytes += part.n_bytes;
    }

    /// Whether a format need look for fields at all.
    pub(crate) fn looks(&self) -> bool {
        self.ask != Ask::Nothing
    }

    /// That a format comes with no fields.
    pub(crate) fn none_of(&self, format: &str) -> Result<(), DatasetError> {
        let Some(column) = self.columns.first() else { return Ok(()) };
        let why = format!(
            "is requested, but fields of {format} are not read; leave it out, or convert the data to \
             WebDataset, MDS, Parquet, Arrow or TFRecord"
        );
        Err(DatasetError::Field { name: column.name.clone(), why })
    }

    /// A field is come across; what to do with its values, where they are wanted.
    ///
    /// # Errors
    /// Why it cannot be taken, without its name.
    pub(crate) fn field(
        &mut self,
        name: &str,
        (kind, shape): (FieldKind, Option<&[u32]>),
    ) -> Result<Option<Kept>, String> {
        if !self.looks() {
            return Ok(None);
        }
        if !self.known.contains_key(name) && self.known.len() < MOST_NAMES {
            self.known.insert(name.to_owned(), kind);
        }
        let Some(nth) = self.columns.iter().position(|column| column.name == name) else {
            return Ok(None);
        };
        let column = &mut self.columns[nth];
        let shown = name.escape_debug();
        let kind = match (column.taken_for, kind) {
            (None, kind) => kind,
            (Some(taken), FieldKind::Bytes | FieldKind::Text) => taken,
            (Some(taken), FieldKind::Numbers(number)) => {
                return Err(format!(
                    "the field `{shown}` is {}, which cannot be given as {taken}; leave `:{taken}` out",
                    number.name()
                ));
            }
        };
        let found = Found { kind, shape: shape.map(<[u32]>::to_vec) };
        match &column.found {
            None => column.found = Some(found),
            Some(known) if *known != found => {
                return Err(format!(
                    "the field `{shown}` is {kind} here and {} before; write all shards with the same columns",
                    known.kind
                ));
            }
            Some(_) => {}
        }
        Ok(Some(Kept { nth, kind }))
    }

    /// What the user says that the bytes of a field are.
    pub(crate) fn is_taken_for_text_or_bytes(&self, name: &str) -> bool {
        let column = self.columns.iter().find(|column| column.name == name);
        column.is_some_and(|column| column.taken_for.is_some())
    }

    /// The next value of a field, which is in a file.
    pub(crate) fn extent(&mut self, kept: Kept, extent: Extent) {
        self.columns[kept.nth].places.extent(extent);
    }

    /// The next value of a field.
    ///
    /// # Errors
    /// That all values together take too much memory.
    pub(crate) fn value(&mut self, kept: Kept, value: &[u8]) -> Result<(), String> {
        let len = value.len() as u64;
        self.n_bytes += len;
        let of_parts = match self.is_part {
            true => len + self.of_parts.fetch_add(len, Ordering::Relaxed),
            false => 0,
        };
        let column = &mut self.columns[kept.nth];
        if self.n_bytes.max(of_parts) > MOST_BYTES {
            return Err(format!(
                "the values of the field `{}` and others take more than 1 GiB of memory; leave it out, or store \
                 the data set as WebDataset or MDS, where such values stay in their files",
                column.name
            ));
        }
        column.places.value(value);
        Ok(())
    }

    /// That each field has a value of every one of the first `n` samples, and no more.
    ///
    /// # Errors
    /// Which has not, without the place.
    pub(crate) fn check_rows(&self, n: u64) -> Result<(), String> {
        let odd = self.columns.iter().find(|column| column.places.len() as u64 != n);
        let Some(column) = odd else { return Ok(()) };
        let name = column.name.escape_debug();
        let Some(number) = n.checked_sub(1) else {
            return Err(format!("the field `{name}` has a value and no sample"));
        };
        if column.found.is_none() {
            return Err(self.unknown(&column.name));
        }
        Err(match (column.places.len() as u64) < n {
            true => format!(
                "sample {number} has no field `{name}`; leave the field out, or give every sample one"
            ),
            false => {
                format!("sample {number} has the field `{name}` twice; keep one of them")
            }
        })
    }

    fn unknown(&self, name: &str) -> String {
        let known: Vec<_> = self.known.iter().collect();
        let shown = known.iter().take(MOST_SHOWN);
        let shown: Vec<_> = shown
            .map(|(name, kind)| format!("{} ({kind})", name.escape_debug()))
            .collect();
        let more = match known.len().saturating_sub(MOST_SHOWN) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let name = name.escape_debug();
        match shown.is_empty() {
            true => format!("there is no field `{name}`, nor any other"),
            false => format!(
                "there is no field `{name}`; there are {}{more}",
                shown.join(", ")
            ),
        }
    }

    /// The fields of `n` samples that were found at `target`, and the names of all.
    ///
    /// # Errors
    /// [`DatasetError::Shard`] where one that was asked for is not there.
    pub(crate) fn build(
        self,
        storage: &dyn Storage,
        target: &str,
        n: u64,
    ) -> Result<(Fields, Vec<NamedField>), DatasetError> {
        let refused =
            |why| DatasetError::Shard { path: storage.shown(target), offset: 0, why };
        if let Some(column) = self.columns.iter().find(|column| column.found.is_none()) {
            return Err(refused(self.unknown(&column.name)));
        }
        self.check_rows(n).map_err(refused)?;
        if let Some(column) = self.columns.iter().find(|column| column.places.is_mixed())
        {
            let why = format!(
                "the field `{}` is compressed or dictionary-encoded in some row groups but not in \
                others; write the files again with one setting",
                column.name
            );
            return Err(refused(why));
        }
        let fields = self.columns.into_iter().filter_map(|mut column| {
            let found = column.found?;
            column.places.shrink_to_fit();
            let shape = shape_of(found.kind, found.shape, &column.places).map(Arc::from);
            let Column { name, places, .. } = column;
            let field_type = FieldType { name: name.into(), kind: found.kind, shape };
            Some(Field { field_type, parts: vec![Part { start: 0, places }] })
        });
        let fields = Fields(fields.collect());
        let known = self.known.into_iter().map(|(name, kind)| NamedField { name, kind });
        Ok((fields, known.collect()))
    }
}

/// The shape of every value: as declared, else a number or a row of them, if all are as long.
fn shape_of(
    kind: FieldKind,
    declared: Option<Vec<u32>>,
    places: &Places,
) -> Option<Vec<u32>> {
    let FieldKind::Numbers(number) = kind else { return None };
    let len = places.common_len()?;
    if declared.is_some() {
        return declared;
    }
    match len / number.size() {
        1 => Some(Vec::new()),
        n => Some(vec![u32::try_from(n).ok()?]),
    }
}
