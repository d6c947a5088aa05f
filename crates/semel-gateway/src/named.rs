//! Reading a file that a person named: whatever stands under that name, no more than it may have.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// The whole of a file, of at most `most` bytes: a device that never ends, or a dump in the place of a small file, is
/// refused as soon as it has more.
///
/// # Errors
/// As [`File::open`] and [`io::Read::read`]; [`io::ErrorKind::FileTooLarge`], in words that name the limit.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let words = format!("it has more than {most} bytes, which is the limit here");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    Ok(bytes)
}

/// The same for a text.
///
/// # Errors
/// As [`read`]; [`io::ErrorKind::InvalidData`] where it is no UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("it is no UTF-8 text: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        let refused = read(Path::new("/dev/zero"), 1_000).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert!(refused.to_string().contains("more than 1000 bytes"), "{refused}");
    }

    #[test]
    fn what_is_as_large_as_it_may_be_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [b'a'; 1_000]).unwrap();
        assert_eq!(read_text(&path, 1_000).unwrap().len(), 1_000);
        read(&path, 999).unwrap_err();
    }
}
