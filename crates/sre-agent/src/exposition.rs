//! Prometheus text, read as it arrives: nothing but the present line is kept, and no input makes it panic.
//!
//! Prometheus itself refuses a whole answer for one bad line, and so does this: half of an answer looks like missing
//! GPUs.

/// Longest line that is read, bytes. dcgm-exporter's longest are about 1 KiB.
const MAX_LINE: usize = 64 * 1024;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'a> {
    /// Metric name.
    pub name: &'a str,
    /// Labels in the order of the text, with escapes resolved.
    pub labels: Vec<(&'a str, String)>,
    /// Value; may be NaN or infinite.
    pub value: f64,
}

impl Row<'_> {
    /// The first of `names` that is present and not empty.
    pub fn label(&self, names: &[&str]) -> Option<&str> {
        let find = |name: &&str| {
            self.labels
                .iter()
                .find(|(key, value)| key == name && !value.is_empty())
        };
        names.iter().find_map(find).map(|(_, value)| value.as_str())
    }
}

/// Why an answer cannot be used. The texts have no numbers, so that they stay equal while the cause does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A line that is no sample.
    #[error("the answer is not Prometheus text")]
    NotText,
    /// No line end for too long.
    #[error("the answer has a line of more than 64 KiB")]
    LongLine,
    /// The last line has no end.
    #[error("the answer is cut off in the middle of a line")]
    Truncated,
}

/// Takes chunks, gives rows.
#[derive(Debug, Default)]
pub struct Reader {
    rest: Vec<u8>,
}

impl Reader {
    /// Reads one more chunk and hands each complete sample to `sink`.
    pub fn feed(&mut self, chunk: &[u8], sink: &mut impl FnMut(&Row<'_>)) -> Result<(), TextError> {
        let mut parts = chunk.split(|byte| *byte == b'\n');
        let Some(first) = parts.next() else {
            return Ok(());
        };
        self.extend(first)?;
        for part in parts {
            let line = std::mem::take(&mut self.rest);
            read_line(&line, sink)?;
            self.extend(part)?;
        }
        Ok(())
    }

    /// The answer is complete: the format wants every line, the last too, to be ended.
    pub fn finish(self) -> Result<(), TextError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(TextError::Truncated)
        }
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TextError> {
        if self.rest.len() + bytes.len() > MAX_LINE {
            return Err(TextError::LongLine);
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }
}

fn read_line(line: &[u8], sink: &mut impl FnMut(&Row<'_>)) -> Result<(), TextError> {
    let line = std::str::from_utf8(line)
        .map_err(|_| TextError::NotText)?
        .trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    sink(&row(line).ok_or(TextError::NotText)?);
    Ok(())
}

fn row(line: &str) -> Option<Row<'_>> {
    let end = line
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(line.len());
    let (name, rest) = line.split_at_checked(end)?;
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse::<f64>().ok()?;
    // A time stamp in milliseconds may follow, and nothing else.
    if let Some(stamp) = words.next() {
        stamp.parse::<i64>().ok()?;
    }
    words.next().is_none().then_some(Row {
        name,
        labels,
        value,
    })
}

/// Labels up to the closing brace, and what follows it.
fn labels(mut text: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((found, rest));
        }
        let (key, rest) = text.split_once('=')?;
        let key = key.trim();
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        let (value, rest) = quoted(rest.trim_start().strip_prefix('"')?)?;
        found.push((key, value));
        text = rest;
    }
}

/// A label value up to its closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> Result<Vec<(String, f64)>, TextError> {
        let mut rows = Vec::new();
        let mut reader = Reader::default();
        for chunk in chunks {
            reader.feed(chunk, &mut |row| {
                rows.push((
                    format!(
                        "{}{}",
                        row.name,
                        row.label(&["UUID", "uuid"]).unwrap_or_default()
                    ),
                    row.value,
                ));
            })?;
        }
        reader.finish().map(|()| rows)
    }

    #[test]
    fn rows_may_be_split_anywhere_and_end_in_crlf() {
        let text = b"# HELP a b\r\na{UUID=\"GPU-1\",x=\"q\\\"}\"} 1\r\n\nb{uuid=\"GPU-2\",} 2.5 1700000000000\nc NaN\n";
        for at in 0..text.len() {
            let (one, two) = text.split_at(at);
            let rows = read(&[one, two]).unwrap();
            assert_eq!(rows.len(), 3, "split at {at}");
            assert_eq!(rows[0], ("aGPU-1".to_owned(), 1.0));
            assert_eq!(rows[1], ("bGPU-2".to_owned(), 2.5));
        }
    }

    #[test]
    fn bad_answers_are_named() {
        let long = vec![b'a'; MAX_LINE + 1];
        let cases: [(&[u8], TextError); 8] = [
            (b"a 1\nb{UUID=\"GPU", TextError::Truncated),
            (b"a 1\nb{UUID=\"GPU\n", TextError::NotText),
            (b"\x7fELF\x02\x01\xff\xfe\n", TextError::NotText),
            (b"<html>\n", TextError::NotText),
            (b"a\n", TextError::NotText),
            (b"a one\n", TextError::NotText),
            (b"a 1 2 3\n", TextError::NotText),
            (&long, TextError::LongLine),
        ];
        for (text, want) in cases {
            assert_eq!(
                read(&[text]),
                Err(want),
                "{:?}",
                String::from_utf8_lossy(text).get(..20)
            );
        }
        assert_eq!(read(&[b""]), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn no_input_panics(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..5)) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let _ = read(&chunks);
        }

        #[test]
        fn no_almost_valid_text_panics(text in "(DCGM_[A-Z_]{1,8}(\\{[a-z=\",\\\\ }]{0,20}\\}?)? ?[0-9.e+-]{0,5}\n?){0,6}") {
            let _ = read(&[text.as_bytes()]);
        }
    }
}
