// SPDX-License-Identifier: MIT
//! `mallow run`: the command on mallow, with options of the library as flags.

use std::os::unix::process::CommandExt;
use std::process;

use clap::{ArgMatches, Command};
use mallow_measure::{elf, exec, inherited, library};

use crate::{command_argument, given_command, lib_argument, options, Failure, EXIT_CODES};

/// The subcommand's arguments.
pub fn command() -> Command {
    let command = Command::new("run")
        .about("Runs a command on mallow")
        .override_usage("mallow run [OPTIONS] -- CMD...")
        .after_help(EXIT_CODES)
        .arg(lib_argument())
        .arg(command_argument());
    options::add_to(command)
}

/// Replaces this process by the command, so it returns only if that fails.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let variables = options::variables(matches).map_err(Failure::usage)?;
    let (program, words) = given_command(matches)?;
    let library = library::find(matches.get_one("lib").map(std::path::PathBuf::as_path))
        .map_err(Failure::tool)?;
    for obstacle in elf::obstacles(&program) {
        eprintln!("mallow: warning: {}", obstacle.describe());
    }
    let existing = std::env::var_os("LD_PRELOAD");
    let mut command = process::Command::new(&program);
    command
        .arg0(&words[0])
        .args(&words[1..])
        .envs(variables)
        .env(
            "LD_PRELOAD",
            library::preload_value(&[library], existing.as_deref()),
        );
    for name in library::TOOL_VARIABLES {
        command.env_remove(name);
    }
    let started = exec::never_as_script(inherited::hand_on(&mut command), &program, &words);
    let error = match started {
        Ok(command) => command.exec(),
        Err(error) => error,
    };
    Err(Failure::with_code(
        126,
        format!("cannot execute '{}': {error}", program.display()),
    ))
}
