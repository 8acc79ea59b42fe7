//! What our resizes make of images, for `scripts/compare-resize`.
//!
//! Reads jobs, one a line: the path of an image, the recipe version whose exact numerics are
//! meant, a filter, the box (top, left, height, width) and the size (height, width), with spaces
//! between. Prints the CRC-32 of each result's bytes, one a line, in the same order.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::{fs, io};

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::{Interpolation, Numerics, Size};
use bothends_core::sample::{Encoding, Record};
use bothends_ops::decode::decode;
use bothends_ops::image::Image;
use bothends_ops::resample::Target;
use bothends_ops::resize::{Crop, Resizer};

fn main() {
    let mut resizer = Resizer::default();
    let (mut open, mut image, mut out) =
        (String::new(), Image::default(), Image::default());
    let table = table();
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let [path, version, filter, numbers @ ..] = &words[..] else { panic!("{line}") };
        if open != *path {
            (*path).clone_into(&mut open);
            let bytes = fs::read(path).unwrap();
            decode(Record::new(&bytes, Encoding::Image), &mut image).unwrap();
        }
        let numbers: Vec<u32> =
            numbers.iter().map(|word| word.parse().unwrap()).collect();
        let [top, left, height, width, rows, columns] = numbers[..] else {
            panic!("{line}")
        };
        let crop = Crop {
            part: CropBox { top, left, height, width },
            target: Target {
                interpolation: interpolation(filter),
                ..Target::whole(Size { height: rows, width: columns })
            },
            numerics: if *version == "1" { Numerics::Exact } else { Numerics::Exact13 },
        };
        resizer.crop(image.view(), &crop, &mut out);
        let crc = out.pixels().iter().fold(!0, |crc: u32, &byte| {
            table[((crc ^ u32::from(byte)) & 0xff) as usize] ^ (crc >> 8)
        });
        println!("{}", !crc);
    }
}

/// CRC-32 of every byte, as zlib counts it.
fn table() -> [u32; 256] {
    std::array::from_fn(|byte| {
        let byte = u32::try_from(byte).unwrap();
        (0..8).fold(byte, |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

fn interpolation(name: &str) -> Interpolation {
    match name {
        "nearest" => Interpolation::Nearest,
        "bilinear" => Interpolation::Bilinear,
        "bicubic" => Interpolation::Bicubic,
        "box" => Interpolation::Box,
        "hamming" => Interpolation::Hamming,
        "lanczos" => Interpolation::Lanczos,
        other => panic!("{other}: not a filter"),
    }
}
