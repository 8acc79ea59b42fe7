//! Adjustments that depend on the distribution of a channel's values: autocontrast and equalize.
//!
//! Each channel becomes a table. If possible, an image is treated as runs whose length makes every position
//! belong to one channel; positions are then counted in parallel, and neighbours do not wait for one
//! counter. Read `sharpness.rs` next.

use super::planes;
use super::table::Table;
use crate::image::Image;
use crate::kernels::Level;
use crate::kernels::compiled::{Work, run};

/// Bytes of a run of which the ends are looked for: three vectors, of one, two, three or
/// four channels.
const WIDE: usize = 192;
/// Bytes of a run that are counted, by counters of their own.
const NARROW: usize = 12;

/// How often each value occurs.
type Counts = [u32; 256];

/// What is kept from image to image.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// For each channel the smallest and the largest value.
    ends: Vec<[u8; 2]>,
    /// For each channel, and for each place of a run.
    counts: Vec<Counts>,
    /// For each channel.
    tables: Vec<Table>,
}

impl Spread {
    /// Stretches each channel so that its smallest value becomes 0 and its largest 255:
    /// `ImageOps.autocontrast` in every bit. torchvision's tensors have f32 where this has
    /// f64, and differ by 1 where that matters.
    pub(super) fn autocontrast(&mut self, level: Level, image: &mut Image) {
        let channels = image.channels();
        let (runs, rest) = runs(image.pixels(), channels);
        let [lows, highs] = run(level, Ends(runs));
        self.ends.clear();
        self.ends.resize(channels, [u8::MAX, 0]);
        let mut widen = |place: usize, low: u8, high: u8| {
            let ends = &mut self.ends[place % channels];
            *ends = [ends[0].min(low), ends[1].max(high)];
        };
        if !runs.is_empty() {
            (0..WIDE).for_each(|place| widen(place, lows[place], highs[place]));
        }
        rest.iter().enumerate().for_each(|(place, &value)| widen(place, value, value));
        self.tables.clear();
        self.tables.extend(self.ends.iter().map(|&ends| stretching(ends)));
        self.apply(level, image);
    }

    /// Makes each channel's values occur about equally often: `ImageOps.equalize` in every
    /// bit. The same as torchvision's tensors.
    pub(super) fn equalize(&mut self, level: Level, image: &mut Image) {
        let channels = image.channels();
        let (runs, rest) = runs::<NARROW>(image.pixels(), channels);
        self.counts.clear();
        self.counts.resize(channels.max(NARROW), [0; 256]);
        if let Some(counts) = self.counts.first_chunk_mut() {
            count(runs, counts);
        }
        for (place, &value) in rest.iter().enumerate() {
            self.counts[place % channels][usize::from(value)] += 1;
        }
        let (of_channels, of_places) = self.counts.split_at_mut(channels);
        for (place, counts) in of_places.iter().enumerate() {
            for (sum, count) in of_channels[place % channels].iter_mut().zip(counts) {
                *sum += count;
            }
        }
        self.tables.clear();
        self.tables.extend(of_channels.iter().map(equalizing));
        self.apply(level, image);
    }

    /// Changes each channel by its table.
    fn apply(&self, level: Level, image: &mut Image) {
        let pixels = image.pixels_mut();
        match &self.tables[..] {
            [] => {}
            [table] => table.apply(level, pixels),
            [r, g, b] => planes::change(level, pixels, |planes| {
                for (table, plane) in [r, g, b].into_iter().zip(planes) {
                    table.apply(level, plane);
                }
            }),
            tables => {
                for pixel in pixels.chunks_exact_mut(tables.len()) {
                    for (value, table) in pixel.iter_mut().zip(tables) {
                        *value = table.get(*value);
                    }
                }
            }
        }
    }
}

/// An image as runs, and what is left over: all of it, where a run does not end with a pixel.
fn runs<const N: usize>(pixels: &[u8], channels: usize) -> (&[[u8; N]], &[u8]) {
    if N.is_multiple_of(channels) { pixels.as_chunks() } else { (&[], pixels) }
}

/// The table that stretches values from `low` to `high` over all there are. Pillow's f64.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "truncated and cut off at both ends, as it is meant"
)]
fn stretching([low, high]: [u8; 2]) -> Table {
    if high <= low {
        return Table::default();
    }
    let scale = 255.0 / f64::from(high - low);
    let offset = -f64::from(low) * scale;
    Table::new(|value| (f64::from(value) * scale + offset) as u8)
}

