//! The guard before cuFile: what must hold before NVIDIA's library is opened, in this order.
//!
//! cuFile spins for ever where `/proc/modules` does not exist (kernels without loadable modules, as
//! in small virtual machines), refuses files where udev's database is missing (containers), and
//! otherwise falls back to a mode that copies through the host, slower than our own. So it is
//! opened only behind these checks, on a thread that is left behind if it does not return, and
//! believed only if its status says that it is peer to peer.
//!
//! The environment is not read or changed here. Opening happens once per process, whatever it
//! led to.
#![allow(unsafe_code, reason = "opens a foreign library and calls two functions of it")]

use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crate::driver::deadline::within;

/// Whether to use GPUDirect Storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gds {
    /// Never.
    Off,
    /// Where every check passes.
    #[default]
    Auto,
}

/// What cuFile says of itself once it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CuFile {
    /// How it would read.
    pub standing: Standing,
}

/// How cuFile reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Drive to device, by nvidia-fs or PCI peer-to-peer DMA.
    PeerToPeer,
    /// Through host memory.
    Compatible,
}

/// The checks, with every place that they look at.
#[derive(Debug, Clone)]
pub struct Guard {
    /// What the user said.
    pub gds: Gds,
    /// Whether a GPU was opened, and if not, why.
    pub gpu: Result<(), String>,
    /// `/proc/modules`.
    pub modules: PathBuf,
    /// `/run/udev`.
    pub udev: PathBuf,
    /// `/proc/mounts`.
    pub mounts: PathBuf,
    /// `/proc/sys/kernel/osrelease`.
    pub release: PathBuf,
    /// A file or folder of the data set, if there is one.
    pub data: Option<PathBuf>,
    /// What to open, in this order: names that the loader looks for, then absolute paths.
    pub libraries: Vec<PathBuf>,
    /// Longest that opening may take.
    pub limit: Duration,
}

impl Guard {
    /// The guard of this system. `folders` are further ones that the library may lie in: a
    /// Python environment's `nvidia/cu13/lib` and `nvidia/cufile/lib`, a toolkit's `lib64`.
    #[must_use]
    pub fn of_system(gpu: Result<(), String>, folders: &[PathBuf]) -> Self {
        let named = PathBuf::from(LIBRARY);
        let within = folders.iter().map(|folder| folder.join(LIBRARY));
        Self {
            gds: Gds::default(),
            gpu,
            modules: "/proc/modules".into(),
            udev: "/run/udev".into(),
            mounts: "/proc/mounts".into(),
            release: "/proc/sys/kernel/osrelease".into(),
            data: None,
            libraries: [named].into_iter().chain(within).collect(),
            limit: Duration::from_secs(10),
        }
    }

    /// Passes every check, and opens cuFile: once per process, 10 s at most.
    ///
    /// # Errors
    /// The first check that fails, in one line.
    pub fn open(&self) -> Result<CuFile, String> {
        static OPENED: OnceLock<Result<CuFile, String>> = OnceLock::new();
        self.check()?;
        OPENED.get_or_init(|| self.open_library()).clone()
    }

    /// The checks before the library is looked for.
    ///
    /// # Errors
    /// The first that fails, in one line.
    pub fn check(&self) -> Result<(), String> {
        if self.gds == Gds::Off {
            return Err("GPUDirect Storage is switched off".to_owned());
        }
        self.gpu.clone().map_err(|why| format!("no GPU is open: {why}"))?;
        if !self.modules.exists() {
            return Err(format!(
                "{} does not exist, without which cuFile never returns",
                self.modules.display()
            ));
        }
        let is_network = |kind: &String| NEEDS_NO_UDEV.contains(&kind.as_str());
        if fs::read_dir(&self.udev).is_err()
            && !self.data_file_system().is_some_and(|kind| is_network(&kind))
        {
            return Err(format!(
                "{} cannot be read, without which cuFile refuses files",
                self.udev.display()
            ));
        }
        let release = fs::read_to_string(&self.release).unwrap_or_default();
        if release.to_lowercase().contains("microsoft") {
            return Err("the system is WSL, where cuFile is not peer-to-peer".to_owned());
        }
        Ok(())
    }

    /// The kind of the file system that the data lies on: of the longest mount point that is a
    /// beginning of its path.
    fn data_file_system(&self) -> Option<String> {
        let data = self.data.as_deref()?;
        let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
        let mounts = fs::read_to_string(&self.mounts).ok()?;
        let mount = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (point, kind) = (words.next()?, words.next()?);
            let is_above = data.starts_with(Path::new(point));
            is_above.then(|| (point.len(), kind.to_owned()))
        };
        // The last of equal ones lies on top.
        let found = mounts.lines().filter_map(mount).max_by_key(|(len, _)| *len);
        found.map(|(_, kind)| kind)
    }

    /// Opens the first library that there is, on a thread of its own. Public through
    /// [`Self::open`] only, which remembers.
    fn open_library(&self) -> Result<CuFile, String> {
        let libraries = self.libraries.clone();
        let opened = within(self.limit, "open-cufile", move || open_first(&libraries));
        let seconds = self.limit.as_secs();
        opened.unwrap_or_else(|| {
            Err(format!(
                "cuFile did not open within {seconds} s; it is left alone from now on"
            ))
        })
    }
}

