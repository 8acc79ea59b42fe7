//! Several tables as one: what a mix of data sets reads, and what devices get of it.
//!
//! Records stand one data set after the other, so that a record's number says where it is from. Each data
//! set's files lie in a folder that is called as it is: whoever reads looks up where that folder is. Read
//! `table.rs` first.

use std::collections::{HashMap, HashSet};

use bothends_core::sample::{Encoding, Extent, FileIdx};

use super::{Table, TableBuilder};
use crate::error::DatasetError;
use crate::path;
use crate::store::name_profile;

const TOO_MANY_LABELS: DatasetError =
    DatasetError::TooMany { what: "labels", max: 1 << 32 };

/// What becomes of the labels of data sets that are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinLabels {
    /// Classes of one name are one class: the first data set's keep their labels, and those that
    /// only later ones have follow in their order. Data sets without class names keep the labels
    /// that they have.
    Merge,
    /// Every data set keeps the labels that it has, whatever its classes are called.
    Keep,
    /// Every data set's classes are classes of their own, and their labels follow those of the data
    /// set before.
    Offset,
}

impl JoinLabels {
    /// Every way with its name in options.
    pub const NAMES: [(&'static str, Self); 3] =
        [("merge", Self::Merge), ("keep", Self::Keep), ("offset", Self::Offset)];
}

impl Table {
    /// The records of all these data sets, each below a folder with the data set's name.
    ///
    /// # Errors
    /// [`DatasetError::Join`] and [`DatasetError::Labels`] where they do not go together;
    /// [`DatasetError::TooMany`].
    pub fn joined(
        parts: &[(&str, &Self)],
        labels: JoinLabels,
    ) -> Result<Self, DatasetError> {
        let refuse = |name: &str, why| {
            Err(DatasetError::Join { name: name.escape_debug().to_string(), why })
        };
        let Some(&(_, first)) = parts.first() else {
            return refuse("", "is missing: give at least one data set");
        };
        for (nth, &(name, table)) in parts.iter().enumerate() {
            if !is_name(name) {
                let why = "cannot be the name of a data set; use letters, digits, `_`, `-` and `.`";
                return refuse(name, why);
            }
            if parts[..nth].iter().any(|(other, _)| *other == name) {
                return refuse(name, "is there twice; give each data set its own name");
            }
            if table.encoding != first.encoding {
                return refuse(name, unlike(table.encoding, first.encoding));
            }
            if table.checksum.is_empty() != first.checksum.is_empty() {
                let why = "is a store and another one is not, or vice versa; pack \
                           them all, or none";
                return refuse(name, why);
            }
        }
        let mut joining = Joining {
            builder: TableBuilder::new(first.encoding),
            label_of: Vec::new(),
            checksums: Vec::new(),
        };
        joining.classes(parts, labels)?;
        for (nth, &(name, table)) in parts.iter().enumerate() {
            joining.records(name, table, nth)?;
        }
        let Joining { mut builder, checksums, .. } = joining;
        builder.checksums(checksums);
        if parts.iter().all(|(_, table)| table.are_whole_files) {
            builder.whole_files();
        }
        builder.build()
    }
}

/// Whether files can lie in a folder of this name, and a command line can have it before a `=`.
fn is_name(name: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    path::check(name).is_ok() && name.chars().all(is_of_name)
}

fn unlike(encoding: Encoding, first: Encoding) -> &'static str {
    match (encoding, first) {
        (Encoding::Planar { .. }, Encoding::Planar { .. }) => {
            "has planes of a different size from the first data set's"
        }
        (_, _) => {
            "has records of a different kind from the first data set's (images, planes, bytes)"
        }
    }
}

/// How a data set's labels become those of all.
#[derive(Debug)]
enum LabelMap {
    Plus(u32),
    ByLabel(Vec<u32>),
}

struct Joining {
    builder: TableBuilder,
    /// Of each data set.
    label_of: Vec<LabelMap>,
    checksums: Vec<u64>,
}

impl Joining {
    fn classes(
        &mut self,
        parts: &[(&str, &Table)],
        labels: JoinLabels,
    ) -> Result<(), DatasetError> {
        let is_named = |table: &Table| table.classes.len() > 0;
        match labels {
            JoinLabels::Merge => {
                let named = parts.iter().filter(|(_, table)| is_named(table)).count();
                if named == 0 {
                    return self.kept(parts);
                }
                if let Some((name, _)) = parts.iter().find(|(_, table)| !is_named(table))
                {
                    let why = "names no classes and others do, so it is not known which of \
                               its labels are whose";
                    return Err(DatasetError::Labels { name: (*name).to_owned(), why });
                }
                self.merged(parts)
            }
            JoinLabels::Keep => self.kept(parts),
            JoinLabels::Offset => self.offset(parts),
        }
    }

