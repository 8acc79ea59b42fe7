//! Recipes and steps in plain words, for people who want to know what they train on.

use super::op::{
    Augmix, AutoAugment, ColorJitter, Colour, Control, Crops, ErasingValue, Feed,
    Geometry, Mixing, Op, Policy, RandomAffine, RandomErasing, TimmInterpolation,
    Truncated,
};
use super::step::{Adjust, Map, Mix, Step};
use super::{Interpolation, Recipe, ResizeTo, Size};

impl Recipe {
    /// What is done, op by op, one line each; ops inside others further in.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.repeated_augment() > 1 {
            let n = self.repeated_augment();
            lines.push(format!(
                "every sample {n} times in a row, each augmented differently"
            ));
        }
        describe(self.before_cut(), 0, &mut lines);
        lines.push(
            "— the cut: bytes, rows × columns × channels; from here at the feed —".into(),
        );
        describe(self.after_cut(), 0, &mut lines);
        lines
    }
}

fn describe(ops: &[Op], depth: usize, lines: &mut Vec<String>) {
    for op in ops {
        let indent = "  ".repeat(depth);
        lines.push(format!("{indent}{}: {}", op.name(), op.words()));
        describe(op.inside(), depth + 1, lines);
        let Op::Crops(Crops::MultiCrop(crops)) = op else { continue };
        for view in &crops.views {
            let times = if view.repeat == 1 {
                "one view".into()
            } else {
                format!("{} views, each", view.repeat)
            };
            lines.push(format!("{indent}  {times}:"));
            describe(&view.ops, depth + 2, lines);
        }
    }
}

impl Op {
    /// What the op does, in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Decode(op) => match op.truncated {
                Truncated::Refuse => "the record becomes pixels".into(),
                Truncated::Fill => "the record becomes pixels; what a file that ends \
                                    early lacks is filled in as Pillow does"
                    .into(),
            },
            Self::Geometry(op) => geometry(op),
            Self::Colour(op) => colour(op),
            Self::Policy(op) => policy(op),
            Self::RandomErasing(op) => erasing(op),
            Self::Control(Control::RandomApply(op)) => {
                format!("{}, all of these:", often(op.p))
            }
            Self::Control(Control::RandomChoice(op)) => {
                let total: f64 = op.p.iter().sum();
                let shares = op.p.iter().map(|p| percent(p / total));
                format!("one of these ({}):", shares.collect::<Vec<_>>().join(", "))
            }
            Self::Control(Control::RandomOrder(_)) => "these in any order:".into(),
            Self::Crops(Crops::FiveCrop(op)) => {
                format!("five views: the corners and the middle, {}", size(op.size))
            }
            Self::Crops(Crops::TenCrop(op)) => {
                let mirrored = if op.vertical_flip { "upside down" } else { "mirrored" };
                format!(
                    "ten views: corners and middle, {}, and {mirrored}",
                    size(op.size)
                )
            }
            Self::Crops(Crops::MultiCrop(_)) => "several views from one decode:".into(),
            Self::Feed(Feed::Normalise(op)) => {
                format!("(value ÷ 255 − {}) ÷ {}", list(&op.mean), list(&op.std))
            }
            Self::Feed(Feed::ToDtype(op)) => {
                format!("elements are {:?}", op.dtype).to_lowercase()
            }
            Self::Feed(Feed::Layout(op)) => {
                format!("layout {:?}", op.layout).to_lowercase()
            }
            Self::Mixing(Mixing::Mixup(op)) => format!(
                "every sample mixed with another of its batch, share from Beta({0}, {0})",
                op.alpha
            ),
            Self::Mixing(Mixing::Cutmix(op)) => format!(
                "a rectangle of another sample pasted in, share from Beta({0}, {0})",
                op.alpha
            ),
        }
    }
}

