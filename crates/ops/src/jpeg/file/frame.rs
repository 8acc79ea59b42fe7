//! The geometry of a frame: components, their blocks and how these make up MCUs (T.81 §A).
//!
//! Numbers only. Invariants, made once in [`Frame::new`]: 1, 3 or 4 components, factors
//! 1 to 4 that divide the largest, at most 10 blocks per MCU, sides within
//! [`MAX_IMAGE_SIDE`](bothends_core::recipe::MAX_IMAGE_SIDE). Read `header.rs` next.

pub(crate) use bothends_core::blocks::Colour as ColourModel;
use bothends_core::recipe::Size;

use crate::decode::room::check_room;
use crate::error::SampleFault;
use crate::jpeg::damaged;

/// Samples along one side of a block.
pub(crate) const BLOCK: usize = 8;

/// Most blocks of an interleaved MCU (T.81 §B.2.3).
pub(crate) const MAX_MCU_BLOCKS: usize = 10;

/// How the coefficients are spread over scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    /// Each scan brings all coefficients of its components: baseline and extended.
    Sequential,
    /// Each scan brings some coefficients, or some of their bits.
    Progressive,
}

/// One component as its frame header describes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Blocks per MCU, across and down.
    pub(crate) h: usize,
    pub(crate) v: usize,
    /// Slot of its quantisation table.
    pub(crate) table: usize,
}

/// A frame.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) size: Size,
    pub(crate) process: Process,
    pub(crate) model: ColourModel,
    components: [Component; 4],
    n_components: usize,
    /// Largest factors of all components.
    pub(crate) h_max: usize,
    pub(crate) v_max: usize,
}

impl Frame {
    /// Checks what the geometry relies on.
    pub(crate) fn new(
        size: Size,
        process: Process,
        components: &[Component],
    ) -> Result<Self, SampleFault> {
        let mut own = [Component::default(); 4];
        own[..components.len()].copy_from_slice(components);
        if let [only] = components {
            // A lone component is not interleaved: its factors mean nothing (§A.2.2).
            own[0] = Component { h: 1, v: 1, ..*only };
        }
        let n_components = components.len();
        let used = &own[..n_components];
        let h_max = used.iter().map(|c| c.h).max().unwrap_or(1);
        let v_max = used.iter().map(|c| c.v).max().unwrap_or(1);
        if used.iter().any(|c| !h_max.is_multiple_of(c.h) || !v_max.is_multiple_of(c.v)) {
            return Err(damaged("its sampling factors do not divide each other"));
        }
        let frame = Self {
            size,
            process,
            model: ColourModel::Grey,
            components: own,
            n_components,
            h_max,
            v_max,
        };
        check_room(size, frame.need_bytes())?;
        Ok(frame)
    }

    /// Bytes that decoding may take at most: samples, and the coefficients of all blocks, as if
    /// they came in several scans. Of a store's record nobody knows whether they did.
    pub(crate) fn need_bytes(&self) -> u64 {
        let [across, down] = self.n_mcus().map(|n| n as u64);
        // A sample and a coefficient.
        const PER_BLOCK: u64 = (BLOCK * BLOCK * (1 + size_of::<i16>())) as u64;
        let blocks = self.components().iter().map(|c| c.h.saturating_mul(c.v) as u64);
        let blocks = blocks.fold(0, u64::saturating_add);
        let n_mcus = across.saturating_mul(down);
        n_mcus.saturating_mul(blocks).saturating_mul(PER_BLOCK)
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.n_components]
    }

    pub(crate) fn height(&self) -> usize {
        self.size.height as usize
    }

    pub(crate) fn width(&self) -> usize {
        self.size.width as usize
    }

    /// Pixels that one sample of the component covers, across and down.
    pub(crate) fn ratio(&self, component: usize) -> [usize; 2] {
        let Component { h, v, .. } = self.components[component];
        [self.h_max.div_euclid(h), self.v_max.div_euclid(v)]
    }

    /// Real columns and rows of the component's plane; the last blocks may hold more.
    pub(crate) fn plane_size(&self, component: usize) -> [usize; 2] {
        let [across, down] = self.ratio(component);
        [self.width().div_ceil(across), self.height().div_ceil(down)]
    }

    /// Interleaved MCUs, across and down.
    pub(crate) fn n_mcus(&self) -> [usize; 2] {
        let [width, height] = [self.h_max, self.v_max].map(|n| n.saturating_mul(BLOCK));
        [self.width().div_ceil(width), self.height().div_ceil(height)]
    }
}
