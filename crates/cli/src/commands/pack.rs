//! `bothends pack`, `bothends unpack`, `bothends convert` and `bothends upload`, and what `inspect` says of stores.

use std::path::Path;
use std::time::{Duration, Instant};

use bothends_pack::{
    Destination, Files, Missing, OpenStore, PackConfig, Progress, Source, Stored,
    Unpacked, Uploaded, check_outside, is_store, write_to,
};
use bothends_runtime::{is_url, without_secrets};

use crate::args::{ConvertArgs, PackArgs, UnpackArgs, UploadArgs};
use crate::failed::{Failed, wrong};
use crate::say;
use crate::watch::bar::{Bar, SHOW_EVERY, decompressing};

/// Packs a data set, or the records of stores.
pub(crate) fn pack(args: &PackArgs) -> Result<(), Failed> {
    let default = PackConfig::default();
    let config = PackConfig {
        destination: match args.append {
            true => Destination::Append,
            false => Destination::New,
        },
        shard_bytes: args.shard_bytes,
        n_threads: args.threads.map_or(default.n_threads, usize::from),
    };
    if is_url(&args.store.to_string_lossy()) {
        return Err(wrong(format!(
            "`{}` is a URL, and stores are written on this machine; name a folder, and copy \
             the store from there",
            without_secrets(&args.store.to_string_lossy())
        )));
    }
    for source in args.sources.iter().filter(|source| !is_url(&source.to_string_lossy()))
    {
        check_outside(&args.store, source)?;
    }
    if args.sources.iter().all(|source| is_store(source)) {
        let stores = args.sources.iter().map(|source| OpenStore::new(source));
        let stores = stores.collect::<Result<Vec<_>, _>>()?;
        let source = match &args.samples {
            Some(samples) => Stored::some(&stores, samples.clone())?,
            None => Stored::all(&stores)?,
        };
        return pack_source(&source, &args.store, &config);
    }
    if args.samples.is_some() {
        let why = "`--samples` takes a part of a store; pack the data set first";
        return Err(wrong(why));
    }
    let [source] = args.sources.as_slice() else {
        let why = "several sources must all be stores; pack each data set, then join the stores";
        return Err(wrong(why));
    };
    pack_source(&Files::open_watched(source, &decompressing())?, &args.store, &config)
}

fn pack_source(
    source: &dyn Source,
    store: &Path,
    config: &PackConfig,
) -> Result<(), Failed> {
    let mut show = Show::new("packing");
    let packed = bothends_pack::pack(source, store, config, &mut |p| show.step(p))?;
    show.bar.clear();
    if packed.progress.n_found_done > 0 {
        let n = packed.progress.n_found_done;
        say::text(&format!("continued after {n} records of an earlier attempt"));
    }
    describe(store)
}

/// Makes the original files of a store.
pub(crate) fn unpack(args: &UnpackArgs) -> Result<(), Failed> {
    let store = args.store.to_string_lossy();
    if is_url(&store) {
        return Err(wrong(format!(
            "`unpack` reads a store on this machine, and `{}` is a URL; copy the store here",
            without_secrets(&store)
        )));
    }
    let store = OpenStore::new(&args.store)?;
    check_outside(&args.folder, &args.store)?;
    let n_threads = args.threads.map_or(PackConfig::default().n_threads, usize::from);
    let mut show = Show::new("unpacking");
    let unpacked =
        bothends_pack::unpack(&store, &args.folder, n_threads, &mut |p| show.step(p))?;
    show.bar.clear();
    say::text(&restored(&unpacked));
    if unpacked.n_partial > 0 {
        let n = unpacked.n_partial;
        say::text(&format!(
            "{n} files are incomplete: the store has only some of their samples"
        ));
    }
    if unpacked.damages.is_empty() {
        return Ok(());
    }
    for damage in &unpacked.damages {
        say::text(&damage.to_string());
    }
    Err(Failed::Run(anyhow::anyhow!(
        "{} records of `{}` are damaged, and what they held is missing in `{}`; restore the named \
        shards from a copy, and unpack to another folder",
        unpacked.damages.len(),
        args.store.display(),
        args.folder.display()
    )))
}

