//! Resampling and colour: what they mean, and that every level of this processor gives the
//! same bytes. (That `Exact` is Pillow's is in `golden.rs`.)

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pictures are formulas cut to bytes"
)]

use std::f64::consts::PI;

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::{Interpolation, Numerics, Size};
use bothends_ops::colour;
use bothends_ops::image::Image;
use bothends_ops::kernels::Level;
use bothends_ops::resample::{
    Colour, Exact, FirstPass, Mirror, Outlet, Planar, Planes, Sampling, Target,
};
use bothends_ops::resize::{Crop, Resizer};
use proptest::prelude::*;

// --- every level is the scalar one ------------------------------------------------------

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn exact_is_the_same_at_every_level(case in cases(), n_planes in 1..=4_usize) {
        let kind = (Colour::AsIs, vec![Sampling::FULL; n_planes]);
        let image = Picture::noise(case.image, &kind, case.seed);
        let expected = image.exact(Level::Scalar, &case.order, n_planes);
        for level in Level::available() {
            let same = image.exact(level, &case.order, n_planes) == expected;
            prop_assert!(same, "{} differs", level.name());
        }
    }

    #[test]
    fn planar_is_the_same_at_every_level(case in cases(), kind in kinds()) {
        let image = Picture::noise(case.image, &kind, case.seed);
        let expected = image.planar(Level::Scalar, &case.order, 3);
        for level in Level::available() {
            let same = image.planar(level, &case.order, 3) == expected;
            prop_assert!(same, "{} differs", level.name());
        }
    }

    #[test]
    fn colours_are_the_same_at_every_level(seed: u64, len in 0..300_usize, skip in 0..70_usize) {
        let noise: Vec<u8> = noise(seed).take(3 * (len + skip)).collect();
        let [y, cb, cr] = [0, 1, 2].map(|nth| &noise[nth * (len + skip)..][skip..][..len]);
        let pixels = &noise[..3 * len];
        let results = |level| {
            let [mut r, mut g, mut b] = [(); 3].map(|()| vec![0; len]);
            colour::ycc_to_rgb(level, [y, cb, cr], [&mut r, &mut g, &mut b]);
            let mut together = vec![0; 3 * len];
            colour::interleave(level, [y, cb, cr], &mut together);
            let [mut first, mut second, mut third] = [(); 3].map(|()| vec![0; len]);
            colour::deinterleave(level, pixels, [&mut first, &mut second, &mut third]);
            [r, g, b, together, first, second, third]
        };
        let expected = results(Level::Scalar);
        for level in Level::available() {
            prop_assert!(results(level) == expected, "{} differs", level.name());
        }
    }
}

/// Values that noise rarely has: the ends of the range, everywhere at once.
#[test]
fn extremes_are_the_same_at_every_level() {
    let size = Size { height: 61, width: 203 };
    let kind = (Colour::YCbCr, vec![Sampling::FULL; 3]);
    let sizes = [(40, 90), (70, 350), (61, 203), (9, 5)];
    for ((height, width), interpolation) in
        sizes.into_iter().flat_map(|size| INTERPOLATIONS.map(|kind| (size, kind)))
    {
        let mut order = Order::whole(size, Size { height, width });
        order.target.interpolation = interpolation;
        for (even, odd) in [(0, 255), (255, 0), (255, 255), (0, 0), (128, 255)] {
            let mut image = Picture::noise(size, &kind, 1);
            for (nth, byte) in image.bytes.iter_mut().flatten().enumerate() {
                *byte = if nth % 2 == 0 { even } else { odd };
            }
            let exact = image.exact(Level::Scalar, &order, 3);
            let planar = image.planar(Level::Scalar, &order, 3);
            for level in Level::available() {
                assert_eq!(image.exact(level, &order, 3), exact, "{}", level.name());
                assert_eq!(image.planar(level, &order, 3), planar, "{}", level.name());
            }
        }
    }
}

