//! The chunks of a PNG, read and refused as Pillow does (`PngImagePlugin.py`).
//!
//! Up to the first image data, every chunk must be whole and have its checksum. After the image data a
//! chunk must be whole, but checksums do not count, and the file may end between chunks. Some chunks
//! are refused for what is in them, although no pixel depends on it.

use fdeflate::Decompressor;

/// What Pillow hands to zlib in one call: at most so much of one chunk.
const PIECE_BYTES: usize = 1 << 16;

/// The longest text or profile that Pillow unpacks, and the most of all texts together.
const MOST_TEXT: usize = 1 << 20;
const MOST_TEXTS: usize = MOST_TEXT << 6;

/// What unpacking one counts for at least: it takes tables of codes, however short it is.
const LEAST_UNPACKED: usize = 1 << 10;

const TRUNCATED: &str = "it ends before its end";

/// A part of the compressed image data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    /// Where the checksum of its chunk begins; beyond the file's end, if the chunk is cut short.
    end: usize,
    /// The number of the last chunk of an animation up to here.
    sequence: Option<u32>,
}

/// A PNG's chunks, and what those so far say.
#[derive(Debug)]
pub(super) struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
    size: [u32; 2],
    /// Depth and colour type, if the header's are of a kind that exists.
    kind: Option<(u8, u8)>,
    is_interlaced: bool,
    palette: Palette<'a>,
    /// Where the image data goes to: left, top, width, height.
    frame: Option<[u32; 4]>,
    n_frames: Option<u32>,
    sequence: Option<u32>,
    /// Where the image data of the first chunk that has some begins, and its length.
    data: Option<(usize, usize)>,
    n_texts: usize,
    n_unpacked: usize,
    /// Where texts are unpacked, one after the other, as soon as there is one.
    text: Vec<u8>,
}

/// What is known of the colours of indices.
#[derive(Debug, Default)]
struct Palette<'a> {
    colours: Option<&'a [u8]>,
    has_one_transparent: bool,
}

struct Chunk<'a> {
    kind: [u8; 4],
    /// Where its body begins, and how long it is said to be.
    at: usize,
    len: usize,
    /// The body, if all of it is there.
    body: Option<&'a [u8]>,
}

