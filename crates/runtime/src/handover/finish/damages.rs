//! Samples that were made in spite of damaged records: how many there are, each counted once however
//! often it is delivered, and what the first of them are called.
//!
//! They are no bad samples: no policy is applied to them, and nothing is made in their place.

use std::collections::BTreeMap;

use bothends_figures::{Damaged, DamagedSample};

/// Samples that a line names; the statistics name more.
const MOST_IN_A_LINE: usize = 3;

/// Damaged records, by their numbers in the data set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Damages {
    /// A bit for each, 64 of them by the number of the first ÷ 64: few or all of a data set take
    /// little room.
    records: BTreeMap<u64, u64>,
    /// The first that were noted, at most [`Damaged::MOST_NAMED`].
    named: BTreeMap<u64, DamagedSample>,
}

impl Damages {
    /// Whether a record has been noted.
    pub(crate) fn has(&self, record: u64) -> bool {
        let (word, bit) = place(record);
        self.records.get(&word).is_some_and(|bits| bits & bit != 0)
    }

    /// Notes a record, which `name` names where there is room for a name.
    pub(crate) fn note(&mut self, record: u64, name: impl FnOnce() -> DamagedSample) {
        let is_new = !self.has(record);
        let (word, bit) = place(record);
        *self.records.entry(word).or_default() |= bit;
        if is_new && self.named.len() < Damaged::MOST_NAMED {
            self.named.insert(record, name());
        }
    }

    /// Adds those of an epoch; which of them are new.
    pub(crate) fn add(&mut self, other: &Self) -> Self {
        let mut new = Self::default();
        for (word, bits) in &other.records {
            let known = self.records.entry(*word).or_default();
            let bits_new = bits & !*known;
            *known |= bits;
            if bits_new != 0 {
                new.records.insert(*word, bits_new);
            }
        }
        let names = other.named.iter().filter(|(record, _)| new.has(**record));
        new.named = names.map(|(record, name)| (*record, name.clone())).collect();
        for (record, name) in &new.named {
            if self.named.len() < Damaged::MOST_NAMED {
                self.named.insert(*record, name.clone());
            }
        }
        new
    }

    /// How many.
    pub(crate) fn n(&self) -> u64 {
        self.records.values().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// For statistics.
    pub(crate) fn figures(&self) -> Damaged {
        Damaged { samples: self.n(), named: self.named.values().cloned().collect() }
    }

    /// One line for the user about these of so many samples; `None` where there are none.
    pub(crate) fn line(&self, n_samples: u64, more: More) -> Option<String> {
        let n = self.n();
        let named = self.named.values().take(MOST_IN_A_LINE);
        let names = named.map(|it| format!("{} ({})", it.file, it.what));
        let mut names: Vec<String> = names.collect();
        let n_left = n.saturating_sub(u64::try_from(names.len()).unwrap_or(u64::MAX));
        if n_left > 0 {
            names.push(format!("and {} more", grouped(n_left)));
        }
        let (other, are) = match (more, n) {
            (_, 0) => return None,
            (More::First, 1) => ("", "is damaged and was"),
            (More::First, _) => ("", "are damaged and were"),
            (More::Another, 1) => ("more ", "is damaged and was"),
            (More::Another, _) => ("more ", "are damaged and were"),
        };
        let (n, n_samples, names) = (grouped(n), grouped(n_samples), names.join(", "));
        Some(format!(
            "{n} {other}of {n_samples} samples {are} decoded as Pillow decodes them: {names}"
        ))
    }
}

/// Whether a line is the first about damaged samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    First,
    Another,
}

/// Where a record's bit is.
fn place(record: u64) -> (u64, u64) {
    (record / 64, 1 << (record % 64))
}

/// With a comma between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn name(record: u64) -> DamagedSample {
        let (file, what) = (format!("{record}.jpg"), "JPEG: stray bytes".to_owned());
        DamagedSample { sample: record, file, what }
    }

    fn of(records: impl IntoIterator<Item = u64>) -> Damages {
        let mut damages = Damages::default();
        for record in records {
            damages.note(record, || name(record));
        }
        damages
    }

    proptest! {
        /// Whatever comes in whatever epoch, and however often: each record counts once.
        #[test]
        fn a_record_counts_once(epochs in proptest::collection::vec(
            proptest::collection::vec(0_u64..500, 0..60), 0..5,
        )) {
            let (mut all, mut known) = (Damages::default(), BTreeSet::new());
            for epoch in epochs {
                let epoch: Vec<u64> = epoch.into_iter().map(|it| it * it * it).collect();
                let new: BTreeSet<u64> =
                    epoch.iter().copied().filter(|it| !known.contains(it)).collect();
                let found = all.add(&of(epoch));
                prop_assert_eq!(found.n(), new.len() as u64);
                prop_assert!(found.named.keys().eq(&new));
                known.extend(new);
                let figures = all.figures();
                prop_assert_eq!(figures.samples, known.len() as u64);
                prop_assert!(figures.named.iter().map(|it| it.sample).eq(known.iter().copied()));
            }
        }
    }

    #[test]
    fn where_all_are_damaged_the_first_are_named_and_all_are_counted() {
        let all = of(0..1_281_167);
        let figures = all.figures();
        assert_eq!((figures.samples, figures.named.len()), (1_281_167, 1000));
        assert_eq!(all.records.len(), 1_281_167_usize.div_ceil(64));
        let line = all.line(1_281_167, More::First).unwrap();
        assert!(line.ends_with(", and 1,281,164 more"), "{line}");
        let mut more = all.clone();
        assert_eq!(more.add(&of(5..7)).line(9, More::Another), None);
        assert_eq!(more.add(&of([1 << 40])).n(), 1);
        assert_eq!(more.figures().named.len(), 1000);
    }

    #[test]
    fn a_line_names_the_first_and_how_many_there_are() {
        let line = |records: &[u64], more| {
            of(records.iter().copied()).line(1_281_167, more).unwrap_or_default()
        };
        assert_eq!(
            line(&[7], More::First),
            "1 of 1,281,167 samples is damaged and was decoded as Pillow decodes them: 7.jpg \
             (JPEG: stray bytes)"
        );
        let five = line(&[5, 4, 3, 2, 1], More::Another);
        assert!(
            five.starts_with("5 more of 1,281,167 samples are damaged and were"),
            "{five}"
        );
        assert!(five.ends_with("3.jpg (JPEG: stray bytes), and 2 more"), "{five}");
        assert_eq!(line(&[], More::First), "");
        assert_eq!(
            [1, 999, 1000, 1_000_000].map(grouped),
            ["1", "999", "1,000", "1,000,000"]
        );
    }
}
