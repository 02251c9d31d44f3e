//! Values by path (`a.b[0].c`), and how they are shown.

use serde_json::Value;

use crate::quote::quoted;

/// What stands at a path; `None` where nothing or null does.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let found = path.split('.').try_fold(value, |value, step| {
        let (key, indices) = match step.find('[') {
            Some(open) => step.split_at(open),
            None => (step, ""),
        };
        let inner = value.get(key)?;
        let mut indices = indices.split(['[', ']']).filter(|text| !text.is_empty());
        indices.try_fold(inner, |inner, index| {
            inner.get(index.parse::<usize>().ok()?)
        })
    });
    found.filter(|value| !value.is_null())
}

/// Longest text of a value, in characters.
const LONGEST: usize = 80;

/// A value for people: texts bare, anything else as JSON, cut where it is long.
pub(super) fn show(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let text = quoted(&text);
    if text.chars().count() <= LONGEST {
        return text.into_owned();
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start}...")
}

/// A list for people: the first three, and how many more.
pub(super) fn some_of(list: &[String]) -> String {
    let first: Vec<_> = list.iter().take(3).map(|one| quoted(one)).collect();
    match list.len().saturating_sub(first.len()) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths() {
        let value = json!({"a": {"b": [{"c": 1}, null]}, "n": null});
        assert_eq!(at(&value, "a.b[0].c"), Some(&json!(1)));
        assert_eq!(at(&value, "a.b[1]"), None);
        assert_eq!(at(&value, "a.b[2].c"), None);
        assert_eq!(at(&value, "a.x"), None);
        assert_eq!(at(&value, "n"), None);
    }

    #[test]
    fn values_are_shown_short() {
        assert_eq!(show(&json!("a")), "a");
        assert_eq!(show(&json!([1])), "[1]");
        let long = show(&json!("ä".repeat(100)));
        assert_eq!(long.chars().count(), 83);
    }
}
