//! The nodes of a drive: what Linux calls its controller and its namespaces.
//!
//! The numbers in the names of nodes say nothing: `/dev/ng0n1` may be namespace 3, and that otherwise
//! after the next start. Linux' sysfs says what node belongs to what controller, and each node says which
//! namespace it is (`kernel.rs` asks it).

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

use crate::CsdError;

/// Where sysfs is.
pub(super) const SYSFS: &str = "/sys";

/// The names of a drive's nodes, and what Linux takes from its nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nodes {
    /// Of the controller.
    pub(super) controller: PathBuf,
    /// Of the namespaces, in no order.
    pub(super) namespaces: Vec<PathBuf>,
    /// Most bytes of a command's data, by the driver and by how scattered a program's memory may be.
    pub(super) most_bytes: u32,
}

/// The folder that sysfs has about a node, and the folder that the node is in.
pub(super) fn places(sysfs: &Path, node: &Path) -> Result<(PathBuf, PathBuf), CsdError> {
    let at = |source| unusable(node, source);
    let real = fs::canonicalize(node).map_err(at)?;
    let metadata = real.metadata().map_err(at)?;
    if !metadata.file_type().is_char_device() {
        return Err(not_a_node(node, &metadata));
    }
    let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
    let own = sysfs.join(format!("dev/char/{major}:{minor}"));
    let own = fs::canonicalize(&own).map_err(|source| {
        let what = format!(
            "{} cannot be read, which says what `{}` is ({source})",
            own.display(),
            node.display()
        );
        CsdError::Unfit { what, remedy: "mount sysfs at /sys" }
    })?;
    let folder = real.parent().unwrap_or(Path::new("/dev")).to_owned();
    match class(&own).as_deref() {
        Some("nvme" | "nvme-generic") => Ok((own, folder)),
        Some(_) | None => Err(not_a_node(node, &metadata)),
    }
}

/// The drive of the node that sysfs has at `own`; its nodes are in the folder `folder`.
pub(super) fn around(sysfs: &Path, own: &Path, folder: &Path) -> io::Result<Nodes> {
    let (controller, subsystem) = match class(own).as_deref() {
        Some("nvme") => (own.to_owned(), subsystem_of(sysfs, own)),
        Some(_) | None => {
            let parent = fs::canonicalize(own.join("device"))?;
            match class(&parent).as_deref() {
                // Where several paths lead to a namespace, its node is the subsystem's.
                Some("nvme-subsystem") => (live_controller(&parent)?, Some(parent)),
                Some(_) | None => (parent, None),
            }
        }
    };
    let mut namespaces = Vec::new();
    for entry in fs::read_dir(sysfs.join("class/nvme-generic"))? {
        let entry = entry?;
        let Ok(parent) = fs::canonicalize(entry.path().join("device")) else { continue };
        if parent == controller || subsystem.as_ref() == Some(&parent) {
            namespaces.push(folder.join(entry.file_name()));
        }
    }
    let most_bytes = most_bytes(&controller)?;
    let name = controller.file_name().unwrap_or_default();
    Ok(Nodes { controller: folder.join(name), namespaces, most_bytes })
}

/// What kind of device sysfs has at `own`.
fn class(own: &Path) -> Option<String> {
    let class = fs::canonicalize(own.join("subsystem")).ok()?;
    class.file_name().and_then(OsStr::to_str).map(str::to_owned)
}

/// The subsystem that a controller belongs to.
fn subsystem_of(sysfs: &Path, controller: &Path) -> Option<PathBuf> {
    let name = controller.file_name()?;
    let all = fs::read_dir(sysfs.join("class/nvme-subsystem")).ok()?;
    let mut all = all.filter_map(|entry| fs::canonicalize(entry.ok()?.path()).ok());
    all.find(|own| own.join(name).exists())
}

