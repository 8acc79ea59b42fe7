//! Looking up 16 values at once with NEON: four lookups of six bits, each of which leaves
//! alone what is beyond its quarter.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::aarch64::{uint8x16x4_t, vdupq_n_u8, vqtbl4q_u8, vqtbx4q_u8, vsubq_u8};

use super::Table;
use crate::kernels::Neon;
use crate::kernels::compiled::door;
use crate::kernels::vectors::{load_u8, store_u8};

door!(pub(super) fn apply(_: Neon, table: &Table, values: &mut [u8]) = look_up);

#[target_feature(enable = "neon")]
fn look_up(table: &Table, values: &mut [u8]) {
    let (rows, _) = table.0.as_chunks::<16>();
    let row = |nth: usize| load_u8(&rows[nth]);
    let quarter =
        |nth: usize| uint8x16x4_t(row(nth), row(nth + 1), row(nth + 2), row(nth + 3));
    let [a, b, c, d] = [quarter(0), quarter(4), quarter(8), quarter(12)];
    let step = vdupq_n_u8(64);
    let (blocks, rest) = values.as_chunks_mut::<16>();
    for block in blocks {
        let mut index = load_u8(block);
        let mut found = vqtbl4q_u8(a, index);
        for quarter in [b, c, d] {
            index = vsubq_u8(index, step);
            found = vqtbx4q_u8(found, quarter, index);
        }
        store_u8(block, found);
    }
    table.apply_scalar(rest);
}