    /// The names are those of the data set with most classes, if the others' are the same as far
    /// as they go; else a label has no one name.
    fn kept(&mut self, parts: &[(&str, &Table)]) -> Result<(), DatasetError> {
        let longest = parts.iter().max_by_key(|(_, table)| table.classes.len());
        if let Some((_, longest)) = longest {
            let is_start = |table: &Table| {
                table.classes.len() > 0
                    && table
                        .classes
                        .iter()
                        .zip(longest.classes.iter())
                        .all(|(a, b)| a == b)
            };
            if parts.iter().all(|(_, table)| is_start(table)) {
                for class in longest.classes.iter() {
                    self.builder.class(class)?;
                }
            }
        }
        self.label_of = parts.iter().map(|_| LabelMap::Plus(0)).collect();
        Ok(())
    }

    fn merged(&mut self, parts: &[(&str, &Table)]) -> Result<(), DatasetError> {
        let mut known = HashMap::new();
        for (name, table) in parts {
            let mut map = Vec::with_capacity(table.classes.len());
            let mut own = HashSet::new();
            for class in table.classes.iter() {
                if !own.insert(class) {
                    let why =
                        "has two classes of one name, which cannot be merged by name";
                    return Err(DatasetError::Labels { name: (*name).to_owned(), why });
                }
                let label = match known.get(class) {
                    Some(&label) => label,
                    None => {
                        let label = self.builder.class(class)?;
                        known.insert(class.to_owned(), label);
                        label
                    }
                };
                map.push(label);
            }
            self.label_of.push(LabelMap::ByLabel(map));
        }
        Ok(())
    }

    fn offset(&mut self, parts: &[(&str, &Table)]) -> Result<(), DatasetError> {
        let is_named = parts.iter().all(|(_, table)| table.classes.len() > 0);
        let mut next = 0_u32;
        for (name, table) in parts {
            self.label_of.push(LabelMap::Plus(next));
            for class in table.classes.iter().filter(|_| is_named) {
                self.builder.class(&format!("{name}/{class}"))?;
            }
            let highest =
                table.label.iter().max().map_or(0, |label| u64::from(*label) + 1);
            let n = highest.max(table.classes.len() as u64);
            next = u32::try_from(u64::from(next) + n).map_err(|_| TOO_MANY_LABELS)?;
        }
        Ok(())
    }

