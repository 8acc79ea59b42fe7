//! The head of a lossy image (RFC 6386 §9): partitions, quantizers, the filter, and probabilities.

use super::bools::Bools;
use super::tables::{DEFAULTS, FIRST_STEPS, OTHER_STEPS, Probabilities, UPDATES};
use crate::decode::bytes::u16_le;

const SHORT: &str = "its partitions are cut short";

/// Steps of the first and the other coefficients.
pub(super) type Steps = [i32; 2];

/// Steps of a segment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quantizer {
    pub(super) luma: Steps,
    /// Those of the block of first coefficients.
    pub(super) second: Steps,
    pub(super) chroma: Steps,
}

/// How edges are filtered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Strength {
    /// 0 where nothing is filtered.
    pub(super) limit: i32,
    pub(super) inner_limit: i32,
    pub(super) variance: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    None,
    Simple,
    Normal,
}

/// What is said of all macroblocks, and the partitions with what is said of each.
#[derive(Debug)]
pub(super) struct Head<'a> {
    /// Width and height.
    pub(super) sides: [usize; 2],
    pub(super) modes: Bools<'a>,
    pub(super) tokens: Vec<Bools<'a>>,
    /// Probabilities of a macroblock's segment, if each names its own.
    pub(super) segment_of: Option<[u8; 3]>,
    pub(super) quantizers: [Quantizer; 4],
    pub(super) filter: Filter,
    /// By segment, and whether luma is predicted in small blocks.
    pub(super) strengths: [[Strength; 2]; 4],
    pub(super) probabilities: Box<Probabilities>,
    /// Probability that a macroblock has coefficients, if some have none.
    pub(super) skip: Option<u8>,
}

/// What the values of segments are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// There are no segments.
    #[default]
    None,
    /// They stand in place of those of the frame.
    Own,
    /// They are added to those of the frame.
    Added,
}

#[derive(Debug, Default)]
struct Segments {
    values: Values,
    segment_of: Option<[u8; 3]>,
    quantizers: [i32; 4],
    levels: [i32; 4],
}

impl<'a> Head<'a> {
    /// Reads the head of the data of an image's chunk.
    pub(super) fn open(data: &'a [u8]) -> Result<Self, &'static str> {
        let [Some(width), Some(height)] = [6, 8].map(|at| u16_le(data, at)) else {
            return Err(SHORT);
        };
        let sides = [width, height].map(|side| usize::from(side & 0x3fff));
        let (tag, rest) = (u16_le(data, 0).zip(data.get(2)), data.get(10..));
        let (Some((low, high)), Some(rest)) = (tag, rest) else { return Err(SHORT) };
        let len = (u32::from(low) | u32::from(*high) << 16) >> 5;
        let (first, rest) = rest.split_at_checked(len as usize).ok_or(SHORT)?;
        let mut it = Bools::new(first);
        // The colour space and the kind of clamping: neither changes what libwebp does.
        it.number(2);
        let segments = Segments::read(&mut it);
        let (filter, strengths) = strengths(&mut it, &segments);
        let tokens = partitions(1 << it.number(2), rest)?;
        let quantizers = quantizers(&mut it, &segments);
        // Whether probabilities hold for later frames, of which there are none.
        it.flag();
        let mut probabilities = Box::new(DEFAULTS);
        let all = probabilities.as_flattened_mut().as_flattened_mut().as_flattened_mut();
        let updates = UPDATES.as_flattened().as_flattened().as_flattened();
        for (probability, update) in all.iter_mut().zip(updates) {
            if it.bit(*update) {
                *probability = byte(&mut it);
            }
        }
        let skip = it.flag().then(|| byte(&mut it));
        let segment_of = segments.segment_of;
        Ok(Self {
            sides,
            modes: it,
            tokens,
            segment_of,
            quantizers,
            filter,
            strengths,
            probabilities,
            skip,
        })
    }
}

fn byte(it: &mut Bools<'_>) -> u8 {
    u8::try_from(it.number(8)).unwrap_or(u8::MAX)
}

impl Segments {
    /// §9.3.
    fn read(it: &mut Bools<'_>) -> Self {
        let mut segments = Self::default();
        if !it.flag() {
            return segments;
        }
        segments.values = Values::Own;
        let has_map = it.flag();
        if it.flag() {
            segments.values = if it.flag() { Values::Own } else { Values::Added };
            segments.quantizers = std::array::from_fn(|_| it.optional(7));
            segments.levels = std::array::from_fn(|_| it.optional(6));
        }
        let probability = |it: &mut Bools<'_>| if it.flag() { byte(it) } else { u8::MAX };
        if has_map {
            segments.segment_of = Some(std::array::from_fn(|_| probability(it)));
        }
        segments
    }

