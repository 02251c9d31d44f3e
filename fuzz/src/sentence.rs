//! What is said to people.

/// Longest sentence: one that quotes a name of the longest kind that Kubernetes lets in still is shorter.
const LONGEST: usize = 4096;

/// Fails where `text` is nothing that can be shown in a terminal, or in a condition.
pub(crate) fn check(text: &str) {
    assert!(!text.trim().is_empty(), "nothing is said");
    assert!(
        !text.chars().any(char::is_control),
        "a control character would reach the terminal: {text:?}"
    );
    assert!(
        text.chars().count() <= LONGEST,
        "nobody reads {} characters: {text}",
        text.chars().count()
    );
}

/// [`check`] for all.
pub(crate) fn check_all<T: ToString>(texts: &[T]) {
    texts.iter().for_each(|text| check(&text.to_string()));
}
