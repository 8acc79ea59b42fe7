//! A record of blocks: what is known about it besides its bytes.
//!
//! A store keeps the quantised coefficients of a JPEG as row groups, each 16 rows of pixels or one row
//! of MCUs. A [`Profile`] holds what many images have in common, and a [`Head`] what belongs to one
//! image. Together they say which bytes hold which rows, so one read fetches a part of an image. Their
//! layout is in `docs/store-format.md`, section 4. This file looks at neither files nor coefficients:
//! `dataset` finds records and `ops` decodes them.

use std::ops::Range;

use super::size::Size;

/// Rows and columns of a block.
const BLOCK: usize = 8;

/// Rows of pixels that a row group has, where MCUs are not higher.
const GROUP_ROWS: usize = 16;

/// Most components, and most quantisation tables.
const MAX_COMPONENTS: usize = 4;

/// Bytes before the components of a profile, of a component and of a table.
const PROFILE_BYTES: usize = 3;
const COMPONENT_BYTES: usize = 3;
const TABLE_BYTES: usize = 128;

/// Bytes of a head before its lengths.
const HEAD_BYTES: usize = 10;

/// Where a head says that lengths of block rows are wide; the bits below are the unit.
const WIDE: u16 = 1 << 15;

/// What the components of an image are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Colour {
    /// One component.
    Grey,
    /// Brightness, blueness, redness.
    YCbCr,
    /// Red, green, blue.
    Rgb,
    /// Four inks as Adobe stores them: 255 is none.
    Cmyk,
    /// YCbCr in place of the first three inks.
    Ycck,
}

impl Colour {
    const ALL: [Self; 5] = [Self::Grey, Self::YCbCr, Self::Rgb, Self::Cmyk, Self::Ycck];

    fn n_components(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::YCbCr | Self::Rgb => 3,
            Self::Cmyk | Self::Ycck => 4,
        }
    }
}

/// A component: its blocks in an MCU, and which table its coefficients were quantised with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// Blocks across, 1 to 4.
    pub h: u8,
    /// Blocks down, 1 to 4.
    pub v: u8,
    /// Number of the table.
    pub table: u8,
}

/// What many images have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile<'a> {
    /// Exactly the profile's; its fields are within their limits.
    bytes: &'a [u8],
}

impl<'a> Profile<'a> {
    /// The profile at the start of `bytes`; `None` when there is none.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let &[colour, n_components, n_tables, ..] = bytes else { return None };
        let n = usize::from(n_components);
        let colour = Colour::ALL.get(usize::from(colour))?;
        if n != colour.n_components() || !(1..=MAX_COMPONENTS).contains(&n_tables.into())
        {
            return None;
        }
        let components = PROFILE_BYTES + n * COMPONENT_BYTES;
        let len = components + usize::from(n_tables) * TABLE_BYTES;
        let profile = Self { bytes: bytes.get(..len)? };
        let is_known = |c: Component| {
            let side = 1..=4;
            side.contains(&c.h) && side.contains(&c.v) && c.table < n_tables
        };
        let [h, v] = profile.most();
        let divides =
            |c: Component| h % usize::from(c.h) == 0 && v % usize::from(c.v) == 0;
        let is_lone = |c: Component| n > 1 || (c.h, c.v) == (1, 1);
        let mut all = profile.components();
        all.all(|c| is_known(c) && divides(c) && is_lone(c)).then_some(profile)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// What the components are.
    #[must_use]
    pub fn colour(self) -> Colour {
        Colour::ALL[usize::from(self.bytes[0])]
    }