/// What was written: not what is damaged, though it was done with.
fn restored(unpacked: &Unpacked) -> String {
    let Progress { n_done, original_bytes, .. } = unpacked.progress;
    match unpacked.damages.len() as u64 {
        0 => format!("{n_done} records, {original_bytes} bytes"),
        n => format!("{} of {n_done} records, {original_bytes} bytes", n_done - n),
    }
}

/// Writes the samples of a data set or a store to a file of another tool.
pub(crate) fn convert(args: &ConvertArgs) -> Result<(), Failed> {
    if !is_url(&args.source.to_string_lossy()) {
        check_outside(&args.file, &args.source)?;
    }
    let mut show = Show::new("converting");
    let observer = &mut |progress| show.step(progress);
    let mut fields = Vec::new();
    let done = match is_store(&args.source) {
        true => {
            let stores = [OpenStore::new(&args.source)?];
            bothends_pack::export(&Stored::all(&stores)?, &args.file, observer)?
        }
        false => {
            let files = Files::open_watched(&args.source, &decompressing())?;
            fields.extend_from_slice(files.field_names());
            bothends_pack::export(&files, &args.file, observer)?
        }
    };
    show.bar.clear();
    let Progress { n_done, stored_bytes, .. } = done;
    say::text(&format!("{n_done} samples, {stored_bytes} bytes"));
    // Which of them is the image, and which the class, only the format knows.
    if fields.len() > 1 {
        say::text(&kept_of(&fields));
    }
    Ok(())
}

fn kept_of(fields: &[String]) -> String {
    let fields: Vec<_> = fields.iter().map(|it| it.escape_debug().to_string()).collect();
    format!(
        "of the fields of the samples ({}), only images and classes were written",
        fields.join(", ")
    )
}

/// Copies the samples of a data set or a store into a remote store.
pub(crate) fn upload(args: &UploadArgs) -> Result<(), Failed> {
    if !is_url(&args.url) {
        return Err(wrong(format!(
            "`{}` is not a URL; give a destination such as cql://host/keyspace/table",
            args.url
        )));
    }
    let to = write_to(&args.url)?;
    let missing = if args.dry_run { Missing::Counted } else { Missing::Written };
    let mut show = Show::new("uploading");
    let observer = &mut |progress| show.step(progress);
    let done = match is_store(&args.source) {
        true => {
            let stores = [OpenStore::new(&args.source)?];
            bothends_pack::upload(&Stored::all(&stores)?, &to, missing, observer)?
        }
        false => {
            let files = Files::open_watched(&args.source, &decompressing())?;
            bothends_pack::upload(&files, &to, missing, observer)?
        }
    };
    show.bar.clear();
    let Uploaded { written, written_bytes, found } = done;
    let would = if args.dry_run { "would be " } else { "" };
    say::text(&format!(
        "{written} objects, {written_bytes} bytes, {would}written to {}; {found} were there",
        to.shown("")
    ));
    Ok(())
}

/// Says what is in a store.
pub(crate) fn describe(path: &Path) -> Result<(), Failed> {
    let store = OpenStore::new(path)?;
    let contents = store.contents();
    let n_shards = store.manifest().shards.len();
    say::text(&format!(
        "{n_shards} shards with {} records of blocks, {} of bytes, {} that are not samples",
        contents.n_blocks, contents.n_bytes, contents.n_rests
    ));
    let (original, kept) = (contents.original_bytes, contents.shard_bytes);
    let percent = kept.saturating_mul(100).checked_div(original).unwrap_or(100);
    say::text(&format!(
        "{kept} bytes for {original} original ones ({percent} %, including indices and padding)"
    ));
    Ok(())
}

/// Names what is damaged in a store.
pub(crate) fn verify(path: &Path) -> Result<(), Failed> {
    let mut show = Show::new("verifying");
    let found = bothends_pack::verify(path, &mut |p| show.step(p))?;
    show.bar.clear();
    for damage in &found.damages {
        say::text(&damage.to_string());
    }
    match found.damages.len() {
        0 => {
            say::text(&format!("all {} records are intact", found.progress.n_done));
            Ok(())
        }
        // Not how many records: of a shard that is lost, its line says that.
        n => Err(Failed::Run(anyhow::anyhow!(
            "`{}` is damaged in {n} {}; restore the named files from a copy, or pack the data again",
            path.display(),
            if n == 1 { "place" } else { "places" }
        ))),
    }
}