/// A controller of a subsystem: the first that answers, else the first.
fn live_controller(subsystem: &Path) -> io::Result<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(subsystem)? {
        let path = entry?.path();
        if let Ok(path) = fs::canonicalize(path)
            && class(&path).as_deref() == Some("nvme")
        {
            all.push(path);
        }
    }
    all.sort();
    all.dedup();
    let is_live = |own: &&PathBuf| {
        fs::read_to_string(own.join("state")).is_ok_and(|state| state.trim() == "live")
    };
    let found = all.iter().find(is_live).or(all.first());
    found.cloned().ok_or_else(|| io::Error::other("its subsystem has no controller"))
}

/// The bound of all queues of a controller.
fn most_bytes(controller: &Path) -> io::Result<u32> {
    // What Linux maps of a program's memory is in pages, in the worst case each a segment of its own.
    const PAGE: u32 = 4096;
    let mut most = u32::MAX;
    for entry in fs::read_dir(controller)? {
        let queue = entry?.path().join("queue");
        let number = |name: &str| {
            let text = fs::read_to_string(queue.join(name)).ok()?;
            text.trim().parse::<u32>().ok().filter(|number| *number > 0)
        };
        let bytes = number("max_hw_sectors_kb").map(|kib| kib.saturating_mul(1024));
        let pages = number("max_segments").map(|pages| pages.saturating_mul(PAGE));
        most = [bytes, pages].into_iter().flatten().fold(most, u32::min);
    }
    Ok((most / PAGE).max(1) * PAGE)
}

/// What is said of a node that is not there or cannot be used.
pub(super) fn unusable(node: &Path, source: io::Error) -> CsdError {
    let node = node.display();
    let kind = source.kind();
    if kind == io::ErrorKind::PermissionDenied {
        return CsdError::Unfit {
            what: format!("this user may not use `{node}`"),
            remedy: "run as root: programs and memory ranges need admin commands, which Linux \
            reserves for root",
        };
    }
    // It may come, or come back.
    let is_missing =
        [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&kind);
    let what = if is_missing {
        format!(
            "there is no `{node}`; connect the drive (for a remote one: nvme connect), and see its nodes with nvme \
             list"
        )
    } else {
        format!("cannot use `{node}` ({source}); is the drive still connected?")
    };
    CsdError::Driver(what.into())
}

