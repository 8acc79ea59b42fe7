//! Snappy, whole blocks: literals, and copies of what was written before
//! (`format_description.txt` of google/snappy).

/// The bytes that a block stands for; `None` where it is damaged, or not as long as stated.
pub(super) fn decompress(mut block: &[u8], len: usize) -> Option<Vec<u8>> {
    if stated(&mut block)? != len {
        return None;
    }
    // Three bytes give 64 at most, so that a small page cannot ask for much memory.
    let mut out = Vec::with_capacity(len.min(block.len().saturating_mul(22)));
    while let Some((&tag, rest)) = block.split_first() {
        block = rest;
        let high = usize::from(tag >> 2);
        match tag & 3 {
            0 => {
                let n = match high {
                    0..60 => high,
                    _ => little_endian(&mut block, high - 59)?,
                };
                let n = n.checked_add(1)?;
                out.extend(block.get(..n)?);
                block = &block[n..];
            }
            1 => {
                let offset = (high >> 3) << 8 | little_endian(&mut block, 1)?;
                copy(&mut out, offset, 4 + (high & 7))?;
            }
            2 => {
                let offset = little_endian(&mut block, 2)?;
                copy(&mut out, offset, high + 1)?;
            }
            _ => {
                let offset = little_endian(&mut block, 4)?;
                copy(&mut out, offset, high + 1)?;
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// Appends `n` bytes from `offset` before the end; they may reach into themselves.
fn copy(out: &mut Vec<u8>, offset: usize, n: usize) -> Option<()> {
    let start = out.len().checked_sub(offset).filter(|_| offset > 0)?;
    (start..start + n).for_each(|at| out.push(out[at]));
    Some(())
}

fn little_endian(block: &mut &[u8], n: usize) -> Option<usize> {
    let bytes = block.get(..n)?;
    *block = &block[n..];
    Some(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte)))
}

/// The length that a block begins with, in base 128.
fn stated(block: &mut &[u8]) -> Option<usize> {
    let mut len = 0_u64;
    for shift in (0..35).step_by(7) {
        let byte = u64::try_from(little_endian(block, 1)?).ok()?;
        len |= (byte & 0x7f) << shift;
        if byte < 0x80 {
            return usize::try_from(len).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_copies_are_undone() {
        // "abcd", its second half three times over, and a copy that begins far back.
        let block =
            [13, 3 << 2, b'a', b'b', b'c', b'd', 2 << 2 | 1, 2, 2 << 2 | 2, 10, 0];
        assert_eq!(decompress(&block, 13).unwrap(), b"abcdcdcdcdabc");
        let long = [&[70, 60 << 2, 69][..], &[7; 70]].concat();
        assert_eq!(decompress(&long, 70).unwrap(), [7; 70]);
        assert_eq!(decompress(&[0], 0).unwrap(), b"");
    }

    #[test]
    fn damage_is_noticed() {
        let good = [6, 3 << 2, b'a', b'b', b'c', b'd', 1 << 2 | 2, 2, 0];
        assert_eq!(decompress(&good, 6).unwrap(), b"abcdcd");
        assert_eq!(decompress(&good, 5), None);
        for len in 0..good.len() {
            assert_eq!(decompress(&good[..len], 6), None, "{len}");
        }
        let beyond = [6, 3 << 2, b'a', b'b', b'c', b'd', 1 << 2 | 2, 5, 0];
        assert_eq!(decompress(&beyond, 6), None);
        let nowhere = [6, 3 << 2, b'a', b'b', b'c', b'd', 1 << 2 | 2, 0, 0];
        assert_eq!(decompress(&nowhere, 6), None);
    }
}