/// Shows how far a step has come, and how long it will take.
struct Show {
    what: &'static str,
    bar: Bar,
    began: Instant,
    shown: Instant,
}

impl Show {
    fn new(what: &'static str) -> Self {
        let now = Instant::now();
        Self { what, bar: Bar::new(), began: now, shown: now }
    }

    fn step(&mut self, progress: Progress) {
        if self.shown.elapsed() < SHOW_EVERY {
            return;
        }
        self.shown = Instant::now();
        self.bar.step(&line(self.what, progress, self.began.elapsed()));
    }
}

/// `packing 1200 of 5000 records, 1530 records/s, 3 s left`
fn line(what: &str, progress: Progress, elapsed: Duration) -> String {
    let Progress { n_done, n_found_done, n_records, .. } = progress;
    let now = (n_done - n_found_done) as f64;
    let rate = now / elapsed.as_secs_f64().max(1e-3);
    let left = (n_records - n_done) as f64 / rate.max(1e-3);
    format!(
        "{what} {n_done} of {n_records} records, {rate:.0} records/s, {left:.0} s left"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_at_a_url_is_converted() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data/cat");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("1.jpg"), b"ab").unwrap();
        let args = ConvertArgs {
            source: format!("file://{}/data", folder.path().display()).into(),
            file: folder.path().join("new.msgpack"),
        };
        assert!(convert(&args).is_ok());
        assert!(args.file.is_file());
    }

    #[test]
    fn a_field_that_was_written_is_not_said_to_be_left_out() {
        assert_eq!(
            kept_of(&["jpg".to_owned(), "cls".to_owned(), "a\n".to_owned()]),
            r"of the fields of the samples (jpg, cls, a\n), only images and classes were written"
        );
    }

    /// A store of three files in the folder, each in a shard of its own.
    fn store(folder: &Path) -> std::path::PathBuf {
        let (data, store) = (folder.join("data"), folder.join("store"));
        std::fs::create_dir_all(data.join("cat")).unwrap();
        for name in ["1.jpg", "2.jpg", "3.jpg"] {
            std::fs::write(data.join("cat").join(name), name).unwrap();
        }
        let config = PackConfig { shard_bytes: 4096, ..PackConfig::default() };
        let files = Files::open(&data).unwrap();
        bothends_pack::pack(&files, &store, &config, &mut |_| {}).unwrap();
        store
    }

    #[test]
    fn what_is_damaged_is_not_counted_as_restored() {
        let folder = tempfile::tempdir().unwrap();
        let path = store(folder.path());
        let shard = path.join("00001.shard");
        let mut bytes = std::fs::read(&shard).unwrap();
        bytes[4096] ^= 1;
        std::fs::write(&shard, bytes).unwrap();
        let open = OpenStore::new(&path).unwrap();
        let to = folder.path().join("again");
        let unpacked = bothends_pack::unpack(&open, &to, 1, &mut |_| {}).unwrap();
        assert_eq!(restored(&unpacked), "2 of 3 records, 10 bytes");
    }

    #[test]
    fn the_records_of_a_lost_shard_are_not_said_to_be_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = store(folder.path());
        std::fs::remove_file(path.join("00001.shard")).unwrap();
        let Err(Failed::Run(error)) = verify(&path) else { panic!("a shard is lost") };
        let said = error.to_string();
        assert!(said.contains("is damaged in ") && !said.contains("records"), "{said}");
    }

    #[test]
    fn records_of_an_earlier_attempt_tell_nothing_of_the_time_left() {
        let progress = Progress {
            n_done: 600,
            n_found_done: 500,
            n_records: 1000,
            ..Progress::default()
        };
        assert_eq!(
            line("packing", progress, Duration::from_secs(2)),
            "packing 600 of 1000 records, 50 records/s, 8 s left"
        );
    }
}
