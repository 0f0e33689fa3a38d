// SPDX-License-Identifier: MIT
//! Where `libmallow.so` is.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Environment variables that steer the tools. They must not reach the measured program: the library
/// reports every `MALLOW_` variable that is not one of its options.
pub const TOOL_VARIABLES: [&str; 2] = ["MALLOW_LIB", "MALLOW_PEERS"];

/// Directories that a C library's own loader would search, for this architecture.
pub fn system_directories() -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    ["/usr/local/lib", "/usr/lib", "/lib"]
        .iter()
        .flat_map(|base| [Path::new(base).join(&triplet), PathBuf::from(base)])
        .chain([
            PathBuf::from("/usr/local/lib64"),
            PathBuf::from("/usr/lib64"),
        ])
        .collect()
}

/// The directory that holds this program, if the system tells.
fn program_directory() -> Option<PathBuf> {
    env::current_exe().ok()?.parent().map(Path::to_path_buf)
}

/// The places where a library of ours is looked for, in order.
fn candidates(name: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(directory) = program_directory() {
        let triplet = format!("../lib/{}-linux-gnu", env::consts::ARCH);
        for relative in ["../lib", triplet.as_str(), "../lib64", "."] {
            places.push(directory.join(relative));
        }
    }
    places.extend(system_directories());
    places.iter().map(|p| p.join(name)).collect()
}

/// A function that only the library `name` has.
fn mark_of(name: &str) -> &'static str {
    match name {
        "libmallow-record.so" => "mw_record_note_v1",
        _ => "mw_version_text",
    }
}

/// Whether a table of names in the file has that one.
fn names_symbol(bytes: &[u8], symbol: &str) -> bool {
    let entry = [&[0], symbol.as_bytes(), &[0]].concat();
    bytes.windows(entry.len()).any(|part| part == entry)
}

/// The path again, if the library `name` is there, by whatever file name, and the loader can be told of
/// it: it passes over anything but a library with a warning, and loads any other one in silence; the
/// program would run without us.
fn library_at(path: PathBuf, name: &str) -> io::Result<PathBuf> {
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| b" :".contains(b))
    {
        return Err(io::Error::other(
            "LD_PRELOAD takes no path with a space or a colon",
        ));
    }
    let mut file = File::open(&path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(4).read_to_end(&mut bytes)?;
    if bytes != *b"\x7fELF" {
        return Err(io::Error::other("not a shared library"));
    }
    file.read_to_end(&mut bytes)?;
    if !names_symbol(&bytes, mark_of(name)) {
        return Err(io::Error::other(format!("another library than {name}")));
    }
    Ok(path)
}

/// Finds the library: `explicit` (from `--lib`), else `MALLOW_LIB`, else beside the tool, else where
/// it would be installed. The error is one line that says where it was looked for.
pub fn find(explicit: Option<&Path>) -> Result<PathBuf, String> {
    let variable = env::var_os("MALLOW_LIB").map(PathBuf::from);
    let named = match (explicit, &variable) {
        (Some(path), _) => Some((path, "--lib")),
        (None, Some(path)) => Some((path.as_path(), "MALLOW_LIB")),
        (None, None) => None,
    };
    find_named("libmallow.so", named).map_err(|error| match named {
        Some(_) => error,
        None => error + ", or name it with --lib PATH or MALLOW_LIB=PATH",
    })
}

/// Finds the library `name`: where the user said, with the name of what said so, else beside the tool,
/// else where it would be installed.
pub fn find_named(name: &str, named: Option<(&Path, &str)>) -> Result<PathBuf, String> {
    if let Some((path, origin)) = named {
        return path
            .canonicalize()
            .and_then(|path| library_at(path, name))
            .map_err(|error| {
                format!(
                    "{origin} names '{}', which cannot be used: {error}",
                    path.display()
                )
            });
    }
    let places = candidates(name);
    for place in &places {
        if let Ok(path) = place.canonicalize() {
            return library_at(path, name)
                .map_err(|error| format!("'{}' cannot be used: {error}", place.display()));
        }
    }
    Err(format!(
        "{name} not found beside the tool ({}) nor in the system's library directories; \
         build it with `make lib`",
        places
            .first()
            .map(|p| p.display().to_string())
            .unwrap_or_default()
    ))
}

/// Directories that may hold peers built by `make peers`, in order.
pub fn peer_directories() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(named) = env::var_os("MALLOW_PEERS") {
        places.push(PathBuf::from(named));
    }
    if let Some(directory) = program_directory() {
        places.push(directory.join("../peers"));
        places.push(directory.join("../lib/mallow/peers"));
    }
    places.push(PathBuf::from("build/peers"));
    places
        .into_iter()
        .filter_map(|p| p.canonicalize().ok())
        .collect()
}

/// libc itself, as the loader knows it. Every program maps it: its `malloc` is the one that is used where it
/// comes before all other libraries.
pub const LIBC: &str = "libc.so.6";

/// The value for `LD_PRELOAD`: ours first, then what was there already.
pub fn preload_value(ours: &[PathBuf], existing: Option<&OsStr>) -> OsString {
    let existing = existing
        .map_or(&[][..], OsStr::as_bytes)
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|part| !part.is_empty());
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in ours
        .iter()
        .map(|p| p.as_os_str().as_bytes())
        .chain(existing)
    {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    OsString::from_vec(parts.join(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_keeps_what_was_there_behind_ours() {
        let ours = [PathBuf::from("/x/libmallow.so")];
        assert_eq!(preload_value(&ours, None), "/x/libmallow.so");
        assert_eq!(
            preload_value(&ours, Some(OsStr::new(""))),
            "/x/libmallow.so"
        );
        assert_eq!(
            preload_value(&ours, Some(OsStr::new("/a.so /b.so:/x/libmallow.so"))),
            "/x/libmallow.so:/a.so:/b.so"
        );
    }

    #[test]
    fn preload_names_files_byte_by_byte() {
        let ours = [PathBuf::from(OsStr::from_bytes(b"/\xff/libmallow.so"))];
        let existing = OsStr::from_bytes(b"/\xfe.so");
        assert_eq!(
            preload_value(&ours, Some(existing)).as_bytes(),
            b"/\xff/libmallow.so:/\xfe.so"
        );
    }

    #[test]
    fn a_named_library_that_is_missing_is_an_error_that_names_it() {
        let error = find(Some(Path::new("/nonexistent/libmallow.so"))).unwrap_err();
        assert!(error.contains("--lib") && error.contains("/nonexistent/libmallow.so"));
    }

    #[test]
    fn a_named_file_that_is_no_library_is_an_error_that_says_so() {
        for wrong in ["/etc/passwd", "/"] {
            let error = find(Some(Path::new(wrong))).unwrap_err();
            assert!(error.contains("--lib") && error.contains(wrong), "{error}");
        }
        let error = find(Some(Path::new("/etc/passwd"))).unwrap_err();
        assert!(error.ends_with("not a shared library"), "{error}");
    }

    #[test]
    fn a_named_library_that_is_another_one_is_an_error_that_says_so() {
        let other = system_directories()
            .into_iter()
            .map(|directory| directory.join("libm.so.6"))
            .find(|path| path.exists())
            .unwrap();
        for name in ["libmallow.so", "libmallow-record.so"] {
            let error = find_named(name, Some((&other, "--lib"))).unwrap_err();
            assert!(
                error.ends_with(&format!("another library than {name}")),
                "{error}"
            );
        }
    }
}
