//! The settings of the run, and the release of the program.

use serde_json::Value;

use crate::ReportInput;
use crate::figure::NONE;
use crate::page::markup::{entry, escape};

/// Every setting, under the name of its flag.
pub(crate) fn table(input: &ReportInput) -> String {
    let version = ("version".to_owned(), Value::from(input.version.as_str()));
    let settings = std::iter::once(version).chain(input.config.clone());
    let lines: String = settings
        .map(|(name, value)| {
            entry(&name, &format!("<code>{}</code>", escape(&words(&value))))
        })
        .collect();
    format!("<dl class=\"settings\">\n{lines}</dl>\n")
}

/// A value as it would be typed.
fn words(value: &Value) -> String {
    match value {
        Value::Null => NONE.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => NONE.to_owned(),
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn every_setting_is_there_and_no_markup() {
        let mut input = example::input();
        input.config.insert("recipe".to_owned(), Value::from("<b>"));
        let table = table(&input);
        for (name, value) in [
            ("version", "0.1.0"),
            ("batch_size", "64"),
            ("csd", "sim:newport,rate=0.235x"),
            ("limit", NONE),
            ("recipe", "&lt;b&gt;"),
        ] {
            assert!(
                table.contains(&format!("<dt>{name}</dt><dd><code>{value}</code>")),
                "{table}"
            );
        }
        assert_eq!(table.matches("<dt>").count(), input.config.len() + 1);
    }
}
