//! Which instructions the kernels may use: chosen once, at run time, in one binary.
//!
//! Every kernel has a scalar version, which is the definition, and may have equivalents for CPU families
//! that give the same bytes. A [`Level`] names the family. It can only be obtained on a CPU that has all
//! instructions of the family, so a kernel that receives one needs no further check. Nothing here computes
//! a value.

pub(crate) mod compiled;
pub(crate) mod vectors;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use std::sync::OnceLock;

/// Test switch: the level to use instead of the best one (`scalar`, `avx2`, `avx512`, `neon`).
/// One that this processor does not have is passed over.
pub const LEVEL_VARIABLE: &str = "BOTHENDS_KERNELS";

/// Calls the twin that the modules `avx2`, `avx512` and `neon` in scope have of `$meaning` for a
/// level, or that itself.
macro_rules! kernel {
    ($level:expr, $name:ident($($argument:expr),*), $meaning:path) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(cpu) => avx2::$name(cpu, $($argument),*),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(cpu) => avx512::$name(cpu, $($argument),*),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(cpu) => neon::$name(cpu, $($argument),*),
            Level::Scalar => $meaning($($argument),*),
        }
    };
}

/// [`kernel`] where the twins are for x86 alone.
macro_rules! x86_kernel {
    ($level:expr, $name:ident($($argument:expr),*), $meaning:path) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(cpu) => avx2::$name(cpu, $($argument),*),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(cpu) => avx512::$name(cpu, $($argument),*),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => $meaning($($argument),*),
            Level::Scalar => $meaning($($argument),*),
        }
    };
}

/// Calls the twin for AVX2, which serves AVX-512 too, or the meaning.
macro_rules! avx2_kernel {
    ($level:expr, $($twin:ident)::+($($argument:expr),*), $meaning:path) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(cpu) => $($twin)::+(cpu, $($argument),*),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(cpu) => $($twin)::+(cpu.avx2(), $($argument),*),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => $meaning($($argument),*),
            Level::Scalar => $meaning($($argument),*),
        }
    };
}

pub(crate) use {avx2_kernel, kernel, x86_kernel};

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

impl Default for Level {
    /// The level of this process.
    fn default() -> Self {
        Self::of_process()
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

    /// The widest level, up to this one, of which `n_bytes` fill a register.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        expect(unused_variables, reason = "there is one level")
    )]
    pub(crate) fn filled_by(self, n_bytes: usize) -> Self {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(cpu) if n_bytes < 64 => {
                Self::Avx2(cpu.avx2()).filled_by(n_bytes)
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) if n_bytes < 32 => Self::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) | Self::Avx2(_) => self,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) if n_bytes < 16 => Self::Scalar,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => self,
            Self::Scalar => self,
        }
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

/// Where blocks begin that cover `n` values, which are at least one block. The last begins early
/// enough to be whole, and does some values again.
pub(crate) fn starts(n: usize, block: usize) -> impl Iterator<Item = usize> {
    (0..n.div_ceil(block)).map(move |nth| (nth * block).min(n - block))
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
