//! Prometheus' text format, version 0.0.4, read: lines of samples. Other lines are skipped.

/// Most labels of a sample that are read.
const MOST_LABELS: usize = 64;

/// A number with its name and labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// The metric's name.
    pub name: &'a str,
    /// Names and values.
    pub labels: Vec<(&'a str, String)>,
    /// The number, which may be infinite or none.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(is, _)| *is == name).map(|(_, value)| value.as_str())
    }
}

/// The samples of a text.
pub fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    let end =
        line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, mut rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = read_labels(inside, &mut labels)?;
    }
    // A time may follow.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Reads labels up to their brace, and gives what follows it.
fn read_labels<'a>(
    mut rest: &'a str,
    labels: &mut Vec<(&'a str, String)>,
) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        if labels.len() == MOST_LABELS {
            return None;
        }
        labels.push((name.trim(), value));
        rest = after;
    }
}

/// The text up to its closing quote, and what follows that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let text = "# HELP x A number.\n# TYPE x counter\nx{a=\"1\",b=\"q\\\"\\\\\\n}\"} 2.5\n\
                    y 3 1700000000\nz{} +Inf\n  w{c=\"d\",} -1e3\n";
        let read: Vec<Sample<'_>> = samples(text).collect();
        let of = |name, labels: &[(&'static str, &str)], value| Sample {
            name,
            labels: labels.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
            value,
        };
        assert_eq!(
            read,
            [
                of("x", &[("a", "1"), ("b", "q\"\\\n}")], 2.5),
                of("y", &[], 3.0),
                of("z", &[], f64::INFINITY),
                of("w", &[("c", "d")], -1000.0),
            ]
        );
        assert_eq!(read[0].label("a"), Some("1"));
        assert_eq!(read[0].label("c"), None);
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        for line in [
            "",
            "#",
            "x",
            "x ",
            "1x 2",
            "x{a=\"1\" 2",
            "x{a=\"1\"}",
            "x{a=1} 2",
            "{} 1",
            "x y",
            "x{a=\"\\",
            "é 1",
            "x{a=\"\u{1f600}\"",
        ] {
            assert_eq!(samples(line).count(), 0, "{line}");
        }
        let many: String = (0..100).map(|n| format!("a{n}=\"\",")).collect();
        assert_eq!(samples(&format!("x{{{many}}} 1")).count(), 0);
    }

    /// Whatever is cut out of a text or changed in it, something is read and nothing panics.
    #[test]
    fn damaged_texts_are_read_as_far_as_they_go() {
        let text = "x{a=\"1\",b=\"\u{e9}\\\"\\n\"} 2.5\ny 3\n";
        for (at, _) in text.char_indices() {
            let _ = samples(&text[at..]).count() + samples(&text[..at]).count();
            for other in ['{', '}', '"', '\\', '=', '\u{1f600}', '\n'] {
                let mut changed: Vec<char> = text.chars().collect();
                if let Some(place) = changed.get_mut(at) {
                    *place = other;
                }
                let _ = samples(&changed.iter().collect::<String>()).count();
            }
        }
    }
}