/// The one name that the library has everywhere, in wheels included.
const LIBRARY: &str = "libcufile.so.0";

/// File systems whose files cuFile takes without asking udev.
const NEEDS_NO_UDEV: [&str; 8] =
    ["tmpfs", "ramfs", "nfs", "nfs4", "lustre", "wekafs", "gpfs", "beegfs"];

/// cuFile's way to say how it went, returned by value.
#[repr(C)]
struct Answer {
    /// 0 is success, from 5001 on its own errors.
    code: c_int,
    /// CUDA's, where the first is 5011.
    _cuda: c_int,
}

/// The beginning of `CUfileDrvProps_t` (cufile.h 1.19), and room for what later versions add.
#[repr(C)]
struct Properties {
    _version: [u32; 2],
    _sizes: [usize; 2],
    status: u32,
    _control: u32,
    _rest: [u64; 64],
}

/// Bits of `status`: NVMe by nvidia-fs (4), NVMe over fabrics (5), ScaleFlux's (7), NVMe by
/// PCI peer-to-peer DMA (11).
const PEER_TO_PEER: u32 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 11;

/// Texts that can be set before the library is opened (CUDA 12.9 and later).
const LOGGING_LEVEL: c_int = 0;
const LOG_DIR: c_int = 2;

type Open = unsafe extern "C" fn() -> Answer;
type SetText = unsafe extern "C" fn(c_int, *const c_char) -> Answer;
type GetProperties = unsafe extern "C" fn(*mut Properties) -> Answer;

fn open_first(libraries: &[PathBuf]) -> Result<CuFile, String> {
    // SAFETY: the library's initialisers do nothing that the process notices; where they do, it
    // happens behind the checks and the deadline.
    let load = |name: &PathBuf| unsafe { libloading::Library::new(name) }.ok();
    let Some(library) = libraries.iter().find_map(load) else {
        return Err(format!("there is no {LIBRARY}; install NVIDIA's cuFile"));
    };
    // What it starts does not end with the handle, so it is never closed.
    let library: &'static libloading::Library = Box::leak(Box::new(library));
    let missing = |name: &str| format!("{LIBRARY} has no {name}");
    // SAFETY: the type is that of cufile.h.
    let open = unsafe { library.get::<Open>("cuFileDriverOpen") };
    let open = open.map_err(|_| missing("cuFileDriverOpen"))?;
    // SAFETY: the type is that of cufile.h.
    let get = unsafe { library.get::<GetProperties>("cuFileDriverGetProperties") };
    let get = get.map_err(|_| missing("cuFileDriverGetProperties"))?;
    log_elsewhere(library);
    // SAFETY: may be called from any thread, once.
    let answer = unsafe { open() };
    if answer.code != 0 {
        return Err(format!("cuFile refused to open: error {}", answer.code));
    }
    let mut properties = Properties {
        _version: [0; 2],
        _sizes: [0; 2],
        status: 0,
        _control: 0,
        _rest: [0; 64],
    };
    // SAFETY: the library writes its structure, which is no longer than ours.
    let answer = unsafe { get(&raw mut properties) };
    if answer.code != 0 {
        return Err(format!("cuFile does not say how it reads: error {}", answer.code));
    }
    let is_direct = properties.status & PEER_TO_PEER != 0;
    let standing = if is_direct { Standing::PeerToPeer } else { Standing::Compatible };
    Ok(CuFile { standing })
}

