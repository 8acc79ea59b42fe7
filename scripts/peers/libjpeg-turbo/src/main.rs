//! libjpeg-turbo and fast_image_resize doing what `bothends bench ops` measures: decode, crop,
//! resize to 224 × 224 (bilinear with antialiasing), flip; 8-bit RGB, rows × columns × channels.
//!
//!     peer-libjpeg-turbo BOXES ROOT full|region THREADS PASSES
//!
//! BOXES has a line for each image: path, top, left, height, width, flip (0 or 1), separated by
//! tabs. Files are read into memory first. Every thread makes all samples, each from a place of
//! its own on; a pass lasts until the last is done; one pass is not counted. Prints one JSON
//! object: medians of whole passes, and a checksum of the pixels.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Barrier;
use std::time::Instant;

use fast_image_resize::images::{CroppedImage, Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

const SIDE: u32 = 224;

#[repr(C)]
struct Decoder {
    _private: [u8; 0],
}

#[repr(C)]
struct Decoded {
    pixels: *const u8,
    width: u32,
    height: u32,
    left: u32,
    top: u32,
}

unsafe extern "C" {
    fn libjpeg_version() -> *const c_char;
    fn decoder_new() -> *mut Decoder;
    fn decoder_free(decoder: *mut Decoder);
    fn decode_full(
        d: *mut Decoder,
        file: *const u8,
        len: usize,
        out: *mut Decoded,
    ) -> c_int;
    fn decode_region(
        d: *mut Decoder,
        file: *const u8,
        len: usize,
        part: *const u32,
        out: *mut Decoded,
    ) -> c_int;
}

/// An image's file, and what becomes of it.
struct Work {
    path: String,
    file: Vec<u8>,
    /// Top, left, height, width.
    part: [u32; 4],
    flip: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Full,
    Region,
}

struct Worker {
    decoder: *mut Decoder,
    resizer: Resizer,
    form: Form,
    sample: Vec<u8>,
}

// SAFETY: a decoder is used by the one thread that has the worker.
unsafe impl Send for Worker {}

impl Worker {
    fn new(form: Form) -> Self {
        // SAFETY: it has no preconditions.
        let decoder = unsafe { decoder_new() };
        assert!(!decoder.is_null(), "no memory for a decoder");
        let sample = vec![0; (SIDE * SIDE * 3) as usize];
        Self { decoder, resizer: Resizer::new(), form, sample }
    }

    fn make(&mut self, work: &Work) {
        let Work { file, part, .. } = work;
        let mut decoded =
            Decoded { pixels: std::ptr::null(), width: 0, height: 0, left: 0, top: 0 };
        let (file, len) = (file.as_ptr(), file.len());
        // SAFETY: the file and the box outlive the call, and the decoder is this thread's.
        let ok = unsafe {
            match self.form {
                Form::Full => decode_full(self.decoder, file, len, &mut decoded),
                Form::Region => {
                    decode_region(self.decoder, file, len, part.as_ptr(), &mut decoded)
                }
            }
        };
        assert!(ok == 1, "libjpeg-turbo cannot decode {} to RGB", work.path);
        let Decoded { width, height, .. } = decoded;
        let n_bytes = width as usize * height as usize * 3;
        // SAFETY: so many bytes have been decoded, and stay until the next call.
        let pixels = unsafe { std::slice::from_raw_parts(decoded.pixels, n_bytes) };
        let image =
            ImageRef::new(width, height, pixels, PixelType::U8x3).expect("its size");
        let out = &mut self.sample[..];
        let mut sample =
            Image::from_slice_u8(SIDE, SIDE, out, PixelType::U8x3).expect("its size");
        // A view, so that nothing outside the box is looked at.
        let [top, left, height, width] = *part;
        let (left, top) = (left - decoded.left, top - decoded.top);
        let view =
            CroppedImage::new(&image, left, top, width, height).expect("it lies inside");
        let options =
            ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        self.resizer.resize(&view, &mut sample, &options).expect("sizes and types fit");
        if work.flip {
            for row in self.sample.chunks_exact_mut(SIDE as usize * 3) {
                row.as_chunks_mut::<3>().0.reverse();
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: it came from `decoder_new`, and nobody uses it any more.
        unsafe { decoder_free(self.decoder) }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, boxes, root, form, threads, passes] = &args[..] else {
        eprintln!("usage: peer-libjpeg-turbo BOXES ROOT full|region THREADS PASSES");
        std::process::exit(2);
    };
    let form = if form == "region" { Form::Region } else { Form::Full };
    let n_threads: usize = threads.parse().expect("THREADS is a number");
    let n_passes: usize = passes.parse().expect("PASSES is a number");
    let all = read(boxes, root);
    let mut workers: Vec<Worker> = (0..n_threads).map(|_| Worker::new(form)).collect();
    let sum: u64 = all
        .iter()
        .map(|work| {
            workers[0].make(work);
            workers[0].sample.iter().map(|&byte| u64::from(byte)).sum::<u64>()
        })
        .sum();
    let mut passes: Vec<(f64, f64)> =
        (0..=n_passes).map(|_| one_pass(&mut workers, &all)).collect();
    passes.remove(0);
    // SAFETY: a literal of the C file.
    let version = unsafe { CStr::from_ptr(libjpeg_version()) };
    println!(
        "{{\"libjpeg_turbo\": \"{}\", \"images\": {}, \"mean_value\": {:.4}, \
         \"images_per_s\": {:.3}, \"cpu_us_per_image\": {:.3}}}",
        version.to_string_lossy(),
        all.len(),
        sum as f64 / (all.len() * (SIDE * SIDE * 3) as usize) as f64,
        median(passes.iter().map(|(rate, _)| *rate)),
        median(passes.iter().map(|(_, cpu)| *cpu)),
    );
}

fn read(boxes: &str, root: &str) -> Vec<Work> {
    let lines = std::fs::read_to_string(boxes).expect("BOXES can be read");
    let work = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let number = |i: usize| columns[i].parse::<u32>().expect("a number");
        let path = columns[0].to_owned();
        let file = std::fs::read(format!("{root}/{path}")).expect("an image can be read");
        let part = [number(1), number(2), number(3), number(4)];
        Work { path, file, part, flip: number(5) == 1 }
    };
    lines.lines().map(work).collect()
}

/// Images per second, and CPU time per image in microseconds.
fn one_pass(workers: &mut [Worker], all: &[Work]) -> (f64, f64) {
    let n_workers = workers.len();
    let ready = Barrier::new(n_workers);
    let ends: Vec<(Instant, Instant, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(nth, worker)| {
                let (ready, first) = (&ready, nth * all.len() / n_workers);
                scope.spawn(move || {
                    ready.wait();
                    let (start, cpu) = (Instant::now(), thread_cpu_ns());
                    for idx in 0..all.len() {
                        worker.make(&all[(first + idx) % all.len()]);
                    }
                    (start, Instant::now(), thread_cpu_ns() - cpu)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let start = ends.iter().map(|end| end.0).min().expect("a worker");
    let end = ends.iter().map(|end| end.1).max().expect("a worker");
    let n_samples = (all.len() * n_workers) as f64;
    let cpu_ns: u64 = ends.iter().map(|end| end.2).sum();
    (n_samples / (end - start).as_secs_f64(), cpu_ns as f64 / 1e3 / n_samples)
}

/// CPU time of the calling thread, user and system.
fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}
