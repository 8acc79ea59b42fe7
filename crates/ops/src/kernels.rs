//! Which instructions the kernels may use: chosen once, at run time, in one binary.
//!
//! Every kernel has a scalar meaning, which is the definition, and may have twins that use
//! what a processor family offers. A twin gives the same bytes. A [`Level`] names the family;
//! it can only be had on a processor that has all of the family's instructions, so a kernel
//! that is handed one needs no further check. Nothing here computes.

use std::sync::OnceLock;

/// Test switch: the level to use instead of the best one (`scalar`, `avx2`, `avx512`, `neon`).
/// One that this processor does not have is passed over.
pub const LEVEL_VARIABLE: &str = "BOTHENDS_KERNELS";

/// A family of instructions that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// What Rust itself offers; the definition.
    Scalar,
    /// x86-64-v3: AVX2, BMI, FMA (2013 on).
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// x86-64-v4 with VBMI, VBMI2 and VNNI (Ice Lake, Zen 4 and later).
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// Every 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

/// Proof that the processor has x86-64-v3.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

/// Proof that the processor has x86-64-v4, VBMI, VBMI2 and VNNI.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx512(());

/// Proof that the processor has NEON.
#[cfg(target_arch = "aarch64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neon(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// The proof, if it is true.
    #[must_use]
    pub fn new() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe")
            && is_x86_feature_detected!("popcnt");
        has_all.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// The proof, if it is true.
    #[must_use]
    pub fn new() -> Option<Self> {
        let has_all = Avx2::new().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("avx512vnni");
        has_all.then_some(Self(()))
    }

    /// What has AVX-512 has AVX2.
    #[must_use]
    pub fn avx2(self) -> Avx2 {
        Avx2(())
    }
}

#[cfg(target_arch = "aarch64")]
impl Neon {
    /// The proof, if it is true.
    #[must_use]
    pub fn new() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

impl Level {
    /// The level of this process: the best one, or the one that [`LEVEL_VARIABLE`] names.
    /// Looked up once.
    #[must_use]
    pub fn of_process() -> Self {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let wanted = std::env::var(LEVEL_VARIABLE).unwrap_or_default();
            let named =
                Self::available().into_iter().find(|level| level.name() == wanted);
            named.unwrap_or_else(Self::best)
        })
    }

    /// The fastest level that this processor has.
    #[must_use]
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self::Scalar)
    }

    /// Every level that this processor has, the scalar one first, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let kernels = [Avx2::new().map(Self::Avx2), Avx512::new().map(Self::Avx512)];
        #[cfg(target_arch = "aarch64")]
        let kernels = [Neon::new().map(Self::Neon)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let kernels: [Option<Self>; 0] = [];
        std::iter::once(Self::Scalar).chain(kernels.into_iter().flatten()).collect()
    }

    /// Its name in [`LEVEL_VARIABLE`], in benchmarks and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "neon",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scalar_level_is_everywhere_and_the_best_is_last() {
        let levels = Level::available();
        assert_eq!(levels[0], Level::Scalar);
        assert_eq!(levels[levels.len() - 1], Level::best());
    }

    #[test]
    fn every_level_has_a_name_of_its_own() {
        let mut names: Vec<_> = Level::available().into_iter().map(Level::name).collect();
        names.dedup();
        assert_eq!(names.len(), Level::available().len());
    }
}
