//! Rows and columns: of an image, of the target of `resize`, and of padding around an image.
//!
//! Each accepts the forms that torchvision accepts and has one form in the canonical JSON.
//! `recipe/parse/check.rs` says which values a recipe may ask for.

use serde::{Deserialize, Serialize};

/// Longest side of an image, as of a JPEG.
pub const MAX_IMAGE_SIDE: u32 = 65_500;

/// Most pixels of an image: twice Pillow's limit for what is no decompression bomb.
pub const MAX_IMAGE_PIXELS: u32 = 178_956_970;

/// Most bytes that decoding one image may take. A constant, so that no setting of who makes a
/// sample decides whether it is a bad one.
pub const MAX_DECODE_BYTES: u64 = 1 << 30;

/// Rows and columns. In JSON `[rows, columns]`, or one number for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "[u32; 2]", from = "RawSize")]
pub struct Size {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl From<Size> for [u32; 2] {
    fn from(size: Size) -> Self {
        [size.height, size.width]
    }
}

impl Size {
    /// The middle of an image, [column, row].
    pub(crate) fn middle(self) -> [f64; 2] {
        [f64::from(self.width) * 0.5, f64::from(self.height) * 0.5]
    }

    /// Whether an image can be as large: neither empty, nor too long, nor too much in all.
    pub(crate) fn is_possible(self) -> bool {
        let Self { height, width } = self;
        let possible = 1..=MAX_IMAGE_SIDE;
        possible.contains(&height)
            && possible.contains(&width)
            && u64::from(height) * u64::from(width) <= u64::from(MAX_IMAGE_PIXELS)
    }

    /// Whether it holds no more rows and no more columns.
    pub(crate) fn fits_in(self, other: Self) -> bool {
        self.height <= other.height && self.width <= other.width
    }
}

/// An int for both sides, or [height, width].
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged, expecting = "`size` must be a whole number or [height, width]")]
enum RawSize {
    Square(u32),
    Sides([u32; 2]),
}

impl From<RawSize> for Size {
    fn from(raw: RawSize) -> Self {
        let [height, width] = match raw {
            RawSize::Square(side) => [side, side],
            RawSize::Sides(sides) => sides,
        };
        Self { height, width }
    }
}

/// The size that `resize` aims at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged, from = "RawSize")]
pub enum ResizeTo {
    /// The shorter side gets this length, the longer one follows.
    ShortSide(u32),
    /// Exactly this, whatever the proportions.
    Exactly(Size),
}

impl ResizeTo {
    /// The size an image of size `image` gets (torchvision's `_compute_resized_output_size`):
    /// with a short side, the long one is ⌊short side · long ÷ short⌋.
    #[must_use]
    pub fn apply(self, image: Size) -> Size {
        let side = match self {
            Self::ShortSide(side) => side,
            Self::Exactly(size) => return size,
        };
        let Size { height, width } = image;
        let (short, long) = (height.min(width), height.max(width));
        let scaled = u64::from(side) * u64::from(long) / u64::from(short.max(1));
        let long = u32::try_from(scaled).unwrap_or(u32::MAX);
        if width <= height {
            Size { height: long, width: side }
        } else {
            Size { height: side, width: long }
        }
    }
}

impl From<RawSize> for ResizeTo {
    fn from(raw: RawSize) -> Self {
        match raw {
            RawSize::Square(side) => Self::ShortSide(side),
            RawSize::Sides(_) => Self::Exactly(raw.into()),
        }
    }
}

/// Elements added around an image. In JSON `[left, top, right, bottom]`, `[left and right,
/// top and bottom]`, or one number for all sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "[u32; 4]", from = "RawPadding")]
pub struct Padding {
    /// Columns before the first.
    pub left: u32,
    /// Rows above the first.
    pub top: u32,
    /// Columns after the last.
    pub right: u32,
    /// Rows below the last.
    pub bottom: u32,
}

impl Padding {
    /// The size of an image with this padding.
    #[must_use]
    pub fn around(self, image: Size) -> Size {
        let Self { left, top, right, bottom } = self;
        Size {
            height: image.height.saturating_add(top).saturating_add(bottom),
            width: image.width.saturating_add(left).saturating_add(right),
        }
    }
}

/// An int for all sides, [left and right, top and bottom], or [left, top, right, bottom].
#[derive(Deserialize, Clone, Copy)]
#[serde(
    untagged,
    expecting = "`padding` must be a whole number, [left and right, top and bottom] or \
                 [left, top, right, bottom]"
)]
enum RawPadding {
    All(u32),
    Axes([u32; 2]),
    Sides([u32; 4]),
}

impl From<RawPadding> for Padding {
    fn from(raw: RawPadding) -> Self {
        let [left, top, right, bottom] = match raw {
            RawPadding::All(all) => [all; 4],
            RawPadding::Axes([x, y]) => [x, y, x, y],
            RawPadding::Sides(sides) => sides,
        };
        Self { left, top, right, bottom }
    }
}

impl From<Padding> for [u32; 4] {
    fn from(padding: Padding) -> Self {
        [padding.left, padding.top, padding.right, padding.bottom]
    }
}
