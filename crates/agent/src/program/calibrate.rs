//! Measures this machine and writes what it found as a preset of the emulated device.
//!
//! Every figure is the middle of several rounds, with the least and the greatest as its ends. What cannot be measured
//! from here stays `uncalibrated` in the file, which says so: power, and how fast a core is compared with one of the
//! machine that will emulate this one.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bothends_core::sample::{Encoding, Record};
use bothends_ops::image::Image;

use super::log;

/// Rounds of each measurement.
const ROUNDS: usize = 5;
/// Most files that are looked at.
const MOST_FILES: usize = 4096;
/// Bytes of a small read, and what direct reads are aligned to.
const SMALL: usize = 4096;
/// Bytes of a large read.
const LARGE: usize = 1 << 20;
/// Small reads of a round.
const READS: usize = 64;
/// Longest time that a round takes.
const ROUND: Duration = Duration::from_secs(1);
/// Most images of a round, most bytes of one, and of all together.
const MOST_IMAGES: usize = 64;
const MOST_IMAGE_BYTES: u64 = 32 << 20;
const MOST_BYTES_OF_IMAGES: usize = 256 << 20;
/// Longest time that is spent to find them.
const SEARCH: Duration = Duration::from_secs(20);
/// What a JPEG begins with.
const JPEG: [u8; 2] = [0xff, 0xd8];
/// Bytes that cross the link in a round.
const LINK_BYTES: usize = 64 << 20;
/// What the file says of the rest.
const NOT_MEASURED: &str = "not measured";
/// How long the other end of the link may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// A figure: the middle of its rounds, and their ends.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figure {
    low: f64,
    value: f64,
    high: f64,
}

impl Figure {
    /// Of what each round gave; it is at least a thousandth, the least that the file tells.
    fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let at = |n: usize| rounds.get(n).copied().unwrap_or(0.0).max(0.001);
        let last = rounds.len().saturating_sub(1);
        Self { low: at(0), value: at(last / 2), high: at(last) }
    }

    fn constant(self, unit: &str, source: &str, note: &str) -> String {
        format!(
            r#"{{ "value": {:.3}, "low": {:.3}, "high": {:.3}, "unit": "{unit}", "source": "{source}", "note": "{note}" }}"#,
            self.value, self.low, self.high
        )
    }
}

/// What was measured.
#[derive(Debug)]
struct Measured {
    /// Date and machine, as a source.
    source: String,
    cores: usize,
    reads: &'static str,
    rate_of: &'static str,
    read_us: Figure,
    read_mb_per_s: Figure,
    coded_mb_per_s: Figure,
    pixels_m_per_s: Figure,
    link_us: Figure,
    link_mb_per_s: Figure,
}

/// Measures this machine with the files below `root`, and makes the preset `file`, which must not exist.
///
/// # Errors
/// If there is nothing to measure with, or the file cannot be made.
pub(super) fn calibrate(root: &Path, file: &Path) -> Result<()> {
    let name = file.file_stem().and_then(|own| own.to_str()).unwrap_or("measured");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    ensure!(
        !name.is_empty() && name.chars().all(is_plain),
        "the preset is called as its file, `{name}`; use letters, digits and hyphens"
    );
    // Before minutes are spent, and never in place of another.
    let made = OpenOptions::new().write(true).create_new(true).open(file);
    let mut made = made.with_context(|| format!("cannot make {}", file.display()))?;
    let measured = match Measured::of(root) {
        Ok(measured) => measured,
        Err(error) => {
            let _ = std::fs::remove_file(file);
            return Err(error);
        }
    };
    made.write_all(measured.preset(name).as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))?;
    log::print(&measured.words());
    let made = file.display();
    log::print(&format!("made {made}; what it calls uncalibrated was not measured"));
    Ok(())
}

