//! Many short strings in one allocation: at a million files, even five bytes of overhead each would be
//! four too many.
//!
//! It does not sort, search or deduplicate. Read `table.rs` next.

use crate::error::DatasetError;

/// Strings by number, in one arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    text: String,
    /// Where each string ends in `text`; it begins where the one before ends.
    ends: Vec<u32>,
}

impl Names {
    /// Appends a string and returns its number.
    pub(crate) fn push(&mut self, name: &str) -> Result<u32, DatasetError> {
        let number = DatasetError::count(self.ends.len(), "names")?;
        let end = DatasetError::count(self.text.len() + name.len(), "bytes of names")?;
        self.text.push_str(name);
        self.ends.push(end);
        Ok(number)
    }

    /// The string of that number, or `""` beyond the last.
    pub(crate) fn get(&self, number: usize) -> &str {
        let Some(&end) = self.ends.get(number) else { return "" };
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..end as usize]
    }

    /// How many strings there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All strings in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Gives back memory kept for growth.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Heap memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn strings_come_back_by_number() {
        let mut names = Names::default();
        for (number, name) in (0..).zip(["", "a", "äß", "", "long name"]) {
            assert_eq!(names.push(name).unwrap(), number);
        }
        assert_eq!(names.iter().collect::<Vec<_>>(), ["", "a", "äß", "", "long name"]);
        assert_eq!(names.get(5), "", "beyond the last is empty, not a panic");
    }
}
