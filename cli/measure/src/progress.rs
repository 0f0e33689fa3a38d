// SPDX-License-Identifier: MIT
//! Progress on standard error: a bar on a terminal, plain lines elsewhere, nothing if asked for quiet.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::session::Event;
use crate::table;

/// Shows where a session is.
pub struct Progress {
    style: Style,
}

enum Style {
    Quiet,
    Lines,
    Bar(ProgressBar),
}

impl Progress {
    /// Chooses the form by what standard error is.
    pub fn new(quiet: bool) -> Progress {
        let style = if quiet {
            Style::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(1);
            let template = "{spinner} [{bar:30}] {pos}/{len} {elapsed}<{eta} {wide_msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.enable_steady_tick(Duration::from_secs(1));
            Style::Bar(bar)
        } else {
            Style::Lines
        };
        Progress { style }
    }

    /// One line that stays.
    pub fn say(&self, text: &str) {
        match &self.style {
            Style::Quiet => {}
            Style::Lines => eprintln!("{text}"),
            Style::Bar(bar) => bar.suspend(|| eprintln!("{text}")),
        }
    }

    /// Shows an event of a session; `label` names the command or benchmark.
    pub fn on(&self, label: &str, event: &Event) {
        match event {
            Event::Begin {
                key,
                done,
                total,
                warmup,
            } => {
                if let Style::Bar(bar) = &self.style {
                    bar.set_length(*total as u64);
                    bar.set_position(*done as u64);
                    let kind = if *warmup { " (warm-up)" } else { "" };
                    bar.set_message(format!("{label} {key}{kind}"));
                } else if matches!(self.style, Style::Lines) {
                    let kind = if *warmup { " warm-up" } else { "" };
                    eprint!("[{}/{total}] {label} {key}{kind}: ", done + 1);
                }
            }
            Event::End { run, .. } => {
                if matches!(self.style, Style::Lines) {
                    let m = &run.measured;
                    let peak = table::mebibytes(m.peak_rss_bytes as f64);
                    let ending = match m.ending.describe() {
                        text if text == "ok" => String::new(),
                        text => format!(", {text}"),
                    };
                    eprintln!("{} s, {peak} MiB{ending}", table::seconds(m.wall_s));
                }
            }
            Event::Dropped { key, reason } => {
                self.say(&format!("{label} {key}: left out: {reason}"))
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Style::Bar(bar) = &self.style {
            bar.finish_and_clear();
        }
    }
}
