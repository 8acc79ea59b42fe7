//! Which way batches go to the device, and why not a better one.
//!
//! There are three: `p2p`, a drive's bytes straight into device memory (cuFile where it is truly
//! peer to peer); `pinned`, through pinned host slots on a copy stream; and `host`, where
//! batches stay in host memory for whoever trains to copy. Every way that is not taken has one
//! line that says why, for `doctor`, `stats` and reports.
//!
//! This does not open a GPU or lock memory: it is told how that went. Of cuFile only the guard
//! is here (`path/cufile.rs`); reading through it is not built, since no machine where it is
//! peer to peer was to be had, and its compatibility mode is slower than `pinned`. The guard is
//! tested with files and a library made for the tests; that NVIDIA's library answers as it
//! is documented to is not.

mod cufile;

use std::fmt;

pub use self::cufile::{CuFile, Gds, Guard, Standing};

/// A way to the device, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// From the drive into device memory, past the host's.
    P2p,
    /// Through pinned host memory.
    Pinned,
    /// Into host memory only.
    Host,
}

impl Path {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::P2p => "p2p",
            Self::Pinned => "pinned",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The way that is live, and of each better one why it is not.
///
/// Displays as one line: `pinned (not p2p: cuFile is not peer-to-peer here)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The way that batches go.
    pub live: Path,
    /// Better ways, best first, each with a reason of one line.
    pub refused: Vec<(Path, String)>,
}

impl Report {
    /// The report, from how each step towards a better way went: `gpu`, whether a device was opened;
    /// `pinned`, whether its slots could be pinned; `p2p`, cuFile's guard, which is
    /// asked only where the other two are fine.
    pub fn of(
        gpu: Result<(), String>,
        pinned: Result<(), String>,
        p2p: impl FnOnce() -> Result<CuFile, String>,
    ) -> Self {
        let no_device = || (Path::P2p, "no GPU is open".to_owned());
        if let Err(why) = gpu {
            return Self::new(Path::Host, vec![no_device(), (Path::Pinned, why)]);
        }
        if let Err(why) = pinned {
            let p2p = "host memory cannot be pinned here".to_owned();
            return Self::new(Path::Host, vec![(Path::P2p, p2p), (Path::Pinned, why)]);
        }
        let why = match p2p() {
            Ok(CuFile { standing: Standing::PeerToPeer }) => {
                "cuFile is peer-to-peer here, and reading through it is not built yet"
                    .to_owned()
            }
            Ok(CuFile { standing: Standing::Compatible }) => {
                "cuFile is not peer-to-peer here, and slower than pinned slots".to_owned()
            }
            Err(why) => why,
        };
        Self::new(Path::Pinned, vec![(Path::P2p, why)])
    }

    fn new(live: Path, refused: Vec<(Path, String)>) -> Self {
        let one_line = |(path, why): (Path, String)| {
            (path, why.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        Self { live, refused: refused.into_iter().map(one_line).collect() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.live.fmt(f)?;
        let mut before = " (";
        for (path, why) in &self.refused {
            write!(f, "{before}not {path}: {why}")?;
            before = "; ";
        }
        if self.refused.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_better_way_has_its_reason_in_one_line() {
        let never = || -> Result<CuFile, String> { panic!("not asked") };
        let report = Report::of(Err("no\n  driver".into()), Ok(()), never);
        let line = "host (not p2p: no GPU is open; not pinned: no driver)";
        assert_eq!(report.to_string(), line);
        let report = Report::of(Ok(()), Err("the limit is 0".into()), never);
        assert_eq!((report.live, report.refused.len()), (Path::Host, 2));
        let standing = Standing::Compatible;
        let report = Report::of(Ok(()), Ok(()), || Ok(CuFile { standing }));
        assert_eq!(report.live, Path::Pinned);
        assert!(report.to_string().contains("not peer-to-peer here"), "{report}");
        let standing = Standing::PeerToPeer;
        let report = Report::of(Ok(()), Ok(()), || Ok(CuFile { standing }));
        assert_eq!(report.live, Path::Pinned, "nothing reads through cuFile");
        assert!(Path::P2p < Path::Pinned && Path::Pinned < Path::Host);
    }
}
