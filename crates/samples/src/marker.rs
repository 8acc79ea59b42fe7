//! The marker file of a set. It makes a second `generate` quick, and keeps it from touching a
//! folder that is not ours.
//!
//! The first line names the set; the second, written last, states how many bytes it has. Without
//! that line, the set is unfinished.

use std::fs;
use std::io;
use std::path::Path;

use crate::{GenerateConfig, SamplesError, image_path};

const MARKER: &str = ".bothends-samples";

/// Changes whenever the same config gives different images.
const VERSION: u32 = 1;

/// The bytes of the set if it is complete: the marker says so, every file exists, and their total
/// length is the stated one.
pub(crate) fn complete_set(dir: &Path, config: &GenerateConfig) -> Option<u64> {
    let marker = fs::read_to_string(dir.join(MARKER)).ok()?;
    let (name, total) = marker.split_once('\n')?;
    let total_bytes: u64 = total.trim_end().parse().ok()?;
    let lengths = (0..config.n_images)
        .map(|image| fs::metadata(dir.join(image_path(config, image))).map(|m| m.len()));
    let found: u64 = lengths.sum::<io::Result<u64>>().ok()?;
    (name == set_name(config) && found == total_bytes).then_some(total_bytes)
}

/// Claims the folder: afterwards it is empty except for an unfinished marker. Only class folders of
/// a set that we marked are removed.
pub(crate) fn begin(dir: &Path, config: &GenerateConfig) -> Result<(), SamplesError> {
    let failed = |source| SamplesError::Write { path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    let is_ours = dir.join(MARKER).exists();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_class = name.to_string_lossy().starts_with("class-");
        if !is_ours {
            return Err(SamplesError::NotOurs { path: dir.to_owned() });
        }
        if is_class {
            fs::remove_dir_all(entry.path()).map_err(failed)?;
        }
    }
    write(dir, &format!("{}\n", set_name(config)))
}

/// Declares the set complete.
pub(crate) fn finish(
    dir: &Path,
    config: &GenerateConfig,
    total_bytes: u64,
) -> Result<(), SamplesError> {
    write(dir, &format!("{}\n{total_bytes}\n", set_name(config)))
}

fn write(dir: &Path, text: &str) -> Result<(), SamplesError> {
    let path = dir.join(MARKER);
    fs::write(&path, text).map_err(|source| SamplesError::Write { path, source })
}

fn set_name(config: &GenerateConfig) -> String {
    let GenerateConfig { n_images, n_classes, seed } = *config;
    format!(
        "samples version {VERSION}: {n_images} images in {n_classes} classes, seed {seed}"
    )
}
