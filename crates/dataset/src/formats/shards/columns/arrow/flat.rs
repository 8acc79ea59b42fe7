//! FlatBuffers, as far as Arrow's messages need it: tables, vectors and strings, all bounds checked.
//!
//! A table begins with the distance back to its vtable, which says where each field lies (FlatBuffers
//! internals, "Encoding"). Every position that bytes give is held against their end; a position only leads
//! forward, except to a vtable, which leads nowhere else.

/// What is said of bytes that are no FlatBuffers.
pub(crate) const DAMAGED: &str =
    "the metadata of a message is damaged; fetch the file again";

/// A table in a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    vtable: usize,
    vtable_len: usize,
}

/// A vector in a message: where its elements begin, and how many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vector<'a> {
    bytes: &'a [u8],
    at: usize,
    pub(crate) len: usize,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], &'static str> {
    bytes.get(at..).and_then(|rest| rest.first_chunk().copied()).ok_or(DAMAGED)
}

fn offset(bytes: &[u8], at: usize) -> Result<usize, &'static str> {
    let distance = u32::from_le_bytes(number(bytes, at)?) as usize;
    match distance {
        0 => Err(DAMAGED),
        _ => at.checked_add(distance).ok_or(DAMAGED),
    }
}

impl<'a> Table<'a> {
    /// The table that the bytes begin with.
    pub(crate) fn root(bytes: &'a [u8]) -> Result<Self, &'static str> {
        Self::at(bytes, offset(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], at: usize) -> Result<Self, &'static str> {
        let back = i64::from(i32::from_le_bytes(number(bytes, at)?));
        let vtable = i64::try_from(at).ok().and_then(|at| at.checked_sub(back));
        let vtable = vtable.and_then(|vtable| usize::try_from(vtable).ok());
        let vtable = vtable.ok_or(DAMAGED)?;
        let vtable_len = usize::from(u16::from_le_bytes(number(bytes, vtable)?));
        if vtable_len < 4 || vtable + vtable_len > bytes.len() {
            return Err(DAMAGED);
        }
        Ok(Self { bytes, at, vtable, vtable_len })
    }

    /// Where the field lies; `None` where it has its default.
    fn field(&self, nth: usize) -> Result<Option<usize>, &'static str> {
        let entry = 4 + 2 * nth;
        if entry + 2 > self.vtable_len {
            return Ok(None);
        }
        let inside = u16::from_le_bytes(number(self.bytes, self.vtable + entry)?);
        Ok((inside != 0).then_some(self.at + usize::from(inside)))
    }

    fn scalar<const N: usize>(&self, nth: usize) -> Result<[u8; N], &'static str> {
        self.field(nth)?.map_or(Ok([0; N]), |at| number(self.bytes, at))
    }

    pub(crate) fn u8(&self, nth: usize) -> Result<u8, &'static str> {
        Ok(u8::from_le_bytes(self.scalar(nth)?))
    }

    pub(crate) fn i16(&self, nth: usize) -> Result<i16, &'static str> {
        Ok(i16::from_le_bytes(self.scalar(nth)?))
    }

    pub(crate) fn i32(&self, nth: usize) -> Result<i32, &'static str> {
        Ok(i32::from_le_bytes(self.scalar(nth)?))
    }

    /// A number that counts something.
    pub(crate) fn count(&self, nth: usize) -> Result<u64, &'static str> {
        u64::try_from(i64::from_le_bytes(self.scalar(nth)?)).map_err(|_| DAMAGED)
    }

    pub(crate) fn table(&self, nth: usize) -> Result<Option<Self>, &'static str> {
        let Some(at) = self.field(nth)? else { return Ok(None) };
        Self::at(self.bytes, offset(self.bytes, at)?).map(Some)
    }

    /// The vector of elements of so many bytes; an empty one where there is none.
    pub(crate) fn vector(
        &self,
        nth: usize,
        element_bytes: usize,
    ) -> Result<Vector<'a>, &'static str> {
        let Some(at) = self.field(nth)? else {
            return Ok(Vector { bytes: self.bytes, at: 0, len: 0 });
        };
        let start = offset(self.bytes, at)?;
        let len = u32::from_le_bytes(number(self.bytes, start)?) as usize;
        let at = start + 4;
        let end = len.checked_mul(element_bytes).and_then(|len| len.checked_add(at));
        match end.is_some_and(|end| end <= self.bytes.len()) {
            true => Ok(Vector { bytes: self.bytes, at, len }),
            false => Err(DAMAGED),
        }
    }

    /// The bytes of a string; none where there is none.
    pub(crate) fn string(&self, nth: usize) -> Result<&'a [u8], &'static str> {
        let string = self.vector(nth, 1)?;
        Ok(&self.bytes[string.at..][..string.len])
    }
}

impl<'a> Vector<'a> {
    /// Element `nth` of a vector of tables.
    pub(crate) fn table(&self, nth: usize) -> Result<Table<'a>, &'static str> {
        Table::at(self.bytes, offset(self.bytes, self.at + 4 * nth)?)
    }

    /// The number at byte `at` of element `nth`, each of which has so many bytes.
    pub(crate) fn count(
        &self,
        nth: usize,
        (element_bytes, at): (usize, usize),
    ) -> Result<u64, &'static str> {
        if nth >= self.len {
            return Err(DAMAGED);
        }
        let bytes = number(self.bytes, self.at + nth * element_bytes + at)?;
        u64::try_from(i64::from_le_bytes(bytes)).map_err(|_| DAMAGED)
    }
}
