// SPDX-License-Identifier: MIT
//! Directories for what commands write while they are measured.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of our own that goes with us. Who has it open holds a lock on it.
pub struct Scratch(pub PathBuf, #[allow(dead_code)] Option<File>);

/// How their names begin: nobody else's do.
const SCRATCH_PREFIX: &str = "mallow-scratch-";

impl Scratch {
    /// Makes one below the system's directory for temporary files, that is for this user alone: where
    /// everybody may write, one that is there already is perhaps another's.
    pub fn new() -> io::Result<Scratch> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Scratch::remove_abandoned();
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{SCRATCH_PREFIX}{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    if let Some(lock) = hold(&path) {
                        return Ok(Scratch(path, lock));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    let text = format!("temporary directory '{}': {e}", path.display());
                    return Err(io::Error::new(e.kind(), text));
                }
            }
        }
    }

    /// Removes what interrupted sessions of this user left: directories named after processes that are
    /// no more, as far as can be seen from here, and that nobody holds: a container may share them.
    fn remove_abandoned() {
        // SAFETY: always succeeds.
        let user = unsafe { libc::geteuid() };
        let entries = fs::read_dir(std::env::temp_dir())
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name
                .strip_prefix(SCRATCH_PREFIX)
                .and_then(|rest| rest.split_once('-'))
                .and_then(|(pid, number)| {
                    Some((pid.parse::<u32>().ok()?, number.parse::<u32>().ok()?))
                });
            let is_ours =
                || fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && m.uid() == user);
            if process.is_some_and(|(pid, _)| !Path::new(&format!("/proc/{pid}")).exists())
                && is_ours()
            {
                let Ok(folder) = File::open(entry.path()) else {
                    continue;
                };
                if !lock(&folder, libc::LOCK_EX) {
                    continue;
                }
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Locks it until it is closed, if that can be at once.
fn lock(folder: &File, how: libc::c_int) -> bool {
    // SAFETY: a descriptor of our own.
    unsafe { libc::flock(folder.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

/// Holds a directory that we have just made: a shared lock, for which NFS wants no descriptor to write to.
/// `None` if another session took it for an abandoned one before that; without a lock where there are none,
/// as that one gets none there either.
fn hold(path: &Path) -> Option<Option<File>> {
    let folder = match File::open(path) {
        Ok(folder) => folder,
        Err(e) => return (e.kind() != io::ErrorKind::NotFound).then_some(None),
    };
    if !lock(&folder, libc::LOCK_SH) {
        let refused = io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        return (!refused).then_some(None);
    }
    let (held, there) = (folder.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    ((held.dev(), held.ino()) == (there.dev(), there.ino())).then_some(Some(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_a_dead_session_left_is_removed_and_what_a_living_one_has_is_not() {
        // Process ids stay below 2^22.
        let dead = std::env::temp_dir().join("mallow-scratch-4194305-0");
        fs::create_dir_all(&dead).unwrap();
        // A user's own, of a release or a month.
        let users = std::env::temp_dir().join("mallow-4194305-11");
        fs::create_dir_all(&users).unwrap();
        let ours = Scratch::new().unwrap();
        let other = Scratch::new().unwrap();
        assert!(is_removed(&dead) && ours.0.exists() && other.0.exists());
        assert!(users.exists());
        let _ = fs::remove_dir(&users);
        let path = ours.0.clone();
        drop(ours);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_is_there_already_is_not_used() {
        // Another test may take a number or two meanwhile.
        let first = Scratch::new().unwrap();
        let name = first.0.file_name().unwrap().to_string_lossy().into_owned();
        let (start, number) = name.rsplit_once('-').unwrap();
        let number: u32 = number.parse().unwrap();
        let theirs: Vec<PathBuf> = (number + 1..number + 10)
            .map(|n| first.0.with_file_name(format!("{start}-{n}")))
            .filter(|path| fs::create_dir(path).is_ok())
            .collect();
        let next = Scratch::new().unwrap();
        assert!(!theirs.contains(&next.0), "{}", next.0.display());
        let mode = fs::metadata(&next.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        theirs.iter().for_each(|path| fs::remove_dir(path).unwrap());
    }

    #[test]
    fn what_a_session_of_another_container_has_is_not_removed() {
        // Its process is none of ours.
        let theirs = std::env::temp_dir().join("mallow-scratch-4194306-0");
        let held = loop {
            fs::create_dir_all(&theirs).unwrap();
            if let Some(held) = hold(&theirs) {
                break held;
            }
        };
        assert!(held.is_some());
        drop(Scratch::new().unwrap());
        assert!(theirs.exists());
        drop(held);
        assert!(is_removed(&theirs));
        assert!(hold(&theirs).is_none());
    }

    #[test]
    fn a_directory_is_held_for_as_long_as_it_is_used() {
        let ours = Scratch::new().unwrap();
        let other = File::open(&ours.0).unwrap();
        assert!(!lock(&other, libc::LOCK_EX));
        let removed = ours.0.join("removed");
        fs::create_dir(&removed).unwrap();
        let remover = File::open(&removed).unwrap();
        assert!(lock(&remover, libc::LOCK_EX));
        assert!(hold(&removed).is_none());
    }

    /// By the next session, or one that another test begins.
    fn is_removed(path: &Path) -> bool {
        (0..1000).any(|_| {
            drop(Scratch::new().unwrap());
            !path.exists()
        })
    }
}
