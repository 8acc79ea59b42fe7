//! A program that every device of ours has, at index 0: what a host tries a new path with.

use bothends_nvme::Status;

use super::{Call, Done, Program, Work};

/// Returns the CRC-32C of range 1.
#[derive(Debug)]
pub struct Checksum;

/// Bytes that are looked at at a time.
const PART: u32 = 1 << 16;

impl Program for Checksum {
    fn id(&self) -> u64 {
        // "crc32c", as a list of programs shows it.
        u64::from_le_bytes(*b"crc32c\0\0")
    }

    fn run(&self, call: &Call<'_>) -> Result<Done, Status> {
        let bytes = call.range_bytes(1)?;
        let mut part = vec![0; PART.min(bytes) as usize];
        let (mut at, mut sum) = (0, 0);
        while at < bytes {
            call.check()?;
            let n = PART.min(bytes - at);
            let part = &mut part[..n as usize];
            call.read(1, at, part)?;
            sum = crc32c::crc32c_append(sum, part);
            at += n;
        }
        Ok(Done { value: sum.into(), work: Work::Bytes(bytes.into()) })
    }
}