// --- what they mean ---------------------------------------------------------------------

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A window is cut out of the whole, then mirrored; both only save work.
    #[test]
    fn a_window_is_a_part_of_the_whole(case in cases(), kind in kinds()) {
        let image = Picture::noise(case.image, &kind, case.seed);
        let Order { crop, target } = case.order;
        let Target { interpolation, first, .. } = target;
        let whole = Target { interpolation, first, ..Target::whole(target.size) };
        let whole = Order { crop, target: whole };
        let part = image.planar(Level::best(), &case.order, 3);
        prop_assert_eq!(part, cut(&image.planar(Level::best(), &whole, 3), 3, &target));
        if kind.1.iter().all(|sampling| *sampling == Sampling::FULL) {
            let n = kind.1.len();
            let part = image.exact(Level::best(), &case.order, n);
            prop_assert_eq!(part, cut(&image.exact(Level::best(), &whole, n), n, &target));
        }
    }

    /// Where channels lie together pixels are chosen by another code.
    #[test]
    fn nearest_chooses_the_same_of_planes_and_of_pixels(case in cases(), n in 1..=5_usize) {
        let kind = (Colour::AsIs, vec![Sampling::FULL; n.min(4)]);
        let image = Picture::noise(case.image, &kind, case.seed);
        let Order { crop, mut target } = case.order;
        target.interpolation = Interpolation::Nearest;
        let mut together = Image::default();
        together.reshape(case.image, n as u32);
        for (i, pixel) in together.pixels_mut().chunks_exact_mut(n).enumerate() {
            let bytes = pixel.iter_mut().zip(image.bytes.iter().cycle());
            bytes.for_each(|(byte, plane)| *byte = plane[i]);
        }
        let of_planes = image.exact(Level::best(), &Order { crop, target }, n.min(4));
        for numerics in [Numerics::Exact, Numerics::Exact13, Numerics::Planar] {
            let mut of_pixels = Image::default();
            let order = Crop { part: crop, target, numerics };
            Resizer::default().crop(together.view(), &order, &mut of_pixels);
            let first = of_pixels.pixels().chunks_exact(n).map(|pixel| &pixel[..n.min(4)]);
            prop_assert!(first.eq(of_planes.chunks_exact(n.min(4))));
        }
    }

    #[test]
    fn planar_is_within_one_of_real_numbers(case in cases(), kind in kinds()) {
        let image = Picture::noise(case.image, &kind, case.seed);
        let made = image.planar(Level::best(), &case.order, 3);
        let expected = image.planar_in_f64(&case.order);
        for (&byte, value) in made.iter().zip(expected.iter().flatten()) {
            // Half a step for the byte, the rest for the sixty-fourths and for the weights:
            // of a thousand weights each is small against what rounds it.
            // A cubic has twice as many, a sinc's window of three pixels three times.
            let few = match case.order.target.interpolation {
                Interpolation::Lanczos => 2,
                Interpolation::Bicubic => 3,
                Interpolation::Bilinear | Interpolation::Hamming => 8,
                // A rounding decides which pixel is nearest, and what lies at a box's edge.
                Interpolation::Nearest | Interpolation::Box => return Ok(()),
            };
            // 0.573 is the most that was found, of a sinc.
            let far = if case.order.reduction() > few { 1.0 } else { 0.6 };
            prop_assert!((f64::from(byte) - value).abs() < far, "{byte}, not {value}");
        }
    }

    #[test]
    fn a_constant_stays_constant(case in cases(), chroma in (1..=4_u32, 1..=4_u32), value: u8) {
        let (x, y) = chroma;
        let samplings = vec![Sampling::FULL, Sampling { x, y }, Sampling::FULL];
        let mut image = Picture::noise(case.image, &(Colour::AsIs, samplings), 0);
        image.bytes.iter_mut().for_each(|plane| plane.fill(value));
        let made = image.planar(Level::best(), &case.order, 3);
        prop_assert!(made.iter().all(|&byte| byte == value), "{value}: {made:?}");
    }
}

/// Pixels come as they are, and both numerics choose the same.
#[test]
fn nearest_only_chooses() {
    let size = Size { height: 97, width: 131 };
    let kind = (Colour::AsIs, vec![Sampling::FULL; 3]);
    let image = Picture::noise(size, &kind, 9);
    for (height, width) in [(97, 131), (30, 40), (200, 300), (1, 1), (64, 524)] {
        let mut order = Order::whole(size, Size { height, width });
        order.target.interpolation = Interpolation::Nearest;
        let place = |o: u32, n_in: u32, n_out: u32| (2 * o + 1) * n_in / (2 * n_out);
        let pixel = |i: u32| {
            let (y, x) = (i / width, i % width);
            let at = place(y, 97, height) * 131 + place(x, 131, width);
            [0, 1, 2].map(|plane| image.bytes[plane][at as usize])
        };
        let expected: Vec<u8> = (0..height * width).flat_map(pixel).collect();
        for level in Level::available() {
            assert!(image.exact(level, &order, 3) == expected, "{}", level.name());
            assert!(image.planar(level, &order, 3) == expected, "{}", level.name());
        }
    }
}

