//! A small YAML writer whose output never changes: the files it makes are hashed into pod templates, so another version
//! of a library that wrote the same value in another way would restart every plugin.

use std::fmt::Write;

/// A value to write. Maps keep the order they are given in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Yaml {
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text; quoted unless every reader takes it for a text.
    Text(String),
    /// A list.
    List(Vec<Yaml>),
    /// A map.
    Map(Vec<(&'static str, Yaml)>),
    /// A map whose keys are data; sorted by the caller.
    Entries(Vec<(String, Yaml)>),
}

impl From<&str> for Yaml {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<bool> for Yaml {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u32> for Yaml {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

/// The document, with a final newline.
pub fn render(value: &Yaml) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

fn block(out: &mut String, value: &Yaml, indent: usize) {
    match value {
        Yaml::Map(entries) => entries
            .iter()
            .for_each(|(key, value)| entry(out, key, value, indent)),
        Yaml::Entries(entries) => entries
            .iter()
            .for_each(|(key, value)| entry(out, key, value, indent)),
        Yaml::List(items) => items.iter().for_each(|item| list_item(out, item, indent)),
        Yaml::Bool(_) | Yaml::Int(_) | Yaml::Text(_) => {
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
}

fn entry(out: &mut String, key: &str, value: &Yaml, indent: usize) {
    let (pad, key) = (" ".repeat(indent), quoted(key));
    // Writing to a String cannot fail.
    let _ = match value {
        Yaml::Bool(_) | Yaml::Int(_) | Yaml::Text(_) => {
            writeln!(out, "{pad}{key}: {}", scalar(value))
        }
        Yaml::List(items) if items.is_empty() => writeln!(out, "{pad}{key}: []"),
        Yaml::Map(entries) if entries.is_empty() => writeln!(out, "{pad}{key}: {{}}"),
        Yaml::Entries(entries) if entries.is_empty() => writeln!(out, "{pad}{key}: {{}}"),
        Yaml::List(_) | Yaml::Map(_) | Yaml::Entries(_) => {
            let written = writeln!(out, "{pad}{key}:");
            block(out, value, indent + 2);
            written
        }
    };
}

fn list_item(out: &mut String, item: &Yaml, indent: usize) {
    let mut text = String::new();
    block(&mut text, item, indent + 2);
    // The dash takes the place of the first line's indentation.
    let _ = write!(out, "{}- {}", " ".repeat(indent), text.trim_start());
}

fn scalar(value: &Yaml) -> String {
    match value {
        Yaml::Bool(value) => value.to_string(),
        Yaml::Int(value) => value.to_string(),
        Yaml::Text(text) => quoted(text),
        Yaml::List(_) | Yaml::Map(_) | Yaml::Entries(_) => String::new(),
    }
}

/// Plain where no reader can mistake it: a letter or slash first, then letters, digits and `-_./`. Words that YAML 1.1
/// reads as booleans or null are quoted.
fn quoted(text: &str) -> String {
    let first = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let rest = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null"
    );
    if first && rest && !word {
        return text.to_owned();
    }
    // JSON strings are YAML strings.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_are_written_as_people_write_them() {
        let item = Yaml::Map(vec![
            ("name", "nvidia.com/gpu".into()),
            ("replicas", 4u32.into()),
        ]);
        let value = Yaml::Map(vec![
            ("version", "v1".into()),
            ("none", Yaml::List(vec![])),
            ("empty", Yaml::Map(vec![])),
            (
                "sharing",
                Yaml::Map(vec![
                    ("rename", false.into()),
                    ("resources", Yaml::List(vec![item])),
                ]),
            ),
            (
                "ids",
                Yaml::List(vec!["0x233010DE".into(), "on".into(), "".into()]),
            ),
            (
                "counts",
                Yaml::Entries(vec![("1g.5gb".to_owned(), 7u32.into())]),
            ),
        ]);
        let want = "version: v1\nnone: []\nempty: {}\nsharing:\n  rename: false\n  resources:\n    - name: nvidia.com/gpu\n      replicas: 4\nids:\n  - \"0x233010DE\"\n  - \"on\"\n  - \"\"\ncounts:\n  \"1g.5gb\": 7\n";
        assert_eq!(render(&value), want);
    }

    #[test]
    fn a_yaml_reader_gets_the_same_texts_back() {
        for text in [
            "v1",
            "0x10",
            "1e3",
            "no",
            "a: b",
            "# x",
            "~",
            "nvidia.com/mig-1g.5gb.me",
            "a\"b",
            " x ",
            "-",
            "/run/nvidia",
        ] {
            let written = render(&Yaml::Map(vec![("k", text.into())]));
            let read: serde_json::Value = serde_saphyr::from_str(&written).unwrap();
            assert_eq!(read["k"], text, "{written}");
        }
    }
}
