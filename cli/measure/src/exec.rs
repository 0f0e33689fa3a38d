// SPDX-License-Identifier: MIT
//! Becoming a command. What the kernel cannot execute libc's `execvp`, and with it Rust's `Command`, gives
//! to `/bin/sh`: right for a script without a first line of `#!`, but of a program for another machine a
//! shell makes commands, and files, of whatever its bytes happen to spell.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Whether the file is a program, for this machine or another, and so no script.
pub fn is_program(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut bytes));
    read.is_ok() && bytes == *b"\x7fELF"
}

/// Replaces this process, a child of a fork perhaps; returns only if that fails.
///
/// # Safety
/// `argv` and `envp` are arrays of strings with NULL at the end.
pub unsafe fn exec(
    is_program: bool,
    path: &CStr,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
) -> io::Error {
    match is_program {
        true => libc::execve(path.as_ptr(), argv, envp),
        false => libc::execvpe(path.as_ptr(), argv, envp),
    };
    io::Error::last_os_error()
}

/// Strings, and the array of them that the kernel wants.
struct Strings(#[allow(dead_code)] Vec<CString>, Vec<*const libc::c_char>);

// SAFETY: nothing changes them, and the array leads to what they own.
unsafe impl Send for Strings {}
// SAFETY: as above.
unsafe impl Sync for Strings {}

impl Strings {
    fn new(strings: impl Iterator<Item = Vec<u8>>) -> io::Result<Strings> {
        let strings = strings.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = strings.iter().map(|text| text.as_ptr());
        let array = pointers.chain([std::ptr::null()]).collect();
        Ok(Strings(strings, array))
    }

    fn array(&self) -> *const *const libc::c_char {
        self.1.as_ptr()
    }
}

/// Has the command, whose environment is complete, execute `program` with these words as `exec` does.
/// What else is to be done before has been added to it already.
pub fn never_as_script<'a>(
    command: &'a mut Command,
    program: &Path,
    words: &[impl AsRef<OsStr>],
) -> io::Result<&'a mut Command> {
    if !is_program(program) {
        return Ok(command); // as it does by itself
    }
    let path = CString::new(program.as_os_str().as_bytes())?;
    let words = words.iter().map(|word| word.as_ref().as_bytes().to_vec());
    let argv = Strings::new(words)?;
    let changed = |name: &OsStr| command.get_envs().any(|(other, _)| other == name);
    let kept = std::env::vars_os().filter(|(name, _)| !changed(name));
    let set = command.get_envs();
    let set = set.filter_map(|(name, value)| Some((name.to_os_string(), value?.to_os_string())));
    let envp = Strings::new(
        kept.chain(set)
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()),
    )?;
    // SAFETY: only async-signal-safe calls, with what has been made before.
    Ok(unsafe { command.pre_exec(move || Err(exec(true, &path, argv.array(), envp.array()))) })
}
