// SPDX-License-Identifier: MIT
//! A result file: everything a later reader needs to judge the figures, and all raw runs.

use std::fs;
use std::path::Path;

use mallow_measure::machine::Machine;
use mallow_measure::output::printable;
use mallow_measure::session::Series;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::suite::Benchmark;
use crate::{dispatch, latency, long_run, pages};

/// The value of `format` in files of this form.
pub const FORMAT: &str = "mallow-bench-1";

/// The forms of result files, and how each is shown.
const FORMATS: [(&str, &str); 5] = [
    (FORMAT, "report"),
    (pages::FORMAT, "pages --show"),
    (dispatch::FORMAT, "dispatch --show"),
    (long_run::FORMAT, "long-run --show"),
    (latency::FORMAT, "latency --show"),
];

/// Reads a result file of one form; the error names it, and the command for one of another form.
pub fn read_as<T: DeserializeOwned>(path: &Path, format: &str) -> Result<T, String> {
    let shown = path.display();
    let fail = |why: String| format!("results '{shown}': {why}");
    let text = fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
    let mut value: Value = serde_json::from_str(&text).map_err(|e| fail(e.to_string()))?;
    make_printable(&mut value);
    let found = value["format"].as_str().unwrap_or_default();
    if found == format {
        return serde_json::from_value(value).map_err(|e| fail(e.to_string()));
    }
    let why = match FORMATS.iter().find(|(other, _)| *other == found) {
        Some((_, command)) => format!("of another experiment: mallow-bench {command} {shown}"),
        None => format!("format '{found}' is not {format}"),
    };
    Err(fail(why))
}

/// What a file says goes to terminals and into pictures, whoever wrote it.
fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => fields.values_mut().for_each(make_printable),
        _ => {}
    }
}

/// One session of the suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Always [`FORMAT`].
    pub format: String,
    /// When it began, UTC.
    pub date: String,
    /// Commit of the tree, with `+` if changed.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// Measured runs of each allocator in each benchmark.
    pub rounds: usize,
    /// Runs before these.
    pub warmup: usize,
    /// Was it a quick run?
    pub quick: bool,
    /// The benchmarks that ended, in order.
    pub benchmarks: Vec<Outcome>,
}

/// One benchmark's runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Its description.
    #[serde(flatten)]
    pub benchmark: Benchmark,
    /// Why it could not be run at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Every allocator's runs, mallow first if it was there.
    pub series: Vec<Series>,
}

impl Results {
    /// Reads a file; the error names it.
    pub fn read(path: &Path) -> Result<Results, String> {
        read_as(path, FORMAT)
    }

    /// Writes the file whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let fail = |e: String| format!("cannot write '{}': {e}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| fail(e.to_string()))?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|e| fail(e.to_string()))?;
        let partial = path.with_extension("json.partial");
        fs::write(&partial, text + "\n").map_err(|e| fail(e.to_string()))?;
        fs::rename(&partial, path).map_err(|e| fail(e.to_string()))
    }
}
