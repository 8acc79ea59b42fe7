//! Bad input gets one clear line: what, where, and what to do; exit status 1 for a run that
//! failed, 2 for arguments that make no sense.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use bothends_agent::{FileStore, NoCosts, Server, ServerConfig};
use bothends_core::recipe::Recipe;
use bothends_csd::conformance::EchoServe;
use bothends_csd::listen::{Listener, Terms, serve_connection};
use bothends_csd::{
    Capabilities, Declined, DeviceStats, Finished, Inquiry, Job, JobId, RecordDigest,
    Refused, Security, Serve, Session,
};
use bothends_slots::HostSlot;
use bothends_tests::{N_GENERATED, generated, programs};

/// Runs `bothends run` and expects exactly this line on standard error.
fn refuses(args: &[&str], status: i32, line: &str) -> Result<()> {
    let args: Vec<&str> = std::iter::once("run").chain(args.iter().copied()).collect();
    says(&args, status, line)
}

/// Runs `bothends` and expects exactly this line on standard error, and nothing before it.
fn says(args: &[&str], status: i32, line: &str) -> Result<()> {
    let mut command = Command::new(programs::program("bothends")?);
    let output = programs::run(command.args(args), Duration::from_secs(60))?;
    ensure!(output.stdout.is_empty(), "{args:?} printed before it failed");
    let said = String::from_utf8(output.stderr)?;
    let errors: Vec<&str> = said.lines().filter(|l| !l.ends_with('…')).collect();
    let wanted = format!("error: {line}");
    ensure!(errors == [&wanted], "{args:?} said\n{said}\ninstead of\n{wanted}");
    ensure!(output.status.code() == Some(status), "{args:?}: {}", output.status);
    Ok(())
}

/// What `bothends` prints, which must succeed.
fn prints(args: &[&str]) -> Result<String> {
    let mut command = Command::new(programs::program("bothends")?);
    let output = programs::run(command.args(args), Duration::from_secs(60))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{args:?} said {said}");
    Ok(String::from_utf8(output.stdout)?)
}

fn with_data(data: &Path, more: &[&str], status: i32, line: &str) -> Result<()> {
    let data = data.to_str().unwrap();
    let mut args = vec!["--data", data, "--recipe", "imagenet-train", "--workers", "1"];
    args.extend_from_slice(more);
    refuses(&args, status, line)
}

#[test]
fn data_that_is_not_there() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path().display();
    with_data(
        &folder.path().join("nothing"),
        &[],
        1,
        &format!(
            "cannot open the data set {at}/nothing: no such file or folder; check the path"
        ),
    )?;
    with_data(
        folder.path(),
        &[],
        1,
        &format!(
            "cannot open the data set {at}: `{at}/` is empty; give a folder of class folders with \
             images, shards of WebDataset, MDS, TFRecord, Parquet, Arrow, LitData, datadings, HDF5 or FFCV, a CIFAR-10 folder, or a .jsonl list"
        ),
    )
}

#[test]
fn a_truncated_jpeg_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let class = folder.path().join("a");
    std::fs::create_dir(&class)?;
    let whole = generated()?.join("class-000");
    let first = std::fs::read_dir(whole)?.next().unwrap()?.path();
    let bytes = std::fs::read(first)?;
    std::fs::write(class.join("cut.jpg"), &bytes[..bytes.len() / 3])?;
    with_data(
        folder.path(),
        &["--batch-size", "1"],
        1,
        "sample 0 (a/cut.jpg) cannot be preprocessed by the host: the JPEG image is damaged: it ends in \
         the middle of its entropy-coded data; restore the file; use --on-bad skip, replace or \
         zero to continue without it",
    )
}

#[test]
fn a_file_that_is_no_image_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("a"))?;
    std::fs::write(folder.path().join("a/notes.jpg"), b"not a photograph")?;
    with_data(
        folder.path(),
        &["--batch-size", "1"],
        1,
        "sample 0 (a/notes.jpg) cannot be preprocessed by the host: the record is not a JPEG, PNG, BMP, \
         PNM, GIF, WebP or TIFF image (16 bytes); remove or replace it; use --on-bad skip, \
         replace or zero to continue without it",
    )
}