    /// The components, in the order in which their blocks are kept.
    pub fn components(self) -> impl ExactSizeIterator<Item = Component> + 'a {
        let n = usize::from(self.bytes[1]);
        let part = &self.bytes[PROFILE_BYTES..][..n * COMPONENT_BYTES];
        part.chunks_exact(COMPONENT_BYTES).map(|c| Component {
            h: c[0],
            v: c[1],
            table: c[2],
        })
    }

    /// The steps of a quantisation table, row by row.
    ///
    /// # Panics
    /// When no component of this profile has that table.
    #[must_use]
    pub fn steps(self, table: u8) -> [u16; 64] {
        let components = PROFILE_BYTES + usize::from(self.bytes[1]) * COMPONENT_BYTES;
        let at = components + usize::from(table) * TABLE_BYTES;
        let table = &self.bytes[at..at + TABLE_BYTES];
        std::array::from_fn(|k| u16::from_le_bytes([table[2 * k], table[2 * k + 1]]))
    }

    /// MCUs across and down of an image of `size`.
    #[must_use]
    pub fn n_mcus(self, size: Size) -> [usize; 2] {
        let [h, v] = self.most();
        [
            (size.width as usize).div_ceil(BLOCK * h),
            (size.height as usize).div_ceil(BLOCK * v),
        ]
    }

    /// Rows of MCUs in a row group; the last may have fewer.
    #[must_use]
    pub fn group_mcus(self) -> usize {
        let [_, v] = self.most();
        GROUP_ROWS.div_ceil(BLOCK * v)
    }

    /// Largest factors across and down.
    fn most(self) -> [usize; 2] {
        let most = |factor: fn(Component) -> u8| {
            self.components().map(factor).max().map_or(1, usize::from)
        };
        [most(|c| c.h), most(|c| c.v)]
    }
}

/// Appends a profile to `out`.
///
/// # Panics
/// When it is none: a wrong number of components or tables.
pub fn write_profile(
    colour: Colour,
    components: &[Component],
    tables: &[[u16; 64]],
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let byte = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
    out.extend([colour as u8, byte(components.len()), byte(tables.len())]);
    out.extend(components.iter().flat_map(|c| [c.h, c.v, c.table]));
    out.extend(tables.iter().flatten().flat_map(|step| step.to_le_bytes()));
    assert!(Profile::read(&out[start..]).is_some(), "a profile");
}

/// What one image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// Rows and columns of the image.
    pub size: Size,
    /// Where its profile begins among the profiles.
    pub profile: u32,
    /// How lengths of block rows are kept.
    pub row_lengths: RowLengths,
    /// Bytes that lengths are counted in.
    unit: u16,
    lengths: &'a [u8],
}

/// How the lengths of block rows are kept in a row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLengths {
    /// As u16.
    Narrow,
    /// As u32.
    Wide,
}

impl RowLengths {
    /// Bytes of one length.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Narrow => 2,
            Self::Wide => 4,
        }
    }
}

impl<'a> Head<'a> {
    /// Reads a head, which is all of `bytes`; `None` when it is none.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, lengths) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let &[h0, h1, w0, w1, p0, p1, p2, p3, u0, u1] = fixed;
        let unit = u16::from_le_bytes([u0, u1]);
        let row_lengths =
            if unit & WIDE == 0 { RowLengths::Narrow } else { RowLengths::Wide };
        let unit = unit & !WIDE;
        let size = Size {
            height: u16::from_le_bytes([h0, h1]).into(),
            width: u16::from_le_bytes([w0, w1]).into(),
        };
        let profile = u32::from_le_bytes([p0, p1, p2, p3]);
        let is_good = size.height > 0
            && size.width > 0
            && unit > 0
            && !lengths.is_empty()
            && !lengths.contains(&0);
        is_good.then_some(Self { size, profile, row_lengths, unit, lengths })
    }

    /// Appends it to `out`, as it was read.
    pub fn write(self, out: &mut Vec<u8>) {
        let side = |pixels: u32| u16::try_from(pixels).unwrap_or(u16::MAX).to_le_bytes();
        let wide = if self.row_lengths == RowLengths::Wide { WIDE } else { 0 };
        out.extend(side(self.size.height));
        out.extend(side(self.size.width));
        out.extend(self.profile.to_le_bytes());
        out.extend((self.unit | wide).to_le_bytes());
        out.extend(self.lengths);
    }

    /// Number of row groups.
    #[must_use]
    pub fn n_groups(self) -> usize {
        self.lengths.len()
    }

    /// Where so many groups lie among `bytes`, which begin with group `first`; `None` when they
    /// do not.
    #[must_use]
    pub fn part_of(
        self,
        bytes: &[u8],
        first: usize,
        groups: Range<usize>,
    ) -> Option<&[u8]> {
        if groups.start < first || groups.end > self.n_groups() {
            return None;
        }
        let start = self.bytes_of(0..first).end;
        let part = self.bytes_of(groups);
        let at = |offset: u64| usize::try_from(offset - start).ok();
        bytes.get(at(part.start)?..at(part.end)?)
    }

    /// Where so many groups lie, counted from the first byte of the first.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn bytes_of(self, groups: Range<usize>) -> Range<u64> {
        let sum = |lengths: &[u8]| {
            lengths.iter().map(|&len| u64::from(len)).sum::<u64>() * u64::from(self.unit)
        };
        let start = sum(&self.lengths[..groups.start]);
        start..start + sum(&self.lengths[groups])
    }

    /// Whether all groups lie in a record of that length.
    #[must_use]
    pub fn lies_in(self, len: u32) -> bool {
        self.bytes_of(0..self.n_groups()).end <= u64::from(len)
    }
}

