//! What a run may leave behind and must not: device processes and files. For `faults.rs` and
//! `kill.rs`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use bothends_tests::programs::{eventually, processes_with};

/// After this nothing of a run that has ended may be left. What ends takes no time of its own; a
/// busy machine may.
const FAREWELL: Duration = Duration::from_secs(60);

/// Device processes that `host` started and that still run.
pub(crate) fn devices_of(host: u32) -> Result<Vec<u32>> {
    let devices = processes_with("firmware-sim --preset")?;
    let is_child = |id: &u32| stat(*id).is_some_and(|(_, parent)| parent == host);
    Ok(devices.into_iter().filter(is_child).collect())
}

/// Whether a process still runs.
pub(crate) fn runs(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != 'Z')
}

/// State and parent of a process, `proc_pid_stat(5)`.
fn stat(id: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Files in `folder` whose names begin like this.
pub(crate) fn files_in(folder: &Path, prefix: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Fails unless soon none of `devices` runs and no such file is there.
pub(crate) fn assert_nothing_left(
    devices: &[u32],
    folder: &Path,
    prefix: &str,
) -> Result<()> {
    assert_nothing_left_after(FAREWELL, devices, (folder, prefix))
}

/// As [`assert_nothing_left`], with another end of patience.
pub(crate) fn assert_nothing_left_after(
    patience: Duration,
    devices: &[u32],
    (folder, prefix): (&Path, &str),
) -> Result<()> {
    let is_clean = eventually(patience, || {
        !devices.iter().any(|id| runs(*id))
            && files_in(folder, prefix).is_ok_and(|files| files.is_empty())
    });
    let left: Vec<_> = devices.iter().filter(|id| runs(**id)).collect();
    ensure!(is_clean, "left: processes {left:?}, files {:?}", files_in(folder, prefix)?);
    Ok(())
}
