//! A disk that a test can fill.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A small file system of its own, in memory. Unmounted with the value; what still has files open there keeps them until it
/// ends.
#[derive(Debug)]
pub struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// An empty one, of so many MiB.
    ///
    /// # Panics
    /// When the test may not mount anything: it has to run as root, in a container with `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn mount(mib: u64) -> Self {
        let dir = TempDir::with_prefix("semel-disk-").expect("there is room for a temporary folder");
        let size = format!("size={mib}m,mode=0755");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "semel-test"]).arg(dir.path()).status();
        assert!(
            mounted.expect("the command `mount` can be run").success(),
            "mounting a tmpfs failed: this test needs the right to mount (run it as root, with CAP_SYS_ADMIN)"
        );
        Self { dir }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Writes until nothing more goes in.
    ///
    /// # Panics
    /// When not even a name goes in.
    pub fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.ballast()).expect("a file can be made");
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    /// Makes room again.
    pub fn clear(&self) {
        let _none = fs::remove_file(self.ballast());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that ends later still has files open here.
        let _gone = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}
