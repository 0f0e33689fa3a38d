// SPDX-License-Identifier: MIT
//! The library's run-time options as flags of `mallow run`, made from src/options.def.

use clap::{Arg, ArgMatches, Command};

/// What values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // The table decides which of them there are.
pub enum Kind {
    /// On or off.
    Switch,
    /// Bytes, with K, M, G or T.
    Size,
    /// A number.
    Count,
    /// 0, bytes from 4M to 8388607T, or a share as 80%.
    Limit,
    /// 0 to 100, also with %.
    Percent,
    /// Anything.
    Text,
}

/// One option of the library.
#[derive(Clone, Copy, Debug)]
pub struct LibraryOption {
    /// `huge_cache`
    pub name: &'static str,
    /// `huge-cache`
    pub flag: &'static str,
    /// `MALLOW_HUGE_CACHE`
    pub variable: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The default as it would be written.
    pub default: &'static str,
    /// Unit, possibly empty; `a|b`: only these words; `64K..1M`: only these sizes.
    pub unit: &'static str,
    /// One sentence.
    pub help: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/options.rs"));

/// Every option, in the table's order.
pub fn all() -> &'static [LibraryOption] {
    ROWS
}

/// The least limit that the library takes.
const LIMIT_MIN: u64 = 4 << 20;
/// From here on it takes none.
const LIMIT_END: u64 = 1 << 63;

/// The longest text that the library takes.
const TEXT_BYTES_MAX: usize = 255;

/// What a size looks like, for messages.
pub const SIZE_WANTED: &str = "a number of bytes, also with K, M, G or T, as 64M";

/// A number, also with K, M, G or T, which may stand before B or iB.
pub fn bytes(text: &str) -> Option<u64> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(end);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Whether the value is among the words or in the range that the unit stands for, if it does.
fn is_among(unit: &str, value: &str) -> bool {
    match unit.split_once("..") {
        Some((least, most)) => bytes(least) <= bytes(value) && bytes(value) <= bytes(most),
        None => !unit.contains('|') || unit.split('|').any(|word| word.eq_ignore_ascii_case(value)),
    }
}

/// Checks a value as the library would; the error names option and value.
pub fn check(option: &LibraryOption, value: &str) -> Result<(), String> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let percent = |text: &str| number(text) && text.parse().is_ok_and(|n: u64| n <= 100);
    let good = match option.kind {
        Kind::Text => value.len() <= TEXT_BYTES_MAX,
        Kind::Switch => {
            let values = ["0", "1", "on", "off", "yes", "no", "true", "false"];
            values.contains(&value.to_ascii_lowercase().as_str())
        }
        Kind::Count => number(value),
        Kind::Size => bytes(value).is_some(),
        Kind::Limit => match value.strip_suffix('%') {
            Some(share) => percent(share) && share.parse() != Ok(0),
            None => bytes(value).is_some_and(|n| n == 0 || (LIMIT_MIN..LIMIT_END).contains(&n)),
        },
        Kind::Percent => percent(value.strip_suffix('%').unwrap_or(value)),
    };
    if good && is_among(option.unit, value) {
        return Ok(());
    }
    let wanted = match option.kind {
        Kind::Switch => "0, 1, on, off, yes, no, true or false".into(),
        Kind::Size => match option.unit.split_once("..") {
            Some((least, most)) => format!("{SIZE_WANTED}, from {least} to {most}"),
            None => SIZE_WANTED.into(),
        },
        Kind::Text if option.unit.contains('|') => option.unit.replace('|', " or "),
        Kind::Text => "at most 255 bytes".into(),
        Kind::Limit => "0, a size from 4M to 8388607T, or a share from 1% to 100%".into(),
        Kind::Percent => "a percentage from 0 to 100".into(),
        Kind::Count => String::from("a number"),
    };
    Err(format!(
        "option --{}: bad value '{value}': wanted {wanted}",
        option.flag
    ))
}

