//! HTML and SVG as text: escaping, and the few shapes that the figures share.
//!
//! Every piece of text that comes from an input passes [`escape`]; nothing else may write
//! it into the page.

/// `text` such that it is text in HTML, between tags and inside quoted attributes.
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

/// `json` such that no browser finds the end of a script element in it.
pub(crate) fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A small label beside a figure: where it comes from, in short, and in full for a pointer
/// that rests on it.
pub(crate) fn origin_tag(words: &str) -> String {
    let (class, short) = match words {
        "measured" => ("measured", words),
        "modelled" => ("modelled", words),
        _ => ("modelled", "measured with models"),
    };
    format!("<span class=\"tag {class}\" title=\"{}\">{short}</span>", escape(words))
}

/// An entry of a legend: a patch of colour and what it stands for, which stay on one line.
pub(crate) fn key(class: &str, words: &str) -> String {
    format!(
        "<span class=\"item\"><span class=\"key {class}\"></span>{}</span> ",
        escape(words)
    )
}

/// One coloured piece of a bar, from `start` to `end` percent of its width.
pub(crate) fn bar_piece(class: &str, start: f64, end: f64) -> String {
    let width = (end - start).max(0.0);
    format!(
        "<rect class=\"{class}\" x=\"{start:.2}\" width=\"{width:.2}\" height=\"10\"/>"
    )
}

/// A line of a bar chart: name, bar, figure. `name` and `figure` are plain text.
pub(crate) fn bar_line(name: &str, pieces: &str, figure: &str) -> String {
    format!(
        "<div class=\"bar\"><span class=\"name\">{}</span>\
         <svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"rail\" width=\"100\" height=\"10\"/>{pieces}</svg>\
         <span class=\"figure\">{}</span></div>\n",
        escape(name),
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