/// Lengths of row groups, in the unit that lets the longest be counted in one byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLengths {
    unit: u16,
    lengths: Vec<u8>,
}

impl GroupLengths {
    /// For groups of `n_bytes` each, to be filled up to a multiple of
    /// [`Self::unit_bytes`]; `None` when one is longer than can be said.
    #[must_use]
    pub fn new(n_bytes: &[usize]) -> Option<Self> {
        let longest = n_bytes.iter().copied().max()?;
        let unit = u16::try_from(longest.div_ceil(255).max(1)).ok()?;
        if unit & WIDE != 0 {
            return None;
        }
        let lengths = n_bytes
            .iter()
            .map(|&len| u8::try_from(len.max(1).div_ceil(unit.into())).ok());
        Some(Self { unit, lengths: lengths.collect::<Option<_>>()? })
    }

    /// What each group's length is a multiple of, in bytes.
    #[must_use]
    pub fn unit_bytes(&self) -> usize {
        self.unit.into()
    }

    /// Writes the head of the image whose groups these are; `None` when its sides do not fit.
    #[must_use]
    pub fn head(
        &self,
        size: Size,
        profile: u32,
        row_lengths: RowLengths,
    ) -> Option<Vec<u8>> {
        let side = |pixels: u32| u16::try_from(pixels).ok().map(u16::to_le_bytes);
        let mut head = Vec::with_capacity(HEAD_BYTES + self.lengths.len());
        head.extend(side(size.height)?);
        head.extend(side(size.width)?);
        head.extend(profile.to_le_bytes());
        let wide = if row_lengths == RowLengths::Wide { WIDE } else { 0 };
        head.extend((self.unit | wide).to_le_bytes());
        head.extend(&self.lengths);
        Some(head)
    }
}

/// What is known of a record of blocks: profile and head that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks<'a> {
    profile: Profile<'a>,
    head: Head<'a>,
}

impl<'a> Blocks<'a> {
    /// `None` when the head has a different number of row groups than such an image.
    #[must_use]
    pub fn new(profile: Profile<'a>, head: Head<'a>) -> Option<Self> {
        let [_, down] = profile.n_mcus(head.size);
        let n_groups = down.div_ceil(profile.group_mcus());
        (head.n_groups() == n_groups).then_some(Self { profile, head })
    }

