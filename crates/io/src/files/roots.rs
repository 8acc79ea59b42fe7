//! Where the files of a data set lie: below one folder, or, for a mix of data sets, below the folder that
//! the first part of a path names.
//!
//! It opens nothing. `files.rs` does.

use std::path::{Path, PathBuf};

/// The folders that a table's paths are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// All below one.
    One(PathBuf),
    /// `NAME/path` is `path` below the folder of that name.
    Named(Vec<(String, PathBuf)>),
}

impl Roots {
    /// The file that a table calls by this path.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        let (root, path) = self.split(path);
        root.join(path)
    }

    /// The folder of the file that a table calls by this path, and its path below that.
    #[must_use]
    pub fn split<'a>(&'a self, path: &'a str) -> (&'a Path, &'a str) {
        match self {
            Self::One(root) => (root, path),
            Self::Named(roots) => {
                let (name, rest) = path.split_once('/').unwrap_or((path, ""));
                let found = roots.iter().find(|(root, _)| root == name);
                // Below the first one there is no such file, which is what is then said.
                found.map_or((self.first(), path), |(_, root)| (root, rest))
            }
        }
    }

    /// All folders with their names, in order.
    pub fn named(&self) -> impl Iterator<Item = (Option<&str>, &Path)> {
        let (one, named) = match self {
            Self::One(root) => (Some((None, root.as_path())), &[][..]),
            Self::Named(roots) => (None, &roots[..]),
        };
        let named =
            named.iter().map(|(name, root)| (Some(name.as_str()), root.as_path()));
        one.into_iter().chain(named)
    }

    /// The only folder, or the first.
    #[must_use]
    pub fn first(&self) -> &Path {
        self.named().next().map_or(Path::new("."), |(_, root)| root)
    }
}

impl From<PathBuf> for Roots {
    fn from(root: PathBuf) -> Self {
        Self::One(root)
    }
}

impl From<&PathBuf> for Roots {
    fn from(root: &PathBuf) -> Self {
        Self::One(root.clone())
    }
}

impl From<&Path> for Roots {
    fn from(root: &Path) -> Self {
        Self::One(root.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_path_names_its_root() {
        let one = Roots::from(Path::new("/data"));
        assert_eq!(one.path("a/1.jpg"), Path::new("/data/a/1.jpg"));
        let named = |name: &str, root: &str| (name.to_owned(), PathBuf::from(root));
        let two = Roots::Named(vec![named("a", "/x"), named("b", "/y/z")]);
        assert_eq!(two.path("a/a/1.jpg"), Path::new("/x/a/1.jpg"));
        assert_eq!(two.split("b/c.tar"), (Path::new("/y/z"), "c.tar"));
        assert_eq!(two.path("c/1.jpg"), Path::new("/x/c/1.jpg"));
        assert_eq!(two.named().count(), 2);
    }
}
