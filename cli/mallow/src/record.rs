// SPDX-License-Identifier: MIT
//! `mallow record`: the command with the recorder preloaded; a trace file a process.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use clap::{Arg, ArgMatches, Command};
use mallow_measure::table::{self, Table};
use mallow_measure::{elf, exec, inherited, library, output};

use crate::trace::{Trace, HEADER_BYTES};
use crate::{command_argument, given_command, Failure, EXIT_CODES};

const LIBRARY: &str = "libmallow-record.so";
const COMMAND_WIDTH: usize = 48;

const ABOUT_FILES: &str = "\
Each process of the command, children included, writes PREFIX.PID.trace (PREFIX.PID.2.trace after an \
exec). `mallow pool plan --from` and `mallow pool replay` read them; docs/design/trace.md has the \
format. The program runs on glibc's allocator while it is recorded.";

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("record")
        .about("Records every allocation of a command into trace files")
        .override_usage("mallow record [OPTIONS] -- CMD...")
        .after_help(format!("{ABOUT_FILES}\n\n{EXIT_CODES}"))
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("PREFIX")
                .help("Where the traces go: PREFIX.PID.trace")
                .default_value("mallow")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("recorder")
                .long("recorder")
                .value_name("PATH")
                .help(
                    "Which libmallow-record.so [default: beside the tool, else the installed one]",
                )
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(command_argument())
}

/// The prefix as an absolute path, since the program may change its directory.
fn absolute_prefix(given: &Path) -> Result<PathBuf, Failure> {
    let bad =
        |text: String| Failure::usage(format!("option --output: '{}': {text}", given.display()));
    let name = given
        .file_name()
        .filter(|_| !given.as_os_str().as_bytes().ends_with(b"/"))
        .ok_or_else(|| bad("wanted a path that ends in a name".into()))?;
    let parent = match given.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let prefix = parent
        .canonicalize()
        .map_err(|e| bad(e.to_string()))?
        .join(name);
    // A name beside it, since a folder may be called as the prefix is.
    output::writable(&prefix.with_extension("trace")).map_err(bad)?;
    Ok(prefix)
}

/// The traces with this prefix that were not there before.
fn traces(prefix: &Path, before: &[PathBuf]) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (prefix.parent(), prefix.file_name()) else {
        return Vec::new();
    };
    let start = format!("{}.", name.to_string_lossy());
    let mut found: Vec<PathBuf> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.strip_prefix(&start).is_some_and(is_numbered)
        })
        .filter(|path| !before.contains(path))
        .collect();
    found.sort();
    found
}

