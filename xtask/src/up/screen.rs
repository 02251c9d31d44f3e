//! The terminal: steps with a check mark, and a table that is redrawn in place. Elsewhere, plain lines of what changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Widths of the first two columns: constant, or the table would jump while it grows.
const WHAT: usize = 38;
const STATE: usize = 21;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Good,
    Busy,
    Bad,
    Plain,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    mark: Mark,
    indent: bool,
    bold: bool,
    columns: [String; 3],
}

impl Row {
    /// A headline: what, how it is, a remark.
    pub(super) fn title(what: &str, state: &str, mark: Mark, note: &str) -> Self {
        Self::new(mark, false, true, what, state, note)
    }

    /// A headline of a group.
    pub(super) fn head(what: &str, column: &str) -> Self {
        Self::new(Mark::Plain, false, true, what, column, "")
    }

    /// A line of a group.
    pub(super) fn item(mark: Mark, what: &str, state: &str, note: &str) -> Self {
        Self::new(mark, true, false, what, state, note)
    }

    fn new(mark: Mark, indent: bool, bold: bool, what: &str, state: &str, note: &str) -> Self {
        let columns = [what, state, note].map(|text| text.replace('\n', " "));
        Self {
            mark,
            indent,
            bold,
            columns,
        }
    }
}

/// Standard output.
pub(super) struct Screen {
    terminal: bool,
    color: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Lines of the table on the screen, to be overwritten by the next.
    drawn: usize,
    facts: BTreeMap<String, String>,
    hidden: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal()
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            terminal,
            color: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            state: Mutex::default(),
        }
    }

    /// A line below everything.
    pub(super) fn line(&self, text: &str) {
        self.keep();
        put(&format!("{text}\n"));
    }

    /// A line about the step that is going on.
    pub(super) fn detail(&self, text: &str) {
        let text = self.paint("2", text);
        self.line(&format!("    {text}"));
    }

    /// Begins a step.
    pub(super) fn step<'a>(&'a self, what: &'a str) -> Step<'a> {
        if !self.terminal {
            self.line(&format!("... {what}"));
        }
        Step {
            screen: self,
            what,
            started: Instant::now(),
        }
    }

    /// Draws the table over the one before; elsewhere prints the facts that have changed.
    pub(super) fn show(&self, rows: &[Row], facts: &BTreeMap<String, String>, elapsed: Duration) {
        if self.terminal {
            self.draw(rows)
        } else {
            self.changes(facts, elapsed)
        }
    }

    /// What is on the screen stays; the next table comes below it.
    pub(super) fn keep(&self) {
        let mut state = self.state.lock();
        state.drawn = 0;
        if std::mem::take(&mut state.hidden) {
            put("\x1b[?25h");
        }
    }

    /// Leaves the terminal as it was found.
    pub(super) fn leave(&self) {
        self.keep();
    }

    fn draw(&self, rows: &[Row]) {
        let (width, height) = size();
        let mut state = self.state.lock();
        let mut out = String::new();
        if !std::mem::replace(&mut state.hidden, true) {
            out += "\x1b[?25l\n";
        }
        if state.drawn > 0 {
            let _ = write!(out, "\x1b[{}A", state.drawn);
        }
        // A table that is taller than the screen cannot be redrawn in place.
        let visible = rows
            .get(..rows.len().min(height.saturating_sub(2)))
            .unwrap_or(rows);
        for row in visible {
            let _ = writeln!(out, "\r\x1b[2K{}", self.format(row, width));
        }
        out += "\x1b[J";
        state.drawn = visible.len();
        put(&out);
    }

    fn format(&self, row: &Row, width: usize) -> String {
        let [what, value, note] = &row.columns;
        let first = if row.indent { WHAT } else { WHAT + 2 };
        let what = format!("{what:<first$}");
        let what = if row.bold {
            self.paint("1", &what)
        } else {
            what
        };
        let code = match row.mark {
            Mark::Good => "32",
            Mark::Busy => "33",
            Mark::Bad => "31",
            Mark::Plain => "2",
        };
        let value = self.paint(code, &format!("{value:<STATE$}"));
        let room = width.saturating_sub(WHAT + STATE + 9);
        let note: String = if note.chars().count() > room {
            note.chars()
                .take(room.saturating_sub(1))
                .chain(['…'])
                .collect()
        } else {
            note.clone()
        };
        let mark = match (row.indent, row.mark) {
            (false, _) => String::new(),
            (true, Mark::Good) => self.paint("32", "✔ "),
            (true, Mark::Busy) => self.paint("33", "◌ "),
            (true, Mark::Bad) => self.paint("31", "✖ "),
            (true, Mark::Plain) => "  ".to_owned(),
        };
        format!("  {mark}{what}  {value}  {}", self.paint("2", &note))
    }

    fn changes(&self, facts: &BTreeMap<String, String>, elapsed: Duration) {
        let mut state = self.state.lock();
        let mut out = String::new();
        for (what, value) in facts {
            if state.facts.get(what) != Some(value) {
                let _ = writeln!(out, "{:7.1}s  {what}: {value}", elapsed.as_secs_f64());
            }
        }
        for what in state.facts.keys().filter(|what| !facts.contains_key(*what)) {
            let _ = writeln!(out, "{:7.1}s  {what}: gone", elapsed.as_secs_f64());
        }
        state.facts.clone_from(facts);
        put(&out);
    }

    pub(super) fn paint(&self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A step that is going on.
pub(super) struct Step<'a> {
    screen: &'a Screen,
    what: &'a str,
    started: Instant,
}

impl Step<'_> {
    /// Ends the step well.
    pub(super) fn done(self, note: &str) {
        let mark = self.screen.paint("32", "✔");
        let seconds = self.started.elapsed().as_secs_f64();
        let note = self.screen.paint("2", note);
        self.screen
            .line(&format!("{mark} {:<36} {seconds:6.1} s  {note}", self.what));
    }
}

fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that has gone away is no reason to stop.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (100, 50),
    }
}
