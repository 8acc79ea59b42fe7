//! What our decoder makes of JPEG files, in the words of `scripts/reference-jpeg.c`.
//!
//! Reads paths, one a line, and prints a line for each, with tabs between the columns: path,
//! width, height, FNV-1a of the RGB bytes; or path, `error` and the fault. Run it by
//! `scripts/compare-jpeg`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::{fs, io};

use bothends_core::sample::{Encoding, Record};
use bothends_ops::decode::decode;
use bothends_ops::image::Image;

fn main() {
    let mut image = Image::default();
    for path in io::stdin().lines() {
        let path = path.unwrap();
        let bytes = fs::read(&path).unwrap();
        let record = Record::new(&bytes, Encoding::Image);
        match decode(record, &mut image) {
            Ok(()) => println!(
                "{path}\t{}\t{}\t{:016x}",
                image.width(),
                image.height(),
                digest(image.pixels())
            ),
            Err(fault) => println!("{path}\terror\t{fault}"),
        }
    }
}

/// FNV-1a, 64 bits.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