/// Without a change of size `planar` is `exact`: libjpeg's colours.
#[test]
fn planar_without_resizing_is_libjpegs_colour_conversion() {
    // All pairs of Cb and Cr, with all Y along the diagonals.
    let size = Size { height: 256, width: 256 };
    let plane = |value: &dyn Fn(usize, usize) -> usize| {
        (0..1 << 16).map(|i| value(i / 256, i % 256) as u8).collect::<Vec<u8>>()
    };
    for turn in [0, 77, 200] {
        let y = plane(&|row, column| 3 * row + 5 * column + turn);
        let bytes = vec![y, plane(&|row, _| row), plane(&|_, column| column)];
        let samplings = vec![Sampling::FULL; 3];
        let image = Picture { size, colour: Colour::YCbCr, samplings, bytes };
        let all = Level::available().into_iter();
        for (level, interpolation) in
            all.flat_map(|level| INTERPOLATIONS.map(|kind| (level, kind)))
        {
            let mut order = Order::whole(size, size);
            order.target.interpolation = interpolation;
            let made = image.planar(level, &order, 3);
            let [mut r, mut g, mut b] = [(); 3].map(|()| vec![0; 1 << 16]);
            let ycc = [&image.bytes[0][..], &image.bytes[1], &image.bytes[2]];
            colour::ycc_to_rgb(level, ycc, [&mut r, &mut g, &mut b]);
            let mut expected = vec![0; 3 << 16];
            colour::interleave(level, [&r, &g, &b], &mut expected);
            assert!(made == expected, "{} differs", level.name());
        }
    }
}

#[test]
fn one_channel_becomes_three_alike() {
    let size = Size { height: 30, width: 40 };
    let image = Picture::noise(size, &(Colour::AsIs, vec![Sampling::FULL]), 5);
    let order = Order::whole(size, Size { height: 17, width: 50 });
    let threefold =
        |grey: &[u8]| grey.iter().flat_map(|&byte| [byte; 3]).collect::<Vec<u8>>();
    for level in Level::available() {
        let grey = image.exact(level, &order, 1);
        assert_eq!(image.exact(level, &order, 3), threefold(&grey));
        let grey = image.planar(level, &order, 1);
        assert_eq!(image.planar(level, &order, 3), threefold(&grey));
    }
}

/// Both numerics show the same picture. (49 dB is what photographs must have.)
#[test]
fn planar_is_close_to_exact() {
    let size = Size { height: 200, width: 260 };
    let wave = |phase: f64| {
        let value = |i: u32| {
            let (y, x) = (f64::from(i / size.width), f64::from(i % size.width));
            let wave = (x * 0.21 + phase).sin() * (y * 0.13 - phase).cos();
            (128.0 + 60.0 * wave + 8.0 * (x * y).sin()) as u8
        };
        (0..size.width * size.height).map(value).collect::<Vec<u8>>()
    };
    let bytes = vec![wave(0.3), wave(1.9), wave(4.0)];
    let [mut r, mut g, mut b] = [(); 3].map(|()| vec![0; area(size)]);
    let ycc = [&bytes[0][..], &bytes[1], &bytes[2]];
    colour::ycc_to_rgb(Level::best(), ycc, [&mut r, &mut g, &mut b]);
    let samplings = vec![Sampling::FULL; 3];
    let mut image = Picture { size, colour: Colour::YCbCr, samplings, bytes };
    let sizes = [(224, 224), (100, 130), (64, 64)];
    let filters = [Interpolation::Bilinear, Interpolation::Bicubic];
    for ((height, width), interpolation) in
        sizes.into_iter().flat_map(|size| filters.map(|kind| (size, kind)))
    {
        let mut order = Order::whole(size, Size { height, width });
        order.target.interpolation = interpolation;
        let planar = image.planar(Level::best(), &order, 3);
        let rgb = vec![r.clone(), g.clone(), b.clone()];
        let ycc = std::mem::replace(&mut image.bytes, rgb);
        let exact = image.exact(Level::best(), &order, 3);
        image.bytes = ycc;
        let square = |(&a, &b): (&u8, &u8)| f64::from(a.abs_diff(b)).powi(2);
        let squares: f64 = exact.iter().zip(&planar).map(square).sum();
        let db = 10.0 * (65_025.0 * exact.len() as f64 / squares).log10();
        assert!(db > 49.0, "{db} dB at {height} x {width}");
    }
}

