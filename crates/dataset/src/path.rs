//! Which paths a table accepts: relative, without a way up, the same on host and device.
//!
//! A device joins these to its own data root, so a manifest must not be able to name anything outside it.
//! The file system is not touched here (links are the owner's business).

/// Longest path in bytes (Linux's `PATH_MAX` less its NUL).
pub(crate) const MAX_PATH_BYTES: usize = 4095;

/// Says which rule a file's path breaks, as the end of a sentence.
pub(crate) fn check(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("is empty");
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("is longer than 4095 bytes");
    }
    if path.starts_with('/') {
        return Err("is absolute");
    }
    if path.contains('\0') {
        return Err("contains a NUL");
    }
    for part in path.split('/') {
        match part {
            ".." => return Err("leads up with `..`"),
            "." | "" => return Err("has an empty or `.` part"),
            _ => {}
        }
    }
    Ok(())
}

/// A file's folder (`""` at the root) and its own name.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// `folder` and `name` with a slash between, or `name` at the root.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { [folder, "/", name].concat() }
}

#[cfg(test)]
mod tests {
    use super::{check, join, split};

    #[test]
    fn only_paths_that_stay_below_the_root_pass() {
        for good in ["a", "a/b.jpg", "...", "a..b/c", "ä/ß", "a b"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "/a", "a//b", "a/", "./a", "a/../b", "..", "a\0b", "a/."] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check(&"a".repeat(4096)).is_err());
    }

    #[test]
    fn split_and_join_undo_each_other() {
        for path in ["a", "a/b", "a/b/c"] {
            let (folder, name) = split(path);
            assert_eq!(join(folder, name), path);
        }
    }
}
