//! The three planes of an image, of whole macroblocks, and the RGB that libwebp makes of them.

/// A plane.
#[derive(Debug)]
pub(super) struct Plane {
    pub(super) cells: Vec<u8>,
    pub(super) stride: usize,
}

impl Plane {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { cells: vec![0; width * height], stride: width }
    }

    fn row(&self, y: usize) -> &[u8] {
        &self.cells[y * self.stride..][..self.stride]
    }
}

/// An image as it was stored.
#[derive(Debug)]
pub(in crate::decode::webp) struct Planes {
    /// Width and height.
    pub(in crate::decode::webp) sides: [usize; 2],
    pub(super) planes: [Plane; 3],
}

impl Planes {
    /// Makes RGB of row `y`. Chroma is interpolated with weights of 9, 3, 3 and 1 sixteenths, in the two steps
    /// that libwebp takes.
    pub(in crate::decode::webp) fn row(&self, y: usize, out: &mut [[u8; 3]]) {
        let [width, height] = self.sides;
        let near = y / 2;
        let most = (height - 1) / 2;
        let far = if y % 2 == 1 { (near + 1).min(most) } else { near.saturating_sub(1) };
        let [luma, cb, cr] = &self.planes;
        let [cb, cr] = [cb, cr].map(|plane| (plane.row(near), plane.row(far)));
        let pixels = out.iter_mut().zip(luma.row(y)).take(width);
        for (x, (pixel, luma)) in pixels.enumerate() {
            let [u, v] = [cb, cr].map(|rows| chroma(rows, x, width));
            *pixel = rgb(*luma, u, v);
        }
    }
}

/// The chroma of pixel `x`, from the nearer row and the other one.
#[inline]
fn chroma((near, far): (&[u8], &[u8]), x: usize, width: usize) -> i32 {
    let at = |row: &[u8], x: usize| i32::from(row[x]);
    if x == 0 || (x + 1 == width && x % 2 == 1) {
        return (3 * at(near, x / 2) + at(far, x / 2) + 2) >> 2;
    }
    // The nearer column and the other one.
    let (close, other) = if x % 2 == 1 { (x / 2, x / 2 + 1) } else { (x / 2, x / 2 - 1) };
    let [a, b] = [at(near, close), at(near, other)];
    let [c, d] = [at(far, close), at(far, other)];
    let mean = (a + b + c + d + 8 + 2 * (b + c)) >> 3;
    (mean + a) >> 1
}

/// BT.601 of the limited range, in fixed point as libwebp has it.
#[inline]
fn rgb(y: u8, u: i32, v: i32) -> [u8; 3] {
    let part = |value: i32, factor: i32| (value * factor) >> 8;
    let luma = part(y.into(), 19_077);
    [
        luma + part(v, 26_149) - 14_234,
        luma - part(u, 6_419) - part(v, 13_320) + 8_708,
        luma + part(u, 33_050) - 17_685,
    ]
    .map(|value| (value >> 6).clamp(0, 255) as u8)
}
