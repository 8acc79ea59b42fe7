//! An error in one line, for people. The entry points and the device report every error this way.

use std::error::Error;

/// The error and its causes, `: ` between them. A cause that its error's text already ends
/// with is not said twice, and a text of several lines becomes one.
#[must_use]
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    one_line_by(error, ToString::to_string)
}

/// As [`one_line`], with the text of each error as `text` says it: an entry point with names of
/// its own for the settings ([`NamesSettings`](crate::setting::NamesSettings)).
pub fn one_line_by(
    error: &(dyn Error + 'static),
    text: impl Fn(&(dyn Error + 'static)) -> String,
) -> String {
    let mut line = text(error);
    for cause in std::iter::successors(error.source(), |&error| error.source()) {
        let text = text(cause);
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Layered {
        #[error("the disk\nis full")]
        Cause,
        #[error("cannot write")]
        Plain(#[source] Box<Self>),
        #[error("{0}")]
        Repeats(#[source] Box<Self>),
    }

    #[test]
    fn causes_follow_their_errors_once_and_in_one_line() {
        let plain = Layered::Plain(Box::new(Layered::Cause));
        let repeats = Layered::Repeats(Box::new(plain));
        assert_eq!(one_line(&repeats), "cannot write: the disk is full");
    }
}