#[test]
fn nothing_but_what_is_needed_is_read() {
    let crop = CropBox { top: 101, left: 33, height: 290, width: 402 };
    let window = CropBox { top: 16, left: 40, height: 224, width: 100 };
    let size_out = Size { height: 256, width: 256 };
    let mut target =
        Target { window, mirror: Mirror::Horizontal, ..Target::whole(size_out) };
    let mut bytes = vec![0; sample_len(&target, 3)];
    let mut exact = Exact::new(Level::best());
    let sample = exact.begin(crop, 3, &target, Outlet::Pixels(&mut bytes));
    // Rows 16 .. 240 of 256 from 290; columns 40 .. 140 of 256 from 402, triangles included.
    let needed = CropBox { top: 119, left: 95, height: 254, width: 159 };
    assert_eq!(sample.needed(), needed);
    let mut planar = Planar::new(Level::best());
    let samplings = [Sampling::FULL, Sampling { x: 2, y: 2 }, Sampling { x: 2, y: 1 }];
    let planes = Planes { samplings: &samplings, colour: Colour::YCbCr };
    let sample = planar.begin(planes, crop, &target, &mut bytes);
    assert_eq!(sample.needed(0), needed);
    assert_eq!(sample.needed(1), CropBox { top: 59, left: 47, height: 128, width: 80 });
    assert_eq!(sample.needed(2), CropBox { left: 47, width: 80, ..needed });
    // A cubic reaches twice as far, nearest not at all.
    target.interpolation = Interpolation::Bicubic;
    let sample = exact.begin(crop, 3, &target, Outlet::Pixels(&mut bytes));
    let needed = CropBox { top: 117, left: 93, height: 258, width: 162 };
    assert_eq!(sample.needed(), needed);
    target.interpolation = Interpolation::Nearest;
    let sample = exact.begin(crop, 3, &target, Outlet::Pixels(&mut bytes));
    let needed = CropBox { top: 119, left: 96, height: 254, width: 157 };
    assert_eq!(sample.needed(), needed);
}

// --- cases ------------------------------------------------------------------------------

#[derive(Debug, Clone)]
struct Case {
    image: Size,
    order: Order,
    seed: u64,
}

/// What is to be made of an image.
#[derive(Debug, Clone)]
struct Order {
    crop: CropBox,
    target: Target,
}

impl Order {
    /// The whole image, resized.
    fn whole(image: Size, size: Size) -> Self {
        Self { crop: crop_of(image), target: Target::whole(size) }
    }

    /// By how much it shrinks at least one side.
    fn reduction(&self) -> u32 {
        let Size { height, width } = self.target.size;
        (self.crop.height / height).max(self.crop.width / width)
    }
}

const INTERPOLATIONS: [Interpolation; 6] = [
    Interpolation::Nearest,
    Interpolation::Bilinear,
    Interpolation::Bicubic,
    Interpolation::Box,
    Interpolation::Hamming,
    Interpolation::Lanczos,
];

type Kind = (Colour, Vec<Sampling>);

/// Mostly what training has; now and then one pixel, or a reduction to next to nothing.
fn cases() -> impl Strategy<Value = Case> {
    let side = || prop_oneof![6 => 1..300_u32, 1 => 1..8_u32, 1 => 300..3000_u32];
    let out = || prop_oneof![6 => 1..260_u32, 1 => 1..8_u32];
    let how = (prop::sample::select(&INTERPOLATIONS[..]), any::<[bool; 2]>());
    (side(), side(), out(), out(), any::<[u16; 8]>(), how, any::<u64>()).prop_map(
        |(height, width, rows, columns, cuts, (interpolation, how), seed)| {
            let [mirrored, lower_first] = how;
            // The larger side of a large image meets a small one, or tests take forever.
            let width = if height > 300 { width.min(90) } else { width };
            let part = |n: u32, [a, b]: [u16; 2]| {
                // Every third case takes all.
                if a % 3 == 0 {
                    return (0, n);
                }
                let len = u32::from(b) % n + 1;
                (u32::from(a) % (n - len + 1), len)
            };
            let (top, crop_height) = part(height, [cuts[0], cuts[1]]);
            let (left, crop_width) = part(width, [cuts[2], cuts[3]]);
            let (first_row, n_rows) = part(rows, [cuts[4], cuts[5]]);
            let (first_column, n_columns) = part(columns, [cuts[6], cuts[7]]);
            let window = CropBox {
                top: first_row,
                left: first_column,
                height: n_rows,
                width: n_columns,
            };
            let target = Target {
                size: Size { height: rows, width: columns },
                window,
                mirror: if mirrored { Mirror::Horizontal } else { Mirror::No },
                interpolation,
                first: if lower_first { FirstPass::Columns } else { FirstPass::Rows },
            };
            let crop = CropBox { top, left, height: crop_height, width: crop_width };
            Case { image: Size { height, width }, order: Order { crop, target }, seed }
        },
    )
}

