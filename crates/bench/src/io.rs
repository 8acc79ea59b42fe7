//! `bench io`: the rates of the readers when the bytes are not used.
//!
//! Records are read in shuffled order, a new one for each pass, by one reader after the other. Files are
//! opened as needed, as in a run. *Warm* reads come from the page cache; *direct* ones bypass it, if the
//! file system allows that.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bothends_core::columns;
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::permutation::Permutation;
use bothends_io::{
    Direct, Files, ReadRequest, Reader, ReaderConfig, ReaderKind, open_reader,
};
use serde::Serialize;

use crate::records::DataSet;
use crate::table::cell;
use crate::timing::{median, process_cpu_ns};
use crate::{BenchError, Tell};

/// Files that stay open, as in a run.
const MOST_OPEN: usize = 64;

/// Buffers beyond those in flight: they are dropped as soon as they are polled.
const SPARE_BUFFERS: u32 = 8;

/// How long a reader may give nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Debug, Clone)]
pub struct IoBench {
    /// A data set.
    pub data: PathBuf,
    /// Only its first so many samples.
    pub limit: Option<u64>,
    /// Seed of the order.
    pub seed: u64,
    /// Readers.
    pub readers: Vec<ReaderKind>,
    /// The most reads in flight.
    pub depths: Vec<u32>,
    /// Passes over all records, after one that is not counted.
    pub passes: u32,
}

/// The results.
#[derive(Debug, Clone, Serialize)]
pub struct IoResult {
    /// Records of a pass.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Counted passes.
    pub passes: u32,
    /// One for each reader, depth and use of the page cache.
    pub variants: Vec<IoVariantResult>,
    /// What could not be measured, or not as requested.
    pub notes: Vec<String>,
}

/// The result of one reader; medians of whole passes.
#[derive(Debug, Clone, Serialize)]
pub struct IoVariantResult {
    /// `uring` or `pread`.
    pub reader: &'static str,
    /// `warm` or `direct`.
    pub cache: &'static str,
    /// The most reads in flight.
    pub depth: u32,
    /// Records per second.
    pub records_per_s: f64,
    /// Bytes of records per second, in millions.
    pub mb_per_s: f64,
    /// CPU time per record in microseconds, including the kernel's threads for io_uring; `None` if
    /// the kernel does not report it.
    pub cpu_us_per_record: Option<f64>,
}

/// A reader with its files and its passes: seconds, and CPU time in nanoseconds.
#[derive(Debug)]
struct Contender {
    reader: Box<dyn Reader>,
    files: Files,
    cache: &'static str,
    depth: u32,
    passes: Vec<(f64, Option<u64>)>,
}

impl IoBench {
    /// Measures, on this thread.
    ///
    /// # Errors
    /// [`BenchError`] when the data cannot be read, or a reader that was asked for by name
    /// cannot be had.
    pub fn run(&self, tell: Tell<'_>) -> Result<IoResult, BenchError> {
        let data = DataSet::open(&self.data, self.limit)?;
        let n = data.table.n_samples();
        let mut notes = Vec::new();
        let mut contenders = self.contenders(&data, &mut notes)?;
        for pass in 0..=self.passes {
            tell(&format!("reading: pass {pass} of {}", self.passes));
            let order = Permutation::new(n, self.seed, EpochIdx(pass));
            let n_contenders = contenders.len();
            for turn in 0..n_contenders {
                let contender = &mut contenders[(turn + pass as usize) % n_contenders];
                let (start, cpu) = (Instant::now(), process_cpu_ns());
                one_pass(contender, &data, &order)?;
                let seconds = start.elapsed().as_secs_f64();
                let cpu =
                    cpu.zip(process_cpu_ns()).map(|(from, to)| to.saturating_sub(from));
                // The first pass only warms up.
                if pass > 0 {
                    contender.passes.push((seconds, cpu));
                }
            }
        }
        let bytes = (0..n).map(|i| u64::from(data.table.extent(SampleId(i)).len)).sum();
        let variants = contenders.iter().map(|contender| contender.result(n, bytes));
        Ok(IoResult {
            records: n,
            bytes,
            passes: self.passes,
            variants: variants.collect(),
            notes,
        })
    }

