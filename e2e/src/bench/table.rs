//! What was measured, beside its budget.

use std::fmt::Write as _;

/// One measurement.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// What was done.
    pub what: String,
    /// The number, with its unit.
    pub measured: String,
    /// The budget; empty where the design has none.
    pub budget: String,
    /// Whether the number is within the budget.
    pub within: bool,
    /// The requests behind a number that is not.
    pub detail: String,
}

impl Row {
    /// So many requests, at most `budget`.
    #[must_use]
    pub fn count(what: &str, measured: usize, budget: usize) -> Self {
        Self {
            what: what.to_owned(),
            measured: measured.to_string(),
            budget: format!("<= {budget}"),
            within: measured <= budget,
            detail: String::new(),
        }
    }

    /// A number with a unit, under `budget`; without one it only informs.
    #[must_use]
    pub fn figure(what: &str, measured: f64, unit: &str, budget: Option<f64>) -> Self {
        Self {
            what: what.to_owned(),
            measured: format!("{measured:.2} {unit}"),
            budget: budget.map_or_else(String::new, |budget| format!("< {budget} {unit}")),
            within: budget.is_none_or(|budget| measured < budget),
            detail: String::new(),
        }
    }

    /// Adds what explains the number, if it is out of its budget.
    #[must_use]
    pub fn with_detail(mut self, detail: impl FnOnce() -> String) -> Self {
        if !self.within {
            self.detail = detail();
        }
        self
    }
}

/// The table for people; what is out of its budget is marked and explained below.
#[must_use]
pub fn print(nodes: usize, rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
    let mut text = format!("{nodes} GPU nodes\n");
    for row in rows {
        let (what, measured) = (&row.what, &row.measured);
        let verdict = match (row.budget.as_str(), row.within) {
            ("", _) => String::new(),
            (budget, true) => format!("  {budget}"),
            (budget, false) => format!("  {budget}  OVER BUDGET"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {what:<width$}  {measured:>12}{verdict}");
    }
    for row in rows.iter().filter(|row| !row.detail.is_empty()) {
        let _ = writeln!(text, "\n{}: {}\n{}", row.what, row.measured, row.detail);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_its_budget_is_marked_and_explained() {
        let rows = [
            Row::count("one operand pod deleted", 2, 4).with_detail(|| "unseen".to_owned()),
            Row::count("one GPU node joins", 5, 4).with_detail(|| "  patch nodes".to_owned()),
            Row::figure("drift", 0.25, "s", Some(1.0)),
            Row::figure("CPU", 1.5, "s", None),
        ];
        insta::assert_snapshot!(print(3, &rows), @r"
        3 GPU nodes
          one operand pod deleted             2  <= 4
          one GPU node joins                  5  <= 4  OVER BUDGET
          drift                          0.25 s  < 1 s
          CPU                            1.50 s

        one GPU node joins: 5
          patch nodes
        ");
    }
}
