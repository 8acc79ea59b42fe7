//! What is undone after the pixels were read (WebP Lossless Bitstream, "Transforms").
//!
//! Pixels are numbers: alpha in the highest byte, red, green, and blue in the lowest.

const BLACK: u32 = 0xff00_0000;

/// A transform, with the width of the image that it gives.
#[derive(Debug)]
pub(super) enum Transform {
    /// Pixels are differences to a prediction; modes for squares of `1 << bits`.
    Predictor { width: usize, bits: u32, modes: Vec<u32> },
    /// Red and blue are differences to parts of other colours.
    Colour { width: usize, bits: u32, parts: Vec<u32> },
    /// Red and blue are differences to green.
    Green,
    /// Green is an index, or `1 << bits` of them.
    Palette { width: usize, bits: u32, colours: Vec<u32> },
}

impl Transform {
    /// Undoes it; `pixels` are those of the whole image.
    pub(super) fn undo(&self, pixels: &mut Vec<u32>) {
        match self {
            Self::Predictor { width, bits, modes } => {
                predict(pixels, *width, *bits, modes);
            }
            Self::Colour { width, bits, parts } => {
                let columns = width.div_ceil(1 << bits);
                for (y, row) in pixels.chunks_mut(*width).enumerate() {
                    let parts = &parts[(y >> bits) * columns..];
                    for (squares, part) in row.chunks_mut(1 << bits).zip(parts) {
                        squares.iter_mut().for_each(|it| *it = with_parts(*it, *part));
                    }
                }
            }
            Self::Green => {
                for pixel in pixels.iter_mut() {
                    let green = *pixel >> 8 & 0xff;
                    *pixel = sum(*pixel, green << 16 | green);
                }
            }
            Self::Palette { width, bits, colours } => {
                let of = |index: u32| colours.get(index as usize).copied().unwrap_or(0);
                let columns = width.div_ceil(1 << bits);
                let each = 8 >> bits;
                let mask = (1 << each) - 1;
                let mut out = Vec::with_capacity(pixels.len() / columns * width);
                for row in pixels.chunks(columns) {
                    out.extend((0..*width).map(|x| {
                        let packed = row[x >> bits] >> 8 & 0xff;
                        of(packed >> (each * (x as u32 & ((1 << bits) - 1))) & mask)
                    }));
                }
                *pixels = out;
            }
        }
    }
}

/// Adds the bytes of two pixels.
pub(super) fn sum(a: u32, b: u32) -> u32 {
    let alpha_green = (a & 0xff00_ff00).wrapping_add(b & 0xff00_ff00);
    let red_blue = (a & 0x00ff_00ff).wrapping_add(b & 0x00ff_00ff);
    (alpha_green & 0xff00_ff00) | (red_blue & 0x00ff_00ff)
}

fn with_parts(pixel: u32, parts: u32) -> u32 {
    let [blue, green, red, _] = pixel.to_le_bytes();
    let [green_to_red, green_to_blue, red_to_blue, _] = parts.to_le_bytes();
    let part = |factor: u8, colour: u8| {
        ((i32::from(factor as i8) * i32::from(colour as i8)) >> 5) as u8
    };
    let red = red.wrapping_add(part(green_to_red, green));
    let blue = blue
        .wrapping_add(part(green_to_blue, green))
        .wrapping_add(part(red_to_blue, red));
    pixel & 0xff00_ff00 | u32::from(red) << 16 | u32::from(blue)
}

fn predict(pixels: &mut [u32], width: usize, bits: u32, modes: &[u32]) {
    let columns = width.div_ceil(1 << bits);
    let mut last = BLACK;
    for pixel in pixels.iter_mut().take(width) {
        last = sum(*pixel, last);
        *pixel = last;
    }
    for y in 1..pixels.len() / width {
        let first = y * width;
        pixels[first] = sum(pixels[first], pixels[first - width]);
        let squares = (0..width).step_by(1 << bits);
        for (start, mode) in squares.zip(&modes[(y >> bits) * columns..]) {
            let mode = mode >> 8 & 15;
            let end = width.min(start + (1 << bits));
            for at in first + start.max(1)..first + end {
                // To the right of the last one lies the first of this row.
                let above = at - width;
                let near = [at - 1, above, above + 1, above - 1].map(|at| pixels[at]);
                pixels[at] = sum(pixels[at], of_mode(mode, near));
            }
        }
    }
}

fn of_mode(mode: u32, [left, above, right, corner]: [u32; 4]) -> u32 {
    match mode {
        1 => left,
        2 => above,
        3 => right,
        4 => corner,
        5 => mean(mean(left, right), above),
        6 => mean(left, corner),
        7 => mean(left, above),
        8 => mean(corner, above),
        9 => mean(above, right),
        10 => mean(mean(left, corner), mean(above, right)),
        11 => select(left, above, corner),
        12 => each([left, above, corner], |[a, b, c]| a + b - c),
        13 => {
            let both = mean(left, above);
            each([both, corner, 0], |[a, b, _]| a + (a - b) / 2)
        }
        // Also those that are not defined.
        _ => BLACK,
    }
}

/// The mean of each byte, rounded down.
fn mean(a: u32, b: u32) -> u32 {
    (((a ^ b) & 0xfefe_fefe) >> 1) + (a & b)
}

fn each(pixels: [u32; 3], of: impl Fn([i32; 3]) -> i32) -> u32 {
    let bytes = pixels.map(u32::to_le_bytes);
    u32::from_le_bytes(std::array::from_fn(|i| {
        of(bytes.map(|pixel| pixel[i].into())).clamp(0, 255) as u8
    }))
}

/// The one of `left` and `above` to which the other two predict less change.
fn select(left: u32, above: u32, corner: u32) -> u32 {
    let distance = |a: u32, b: u32| {
        let bytes = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        bytes.map(|(a, b)| u32::from(a.abs_diff(b))).sum::<u32>()
    };
    if distance(above, corner) < distance(left, corner) { left } else { above }
}