    fn contenders(
        &self,
        data: &DataSet,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Contender>, BenchError> {
        let mut ways = vec![(Direct::Off, "warm")];
        let probe = Files::new(&data.root, 1, Direct::Auto);
        let file = data.table.extent(SampleId(0)).file;
        if probe.open(file, || data.table.file_path(file))?.is_direct() {
            ways.push((Direct::Auto, "direct"));
        } else {
            notes
                .push("no direct reads: this file system does not allow them".to_owned());
        }
        let mut contenders = Vec::new();
        for &kind in &self.readers {
            for &(direct, cache) in &ways {
                for &depth in &self.depths {
                    let n_buffers = depth.saturating_add(SPARE_BUFFERS);
                    let config = ReaderConfig {
                        kind,
                        depth,
                        n_buffers,
                        ..ReaderConfig::default()
                    };
                    let reader = open_reader(&config)?;
                    if let Some(note) = reader.note() {
                        notes.push(format!(
                            "{} with depth {depth}: {note}",
                            reader.name()
                        ));
                    }
                    let files = Files::new(&data.root, MOST_OPEN, direct);
                    let passes = Vec::new();
                    contenders.push(Contender { reader, files, cache, depth, passes });
                }
            }
        }
        notes.sort();
        notes.dedup();
        Ok(contenders)
    }
}

/// Reads all records in `order`, and drops them.
fn one_pass(
    contender: &mut Contender,
    data: &DataSet,
    order: &Permutation,
) -> Result<(), BenchError> {
    let Contender { reader, files, .. } = contender;
    let n = data.table.n_samples();
    let (mut n_asked, mut n_done) = (0, 0);
    while n_done < n {
        while n_asked < n && reader.in_flight() < reader.depth() {
            let extent = data.table.extent(SampleId(order.at(n_asked)));
            let file = files.open(extent.file, || data.table.file_path(extent.file))?;
            let (offset, len) = (extent.offset, extent.len);
            if reader.submit(ReadRequest { file, offset, len, tag: n_asked }).is_err() {
                break;
            }
            n_asked += 1;
        }
        let silent =
            BenchError::Silent { reader: reader.name(), seconds: PATIENCE.as_secs() };
        reader.poll(PATIENCE).ok_or(silent)?.result?;
        n_done += 1;
    }
    Ok(())
}

impl Contender {
    fn result(&self, n_records: u64, n_bytes: u64) -> IoVariantResult {
        let seconds: Vec<f64> = self.passes.iter().map(|(seconds, _)| *seconds).collect();
        let seconds = median(&seconds);
        let cpu: Option<Vec<f64>> =
            self.passes.iter().map(|(_, cpu)| cpu.map(|ns| ns as f64)).collect();
        IoVariantResult {
            reader: self.reader.name(),
            cache: self.cache,
            depth: self.depth,
            records_per_s: n_records as f64 / seconds,
            mb_per_s: n_bytes as f64 / 1e6 / seconds,
            cpu_us_per_record: cpu.map(|cpu| median(&cpu) / 1e3 / n_records as f64),
        }
    }
}

impl IoResult {
    /// The result for a terminal, ending in a line break.
    #[must_use]
    pub fn table(&self) -> String {
        let Self { records, bytes, passes, .. } = self;
        let mut text = format!(
            "{records} records of {:.1} kB in shuffled order, {passes} passes, interleaved; \
             medians of whole passes\n\n",
            *bytes as f64 / 1e3 / (*records).max(1) as f64,
        );
        let headings = ["reader", "cache", "depth", "records/s", "MB/s", "CPU µs/record"];
        let mut lines = vec![headings.map(str::to_owned).to_vec()];
        lines.extend(self.variants.iter().map(|variant| {
            vec![
                variant.reader.to_owned(),
                variant.cache.to_owned(),
                variant.depth.to_string(),
                cell(Some(variant.records_per_s), 0),
                cell(Some(variant.mb_per_s), 0),
                cell(variant.cpu_us_per_record, 1),
            ]
        }));
        text += &columns(&lines, 2);
        text += "\nwarm: from the page cache; direct: past it. Files are opened on the way.\n";
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}
