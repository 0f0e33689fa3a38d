// SPDX-License-Identifier: MIT
//! `mallow trace`: a trace as text, a line a record, or as CSV; all records or some.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::options::{bytes, SIZE_WANTED};
use crate::scopes::{self, Scopes};
use crate::trace::{Event, Header, Operation, Trace};
use crate::Failure;

const FORM: &str = "\
A line a record: microseconds, thread, then one of
  allocate ID SIZE [align=N] [zeroed] [inherited]     refused SIZE
  free ID     resize ID SIZE     resize-refused ID SIZE     unknown
  mark TEXT     scope-begin TEXT     scope-end
With --csv the columns are those of its first line; size_before is what the block had before a free or \
resize. Of several conditions a record meets all; a free has the size of its block.";
const CSV_HEAD: &str =
    "time_us,thread,operation,id,size,size_before,alignment,zeroed,inherited,scope,text";
/// What leaves records out, and so has no effect on `--head` and `--scopes`.
const FILTERS: [&str; 8] = [
    "only", "min-size", "max-size", "thread", "since", "until", "scope", "live",
];
const OPERATIONS: [&str; 9] = [
    "allocate",
    "free",
    "resize",
    "refused",
    "resize-refused",
    "unknown",
    "mark",
    "scope-begin",
    "scope-end",
];

/// The subcommand's arguments.
pub fn command() -> Command {
    Command::new("trace")
        .about("Prints a trace of `mallow record` as text")
        .after_help(FORM)
        .arg(
            Arg::new("file")
                .value_name("TRACE")
                .help("A trace of `mallow record`")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("head")
                .long("head")
                .help("Only what is known of the process")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(FILTERS),
        )
        .arg(
            Arg::new("csv")
                .long("csv")
                .help("Comma-separated values, for spreadsheets and databases")
                .action(ArgAction::SetTrue)
                .conflicts_with("head"),
        )
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("OPERATION,...")
                .help(format!("Only these: {}", OPERATIONS.join(", ")))
                .value_delimiter(',')
                .value_parser(OPERATIONS),
        )
        .arg(size("min-size", "Only records of so many bytes and more"))
        .arg(size("max-size", "Only records of at most so many bytes"))
        .arg(
            Arg::new("thread")
                .long("thread")
                .value_name("N")
                .help("Only this thread, from 0 in the order of their first calls")
                .allow_negative_numbers(true) // to be named, as any bad value
                .value_parser(clap::value_parser!(u32)),
        )
        .arg(seconds(
            "since",
            "Only from so many seconds after the start on",
        ))
        .arg(seconds(
            "until",
            "Only up to so many seconds after the start",
        ))
        .arg(
            Arg::new("scope")
                .long("scope")
                .value_name("NAME")
                .help("Only records within a scope of this name, or of this path (outer/inner)"),
        )
        .arg(
            Arg::new("scopes")
                .long("scopes")
                .help("What each scope of the program asked for, as a table")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["head", "csv"])
                .conflicts_with_all(FILTERS),
        )
        .arg(
            Arg::new("live")
                .long("live")
                .help("Only allocations whose blocks are live at the trace's end, with their size there")
                .action(ArgAction::SetTrue),
        )
}

fn size(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("SIZE")
        .help(help)
        .allow_negative_numbers(true) // to be named, as any bad value
        .value_parser(|text: &str| bytes(text).ok_or_else(|| format!("wanted {SIZE_WANTED}")))
}

fn seconds(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("SECONDS")
        .help(help)
        .allow_negative_numbers(true) // to be named, as any bad value
        .value_parser(|text: &str| match text.parse::<f64>() {
            Ok(value) if value >= 0.0 => Ok((value * 1e9) as u64),
            _ => Err("wanted a number of seconds".to_string()),
        })
}

/// Which records are wanted.
struct Filter {
    only: Vec<String>,
    sizes: (u64, u64),
    thread: Option<u32>,
    times_ns: (u64, u64),
    /// Sizes by id of what is live at the end, where only that is wanted.
    live: Option<HashMap<u64, u64>>,
}