impl<'a> Chunks<'a> {
    /// Reads chunks up to the first image data. `bytes` come behind the signature.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let mut chunks = Self {
            bytes,
            at: 0,
            size: [0; 2],
            kind: None,
            is_interlaced: false,
            palette: Palette::default(),
            frame: None,
            n_frames: None,
            sequence: None,
            data: None,
            n_texts: 0,
            n_unpacked: 0,
            text: Vec::new(),
        };
        while chunks.data.is_none() {
            let chunk = chunks.next().ok_or("what follows is not a chunk")?;
            match &chunk.kind {
                b"IEND" if chunks.size != [0; 2] => {
                    return Err(chunks.kind().err().unwrap_or("it has no image data"));
                }
                b"IEND" => return Err("it has no image data"),
                // Before a header, Pillow takes it for a chunk that it does not know.
                b"IDAT" if chunks.kind.is_some() => {
                    chunks.data = Some((chunk.at, chunk.len));
                }
                b"fdAT" => {
                    chunks.frame_data(&chunk)?;
                    let len = chunk.len.checked_sub(4).ok_or(TRUNCATED)?;
                    chunks.data = Some((chunk.at.saturating_add(4), len));
                }
                _ => {
                    let body = chunk.body.ok_or(TRUNCATED)?;
                    chunks.read(&chunk.kind, body)?;
                    chunks.check_sum(&chunk.kind, body)?;
                }
            }
        }
        Ok(chunks)
    }

    /// Width and height.
    pub(super) fn size(&self) -> [u32; 2] {
        self.size
    }

    /// Depth and colour type.
    pub(super) fn kind(&self) -> Result<(u8, u8), &'static str> {
        self.kind.ok_or("an invalid colour type or depth")
    }

    pub(super) fn is_interlaced(&self) -> bool {
        self.is_interlaced
    }

    /// Red, green and blue of each index, for images of colour type 3.
    pub(super) fn palette(&self) -> Result<&'a [u8], &'static str> {
        match self.palette.colours {
            None if self.palette.has_one_transparent => {
                Err("it has transparency but no palette")
            }
            // Pillow's palettes have 256 colours, and count in whole ones.
            Some(palette) if palette.len() >= 257 * 3 => Err("its palette is too long"),
            palette => Ok(palette.unwrap_or_default()),
        }
    }

    /// Where the image data goes to: left, top, width, height.
    pub(super) fn frame(&self) -> [u32; 4] {
        let [width, height] = self.size;
        self.frame.unwrap_or([0, 0, width, height])
    }

    /// The image data as Pillow hands it to zlib.
    pub(super) fn pieces(&self) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let mut walk = Walk { bytes: self.bytes, at: 0 };
        let mut next = self.data;
        let mut sequence = self.sequence;
        while let Some((at, len)) = next {
            let end = at.saturating_add(len);
            let there = self.bytes.get(at..end.min(self.bytes.len())).unwrap_or_default();
            let piece = |bytes| Piece { bytes, end, sequence };
            pieces.extend(there.chunks(PIECE_BYTES).map(piece));
            walk.at = end.saturating_add(4);
            next = walk.next().and_then(|chunk| match &chunk.kind {
                b"IDAT" | b"DDAT" => Some((chunk.at, chunk.len)),
                b"fdAT" => {
                    sequence = Some(self.sequence_of(&chunk, sequence).ok()?);
                    Some((chunk.at.checked_add(4)?, chunk.len.checked_sub(4)?))
                }
                _ => None,
            });
        }
        pieces
    }

    /// Reads the chunks after the piece in which the image was complete.
    pub(super) fn read_rest(
        &mut self,
        last: Option<&Piece<'_>>,
    ) -> Result<(), &'static str> {
        let is_animated = self.is_animated();
        let Some(last) = last else { return Ok(()) };
        self.sequence = last.sequence;
        self.at = last.end.saturating_add(4);
        while let Some(chunk) = self.next() {
            match &chunk.kind {
                b"IEND" => break,
                b"fcTL" if is_animated => break,
                b"IDAT" => drop(chunk.body.ok_or(TRUNCATED)?),
                b"fdAT" => {
                    self.frame_data(&chunk)?;
                    chunk.body.ok_or(TRUNCATED)?;
                }
                kind => self.read(kind, chunk.body.ok_or(TRUNCATED)?)?,
            }
            // Its checksum, which does not count.
            self.at = self.at.saturating_add(4);
        }
        Ok(())
    }

    /// An image of several frames, the default image counted as one.
    fn is_animated(&self) -> bool {
        let is_default = self.frame.is_none();
        self.n_frames.is_some_and(|n| n > 1 || is_default)
    }

    /// The next chunk's head; goes on behind its body.
    fn next(&mut self) -> Option<Chunk<'a>> {
        let mut walk = Walk { bytes: self.bytes, at: self.at };
        let chunk = walk.next();
        self.at = walk.at;
        chunk
    }

    fn check_sum(&mut self, kind: &[u8; 4], body: &[u8]) -> Result<(), &'static str> {
        let sum = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<4>());
        let sum = u32::from_be_bytes(*sum.ok_or(TRUNCATED)?);
        self.at = self.at.saturating_add(4);
        let mut hash = crc32fast::Hasher::new();
        hash.update(kind);
        hash.update(body);
        if hash.finalize() == sum { Ok(()) } else { Err("a chunk has a wrong checksum") }
    }

    fn read(&mut self, kind: &[u8; 4], body: &'a [u8]) -> Result<(), &'static str> {
        let need = |len: usize, why: &'static str| {
            if body.len() < len { Err(why) } else { Ok(()) }
        };
        match kind {
            b"IHDR" => self.header(body),
            b"PLTE" => {
                if self.is_indexed() {
                    self.palette.colours = Some(body);
                }
                Ok(())
            }
            b"tRNS" => {
                if self.is_indexed() {
                    // One transparent colour, for which Pillow looks into the palette.
                    let n_opaque = body.iter().filter(|alpha| **alpha == 255).count();
                    self.palette.has_one_transparent =
                        n_opaque.checked_add(1) == Some(body.len()) && body.contains(&0);
                }
                match self.kind {
                    Some((_, 0)) => need(2, "its tRNS is too short"),
                    Some((_, 2)) => need(6, "its tRNS is too short"),
                    _ => Ok(()),
                }
            }
            b"gAMA" => need(4, "its gAMA is too short"),
            // Pillow 12 takes any number of whole values, Pillow 13 what begins with eight.
            b"cHRM" if !body.len().is_multiple_of(4) => need(32, "its cHRM is too short"),
            b"sRGB" => need(1, "its sRGB is too short"),
            b"pHYs" => need(9, "its pHYs is too short"),
            b"iCCP" => self.profile(body),
            b"tEXt" => {
                let (key, text) = split(body).unwrap_or((body, &[]));
                self.text(key, text.len())
            }
            b"zTXt" => self.packed_text(body),
            b"iTXt" => self.international_text(body),
            b"acTL" => self.animation(body),
            b"fcTL" => self.frame_control(body),
            _ => Ok(()),
        }
    }

    fn is_indexed(&self) -> bool {
        matches!(self.kind, Some((_, 3)))
    }

    fn header(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let header = body.first_chunk::<13>().ok_or("its header is too short")?;
        let &[w0, w1, w2, w3, h0, h1, h2, h3, depth, color, _, filter, interlace] =
            header;
        self.size = [[w0, w1, w2, w3], [h0, h1, h2, h3]].map(u32::from_be_bytes);
        let exists = match color {
            0 => matches!(depth, 1 | 2 | 4 | 8 | 16),
            2 | 4 | 6 => matches!(depth, 8 | 16),
            3 => matches!(depth, 1 | 2 | 4 | 8),
            _ => false,
        };
        if exists {
            self.kind = Some((depth, color));
        }
        self.is_interlaced |= interlace != 0;
        if filter == 0 { Ok(()) } else { Err("an unknown filter method") }
    }

    fn profile(&mut self, body: &[u8]) -> Result<(), &'static str> {
        // Without the zero after the name, Pillow takes the first byte for the method.
        let name = body.iter().position(|&byte| byte == 0);
        let rest = body.get(name.map_or(0, |at| at.saturating_add(1))..);
        match rest.and_then(<[u8]>::split_first) {
            None => Err("its colour profile is too short"),
            Some((0, packed)) => self.unpacked(packed).map(drop),
            Some(_) => Err("its colour profile has an unknown compression method"),
        }
    }

    fn packed_text(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let (key, text) = split(body).unwrap_or((body, &[]));
        let len = match text.split_first() {
            None => 0,
            Some((0, packed)) => self.unpacked(packed)?,
            Some(_) => return Err("a text has an unknown compression method"),
        };
        self.text(key, len)
    }

    fn international_text(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let Some((key, [is_packed, method, rest @ ..])) = split(body) else {
            return Ok(());
        };
        let text = split(rest).and_then(|(_, rest)| split(rest));
        let Some((_, text)) = text else { return Ok(()) };
        match (is_packed, method) {
            (0, _) => self.text(key, text.len()),
            (_, 0) => {
                let len = self.unpacked(text)?;
                self.text(key, len)
            }
            _ => Ok(()),
        }
    }

    /// The length of a packed text; 0 for one that cannot be unpacked, which Pillow passes over.
    fn unpacked(&mut self, packed: &[u8]) -> Result<usize, &'static str> {
        // A new stream does not see what is left of another's text.
        let out = &mut self.text;
        out.resize(MOST_TEXT.saturating_add(1), 0);
        let mut stream = Decompressor::new();
        let (mut read, mut made) = (0_usize, 0_usize);
        while !stream.is_done() && made < out.len() {
            let Ok((n_read, n_made)) = stream.read(&packed[read..], out, made, true)
            else {
                break;
            };
            read = read.saturating_add(n_read);
            made = made.saturating_add(n_made);
        }
        self.n_unpacked = self.n_unpacked.saturating_add(made.max(LEAST_UNPACKED));
        if made > MOST_TEXT || self.n_unpacked > MOST_TEXTS {
            return Err("its texts or profiles are too long or too many");
        }
        Ok(if stream.is_done() { made } else { 0 })
    }

    fn text(&mut self, key: &[u8], len: usize) -> Result<(), &'static str> {
        if !key.is_empty() {
            self.n_texts = self.n_texts.saturating_add(len);
        }
        if self.n_texts > MOST_TEXTS { Err("its texts are too long") } else { Ok(()) }
    }

    fn animation(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let n = body.first_chunk::<4>().filter(|_| body.len() >= 8);
        let n = u32::from_be_bytes(*n.ok_or("its acTL is too short")?);
        if self.n_frames.is_some() {
            self.n_frames = None;
        } else if (1..=1 << 31).contains(&n) {
            self.n_frames = Some(n);
        }
        Ok(())
    }

    fn frame_control(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let words = body.first_chunk::<26>().ok_or("its fcTL is too short")?;
        let mut words =
            words.as_chunks::<4>().0.iter().map(|&word| u32::from_be_bytes(word));
        let mut word = || words.next().unwrap_or(0);
        let (sequence, width, height, left, top) =
            (word(), word(), word(), word(), word());
        self.follow(sequence)?;
        let fits = |from: u32, len: u32, most: u32| {
            from.checked_add(len).is_some_and(|end| end <= most)
        };
        if !fits(left, width, self.size[0]) || !fits(top, height, self.size[1]) {
            return Err("a frame lies outside the image");
        }
        self.frame = Some([left, top, width, height]);
        Ok(())
    }

    fn frame_data(&mut self, chunk: &Chunk<'_>) -> Result<(), &'static str> {
        self.sequence = Some(self.sequence_of(chunk, self.sequence)?);
        Ok(())
    }

    /// The number of a frame's data, which follows the number `before`.
    fn sequence_of(
        &self,
        chunk: &Chunk<'_>,
        before: Option<u32>,
    ) -> Result<u32, &'static str> {
        if chunk.len < 4 {
            return Err("its fdAT is too short");
        }
        let sequence =
            self.bytes.get(chunk.at..).and_then(|rest| rest.first_chunk::<4>());
        let sequence = u32::from_be_bytes(*sequence.ok_or(TRUNCATED)?);
        let follows = before.and_then(|before| before.checked_add(1)) == Some(sequence);
        if follows { Ok(sequence) } else { Err("its frames do not follow each other") }
    }

    fn follow(&mut self, sequence: u32) -> Result<(), &'static str> {
        let expected = self.sequence.map_or(Some(0), |before| before.checked_add(1));
        if expected != Some(sequence) {
            return Err("its frames do not follow each other");
        }
        self.sequence = Some(sequence);
        Ok(())
    }
}

/// Heads of chunks, one after the other.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn next(&mut self) -> Option<Chunk<'a>> {
        let head = self.bytes.get(self.at..)?.first_chunk::<8>()?;
        let &[l0, l1, l2, l3, k0, k1, k2, k3] = head;
        let kind = [k0, k1, k2, k3];
        let len = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).ok()?;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if !kind.iter().all(is_name) {
            return None;
        }
        let at = self.at.saturating_add(8);
        self.at = at.saturating_add(len);
        Some(Chunk { kind, at, len, body: self.bytes.get(at..self.at) })
    }
}

/// What stands before and after the first zero.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..at], bytes.get(at.saturating_add(1)..)?))
}
