// SPDX-License-Identifier: MIT
//! Whether a program will take a preloaded library at all, read from its file.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a preloaded library will have no effect, or only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No dynamic loader runs, so nothing can be preloaded.
    Static(PathBuf),
    /// Set-user-id, set-group-id or file capabilities: the loader ignores `LD_PRELOAD`.
    Privileged(PathBuf),
    /// Built for another architecture or word size than the library.
    Foreign(PathBuf, String),
    /// The program exports its own `malloc`, which comes before any preloaded one.
    OwnMalloc(PathBuf),
}

impl Obstacle {
    /// One sentence for the user.
    pub fn describe(&self) -> String {
        match self {
            Obstacle::Static(path) => format!(
                "'{}' is statically linked: it takes no preloaded library (link it with libmallow.a instead)",
                path.display()
            ),
            Obstacle::Privileged(path) => format!(
                "'{}' is setuid, setgid or has file capabilities: the loader ignores LD_PRELOAD for it",
                path.display()
            ),
            Obstacle::Foreign(path, kind) => format!(
                "'{}' is a {kind} program: a library of this architecture cannot be loaded into it",
                path.display()
            ),
            Obstacle::OwnMalloc(path) => format!(
                "'{}' defines and exports its own malloc, which comes before a preloaded one",
                path.display()
            ),
        }
    }

    /// Whether the library is not even loaded (otherwise it is loaded, but not used for everything).
    pub fn prevents_loading(&self) -> bool {
        !matches!(self, Obstacle::OwnMalloc(_))
    }
}

/// Finds a command as a shell would: by path if it has a slash, else in `PATH`. The error says whether
/// it is missing (exit code 127) or cannot be executed (126).
pub fn resolve_command(name: &OsStr) -> Result<PathBuf, (i32, String)> {
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Err(error) => Err((127, format!("command '{shown}' not found: {error}"))),
            Ok(meta) if meta.is_dir() => Err((126, format!("'{shown}' is a directory"))),
            Ok(meta) if meta.permissions().mode() & 0o111 == 0 => {
                Err((126, format!("'{shown}' is not executable")))
            }
            Ok(_) => Ok(path),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    for directory in std::env::split_paths(&path) {
        let candidate = directory.join(name);
        if let Ok(meta) = fs::metadata(&candidate) {
            if meta.is_file() && meta.permissions().mode() & 0o111 != 0 {
                return Ok(candidate);
            }
        }
    }
    Err((127, format!("command '{shown}' not found in PATH")))
}

/// Follows `#!` lines to the program that the kernel will load in the end.
pub fn interpreter_of(path: &Path) -> PathBuf {
    let mut current = path.to_path_buf();
    for _ in 0..4 {
        let mut head = [0u8; 256];
        let Ok(length) = File::open(&current).and_then(|mut file| file.read(&mut head)) else {
            break;
        };
        let Some(line) = head[..length].strip_prefix(b"#!") else {
            break;
        };
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_whitespace();
        let Some(interpreter) = words.next() else {
            break;
        };
        // `#!/usr/bin/env [-S] python3`: env replaces itself by what it names.
        let through_env = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
        let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
        current = match (through_env, named) {
            (true, Some(name)) => match resolve_command(OsStr::new(name)) {
                Ok(found) => found,
                Err(_) => break,
            },
            _ => PathBuf::from(interpreter),
        };
    }
    current
}

/// What keeps a preloaded library from serving the program in `path` (scripts are followed).
pub fn obstacles(path: &Path) -> Vec<Obstacle> {
    let path = interpreter_of(path);
    let mut found = Vec::new();
    if ignores_preload(&path) {
        found.push(Obstacle::Privileged(path.clone()));
    }
    match read_elf(&path) {
        Some(Elf::Foreign(kind)) => found.push(Obstacle::Foreign(path, kind)),
        Some(Elf::Native { dynamic: false, .. }) => found.push(Obstacle::Static(path)),
        Some(Elf::Native {
            exports_malloc: true,
            ..
        }) => found.push(Obstacle::OwnMalloc(path)),
        _ => {}
    }
    found
}