    /// The value of a segment, from the frame's and what is said of it.
    fn value(&self, of_frame: i32, stated: i32) -> i32 {
        match self.values {
            Values::None => of_frame,
            Values::Own => stated,
            Values::Added => of_frame + stated,
        }
    }
}

/// §9.6, and what §15 makes of it.
fn strengths(it: &mut Bools<'_>, segments: &Segments) -> (Filter, [[Strength; 2]; 4]) {
    let is_simple = it.flag();
    let (level, sharpness) = (it.number(6), it.number(3));
    let (mut of_frame, mut of_small) = (0, 0);
    let has_deltas = it.flag();
    if has_deltas && it.flag() {
        let deltas: [i32; 8] = std::array::from_fn(|_| it.optional(6));
        // Those of a key frame's only reference, and of small blocks.
        (of_frame, of_small) = (deltas[0], deltas[4]);
    }
    let filter = match (level, is_simple) {
        (0, _) => Filter::None,
        (_, true) => Filter::Simple,
        (_, false) => Filter::Normal,
    };
    let of_segment = |segment: usize| {
        let level = segments.value(level, segments.levels[segment]);
        // libwebp adds all of them before it looks at the range.
        [0, of_small].map(|delta| strength(level + of_frame + delta, sharpness))
    };
    (filter, std::array::from_fn(of_segment))
}

fn strength(level: i32, sharpness: i32) -> Strength {
    let level = level.clamp(0, 63);
    if level == 0 {
        return Strength::default();
    }
    let mut inner_limit = level;
    if sharpness > 0 {
        inner_limit >>= if sharpness > 4 { 2 } else { 1 };
        inner_limit = inner_limit.min(9 - sharpness);
    }
    let inner_limit = inner_limit.max(1);
    let variance = i32::from(level >= 15) + i32::from(level >= 40);
    Strength { limit: 2 * level + inner_limit, inner_limit, variance }
}

/// §9.5: the partitions of coefficients, of which all but the last state their lengths.
fn partitions(n: usize, rest: &[u8]) -> Result<Vec<Bools<'_>>, &'static str> {
    let (lens, mut rest) = rest.split_at_checked(3 * (n - 1)).ok_or(SHORT)?;
    let mut partitions = Vec::with_capacity(n);
    for len in lens.as_chunks::<3>().0 {
        let len = u32::from_le_bytes([len[0], len[1], len[2], 0]) as usize;
        let (part, after) = rest.split_at(len.min(rest.len()));
        partitions.push(Bools::new(part));
        rest = after;
    }
    if rest.is_empty() {
        return Err(SHORT);
    }
    partitions.push(Bools::new(rest));
    Ok(partitions)
}

/// §9.6 and §14.1.
fn quantizers(it: &mut Bools<'_>, segments: &Segments) -> [Quantizer; 4] {
    let base = it.number(7);
    let [luma, second, second_other, chroma, chroma_other] =
        std::array::from_fn(|_| it.optional(4));
    let index = |at: i32, most: i32| usize::try_from(at.clamp(0, most)).unwrap_or(0);
    let first = |at: i32| FIRST_STEPS[index(at, 127)];
    let other = |at: i32| OTHER_STEPS[index(at, 127)];
    std::array::from_fn(|segment| {
        let at = segments.value(base, segments.quantizers[segment]);
        Quantizer {
            luma: [first(at + luma), other(at)],
            second: [
                first(at + second) * 2,
                (other(at + second_other) * 155 / 100).max(8),
            ],
            chroma: [FIRST_STEPS[index(at + chroma, 117)], other(at + chroma_other)],
        }
    })
}