fn not_a_node(node: &Path, metadata: &Metadata) -> CsdError {
    let node = node.display();
    let (what, remedy) = match metadata.file_type().is_block_device() {
        true => (
            format!("`{node}` is a block device, which does not accept NVMe commands"),
            "name the drive's character device, /dev/ngXnY (ls /dev/ng*)",
        ),
        false => (
            format!("`{node}` is not a device of Linux' NVMe driver"),
            "name one of the drive's nodes, /dev/ngXnY (nvme list)",
        ),
    };
    CsdError::Unfit { what, remedy }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs of so many folders and links; a link is given as (where, class or target below the root).
    fn sysfs(folders: &[&str], links: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in folders {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for (at, target) in links {
            let target = root.path().join(target);
            fs::create_dir_all(&target).unwrap();
            let at = root.path().join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(target, at).unwrap();
        }
        root
    }

    const FABRICS: &str = "devices/virtual/nvme-fabrics/ctl";

    fn found(root: &Path, node: &str) -> Nodes {
        let own = fs::canonicalize(root.join(node)).unwrap();
        let mut nodes = around(root, &own, Path::new("/dev")).unwrap();
        nodes.namespaces.sort();
        nodes
    }

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| Path::new("/dev").join(name)).collect()
    }

    /// As Linux has it without several paths: nodes belong to controllers, here two with a namespace each and
    /// three.
    #[test]
    fn siblings_are_of_the_same_controller() {
        let mut links = Vec::new();
        for (controller, nodes) in [("nvme0", 3), ("nvme10", 1)] {
            let own = format!("{FABRICS}/{controller}");
            links.push((format!("{own}/subsystem"), "class/nvme".to_owned()));
            for n in 1..=nodes {
                let node = format!("{own}/ng{}n{n}", &controller[4..]);
                links.push((format!("{node}/subsystem"), "class/nvme-generic".into()));
                links.push((format!("{node}/device"), own.clone()));
                links.push((
                    format!("class/nvme-generic/ng{}n{n}", &controller[4..]),
                    node,
                ));
            }
        }
        let links: Vec<_> = links.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let queue = format!("{FABRICS}/nvme0/nvme0n2/queue");
        let root = sysfs(&[&queue], &links);
        let put = |name: &str, text: &str| {
            fs::write(root.path().join(&queue).join(name), text).unwrap();
        };
        put("max_hw_sectors_kb", "1024\n");
        put("max_segments", "127\n");
        let expected = Nodes {
            controller: "/dev/nvme0".into(),
            namespaces: paths(&["ng0n1", "ng0n2", "ng0n3"]),
            most_bytes: 127 * 4096,
        };
        for node in ["class/nvme-generic/ng0n2", &format!("{FABRICS}/nvme0")] {
            assert_eq!(found(root.path(), node), expected, "{node}");
        }
        let other = found(root.path(), "class/nvme-generic/ng10n1");
        assert_eq!(other.controller, Path::new("/dev/nvme10"));
        assert_eq!(other.namespaces, paths(&["ng10n1"]));
        assert_eq!(other.most_bytes, u32::MAX / 4096 * 4096);
    }

    /// With several paths the nodes belong to a subsystem, and one of its controllers may be gone.
    #[test]
    fn a_subsystem_gives_a_controller_that_is_live() {
        let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys3";
        let mut links =
            vec![(format!("{subsystem}/subsystem"), "class/nvme-subsystem".to_owned())];
        links
            .push(("class/nvme-subsystem/nvme-subsys3".to_owned(), subsystem.to_owned()));
        for controller in ["nvme3", "nvme4"] {
            let own = format!("{FABRICS}/{controller}");
            links.push((format!("{own}/subsystem"), "class/nvme".into()));
            links.push((format!("{subsystem}/{controller}"), own));
        }
        for node in ["ng3n1", "ng3n2"] {
            let own = format!("{subsystem}/{node}");
            links.push((format!("{own}/subsystem"), "class/nvme-generic".into()));
            links.push((format!("{own}/device"), subsystem.to_owned()));
            links.push((format!("class/nvme-generic/{node}"), own));
        }
        let links: Vec<_> = links.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let root = sysfs(&[], &links);
        let state = |controller: &str, state: &str| {
            fs::write(root.path().join(FABRICS).join(controller).join("state"), state)
                .unwrap();
        };
        state("nvme3", "connecting\n");
        state("nvme4", "live\n");
        for (node, controller) in [
            ("class/nvme-generic/ng3n2", "/dev/nvme4"),
            ("devices/virtual/nvme-fabrics/ctl/nvme3", "/dev/nvme3"),
        ] {
            let nodes = found(root.path(), node);
            assert_eq!(nodes.controller, Path::new(controller), "{node}");
            assert_eq!(nodes.namespaces, paths(&["ng3n1", "ng3n2"]), "{node}");
        }
    }

    #[test]
    fn what_is_no_node_is_named_with_the_remedy() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = file.path().display().to_string();
        for (node, expected) in [
            ("/dev/ng999n1", "there is no `/dev/ng999n1`; connect the drive"),
            (
                "/dev/null",
                "`/dev/null` is not a device of Linux' NVMe driver; name one of",
            ),
            (&file, "is not a device of Linux' NVMe driver; name one of"),
        ] {
            let error = places(Path::new(SYSFS), Path::new(node)).unwrap_err();
            let said = bothends_core::one_line(&error);
            assert!(said.contains(expected), "{said}");
        }
        let nowhere = tempfile::tempdir().unwrap();
        let error = places(nowhere.path(), Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().ends_with("mount sysfs at /sys"), "{error}");
    }
}