/// Adds a flag for every option. Switches may stand without a value.
pub fn add_to(mut command: Command) -> Command {
    for option in all() {
        let shown = if option.default.is_empty() {
            "none"
        } else {
            option.default
        };
        let mut arg = Arg::new(option.name)
            .long(option.flag)
            .help(format!("{} [default: {shown}]", option.help))
            .help_heading("Options of the library (each also as MALLOW_<NAME> in the environment)")
            .allow_negative_numbers(true); // to be named, as any bad value
        if option.name.contains('_') {
            arg = arg.alias(option.name);
        }
        arg = match option.kind {
            Kind::Switch => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("1")
                .value_name("0|1"),
            Kind::Size => arg.value_name("size"),
            Kind::Limit => arg.value_name("size|share%"),
            Kind::Percent => arg.value_name("percent"),
            Kind::Count => arg.value_name("n"),
            Kind::Text if !option.unit.is_empty() => arg.value_name(option.unit),
            Kind::Text => arg.value_name("text"),
        };
        command = command.arg(arg);
    }
    command
}

/// The variables that the given flags stand for.
pub fn variables(matches: &ArgMatches) -> Result<Vec<(String, String)>, String> {
    let mut variables = Vec::new();
    for option in all() {
        if let Some(value) = matches.get_one::<String>(option.name) {
            check(option, value)?;
            variables.push((option.variable.to_string(), value.clone()));
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options_def;

    fn option(kind: Kind) -> LibraryOption {
        LibraryOption {
            name: "an_option",
            flag: "an-option",
            variable: "MALLOW_AN_OPTION",
            kind,
            default: "",
            unit: "",
            help: "",
        }
    }

    #[test]
    fn values_are_checked_by_type() {
        let longest = "x".repeat(TEXT_BYTES_MAX + 1);
        for (kind, good, bad) in [
            (
                Kind::Switch,
                vec!["0", "1", "On", "false"],
                vec!["", "2", "maybe"],
            ),
            (
                Kind::Size,
                vec!["0", "64M", "1g", "4096", "64MB", "2kib"],
                vec!["", "M", "-1", "1.5M", "64B", "0x10", "2 M", "1é"],
            ),
            (Kind::Count, vec!["7"], vec!["7K", "", "seven"]),
            (
                Kind::Limit,
                vec!["0", "4M", "512m", "80%", "100%", "4194304", "8388607T"],
                vec![
                    "",
                    "3M",
                    "4194303",
                    "0%",
                    "101%",
                    "%",
                    "80 %",
                    "99999999999T",
                    "8388608T",
                ],
            ),
            (
                Kind::Percent,
                vec!["0", "10", "100%"],
                vec!["", "101", "%", "ten", "-1"],
            ),
            (
                Kind::Text,
                vec!["", "anything", &longest[1..]],
                vec![&longest],
            ),
        ] {
            for value in good {
                assert_eq!(check(&option(kind), value), Ok(()), "{kind:?} {value}");
            }
            for value in bad {
                let error = check(&option(kind), value).unwrap_err();
                assert!(
                    error.contains("--an-option") && error.contains(&format!("'{value}'")),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn words_and_ranges_are_those_of_the_unit() {
        for (kind, unit, good, bad) in [
            (
                Kind::Text,
                "default|realtime",
                vec!["default", "Realtime"],
                vec!["", "real", "default|realtime"],
            ),
            (
                Kind::Size,
                "64K..1M",
                vec!["64K", "65536", "1M"],
                vec!["", "65535", "1025K", "-1"],
            ),
        ] {
            let option = LibraryOption {
                unit,
                ..option(kind)
            };
            for value in good {
                assert_eq!(check(&option, value), Ok(()), "{unit} {value}");
            }
            for value in bad {
                assert!(check(&option, value).is_err(), "{unit} {value}");
            }
        }
    }

    #[test]
    fn the_table_is_the_librarys() {
        let text = include_str!("../../../src/options.def");
        let rows = options_def::parse(text).unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(all().iter().map(|o| o.name).collect::<Vec<_>>(), names);
        for option in all() {
            assert!(
                check(option, option.default).is_ok(),
                "the default of {}",
                option.name
            );
        }
    }

    #[test]
    fn flags_become_variables() {
        let command = add_to(Command::new("run"));
        let matches = command
            .try_get_matches_from(["run", "--stats", "--huge-cache", "4M"])
            .unwrap();
        let expected = [("MALLOW_STATS", "1"), ("MALLOW_HUGE_CACHE", "4M")];
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect();
        assert_eq!(variables(&matches).unwrap(), expected);
    }
}
