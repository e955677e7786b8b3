//! Lines of any input, numbered, of bounded length.

use crate::shell::limits::LINE_BYTES_MAX;
use std::io::{self, BufRead, BufReader, Read};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub struct Lines<R> {
    input: BufReader<R>,
    len_max: usize,
    number: u64,
    bytes: u64,
}

/// What came of reading one more line.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Line,
    /// It was read to its end and thrown away.
    TooLong,
    End,
}

impl<R: Read> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines { input: BufReader::with_capacity(1 << 18, input), len_max: LINE_BYTES_MAX, number: 0, bytes: 0 }
    }

    /// The last line's number, from 1 on.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the input up to the end of the last line.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is left of what was read from the input, so that the next line may have to be waited for.
    pub fn would_read(&self) -> bool {
        self.input.buffer().is_empty()
    }

    /// Puts the next line, without its line feed, into `line`.
    pub fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Next> {
        line.clear();
        let mut len = 0;
        loop {
            let available = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            let end = available.iter().position(|&byte| byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            len += part.len();
            if len <= self.len_max {
                line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            self.bytes += used as u64;
            if used == 0 && len == 0 {
                return Ok(Next::End);
            }
            if used == 0 || end.is_some() {
                return Ok(self.ended(line, len));
            }
        }
    }

    fn ended(&mut self, line: &mut Vec<u8>, len: usize) -> Next {
        self.number += 1;
        if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if len > self.len_max { Next::TooLong } else { Next::Line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], len_max: usize) -> Vec<(u64, Option<String>)> {
        let mut lines = Lines { len_max, ..Lines::new(input) };
        let mut line = Vec::new();
        let mut read = Vec::new();
        loop {
            match lines.next(&mut line).unwrap() {
                Next::Line => read.push((lines.number(), Some(String::from_utf8(line.clone()).unwrap()))),
                Next::TooLong => read.push((lines.number(), None)),
                Next::End => {
                    assert_eq!(lines.bytes(), input.len() as u64);
                    return read;
                }
            }
        }
    }

    fn line(number: u64, text: &str) -> (u64, Option<String>) {
        (number, Some(text.to_owned()))
    }

    #[test]
    fn lines_end_with_a_line_feed_or_with_the_input() {
        assert_eq!(lines(b"", 9), []);
        assert_eq!(lines(b"a\n\nb", 9), [line(1, "a"), line(2, ""), line(3, "b")]);
        assert_eq!(lines(b"a\n", 9), [line(1, "a")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_counted() {
        assert_eq!(lines(b"1234\n12345\n123\n", 4), [line(1, "1234"), (2, None), line(3, "123")]);
        let long = vec![b'x'; 1 << 20];
        assert_eq!(lines(&long, 4), [(1, None)]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        assert_eq!(lines(b"\xef\xbb\xbfa\nb\n", 9), [line(1, "a"), line(2, "b")]);
    }
}
