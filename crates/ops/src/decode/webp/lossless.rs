//! Lossless WebP (WebP Lossless Bitstream Specification), with what libwebp 1.6 makes of damaged data.
//!
//! Alpha of lossy images is coded in the same way, without the head.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "sides have 14 bits, codes 15 and colours 8; places are checked where pixels are copied"
)]

mod bits;
mod codes;
mod transforms;

use std::ops::RangeInclusive;

use self::bits::Bits;
use self::codes::Code;
use self::transforms::{Transform, sum};

const ENDS: &str = "its data end before its last pixel";
const WRONG: &str = "its codes are wrong";

/// The transform with few colours.
const PALETTE: usize = 3;
/// Bytes of codes: as many as the pixels are counted for, within these bounds. Those of an intact image
/// take a hundredth of that.
const BYTES: RangeInclusive<usize> = 16 << 20..=64 << 20;
const PIXEL_BYTES: usize = 12;

/// Decodes the data of a chunk, whose head says these sides; pixels as in `transforms.rs`.
pub(super) fn decode(data: &[u8], sides: [usize; 2]) -> Result<Vec<u32>, &'static str> {
    // The mark, the sides, whether there is alpha, and the version.
    image(data.get(5..).ok_or(ENDS)?, sides, Level::Top)
}

/// Decodes alpha, of which no pixel depends here, to see whether libwebp would.
pub(super) fn alpha(data: &[u8], sides: [usize; 2]) -> Result<(), &'static str> {
    image(data, sides, Level::Alpha).map(drop)
}

/// Decodes what follows the head.
fn image(
    data: &[u8],
    [width, height]: [usize; 2],
    mut level: Level,
) -> Result<Vec<u32>, &'static str> {
    let mut bits = Bits::new(data);
    let mut transforms: [Option<Transform>; 4] = [const { None }; 4];
    let mut order = Vec::new();
    let mut columns = width;
    while bits.flag() {
        let kind = bits.number(2) as usize;
        if transforms[kind].is_some() {
            return Err("it has a transform twice");
        }
        transforms[kind] = Some(transform(&mut bits, kind, &mut columns, height)?);
        order.push(kind);
    }
    if order != [PALETTE] {
        level = Level::Top;
    }
    let mut pixels = stream(&mut bits, [columns, height], level)?;
    for kind in order.into_iter().rev() {
        if let Some(transform) = &transforms[kind] {
            transform.undo(&mut pixels);
        }
    }
    Ok(pixels)
}

/// Reads a transform; one with few colours makes the image narrower.
fn transform(
    bits: &mut Bits<'_>,
    kind: usize,
    columns: &mut usize,
    height: usize,
) -> Result<Transform, &'static str> {
    let width = *columns;
    Ok(match kind {
        0 | 1 => {
            let n = 2 + bits.number(3);
            let sides = [width, height].map(|side| side.div_ceil(1 << n));
            let data = stream(bits, sides, Level::Below)?;
            match kind {
                0 => Transform::Predictor { width, bits: n, modes: data },
                _ => Transform::Colour { width, bits: n, parts: data },
            }
        }
        2 => Transform::Green,
        _ => {
            let n_colours = bits.number(8) as usize + 1;
            let mut colours = stream(bits, [n_colours, 1], Level::Below)?;
            for i in 1..colours.len() {
                colours[i] = sum(colours[i], colours[i - 1]);
            }
            let bits = match n_colours {
                0..=2 => 3,
                3..=4 => 2,
                5..=16 => 1,
                _ => 0,
            };
            *columns = width.div_ceil(1 << bits);
            Transform::Palette { width, bits, colours }
        }
    })
}

/// Whether an image may have different codes in different places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    /// The same, for alpha of a palette.
    Alpha,
    Below,
}

/// The codes of green with lengths and cached colours, red, blue, alpha, and distances.
type Group = [Code; 5];

/// Which codes hold where.
struct Groups {
    /// Those that some square has.
    groups: Vec<Group>,
    /// For squares of `1 << bits`; empty where all of the image has the same.
    of_squares: Vec<u16>,
    bits: u32,
    columns: usize,
}