    fn records(
        &mut self,
        name: &str,
        table: &Table,
        nth: usize,
    ) -> Result<(), DatasetError> {
        let first = self.builder.n_files();
        for file in 0..table.n_files() {
            let number = FileIdx(DatasetError::count(file, "files")?);
            self.builder.file(&path::join(name, &table.file_path(number)))?;
        }
        for row in 0..table.len.len() {
            let file = DatasetError::count(first + table.file[row] as usize, "files")?;
            let extent = Extent {
                file: FileIdx(file),
                offset: table.offset.get(row),
                len: table.len[row],
            };
            let label = table.label[row];
            let label = match &self.label_of[nth] {
                LabelMap::Plus(before) => label.checked_add(*before),
                LabelMap::ByLabel(map) => map.get(label as usize).copied(),
            };
            let label = label.ok_or(TOO_MANY_LABELS)?;
            self.builder.sample(extent, label);
            if let Some(blocks) = table.blocks_of(row) {
                let profile = self.builder.profile(blocks.profile().bytes())?;
                let mut head = table.heads.get(row).to_vec();
                name_profile(&mut head, profile);
                self.builder.head(&head)?;
            }
        }
        self.checksums.extend_from_slice(&table.checksum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::SampleId;
    use bothends_core::setting::NamesSettings as _;

    use super::*;

    fn table(classes: &[&str], labels: &[u32]) -> Table {
        let mut builder = TableBuilder::new(Encoding::Image);
        for class in classes {
            builder.class(class).unwrap();
        }
        for (n, label) in labels.iter().enumerate() {
            let file = builder.file(&format!("x/{n}.jpg")).unwrap();
            builder.sample(Extent { file, offset: 0, len: 10 + *label }, *label);
        }
        builder.whole_files();
        builder.build().unwrap()
    }

    fn labels(table: &Table) -> Vec<i64> {
        (0..table.n_samples()).map(|n| table.label(SampleId(n)).0).collect()
    }

    #[test]
    fn records_follow_each_other_below_the_names_of_their_data_sets() {
        let (a, b) =
            (table(&["cat", "dog"], &[0, 1]), table(&["dog", "cow"], &[0, 1, 0]));
        let all = Table::joined(&[("a", &a), ("b", &b)], JoinLabels::Merge).unwrap();
        assert_eq!(all.n_samples(), 5);
        let path = |n| all.file_path(all.extent(SampleId(n)).file);
        assert_eq!([path(1), path(2), path(4)], ["a/x/1.jpg", "b/x/0.jpg", "b/x/2.jpg"]);
        assert_eq!(all.file_len(SampleId(3)), Some(11), "whole files still");
        assert_eq!(all.class_names().collect::<Vec<_>>(), ["cat", "dog", "cow"]);
        assert_eq!(labels(&all), [0, 1, 1, 2, 1]);
        assert_eq!(Table::decode(&all.encode()).unwrap(), all);
    }

    #[test]
    fn labels_are_merged_kept_or_offset() {
        let (a, b) = (table(&["cat", "dog"], &[0, 1]), table(&["dog"], &[0]));
        let join = |a, b, labels| Table::joined(&[("a", a), ("b", b)], labels);
        let kept = join(&a, &b, JoinLabels::Keep).unwrap();
        assert_eq!((labels(&kept), kept.class_names().len()), (vec![0, 1, 0], 0));
        let start = table(&["cat"], &[0]);
        let same = join(&a, &start, JoinLabels::Keep).unwrap();
        assert_eq!(same.class_names().collect::<Vec<_>>(), ["cat", "dog"]);
        let apart = join(&a, &b, JoinLabels::Offset).unwrap();
        assert_eq!(labels(&apart), [0, 1, 2]);
        assert_eq!(apart.class_names().collect::<Vec<_>>(), ["a/cat", "a/dog", "b/dog"]);
        let numbered = table(&[], &[0, 7]);
        let both = join(&numbered, &numbered, JoinLabels::Merge).unwrap();
        assert_eq!(labels(&both), [0, 7, 0, 7]);
        let both = join(&numbered, &numbered, JoinLabels::Offset).unwrap();
        assert_eq!(labels(&both), [0, 7, 8, 15]);
        let error = join(&a, &numbered, JoinLabels::Merge).unwrap_err();
        let line = error.to_string();
        assert!(line.contains("`b` names no classes and others do"), "{line}");
        assert!(line.ends_with("; use keep or offset for labels"), "{line}");
        let line = error.with_names(|_| "--mix-labels");
        assert!(line.ends_with("; use keep or offset for --mix-labels"), "{line}");
        let line = error.with_names(|_| "");
        assert!(line.ends_with("; keep or offset the labels"), "{line}");
    }

    #[test]
    fn classes_of_one_name_are_not_merged_within_a_data_set() {
        let (a, b) = (table(&["cat"], &[0]), table(&["crane", "cat", "crane"], &[0, 2]));
        for parts in [[("a", &a), ("b", &b)], [("b", &b), ("a", &a)]] {
            let line = Table::joined(&parts, JoinLabels::Merge).unwrap_err().to_string();
            assert!(line.contains("`b` has two classes of one name"), "{line}");
        }
        let kept = Table::joined(&[("b", &b), ("a", &a)], JoinLabels::Keep).unwrap();
        assert_eq!(labels(&kept), [0, 2, 0]);
    }

    #[test]
    fn data_sets_that_do_not_go_together_are_named() {
        let a = table(&[], &[0]);
        let mut planes =
            TableBuilder::new(Encoding::Planar { height: 1, width: 1, channels: 1 });
        let file = planes.file("p").unwrap();
        planes.sample(Extent { file, offset: 0, len: 1 }, 0);
        let planes = planes.build().unwrap();
        let mut packed = TableBuilder::new(Encoding::Image);
        let file = packed.file("s").unwrap();
        packed.sample(Extent { file, offset: 0, len: 1 }, 0);
        packed.checksums(vec![1]);
        let packed = packed.build().unwrap();
        let line = |parts: &[(&str, &Table)]| {
            Table::joined(parts, JoinLabels::Merge).unwrap_err().to_string()
        };
        for (line, part) in [
            (line(&[]), "is missing: give at least one"),
            (line(&[("a", &a), ("a", &a)]), "`a` is there twice"),
            (line(&[("a/b", &a)]), "`a/b` cannot be the name of a data set"),
            (line(&[("..", &a)]), "`..` cannot be the name of a data set"),
            (line(&[("a b", &a)]), "`a b` cannot be the name of a data set"),
            (line(&[("a=b", &a)]), "`a=b` cannot be the name of a data set"),
            (line(&[("a,b", &a)]), "`a,b` cannot be the name of a data set"),
            (line(&[("a", &a), ("b", &planes)]), "`b` has records of a different kind"),
            (line(&[("a", &a), ("b", &packed)]), "`b` is a store and another one is not"),
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}