#[test]
fn recipes_that_make_no_sense() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path().join("recipe.json");
    let data = generated()?;
    let data = data.to_str().unwrap();
    let recipe = at.to_str().unwrap();
    refuses(
        &["--data", data, "--recipe", "imagenet-trian"],
        2,
        "`imagenet-trian` is neither a built-in recipe nor a file that can be read (No such file \
         or directory (os error 2)); did you mean `imagenet-train`?",
    )?;
    refuses(
        &["--data", data, "--recipe", "xyz"],
        2,
        &format!(
            "`xyz` is neither a built-in recipe nor a file that can be read (No such file or \
             directory (os error 2)); built in are {}",
            Recipe::builtin_names().collect::<Vec<_>>().join(", ")
        ),
    )?;
    std::fs::write(&at, r#"{"version": 1, "name": "x", "ops": [{"op": "resizee"}]}"#)?;
    let mut command = Command::new(programs::program("bothends")?);
    let args = ["run", "--data", data, "--recipe", recipe];
    let output = programs::run(command.args(args), Duration::from_secs(60))?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2) && said.lines().count() == 1, "{said}");
    ensure!(said.contains("resizee"), "{said}");
    Ok(())
}

#[test]
fn numbers_and_objectives_that_make_no_sense() -> Result<()> {
    let data = generated()?;
    let above = (N_GENERATED + 1).to_string();
    with_data(
        &data,
        &["--batch-size", "0"],
        2,
        "invalid value '0' for '--batch-size <N>': 0 is not in 1..=4294967295",
    )?;
    with_data(
        &data,
        &["--batch-size", &above],
        2,
        &format!(
            "--batch-size {above} is larger than the {N_GENERATED} samples of the epoch; use a \
             smaller --batch-size, or --repeat"
        ),
    )?;
    with_data(
        &data,
        &["--objective", "speed"],
        2,
        "`speed` is not an objective; use throughput, energy, or host-cpu-cap=P with P from 1 to \
         100 percent of the workers' time",
    )?;
    with_data(
        &data,
        &["--batch-size", "-5"],
        2,
        "invalid value '-5' for '--batch-size <N>': -5 is not in 1..=4294967295",
    )?;
    let at = data.to_str().unwrap();
    refuses(
        &["--data", at, "--recipe", "imagenet-train", "--workers", "1000"],
        2,
        "--workers 1000 is more than the 962 that the reader has buffers for; use --workers 962 \
         or fewer",
    )?;
    with_data(
        &data,
        &["--strategy", "orderd"],
        2,
        "`orderd` is not a strategy; use cpu, csd, mte, wrr, relaxed or ordered; did you mean \
         `ordered`?",
    )?;
    with_data(
        &data,
        &["--rank", "2", "--world", "2"],
        2,
        "--rank 2 with --world 2: ranks count from 0",
    )
}

#[test]
fn batches_that_can_never_be_are_refused_before_memory_is_taken() -> Result<()> {
    let data = generated()?;
    let most = u32::MAX.to_string();
    let doctor = ["doctor", "--data", data.to_str().unwrap(), "--batch-size", &most];
    let line = format!(
        "--batch-size {most} is larger than the {N_GENERATED} samples of the epoch; use a \
         smaller --batch-size"
    );
    with_data(&data, &["--batch-size", &most], 2, &format!("{line}, or --repeat"))?;
    says(&doctor, 2, &line)
}

/// A sample of `dino` has 2 views of 224² and 8 of 96² pixels: 522,240 bytes, in f32 four times
/// as many; 8 batches as they are made and 3 as f32.
#[test]
fn memory_that_batches_cannot_do_with() -> Result<()> {
    let data = generated()?;
    let data = data.to_str().unwrap();
    let args = ["--data", data, "--recipe", "dino", "--output", "f32", "--workers", "1"];
    let with = |more: &[&'static str]| [&args[..], more].concat();
    refuses(
        &with(&["--batch-size", "8", "--memory", "32"]),
        2,
        "--memory 32 is too little: batches of 8 samples take 80 MiB; use --memory 80, or \
         --batch-size 3",
    )?;
    refuses(
        &with(&["--batch-size", "8", "--memory", "5"]),
        2,
        "--memory 5 is too little: batches of 8 samples take 80 MiB; use --memory 80",
    )?;
    let enough = with(&["--batch-size", "3", "--memory", "32", "--stop-after", "1"]);
    prints(&[&["run"][..], &enough].concat()).map(drop)
}

/// A pipe has no end before its writer, who may never come.
#[test]
fn a_pipe_is_no_state() -> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    let pipe = folder.path().join("state");
    let made = Command::new("mkfifo").arg(&pipe).status()?;
    ensure!(made.success(), "mkfifo: {made}");
    let (data, pipe) = (data.to_str().unwrap(), pipe.to_str().unwrap());
    refuses(
        &["--data", data, "--recipe", "imagenet-train", "--resume", pipe],
        1,
        &format!(
            "cannot resume: the state {pipe} cannot be read (it is not a regular file)"
        ),
    )
}

