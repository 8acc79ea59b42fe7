//! A compressed file as the bytes that were compressed.

use std::io::{self, BufRead, Read};

use bothends_dataset::Codec;

/// A block without a frame is decompressed as a whole; shards of that kind have 64 MiB unless somebody wants more.
const MOST_BLOCK_BYTES: usize = 1 << 30;

/// The base-2 logarithm of the largest window of the format that the library supports.
const MOST_WINDOW_LOG: u32 = 31;

/// What was compressed, front to back.
///
/// # Errors
/// What is wrong with the beginning of the file. Reading gives errors of the source, and those of what is damaged.
pub(crate) fn decompressed<'a>(
    codec: Codec,
    file: impl BufRead + 'a,
) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match codec {
        Codec::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Codec::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(file)),
        Codec::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?;
            // `zstd --long=31`: two GiB of memory, which such a file needs anywhere.
            decoder.window_log_max(MOST_WINDOW_LOG)?;
            Box::new(decoder)
        }
        Codec::Snappy => Box::new(io::Cursor::new(block(file)?)),
    })
}

fn block(file: impl Read) -> io::Result<Vec<u8>> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut bytes = Vec::new();
    file.take(MOST_BLOCK_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let len = snap::raw::decompress_len(&bytes).map_err(|e| wrong(e.to_string()))?;
    if bytes.len().max(len) > MOST_BLOCK_BYTES {
        return Err(wrong(format!("it has more than {MOST_BLOCK_BYTES} bytes")));
    }
    snap::raw::Decoder::new().decompress_vec(&bytes).map_err(|e| wrong(e.to_string()))
}
