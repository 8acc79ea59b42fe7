//! HTML and SVG as text: escaping, and the shapes that the charts share.
//!
//! All text from an input goes through [`escape`] before it is written to the page.

use crate::ReportInput;
use crate::figure::{Origin, origin_words};

/// `text` escaped for HTML, between tags and inside quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// `json` escaped so that it cannot end a script element.
pub(crate) fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// The label of a figure of this report.
pub(crate) fn tag(origin: Origin, input: &ReportInput) -> String {
    origin_tag(&origin_words(origin, input))
}

/// A small label next to a figure with its origin, in short, and in full as a tooltip.
pub(crate) fn origin_tag(words: &str) -> String {
    let (class, short) = match words {
        "measured" => ("measured", words),
        "modelled" => ("modelled", words),
        _ => ("modelled", "measured with models"),
    };
    format!("<span class=\"tag {class}\" title=\"{}\">{short}</span>", escape(words))
}

/// A legend: patches of colour with their meanings, each on one line, and the origin of the figures.
pub(crate) fn legend(keys: &[(&str, &str)], tag: &str) -> String {
    let key = |(class, words): &(&str, &str)| {
        format!(
            "<span class=\"item\"><span class=\"key {class}\"></span>{}</span> ",
            escape(words)
        )
    };
    let keys: String = keys.iter().map(key).collect();
    format!("<p class=\"legend\">{keys}{tag}</p>\n")
}

/// One of several plots side by side: the name of the run, text, and the plot.
pub(crate) fn plot(name: &str, caption: &str, picture: &str) -> String {
    format!(
        "<figure><figcaption><b>{}</b> {}</figcaption>{picture}</figure>\n",
        escape(name),
        escape(caption)
    )
}

/// An entry of a list of terms; `meaning` is markup.
pub(crate) fn entry(term: &str, meaning: &str) -> String {
    format!("<div><dt>{}</dt><dd>{meaning}</dd></div>\n", escape(term))
}

/// The width of a `value` in percent of a bar, if `longest` has the width `most`.
pub(crate) fn share(value: f64, longest: f64, most: f64) -> f64 {
    let share = most * value / longest;
    if share.is_finite() { share.clamp(0.0, 100.0) } else { 0.0 }
}

/// One coloured piece of a bar, from `start` to `end` percent of its width.
pub(crate) fn bar_piece(class: &str, start: f64, end: f64) -> String {
    let width = (end - start).max(0.0);
    format!(
        "<rect class=\"{class}\" x=\"{start:.2}\" width=\"{width:.2}\" height=\"10\"/>"
    )
}

/// The pieces of a bar on its track.
pub(crate) fn bar(pieces: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"rail\" width=\"100\" height=\"10\"/>{pieces}</svg>"
    )
}

/// A line of a bar chart: name, bar, figure. `name` and `figure` are plain text.
pub(crate) fn bar_line(name: &str, pieces: &str, figure: &str) -> String {
    format!(
        "<div class=\"bar\"><span class=\"name\">{}</span>{}\
         <span class=\"figure\">{}</span></div>\n",
        escape(name),
        bar(pieces),
        escape(figure)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_could_be_markup_is_left() {
        assert_eq!(
            escape("<b onclick=\"x('&')\">"),
            "&lt;b onclick=&quot;x(&#39;&amp;&#39;)&quot;&gt;"
        );
        assert_eq!(escape("η ≥ 0.95"), "η ≥ 0.95");
        assert_eq!(escape_json("\"</script>\""), "\"\\u003c/script>\"");
    }
}