#[test]
fn what_inspect_would_not_do_is_refused() -> Result<()> {
    let data = generated()?;
    let at = data.to_str().unwrap();
    let folder = tempfile::tempdir()?;
    let sheet = folder.path().join("sheet.html");
    let sheet = sheet.to_str().unwrap();
    says(
        &["inspect", at, "--sheet", sheet],
        2,
        &format!(
            "`--sheet` shows what a recipe makes, and `{at}` is not one; give a recipe, and \
             `--data {at}`"
        ),
    )?;
    says(
        &["inspect", "imagenet-eval", "--verify"],
        2,
        "`--verify` reads a store, and `imagenet-eval` is a recipe; give the folder of a store",
    )?;
    let nowhere = folder.path().join("nowhere/sheet.html");
    let nowhere = nowhere.to_str().unwrap();
    says(
        &["inspect", "imagenet-eval", "--sheet", nowhere],
        1,
        &format!("cannot write {nowhere}: No such file or directory (os error 2)"),
    )
}

#[test]
fn a_recipe_is_known_by_what_stands_in_its_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path().join("recipe");
    std::fs::write(
        &at,
        "\n {\"version\": 1, \"name\": \"mine\", \"ops\": [{\"op\": \"decode\"}]}",
    )?;
    let list = folder.path().join("list.jsonl");
    std::fs::write(&list, "{\"path\": \"a.jpg\", \"label\": 0}\n")?;
    std::fs::write(folder.path().join("a.jpg"), "")?;
    for (path, begins) in [(at, "recipe mine "), (list, "a list: 1 samples")] {
        let said = prints(&["inspect", path.to_str().unwrap()])?;
        ensure!(said.starts_with(begins), "{said}");
    }
    Ok(())
}

#[test]
fn a_sheet_of_few_samples_shows_what_there_is() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let class = folder.path().join("a");
    std::fs::create_dir(&class)?;
    for entry in std::fs::read_dir(generated()?.join("class-000"))?.take(2) {
        let entry = entry?;
        std::fs::copy(entry.path(), class.join(entry.file_name()))?;
    }
    let sheet = folder.path().join("sheet.html");
    let (at, data) = (sheet.to_str().unwrap(), folder.path().to_str().unwrap());
    let args = ["--samples", "5", "--epochs", "1", "--sheet", at, "--data", data];
    let said = prints(&[&["inspect", "imagenet-eval"][..], &args].concat())?;
    ensure!(said.contains("2 samples, all there are, made 1 times"), "{said}");
    ensure!(std::fs::read_to_string(sheet)?.matches("<h3>").count() == 2);
    Ok(())
}

