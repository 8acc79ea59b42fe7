//! What one sample of a session may cost: pixels, work, and bytes of its record. A session that asks for
//! more is refused before any work begins, in one line that names the limit and what to do.
//!
//! What decoding takes is bounded where images are seen (`DecodeRoom`), and what batches take by `memory`.

use bothends_core::ids::SampleId;
use bothends_core::recipe::{MAX_DECODE_BYTES, Recipe, RecordShape, SampleCost};
use bothends_dataset::Table;
use bothends_ops::{DecodeRoom, PixelLimit};

const MOST_PIXELS: u64 = SampleCost::MOST_PIXELS;
const MOST_PASSES: u64 = SampleCost::MOST_PASSES;

/// Most pixels of an image for each byte of its file. Photographs have 4 to 20, drawings and pages in
/// two colours a few hundred; a file that says nothing but how large it is has a thousand and more.
const MOST_PIXELS_PER_BYTE: u64 = 512;

/// Reads `--max-pixels`.
///
/// # Errors
/// What to give.
pub(crate) fn pixels(text: &str) -> Result<PixelLimit, String> {
    if text == "off" {
        return Ok(PixelLimit::NONE);
    }
    let most = text.parse().ok().filter(|most| *most > 0);
    let most = most.ok_or_else(|| "give pixels, 1 or more, or off".to_owned())?;
    Ok(PixelLimit { most, per_byte: MOST_PIXELS_PER_BYTE })
}

/// A record of this length is taken however little memory there is.
const LEAST_RECORD_BYTES: u64 = 64 << 20;

/// Checks what samples of a session may cost.
///
/// # Errors
/// One line: which limit, and the remedy.
pub(crate) fn check(
    recipe: &Recipe,
    (table, record): (&Table, RecordShape),
    room: DecodeRoom,
) -> Result<(), String> {
    let name = recipe.name();
    let SampleCost { most_pixels, passes } = recipe.sample_cost(record);
    if most_pixels > MOST_PIXELS {
        return Err(format!(
            "the recipe `{name}` makes an image of {most_pixels} pixels and this device makes \
             at most {MOST_PIXELS}; use a smaller size, or leave the device out"
        ));
    }
    if passes > MOST_PASSES {
        return Err(format!(
            "the recipe `{name}` computes {passes} pixels for a sample and this device computes \
             at most {MOST_PASSES}; use fewer ops, smaller kernels or a smaller size before \
             them, or leave the device out"
        ));
    }
    let most_bytes = record_bytes(room);
    let ids = (0..table.n_samples()).map(SampleId);
    let mut extents = ids.map(|id| (id, table.extent(id)));
    match extents.find(|(_, extent)| u64::from(extent.len) > most_bytes) {
        None => Ok(()),
        Some((SampleId(id), extent)) => Err(format!(
            "sample {id} is a record of {} bytes and this device reads at most {most_bytes} \
             for one; use fewer --cores on it, split the record, or leave the device out",
            extent.len
        )),
    }
}

/// Most bytes of a record: a worker keeps one, and all together take no more than decoding may.
fn record_bytes(room: DecodeRoom) -> u64 {
    let share = room.together_bytes / u64::from(room.n_workers.max(1));
    share.clamp(LEAST_RECORD_BYTES, MAX_DECODE_BYTES)
}

#[cfg(test)]
mod tests {
    use bothends_core::sample::{Encoding, Extent};
    use bothends_dataset::TableBuilder;

    use super::*;

    const ROOM: DecodeRoom = DecodeRoom {
        together_bytes: 8 << 30,
        one_bytes: MAX_DECODE_BYTES,
        n_workers: 2,
        pixels: PixelLimit::NONE,
    };

    fn table(len: u32) -> Table {
        let mut table = TableBuilder::new(Encoding::Image);
        let file = table.file("a/b").unwrap();
        for len in [10, len] {
            table.sample(Extent { file, offset: 0, len }, 0);
        }
        table.build().unwrap()
    }

    fn refusal(ops: &str, len: u32, room: DecodeRoom) -> Option<String> {
        let json = format!(
            r#"{{"name": "r", "version": 1, "ops": [{{"op": "decode"}}, {ops},
                {{"op": "center_crop", "size": 8}}]}}"#
        );
        let recipe = Recipe::from_json(&json).unwrap();
        check(&recipe, (&table(len), RecordShape::Image), room).err()
    }

    #[test]
    fn pixels_are_a_number_or_off() {
        let limit = pixels("64000000").unwrap();
        assert_eq!((limit.most, limit.per_byte), (64_000_000, MOST_PIXELS_PER_BYTE));
        assert_eq!(pixels("off"), Ok(PixelLimit::NONE));
        for wrong in ["", "0", "-1", "64M", "none"] {
            assert!(pixels(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bombs_are_refused_by_the_limit_that_they_exceed() {
        let size = |size| format!(r#"{{"op": "resize", "size": [{size}, {size}]}}"#);
        assert_eq!(refusal(&size(8192), 10, ROOM), None);
        let large = refusal(&size(13_370), 10, ROOM).unwrap();
        assert!(large.contains("makes an image of 178756900 pixels"), "{large}");
        assert!(large.contains("at most 67108864; use a smaller size"), "{large}");
        let blurs = vec![r#"{"op": "gaussian_blur", "kernel_size": 63}"#; 60].join(",");
        let many = refusal(&format!("{},{blurs}", size(1024)), 10, ROOM).unwrap();
        assert!(many.contains("at most 1073741824; use fewer ops"), "{many}");
        for (n_workers, together_bytes, most) in [
            (2, 8 << 30, MAX_DECODE_BYTES),
            (64, 8 << 30, 128 << 20),
            (64, 0, LEAST_RECORD_BYTES),
        ] {
            let room = DecodeRoom { n_workers, together_bytes, ..ROOM };
            let most_len = u32::try_from(most).unwrap();
            assert_eq!(refusal(&size(8), most_len, room), None);
            let long = refusal(&size(8), most_len + 1, room).unwrap();
            assert!(long.contains("sample 1 is a record of"), "{long}");
            assert!(long.contains(&format!("at most {most} for one")), "{long}");
        }
    }
}
