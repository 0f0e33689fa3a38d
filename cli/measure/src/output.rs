// SPDX-License-Identifier: MIT
//! What the tools print, and the files they write and read: looked at before hours of measuring, and
//! one line where it fails.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::panic;
use std::path::Path;
use std::process::ExitCode;

/// What cannot be printed ends the tool, with one line: `print!` knows nothing but to panic. A reader
/// that went away ends it in silence, as it does any other.
pub fn end_where_it_fails(tool: &'static str) {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let what = info.payload().downcast_ref::<String>();
        let what = what.map_or("", String::as_str);
        match what.strip_prefix("failed printing to ") {
            Some(what) => {
                let _ = writeln!(io::stderr(), "{tool}: {what}");
                std::process::exit(125);
            }
            None => usual(info),
        }
    }));
    // SAFETY: no other thread is there yet. Rust ignores SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The exit code after help or a complaint about the command line, which `printed` tells of: `code`,
/// but help that could not be printed is an error, too.
pub fn told(tool: &str, printed: io::Result<()>, is_help: bool, code: i32) -> ExitCode {
    match printed.and_then(|()| io::stdout().flush()) {
        Err(error) if is_help => {
            eprintln!("{tool}: stdout: {error}");
            ExitCode::from(125)
        }
        _ => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

/// A text of somebody else's for a terminal: what that might take for a command, or a new line, is
/// escaped.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// Whether a file can be written there; the error says why not. Makes nothing.
pub fn writable(path: &Path) -> Result<(), String> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err("is a directory".into());
    }
    let target = if path.exists() { path } else { parent };
    allowed(target, libc::W_OK).map_err(|e| e.to_string())?;
    match path.exists() || parent.is_dir() {
        true => Ok(()),
        false => Err(format!("'{}' is no directory", parent.display())),
    }
}

/// Whether the file can be read; the error says why not.
pub fn readable(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Err("is a directory".into());
    }
    allowed(path, libc::R_OK).map_err(|e| e.to_string())
}

fn allowed(path: &Path, mode: libc::c_int) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a terminated string.
    match unsafe { libc::access(name.as_ptr(), mode) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_terminal_or_picture_may_have_is_escaped() {
        assert_eq!(printable("a\n\u{1b}é\u{ffff}"), "a\\n\\u{1b}é\\u{ffff}");
    }

    #[test]
    fn files_are_looked_at_and_not_made() {
        let folder = std::env::temp_dir();
        let new = folder.join(format!("mallow-output-{}", std::process::id()));
        assert_eq!(writable(&new), Ok(()));
        assert!(!new.exists());
        assert_eq!(writable(Path::new("new")), Ok(()));
        for (path, why) in [
            (folder.as_path(), "is a directory"),
            (Path::new("/nonexistent/x"), "No such file"),
        ] {
            assert!(writable(path).unwrap_err().contains(why));
            assert!(readable(path).unwrap_err().contains(why));
        }
        let in_a_file = writable(Path::new("/dev/null/x")).unwrap_err();
        assert!(in_a_file.contains("'/dev/null' is no dir"), "{in_a_file}");
        assert_eq!(readable(Path::new("/dev/null")), Ok(()));
    }
}
