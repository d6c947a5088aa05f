//! What people did to records: lines of a file beside the journal, for whoever asks later.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{Duration, SystemTime},
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

/// A point in time as the lines have it, like `2026-11-30T01:02:03Z`.
pub(crate) fn time(wall: SystemTime) -> String {
    let seconds = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)));
    let mut year = 1970;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while let Some(length) = lengths.get(month).filter(|length| days >= **length) {
        days -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{:02}Z", month + 1, days + 1, second % 60)
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
    fn a_time_is_written_for_people() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_796_000_523, "2026-11-30T01:02:03Z"),
        ] {
            assert_eq!(time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
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
