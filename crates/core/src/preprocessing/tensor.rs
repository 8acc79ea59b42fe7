//! Shapes and element types: a sample at the cut (u8, rows × columns × channels), and a batch as
//! delivered.
//!
//! Nothing here converts anything; `ops::finish` does.

use serde::{Deserialize, Serialize};

/// A sample at the cut: unsigned bytes, height × width × channels, no padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleShape {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Interleaved channels.
    pub channels: u32,
}

impl SampleShape {
    /// Number of elements, which at the cut is the number of bytes.
    #[must_use]
    pub fn len(self) -> usize {
        self.height as usize * self.width as usize * self.channels as usize
    }

    /// Whether a sample of this shape has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A sample at the cut as its views, one after the other; one view where the recipe makes no
/// more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Views(Vec<SampleShape>);

impl Views {
    /// These views, in order.
    #[must_use]
    pub fn new(shapes: Vec<SampleShape>) -> Self {
        Self(shapes)
    }

    /// Number of elements of all views, which at the cut is the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|shape| shape.len()).sum()
    }

    /// Whether a sample has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every view's shape, in order.
    #[must_use]
    pub fn shapes(&self) -> &[SampleShape] {
        &self.0
    }
}

impl From<SampleShape> for Views {
    fn from(shape: SampleShape) -> Self {
        Self(vec![shape])
    }
}

/// Element type of a delivered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Unsigned bytes as they are at the cut; normalisation is left to the accelerator.
    U8,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
}

impl Dtype {
    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Order of a delivered sample's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Rows, columns, channels: the layout of the cut.
    Nhwc,
    /// Channels, rows, columns: PyTorch's layout.
    Nchw,
}

/// How a batch is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Output {
    /// Element type.
    pub dtype: Dtype,
    /// Order of dimensions.
    pub layout: Layout,
}
