//! Fields of little-endian structures, and how well the place of each is known.

use std::marker::PhantomData;

/// How well the place and the meaning of a field are known to us.
///
/// The command sets for memory and for programs are younger than the public code that speaks them. A field
/// below [`Grade::A`] has to be compared with the text of the command set before anyone calls it
/// conforming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The text of the NVM Express Base or transport specification, or libnvme's headers.
    A,
    /// Two independent implementations agree.
    B,
    /// One implementation has it.
    C,
    /// Our own assumption.
    D,
}

/// A field as people look for it: `layout::places` lists all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The structure.
    pub structure: &'static str,
    /// The structure's size in bytes.
    pub structure_bytes: usize,
    /// The field.
    pub field: &'static str,
    /// Its first byte.
    pub at: usize,
    /// How many bytes it has.
    pub bytes: usize,
    /// Where it is defined.
    pub clause: &'static str,
    /// How well it is known.
    pub grade: Grade,
}

/// What a field may hold: a little-endian number, or bytes.
pub trait Value: Copy {
    /// Bytes that it takes.
    const BYTES: usize;
    /// Reads it from exactly that many bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Writes it to exactly that many bytes.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Value for $number {
            const BYTES: usize = size_of::<Self>();

            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

number!(u8, u16, u32, u64);

impl<const N: usize> Value for [u8; N] {
    const BYTES: usize = N;

    fn read(bytes: &[u8]) -> Self {
        let mut own = [0; N];
        own.copy_from_slice(bytes);
        own
    }

    fn write(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
}

/// A field of a structure of `N` bytes. That it lies inside is checked when it is compiled.
#[derive(Debug, Clone, Copy)]
pub struct Field<const N: usize, T> {
    at: usize,
    value: PhantomData<T>,
}

impl<const N: usize, T: Value> Field<N, T> {
    /// The field that begins at byte `at`.
    ///
    /// # Panics
    /// If it is not inside its structure: when it is compiled, for a constant.
    #[must_use]
    pub const fn at(at: usize) -> Self {
        assert!(at + T::BYTES <= N, "the field is not inside its structure");
        Self { at, value: PhantomData }
    }

    /// Its first byte.
    #[must_use]
    pub const fn offset(self) -> usize {
        self.at
    }

    /// Its value in `structure`.
    #[must_use]
    pub fn get(self, structure: &[u8; N]) -> T {
        T::read(&structure[self.at..self.at + T::BYTES])
    }

    /// Gives it a value in `structure`.
    pub fn put(self, structure: &mut [u8; N], value: T) {
        value.write(&mut structure[self.at..self.at + T::BYTES]);
    }
}

/// Bits `from..to` of `word`, moved down to bit 0.
#[must_use]
pub(crate) const fn bits(word: u32, from: u32, to: u32) -> u32 {
    (word >> from) & (u32::MAX >> (32 - (to - from)))
}
