//! What a program may call, and what it holds while it runs.
//!
//! Functions, and not ranges that lie in the program's memory: a job reads the parts that it needs of a large
//! range, and no range is copied before anybody knows which. Numbers are unsigned.

use bothends_nvme::Status;
use wasmtime::{Caller, Linker, Memory, ResourceLimiter, Result};

use super::super::{Call, Ranges};

/// The module that a program imports from; the next version of these functions has the next name.
pub(super) const MODULE: &str = "csd_1";
/// Bytes that are moved for one unit of fuel.
const BYTES_PER_FUEL: u64 = 8;
/// What [`range_bytes`] says of a range that is not there.
const NONE: u64 = u64::MAX;

/// An execution as the functions see it.
#[derive(Debug)]
pub(super) struct Guest {
    ranges: Ranges,
    data: Vec<u8>,
    memory: Option<Memory>,
    memory_bytes: usize,
    table_elements: usize,
}

impl Guest {
    /// What a program is called with, and how large its memory and its tables may become.
    pub(super) fn new(
        call: &Call<'_>,
        memory_bytes: usize,
        table_elements: usize,
    ) -> Self {
        let (ranges, data) = (call.ranges.clone(), call.data.to_vec());
        Self { ranges, data, memory: None, memory_bytes, table_elements }
    }

    /// The memory of the instance, once there is one.
    pub(super) fn set_memory(&mut self, memory: Option<Memory>) {
        self.memory = memory;
    }
}

/// An execution has ended with this status.
#[derive(Debug, thiserror::Error)]
#[error("ended with {0}")]
pub(super) struct Ended(pub(super) Status);

impl ResourceLimiter for Guest {
    fn memory_growing(&mut self, _: usize, to: usize, _: Option<usize>) -> Result<bool> {
        within(to, self.memory_bytes)
    }

    fn table_growing(&mut self, _: usize, to: usize, _: Option<usize>) -> Result<bool> {
        within(to, self.table_elements)
    }
}

/// Ends the execution rather than tell the program: one that cannot go on would only trap.
fn within(wanted: usize, most: usize) -> Result<bool> {
    if wanted <= most {
        return Ok(true);
    }
    Err(Ended(Status::PROGRAM_RESOURCES).into())
}

/// Adds the functions.
///
/// # Errors
/// None, unless two have the same name.
pub(super) fn add(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(MODULE, "range_bytes", range_bytes)?;
    linker.func_wrap(MODULE, "read", read)?;
    linker.func_wrap(MODULE, "write", write)?;
    linker.func_wrap(MODULE, "data_bytes", data_bytes)?;
    linker.func_wrap(MODULE, "data", data)?;
    linker.func_wrap(MODULE, "end", end)?;
    Ok(())
}

type Calling<'a> = Caller<'a, Guest>;

fn range_bytes(caller: Calling<'_>, range: u32) -> u64 {
    caller.data().ranges.bytes(range as usize).map_or(NONE, u64::from)
}

/// Range `range` from byte `at` on, to address `to`.
fn read(mut caller: Calling<'_>, range: u32, at: u32, to: u32, bytes: u32) -> Result<()> {
    pay(&mut caller, bytes)?;
    let (memory, guest) = memory(&mut caller)?;
    let to = part(memory, to, bytes)?;
    guest.ranges.read(range as usize, at, to).map_err(|status| Ended(status).into())
}

/// The bytes at address `from`, to byte `at` on of range `range`.
fn write(
    mut caller: Calling<'_>,
    range: u32,
    at: u32,
    from: u32,
    bytes: u32,
) -> Result<()> {
    pay(&mut caller, bytes)?;
    let (memory, guest) = memory(&mut caller)?;
    let from = part(memory, from, bytes)?;
    guest.ranges.write(range as usize, at, from).map_err(|status| Ended(status).into())
}

fn data_bytes(caller: Calling<'_>) -> u32 {
    u32::try_from(caller.data().data.len()).unwrap_or(u32::MAX)
}

/// The data of the command from byte `at` on, to address `to`.
fn data(mut caller: Calling<'_>, at: u32, to: u32, bytes: u32) -> Result<()> {
    pay(&mut caller, bytes)?;
    let (memory, guest) = memory(&mut caller)?;
    let (to, at) = (part(memory, to, bytes)?, at as usize);
    let end = at.checked_add(bytes as usize);
    let from = end.and_then(|end| guest.data.get(at..end));
    to.copy_from_slice(from.ok_or(Ended(Status::INVALID_FIELD))?);
    Ok(())
}

/// Ends the execution with a status: its type in bits 10:8, its code in 7:0.
fn end(_: Calling<'_>, status: u32) -> Result<()> {
    let [code, kind, 0, 0] = status.to_le_bytes() else {
        return Err(Ended(Status::INTERNAL_ERROR).into());
    };
    let own = Status { kind, code };
    // Of commands in general, of a command set, or a vendor's. Others are for a transport and for media to say.
    let is_of_program = matches!(kind, 0 | 1 | 7) && !own.is_success();
    Err(Ended(if is_of_program { own } else { Status::INTERNAL_ERROR }).into())
}

/// Takes the fuel for so many bytes.
fn pay(caller: &mut Calling<'_>, bytes: u32) -> Result<()> {
    let price = u64::from(bytes) / BYTES_PER_FUEL;
    let left = caller.get_fuel()?.checked_sub(price);
    caller.set_fuel(left.ok_or(Ended(Status::PROGRAM_RESOURCES))?)
}

fn memory<'a>(caller: &'a mut Calling<'_>) -> Result<(&'a mut [u8], &'a mut Guest)> {
    let memory = caller.data().memory.ok_or(Ended(Status::INTERNAL_ERROR))?;
    Ok(memory.data_and_store_mut(caller))
}

/// Bytes of the program's memory. An address outside it is a trap, as it is for the program's own loads.
fn part(memory: &mut [u8], at: u32, bytes: u32) -> Result<&mut [u8]> {
    let at = at as usize;
    let end = at.checked_add(bytes as usize);
    let found = end.and_then(|end| memory.get_mut(at..end));
    Ok(found.ok_or(Ended(Status::INTERNAL_ERROR))?)
}
