//! Generated photograph-like images, for the demo and for tests without a data set.
//!
//! The images share what matters to a preprocessing pipeline with photographs: 1/f spectra, edges,
//! textures, ImageNet's sizes and bits per pixel, and the kinds of JPEG found in the wild. A network
//! learns nothing useful from them. Read `scene.rs` (what is painted), then
//! `jpeg.rs` (how it is stored) and `encode.rs` (how a JPEG is written).

mod canvas;
mod dice;
mod encode;
mod field;
mod jpeg;
mod marker;
mod scene;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use dice::Dice;
use encode::{Sampling, Scans};
use jpeg::Kind;
use scene::Frame;

/// Which images to make; equal values give equal bytes on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerateConfig {
    /// The number of images, assigned to the classes round-robin.
    pub n_images: u32,
    /// The number of class folders; at least 1.
    pub n_classes: u32,
    /// The seed of everything random.
    pub seed: u64,
}

/// What is in the folder after [`generate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Images in the folder.
    pub n_images: u32,
    /// Bytes of all images.
    pub total_bytes: u64,
    /// Images with one channel.
    pub n_grayscale: u32,
    /// Images stored as progressive JPEG.
    pub n_progressive: u32,
    /// Images with an EXIF orientation other than upright.
    pub n_rotated: u32,
    /// Images with chroma at half resolution in both directions (4:2:0).
    pub n_420: u32,
    /// Whether they already existed and nothing was written.
    pub reused: bool,
}

/// What can go wrong while making images.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplesError {
    /// Numbers from which no set can be made.
    #[error(
        "{n_images} images in {n_classes} classes cannot be made; ask for at least 1 of each"
    )]
    Empty {
        /// As requested.
        n_images: u32,
        /// As requested.
        n_classes: u32,
    },
    /// A folder with other files in it: generated images must not be mixed with a data set.
    #[error("{path} holds files that were not generated; choose an empty folder")]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder cannot be written.
    #[error(
        "cannot write {path}; choose a folder with enough room that you may write to"
    )]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread to make images; raise the limit on processes")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
}

