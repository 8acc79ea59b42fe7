//! Decides the ops that change pixel values.

use super::Deciding;
use crate::recipe::op::{ColorJitter, Colour};
use crate::recipe::step::{Adjust, Blur, Step};
use crate::rng::Draws;

impl Deciding<'_> {
    pub(super) fn adjust(&mut self, adjust: Adjust) {
        self.push(Step::Adjust(adjust));
    }

    pub(super) fn colour(&mut self, op: &Colour, draws: &mut Draws) {
        let (p, adjust) = match op {
            Colour::ColorJitter(op) => {
                self.color_jitter(op, draws);
                return;
            }
            Colour::Grayscale(op) => {
                self.adjust(Adjust::Grayscale);
                match (op.num_output_channels, self.channels) {
                    (1, 2..) => {
                        self.channels = 1;
                        self.push(Step::FirstChannel);
                    }
                    (3, 1) => {
                        self.channels = 3;
                        self.push(Step::ThreeChannels);
                    }
                    _ => {}
                }
                return;
            }
            Colour::GaussianBlur(op) => {
                let sigma = draws.between(op.sigma.0);
                self.adjust(Adjust::Blur(Blur { kernel: op.kernel(), sigma }));
                return;
            }
            Colour::Jpeg(op) => {
                let [low, high] = op.quality.0.map(u32::from);
                let quality = draws.integer([low, high]);
                let quality = u8::try_from(quality).unwrap_or(u8::MAX);
                self.adjust(Adjust::Jpeg { quality });
                return;
            }
            Colour::RandomGrayscale(op) => (op.p, Adjust::Grayscale),
            Colour::RandomAdjustSharpness(op) => {
                (op.p, Adjust::Sharpness(op.sharpness_factor))
            }
            Colour::RandomAutocontrast(op) => (op.p, Adjust::Autocontrast),
            Colour::RandomEqualize(op) => (op.p, Adjust::Equalize),
            Colour::RandomInvert(op) => (op.p, Adjust::Invert),
            Colour::RandomPosterize(op) => (op.p, Adjust::Posterize { bits: op.bits }),
            Colour::RandomSolarize(op) => {
                (op.p, Adjust::Solarize { threshold: threshold(op.threshold) })
            }
        };
        if draws.bernoulli(p) {
            self.adjust(adjust);
        }
    }

    /// Draws a `permutation` of the four, then `between` for each that is there: brightness,
    /// contrast, saturation, hue.
    fn color_jitter(&mut self, op: &ColorJitter, draws: &mut Draws) {
        let mut order = [0; 4];
        draws.permutation(&mut order);
        let brightness = op.brightness.map(|f| Adjust::Brightness(draws.between(f.0)));
        let contrast = op.contrast.map(|f| Adjust::Contrast(draws.between(f.0)));
        let saturation = op.saturation.map(|f| Adjust::Saturation(draws.between(f.0)));
        let hue = op.hue.map(|f| Adjust::Hue(draws.between(f.0)));
        let all = [brightness, contrast, saturation, hue];
        for adjust in order.into_iter().filter_map(|nth| all[nth]) {
            self.adjust(adjust);
        }
    }
}

/// The first byte from `value` on.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limited to 0..=256"
)]
pub(super) fn threshold(value: f64) -> u16 {
    value.ceil().clamp(0.0, 256.0) as u16
}