fn geometry(op: &Geometry) -> String {
    match op {
        Geometry::RandomResizedCrop(op) => format!(
            "a random box of {} to {} of the image, {:.2} to {:.2} times as wide as high, \
             resized to {} ({})",
            percent(op.scale[0]),
            percent(op.scale[1]),
            op.ratio[0],
            op.ratio[1],
            size(op.size),
            filter(op.interpolation)
        ),
        Geometry::Resize(op) => {
            let to = match op.size {
                ResizeTo::ShortSide(side) => format!("its shorter side to {side}"),
                ResizeTo::Exactly(exactly) => format!("to {}", size(exactly)),
            };
            let most = op.max_size.map_or(String::new(), |most| {
                format!(", its longer side at most {most}")
            });
            format!("resized, {to}{most} ({})", filter(op.interpolation))
        }
        Geometry::CenterCrop(op) => format!("the middle, {}", size(op.size)),
        Geometry::RandomCrop(op) => {
            let [left, top, right, bottom]: [u32; 4] = op.padding.into();
            let padding = if [left, top, right, bottom] == [0; 4] {
                String::new()
            } else {
                format!(" after padding by {left}, {top}, {right}, {bottom}")
            };
            format!("a random {}{padding}", size(op.size))
        }
        Geometry::Pad(op) => {
            let [left, top, right, bottom]: [u32; 4] = op.padding.into();
            format!("padded by {left}, {top}, {right}, {bottom}")
        }
        Geometry::RandomHorizontalFlip(op) => {
            format!("left and right exchanged {}", often(op.p))
        }
        Geometry::RandomVerticalFlip(op) => {
            format!("top and bottom exchanged {}", often(op.p))
        }
        Geometry::RandomRotation(op) => format!(
            "turned by {} to {} degrees ({})",
            op.degrees.0[0],
            op.degrees.0[1],
            filter(op.interpolation)
        ),
        Geometry::RandomAffine(op) => affine(op),
        Geometry::RandomPerspective(op) => format!(
            "seen from the side {}, corners moved by up to {} of half a side ({})",
            often(op.p),
            percent(op.distortion_scale),
            filter(op.interpolation)
        ),
    }
}

fn affine(op: &RandomAffine) -> String {
    let mut words =
        format!("turned by {} to {} degrees", op.degrees.0[0], op.degrees.0[1]);
    if let Some([x, y]) = op.translate {
        words += &format!(", moved by up to {} and {}", percent(x), percent(y));
    }
    if let Some(scale) = op.scale {
        words += &format!(", scaled by {} to {}", scale.0[0], scale.0[1]);
    }
    if let Some(shear) = op.shear {
        let [x, to_x, y, to_y] = shear.0;
        words += &format!(", sheared by {x} to {to_x} and {y} to {to_y} degrees");
    }
    format!("{words} ({})", filter(op.interpolation))
}

fn colour(op: &Colour) -> String {
    match op {
        Colour::ColorJitter(op) => jitter(op),
        Colour::Grayscale(op) => {
            format!("no colour, {} channels", op.num_output_channels)
        }
        Colour::RandomGrayscale(op) => format!("no colour {}", often(op.p)),
        Colour::GaussianBlur(op) => {
            let [low, high] = op.sigma.0;
            format!("blurred with a deviation of {low} to {high} pixels")
        }
        Colour::RandomAdjustSharpness(op) => {
            format!("sharpness × {} {}", op.sharpness_factor, often(op.p))
        }
        Colour::RandomAutocontrast(op) => {
            format!("each channel stretched to its full range {}", often(op.p))
        }
        Colour::RandomEqualize(op) => format!("histogram equalised {}", often(op.p)),
        Colour::RandomInvert(op) => format!("negative {}", often(op.p)),
        Colour::RandomPosterize(op) => {
            format!("{} bits per value {}", op.bits, often(op.p))
        }
        Colour::RandomSolarize(op) => {
            format!("values from {} on inverted {}", op.threshold, often(op.p))
        }
        Colour::Jpeg(op) => {
            let [low, high] = op.quality.0;
            format!("through a JPEG of quality {low} to {high} and back")
        }
    }
}

