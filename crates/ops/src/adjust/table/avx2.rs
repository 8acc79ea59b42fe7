//! Looking up 32 values at once with AVX2: sixteen lookups of four bits.
//!
//! `vpshufb` looks up the lower four bits of an index and gives 0 where its top bit is set. In
//! round n the index is the value less 16 n, so a row of the table speaks for its own values
//! and for all above. Each row therefore holds what it changes of the one before, and
//! exclusive or puts the answers together. Values from 128 on have rounds of their own.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;
use std::array::from_fn;

use super::Table;
use crate::kernels::Avx2;
use crate::kernels::compiled::door;
use crate::kernels::vectors::{load_128, load_256, store_256};

/// What four bits choose from.
type Row = [u8; 16];

/// Vectors that are looked up side by side.
const SIDE_BY_SIDE: usize = 4;

door!(pub(super) fn apply(_: Avx2, table: &Table, values: &mut [u8]) = look_up);

#[target_feature(enable = "avx2")]
fn look_up(table: &Table, values: &mut [u8]) {
    let (rows, _) = table.0.as_chunks::<16>();
    let changes: [Row; 16] = from_fn(|nth| match nth {
        0 | 8 => rows[nth],
        _ => from_fn(|i| rows[nth][i] ^ rows[nth - 1][i]),
    });
    let (lower, upper) = changes.split_at(8);
    let (vectors, rest) = values.as_chunks_mut::<32>();
    let (blocks, vectors) = vectors.as_chunks_mut::<SIDE_BY_SIDE>();
    for block in blocks {
        look_up_block(lower, upper, block);
    }
    for vector in vectors {
        look_up_block(lower, upper, std::array::from_mut(vector));
    }
    table.apply_scalar(rest);
}

#[inline]
#[target_feature(enable = "avx2")]
fn look_up_block<const N: usize>(
    lower: &[Row],
    upper: &[Row],
    block: &mut [[u8; 32]; N],
) {
    let mut index = [_mm256_setzero_si256(); N];
    let mut sum = [_mm256_setzero_si256(); N];
    for (index, vector) in index.iter_mut().zip(&*block) {
        *index = load_256(vector);
    }
    add_rows(lower, index, &mut sum);
    for index in &mut index {
        *index = _mm256_xor_si256(*index, _mm256_set1_epi8(i8::MIN));
    }
    add_rows(upper, index, &mut sum);
    for (vector, sum) in block.iter_mut().zip(sum) {
        store_256(vector, sum);
    }
}

/// Eight rounds, for indices from 0 to 127; where the top bit is set, they change nothing.
#[inline]
#[target_feature(enable = "avx2")]
fn add_rows<const N: usize>(
    rows: &[Row],
    mut index: [__m256i; N],
    sum: &mut [__m256i; N],
) {
    for row in rows {
        let row = _mm256_broadcastsi128_si256(load_128(row));
        for (index, sum) in index.iter_mut().zip(&mut *sum) {
            *sum = _mm256_xor_si256(*sum, _mm256_shuffle_epi8(row, *index));
            // Saturating: what is negative stays so.
            *index = _mm256_subs_epi8(*index, _mm256_set1_epi8(16));
        }
    }
}
