//! Everything in a file except the coefficients: markers with what a decoder must know.
//!
//! The order is libjpeg's: JFIF, quantisation tables, frame, and for each scan its Huffman tables
//! and header.

use super::huffman::Tables;
use super::scans::Scan;
use super::{Scans, Spectrum, quantise};

/// Start and end of image, and the segments (T.81 Table B.1).
const SOI: [u8; 2] = [0xFF, 0xD8];
pub(super) const EOI: [u8; 2] = [0xFF, 0xD9];
const APP0: u8 = 0xE0;
const DQT: u8 = 0xDB;
const SOF0: u8 = 0xC0;
const SOF2: u8 = 0xC2;
const DHT: u8 = 0xC4;
const SOS: u8 = 0xDA;

/// JFIF 1.01, square pixels, no thumbnail.
const JFIF: &[u8] = b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0";

/// Everything before the first scan.
pub(super) fn begin(file: &mut Vec<u8>, picture: &Spectrum, quality: u16, scans: Scans) {
    file.extend(SOI);
    segment(file, APP0, JFIF);
    let n_components = picture.components.len();
    for (idx, component) in (0..n_components.min(2)).zip(0..) {
        let table = quantise::table(idx, quality).map(|divisor| divisor.to_le_bytes()[0]);
        segment(file, DQT, &[&[component], &table[..]].concat());
    }
    let side = |pixels: usize| u16::try_from(pixels).expect("pictures are smaller");
    let mut frame = vec![8];
    frame.extend(side(picture.height).to_be_bytes());
    frame.extend(side(picture.width).to_be_bytes());
    frame.push(byte(n_components));
    for (idx, component) in picture.components.iter().enumerate() {
        let factor = byte(component.factor);
        frame.extend([byte(idx) + 1, (factor << 4) | factor, byte(idx.min(1))]);
    }
    let marker = match scans {
        Scans::Baseline => SOF0,
        Scans::Progressive => SOF2,
    };
    segment(file, marker, &frame);
}

/// The tables of a scan and its header.
pub(super) fn begin_scan(file: &mut Vec<u8>, scan: &Scan, tables: &Tables) {
    for (idx, table) in tables.iter().enumerate() {
        let Some(table) = table else { continue };
        // Class (DC or AC) and number (luma or chroma).
        let name = byte(((idx % 2) << 4) | (idx / 2));
        segment(file, DHT, &[&[name], &table.counts[..], &table.symbols].concat());
    }
    let (first, last) = scan.band;
    let mut header = vec![byte(scan.components.len())];
    for idx in scan.components.clone() {
        let number = byte(idx.min(1));
        let means = if first == 0 && scan.high == 0 { number } else { 0 };
        let others = if last > 0 { number } else { 0 };
        header.extend([byte(idx) + 1, (means << 4) | others]);
    }
    header.extend([byte(first), byte(last), (scan.high << 4) | scan.low]);
    segment(file, SOS, &header);
}

fn segment(file: &mut Vec<u8>, marker: u8, content: &[u8]) {
    let len = u16::try_from(content.len() + 2).expect("segments are short");
    file.extend([0xFF, marker]);
    file.extend(len.to_be_bytes());
    file.extend(content);
}

fn byte(small: usize) -> u8 {
    small.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::super::{Sampling, scans};
    use super::*;

    #[test]
    fn the_frame_tells_size_sampling_and_tables() {
        let picture = Spectrum::new(&[7; 300 * 2 * 3], 300, Sampling::Half);
        let mut file = Vec::new();
        begin(&mut file, &picture, 50, Scans::Progressive);
        assert_eq!(
            file[..20],
            *b"\xFF\xD8\xFF\xE0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
        );
        // Two quantisation tables of 64 bytes, the first ones of Table K.1.
        assert_eq!(file[20..28], [0xFF, 0xDB, 0, 67, 0, 16, 11, 12]);
        assert_eq!(file[89..96], [0xFF, 0xDB, 0, 67, 1, 17, 18]);
        let frame =
            [[0xFF, 0xC2, 0, 17], [8, 0, 2, 1], [44, 3, 1, 0x22], [0, 2, 0x11, 1]];
        assert_eq!(file[158..], [frame.as_flattened(), &[3, 0x11, 1]].concat());
    }

    #[test]
    fn a_scan_tells_its_tables_and_its_bits() {
        let headers: Vec<Vec<u8>> = scans::script(Scans::Progressive, 3)
            .iter()
            .map(|scan| {
                let mut file = Vec::new();
                begin_scan(&mut file, scan, &[None, None, None, None]);
                file[4..].to_vec()
            })
            .collect();
        assert_eq!(headers[0], [3, 1, 0x00, 2, 0x10, 3, 0x10, 0, 0, 0x01]);
        assert_eq!(headers[1], [1, 1, 0x00, 1, 5, 0x02]);
        assert_eq!(headers[2], [1, 3, 0x01, 1, 63, 0x01]);
        // No table: bits that refine DC coefficients have no codes.
        assert_eq!(headers[6], [3, 1, 0, 2, 0, 3, 0, 0, 0, 0x10]);
    }
}