/// The table after which values occur about equally often. Pillow's whole numbers.
fn equalizing(counts: &Counts) -> Table {
    let last = counts.iter().rfind(|&&count| count > 0).unwrap_or(&0);
    let step = (counts.iter().sum::<u32>() - last) / 255;
    if step == 0 {
        return Table::default();
    }
    let mut below = step / 2;
    let mut next = counts.iter();
    Table::new(|_| {
        let value = u8::try_from(below / step).unwrap_or(u8::MAX);
        below += next.next().unwrap_or(&0);
        value
    })
}

/// The smallest and the largest value at each place of the runs.
struct Ends<'a>(&'a [[u8; WIDE]]);

impl Work<[[u8; WIDE]; 2]> for Ends<'_> {
    #[inline(always)]
    fn run(self) -> [[u8; WIDE]; 2] {
        let (mut lows, mut highs) = ([u8::MAX; WIDE], [0; WIDE]);
        for run in self.0 {
            for place in 0..WIDE {
                lows[place] = lows[place].min(run[place]);
                highs[place] = highs[place].max(run[place]);
            }
        }
        [lows, highs]
    }
}

/// Counts the values at each place of the runs.
fn count(runs: &[[u8; NARROW]], counts: &mut [Counts; NARROW]) {
    for run in runs {
        for (counts, &value) in counts.iter_mut().zip(run) {
            counts[usize::from(value)] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adjust::tests::image_of;

    fn stretched(channels: u32, values: &[u8]) -> Vec<u8> {
        let mut image = image_of(channels, values);
        Spread::default().autocontrast(Level::best(), &mut image);
        image.pixels().to_vec()
    }

    fn equalized(channels: u32, values: &[u8]) -> Vec<u8> {
        let mut image = image_of(channels, values);
        Spread::default().equalize(Level::best(), &mut image);
        image.pixels().to_vec()
    }

    #[test]
    fn values_are_stretched_and_truncated() {
        assert_eq!(stretched(1, &[10, 20, 30]), [0, 127, 255]);
        assert_eq!(stretched(1, &[7, 7]), [7, 7]);
    }

    #[test]
    fn the_ends_are_found_wherever_they_are() {
        for (channels, place) in (1..=7).flat_map(|c| (0..500).map(move |p| (c, p))) {
            let mut values = vec![100; 504 / channels * channels];
            let place = place.min(values.len() - 1);
            values[place] = 49;
            let mut expected = values.clone();
            // The channel of the one value is stretched, the others have nothing to stretch.
            for (at, value) in expected.iter_mut().enumerate() {
                if at % channels == place % channels {
                    *value = if at == place { 0 } else { 255 };
                }
            }
            let channels = u32::try_from(channels).unwrap();
            assert_eq!(stretched(channels, &values), expected, "{channels}, {place}");
        }
    }

    #[test]
    fn values_are_made_even() {
        let thirds = |values: [u8; 3]| values.iter().flat_map(|&v| [v; 255]).collect();
        let values: Vec<u8> = thirds([0, 10, 20]);
        // A step is 510 ÷ 255 = 2; below the three values are 1, 256 and 511 of the halves.
        let expected: Vec<u8> = thirds([0, 128, 255]);
        assert_eq!(equalized(1, &values), expected);
    }

    #[test]
    fn what_would_be_above_255_is_255() {
        let mut values = [0; 301];
        values[300] = 10;
        assert_eq!(equalized(1, &values)[300], 255);
        assert_eq!(equalized(1, &values)[..300], [0; 300]);
    }

    #[test]
    fn too_few_values_stay() {
        let values: Vec<u8> = (0..=255).step_by(3).collect();
        assert_eq!(equalized(1, &values), values);
        assert_eq!(equalized(1, &[9; 1000]), [9; 1000]);
    }

    #[test]
    fn every_channel_is_made_even_by_itself() {
        let channel = |nth: usize| -> Vec<u8> {
            let below = 40 + 29 * u8::try_from(nth).unwrap();
            (0..below).cycle().step_by(nth + 1).take(1000).collect()
        };
        for channels in 1..=7 {
            let planes: Vec<_> = (0..channels).map(channel).collect();
            let mixed = |planes: &[Vec<u8>]| -> Vec<u8> {
                (0..1000).flat_map(|i| planes.iter().map(move |p| p[i])).collect()
            };
            let apart: Vec<_> = planes.iter().map(|plane| equalized(1, plane)).collect();
            assert!(apart != planes, "nothing was done");
            let channels = u32::try_from(channels).unwrap();
            assert_eq!(equalized(channels, &mixed(&planes)), mixed(&apart), "{channels}");
        }
    }
}
