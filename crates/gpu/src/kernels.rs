//! The kernels as they are shipped: PTX for compute capability 7.5 and up, which the driver
//! compiles for its card. `kernels/README.md` explains how it is made; `twin` runs the same
//! sources without a GPU.

use crate::driver::Card;

/// The oldest cards that run the kernels, by compute capability: Turing.
pub const LEAST_CAPABILITY: (u32, u32) = (7, 5);

/// Why a card cannot run the kernels, if it is one of NVIDIA's that cannot. Copies to and from it need none.
#[must_use]
pub fn lacking(card: &Card) -> Option<String> {
    let ((major, minor), (least, over)) = (card.capability, LEAST_CAPABILITY);
    // Twins and fakes have no capability.
    let is_old = (1, 0) <= card.capability && card.capability < LEAST_CAPABILITY;
    is_old.then(|| {
        format!(
            "{} has compute capability {major}.{minor}, and the kernels need {least}.{over}",
            card.name
        )
    })
}

/// The text, to be given to the driver.
pub const PTX: &str = include_str!("../kernels/bothends.ptx");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_capability_is_what_the_text_is_made_for() {
        let (major, minor) = LEAST_CAPABILITY;
        assert!(PTX.contains(&format!("\n.target sm_{major}{minor}\n")));
    }
}
