//! The frame of a plot: axes, ticks, and the conversion of figures to coordinates.
//!
//! Time runs to the right, on the same scale for all plots of a page.

use crate::page::markup::escape;

pub(crate) const WIDTH: f64 = 360.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 352.0;
const TOP: f64 = 10.0;
/// Space below the time axis for its labels and unit.
const FOOT: f64 = 36.0;

/// A plot's scales.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Seconds at the right edge.
    pub(crate) longest_s: f64,
    /// The figure at the upper edge.
    pub(crate) most: f64,
    /// Height of the picture.
    pub(crate) height: f64,
}

impl Frame {
    pub(crate) fn x(self, t_s: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * t_s / self.longest_s
    }

    pub(crate) fn y(self, value: f64) -> f64 {
        self.bottom() - (self.bottom() - TOP) * value / self.most
    }

    fn bottom(self) -> f64 {
        self.height - FOOT
    }

    /// A whole plot: `name` identifies it, `label` says what it shows, and `unit` is at the vertical axis,
    /// whose ticks are at `values`.
    pub(crate) fn picture(
        self,
        text: &Text<'_>,
        values: &[f64],
        content: &str,
    ) -> String {
        format!(
            "<svg class=\"plot {}\" data-plot=\"{}\" viewBox=\"0 0 {WIDTH} {}\" \
             role=\"img\" aria-label=\"{}\">{}{content}</svg>",
            text.name,
            text.name,
            self.height,
            escape(text.label),
            self.axes(text.unit, values),
        )
    }

    fn axes(self, unit: &str, values: &[f64]) -> String {
        let bottom = self.bottom();
        let mut axes = format!(
            "<text class=\"unit\" x=\"{RIGHT}\" y=\"{:.0}\" text-anchor=\"end\">seconds</text>\
             <text class=\"unit\" transform=\"translate(11 {:.0}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            bottom + 31.0,
            f64::midpoint(TOP, bottom),
            escape(unit),
        );
        for t_s in ticks(self.longest_s, 5) {
            let x = self.x(t_s);
            axes += &format!(
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                bottom + 15.0,
                tick_label(t_s)
            );
        }
        for value in values {
            let y = self.y(*value);
            axes += &format!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.0,
                tick_label(*value)
            );
        }
        axes + &format!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{RIGHT}\"/>")
    }

    /// A line through points of (seconds, figure).
    pub(crate) fn line(self, class: &str, points: &[(f64, f64)]) -> String {
        format!("<path class=\"{class}\" d=\"{}\"/>", self.through(points))
    }

    /// The area below such a line.
    pub(crate) fn area(self, class: &str, points: &[(f64, f64)]) -> String {
        let ([(first_s, _), ..], [.., (last_s, _)]) = (points, points) else {
            return String::new();
        };
        let (bottom, from, to) = (self.bottom(), self.x(*first_s), self.x(*last_s));
        format!(
            "<path class=\"{class} area\" d=\"{}L{to:.2} {bottom:.2}L{from:.2} {bottom:.2}Z\"/>",
            self.through(points)
        )
    }

    fn through(self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (t_s, value) in points.iter().filter(|(t, v)| t.is_finite() && v.is_finite())
        {
            let sign = if path.is_empty() { 'M' } else { 'L' };
            path += &format!("{sign}{:.2} {:.2}", self.x(*t_s), self.y(*value));
        }
        path
    }
}

/// The text of a plot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) name: &'a str,
    pub(crate) label: &'a str,
    pub(crate) unit: &'a str,
}

/// Round ticks from 0 to `longest`, in at most `most` steps.
pub(crate) fn ticks(longest: f64, most: u8) -> Vec<f64> {
    let most = f64::from(most);
    let magnitude = 10f64.powf((longest / most).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| longest / step <= most).unwrap_or(longest);
    (0..=10).map(|i| f64::from(i) * step).take_while(|mark| *mark <= longest).collect()
}

pub(crate) fn tick_label(mark: f64) -> String {
    let rounded = format!("{mark:.3}");
    rounded.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reads back the data of a plot's path, for tests that compare them.
#[cfg(test)]
pub(crate) fn points_of(svg: &str, class: &str, frame: Frame) -> Vec<(f64, f64)> {
    let Some(path) = svg.split(&format!("<path class=\"{class}\" d=\"")).nth(1) else {
        return Vec::new();
    };
    let path = path.split('"').next().unwrap();
    let points = path.split(['M', 'L', 'h']).filter(|point| point.contains(' '));
    let point = |point: &str| {
        let (x, y) = point.trim().split_once(' ').unwrap();
        let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
        let t_s = (x - LEFT) / (RIGHT - LEFT) * frame.longest_s;
        let bottom = frame.bottom();
        (t_s, (bottom - y) / (bottom - TOP) * frame.most)
    };
    points.map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(4.2, 5), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(5.0, 5), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(2345.0, 3), [0.0, 1000.0, 2000.0]);
        for longest in [1e-9, 0.037, 0.9, 61.0, 86_400.0, 1e12, f64::MAX] {
            for most in [3, 5] {
                let n = ticks(longest, most).len();
                assert!((2..=6).contains(&n), "{n} ticks for {longest}");
            }
        }
        assert_eq!(tick_label(0.25), "0.25");
        assert_eq!(tick_label(10.0), "10");
    }

    #[test]
    fn a_line_is_read_back_as_it_was_drawn() {
        let frame = Frame { longest_s: 8.0, most: 250.0, height: 150.0 };
        let points = [(0.0, 0.0), (1.0, 250.0), (8.0, 100.0)];
        let svg = frame.area("x", &points) + &frame.line("x", &points);
        let read = points_of(&svg, "x", frame);
        assert_eq!(read.len(), 3);
        for ((t_s, value), (read_s, read)) in points.iter().zip(&read) {
            assert!((t_s - read_s).abs() < 0.01 && (value - read).abs() < 0.1);
        }
    }
}