impl Filter {
    fn of(matches: &ArgMatches, path: &Path, header: &Header) -> Result<Filter, Failure> {
        let number = |name: &str, other| matches.get_one::<u64>(name).copied().unwrap_or(other);
        for (least, most) in [("min-size", "max-size"), ("since", "until")] {
            if number(least, 0) > number(most, u64::MAX) {
                return Err(Failure::usage(format!(
                    "option --{least} is above --{most}"
                )));
            }
        }
        let thread = matches.get_one::<u32>("thread").copied();
        if thread.is_some_and(|thread| thread >= header.thread_count) {
            return Err(Failure::usage(format!(
                "option --thread: the trace has {} threads, counted from 0",
                header.thread_count
            )));
        }
        let only = matches.get_many::<String>("only");
        let live = match matches.get_flag("live") {
            true => Some(live_at_end(path)?),
            false => None,
        };
        Ok(Filter {
            only: only.into_iter().flatten().cloned().collect(),
            sizes: (number("min-size", 0), number("max-size", u64::MAX)),
            thread,
            times_ns: (number("since", 0), number("until", u64::MAX)),
            live,
        })
    }

    /// A block that is wanted because it is live at the end has the size that it has there.
    fn bring_to_the_end(&self, row: &mut Row) {
        if let (Some(live), Some(id)) = (&self.live, row.id) {
            row.size = live.get(&id).copied();
        }
    }

    fn wants(&self, event: &Event, row: &Row) -> bool {
        let size = row.size.or(row.size_before).unwrap_or(0);
        let born = matches!(event.operation, Operation::Allocate { .. });
        (self.only.is_empty() || self.only.iter().any(|name| name == row.name))
            && (self.sizes.0..=self.sizes.1).contains(&size)
            && self.thread.is_none_or(|thread| thread == event.thread)
            && (self.times_ns.0..=self.times_ns.1).contains(&event.time_ns)
            && self
                .live
                .as_ref()
                .is_none_or(|live| born && row.id.is_some_and(|id| live.contains_key(&id)))
    }
}

fn live_at_end(path: &Path) -> Result<HashMap<u64, u64>, Failure> {
    if !path.is_file() {
        return Err(Failure::usage(format!(
            "option --live: the trace is read twice, and {} is no file",
            path.display()
        )));
    }
    let mut live = HashMap::new();
    for event in Trace::open(path).map_err(Failure::tool)? {
        Row::of(&event.map_err(Failure::tool)?, &mut live);
    }
    Ok(live)
}

/// What a record says, as far as it says it.
#[derive(Default)]
struct Row {
    name: &'static str,
    id: Option<u64>,
    size: Option<u64>,
    size_before: Option<u64>,
    alignment: u64,
    zeroed: bool,
    inherited: bool,
    text: Option<usize>,
}

/// A field of CSV: in quotes where it needs them.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

impl Row {
    /// `live`: sizes by id, brought up to date.
    fn of(event: &Event, live: &mut HashMap<u64, u64>) -> Row {
        match event.operation {
            Operation::Allocate {
                id,
                size,
                alignment,
                zeroed,
                inherited,
            } => {
                live.insert(id, size);
                Row {
                    name: "allocate",
                    id: Some(id),
                    size: Some(size),
                    size_before: None,
                    alignment,
                    zeroed,
                    inherited,
                    text: None,
                }
            }
            Operation::Refused { size } => Row {
                name: "refused",
                size: Some(size),
                ..Row::default()
            },
            Operation::Free { id } => Row {
                name: "free",
                id: Some(id),
                size_before: live.remove(&id),
                ..Row::default()
            },
            Operation::Resize { id, size, failed } => Row {
                name: if failed { "resize-refused" } else { "resize" },
                id: Some(id),
                size: Some(size),
                size_before: match failed {
                    true => live.get(&id).copied(),
                    false => live.insert(id, size),
                },
                ..Row::default()
            },
            Operation::Unknown => Row {
                name: "unknown",
                ..Row::default()
            },
            Operation::Mark { text } => Row {
                name: "mark",
                text: Some(text),
                ..Row::default()
            },
            Operation::ScopeBegin { text } => Row {
                name: "scope-begin",
                text: Some(text),
                ..Row::default()
            },
            Operation::ScopeEnd => Row {
                name: "scope-end",
                ..Row::default()
            },
        }
    }