#[test]
fn what_bench_cannot_measure_is_said() -> Result<()> {
    let bench = |more: &[&'static str]| [&["bench", "ops"], more].concat();
    says(
        &bench(&["gausian_blur"]),
        2,
        "no op is named `gausian_blur`; use one of gaussian_blur",
    )?;
    says(
        &bench(&["multi_crop"]),
        2,
        "`multi_crop` is not measured alone; measure a recipe that has it with --data",
    )?;
    says(
        &bench(&["invert", "--image", "/dev/zero"]),
        1,
        "cannot read /dev/zero: it has more than 268435456 bytes, the most that is read",
    )?;
    says(
        &bench(&["invert", "--peers", "/bin/true", "--peers-script", "/etc/passwd"]),
        2,
        "`/bin/true` did not run `/etc/passwd`: it ended; give `--peers` a Python interpreter",
    )
}

#[test]
fn devices_that_are_not_there() -> Result<()> {
    let data = generated()?;
    programs::program("firmware-sim")?;
    with_data(
        &data,
        &["--csd", "sim:newprot"],
        1,
        "cannot start the device sim:newprot: there is no preset or file `newprot`; the presets \
         are newport, smartssd, dpu-bf2, storage-server, 970-pro, zn540, ideal; did you mean `newport`?",
    )?;
    with_data(
        &data,
        &["--csd", "newport"],
        2,
        "cannot use `--csd newport`: expected sim:PRESET, tcp+noise://HOST:PORT, tls://HOST:PORT, \
         tcp://HOST:PORT, unix:///PATH, spool:///DIRECTORY, nvme-tcp://HOST:PORT[/NQN], nvme:///dev/ngXnY, pool://HOST:PORT,... or cuda:N; did you mean `sim:newport`?",
    )?;
    // Port 1 of this machine: nobody listens there.
    with_data(
        &data,
        &["--csd", "tcp://127.0.0.1:1", "--require-devices"],
        1,
        "device tcp://127.0.0.1:1: cannot reach a device at tcp://127.0.0.1:1; is the agent \
         running there?: Connection refused (os error 111)",
    )?;
    with_data(
        &data,
        &["--csd", "tcp://192.0.2.1:7070"],
        1,
        "device tcp://192.0.2.1:7070: tcp://192.0.2.1:7070 leaves this machine and tcp:// is \
         not encrypted; use tcp+noise:// or tls:// on both sides, or `--insecure` on both",
    )?;
    with_data(
        &data,
        &["--csd", "nvme2:///dev/ng0n1"],
        2,
        "cannot use `--csd nvme2:///dev/ng0n1`: expected sim:PRESET, tcp+noise://HOST:PORT, \
         tls://HOST:PORT, tcp://HOST:PORT, unix:///PATH, spool:///DIRECTORY, nvme-tcp://HOST:PORT[/NQN], nvme:///dev/ngXnY, pool://HOST:PORT,... or cuda:N",
    )?;
    with_data(
        &data,
        &["--csd", "cuda:x"],
        2,
        "cannot use `--csd cuda:x`: expected sim:PRESET, tcp+noise://HOST:PORT, tls://HOST:PORT, \
         tcp://HOST:PORT, unix:///PATH, spool:///DIRECTORY, nvme-tcp://HOST:PORT[/NQN], nvme:///dev/ngXnY, pool://HOST:PORT,... or cuda:N; did you mean `cuda:0`?",
    )
}

#[test]
fn an_address_that_is_none_and_a_place_that_cannot_be_written() -> Result<()> {
    let data = generated()?;
    with_data(
        &data,
        &["--metrics", "9100"],
        2,
        "`--metrics 9100`: give HOST:PORT, or :PORT for this machine alone",
    )?;
    with_data(
        &data,
        &["--events", "-"],
        2,
        "`--events -`: give a file; standard output has the table",
    )?;
    for flag in ["--events", "--trace", "--trace-otlp", "--report"] {
        with_data(
            &data,
            &[flag, "/nowhere/file"],
            1,
            "cannot write /nowhere/file: No such file or directory (os error 2)",
        )?;
    }
    says(
        &["report", "/nowhere/events.jsonl", "page.html"],
        1,
        "cannot open /nowhere/events.jsonl: No such file or directory (os error 2); check the path",
    )
}

#[test]
fn an_accelerator_that_does_not_exist_says_which_do() -> Result<()> {
    let data = generated()?;
    with_data(
        &data,
        &["--accelerator", "cuda"],
        2,
        "cannot understand the accelerator `cuda`; write `host`, `sim:NAME` or `sim:RATE` \
         (samples per second above 0)",
    )
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path().join("nowhere/state.json");
    let at = at.to_str().unwrap();
    with_data(
        &generated()?,
        &["--stop-after", "1", "--checkpoint", at],
        1,
        &format!(
            "cannot write the checkpoint {at}; is its folder there, writable and not full?: No \
             such file or directory (os error 2)"
        ),
    )
}

#[test]
fn a_state_that_is_not_as_it_was_written_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("state.json");
    let at = path.to_str().unwrap();
    let data = generated()?;
    let saved = Command::new(programs::program("bothends")?)
        .args(["run", "--data", data.to_str().unwrap(), "--recipe", "imagenet-train"])
        .args(["--batch-size", "16", "--stop-after", "1", "--checkpoint", at])
        .output()?;
    ensure!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    let state = std::fs::read_to_string(&path)?;
    std::fs::write(&path, state.replace("\"position\":16", "\"position\":32"))?;
    with_data(
        &data,
        &["--batch-size", "16", "--resume", at],
        1,
        "the resume state is damaged: `checksum` is not that of the rest; use an older \
         checkpoint",
    )
}