    /// What it has in common with others.
    #[must_use]
    pub fn profile(self) -> Profile<'a> {
        self.profile
    }

    /// What it has alone.
    #[must_use]
    pub fn head(self) -> Head<'a> {
        self.head
    }

    /// The row groups that hold these rows of MCUs.
    #[must_use]
    pub fn groups_of(self, mcus: Range<usize>) -> Range<usize> {
        let per_group = self.profile.group_mcus();
        mcus.start / per_group..mcus.end.div_ceil(per_group)
    }

    /// The rows of MCUs that a row group holds.
    #[must_use]
    pub fn mcus_of(self, group: usize) -> Range<usize> {
        let [_, down] = self.profile.n_mcus(self.head.size);
        let per_group = self.profile.group_mcus();
        group * per_group..down.min((group + 1) * per_group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YCC: [Component; 3] = [
        Component { h: 2, v: 2, table: 0 },
        Component { h: 1, v: 1, table: 1 },
        Component { h: 1, v: 1, table: 1 },
    ];

    fn profile(components: &[Component]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let colour = if components.len() == 1 { Colour::Grey } else { Colour::YCbCr };
        write_profile(colour, components, &[[7; 64], [300; 64]], &mut bytes);
        bytes
    }

    #[test]
    fn a_profile_says_what_was_written() {
        let bytes = profile(&YCC);
        let read = Profile::read(&bytes).unwrap();
        assert_eq!(read.bytes(), bytes);
        assert_eq!(read.colour(), Colour::YCbCr);
        assert!(read.components().eq(YCC));
        assert_eq!([read.steps(0), read.steps(1)], [[7; 64], [300; 64]]);
        let size = Size { height: 33, width: 17 };
        assert_eq!((read.n_mcus(size), read.group_mcus()), ([2, 3], 1));
        let whole = Component { h: 1, v: 1, table: 0 };
        let bytes = profile(&[whole; 3]);
        let read = Profile::read(&bytes).unwrap();
        assert_eq!((read.n_mcus(size), read.group_mcus()), ([3, 5], 2));
    }

    #[test]
    fn a_profile_that_makes_no_sense_is_none() {
        let good = profile(&YCC);
        for len in 0..good.len() {
            assert_eq!(Profile::read(&good[..len]), None, "{len} bytes");
        }
        // Colour, number of components, number of tables, a factor 0, a factor that does not
        // divide, a table that is not there.
        for (at, value) in
            [(0, 0), (0, 5), (1, 4), (2, 0), (2, 5), (3, 0), (6, 3), (5, 2)]
        {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Profile::read(&bad), None, "byte {at} is {value}");
        }
        let mut grey = profile(&[Component { h: 1, v: 1, table: 0 }]);
        grey[3] = 2;
        assert_eq!(Profile::read(&grey), None, "a lone component has no factors");
    }

    #[test]
    fn groups_lie_one_behind_the_other() {
        let lengths = GroupLengths::new(&[700, 3000, 1]).unwrap();
        assert_eq!(lengths.unit_bytes(), 12);
        let size = Size { height: 33, width: 17 };
        let bytes = lengths.head(size, 5, RowLengths::Wide).unwrap();
        let head = Head::read(&bytes).unwrap();
        assert_eq!((head.size, head.profile, head.n_groups()), (size, 5, 3));
        assert_eq!(head.row_lengths, RowLengths::Wide);
        let mut again = Vec::new();
        head.write(&mut again);
        assert_eq!(again, bytes);
        assert_eq!(head.bytes_of(0..3), 0..708 + 3000 + 12);
        assert_eq!(head.bytes_of(1..2), 708..708 + 3000);
        assert_eq!(head.bytes_of(3..3), 3720..3720);
        for len in 0..=HEAD_BYTES {
            assert_eq!(Head::read(&bytes[..len]), None);
        }
        for (at, value) in [(8, 0), (10, 0), (0, 0)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert_eq!(Head::read(&bad), None, "byte {at} is {value}");
        }
    }

    #[test]
    fn head_and_profile_must_go_together() {
        let profile = profile(&YCC);
        let profile = Profile::read(&profile).unwrap();
        let lengths = GroupLengths::new(&[1, 1, 1]).unwrap();
        let bytes = |height| {
            lengths.head(Size { height, width: 17 }, 0, RowLengths::Narrow).unwrap()
        };
        let (three, four) = (bytes(48), bytes(49));
        let blocks = Blocks::new(profile, Head::read(&three).unwrap()).unwrap();
        assert_eq!(Blocks::new(profile, Head::read(&four).unwrap()), None);
        assert_eq!(blocks.groups_of(1..3), 1..3);
        assert_eq!(blocks.mcus_of(2), 2..3);
    }

    #[test]
    fn no_length_is_too_long_for_its_unit() {
        let longest = 255 * usize::from(WIDE - 1);
        for n_bytes in [1, 255, 256, 65_535, 5_000_000, longest] {
            let lengths = GroupLengths::new(&[n_bytes]).unwrap();
            let units = usize::from(lengths.lengths[0]);
            assert!(units * lengths.unit_bytes() >= n_bytes);
            assert!((units - 1) * lengths.unit_bytes() < n_bytes);
        }
        assert_eq!(GroupLengths::new(&[longest + 1]), None);
        assert_eq!(GroupLengths::new(&[]), None);
    }
}
