// SPDX-License-Identifier: MIT
//! `mallow pool`: plans of deterministic pools, also on a page, pools derived from a trace, and a trace
//! replayed on one.

mod config;
mod derive;
mod ffi;
mod from_trace;
mod job;
mod page;
mod plan;
mod replay;

use clap::{Arg, ArgMatches, Command};

use crate::options::{bytes, SIZE_WANTED};
use crate::Failure;

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("pool")
        .about(
            "Plans a deterministic pool, also on a page, derives one from a trace, replays a trace on one",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(plan::command())
        .subcommand(page::command())
        .subcommand(replay::command())
}

/// Runs the subcommand.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some(("plan", matches)) => plan::main(matches),
        Some(("page", matches)) => page::main(matches),
        Some(("replay", matches)) => replay::main(matches),
        _ => unreachable!("clap asks for a subcommand"),
    }
}

/// A size as the library's options have it.
fn parse_size(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| format!("wanted {SIZE_WANTED}"))
}

fn max_size_argument() -> Arg {
    Arg::new("max-size")
        .long("max-size")
        .value_name("SIZE")
        .help("Leave requests above this to another allocator [default: none]")
        .value_parser(parse_size)
        .allow_negative_numbers(true) // to be named, as any bad value
}

/// Thousands with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_read_well() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        for bad in ["", "M", "-1", "1.5M", "99999999999T", "64B", "64MBs"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_048_576), "1,048,576");
    }
}