fn jitter(op: &ColorJitter) -> String {
    let factor = |name, range: Option<[f64; 2]>| {
        range.map(|[low, high]| format!("{name} × {low:.2} to {high:.2}"))
    };
    let parts = [
        factor("brightness", op.brightness.map(|f| f.0)),
        factor("contrast", op.contrast.map(|f| f.0)),
        factor("saturation", op.saturation.map(|f| f.0)),
        op.hue.map(|hue| format!("hue {:+.2} to {:+.2} turns", hue.0[0], hue.0[1])),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    format!("in random order: {}", parts.join(", "))
}

fn policy(op: &Policy) -> String {
    match op {
        Policy::AutoAugment(AutoAugment { policy, .. }) => {
            format!("one of 25 pairs of ops learnt on {policy:?}").to_lowercase()
        }
        Policy::RandAugment(op) => format!(
            "{} of 14 ops in a row, strength {} of {}",
            op.num_ops,
            op.magnitude,
            op.num_magnitude_bins - 1
        ),
        Policy::TimmRandAugment(op) => format!(
            "{} of timm's 15 ops in a row, each {}, strength {} ± {} of 10{}{}",
            op.num_layers,
            often(op.p),
            op.magnitude,
            op.magnitude_std,
            if op.increasing { ", increasing" } else { "" },
            match op.interpolation {
                TimmInterpolation::Random => " (bilinear or bicubic)",
                TimmInterpolation::Bilinear => " (bilinear)",
                TimmInterpolation::Bicubic => " (bicubic)",
            }
        ),
        Policy::TrivialAugmentWide(op) => {
            format!("one of 14 ops, any of {} strengths", op.num_magnitude_bins)
        }
        Policy::Augmix(Augmix { mixture_width, chain_depth, severity, .. }) => {
            let depth =
                chain_depth.map_or("1 to 3".to_owned(), |depth| depth.to_string());
            format!(
                "{mixture_width} chains of {depth} ops of severity {severity}, mixed with the image"
            )
        }
    }
}

fn erasing(op: &RandomErasing) -> String {
    let value = match &op.value {
        ErasingValue::All(value) => format!("{value}"),
        ErasingValue::Each(values) => list(values),
        ErasingValue::Random(_) => "random values".into(),
    };
    format!(
        "a rectangle of {} to {} of the image becomes {value} {}",
        percent(op.scale[0]),
        percent(op.scale[1]),
        often(op.p)
    )
}

impl Step {
    /// What the step does, in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Resize { part, size: to, interpolation } => format!(
                "{} × {} at ({}, {}) to {} ({})",
                part.height,
                part.width,
                part.top,
                part.left,
                size(*to),
                filter(*interpolation)
            ),
            Self::Window(window) => {
                format!("{} at ({}, {})", size(window.size), window.top, window.left)
            }
            Self::MirrorColumns => "mirrored".into(),
            Self::MirrorRows => "upside down".into(),
            Self::Warp(warp) => {
                format!("{} ({})", map(&warp.map), filter(warp.interpolation))
            }
            Self::Adjust(adjust) => adjusted(adjust),
            Self::Erase { area, .. } => format!(
                "{} × {} erased at ({}, {})",
                area.height, area.width, area.top, area.left
            ),
            Self::FirstChannel => "one channel".into(),
            Self::ThreeChannels => "three equal channels".into(),
            Self::Mix(Mix::Begin { weight }) => format!("itself × {weight:.2}"),
            Self::Mix(Mix::Chain { weight }) => format!("that chain × {weight:.2}"),
            Self::Mix(Mix::End) => "mixed".into(),
        }
    }
}

fn adjusted(adjust: &Adjust) -> String {
    match adjust {
        Adjust::Brightness(f) => format!("brightness × {f:.2}"),
        Adjust::Contrast(f) => format!("contrast × {f:.2}"),
        Adjust::Saturation(f) => format!("saturation × {f:.2}"),
        Adjust::Hue(turns) => format!("hue {turns:+.3} turns"),
        Adjust::Grayscale => "no colour".into(),
        Adjust::Sharpness(f) => format!("sharpness × {f:.2}"),
        Adjust::Blur(blur) => format!("blur {:.2}", blur.sigma),
        Adjust::Autocontrast => "autocontrast".into(),
        Adjust::Equalize => "equalize".into(),
        Adjust::Invert => "invert".into(),
        Adjust::Posterize { bits } => format!("{bits} bits"),
        Adjust::Solarize { threshold } => format!("solarize from {threshold}"),
        Adjust::SolarizeAdd { addition } => format!("solarize: dark + {addition}"),
        Adjust::Jpeg { quality } => format!("JPEG quality {quality}"),
    }
}

/// A turn, a move, a shear, or whatever else.
fn map(map: &Map) -> String {
    let Map::Affine([a, b, c, d, e, f]) = *map else { return "perspective".into() };
    let near = |x: f64, y: f64| (x - y).abs() < 1e-9;
    let is_straight = near(a, 1.0) && near(e, 1.0);
    if is_straight && near(b, 0.0) && near(d, 0.0) {
        return format!("moved by ({:.1}, {:.1})", -c, -f);
    }
    if is_straight && near(d, 0.0) {
        return format!("sheared along rows {b:+.3}");
    }
    if is_straight && near(b, 0.0) {
        return format!("sheared along columns {d:+.3}");
    }
    if near(a, e) && near(b, -d) && (a * e - b * d - 1.0).abs() < 1e-6 {
        return format!("turned, sine {:+.3}", -b);
    }
    format!("affine [{a:.2}, {b:.2}, {c:.1}, {d:.2}, {e:.2}, {f:.1}]")
}

fn size(Size { height, width }: Size) -> String {
    format!("{height} × {width}")
}

fn filter(interpolation: Interpolation) -> &'static str {
    match interpolation {
        Interpolation::Nearest => "nearest",
        Interpolation::Bilinear => "bilinear",
        Interpolation::Bicubic => "bicubic",
        Interpolation::Box => "box",
        Interpolation::Hamming => "hamming",
        Interpolation::Lanczos => "lanczos",
    }
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1000.0).round() / 10.0)
}

fn often(p: f64) -> String {
    if p >= 1.0 { "always".into() } else { format!("with probability {p}") }
}

fn list(values: &[f64]) -> String {
    let values: Vec<_> = values.iter().map(f64::to_string).collect();
    format!("({})", values.join(", "))
}
