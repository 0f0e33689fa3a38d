// SPDX-License-Identifier: MIT
//! The allocators that can be put under a program, and which of them are here.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::known::{Known, KNOWN};
use crate::library;

/// The suffix under which the system's copy of an allocator is known when a built one comes first.
const SYSTEM_SUFFIX: &str = "-sys";

/// An allocator that is here and can be preloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocator {
    /// Its short name.
    pub key: String,
    /// Its full name.
    pub title: String,
    /// Its version, as far as it can be told.
    pub version: String,
    /// What goes into `LD_PRELOAD`, in order; for glibc libc itself.
    pub preload: Vec<PathBuf>,
    /// Built for safety, not for speed: shown, but not part of the envelope.
    pub hardened: bool,
}

impl Allocator {
    /// Title and version, for a headline.
    pub fn headline(&self) -> String {
        format!("{} {}", self.title, self.version)
            .trim_end()
            .to_string()
    }
}

/// What is here.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Everything that can be preloaded, in the order of the table.
    pub allocators: Vec<Allocator>,
    /// Why mallow is not among them, if it is not.
    pub mallow_missing: Option<String>,
}

#[derive(Deserialize)]
struct PeerFile {
    peers: Vec<PeerRow>,
}

#[derive(Clone, Deserialize)]
struct PeerRow {
    key: String,
    version: String,
    preload: Vec<String>,
}

/// Looks for mallow's library (`lib`, as for [`library::find`]), built peers and installed ones.
pub fn find_all(lib: Option<&Path>) -> Found {
    let built = built_peers();
    let mut found = Found::default();
    for known in KNOWN {
        if known.key == "mallow" {
            match library::find(lib) {
                Ok(path) => {
                    found.allocators.push(make(
                        known,
                        env!("CARGO_PKG_VERSION").into(),
                        vec![path],
                    ));
                }
                Err(error) => found.mallow_missing = Some(error),
            }
            continue;
        }
        if known.key == "glibc" {
            // A program may be linked with another allocator, or the environment preload one.
            let preload = vec![library::LIBC.into()];
            found.allocators.push(make(known, glibc_version(), preload));
            continue;
        }
        let system = system_copy(known);
        match built.get(known.key) {
            Some((version, preload)) => {
                found
                    .allocators
                    .push(make(known, version.clone(), preload.clone()));
                if let Some(mut copy) = system {
                    copy.key.push_str(SYSTEM_SUFFIX);
                    found.allocators.push(copy);
                }
            }
            None => found.allocators.extend(system),
        }
    }
    found
}

fn make(known: &Known, version: String, preload: Vec<PathBuf>) -> Allocator {
    Allocator {
        key: known.key.into(),
        title: known.title.into(),
        version,
        preload,
        hardened: known.hardened,
    }
}

/// The peers that `make peers` left, from the first directory that has each.
fn built_peers() -> HashMap<String, (String, Vec<PathBuf>)> {
    let mut peers = HashMap::new();
    for directory in library::peer_directories() {
        let rows = fs::read_to_string(directory.join("peers.json"))
            .ok()
            .and_then(|text| serde_json::from_str::<PeerFile>(&text).ok())
            .map(|file| file.peers)
            .unwrap_or_default();
        for row in rows {
            let preload: Vec<PathBuf> = row
                .preload
                .iter()
                .map(|name| directory.join(name))
                .collect();
            if preload.iter().all(|path| path.exists()) {
                peers.entry(row.key).or_insert((row.version, preload));
            }
        }
    }
    peers
}

fn system_copy(known: &Known) -> Option<Allocator> {
    for name in known.system {
        let places: Vec<PathBuf> = if name.starts_with('/') {
            expand(Path::new(name))
        } else {
            library::system_directories()
                .iter()
                .map(|d| d.join(name))
                .collect()
        };
        if let Some(real) = places.iter().find_map(|place| place.canonicalize().ok()) {
            let version = package_version(known.package).unwrap_or_else(|| file_version(&real));
            return Some(make(known, version, vec![real]));
        }
    }
    None
}

/// Expands `*` components of an absolute path; the last (highest) match first.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    for component in pattern.components().skip(1) {
        let text = component.as_os_str().to_string_lossy().into_owned();
        let Some((before, after)) = text.split_once('*') else {
            paths.iter_mut().for_each(|p| p.push(&text));
            continue;
        };
        paths = paths
            .iter()
            .filter_map(|p| fs::read_dir(p).ok())
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                name.len() >= before.len() + after.len()
                    && name.starts_with(before)
                    && name.ends_with(after)
            })
            .map(|entry| entry.path())
            .collect();
    }
    paths.sort_by(|a, b| b.cmp(a));
    paths
}

fn package_version(package: &str) -> Option<String> {
    if package.is_empty() {
        return None;
    }
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", package])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.is_empty()).then(|| format!("{text} (Debian)"))
}

/// `libtcmalloc_minimal.so.4.5.10` -> `so.4.5.10`
fn file_version(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    name.find("so.")
        .map(|at| name[at..].to_string())
        .unwrap_or_default()
}

fn glibc_version() -> String {
    // SAFETY: returns a constant, terminated string.
    unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }
        .to_string_lossy()
        .into_owned()
}

/// All names that may be given, for a message.
pub fn known_names() -> String {
    KNOWN.iter().map(|k| k.key).collect::<Vec<_>>().join(", ")
}

fn key_of(name: &str) -> Option<&'static Known> {
    KNOWN
        .iter()
        .find(|k| k.key == name || k.aliases.contains(&name))
}

