//! What we make of images: reads paths, one a line, and prints `height width CRC-32` of each image's
//! pixels, or `error` and what is wrong with it, in the same order.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::{fs, io};

use bothends_core::sample::{Encoding, Record};
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;

fn main() {
    let (mut decoder, mut image) = (ImageDecoder::default(), Image::default());
    for path in io::stdin().lines() {
        let bytes = fs::read(path.unwrap()).unwrap();
        match decoder.decode(Record::new(&bytes, Encoding::Image), &mut image) {
            Ok(()) => {
                let crc = crc32fast::hash(image.pixels());
                println!("{} {} {crc}", image.height(), image.width());
            }
            Err(error) => println!("error {error}"),
        }
    }
}