    fn csv(&self, event: &Event, trace: &Trace, scope: &str) -> String {
        let number = |value: Option<u64>| value.map(|v| v.to_string()).unwrap_or_default();
        format!(
            "{:.3},{},{},{},{},{},{},{},{},{},{}",
            event.time_ns as f64 / 1000.0,
            event.thread,
            self.name,
            number(self.id),
            number(self.size),
            number(self.size_before),
            number((self.alignment > 1).then_some(self.alignment)),
            u8::from(self.zeroed),
            u8::from(self.inherited),
            field(scope),
            field(self.text.map(|text| trace.text(text)).unwrap_or("")),
        )
    }
}

/// The event as one line.
fn line(event: &Event, row: &Row, trace: &Trace) -> String {
    let mut text = format!(
        "{:.3} {} {}",
        event.time_ns as f64 / 1000.0,
        event.thread,
        row.name
    );
    for number in [row.id, row.size].into_iter().flatten() {
        text.push_str(&format!(" {number}"));
    }
    if let Some(said) = row.text {
        text.push_str(&format!(" {}", trace.text(said).escape_debug()));
    }
    if row.alignment > 1 {
        text.push_str(&format!(" align={}", row.alignment));
    }
    for (set, word) in [(row.zeroed, " zeroed"), (row.inherited, " inherited")] {
        if set {
            text.push_str(word);
        }
    }
    text
}

fn head(header: &Header) -> String {
    format!(
        "# pid {}, {} records, {} blocks, {} threads, most live {} blocks, {} bytes{}{}{}\n# {}\n",
        header.pid,
        header.record_count,
        header.block_count,
        header.thread_count,
        header.live_count_peak,
        header.live_bytes_peak,
        if header.forked { ", forked" } else { "" },
        if header.ended { ", ended" } else { "" },
        if header.cut.is_some() { ", CUT" } else { "" },
        header.command_line(1000),
    )
}

/// Prints the trace on stdout.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = matches.get_one::<PathBuf>("file").expect("is required");
    let mut trace = Trace::open(path).map_err(Failure::tool)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let stopped = |error: io::Error| Failure::tool(format!("cannot write: {error}"));
    let csv = matches.get_flag("csv");
    let filter = Filter::of(matches, path, trace.header())?;
    match csv {
        true => writeln!(out, "{CSV_HEAD}").map_err(stopped)?,
        false => write!(out, "{}", head(trace.header())).map_err(stopped)?,
    }
    if matches.get_flag("scopes") {
        let table = scopes::table(&mut trace).map_err(Failure::tool)?;
        write!(out, "{table}").map_err(stopped)?;
    } else if !matches.get_flag("head") {
        let mut live = HashMap::new();
        let sought = matches.get_one::<String>("scope");
        let mut scopes = Scopes::seeking(sought.cloned());
        let mut has_scope = false;
        while let Some(event) = trace.next() {
            let event = event.map_err(Failure::tool)?;
            let mut row = Row::of(&event, &mut live);
            filter.bring_to_the_end(&mut row);
            scopes.follow(&event, &trace);
            let is_within = sought.is_none() || scopes.is_within(event.thread);
            has_scope |= is_within;
            if is_within && filter.wants(&event, &row) {
                let text = match csv {
                    true => row.csv(&event, &trace, &scopes.path(event.thread, &trace)),
                    false => line(&event, &row, &trace),
                };
                writeln!(out, "{text}").map_err(stopped)?;
            }
        }
        if let (Some(name), false) = (sought, has_scope) {
            out.flush().map_err(stopped)?;
            return Err(Failure::usage(format!(
                "option --scope: the trace has no scope {}",
                name.escape_debug()
            )));
        }
    }
    out.flush().map_err(stopped)?;
    Ok(0)
}