/// Picks allocators by a comma-separated list of names, in the list's order: short names and aliases,
/// `NAME-sys` for an installed copy beside a built one, `all`, or `LABEL=/path/lib.so` for any other
/// library. The error is one line that names what is wrong and what would be right.
pub fn select(found: &Found, list: &str) -> Result<Vec<Allocator>, String> {
    let mut chosen: Vec<Allocator> = Vec::new();
    let add = |chosen: &mut Vec<Allocator>, allocator: Allocator| {
        if !chosen.iter().any(|c| c.key == allocator.key) {
            chosen.push(allocator);
        }
    };
    for name in list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        if name == "all" {
            everything(found)
                .into_iter()
                .for_each(|allocator| add(&mut chosen, allocator));
            continue;
        }
        let one = match name.split_once('=') {
            Some((label, path)) => custom(label, path)?,
            None => by_name(found, name)?,
        };
        if chosen.iter().any(|c| c.key == one.key && *c != one) {
            return Err(format!("'{}' stands for two libraries", one.key));
        }
        add(&mut chosen, one);
    }
    Ok(chosen)
}

/// Every allocator found, without the system's copies that a built one stands in for.
pub fn everything(found: &Found) -> Vec<Allocator> {
    found
        .allocators
        .iter()
        .filter(|a| !a.key.ends_with(SYSTEM_SUFFIX))
        .cloned()
        .collect()
}

fn custom(label: &str, path: &str) -> Result<Allocator, String> {
    if label.is_empty() {
        return Err(format!(
            "'={path}' has no label: wanted LABEL=/path/to/library.so"
        ));
    }
    if label == "mallow" {
        return Err("the label 'mallow' is the library's that --lib names".into());
    }
    if label.chars().any(char::is_control) {
        return Err(format!("{label:?} is no label: it is printed and drawn"));
    }
    let real = Path::new(path)
        .canonicalize()
        .map_err(|error| format!("allocator '{label}': cannot use '{path}': {error}"))?;
    Ok(Allocator {
        key: label.into(),
        title: label.into(),
        version: file_version(&real),
        preload: vec![real],
        hardened: false,
    })
}

fn by_name(found: &Found, name: &str) -> Result<Allocator, String> {
    let (base, suffix) = match name.strip_suffix(SYSTEM_SUFFIX) {
        Some(base) => (base, SYSTEM_SUFFIX),
        None => (name, ""),
    };
    let Some(known) = key_of(base) else {
        return Err(format!(
            "unknown allocator '{name}'; known: {} (or LABEL=/path/to/library.so, or all)",
            known_names()
        ));
    };
    let key = format!("{}{suffix}", known.key);
    let here = |key: &str| found.allocators.iter().find(|a| a.key == key).cloned();
    // An installed copy is known by its plain name while no built one stands before it.
    let allocator = here(&key).or_else(|| match suffix {
        "" => None,
        _ => system_copy(known),
    });
    allocator.ok_or_else(|| match (&found.mallow_missing, known.key) {
        (Some(reason), "mallow") => reason.clone(),
        _ if known.package.is_empty() => {
            format!("allocator '{name}' ({}) is not here: build it with `make peers`", known.title)
        }
        _ => format!(
            "allocator '{name}' ({}) is not here: build it with `make peers` or install the package {}",
            known.title, known.package
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Found {
        let row = |key: &str| Allocator {
            key: key.into(),
            title: key.into(),
            version: "1".into(),
            preload: vec![],
            hardened: false,
        };
        Found {
            allocators: ["glibc", "mi", "je", "je-sys"].map(row).to_vec(),
            mallow_missing: Some("libmallow.so not found".into()),
        }
    }

    fn keys(list: &str) -> Vec<String> {
        select(&sample(), list)
            .unwrap()
            .into_iter()
            .map(|a| a.key)
            .collect()
    }

    #[test]
    fn names_aliases_and_order() {
        assert_eq!(keys("je, mimalloc,sys,je"), ["je", "mi", "glibc"]);
        assert_eq!(keys("je-sys"), ["je-sys"]);
        assert_eq!(keys("all"), ["glibc", "mi", "je"]);
    }

    #[test]
    fn an_unknown_name_is_named_with_the_known_ones() {
        let error = select(&sample(), "je,jx").unwrap_err();
        assert!(
            error.contains("'jx'") && error.contains("glibc, mi, mi2, je"),
            "{error}"
        );
    }

    #[test]
    fn a_known_but_missing_one_says_how_to_get_it() {
        let error = select(&sample(), "sn").unwrap_err();
        assert!(
            error.contains("'sn'") && error.contains("make peers"),
            "{error}"
        );
        assert_eq!(
            select(&sample(), "mallow").unwrap_err(),
            "libmallow.so not found"
        );
    }

    #[test]
    fn any_library_can_be_given_by_path() {
        let exe = std::env::current_exe().unwrap();
        let chosen = select(&sample(), &format!("mine={}", exe.display())).unwrap();
        assert_eq!(
            (chosen[0].key.as_str(), chosen[0].preload.len()),
            ("mine", 1)
        );
        let twice = format!("mi,mi={}", exe.display());
        for (bad, named) in [
            ("mine=/no/such.so", "/no/such.so"),
            ("=/x.so", "'=/x.so'"),
            ("mallow=/bin/true", "--lib"),
            ("a\u{1b}[31m=/bin/true", "\\u{1b}"),
            ("mine=/bin/true,mine=/bin/false", "'mine' stands for two"),
            (&twice, "'mi' stands for two"),
        ] {
            assert!(select(&sample(), bad).unwrap_err().contains(named), "{bad}");
        }
    }
}
