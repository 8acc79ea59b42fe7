//! Random numbers of one image: a pure function of seed, image and purpose.
//!
//! Philox from `core`, so a set is the same on every machine. Read `field.rs` next.

use bothends_core::philox::{philox4x32_10, words};

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Dice {
    key: [u32; 2],
    stream: [u32; 2],
    block: u64,
    words: [u32; 4],
    n_used: usize,
    n_forks: u32,
}

impl Dice {
    /// The numbers of image number `image` in the set of `seed`.
    pub(crate) fn new(seed: u64, image: u32) -> Self {
        Self::with_stream(words(seed), [image, 0])
    }

    fn with_stream(key: [u32; 2], stream: [u32; 2]) -> Self {
        Self { key, stream, block: 0, words: [0; 4], n_used: 4, n_forks: 0 }
    }

    /// Another, independent stream for the same image, so that one part of a picture can draw more
    /// numbers without changing the others.
    pub(crate) fn fork(&mut self) -> Self {
        self.n_forks += 1;
        let [image, path] = self.stream;
        let path = path.wrapping_mul(31).wrapping_add(self.n_forks);
        Self::with_stream(self.key, [image, path])
    }

    pub(crate) fn word(&mut self) -> u32 {
        if self.n_used == 4 {
            let ([low, high], [image, path]) = (words(self.block), self.stream);
            let counter = [low, high, image, path];
            self.words = philox4x32_10(counter, self.key);
            (self.block, self.n_used) = (self.block + 1, 0);
        }
        self.n_used += 1;
        self.words[self.n_used - 1]
    }

    /// Uniform in 0..1, in steps of 2^-24: exact in f32.
    #[expect(clippy::cast_precision_loss, reason = "24 bits fit an f32 exactly")]
    pub(crate) fn unit(&mut self) -> f32 {
        (self.word() >> 8) as f32 / 16_777_216.0
    }

    /// Uniform in `from..to`.
    pub(crate) fn between(&mut self, from: f32, to: f32) -> f32 {
        from + self.unit() * (to - from)
    }

    /// Uniform in `0..n`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        words(u64::from(self.word()) * u64::from(n))[1]
    }

    /// True with probability `p`.
    pub(crate) fn chance(&mut self, p: f32) -> bool {
        self.unit() < p
    }

    /// One of `choices`, which must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let n = u32::try_from(choices.len()).unwrap_or(u32::MAX);
        choices[self.below(n) as usize]
    }
}
