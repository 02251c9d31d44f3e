//! `$(VAR)` expansion, as the kubelet does it in args, command and environment values.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` by the variable's value; unknown names stay as they are, `$$` is a literal `$`.
pub(super) fn expand(text: &str, vars: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        let after = tail.get(1..).unwrap_or_default();
        if let Some(literal) = after.strip_prefix('$') {
            out.push('$');
            rest = literal;
        } else if let Some((name, next)) = after
            .strip_prefix('(')
            .and_then(|name| name.split_once(')'))
        {
            if let Some(value) = vars.get(name) {
                out.push_str(value);
            } else {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            rest = next;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_kubelet_expands() {
        let vars = BTreeMap::from([
            ("POD_IP".to_owned(), "127.16.1.1".to_owned()),
            ("A".to_owned(), String::new()),
        ]);
        for (text, want) in [
            ("--bind-address=$(POD_IP)", "--bind-address=127.16.1.1"),
            ("$$(POD_IP)", "$(POD_IP)"),
            ("$(NOBODY)", "$(NOBODY)"),
            ("$(A)x$", "x$"),
            ("$(POD_IP", "$(POD_IP"),
            (
                "$POD_IP ü $(POD_IP):$(POD_IP)",
                "$POD_IP ü 127.16.1.1:127.16.1.1",
            ),
        ] {
            assert_eq!(expand(text, &vars), want, "{text}");
        }
    }
}