impl Measured {
    fn of(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        collect(root, &mut files)
            .with_context(|| format!("cannot read {}", root.display()))?;
        files.sort();
        let media = Media::open(&files).with_context(|| {
            format!(
                "there is no file of at least {SMALL} bytes below {}; give the data set's folder",
                root.display()
            )
        })?;
        let (read_us, read_mb_per_s) = media.measure()?;
        let (coded_mb_per_s, pixels_m_per_s) = decode(&files).with_context(|| {
            format!("there is no JPEG below {} to decode", root.display())
        })?;
        let (link_us, link_mb_per_s) = link().context("cannot measure the link")?;
        Ok(Self {
            source: format!("measured on {}, {}", today(), machine()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            reads: media.how,
            rate_of: media.rate_of(),
            read_us,
            read_mb_per_s,
            coded_mb_per_s,
            pixels_m_per_s,
            link_us,
            link_mb_per_s,
        })
    }

    fn preset(&self, name: &str) -> String {
        let about = format!(r#""A machine, {}.""#, self.source);
        let parts = [
            ("name", format!(r#""{name}""#)),
            ("about", about),
            ("media", self.media()),
            ("compute", self.compute()),
            ("work", self.work()),
            ("link", self.link()),
            ("power", power()),
        ];
        let lines: Vec<String> =
            parts.iter().map(|(key, value)| format!("  \"{key}\": {value}")).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    fn media(&self) -> String {
        let of = |figure: Figure, unit, what: &str| {
            figure.constant(unit, &self.source, &format!("{}, {what}", self.reads))
        };
        object(&[
            ("model", r#""flat""#.to_owned()),
            ("latency", of(self.read_us, "us", "4 KiB")),
            ("bandwidth", of(self.read_mb_per_s, "MB/s", self.rate_of)),
        ])
    }

    fn compute(&self) -> String {
        let (n, source) = (self.cores, &self.source);
        let relative = "no other machine was measured: divide the coded_bytes of the machine that \
                        emulates by those below, and write it here";
        object(&[
            ("model", r#""cores""#.to_owned()),
            (
                "cores",
                format!(r#"{{ "value": {n}, "unit": "1", "source": "{source}" }}"#),
            ),
            ("relative_time", guess(1.0, "x", relative)),
        ])
    }

    fn work(&self) -> String {
        let of = |figure: Figure, unit| {
            figure.constant(unit, &self.source, "JPEG on one core")
        };
        object(&[
            ("fuel", guess(2000.0, "M/s", NOT_MEASURED)),
            ("bytes", guess(1000.0, "MB/s", NOT_MEASURED)),
            ("coded_bytes", of(self.coded_mb_per_s, "MB/s")),
            ("pixels", of(self.pixels_m_per_s, "Mpx/s")),
        ])
    }

    fn link(&self) -> String {
        let loopback =
            "TCP over this machine's loopback: the most that a link of it can do";
        let of = |figure: Figure, unit| figure.constant(unit, &self.source, loopback);
        object(&[
            ("model", r#""wire""#.to_owned()),
            ("latency", of(self.link_us, "us")),
            ("bandwidth", of(self.link_mb_per_s, "MB/s")),
        ])
    }

    fn words(&self) -> String {
        format!(
            "{}: reads of 4 KiB {:.0} us ({}), {} {:.0} MB/s; JPEG {:.1} MB/s and {:.1} Mpx/s on each of {} \
             cores; loopback {:.0} us, {:.0} MB/s",
            self.source,
            self.read_us.value,
            self.reads,
            self.rate_of,
            self.read_mb_per_s.value,
            self.coded_mb_per_s.value,
            self.pixels_m_per_s.value,
            self.cores,
            self.link_us.value,
            self.link_mb_per_s.value,
        )
    }
}

fn power() -> String {
    let of = |watts| guess(watts, "W", NOT_MEASURED);
    object(&[
        ("idle", of(5.0)),
        ("media_active", of(1.0)),
        ("compute_active", of(1.0)),
        ("link_active", of(1.0)),
    ])
}

/// A constant that was not measured.
fn guess(value: f64, unit: &str, note: &str) -> String {
    format!(
        r#"{{ "value": {value}, "unit": "{unit}", "source": "uncalibrated", "note": "{note}" }}"#
    )
}

fn object(parts: &[(&str, String)]) -> String {
    let lines: Vec<String> =
        parts.iter().map(|(key, value)| format!("    \"{key}\": {value}")).collect();
    format!("{{\n{}\n  }}", lines.join(",\n"))
}

/// Files below `folder`, without links: at most [`MOST_FILES`].
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if files.len() >= MOST_FILES {
            return Ok(());
        }
        if kind.is_dir() {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Files to read from, and how.
struct Media {
    files: Vec<(File, u64)>,
    how: &'static str,
}

impl Media {
    /// Files that can be read past the page cache; else as they are. None if all are too small.
    fn open(paths: &[PathBuf]) -> Option<Self> {
        for (flags, how) in
            [(libc::O_DIRECT, "direct reads"), (0, "through the page cache")]
        {
            let open = |path: &PathBuf| {
                let file =
                    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
                let bytes = file.metadata().ok()?.len();
                let mut buffer = Buffer::new();
                let is_read =
                    file.read_at(buffer.part(SMALL), 0).is_ok_and(|n| n == SMALL);
                is_read.then_some((file, bytes))
            };
            let files: Vec<_> = paths.iter().filter_map(open).take(256).collect();
            if !files.is_empty() {
                return Some(Self { files, how });
            }
        }
        None
    }

    /// Latency of small reads in microseconds, and the rate of large ones in megabytes per second.
    fn measure(&self) -> Result<(Figure, Figure)> {
        let mut buffer = Buffer::new();
        let mut state = 1_u64;
        let mut latencies = Vec::new();
        for _ in 0..ROUNDS {
            let (began, mut n) = (Instant::now(), 0);
            while n < READS && began.elapsed() < ROUND {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let nth = usize::try_from(state >> 33).unwrap_or(0) % self.files.len();
                let (file, bytes) = &self.files[nth];
                let n_places = (bytes / SMALL as u64).max(1);
                let at = (state >> 20) % n_places * SMALL as u64;
                file.read_at(buffer.part(SMALL), at).context("a read has failed")?;
                n += 1;
            }
            latencies
                .push(began.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(n)?));
        }
        let latency = Figure::of(latencies);
        let rates = self.rates(&mut buffer, latency.value / 1e6)?;
        Ok((latency, Figure::of(rates)))
    }

    /// Megabytes per second of large reads, in rounds. Where all files are smaller than one, the latency of
    /// each read, in seconds, is no part of the rate: whoever uses the preset adds it to every read.
    fn rates(&self, buffer: &mut Buffer, latency_s: f64) -> Result<Vec<f64>> {
        let large = self.large();
        let (files, latency_s) = match large.is_empty() {
            true => (self.files.iter().collect(), latency_s),
            false => (large, 0.0),
        };
        let mut rates = Vec::new();
        let mut all = files.into_iter().cycle();
        for _ in 0..ROUNDS {
            let (began, mut bytes, mut n_reads) = (Instant::now(), 0_usize, 0_u32);
            while bytes < LINK_BYTES && began.elapsed() < ROUND {
                let Some((file, length)) = all.next() else { break };
                let mut at = 0;
                while at < *length && began.elapsed() < ROUND {
                    let n = file
                        .read_at(buffer.part(LARGE), at)
                        .context("a read has failed")?;
                    if n == 0 {
                        break;
                    }
                    bytes += n;
                    at += n as u64;
                    n_reads += 1;
                }
            }
            let took_s = began.elapsed().as_secs_f64();
            // Of reads that take no longer than small ones, the rate is at most ten times what was seen.
            let transfer_s = (took_s - f64::from(n_reads) * latency_s).max(took_s / 10.0);
            rates.push(megabytes(bytes) / transfer_s);
        }
        Ok(rates)
    }

    /// The files that hold a large read.
    fn large(&self) -> Vec<&(File, u64)> {
        self.files.iter().filter(|(_, bytes)| *bytes >= LARGE as u64).collect()
    }

    /// What the rate is one of.
    fn rate_of(&self) -> &'static str {
        match self.large().is_empty() {
            true => "smaller files less the latency of each read",
            false => "1 MiB",
        }
    }
}

/// Memory that begins where direct reads want it.
struct Buffer {
    bytes: Vec<u8>,
    begin: usize,
}

impl Buffer {
    fn new() -> Self {
        let bytes = vec![0; LARGE + SMALL];
        let begin = bytes.as_ptr().align_offset(SMALL).min(SMALL);
        Self { bytes, begin }
    }

    fn part(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + bytes]
    }
}

/// Coded megabytes and millions of pixels per second of one thread; nothing without a JPEG.
fn decode(paths: &[PathBuf]) -> Option<(Figure, Figure)> {
    let mut image = Image::default();
    let (mut images, mut n_bytes, searched) = (Vec::new(), 0, Instant::now());
    for path in paths {
        let is_enough = images.len() == MOST_IMAGES || n_bytes >= MOST_BYTES_OF_IMAGES;
        if is_enough || searched.elapsed() >= SEARCH {
            break;
        }
        let Some(bytes) = jpeg(path) else { continue };
        let record = Record::new(&bytes, Encoding::Image);
        if bothends_ops::decode::decode(record, &mut image).is_ok() {
            n_bytes += bytes.len();
            images.push(bytes);
        }
    }
    if images.is_empty() {
        return None;
    }
    let (mut coded, mut decoded) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (began, mut bytes, mut pixels) = (Instant::now(), 0, 0);
        for own in &images {
            if began.elapsed() >= ROUND {
                break;
            }
            let record = Record::new(own, Encoding::Image);
            if bothends_ops::decode::decode(record, &mut image).is_ok() {
                bytes += own.len();
                pixels += image.height() * image.width();
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        coded.push(megabytes(bytes) / seconds);
        decoded.push(megabytes(pixels) / seconds);
    }
    Some((Figure::of(coded), Figure::of(decoded)))
}

/// The file, where it begins as a JPEG does; of any other, which may be large, the beginning is read alone.
fn jpeg(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let is_small = file.metadata().is_ok_and(|own| own.len() <= MOST_IMAGE_BYTES);
    let mut bytes = vec![0; JPEG.len()];
    file.read_exact(&mut bytes).ok()?;
    if !is_small || bytes != JPEG {
        return None;
    }
    file.take(MOST_IMAGE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Half a round trip in microseconds, and megabytes per second, over TCP on this machine.
fn link() -> Result<(Figure, Figure)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let other = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        prepare(&stream)?;
        let mut buffer = vec![0; LARGE];
        // A round trip answers a byte with a byte; whatever is longer is only taken.
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                1 => stream.write_all(&[1])?,
                _ => {}
            }
        }
    });
    let mut stream = TcpStream::connect(address)?;
    prepare(&stream)?;
    let mut latencies = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..READS {
            stream.write_all(&[1])?;
            stream.read_exact(&mut [0])?;
        }
        latencies.push(began.elapsed().as_secs_f64() * 1e6 / 2.0 / 64.0);
    }
    let part = vec![0; LARGE];
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let (began, mut bytes) = (Instant::now(), 0);
        while bytes < LINK_BYTES && began.elapsed() < ROUND {
            stream.write_all(&part)?;
            bytes += LARGE;
        }
        rates.push(megabytes(bytes) / began.elapsed().as_secs_f64());
    }
    drop(stream);
    let _ = other.join();
    Ok((Figure::of(latencies), Figure::of(rates)))
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))
}

#[allow(clippy::cast_precision_loss, reason = "a figure of a few digits")]
fn megabytes(n: usize) -> f64 {
    n as f64 / 1e6
}

/// The processor, as the system names it, without what a JSON string could not hold.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model =
        model.and_then(|line| line.split_once(": ")).map_or("", |(_, model)| model);
    let is_plain =
        |c: &char| c.is_ascii() && !c.is_ascii_control() && !matches!(c, '"' | '\\');
    let model: String = model.chars().filter(is_plain).take(80).collect();
    if model.is_empty() { std::env::consts::ARCH.to_owned() } else { model }
}

