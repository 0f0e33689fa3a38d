// SPDX-License-Identifier: MIT
//! `mallow pool`: plans of deterministic pools, pools derived from a trace, and a trace replayed on one.

mod config;
mod derive;
mod ffi;
mod from_trace;
mod job;
mod plan;
mod replay;

use clap::{Arg, ArgMatches, Command};

use crate::Failure;

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("pool")
        .about("Plans a deterministic pool, derives one from a trace, replays a trace on one")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(plan::command())
        .subcommand(replay::command())
}

/// Runs the subcommand.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some(("plan", matches)) => plan::main(matches),
        Some(("replay", matches)) => replay::main(matches),
        _ => unreachable!("clap asks for a subcommand"),
    }
}

/// A size as the library's options have it: digits, then perhaps K, M, G or T.
fn parse_size(text: &str) -> Result<u64, String> {
    let wanted = "wanted a number of bytes, also with K, M, G or T, as 64M";
    let (digits, shift) = match text.bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        Some(b'T' | b't') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wanted.into());
    }
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| wanted.into())
}

fn max_size_argument() -> Arg {
    Arg::new("max-size")
        .long("max-size")
        .value_name("SIZE")
        .help("Leave requests above this to another allocator [default: none]")
        .value_parser(parse_size)
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
        for bad in ["", "M", "-1", "1.5M", "99999999999T", "64MB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_048_576), "1,048,576");
    }
}
