//! What our decoder makes of image files, to be held against Pillow's `convert("RGB")`.
//!
//! Reads paths, one a line, and prints a line for each, with tabs between the columns: path,
//! width, height, the XXH3 digest of the RGB bytes, and what was wrong with a file that was
//! decoded all the same; or path, `error` and the fault. With the argument `fill`, files that end
//! early are filled up, as with Pillow's `LOAD_TRUNCATED_IMAGES`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::{env, fs, io};

use bothends_core::recipe::{Size, Truncated};
use bothends_core::sample::{Encoding, Record};
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;
use xxhash_rust::xxh3::xxh3_64;

fn main() {
    let truncated = match env::args().nth(1).as_deref() {
        Some("fill") => Truncated::Fill,
        _ => Truncated::Refuse,
    };
    let mut decoder = ImageDecoder::default().with_truncated(truncated);
    let mut image = Image::default();
    for path in io::stdin().lines() {
        let path = path.unwrap();
        let bytes = fs::read(&path).unwrap();
        match decoder.decode(Record::new(&bytes, Encoding::Image), &mut image) {
            Ok(()) => {
                let Size { height, width } = image.size();
                let digest = xxh3_64(image.pixels());
                let damage = decoder.damage().map_or("", |damage| damage.what);
                println!("{path}\t{width}\t{height}\t{digest:016x}\t{damage}");
            }
            Err(fault) => println!("{path}\terror\t{fault}"),
        }
    }
}