/// The day, in UTC.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = date(since.as_secs() / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of the `n`th day after 1 January 1970.
fn date(n: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, n);
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if left < days {
            break;
        }
        left -= days;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (n, expected) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (11_016, (2000, 2, 29)),
            (20_783, (2026, 11, 26)),
            (20_818, (2026, 12, 31)),
        ] {
            assert_eq!(date(n), expected);
        }
    }

    #[test]
    fn a_figure_lies_between_its_ends() {
        let figure = Figure::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(figure, Figure { low: 1.0, value: 2.0, high: 3.0 });
        let none = Figure::of(Vec::new());
        assert!(none.low > 0.0 && none.low <= none.value && none.value <= none.high);
    }

    #[test]
    fn an_image_is_told_by_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (bytes, is_jpeg) in
            [(&b"\xff\xd8\xff\xe0"[..], true), (b"\x89PNG", false), (b"\xff", false)]
        {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(jpeg(&file), is_jpeg.then(|| bytes.to_vec()));
        }
        assert_eq!(jpeg(folder.path()), None);
    }

    /// With small files the figure was one of their latency, which the preset has already.
    #[test]
    fn the_rate_is_that_of_large_reads_where_there_are_any() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, n: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![7; n]).unwrap();
            path
        };
        let small = of("small", 2 * SMALL);
        let media = Media::open(std::slice::from_ref(&small)).unwrap();
        assert!(media.large().is_empty() && media.rate_of().contains("smaller"));
        let media = Media::open(&[small, of("large", LARGE)]).unwrap();
        assert!(media.large().len() == 1 && media.rate_of().contains("1 MiB"));
    }

    #[test]
    fn what_cannot_be_measured_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.json");
        let error = calibrate(folder.path(), &file).unwrap_err().to_string();
        assert!(error.starts_with("there is no file of at least 4096 bytes"), "{error}");
        assert!(!file.exists());
        let error =
            calibrate(folder.path(), &folder.path().join("a b.json")).unwrap_err();
        assert!(error.to_string().contains("`a b`"), "{error}");
        std::fs::write(&file, "mine").unwrap();
        assert!(calibrate(folder.path(), &file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }
}