fn kinds() -> impl Strategy<Value = Kind> {
    let full = Sampling::FULL;
    let chroma = (1..=4_u32, 1..=4_u32).prop_map(|(x, y)| Sampling { x, y });
    prop_oneof![
        Just((Colour::AsIs, vec![full])),
        Just((Colour::AsIs, vec![full; 3])),
        Just((Colour::YCbCr, vec![full; 3])),
        chroma.prop_map(move |chroma| (Colour::YCbCr, vec![full, chroma, chroma])),
    ]
}

/// An image as planes.
struct Picture {
    size: Size,
    colour: Colour,
    samplings: Vec<Sampling>,
    bytes: Vec<Vec<u8>>,
}

impl Picture {
    fn noise(size: Size, (colour, samplings): &Kind, seed: u64) -> Self {
        let mut noise = noise(seed);
        let len = |s: &Sampling| {
            (size.width.div_ceil(s.x) * size.height.div_ceil(s.y)) as usize
        };
        let bytes =
            samplings.iter().map(|s| noise.by_ref().take(len(s)).collect()).collect();
        Self { size, colour: *colour, samplings: samplings.clone(), bytes }
    }

    fn exact(&self, level: Level, order: &Order, n_channels: usize) -> Vec<u8> {
        let n_planes = self.bytes.len();
        let mut exact = Exact::new(level);
        let mut made = |target: &Target, n_channels| {
            let mut bytes = vec![0x5a; sample_len(target, n_channels)];
            let out = Outlet::Pixels(&mut bytes);
            let mut sample = exact.begin(order.crop, n_planes, target, out);
            let needed = sample.needed();
            for y in needed.top..needed.top + needed.height {
                sample.row((0..n_planes).map(|plane| self.row(plane, needed, y)));
            }
            sample.finish();
            bytes
        };
        // Another one before it: what a resizer keeps must not show.
        made(&Target::whole(self.size), n_planes);
        made(&order.target, n_channels)
    }

    fn planar(&self, level: Level, order: &Order, n_channels: usize) -> Vec<u8> {
        let mut planar = Planar::new(level);
        let mut made = |target: &Target, at_once: usize| {
            let mut bytes = vec![0x5a; sample_len(target, n_channels)];
            let planes = Planes { samplings: &self.samplings, colour: self.colour };
            let mut sample = planar.begin(planes, order.crop, target, &mut bytes);
            let mut parts: Vec<Vec<&[u8]>> = Vec::new();
            for plane in 0..self.bytes.len() {
                let part = sample.needed(plane);
                let rows = part.top..part.top + part.height;
                parts.push(rows.map(|y| self.row(plane, part, y)).collect());
            }
            // A few rows of each plane in turn, however many planes and rows there are.
            while parts.iter().any(|rows| !rows.is_empty()) {
                for (plane, rows) in parts.iter_mut().enumerate() {
                    sample.rows(plane, rows.drain(..at_once.min(rows.len())));
                }
            }
            sample.finish();
            bytes
        };
        // Another one before it: what a resizer keeps must not show.
        made(&Target::whole(self.size), 1000);
        let all_at_once = made(&order.target, usize::MAX);
        assert_eq!(made(&order.target, 5), all_at_once);
        all_at_once
    }