impl Groups {
    fn read(
        bits: &mut Bits<'_>,
        [width, height]: [usize; 2],
        n_cached: usize,
        level: Level,
    ) -> Result<Self, &'static str> {
        let (mut of_squares, mut n_bits, mut columns) = (Vec::new(), 14, 1);
        if level != Level::Below && bits.flag() {
            n_bits = 2 + bits.number(3);
            columns = width.div_ceil(1 << n_bits);
            let squares =
                stream(bits, [columns, height.div_ceil(1 << n_bits)], Level::Below)?;
            of_squares = squares.iter().map(|square| (square >> 8) as u16).collect();
        }
        let n_groups = of_squares.iter().max().map_or(1, |most| usize::from(*most) + 1);
        let mut is_used = vec![of_squares.is_empty(); n_groups];
        of_squares.iter().for_each(|&group| is_used[usize::from(group)] = true);
        let most_bytes = width.saturating_mul(height).saturating_mul(PIXEL_BYTES);
        let most_bytes = most_bytes.clamp(*BYTES.start(), *BYTES.end());
        let (mut groups, mut n_bytes) = (Vec::new(), 0);
        let mut places = vec![0_u16; n_groups];
        for (is_used, place) in is_used.into_iter().zip(&mut places) {
            let alphabets = [256 + 24 + n_cached, 256, 256, 256, 40];
            let mut read = |i: usize| Code::read(bits, alphabets[i]).ok_or(WRONG);
            let group = [read(0)?, read(1)?, read(2)?, read(3)?, read(4)?];
            // One that nothing refers to must be sound, too.
            if !is_used {
                continue;
            }
            n_bytes += group.iter().map(Code::n_bytes).sum::<usize>();
            if n_bytes > most_bytes {
                return Err("its codes take too much memory");
            }
            *place = groups.len() as u16;
            groups.push(group);
        }
        of_squares.iter_mut().for_each(|group| *group = places[usize::from(*group)]);
        Ok(Self { groups, of_squares, bits: n_bits, columns })
    }

    /// Whether red, blue and alpha take no bits.
    fn are_of_green(&self) -> bool {
        self.groups.iter().all(|group| group[1..4].iter().all(Code::is_single))
    }

    fn at(&self, x: usize, y: usize) -> Option<&Group> {
        let square = (y >> self.bits) * self.columns + (x >> self.bits);
        let group = match &self.of_squares[..] {
            [] => 0,
            of_squares => *of_squares.get(square)?,
        };
        self.groups.get(usize::from(group))
    }
}

/// Colours that were seen last, by a hash of them.
struct Cache {
    colours: Vec<u32>,
    shift: u32,
    /// Pixels that are in it already.
    n_seen: usize,
}

impl Cache {
    fn insert(&mut self, colour: u32) {
        let i = colour.wrapping_mul(0x1e35_a7bd) >> self.shift;
        self.colours[i as usize] = colour;
    }

    /// Brings it up to date and looks up a colour.
    fn get(&mut self, i: usize, pixels: &[u32]) -> Option<u32> {
        for &pixel in &pixels[self.n_seen..] {
            self.insert(pixel);
        }
        self.n_seen = pixels.len();
        self.colours.get(i).copied()
    }
}

/// Reads codes and the pixels that they stand for.
fn stream(
    bits: &mut Bits<'_>,
    sides: [usize; 2],
    level: Level,
) -> Result<Vec<u32>, &'static str> {
    let mut cache = None;
    if bits.flag() {
        let n = bits.number(4);
        if !(1..=11).contains(&n) {
            return Err(WRONG);
        }
        cache = Some(Cache { colours: vec![0; 1 << n], shift: 32 - n, n_seen: 0 });
    }
    let n_cached = cache.as_ref().map_or(0, |cache| cache.colours.len());
    let groups = Groups::read(bits, sides, n_cached, level)?;
    if bits.is_past_end() {
        return Err(ENDS);
    }
    // libwebp has a way of its own for alpha of a palette, in which the last code may be cut short.
    let may_lack = level == Level::Alpha && cache.is_none() && groups.are_of_green();
    let [width, height] = sides;
    let n_pixels = width * height;
    let mut pixels: Vec<u32> = Vec::with_capacity(n_pixels);
    let mask = (1 << groups.bits) - 1;
    let (mut x, mut y) = (0, 0);
    let mut group = groups.at(0, 0).ok_or(WRONG)?;
    while pixels.len() < n_pixels {
        if x & mask == 0 {
            group = groups.at(x, y).ok_or(WRONG)?;
        }
        let [green, red, blue, alpha, distances] = group;
        let symbol = green.symbol(bits);
        let n_more = match (symbol, &mut cache) {
            (0..256, _) => {
                let red = red.symbol(bits);
                let blue = blue.symbol(bits);
                let alpha = alpha.symbol(bits);
                pixels.push((alpha << 24 | red << 16 | symbol << 8 | blue) as u32);
                1
            }
            (256..280, _) => {
                let len = prefixed(bits, symbol - 256);
                let distance = distances.symbol(bits);
                let distance = distance_of(prefixed(bits, distance), width);
                copy(&mut pixels, distance, len, n_pixels)?;
                len
            }
            (_, None) => return Err(WRONG),
            (_, Some(cache)) => {
                let pixel = cache.get(symbol - 280, &pixels).ok_or(WRONG)?;
                pixels.push(pixel);
                1
            }
        };
        if bits.is_past_end() && !(may_lack && pixels.len() == n_pixels) {
            return Err(ENDS);
        }
        x += n_more;
        while x >= width {
            (x, y) = (x - width, y + 1);
        }
        if n_more > 1 && x & mask != 0 && pixels.len() < n_pixels {
            group = groups.at(x, y).ok_or(WRONG)?;
        }
    }
    Ok(pixels)
}

