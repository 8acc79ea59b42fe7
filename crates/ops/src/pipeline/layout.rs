//! A crop of an image, laid out for hardware that decodes it elsewhere: which MCUs it needs, where its
//! planes are in them, and how each axis is resized. The GPU kernels use this.
//!
//! It is what [`super::fused`] does with a crop, up to the first coefficient; both call the same
//! functions. Images with four inks have no layout, and the host converts them. Nothing here reads a byte
//! of an image. Read `jpeg.rs` for MCUs and planes.

use std::ops::Range;

use bothends_core::blocks::Colour;
use bothends_core::recipe::Numerics;
use bothends_core::recipe::draw::CropBox;

use super::fused::{pixels, sampling};
use crate::geometry::resample::{Sampling, Stretch};
use crate::geometry::resize::Crop;
use crate::jpeg::file::frame::Frame;
use crate::jpeg::planes::McuBox;
use crate::jpeg::{Chroma, ColourModel, Region, ScanNote, Stored};

/// Most components of a picture that is laid out.
const MAX_COMPONENTS: usize = 3;

/// What a crop needs of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct CropLayout {
    /// What the components are: grey, YCbCr or RGB.
    pub colour: Colour,
    /// MCUs of the picture, across and down.
    pub n_mcus: [usize; 2],
    /// The MCUs that are decoded, across and down.
    pub mcus: [Range<usize>; 2],
    /// In exact numerics, the part of the picture, in pixels, whose rows are resized.
    pub part: CropBox,
    components: [Option<ComponentLayout>; MAX_COMPONENTS],
}

/// What a crop needs of one component.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentLayout {
    /// Blocks of an MCU, across and down.
    pub blocks: [usize; 2],
    /// Pixels that a sample covers, across and down.
    pub ratio: [usize; 2],
    /// Columns and rows of the whole plane.
    pub size: [usize; 2],
    /// The sample that the stretches' inputs count from: column and row.
    pub first: [usize; 2],
    /// How it is resized, across and down: in exact numerics at the picture's resolution, and
    /// then of every component the same.
    pub stretches: [Stretch; 2],
}

impl CropLayout {
    /// Of a record of blocks; `None` of one in four inks.
    ///
    /// # Panics
    /// When the crop or the target's window is empty.
    #[must_use]
    pub fn of_stored(stored: &Stored<'_>, crop: &Crop) -> Option<Self> {
        Self::new(&stored.frame, crop)
    }

    /// Of a JPEG that its note describes; `None` as above.
    ///
    /// # Panics
    /// As above.
    #[must_use]
    pub fn of_note(note: &ScanNote<'_>, crop: &Crop) -> Option<Self> {
        Self::new(note.frame(), crop)
    }

    fn new(frame: &Frame, crop: &Crop) -> Option<Self> {
        if matches!(frame.model, ColourModel::Cmyk | ColourModel::Ycck) {
            return None;
        }
        let mut components = [const { None }; MAX_COMPONENTS];
        let mut region: Option<Region> = None;
        for (nth, component) in frame.components().iter().enumerate() {
            let ratio = frame.ratio(nth);
            let sampling = match crop.numerics {
                Numerics::Exact | Numerics::Exact13 => Sampling::FULL,
                Numerics::Planar => sampling(ratio),
            };
            let [down, along] = crop.target.stretches(crop.part, sampling);
            let first = [crop.part.left / sampling.x, crop.part.top / sampling.y];
            let needed = pixels(sampling, needed(first, [&along, &down]));
            match &mut region {
                Some(region) => region.include(&needed),
                None => region = Some(needed),
            }
            components[nth] = Some(ComponentLayout {
                blocks: [component.h, component.v],
                ratio,
                size: frame.plane_size(nth),
                first: first.map(|n| n as usize),
                stretches: [along, down],
            });
        }
        let chroma = match crop.numerics {
            Numerics::Exact | Numerics::Exact13 => Chroma::Upsampled,
            Numerics::Planar => Chroma::AsStored,
        };
        let McuBox { across, down } = McuBox::of(frame, &region?, chroma);
        Some(Self {
            colour: frame.model,
            n_mcus: frame.n_mcus(),
            mcus: [across, down],
            part: crop.part,
            components,
        })
    }

    /// The components, in the frame's order.
    pub fn components(&self) -> impl Iterator<Item = &ComponentLayout> {
        self.components.iter().flatten()
    }
}

/// The samples that two stretches need, which count from `first`.
fn needed([left, top]: [u32; 2], [along, down]: [&Stretch; 2]) -> CropBox {
    let (columns, rows) = (along.needed(), down.needed());
    CropBox {
        top: top + rows.start,
        left: left + columns.start,
        height: rows.end - rows.start,
        width: columns.end - columns.start,
    }
}