/// Makes the images as `class-000/000.jpg`, … under `dir`, on every core of the machine, and calls
/// `progress(done, total)` on the calling thread. If the folder already has this exact set
/// (according to its marker file), nothing is written; a set with another config is replaced. Blocks
/// until everything is written.
///
/// # Errors
/// [`SamplesError`]. The folder then has an unfinished set, which the next call replaces.
pub fn generate(
    dir: &Path,
    config: &GenerateConfig,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Summary, SamplesError> {
    let GenerateConfig { n_images, n_classes, .. } = *config;
    if n_images == 0 || n_classes == 0 {
        return Err(SamplesError::Empty { n_images, n_classes });
    }
    if let Some(total_bytes) = marker::complete_set(dir, config) {
        progress(n_images, n_images);
        return Ok(Summary { reused: true, ..summary(n_images, total_bytes) });
    }
    marker::begin(dir, config)?;
    for class in 0..n_classes.min(n_images) {
        let folder = dir.join(class_folder(class));
        fs::create_dir_all(&folder)
            .map_err(|source| SamplesError::Write { path: folder, source })?;
    }
    let total_bytes = make_all(dir, config, progress)?;
    marker::finish(dir, config, total_bytes)?;
    Ok(summary(n_images, total_bytes))
}

/// Makes all images, several at once; returns the sum of their bytes.
fn make_all(
    dir: &Path,
    config: &GenerateConfig,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<u64, SamplesError> {
    let n_threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    // Hands out image numbers. Relaxed, because the results are sent through a channel.
    let next = AtomicU32::new(0);
    thread::scope(|scope| {
        let (made, results) = mpsc::sync_channel(n_threads * 2);
        for thread_idx in 0..n_threads {
            let (made, next) = (made.clone(), &next);
            let work = move || {
                loop {
                    let image = next.fetch_add(1, Ordering::Relaxed);
                    // The channel is closed: the caller has returned with an error.
                    if image >= config.n_images
                        || made.send(make(dir, config, image)).is_err()
                    {
                        break;
                    }
                }
            };
            thread::Builder::new()
                .name(format!("samples-{thread_idx}"))
                .spawn_scoped(scope, work)
                .map_err(|source| SamplesError::Thread { source })?;
        }
        drop(made);
        let (mut total_bytes, mut n_done) = (0, 0);
        for n_bytes in results {
            total_bytes += n_bytes?;
            n_done += 1;
            progress(n_done, config.n_images);
        }
        Ok(total_bytes)
    })
}

/// Makes one image; returns its bytes.
fn make(dir: &Path, config: &GenerateConfig, image: u32) -> Result<u64, SamplesError> {
    let path = dir.join(image_path(config, image));
    let mut dice = Dice::new(config.seed, image);
    let (frame, target_bytes) = jpeg::frame(&mut dice);
    let rgb = photograph(frame, &mut dice);
    let jpeg = jpeg::encode(&rgb, frame.width, Kind::of(image), target_bytes);
    fs::write(&path, &jpeg).map_err(|source| SamplesError::Write { path, source })?;
    Ok(jpeg.len() as u64)
}

/// Paints a scene and photographs it; RGB bytes.
fn photograph(frame: Frame, dice: &mut Dice) -> Vec<u8> {
    let canvas = scene::paint(frame, &mut dice.fork());
    let grain = 0.006 + 0.048 * frame.detail;
    canvas.photograph(grain, &mut dice.fork())
}

/// The path of an image in the set's folder; images are assigned to the classes round-robin.
fn image_path(config: &GenerateConfig, image: u32) -> PathBuf {
    let (class, place) = (image % config.n_classes, image / config.n_classes);
    PathBuf::from(class_folder(class)).join(format!("{place:03}.jpg"))
}

fn class_folder(class: u32) -> String {
    format!("class-{class:03}")
}

/// A summary of a newly made set.
fn summary(n_images: u32, total_bytes: u64) -> Summary {
    let count = |is: fn(Kind) -> bool| {
        let n = (0..n_images).filter(|&image| is(Kind::of(image))).count();
        u32::try_from(n).unwrap_or(n_images)
    };
    Summary {
        n_images,
        total_bytes,
        n_grayscale: count(|kind| kind.sampling == Sampling::Grayscale),
        n_progressive: count(|kind| kind.scans == Scans::Progressive),
        n_rotated: count(|kind| kind.orientation.is_some()),
        n_420: count(|kind| kind.sampling == Sampling::Half),
        reused: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SMALL: GenerateConfig = GenerateConfig { n_images: 50, n_classes: 4, seed: 7 };

    fn quiet(dir: &Path, config: &GenerateConfig) -> Result<Summary, SamplesError> {
        generate(dir, config, &mut |_, _| {})
    }

    /// Every file below `dir` except the marker, by relative path.
    fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let folders = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        for folder in folders.filter(|path| path.is_dir()) {
            for file in fs::read_dir(folder).unwrap() {
                let path = file.unwrap().path();
                let name = path.strip_prefix(dir).unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
        found
    }

    #[test]
    fn a_set_depends_on_its_config_alone() {
        let [first, second, other] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let config = GenerateConfig { n_images: 14, ..SMALL };
        let summary = quiet(first.path(), &config).unwrap();
        assert_eq!(quiet(second.path(), &config).unwrap(), summary);
        quiet(other.path(), &GenerateConfig { seed: 8, ..config }).unwrap();
        let set = files(first.path());
        assert_eq!(set, files(second.path()));
        assert_ne!(set, files(other.path()));
        assert_eq!(set.len(), 14);
        assert!(set.contains_key(Path::new("class-001/003.jpg")));
        assert_eq!(
            summary.total_bytes,
            set.values().map(|f| f.len() as u64).sum::<u64>()
        );
    }

    #[test]
    fn the_files_are_the_kinds_the_summary_tells() {
        let dir = tempfile::tempdir().unwrap();
        let summary = quiet(dir.path(), &SMALL).unwrap();
        let set = files(dir.path());
        let frames: Vec<_> = set.values().map(|jpeg| frame_header(jpeg)).collect();
        let count = |is: fn(&(u8, Vec<u8>)) -> bool| {
            u32::try_from(frames.iter().filter(|frame| is(frame)).count()).unwrap()
        };
        assert_eq!(count(|(marker, _)| *marker == 0xC2), summary.n_progressive);
        assert_eq!(count(|(_, factors)| factors[..] == [0x11]), summary.n_grayscale);
        assert_eq!(
            count(|(_, factors)| factors[..] == [0x22, 0x11, 0x11]),
            summary.n_420
        );
        let rotated = set.values().filter(|jpeg| jpeg[6..12] == *b"Exif\0\0").count();
        assert_eq!(rotated, summary.n_rotated as usize);
        for kind in [summary.n_progressive, summary.n_grayscale, summary.n_rotated] {
            assert!(kind > 0, "{summary:?}");
        }
    }

    /// The marker of a JPEG's frame (0xC0 baseline, 0xC2 progressive) and the sampling factors
    /// of its components (T.81 B.2.2).
    fn frame_header(jpeg: &[u8]) -> (u8, Vec<u8>) {
        let mut at = 2;
        while !matches!(jpeg[at + 1], 0xC0 | 0xC2) {
            at += 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        }
        let components = jpeg[at + 10..].chunks(3).take(jpeg[at + 9].into());
        (jpeg[at + 1], components.map(|component| component[1]).collect())
    }

    #[test]
    fn the_mean_file_is_as_large_as_imagenets() {
        let dir = tempfile::tempdir().unwrap();
        let config = GenerateConfig { n_images: 90, ..SMALL };
        let mean = quiet(dir.path(), &config).unwrap().total_bytes / 90;
        assert!((95_000..125_000).contains(&mean), "{mean} bytes");
    }

    #[test]
    fn a_set_that_is_there_is_used_and_a_damaged_one_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = GenerateConfig { n_images: 3, ..SMALL };
        let first = quiet(dir.path(), &config).unwrap();
        let set = files(dir.path());
        let mut told = Vec::new();
        let again =
            generate(dir.path(), &config, &mut |done, total| told.push((done, total)));
        assert_eq!(again.unwrap(), Summary { reused: true, ..first });
        assert_eq!(told, [(3, 3)]);
        fs::write(dir.path().join("class-001/000.jpg"), b"torn").unwrap();
        assert!(!quiet(dir.path(), &config).unwrap().reused);
        assert_eq!(files(dir.path()), set);
    }

    #[test]
    fn a_set_of_another_config_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        quiet(dir.path(), &GenerateConfig { n_images: 9, ..SMALL }).unwrap();
        quiet(dir.path(), &GenerateConfig { n_images: 2, ..SMALL }).unwrap();
        assert_eq!(files(dir.path()).len(), 2);
    }

    #[test]
    fn a_folder_of_somebody_elses_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("class-cat");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("cat.jpg"), b"a cat").unwrap();
        let error = quiet(dir.path(), &SMALL).unwrap_err();
        assert!(matches!(error, SamplesError::NotOurs { .. }), "{error}");
        assert_eq!(files(dir.path()).len(), 1);
    }

    #[test]
    fn bad_wishes_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        for config in [
            GenerateConfig { n_images: 0, ..SMALL },
            GenerateConfig { n_classes: 0, ..SMALL },
        ] {
            let error = quiet(dir.path(), &config).unwrap_err();
            assert!(matches!(error, SamplesError::Empty { .. }), "{error}");
        }
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = quiet(&file, &SMALL).unwrap_err();
        assert!(matches!(error, SamplesError::Write { .. }), "{error}");
    }

    /// Mean squared difference of green values `step` pixels apart, 500 pixels a row.
    fn variation(rgb: &[u8], step: usize) -> f64 {
        let rows = rgb.chunks_exact(500 * 3);
        let differences = rows.flat_map(|row| {
            let green: Vec<f64> =
                row.chunks_exact(3).map(|pixel| f64::from(pixel[1])).collect();
            (step..500)
                .map(move |x| (green[x] - green[x - step]).powi(2))
                .collect::<Vec<_>>()
        });
        differences.sum::<f64>() / (rgb.len() / 3 / 500 * (500 - step)) as f64
    }

    /// Over 200 ImageNet images the median of variation(32) / variation(8) is 2.0, of
    /// variation(4) / variation(1) 3.3: a power spectrum of about f^-2.4. White noise has
    /// 1 and 1, a ramp 16 and 16.
    #[test]
    fn the_pictures_have_the_spectrum_of_photographs() {
        let (mut coarse, mut fine) = (Vec::new(), Vec::new());
        for image in 0..41 {
            let mut dice = Dice::new(5, image);
            let detail = dice.unit();
            let frame = Frame { width: 500, height: 120, detail };
            let rgb = photograph(frame, &mut dice);
            coarse.push(variation(&rgb, 32) / variation(&rgb, 8));
            fine.push(variation(&rgb, 4) / variation(&rgb, 1));
        }
        coarse.sort_by(f64::total_cmp);
        fine.sort_by(f64::total_cmp);
        assert!((1.6..2.6).contains(&coarse[20]), "{coarse:?}");
        assert!((2.3..4.5).contains(&fine[20]), "{fine:?}");
    }

    /// The digest (FNV-1a) of files that libjpeg-turbo 3.1.0 encoded, before this crate had its own
    /// encoder. If this or the next test fails on purpose, raise `marker::VERSION`, or existing
    /// folders would be mistaken for the new set.
    #[test]
    fn the_files_are_the_same_on_every_machine() {
        let dir = tempfile::tempdir().unwrap();
        quiet(dir.path(), &GenerateConfig { n_images: 24, ..SMALL }).unwrap();
        let sum = files(dir.path())
            .values()
            .flatten()
            .fold(0xCBF2_9CE4_8422_2325_u64, |sum, &byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
            });
        assert_eq!(sum, 0xBCFA_F36C_0BF7_F44B, "{sum:#x}");
    }

    #[test]
    fn the_pixels_are_the_same_on_every_machine() {
        let frame = Frame { width: 64, height: 48, detail: 0.6 };
        let mut sum = 0_u64;
        for image in 0..12 {
            let mut dice = Dice::new(3, image);
            for byte in photograph(frame, &mut dice) {
                sum = sum.wrapping_mul(0x0100_0000_01B3) ^ u64::from(byte);
            }
        }
        assert_eq!(sum, 0x4E93_428F_A3D6_2B16, "{sum:#x}");
    }
}