/// Would the kernel set AT_SECURE for us on executing this file?
fn ignores_preload(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else {
        return false;
    };
    // SAFETY: these calls have no preconditions.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = meta.mode();
    (mode & libc::S_ISUID != 0 && meta.uid() != uid)
        || (mode & libc::S_ISGID != 0 && meta.gid() != gid)
        || (uid != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both strings are terminated; a null buffer of size 0 asks for the length.
    let length = unsafe {
        libc::getxattr(
            name.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    length > 0
}

#[derive(Debug, PartialEq, Eq)]
enum Elf {
    Foreign(String),
    Native { dynamic: bool, exports_malloc: bool },
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
}

/// Reads at most what it needs of a little-endian ELF file; `None` if it is not one.
fn read_elf(path: &Path) -> Option<Elf> {
    let file = File::open(path).ok()?;
    let mut header = [0u8; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if header[..4] != *b"\x7fELF" {
        return None;
    }
    let machine = u16_at(&header, 18);
    if header[4] != 2 || header[5] != 1 || machine != native_machine() {
        let bits = if header[4] == 2 { 64 } else { 32 };
        return Some(Elf::Foreign(format!(
            "{bits}-bit {}",
            machine_name(machine)
        )));
    }
    let (table, entry, count) = (
        u64_at(&header, 32),
        u16_at(&header, 54),
        u16_at(&header, 56),
    );
    let mut raw = vec![0u8; usize::from(entry) * usize::from(count)];
    file.read_exact_at(&mut raw, table).ok()?;
    let segments: Vec<Segment> = raw
        .chunks_exact(usize::from(entry).max(56))
        .map(|row| Segment {
            kind: u32_at(row, 0),
            offset: u64_at(row, 8),
            address: u64_at(row, 16),
            file_bytes: u64_at(row, 32),
        })
        .collect();
    let dynamic = segments.iter().any(|s| s.kind == PT_INTERP);
    let exports_malloc = dynamic && exports(&file, &segments, b"malloc").unwrap_or(false);
    Some(Elf::Native {
        dynamic,
        exports_malloc,
    })
}

/// Does the dynamic symbol table define `name`? The table's length is not stored; it ends where the
/// string table begins in every linker's layout, and the search is bounded besides.
fn exports(file: &File, segments: &[Segment], name: &[u8]) -> Option<bool> {
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_STRSZ: u64 = 10;
    const BYTES_MAX: u64 = 64 << 20;
    let dynamic = segments.iter().find(|s| s.kind == PT_DYNAMIC)?;
    let rows = read_range(file, dynamic.offset, dynamic.file_bytes.min(1 << 16))?;
    let value = |tag: u64| {
        rows.chunks_exact(16)
            .find(|row| u64_at(row, 0) == tag)
            .map(|row| u64_at(row, 8))
    };
    let file_offset = |address: u64| {
        segments
            .iter()
            .filter(|s| s.kind == PT_LOAD)
            .find(|s| address >= s.address && address - s.address < s.file_bytes)
            .map(|s| address - s.address + s.offset)
    };
    let (symbols, strings) = (value(DT_SYMTAB)?, value(DT_STRTAB)?);
    let text = read_range(file, file_offset(strings)?, value(DT_STRSZ)?.min(BYTES_MAX))?;
    let table_bytes = strings.checked_sub(symbols)?.min(BYTES_MAX);
    let table = read_range(file, file_offset(symbols)?, table_bytes)?;
    Some(table.chunks_exact(24).any(|row| {
        let start = u32_at(row, 0) as usize;
        let defined = u16_at(row, 6) != 0;
        defined
            && text
                .get(start..start + name.len() + 1)
                .is_some_and(|s| s[..name.len()] == *name && s[name.len()] == 0)
    }))
}

fn read_range(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

const fn native_machine() -> u16 {
    if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86".into(),
        40 => "arm".into(),
        62 => "x86-64".into(),
        183 => "arm64".into(),
        243 => "RISC-V".into(),
        other => format!("machine {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("mallow-elf-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory.join(name)
    }

    fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let (program, code) = (scratch(name), scratch(&format!("{name}.c")));
        fs::write(&code, source).unwrap();
        let status = std::process::Command::new("cc")
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(&code)
            .status()
            .expect("cc runs");
        assert!(status.success());
        program
    }

    #[test]
    fn a_dynamic_program_has_no_obstacle() {
        let program = compile("dynamic", "int main(void) { return 0; }", &[]);
        assert_eq!(obstacles(&program), vec![]);
    }

    #[test]
    fn a_static_program_is_recognised() {
        for (name, flag) in [("static", "-static"), ("static-pie", "-static-pie")] {
            let program = compile(name, "int main(void) { return 0; }", &[flag]);
            assert_eq!(obstacles(&program), vec![Obstacle::Static(program.clone())]);
        }
    }

    #[test]
    fn an_exported_malloc_is_recognised() {
        let source = "#include <stddef.h>\nvoid *malloc(size_t n) { (void)n; return NULL; }\n\
                      int main(void) { return 0; }";
        let program = compile("own", source, &["-rdynamic", "-fno-builtin"]);
        assert_eq!(
            obstacles(&program),
            vec![Obstacle::OwnMalloc(program.clone())]
        );
    }

    #[test]
    fn another_architecture_is_recognised() {
        let path = scratch("foreign");
        let mut header = [0u8; 64];
        header[..6].copy_from_slice(b"\x7fELF\x01\x01");
        header[18] = 40;
        fs::write(&path, header).unwrap();
        assert_eq!(
            obstacles(&path),
            vec![Obstacle::Foreign(path.clone(), "32-bit arm".into())]
        );
    }

    #[test]
    fn scripts_are_followed_to_their_interpreter() {
        let program = compile("interp", "int main(void) { return 0; }", &["-static"]);
        let script = scratch("script");
        let mut file = File::create(&script).unwrap();
        writeln!(file, "#!{}\nx", program.display()).unwrap();
        assert_eq!(interpreter_of(&script), program);
        assert_eq!(obstacles(&script), vec![Obstacle::Static(program)]);
        fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        assert_eq!(interpreter_of(&script).file_name(), Some(OsStr::new("sh")));
    }

    #[test]
    fn damaged_files_are_no_elf_and_no_panic() {
        let path = scratch("damaged");
        for length in [0, 3, 63, 64, 100] {
            let mut bytes = vec![0xffu8; length];
            for (slot, byte) in bytes.iter_mut().zip(b"\x7fELF\x02\x01".iter()) {
                *slot = *byte;
            }
            fs::write(&path, bytes).unwrap();
            let _ = obstacles(&path);
        }
    }

    #[test]
    fn missing_commands_are_told_from_those_that_cannot_run() {
        assert_eq!(
            resolve_command(OsStr::new("no-such-command-x"))
                .unwrap_err()
                .0,
            127
        );
        assert_eq!(
            resolve_command(OsStr::new("/no/such/file")).unwrap_err().0,
            127
        );
        assert_eq!(
            resolve_command(OsStr::new("/etc/passwd")).unwrap_err().0,
            126
        );
        assert_eq!(resolve_command(OsStr::new("/")).unwrap_err().0, 126);
        assert!(resolve_command(OsStr::new("sh")).is_ok());
    }
}
