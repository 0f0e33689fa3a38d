// SPDX-License-Identifier: MIT
//! `mallow trace`: a trace as text, a line a record.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::trace::{Event, Operation, Trace};
use crate::Failure;

const FORM: &str = "\
A line a record: microseconds, thread, then one of
  allocate ID SIZE [align=N] [zeroed] [inherited]     refused SIZE
  free ID     resize ID SIZE     resize-refused ID SIZE     unknown";

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
                .action(ArgAction::SetTrue),
        )
}

/// The event as one line.
fn line(event: &Event) -> String {
    let what = match event.operation {
        Operation::Allocate {
            id,
            size,
            alignment,
            zeroed,
            inherited,
        } => {
            let mut text = format!("allocate {id} {size}");
            if alignment > 1 {
                text.push_str(&format!(" align={alignment}"));
            }
            for (set, word) in [(zeroed, " zeroed"), (inherited, " inherited")] {
                if set {
                    text.push_str(word);
                }
            }
            text
        }
        Operation::Refused { size } => format!("refused {size}"),
        Operation::Free { id } => format!("free {id}"),
        Operation::Resize { id, size, failed } => {
            format!("resize{} {id} {size}", if failed { "-refused" } else { "" })
        }
        Operation::Unknown => "unknown".into(),
    };
    let micros = event.time_ns as f64 / 1000.0;
    format!("{micros:.3} {} {what}", event.thread)
}

/// Prints the trace on stdout.
pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = matches.get_one::<PathBuf>("file").expect("is required");
    let trace = Trace::open(path).map_err(Failure::tool)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let stopped = |error: io::Error| Failure::tool(format!("cannot write: {error}"));
    let header = trace.header().clone();
    writeln!(
        out,
        "# pid {}, {} records, {} blocks, {} threads, most live {} blocks, {} bytes{}{}{}\n# {}",
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
    .map_err(stopped)?;
    if !matches.get_flag("head") {
        for event in trace {
            let event = event.map_err(Failure::tool)?;
            writeln!(out, "{}", line(&event)).map_err(stopped)?;
        }
    }
    out.flush().map_err(stopped)?;
    Ok(0)
}
