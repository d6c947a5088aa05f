//! What a person should know about the place of a store: its folder, the room there, and what kind of disk that is.

use std::{fs, io, path::Path};

use semel_core::store::Finding;

use crate::{Options, Power, directory::RESERVE};

/// What the place of a store is like.
struct Place {
    /// Bytes that may still be written there.
    free: u64,
    /// What the folder holds already.
    held: u64,
    /// Bytes of the reserve that have to be allocated yet.
    missing: u64,
    medium: Medium,
}

/// What is below a folder, as far as it says something about what is kept there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Medium {
    Disk,
    Memory,
    /// The upper layer of a container's own files.
    Layer,
    Network,
}

/// Looks at the folder of a store, or at where it will be. It need not be open, and whoever has it is not disturbed. A few system
/// calls, and one for each file of the store.
#[must_use]
pub fn inspect(dir: &Path, options: &Options) -> Vec<Finding> {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    match look(&dir, options) {
        Ok(place) => told(&dir, &place, options),
        Err(error) => vec![Finding::warning(
            format!("{}: nobody can tell how much room there is: {error}", dir.display()),
            "on a full disk new keys are refused",
            "Let the gateway's user look into that folder",
        )],
    }
}

fn look(dir: &Path, options: &Options) -> io::Result<Place> {
    // Where it is not made yet, it will be in the nearest one that is there.
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    let fs = rustix::fs::statvfs(there)?;
    let reserve = fs::metadata(dir.join(RESERVE)).map_or(0, |file| file.len());
    Ok(Place {
        free: fs.f_bavail.saturating_mul(fs.f_frsize),
        held: held(dir)?,
        missing: options.reserve.saturating_sub(reserve),
        medium: medium(there)?,
    })
}

/// Bytes of all files; those of a folder that is not there are none.
fn held(dir: &Path) -> io::Result<u64> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(file) if file.is_dir() => held(&entry.path())?,
            Ok(file) => file.len(),
            // Segments come and go while a gateway runs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(bytes)
}

#[cfg(target_os = "linux")]
fn medium(dir: &Path) -> io::Result<Medium> {
    // <linux/magic.h>; the upper half of the word is none of it.
    Ok(match u32::try_from(rustix::fs::statfs(dir)?.f_type & 0xffff_ffff).unwrap_or(0) {
        0x0102_1994 | 0x8584_58f6 => Medium::Memory,
        0x794c_7630 => Medium::Layer,
        0x6969 | 0xff53_4d42 | 0xfe53_4d42 | 0x0102_1997 | 0x00c3_6400 | 0x0bd0_0bd0 => Medium::Network,
        _ => Medium::Disk,
    })
}

#[cfg(not(target_os = "linux"))]
fn medium(_dir: &Path) -> io::Result<Medium> {
    Ok(Medium::Disk)
}

fn told(dir: &Path, place: &Place, options: &Options) -> Vec<Finding> {
    let dir = dir.display();
    let survives = match options.durability {
        Power::Power => "what was answered survives a power cut (durability = power)",
        Power::Process => "of the last moments before a power cut answers may read as unknown (durability = process)",
    };
    let room = format!("{dir} holds {}, and {} are free there", size(place.held), size(place.free));
    let wanted = options.headroom.saturating_add(place.missing);
    let mut findings = Vec::new();
    if place.free < wanted {
        let why = format!(
            "with less than {} new keys are refused (503 store-full); running work still settles",
            size(wanted)
        );
        findings.push(Finding::warning(
            room,
            why,
            "Make room there, or give the store another folder (--data-dir, or store.url in the file)",
        ));
    } else if place.free < wanted.saturating_mul(4) {
        let why = format!("at less than {} new keys are refused (503 store-full)", size(wanted));
        findings.push(Finding::warning(room, why, "Make room there, or keep outcomes for less long (ttl)"));
    } else {
        findings.push(Finding::note(room, survives));
    }
    let (what, why, cure) = match place.medium {
        Medium::Disk => return findings,
        Medium::Memory => (
            "lies in memory (tmpfs)",
            "its records are gone when the machine stops, and what was done would be done again",
            "Give the store a folder on a disk (--data-dir, or store.url in the file)",
        ),
        Medium::Layer => (
            "lies in a container's own layer",
            "its records are gone with the container, and what was done would be done again",
            "Mount a volume and give the store a folder there (--data-dir, or store.url in the file)",
        ),
        Medium::Network => (
            "lies on a file system of the network",
            "what is synced, and that one process alone has it, is then the other machine's word",
            "Give the store a folder on a disk of this machine (--data-dir, or store.url in the file), or take a shared store",
        ),
    };
    findings.push(Finding::warning(format!("{dir} {what}"), why, cure));
    findings
}

/// Bytes for people: `0 B`, `12.5 MiB`.
fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| bytes >> bits > 0) {
        #[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
        Some((unit, bits)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << bits) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use semel_core::store::Grade;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(place: &Place, durability: Power) -> Vec<Finding> {
        told(Path::new("/data"), place, &Options { durability, ..Options::default() })
    }

    fn good() -> Place {
        Place { free: 50 << 30, held: 3 * MIB / 2, missing: 0, medium: Medium::Disk }
    }

    #[test]
    fn a_good_place_is_told_with_what_it_holds_and_what_survives() {
        for (durability, survives) in [(Power::Power, "survives a power cut"), (Power::Process, "may read as unknown")]
        {
            let [finding] = &of(&good(), durability)[..] else { panic!("one") };
            assert_eq!(
                (finding.grade, &*finding.what),
                (Grade::Note, "/data holds 1.5 MiB, and 50.0 GiB are free there")
            );
            assert!(finding.why.contains(survives), "{finding}");
        }
    }

    /// Claims are refused below the headroom, and below what the reserve lacks on top.
    #[test]
    fn short_room_is_told_before_and_when_new_keys_are_refused() {
        for (free, missing, why) in [
            (95 * MIB, 0, "with less than 96.0 MiB new keys are refused"),
            (150 * MIB, 64 * MIB, "with less than 160.0 MiB new keys are refused"),
            (150 * MIB, 0, "at less than 96.0 MiB new keys are refused"),
        ] {
            let [finding] = &of(&Place { free, missing, ..good() }, Power::Power)[..] else { panic!("one") };
            assert!(finding.grade == Grade::Warning && finding.why.starts_with(why), "{finding}");
            assert!(!finding.cure.is_empty());
        }
    }

    #[test]
    fn a_place_that_does_not_keep_what_is_written_is_a_warning() {
        for (medium, what) in [
            (Medium::Memory, "/data lies in memory (tmpfs)"),
            (Medium::Layer, "/data lies in a container's own layer"),
            (Medium::Network, "/data lies on a file system of the network"),
        ] {
            let [_, finding] = &of(&Place { medium, ..good() }, Power::Power)[..] else { panic!("two") };
            assert_eq!((finding.grade, &*finding.what), (Grade::Warning, what));
        }
    }

    #[test]
    fn bytes_are_told_in_their_largest_unit() {
        for (bytes, words) in [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (3 << 40, "3.0 TiB")] {
            assert_eq!(size(bytes), words);
        }
    }
}
