//! What people did to records: lines of a file beside the journal, for whoever asks later.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

const FILE: &str = "audit.log";
/// The file before: the two together hold at least the last [`LARGEST`] bytes.
const BEFORE: &str = "audit.log.1";
const LARGEST: u64 = 8 << 20;

/// Appends a line and syncs it.
pub(crate) fn append(dir: &Path, line: &str) -> io::Result<()> {
    let path = dir.join(FILE);
    if fs::metadata(&path).is_ok_and(|file| file.len() > LARGEST) {
        fs::rename(&path, dir.join(BEFORE))?;
    }
    let mut file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path)?;
    // A line that a crash cut short is ended first, so that this one stands alone.
    let mut text = if ends_a_line(&mut file)? { String::new() } else { "\n".to_owned() };
    text.extend(line.chars().map(|c| if c == '\n' { ' ' } else { c }));
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The last lines, the newest first.
pub(crate) fn newest(dir: &Path, max: usize) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for name in [FILE, BEFORE] {
        let text = match fs::read(dir.join(name)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let room = max - lines.len();
        lines.extend(text.lines().rev().filter(|line| !line.is_empty()).take(room).map(str::to_owned));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_line_comes_first_and_each_stands_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(newest(dir.path(), 10).unwrap().is_empty());
        for line in ["one", "two\nlines", "three"] {
            append(dir.path(), line).unwrap();
        }
        assert_eq!(newest(dir.path(), 10).unwrap(), ["three", "two lines", "one"]);
        assert_eq!(newest(dir.path(), 1).unwrap(), ["three"]);
    }

    #[test]
    fn a_line_that_a_crash_cut_short_does_not_swallow_the_next() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{\"half").unwrap();
        append(dir.path(), "whole").unwrap();
        assert_eq!(newest(dir.path(), 10).unwrap(), ["whole", "{\"half"]);
    }

    #[test]
    fn a_file_that_grew_too_large_is_set_aside_once() {
        let dir = tempfile::tempdir().unwrap();
        let line = "x".repeat(1 << 20);
        for _ in 0..20 {
            append(dir.path(), &line).unwrap();
        }
        append(dir.path(), "last").unwrap();
        let size = |name| fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(size(FILE) + size(BEFORE) <= 2 * (LARGEST + line.len() as u64 + 1));
        let lines = newest(dir.path(), 10).unwrap();
        assert_eq!((lines.len(), &*lines[0]), (10, "last"));
    }
}
