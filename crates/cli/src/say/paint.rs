//! Colours on a terminal, as its user wants them: <https://no-color.org> and
//! <https://bixense.com/clicolors>. What is coloured, `say.rs` says.

/// How a few words stand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Bold,
    Red,
    Green,
    Yellow,
}

impl Paint {
    /// The words so painted, where colours are wanted.
    pub(super) fn over(self, words: &str, is_terminal: impl Into<Stream>) -> String {
        if !is_wanted(is_terminal) {
            return words.to_owned();
        }
        // ECMA-48, SGR: 1 bold, 31 to 33 the colour, 0 neither.
        let code = match self {
            Self::Bold => "1",
            Self::Red => "1;31",
            Self::Green => "1;32",
            Self::Yellow => "1;33",
        };
        format!("\x1b[{code}m{words}\x1b[0m")
    }
}

/// What is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Terminal,
    Other,
}

impl From<bool> for Stream {
    fn from(is_terminal: bool) -> Self {
        if is_terminal { Self::Terminal } else { Self::Other }
    }
}

/// Whether colours are wanted there.
pub(super) fn is_wanted(stream: impl Into<Stream>) -> bool {
    decide(stream.into(), |name| std::env::var(name).ok())
}

fn decide(stream: Stream, variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = |name: &str| variable(name).filter(|value| !value.is_empty());
    if said("NO_COLOR").is_some() {
        return false;
    }
    if said("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    let is_off = said("CLICOLOR").is_some_and(|value| value == "0");
    let is_dumb = said("TERM").is_none_or(|term| term == "dumb");
    stream == Stream::Terminal && !is_off && !is_dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is set, and whether a terminal and another stream are coloured.
    type Case<'a> = (&'a [(&'a str, &'a str)], bool, bool);

    #[test]
    fn colours_are_for_terminals_unless_somebody_says_otherwise() {
        let wanted = |stream: Stream, set: &[(&str, &str)]| {
            decide(stream, |name| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let term = ("TERM", "xterm");
        let cases: [Case; 8] = [
            (&[term], true, false),
            (&[], false, false),
            (&[("TERM", "dumb")], false, false),
            (&[term, ("NO_COLOR", "1")], false, false),
            (&[term, ("NO_COLOR", "")], true, false),
            (&[term, ("CLICOLOR_FORCE", "1")], true, true),
            (&[term, ("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false),
            (&[term, ("CLICOLOR", "0")], false, false),
        ];
        for (set, terminal, other) in cases {
            assert_eq!(wanted(Stream::Terminal, set), terminal, "{set:?}");
            assert_eq!(wanted(Stream::Other, set), other, "{set:?}");
        }
    }
}
