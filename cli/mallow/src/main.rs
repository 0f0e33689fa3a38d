// SPDX-License-Identifier: MIT
//! `mallow`: run a program on the allocator, prove that it is active, compare it with others.

mod check;
mod compare;
mod options;
#[cfg(test)]
mod options_def;
mod pool;
mod record;
mod run;
mod scopes;
mod show;
mod trace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use mallow_measure::{elf, launch, output};

/// An error of the tool itself: what it says, and the exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// A mistake in how the tool was called.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure {
            code: 2,
            text: text.into(),
        }
    }

    /// The tool cannot do its work.
    pub fn tool(text: impl Into<String>) -> Failure {
        Failure {
            code: 125,
            text: text.into(),
        }
    }

    /// Something with an exit code of its own.
    pub fn with_code(code: i32, text: impl Into<String>) -> Failure {
        Failure {
            code: u8::try_from(code).unwrap_or(125),
            text: text.into(),
        }
    }
}

const EXIT_CODES: &str = "\
Exit codes: the command's own; 2 bad usage; 125 the tool itself failed (for instance libmallow.so not \
found); 126 the command cannot be executed; 127 the command was not found.";

const EXAMPLES: &str = "\
Examples:
  mallow run --stats -- python3 -c 'print(sum(range(1000)))'
  mallow check -- python3 -m json.tool --help
  mallow compare --with je,mi,glibc -n 10 --out picture.svg -- ./my-program input.txt";

/// The command to run, as the last argument of every subcommand.
fn command_argument() -> Arg {
    Arg::new("command")
        .value_name("CMD")
        .help("The command and its arguments, after `--`")
        .num_args(1..)
        .required(true)
        .trailing_var_arg(true)
        .value_parser(clap::value_parser!(OsString))
}

fn lib_argument() -> Arg {
    Arg::new("lib")
        .long("lib")
        .value_name("PATH")
        .help("Which libmallow.so [default: $MALLOW_LIB, else beside the tool, else the installed one]")
        .value_parser(clap::value_parser!(PathBuf))
}

fn cli() -> Command {
    Command::new("mallow")
        .version(env!("CARGO_PKG_VERSION"))
        .about(
            "Runs programs on the mallow allocator, proves that it is active, compares allocators",
        )
        .after_help(format!("{EXAMPLES}\n\n{EXIT_CODES}"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run::command())
        .subcommand(check::command())
        .subcommand(compare::command())
        .subcommand(record::command())
        .subcommand(show::command())
        .subcommand(pool::command())
}

/// The command given, its program looked up: the path to execute, and all words as given.
fn given_command(matches: &ArgMatches) -> Result<(PathBuf, Vec<OsString>), Failure> {
    let words: Vec<OsString> = matches
        .get_many::<OsString>("command")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let program = elf::resolve_command(&words[0]).map_err(|(c, t)| Failure::with_code(c, t))?;
    Ok((program, words))
}

/// The same as UTF-8, for commands that are recorded.
fn given_text(matches: &ArgMatches) -> Result<(PathBuf, Vec<String>), Failure> {
    let (program, words) = given_command(matches)?;
    let words = words
        .into_iter()
        .map(|word| {
            word.into_string().map_err(|word| {
                Failure::usage(format!("'{}' is not UTF-8", word.to_string_lossy()))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok((program, words))
}

fn main() -> ExitCode {
    launch::launcher_main_if_asked();
    output::end_where_it_fails("mallow");
    let matches = match cli().try_get_matches() {
        Ok(matches) => matches,
        Err(told) => {
            return output::told("mallow", told.print(), !told.use_stderr(), told.exit_code())
        }
    };
    let result = match matches.subcommand() {
        Some(("run", matches)) => run::main(matches),
        Some(("check", matches)) => check::main(matches),
        Some(("compare", matches)) => compare::main(matches),
        Some(("record", matches)) => record::main(matches),
        Some(("trace", matches)) => show::main(matches),
        Some(("pool", matches)) => pool::main(matches),
        _ => unreachable!("clap asks for a subcommand"),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("mallow: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::cli().debug_assert();
    }
}