/// A number from its prefix: its highest two bits, and how many follow.
fn prefixed(bits: &mut Bits<'_>, prefix: usize) -> usize {
    if prefix < 4 {
        return prefix + 1;
    }
    let n = (prefix as u32 - 2) >> 1;
    ((2 + (prefix & 1)) << n) + bits.number(n) as usize + 1
}

/// Repeats `len` pixels from `distance` before.
fn copy(
    pixels: &mut Vec<u32>,
    distance: usize,
    len: usize,
    n_pixels: usize,
) -> Result<(), &'static str> {
    let from = pixels.len().checked_sub(distance).ok_or(WRONG)?;
    if len > n_pixels - pixels.len() {
        return Err(WRONG);
    }
    if len <= distance {
        pixels.extend_from_within(from..from + len);
    } else {
        (from..from + len).for_each(|at| pixels.push(pixels[at]));
    }
    Ok(())
}

/// The distance that a code stands for: the first 120 are places near by, above and to the left.
fn distance_of(code: usize, width: usize) -> usize {
    let Some([x, y]) = NEAR.get(code - 1) else { return code - NEAR.len() };
    let distance = i64::from(*y) * width as i64 + i64::from(*x);
    usize::try_from(distance).unwrap_or(1).max(1)
}

/// How far to the left and how far above ("LZ77 Backward Reference").
#[rustfmt::skip]
const NEAR: [[i8; 2]; 120] = [
    [0, 1], [1, 0], [1, 1], [-1, 1], [0, 2], [2, 0], [1, 2], [-1, 2],
    [2, 1], [-2, 1], [2, 2], [-2, 2], [0, 3], [3, 0], [1, 3], [-1, 3],
    [3, 1], [-3, 1], [2, 3], [-2, 3], [3, 2], [-3, 2], [0, 4], [4, 0],
    [1, 4], [-1, 4], [4, 1], [-4, 1], [3, 3], [-3, 3], [2, 4], [-2, 4],
    [4, 2], [-4, 2], [0, 5], [3, 4], [-3, 4], [4, 3], [-4, 3], [5, 0],
    [1, 5], [-1, 5], [5, 1], [-5, 1], [2, 5], [-2, 5], [5, 2], [-5, 2],
    [4, 4], [-4, 4], [3, 5], [-3, 5], [5, 3], [-5, 3], [0, 6], [6, 0],
    [1, 6], [-1, 6], [6, 1], [-6, 1], [2, 6], [-2, 6], [6, 2], [-6, 2],
    [4, 5], [-4, 5], [5, 4], [-5, 4], [3, 6], [-3, 6], [6, 3], [-6, 3],
    [0, 7], [7, 0], [1, 7], [-1, 7], [5, 5], [-5, 5], [7, 1], [-7, 1],
    [4, 6], [-4, 6], [6, 4], [-6, 4], [2, 7], [-2, 7], [7, 2], [-7, 2],
    [3, 7], [-3, 7], [7, 3], [-7, 3], [5, 6], [-5, 6], [6, 5], [-6, 5],
    [8, 0], [4, 7], [-4, 7], [7, 4], [-7, 4], [8, 1], [8, 2], [6, 6],
    [-6, 6], [8, 3], [5, 7], [-5, 7], [7, 5], [-7, 5], [8, 4], [6, 7],
    [-6, 7], [7, 6], [-7, 6], [8, 5], [7, 7], [-7, 7], [8, 6], [8, 7],
];
