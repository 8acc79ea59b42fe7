//! Where batches are delivered, by name.
//!
//! Names only: whether there is such a GPU is seen when a loader is opened (`handover/loader/gpu.rs`).

/// Where batches are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deliver {
    /// Into host memory.
    #[default]
    Host,
    /// Into host memory that is pinned for the GPU of this number, so that copies of the caller's own
    /// overlap. Where there is no such GPU it is ordinary memory, and a note says so.
    PageLocked(u32),
    /// Into the memory of the GPU of this number ([`crate::Loader::begin_on`]).
    Gpu(u32),
}

impl Deliver {
    /// What two options of a loader say: `device` (`cpu`, `cuda:N`, or `cuda`, which is this process's
    /// `own`), and `pin_memory`, a name of a GPU in the same way.
    ///
    /// # Errors
    /// One line: what is no name.
    pub(crate) fn named(
        device: Option<&str>,
        pin_memory: Option<&str>,
        own: u32,
    ) -> Result<Self, String> {
        if let Some(name) = device.filter(|name| *name != "cpu") {
            return gpu(name, own).map(Self::Gpu).map_err(|other| {
                format!("`device` is {name:?}; it must be \"cpu\", {other}")
            });
        }
        let Some(name) = pin_memory else { return Ok(Self::Host) };
        gpu(name, own).map(Self::PageLocked).map_err(|other| {
            format!("`pin_memory` is {name:?}; it must be true, false, {other}")
        })
    }
}

/// The number of a GPU by its name; else which names there are.
fn gpu(name: &str, own: u32) -> Result<u32, &'static str> {
    let number = name.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    number
        .or((name == "cuda").then_some(own))
        .ok_or("\"cuda\", or \"cuda:N\" with the number of a GPU")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_named_by_its_number_or_is_the_ranks_own() {
        let device = |name| Deliver::named(Some(name), None, 5);
        assert_eq!(device("cuda:3"), Ok(Deliver::Gpu(3)));
        assert_eq!(device("cuda"), Ok(Deliver::Gpu(5)));
        assert_eq!(device("cpu"), Ok(Deliver::Host));
        for name in ["cuda:", "cuda:-1", "cuda:x", "gpu", "", "cuda:0x1"] {
            let line = device(name).unwrap_err();
            assert!(line.contains("`device` is") && line.contains("cuda:N"), "{line}");
        }
        let pinned = |name| Deliver::named(None, Some(name), 5);
        assert_eq!(pinned("cuda"), Ok(Deliver::PageLocked(5)));
        assert!(pinned("cpu").unwrap_err().contains("true, false"));
        let both = Deliver::named(Some("cuda:1"), Some("cuda:2"), 0);
        assert_eq!(both, Ok(Deliver::Gpu(1)), "its slots are pinned anyway");
    }
}
