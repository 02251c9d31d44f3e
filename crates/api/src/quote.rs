//! How what somebody wrote is shown in a sentence.

use std::borrow::Cow;

/// Longest quotation, in characters: as long as the longest name of an object.
const LONGEST: usize = 253;

/// `text` as it can be shown in a terminal, a condition and a log: what a terminal would obey is escaped, and what nobody would
/// read to its end is cut.
pub fn quoted(text: &str) -> Cow<'_, str> {
    let is_long = text.len() > LONGEST && text.chars().count() > LONGEST;
    if !is_long && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text.chars().take(LONGEST) {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    if is_long {
        shown.push_str("...");
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations() {
        let long = "ä".repeat(LONGEST);
        for (text, want) in [
            ("", ""),
            ("gpu", "gpu"),
            ("größer", "größer"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{7f}\u{85}", "\\u{7f}\\u{85}"),
            (&long, &long),
            (&format!("{long}b"), &format!("{long}...")),
        ] {
            assert_eq!(quoted(text), want, "{text:?}");
        }
    }
}