/// Serves one host from this process.
fn strange_device<S: Serve + Send + 'static>(
    place: &Path,
    mut device: S,
) -> Result<std::thread::JoinHandle<()>> {
    let address = format!("unix://{}", place.display()).parse()?;
    let listener = Listener::bind(&address, &Security::default())?;
    // The wait for the host begins when there is one that can start.
    programs::program("bothends")?;
    Ok(std::thread::spawn(move || {
        let (security, stop) = &<(Security, AtomicBool)>::default();
        let host = listener.accept(Duration::from_secs(60)).unwrap().unwrap();
        // The host leaves at once: how the conversation ends is not the matter here.
        let _ = serve_connection(host, &mut device, Terms { security, stop });
    }))
}

#[test]
fn a_device_of_another_version_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("device.sock");
    let device = strange_device(&place, EchoServe::of_version(3))?;
    let at = format!("unix://{}", place.display());
    with_data(
        &generated()?,
        &["--csd", &at],
        1,
        &format!(
            "device {at}: the other side speaks protocol version 3, this side version 2; use the \
             same release on both sides"
        ),
    )?;
    device.join().unwrap();
    Ok(())
}

/// The agent of a release with a different hash of the same recipe: its last bit is turned over.
#[derive(Debug)]
struct OtherRelease(Server<NoCosts>);

impl Serve for OtherRelease {
    fn hello(&mut self) -> Capabilities {
        self.0.hello()
    }

    fn open(&mut self, session: Session) -> Result<(), Declined> {
        self.0.open(Session { recipe_hash: session.recipe_hash ^ 1, ..session })
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        self.0.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        self.0.poll(timeout)
    }

    fn revoke(&mut self, job: JobId) {
        self.0.revoke(job);
    }

    fn forget(&mut self, job: JobId) {
        self.0.forget(job);
    }

    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        self.0.attest(inquiry)
    }

    fn stats(&mut self) -> DeviceStats {
        self.0.stats()
    }

    fn close(&mut self) {
        self.0.close();
    }
}

#[test]
fn a_device_with_another_recipe_hash_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("device.sock");
    let data = generated()?;
    let config = ServerConfig {
        name: "other".to_owned(),
        emulated: false,
        n_workers: 1,
        n_slots: 2,
    };
    let server = Server::start(config, FileStore::new(&data)?, NoCosts)?;
    let device = strange_device(&place, OtherRelease(server))?;
    let at = format!("unix://{}", place.display());
    let hash = Recipe::builtin("imagenet-train").unwrap().hash();
    with_data(
        &data,
        &["--csd", &at, "--require-devices"],
        1,
        &format!(
            "device {at}: the device refused the session: the recipe `imagenet-train` has hash {:032x} on the host and \
             {hash:032x} on this device; use the same release on both sides",
            hash ^ 1
        ),
    )?;
    device.join().unwrap();
    Ok(())
}

#[test]
fn a_file_that_cannot_be_read_is_named() -> Result<()> {
    for (target, why) in [
        ("nowhere", "No such file or directory (os error 2)"),
        ("round.jpg", "Too many levels of symbolic links (os error 40)"),
    ] {
        let folder = tempfile::tempdir()?;
        let class = folder.path().join("a");
        std::fs::create_dir(&class)?;
        std::os::unix::fs::symlink(target, class.join("round.jpg"))?;
        let line = format!(
            "sample 0 (a/round.jpg) cannot be preprocessed by the host: it cannot be read ({why}); use \
             --on-bad skip, replace or zero to continue without it"
        );
        with_data(folder.path(), &["--batch-size", "1"], 1, &line)?;
    }
    Ok(())
}
