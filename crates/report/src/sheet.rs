//! A contact sheet: samples as delivered, next to their originals, and how they were made.

use crate::page::document;
use crate::page::markup::escape;

/// The contents of a contact sheet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    /// Its heading.
    pub title: String,
    /// The recipe in words, line by line; indentation counts.
    pub words: Vec<String>,
    /// The data, and how to reproduce the sheet.
    pub note: String,
    /// One row for each sample.
    pub rows: Vec<SheetRow>,
}

/// A sample and its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SheetRow {
    /// Its file.
    pub name: String,
    /// The sample itself first, then what was delivered, epoch by epoch.
    pub cells: Vec<SheetCell>,
}

/// A picture, or several views, and the steps that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SheetCell {
    /// The views.
    pub pictures: Vec<Picture>,
    /// The steps that made it.
    pub steps: Vec<String>,
}

/// Pixels: rows from the top, columns from the left, one or three interleaved channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 1 or 3.
    pub channels: u32,
    /// The bytes: rows × columns × channels.
    pub pixels: Vec<u8>,
}

/// The sheet as one self-contained HTML page.
#[must_use]
pub fn sheet(sheet: &Sheet) -> String {
    let words = escape(&sheet.words.join("\n"));
    let rows: String = sheet.rows.iter().map(row).collect();
    let body = format!(
        "<main class=\"wide\">\n<h1>{}</h1>\n<p>{}</p>\n<pre class=\"recipe\">{words}</pre>\n\
         {rows}</main>\n",
        escape(&sheet.title),
        escape(&sheet.note),
    );
    document(&sheet.title, SHEET_STYLE, &body)
}

const SHEET_STYLE: &str = "
main.wide { max-width: none; }
h3, .sample li { overflow-wrap: anywhere; }
pre.recipe { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.85rem; }
.sample { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(15rem, 100%), 1fr));
  gap: 0.75rem; margin: 0 0 1.5rem; }
.sample img { max-width: 100%; height: auto; vertical-align: top; }
.sample .many img { max-width: 49%; }
.sample figcaption { font-size: 0.75rem; }
.sample ol { margin: 0.25rem 0 0; padding-left: 1.2rem; }
";

fn row(row: &SheetRow) -> String {
    let cells: String = row.cells.iter().map(cell).collect();
    format!("<h3>{}</h3>\n<div class=\"sample\">\n{cells}</div>\n", escape(&row.name))
}

fn cell(cell: &SheetCell) -> String {
    let class = if cell.pictures.len() > 1 { " class=\"many\"" } else { "" };
    let pictures: String = cell.pictures.iter().map(image).collect();
    let steps: String =
        cell.steps.iter().map(|step| format!("<li>{}</li>", escape(step))).collect();
    format!(
        "<figure{class}>{pictures}<figcaption><ol>{steps}</ol></figcaption></figure>\n"
    )
}

fn image(picture: &Picture) -> String {
    let Picture { width, height, .. } = picture;
    let png = base64(&png(picture));
    format!(
        "<img width=\"{width}\" height=\"{height}\" alt=\"\" src=\"data:image/png;base64,{png}\">"
    )
}

/// The picture as a PNG file; empty if it is not a picture.
fn png(picture: &Picture) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, picture.width, picture.height);
    encoder.set_color(match picture.channels {
        1 => png::ColorType::Grayscale,
        _ => png::ColorType::Rgb,
    });
    let written = encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&picture.pixels));
    if written.is_err() {
        file.clear();
    }
    file
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |nth: usize| u32::from(three.get(nth).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for nth in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * nth) & 63) as usize];
            text.push(if nth <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648, section 10.
    #[test]
    fn base64_as_in_its_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_sheet_shows_what_it_was_given_and_escapes_it() {
        let picture =
            Picture { width: 2, height: 1, channels: 3, pixels: vec![1, 2, 3, 4, 5, 6] };
        let cell = SheetCell { pictures: vec![picture; 2], steps: vec!["a < b".into()] };
        let row = SheetRow { name: "<b>.jpg".into(), cells: vec![cell] };
        let html = sheet(&Sheet {
            title: "recipe & co".into(),
            words: vec!["decode: pixels".into()],
            note: "generated images".into(),
            rows: vec![row],
        });
        for part in
            ["recipe &amp; co", "&lt;b&gt;.jpg", "<li>a &lt; b</li>", "decode: pixels"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(html.matches("data:image/png;base64,iVBORw0KGgo").count(), 2);
    }
}