/// Keeps the library from writing `cufile.log` into whatever folder the program runs in. Older
/// ones cannot be told; nor is it known whether those that can always listen.
fn log_elsewhere(library: &libloading::Library) {
    // SAFETY: the type is that of cufile.h.
    let set = unsafe { library.get::<SetText>("cuFileSetParameterString") };
    let folder = CString::new(std::env::temp_dir().into_os_string().into_encoded_bytes());
    let (Ok(set), Ok(folder)) = (set, folder) else { return };
    for (parameter, text) in [(LOGGING_LEVEL, c"ERROR"), (LOG_DIR, folder.as_c_str())] {
        // SAFETY: the library copies the text, which ends with a zero.
        let _ = unsafe { set(parameter, text.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use tempfile::TempDir;

    /// A system where every check passes, and whose library is `source` compiled; `None` where
    /// there is no C compiler.
    fn system(source: Option<&str>) -> Option<(TempDir, Guard)> {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("modules"), "nvme 1 0 - Live 0x0\n").unwrap();
        fs::write(at("release"), "6.8.0-generic\n").unwrap();
        fs::create_dir(at("udev")).unwrap();
        let mut libraries = vec![at("absent.so")];
        if let Some(source) = source {
            fs::write(at("stub.c"), source).unwrap();
            let built = Command::new("cc")
                .args(["-shared", "-fPIC", "-o"])
                .args([at("stub.so"), at("stub.c")])
                .status();
            if !built.ok()?.success() {
                println!("skipped: no C compiler makes a library here");
                return None;
            }
            libraries.push(at("stub.so"));
        }
        let mut guard = Guard::of_system(Ok(()), &[]);
        guard.modules = at("modules");
        guard.release = at("release");
        guard.udev = at("udev");
        guard.mounts = at("mounts");
        guard.libraries = libraries;
        Some((folder, guard))
    }

    const ANSWERS: &str = "
        struct answer { int code, cuda; };
        static int told;
        struct answer cuFileSetParameterString(int parameter, const char *text) {
            told += parameter == 2 && *text == '/'; return (struct answer){ 0, 0 }; }
        struct answer cuFileDriverOpen(void) {
            return (struct answer){ told == 1 ? OPEN : 5001, 0 }; }
        struct answer cuFileDriverGetProperties(void *to) {
            ((unsigned *)to)[6] = STATUS; return (struct answer){ 0, 0 }; }";

    #[test]
    fn the_checks_are_made_in_order_each_with_its_reason() {
        let (folder, mut guard) = system(None).unwrap();
        assert_eq!(guard.check(), Ok(()));
        // Broken from the last check to the first: each covers the ones behind it.
        fs::write(&guard.release, "5.15.90.1-microsoft-standard-WSL2\n").unwrap();
        let refused = |guard: &Guard, why: &str| {
            let error = guard.check().unwrap_err();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        };
        refused(&guard, "WSL");
        guard.udev = folder.path().join("no-udev");
        refused(&guard, "cuFile refuses files");
        guard.modules = folder.path().join("no-modules");
        refused(&guard, "cuFile never returns");
        guard.gpu = Err("there is none".to_owned());
        refused(&guard, "no GPU is open: there is none");
        guard.gds = Gds::Off;
        refused(&guard, "switched off");
    }

    #[test]
    fn data_that_needs_no_udev_may_do_without() {
        let (folder, mut guard) = system(None).unwrap();
        guard.udev = folder.path().join("no-udev");
        let data = folder.path().canonicalize().unwrap();
        let mounts = |kind: &str| {
            let line =
                format!("disk / ext4 rw 0 0\nx {} {kind} rw 0 0\n", data.display());
            fs::write(&guard.mounts, line).unwrap();
        };
        mounts("tmpfs");
        assert!(guard.check().is_err(), "nobody said where the data lies");
        guard.data = Some(data.join("mounts"));
        assert_eq!(guard.check(), Ok(()));
        let line = format!("disk / ext4 rw 0 0\nx {} xfs rw 0 0\n", data.display());
        fs::write(&guard.mounts, line).unwrap();
        assert!(guard.check().is_err());
    }

    #[test]
    fn a_library_that_never_opens_is_left_alone() {
        let hangs = "int pause(void);
            struct answer { int code, cuda; };
            struct answer cuFileDriverOpen(void) { for (;;) pause(); }
            struct answer cuFileDriverGetProperties(void *to) { for (;;) pause(); }";
        let Some((_folder, mut guard)) = system(Some(hangs)) else { return };
        guard.limit = Duration::from_millis(50);
        let error = guard.open_library().unwrap_err();
        assert!(error.contains("did not open within"), "{error}");
    }

    #[test]
    fn only_its_status_makes_it_peer_to_peer() {
        let source = |open: &str, status: &str| {
            ANSWERS.replace("OPEN", open).replace("STATUS", status)
        };
        for (open, status, expected) in [
            ("0", "0", Ok(Standing::Compatible)),
            // NFS is no drive of this machine's.
            ("0", "1 << 2", Ok(Standing::Compatible)),
            ("0", "1 << 11", Ok(Standing::PeerToPeer)),
            ("0", "1 << 4", Ok(Standing::PeerToPeer)),
            ("5033", "1 << 4", Err("error 5033")),
        ] {
            let Some((_folder, guard)) = system(Some(&source(open, status))) else {
                return;
            };
            match (guard.open_library(), expected) {
                (Ok(opened), Ok(standing)) => assert_eq!(opened.standing, standing),
                (Err(error), Err(why)) => assert!(error.contains(why), "{error}"),
                (got, _) => panic!("{open} {status}: {got:?}"),
            }
        }
    }

    #[test]
    fn an_absent_or_foreign_library_is_a_reason() {
        let (_folder, guard) = system(None).unwrap();
        assert!(guard.open_library().unwrap_err().contains("there is no libcufile.so.0"));
        let Some((_folder, guard)) = system(Some("int nothing;")) else { return };
        assert!(guard.open_library().unwrap_err().contains("has no cuFileDriverOpen"));
    }
}
