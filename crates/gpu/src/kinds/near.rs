//! Memory near a device: first touched by a processor of the NUMA node that the device is attached
//! to, which is where Linux then puts it.
//!
//! A wish only: where the system does not name nodes, has one, or does not let this
//! process run on that one, the memory comes from wherever it comes from. Moves no memory, and
//! binds no thread but its own.

use std::fs;
use std::path::Path;
use std::thread;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Where Linux lists its nodes.
const NODES: &str = "/sys/devices/system/node";

/// Runs `touch` on a processor of that node if that is possible, else here.
pub(crate) fn on_node(node: Option<u32>, touch: impl FnOnce() + Send) {
    match node.and_then(|node| processors(Path::new(NODES), node)) {
        Some(processors) => thread::scope(|scope| {
            scope.spawn(move || {
                // A thread for this only, so that nobody has to be bound back.
                let _ = sched_setaffinity(Pid::from_raw(0), &processors);
                touch();
            });
        }),
        None => touch(),
    }
}

/// The processors of a node; `None` where there is no other node, or none that is known.
fn processors(nodes: &Path, node: u32) -> Option<CpuSet> {
    let others = fs::read_to_string(nodes.join("online")).ok()?;
    if numbers(&others)?.len() < 2 {
        return None;
    }
    let list = fs::read_to_string(nodes.join(format!("node{node}/cpulist"))).ok()?;
    let mut set = CpuSet::new();
    let listed = numbers(&list)?;
    listed.iter().try_for_each(|processor| set.set(*processor)).ok()?;
    (!listed.is_empty()).then_some(set)
}

/// A list as the kernel writes them: `0-3,8,10-11`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for item in list.trim().split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CpuSet::count() {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(numbers("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(numbers("\n"), Some(Vec::new()));
        assert_eq!(numbers("0-4294967296"), None);
        assert_eq!(numbers("none"), None);
    }

    #[test]
    fn only_a_system_of_several_nodes_has_near_ones() {
        let nodes = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = nodes.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert!(processors(nodes.path(), 1).is_none());
        write("node1/cpulist", "1,3\n");
        write("online", "0\n");
        assert!(processors(nodes.path(), 1).is_none(), "one node is near everything");
        write("online", "0-1\n");
        let near = processors(nodes.path(), 1).unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|cpu| near.is_set(cpu).unwrap()),
            [false, true, false, true]
        );
        assert!(processors(nodes.path(), 2).is_none());
    }

    #[test]
    fn touching_happens_wherever_it_is() {
        let n_touched = AtomicU32::new(0);
        for node in [None, Some(0), Some(999)] {
            on_node(node, || {
                n_touched.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(n_touched.into_inner(), 3);
    }
}
