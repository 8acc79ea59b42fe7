//! A recipe that is ready to run: read, held against this device's limits, and kept for the next execution.

use bothends_core::recipe::{Recipe, RecordShape, SampleCost};
use bothends_core::sample::Encoding;
use bothends_nvme::Status;
use bothends_nvme::preprocess::{Head, Kind};
use bothends_ops::{Pipeline, Room};

/// A recipe for records of one kind.
#[derive(Debug)]
pub(crate) struct Prepared {
    json: Vec<u8>,
    hash: u128,
    kind: Kind,
    sample_bytes: u32,
    pipeline: Pipeline,
}

impl Prepared {
    /// The recipe of `head`, whose JSON is `json`.
    ///
    /// # Errors
    /// Invalid Program Data: it is not a recipe, has a different hash than the host says, makes samples of another
    /// length, or asks for more than a device does.
    pub(crate) fn new(head: &Head, json: &[u8], room: &Room) -> Result<Self, Status> {
        let text = std::str::from_utf8(json).map_err(|_| Status::PROGRAM_DATA)?;
        let recipe = Recipe::from_json(text).map_err(|_| Status::PROGRAM_DATA)?;
        let shape = shape(head);
        if matches!(shape, RecordShape::Planar { height, width, channels } if height.min(width).min(channels) == 0)
        {
            return Err(Status::PROGRAM_DATA);
        }
        let SampleCost { most_pixels, passes } = recipe.sample_cost(shape);
        if recipe.hash() != head.recipe_hash
            || most_pixels > SampleCost::MOST_PIXELS
            || passes > SampleCost::MOST_PASSES
        {
            return Err(Status::PROGRAM_DATA);
        }
        let views = recipe.views(shape).map_err(|_| Status::PROGRAM_DATA)?;
        let pipeline = Pipeline::new(&recipe, views).with_room(room);
        if pipeline.sample_bytes() != head.sample_bytes as usize {
            return Err(Status::PROGRAM_DATA);
        }
        let Head { recipe_hash: hash, kind, sample_bytes, .. } = *head;
        Ok(Self { json: json.to_vec(), hash, kind, sample_bytes, pipeline })
    }

    /// Whether it is what `head` asks for.
    pub(crate) fn is_of(&self, head: &Head, json: &[u8]) -> bool {
        self.hash == head.recipe_hash
            && self.kind == head.kind
            && self.sample_bytes == head.sample_bytes
            && self.json == json
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }
}

/// How records of a kind are to be read.
pub(crate) fn encoding(kind: Kind) -> Encoding {
    match kind {
        Kind::Image => Encoding::Image,
        Kind::Planar { channels, height, width } => {
            Encoding::Planar { channels, height, width }
        }
        Kind::Opaque => Encoding::Opaque,
    }
}

fn shape(head: &Head) -> RecordShape {
    match head.kind {
        Kind::Image => RecordShape::Image,
        Kind::Planar { channels, height, width } => {
            RecordShape::Planar { height, width, channels }
        }
        Kind::Opaque => RecordShape::Opaque { len_bytes: head.sample_bytes },
    }
}