    /// The definition of planar numerics without any rounding but to the range of a byte.
    fn planar_in_f64(&self, order: &Order) -> Vec<[f64; 3]> {
        let Order { crop, target } = order;
        let (mut planes, window) = (Vec::new(), target.window);
        for nth in 0..self.bytes.len() {
            let s = self.samplings[nth];
            let down = [crop.top, crop.height, s.y, target.size.height];
            let along = [crop.left, crop.width, s.x, target.size.width];
            let all = CropBox { top: 0, left: 0, ..crop_of(self.size) };
            let width = CropBox { width: all.width.div_ceil(s.x), ..all };
            let value = |y: usize, x: usize| {
                f64::from(self.row(nth, width, u32::try_from(y).unwrap())[x])
            };
            let mut plane = Vec::new();
            for y in window.top..window.top + window.height {
                let rows = weights(target.interpolation, down, y);
                for nth in 0..window.width {
                    let x = match target.mirror {
                        Mirror::No => window.left + nth,
                        Mirror::Horizontal => window.left + window.width - 1 - nth,
                    };
                    let mut sum = 0.0;
                    for &(column, weight) in &weights(target.interpolation, along, x) {
                        let terms = rows.iter().map(|&(row, w)| w * value(row, column));
                        sum += weight * terms.sum::<f64>();
                    }
                    plane.push(sum.clamp(0.0, 255.0));
                }
            }
            planes.push(plane);
        }
        let last = planes.len() - 1;
        let pixel = |i: usize| {
            let [a, b, c] = [0, 1.min(last), 2.min(last)].map(|nth| planes[nth][i]);
            let rgb = match self.colour {
                Colour::AsIs => [a, b, c],
                Colour::YCbCr => {
                    let (u, v) = (b - 128.0, c - 128.0);
                    [a + 1.402 * v, a - 0.344_136 * u - 0.714_136 * v, a + 1.772 * u]
                }
            };
            rgb.map(|value| value.clamp(0.0, 255.0))
        };
        (0..planes[0].len()).map(pixel).collect()
    }

    fn row(&self, plane: usize, part: CropBox, y: u32) -> &[u8] {
        let stride = self.size.width.div_ceil(self.samplings[plane].x);
        let first = (y * stride + part.left) as usize;
        &self.bytes[plane][first..][..part.width as usize]
    }
}

/// Inputs and weights of output `o`, of `len` pixels from `first` on with `per_input` of them to
/// to an input, stretched over `n_out` outputs.
fn weights(
    interpolation: Interpolation,
    [first, len, per_input, n_out]: [u32; 4],
    o: u32,
) -> Vec<(usize, f64)> {
    let [begin, length, per] = [first, len, per_input].map(f64::from);
    let scale = length / f64::from(n_out);
    let center = (begin + (f64::from(o) + 0.5) * scale) / per;
    let mut widening = scale.max(1.0) / per;
    if per_input > 1 {
        widening = (widening * widening + 1.0).sqrt();
    }
    let inputs = first / per_input..(first + len).div_ceil(per_input);
    let height = |i: u32| {
        let x = (f64::from(i) + 0.5 - center).abs() / widening;
        match interpolation {
            // Keys' cubic, in powers.
            Interpolation::Bicubic if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
            Interpolation::Bicubic if x < 2.0 => {
                -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0
            }
            Interpolation::Bicubic => 0.0,
            Interpolation::Nearest | Interpolation::Bilinear => (1.0 - x).max(0.0),
            Interpolation::Box => f64::from(u8::from(x <= 0.5)),
            Interpolation::Hamming if x >= 1.0 => 0.0,
            Interpolation::Hamming => sinc(x) * (0.54 + 0.46 * (x * PI).cos()),
            Interpolation::Lanczos if x >= 3.0 => 0.0,
            Interpolation::Lanczos => sinc(x) * sinc(x / 3.0),
        }
    };
    let total: f64 = inputs.clone().map(height).sum();
    let weights = inputs.map(|i| (i as usize, height(i) / total));
    weights.filter(|&(_, weight)| weight != 0.0).collect()
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// The target's part of a whole sample.
fn cut(all: &[u8], n_channels: usize, target: &Target) -> Vec<u8> {
    let stride = target.size.width as usize * n_channels;
    let CropBox { top, left, height, width } = target.window;
    let mut part = Vec::new();
    for row in all.chunks_exact(stride).skip(top as usize).take(height as usize) {
        let pixels = row[left as usize * n_channels..][..width as usize * n_channels]
            .chunks_exact(n_channels);
        match target.mirror {
            Mirror::No => part.extend(pixels.flatten()),
            Mirror::Horizontal => part.extend(pixels.rev().flatten()),
        }
    }
    part
}

fn sample_len(target: &Target, n_channels: usize) -> usize {
    let CropBox { height, width, .. } = target.window;
    (height * width) as usize * n_channels
}

fn area(size: Size) -> usize {
    (size.height * size.width) as usize
}

fn crop_of(Size { height, width }: Size) -> CropBox {
    CropBox { top: 0, left: 0, height, width }
}

fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}
