// SPDX-License-Identifier: MIT
//! The suite's description, bench/suite.json: which programs are run, how, and what counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mallow_measure::session::Quantity;
use serde::{Deserialize, Serialize};

/// One benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Benchmark {
    /// Its name, unique in the suite.
    pub name: String,
    /// micro, macro, classic or real.
    #[serde(default)]
    pub kind: String,
    /// Program and arguments, relative to the repository.
    pub command: Vec<String>,
    /// Threads it uses.
    #[serde(default = "one")]
    pub threads: u32,
    /// Most megabytes that its blocks hold at once, counted by bench/sizes/record_sizes.c.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_mb: Option<f64>,
    /// Commands to run once before, without any allocator.
    #[serde(default)]
    pub setup: Setup,
    /// What it does, one sentence.
    #[serde(default)]
    pub what: String,
    /// Whose description it follows.
    #[serde(default)]
    pub source: String,
    /// Time limit of one run in seconds.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// If there is a score line that counts instead of elapsed time: is "higher" or "lower" better?
    #[serde(default)]
    pub score: Option<Better>,
    /// Which time counts, if not the score: "wall" (the default), "user" or "cpu".
    #[serde(default)]
    pub time: Option<TimeKind>,
    /// Further environment variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Part of a quick run?
    #[serde(default = "yes")]
    pub quick: bool,
    /// What a quick run runs instead: the same with less work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quick_command: Vec<String>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// Setup commands: one command as a list of words, or a list of such.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setup {
    /// Several commands.
    Many(Vec<Vec<String>>),
    /// One command.
    One(Vec<String>),
    /// Nothing to do.
    #[default]
    None,
}

impl Setup {
    /// All commands.
    pub fn commands(&self) -> Vec<Vec<String>> {
        match self {
            Setup::Many(commands) => commands.iter().filter(|c| !c.is_empty()).cloned().collect(),
            Setup::One(command) if !command.is_empty() => vec![command.clone()],
            _ => Vec::new(),
        }
    }
}

/// Which direction of a score is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// Which time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeKind {
    /// Elapsed.
    Wall,
    /// User CPU.
    User,
    /// User and system CPU.
    Cpu,
}

impl Benchmark {
    /// The quantity that counts as this benchmark's time.
    pub fn quantity(&self) -> Quantity {
        match (self.score, self.time) {
            (Some(_), _) => Quantity::Score,
            (None, Some(TimeKind::User)) => Quantity::User,
            (None, Some(TimeKind::Cpu)) => Quantity::Cpu,
            (None, _) => Quantity::Wall,
        }
    }

    /// A figure of that quantity as a cost: less is better.
    pub fn cost(&self, figure: f64) -> f64 {
        match self.score {
            Some(Better::Higher) => 1.0 / figure,
            _ => figure,
        }
    }
}

/// The suite and the directory its commands are relative to.
#[derive(Debug)]
pub struct Suite {
    /// All benchmarks in the file's order.
    pub benchmarks: Vec<Benchmark>,
    /// The repository: the directory above the file's.
    pub root: PathBuf,
}

impl Suite {
    /// Reads the file; the error names it and what is wrong.
    pub fn read(path: &Path) -> Result<Suite, String> {
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|e| format!("suite '{shown}': {e}"))?;
        let benchmarks = parse(&text).map_err(|e| format!("suite '{shown}': {e}"))?;
        let full = path
            .canonicalize()
            .map_err(|e| format!("suite '{shown}': {e}"))?;
        let root = full
            .ancestors()
            .nth(2)
            .unwrap_or(Path::new("/"))
            .to_path_buf();
        Ok(Suite { benchmarks, root })
    }

    /// The benchmarks with these names (all for none) and kinds; the error names what is unknown.
    pub fn select(
        &self,
        only: &[String],
        kinds: &[String],
        quick: bool,
    ) -> Result<Vec<Benchmark>, String> {
        for name in only {
            if !self.benchmarks.iter().any(|b| b.name == *name) {
                let known: Vec<&str> = self.benchmarks.iter().map(|b| b.name.as_str()).collect();
                return Err(format!(
                    "unknown benchmark '{name}'; known: {}",
                    known.join(", ")
                ));
            }
        }
        for kind in kinds {
            if !self.benchmarks.iter().any(|b| b.kind == *kind) {
                let mut known: Vec<&str> =
                    self.benchmarks.iter().map(|b| b.kind.as_str()).collect();
                known.sort_unstable();
                known.dedup();
                return Err(format!(
                    "no benchmark of kind '{kind}'; there are: {}",
                    known.join(", ")
                ));
            }
        }
        Ok(self
            .benchmarks
            .iter()
            .filter(|b| only.is_empty() || only.contains(&b.name))
            .filter(|b| kinds.is_empty() || kinds.contains(&b.kind))
            .filter(|b| !quick || b.quick || only.contains(&b.name))
            .cloned()
            .map(|mut b| {
                if quick && !b.quick_command.is_empty() {
                    b.command = b.quick_command.clone();
                }
                b
            })
            .collect())
    }
}