/// `123.trace` or `123.2.trace`.
fn is_numbered(rest: &str) -> bool {
    rest.strip_suffix(".trace").is_some_and(|numbers| {
        numbers
            .split('.')
            .all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Gives back what the recorder reserved ahead, unless a process has the file in its memory still: a
/// store beyond its end would kill that one. The recorder holds a lock for as long.
fn trim(path: &Path) {
    let Ok(file) = OpenOptions::new().write(true).open(path) else {
        return;
    };
    // SAFETY: a descriptor of our own.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return;
    }
    // Read with the lock held: who held it before may have recorded more than was known.
    let (Ok(trace), Ok(now)) = (Trace::open(path), file.metadata()) else {
        return;
    };
    let end = trace
        .header()
        .record_bytes
        .saturating_add(HEADER_BYTES as u64);
    if end < now.len() {
        // It is only space: without it the trace is as good.
        let _ = file.set_len(end);
    }
}

fn summary(found: &[PathBuf]) -> String {
    let mut table = Table::new([
        "trace",
        "records",
        "blocks",
        "most live",
        "MiB",
        "threads",
        "command",
    ]);
    let mut cut = Vec::new();
    for path in found {
        let trace = match Trace::open(path) {
            Ok(trace) => trace,
            Err(why) => {
                cut.push(format!("mallow: warning: {why}\n"));
                continue;
            }
        };
        let header = trace.header();
        trim(path);
        if let Some(warning) = trace.warning() {
            cut.push(warning + "\n");
        }
        table.row([
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            header.record_count.to_string(),
            header.block_count.to_string(),
            header.live_count_peak.to_string(),
            table::mebibytes(header.live_bytes_peak as f64),
            header.thread_count.to_string(),
            header.command_line(COMMAND_WIDTH),
        ]);
    }
    table.render() + &cut.concat()
}

/// The command, for as long as it runs.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// What ends a program, or tells it something: whoever knows only us means the command.
const PASSED_ON: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

extern "C" fn pass_on(signal: libc::c_int) {
    let command = COMMAND.load(Ordering::SeqCst);
    if command > 0 {
        // SAFETY: may be called in a handler.
        unsafe { libc::kill(command, signal) };
    }
}

/// Runs the command to its end, and passes signals on to it.
fn run(
    command: &mut process::Command,
    program: &Path,
    words: &[OsString],
) -> io::Result<ExitStatus> {
    // Held back until there is somebody to pass them on to. What we were told to ignore stays ignored, and
    // is so for the command; an exec sets handlers back.
    // SAFETY: dispositions and masks of this process, and in the child before its exec.
    let before = unsafe {
        let (mut held, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut held);
        PASSED_ON.iter().for_each(|&signal| {
            libc::sigaddset(&mut held, signal);
        });
        libc::sigprocmask(libc::SIG_BLOCK, &held, &mut before);
        for signal in PASSED_ON {
            let handler = pass_on as extern "C" fn(libc::c_int);
            if libc::signal(signal, handler as usize) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        command.pre_exec(move || {
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            Ok(())
        });
        before
    };
    let started = exec::never_as_script(command, program, words).and_then(process::Command::spawn);
    if let Ok(child) = &started {
        COMMAND.store(child.id() as i32, Ordering::SeqCst);
    }
    // SAFETY: as above.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    let status = started?.wait();
    COMMAND.store(0, Ordering::SeqCst);
    status
}

/// Runs the command, waits for it, and says on stderr what was recorded.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let (program, words) = given_command(matches)?;
    let prefix = absolute_prefix(matches.get_one::<PathBuf>("output").expect("has a default"))?;
    let recorder = matches.get_one::<PathBuf>("recorder").map(PathBuf::as_path);
    let recorder = library::find_named(LIBRARY, recorder.map(|path| (path, "--recorder")))
        .map_err(Failure::tool)?;
    for obstacle in elf::obstacles(&program) {
        eprintln!("mallow: warning: {}", obstacle.describe());
    }
    let before = traces(&prefix, &[]);
    let existing = std::env::var_os("LD_PRELOAD");
    let mut command = process::Command::new(&program);
    command
        .arg0(&words[0])
        .args(&words[1..])
        .env("MW_RECORD", &prefix)
        .env(
            "LD_PRELOAD",
            library::preload_value(&[recorder], existing.as_deref()),
        );
    for name in library::TOOL_VARIABLES {
        command.env_remove(name);
    }
    // An interrupt from the terminal is the command's affair, and ignored where we were told to.
    // SAFETY: only dispositions change, in this process and back in the child before its exec.
    unsafe {
        let before = [libc::SIGINT, libc::SIGQUIT]
            .map(|signal| (signal, libc::signal(signal, libc::SIG_IGN)));
        command.pre_exec(move || {
            for (signal, disposition) in before {
                libc::signal(signal, disposition);
            }
            Ok(())
        });
    }
    let status = run(inherited::hand_on(&mut command), &program, &words).map_err(|error| {
        Failure::with_code(
            126,
            format!("cannot execute '{}': {error}", program.display()),
        )
    })?;
    let found = traces(&prefix, &before);
    if found.is_empty() {
        eprintln!(
            "mallow: warning: nothing was recorded: the command never allocates, is statically linked, \
             drops LD_PRELOAD, or could not write {}.PID.trace",
            prefix.display()
        );
    } else {
        eprint!("{}", summary(&found));
    }
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(125))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_recorders_names_are_traces() {
        for (name, is) in [
            ("12.trace", true),
            ("12.2.trace", true),
            ("12.tracer", false),
            ("x.trace", false),
            (".trace", false),
            ("old.12.trace", false),
        ] {
            assert_eq!(is_numbered(name), is, "{name}");
        }
    }

    #[test]
    fn a_prefix_without_a_directory_is_an_error_that_names_it() {
        let error = absolute_prefix(Path::new("/nonexistent/x")).unwrap_err();
        assert!(error.text.contains("--output") && error.text.contains("/nonexistent/x"));
        assert!(absolute_prefix(Path::new("x")).unwrap().is_absolute());
        for none in ["/tmp/", "/", "..", "/dev/null/x"] {
            let error = absolute_prefix(Path::new(none)).unwrap_err();
            assert!(error.text.contains(none), "{}", error.text);
        }
    }
}
