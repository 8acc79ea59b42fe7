//! What is refused before the compiler sees it, for its time and memory grow faster than these.
//!
//! A look at the sections only (WebAssembly Core, Binary Format, Modules): the compiler validates the rest.

use bothends_nvme::Status;

const MAGIC: &[u8] = b"\0asm\x01\0\0\0";
/// The section that names a function which runs before the entry.
const START: u8 = 8;
/// The section of types of functions.
const TYPES: u8 = 1;
/// The section of bodies of functions.
const CODE: u8 = 10;

/// What a module may have at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    /// Bytes of all of it.
    pub(super) bytes: usize,
    /// Functions, and types of them: each is compiled for itself, however short it is.
    pub(super) functions: u32,
    /// Bytes of the body of a function.
    pub(super) body_bytes: usize,
    /// Locals of all functions together: a few bytes declare thousands.
    pub(super) locals: u64,
}

/// Checks the sections of a module.
///
/// # Errors
/// Invalid Program Data if it is none, or has a start function; Insufficient Program Resources if it is too large.
pub(super) fn check(module: &[u8], most: Most) -> Result<(), Status> {
    if module.len() > most.bytes {
        return Err(Status::PROGRAM_RESOURCES);
    }
    let mut rest = Bytes(module.strip_prefix(MAGIC).ok_or(Status::PROGRAM_DATA)?);
    while !rest.0.is_empty() {
        let id = rest.byte()?;
        let mut section = rest.sized()?;
        match id {
            TYPES => check_number(&mut section, most).map(|_| ())?,
            START => return Err(Status::PROGRAM_DATA),
            CODE => check_bodies(section, most)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_bodies(mut section: Bytes<'_>, most: Most) -> Result<(), Status> {
    let mut locals = 0;
    for _ in 0..check_number(&mut section, most)? {
        let mut body = section.sized()?;
        if body.0.len() > most.body_bytes {
            return Err(Status::PROGRAM_RESOURCES);
        }
        for _ in 0..body.number()? {
            locals += u64::from(body.number()?);
            // Types of one byte; of longer ones there is none among those that are allowed.
            body.byte()?;
        }
        if locals > most.locals {
            return Err(Status::PROGRAM_RESOURCES);
        }
    }
    Ok(())
}

/// How many the section has.
fn check_number(section: &mut Bytes<'_>, most: Most) -> Result<u32, Status> {
    let n = section.number()?;
    if n > most.functions { Err(Status::PROGRAM_RESOURCES) } else { Ok(n) }
}

/// What has not been read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Result<u8, Status> {
        let (first, rest) = self.0.split_first().ok_or(Status::PROGRAM_DATA)?;
        self.0 = rest;
        Ok(*first)
    }

    /// An unsigned number of 32 bits in LEB128.
    fn number(&mut self) -> Result<u32, Status> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| Status::PROGRAM_DATA);
            }
        }
        Err(Status::PROGRAM_DATA)
    }

    /// A number of bytes, and these.
    fn sized(&mut self) -> Result<Self, Status> {
        let n = self.number()? as usize;
        let (own, rest) = self.0.split_at_checked(n).ok_or(Status::PROGRAM_DATA)?;
        self.0 = rest;
        Ok(Self(own))
    }
}
