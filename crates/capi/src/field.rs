//! What a batch has besides samples: the fields that were asked for, and where rows are that have their own length.
#![allow(
    unsafe_code,
    reason = "exporting a name of C is unsafe: it may be taken already"
)]
#![allow(non_camel_case_types, reason = "C's names")]

use std::mem::MaybeUninit;
use std::ptr::null;

use crate::batch::be_batch;
use crate::column::be_field;
use crate::memory::given;
use crate::status::{Refusal, answer, be_status, door};

/// Fields of the batch: as many as were named in the option `fields`, in that order. 0 when `batch` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_n_fields(batch: Option<&be_batch>) -> usize {
    door(|| Ok(given(batch, "batch")?.fields().len())).unwrap_or(0)
}

/// Field number `nth` (from 0). Fields are in host memory, wherever the samples are.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_field(
    batch: Option<&be_batch>,
    nth: usize,
    out: Option<&mut MaybeUninit<be_field>>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?;
        let fields = given(batch, "batch")?.fields();
        let field = fields.get(nth).ok_or_else(|| {
            let n = fields.len();
            Refusal::argument(format!("`nth` is {nth}; the batch has {n} fields"))
        })?;
        out.write(field.shown());
        Ok(be_status::BE_OK)
    })
}

/// With the recipe `raw`, whose rows are files: where each row begins in `be_batch_data`, in bytes, and where the last
/// one ends, rows + 1 numbers; valid until the batch is released. NULL where all samples have the same length, and
/// if `batch` is.
#[unsafe(no_mangle)]
pub extern "C" fn be_batch_row_offsets(batch: Option<&be_batch>) -> *const u64 {
    let offsets = door(|| {
        let offsets = given(batch, "batch")?.row_offsets();
        Ok(offsets.map_or(null(), |offsets| offsets.as_ptr()))
    });
    offsets.unwrap_or(null())
}