fn parse(text: &str) -> Result<Vec<Benchmark>, String> {
    // Rows are read one by one, so that an error can name its row.
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let rows = match &value {
        serde_json::Value::Array(rows) => rows,
        serde_json::Value::Object(object) => match object.get("benchmarks") {
            Some(serde_json::Value::Array(rows)) => rows,
            _ => return Err("no list \"benchmarks\"".into()),
        },
        _ => return Err("neither a list nor an object with a list \"benchmarks\"".into()),
    };
    let mut benchmarks: Vec<Benchmark> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let name = row
            .get("name")
            .and_then(serde_json::Value::as_str)
            .unwrap_or("without a name");
        let benchmark: Benchmark = serde_json::from_value(row.clone())
            .map_err(|e| format!("row {} ({name}): {e}", number + 1))?;
        if benchmark.command.is_empty() {
            return Err(format!("row {} ({name}): the command is empty", number + 1));
        }
        if benchmarks.iter().any(|b| b.name == benchmark.name) {
            return Err(format!(
                "row {}: the name '{name}' is there twice",
                number + 1
            ));
        }
        benchmarks.push(benchmark);
    }
    Ok(benchmarks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"[
        {"name": "pair", "kind": "micro", "command": ["build/bench/pair", "64"], "threads": 1,
         "setup": [], "what": "x", "source": "y"},
        {"name": "redis", "kind": "real", "command": ["sh", "-c", "true"], "threads": 2,
         "setup": [["true"], ["sh", "-c", ":"]], "score": "higher", "timeout": 20.5, "quick": false,
         "quick_command": ["sh", "-c", "false"]},
        {"name": "one", "kind": "real", "command": ["x"], "setup": ["sh", "-c", ":"], "time": "user"}
    ]"#;

    fn suite() -> Suite {
        Suite {
            benchmarks: parse(TEXT).unwrap(),
            root: PathBuf::from("/"),
        }
    }

    #[test]
    fn rows_have_their_defaults() {
        let rows = suite().benchmarks;
        assert_eq!(rows[0].setup.commands(), Vec::<Vec<String>>::new());
        assert_eq!(rows[1].setup.commands().len(), 2);
        assert_eq!(rows[2].setup.commands(), [["sh", "-c", ":"]]);
        assert_eq!(
            (rows[0].quantity(), rows[0].threads, rows[0].quick),
            (Quantity::Wall, 1, true)
        );
        assert_eq!(
            (rows[1].quantity(), rows[1].timeout),
            (Quantity::Score, Some(20.5))
        );
        assert_eq!(rows[2].quantity(), Quantity::User);
    }

    #[test]
    fn a_higher_score_is_a_lower_cost() {
        let rows = suite().benchmarks;
        assert!(rows[1].cost(200.0) < rows[1].cost(100.0));
        assert!(rows[0].cost(200.0) > rows[0].cost(100.0));
    }

    #[test]
    fn a_quick_run_takes_the_shorter_command_where_there_is_one() {
        let suite = suite();
        let command = |name: &str, quick| {
            let chosen = suite.select(&[name.to_string()], &[], quick).unwrap();
            chosen[0].command.join(" ")
        };
        assert_eq!(command("redis", true), "sh -c false");
        assert_eq!(command("redis", false), "sh -c true");
        assert_eq!(command("pair", true), "build/bench/pair 64");
    }

    #[test]
    fn selection_names_what_is_unknown() {
        let suite = suite();
        let names = |only: &[&str], kinds: &[&str], quick| {
            let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            let chosen = suite.select(&own(only), &own(kinds), quick);
            chosen.map(|rows| rows.into_iter().map(|b| b.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[], &[], false).unwrap(), ["pair", "redis", "one"]);
        assert_eq!(names(&[], &["real"], true).unwrap(), ["one"]);
        assert_eq!(names(&["redis"], &[], true).unwrap(), ["redis"]);
        assert!(names(&["pairs"], &[], false)
            .unwrap_err()
            .contains("'pairs'; known: pair, redis"));
        assert!(names(&[], &["big"], false)
            .unwrap_err()
            .contains("'big'; there are: micro, real"));
    }

    /// At least 24 benchmarks, 10 of them real programs, in a quick run of the suite in the tree; and
    /// a row that stands for many threads has its partner with two.
    #[test]
    fn the_quick_suite_is_large_enough() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/suite.json");
        let quick = Suite::read(&path).unwrap().select(&[], &[], true).unwrap();
        let real = quick.iter().filter(|b| b.kind == "real").count();
        assert!(
            quick.len() >= 24 && real >= 10,
            "{} and {real}",
            quick.len()
        );
        for row in quick.iter().filter(|b| b.kind == "macro") {
            if let Some(base) = row.name.strip_suffix("-64") {
                let two = format!("{base}-2");
                assert!(quick.iter().any(|b| b.name == two), "{two}");
            }
        }
    }

    #[test]
    fn faults_name_the_row() {
        assert!(parse(r#"[{"name": "a"}]"#)
            .unwrap_err()
            .contains("row 1 (a)"));
        assert!(parse(r#"[{"name": "a", "command": []}]"#)
            .unwrap_err()
            .contains("empty"));
        let twice =
            r#"{"benchmarks": [{"name": "a", "command": ["x"]}, {"name": "a", "command": ["x"]}]}"#;
        assert!(parse(twice).unwrap_err().contains("twice"));
        assert!(parse("3").is_err());
    }
}
