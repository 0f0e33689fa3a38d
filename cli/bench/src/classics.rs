// SPDX-License-Identifier: MIT
//! `mallow-bench classics`: the published tests of other allocators, run under mallow and its peers, one
//! table each, with what their authors published in the first rows.
//!
//! The programs (bench/classics) print lines `figure NAME VALUE UNIT`; the tables are made of these.

use std::collections::BTreeMap;
use std::path::Path;

use mallow_measure::allocators::Allocator;
use mallow_measure::machine::Machine;
use mallow_measure::progress::Progress;
use mallow_measure::session::{self, Job};
use mallow_measure::stats;
use mallow_measure::table::Table;
use serde::{Deserialize, Serialize};

/// The value of `format` in files of this form.
const FORMAT: &str = "mallow-classics-1";

/// The programs, in the order of the tables.
pub const PROGRAMS: [&str; 4] = ["unalloc_test", "unalloc_fill", "cpe357", "nedmalloc_pairs"];

/// One allocator's figures from one program: each over the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Which.
    allocator: Allocator,
    /// By name.
    figures: BTreeMap<String, Vec<f64>>,
    /// Why it has none, or fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A result file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Classics {
    /// Always [`FORMAT`].
    format: String,
    /// When it began, UTC.
    date: String,
    /// Commit of the tree, with `+` if changed.
    commit: String,
    /// Where it ran.
    machine: Machine,
    /// Rounds of each program under each allocator.
    rounds: usize,
    /// Allocators by program.
    programs: BTreeMap<String, Vec<Subject>>,
}

impl Subject {
    fn figure(&self, name: &str) -> Option<f64> {
        stats::median(self.figures.get(name)?)
    }
}

/// The lines `figure NAME VALUE UNIT` of a program's output.
fn figures(text: &str) -> Vec<(String, f64)> {
    let figure = |line: &str| {
        let mut words = line.strip_prefix("figure ")?.split_whitespace();
        let name = words.next()?.to_string();
        Some((name, words.next()?.parse().ok()?))
    };
    text.lines().filter_map(figure).collect()
}

/// Runs all programs under all allocators, interleaved.
pub fn run(
    directory: &Path,
    allocators: &[Allocator],
    rounds: usize,
    head: (String, String, Machine),
    progress: &Progress,
) -> Result<Classics, String> {
    let mut programs = BTreeMap::new();
    for name in PROGRAMS {
        let job = Job {
            command: vec![directory.join(name).display().to_string()],
            rounds,
            timeout_s: 300.0,
            read_output: true,
            keep_output: true,
            verify: true,
            ..Job::default()
        };
        let all = session::run_interleaved(&job, allocators, &mut |e| progress.on(name, &e))
            .map_err(|e| e.to_string())?;
        let subjects = all.into_iter().map(|series| {
            let mut subject = Subject {
                allocator: series.allocator,
                figures: BTreeMap::new(),
                error: series.error,
            };
            for run in &series.runs {
                for (name, value) in figures(run.output.as_deref().unwrap_or_default()) {
                    subject.figures.entry(name).or_default().push(value);
                }
                let ending = run.measured.ending.describe();
                if ending != "ok" {
                    subject.error.get_or_insert(ending);
                }
            }
            subject
        });
        programs.insert(name.to_string(), subjects.collect());
    }
    let (date, commit, machine) = head;
    Ok(Classics {
        format: FORMAT.into(),
        date,
        commit,
        machine,
        rounds,
        programs,
    })
}

/// A figure in three digits or so, `-` for none.
fn cell(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(v) if v.abs() >= 99.95 => format!("{v:.0}"),
        Some(v) => format!("{v:.1}"),
    }
}

fn times(value: Option<f64>, base: Option<f64>) -> String {
    let ratio = value.zip(base).and_then(|(v, b)| stats::ratio(v, b));
    ratio.map_or("-".into(), |r| format!("{r:.2}"))
}

fn row(table: &mut Table, label: &str, cells: &[&str]) {
    table.row(std::iter::once(label).chain(cells.iter().copied()));
}

/// All tables.
pub fn render(classics: &Classics) -> String {
    let mut text = format!(
        "Published tests, commit {}, {}; {}, {}\n{} run(s) of each program and allocator, interleaved, medians. \
         The published figures are from other machines and years.\n",
        classics.commit, classics.date, classics.machine.cpu, classics.machine.kernel, classics.rounds
    );
    let none = Vec::new();
    let of = |name: &str| classics.programs.get(name).unwrap_or(&none).as_slice();
    text.push_str(&unalloc_test(of("unalloc_test")));
    text.push_str(&unalloc_fill(of("unalloc_fill")));
    text.push_str(&cpe357(of("cpe357")));
    text.push_str(&nedmalloc_pairs(of("nedmalloc_pairs")));
    for (program, subjects) in &classics.programs {
        for subject in subjects {
            if let Some(error) = &subject.error {
                let key = &subject.allocator.key;
                text.push_str(&format!("PROBLEM: {program}: {key}: {error}\n"));
            }
        }
    }
    text
}

fn unalloc_test(subjects: &[Subject]) -> String {
    let mut table = Table::new([
        "",
        "malloc ns",
        "scheme ns",
        "scheme faster x",
        "used %",
        "scheme used %",
        "realloc ns",
        "scheme ns",
        "scheme faster x",
    ]);
    row(
        &mut table,
        "published, Visual C++ 6",
        &["-", "-", "120", "-", "75", "-", "-", "45 to 300"],
    );
    row(
        &mut table,
        "published, MinGW",
        &["-", "-", "21", "-", "75", "-", "-", "45 to 300"],
    );
    for subject in subjects {
        let get = |name| subject.figure(name);
        let cells = [
            cell(get("malloc")),
            cell(get("scheme_malloc")),
            times(get("malloc"), get("scheme_malloc")),
            cell(get("malloc_used")),
            cell(get("scheme_used")),
            cell(get("realloc")),
            cell(get("scheme_realloc")),
            times(get("realloc"), get("scheme_realloc")),
        ];
        table.row(std::iter::once(subject.allocator.key.clone()).chain(cells));
    }
    format!(
        "\n1. unalloc's published test: a random one of 1,024 places freed and allocated anew, sizes to 64 KiB\n   \
         (article \"Fast by tens malloc() and free() at 25 % memory cost\"). The scheme is the article's: a list\n   \
         per power of two, laid over the malloc of the row, which never gives memory back.\n{}",
        table.render()
    )
}

fn unalloc_fill(subjects: &[Subject]) -> String {
    const PUBLISHED: [(u32, &str, &str); 4] = [
        (1, "10", "75"),
        (2, "20", "88"),
        (4, "40", "93"),
        (8, "80", "97"),
    ];
    let mut table = Table::new([
        "",
        "published lists",
        "published used %",
        "classes",
        "expected %",
        "used %",
        "replace ns",
        "grows that move %",
    ]);
    // The scheme's own rows are taken where its blocks come from the system's malloc.
    let base = subjects
        .iter()
        .find(|s| s.allocator.key == "glibc")
        .or(subjects.first());
    if let Some(base) = base {
        for (steps, lists, used) in PUBLISHED {
            let get = |what: &str| cell(base.figure(&format!("scheme{steps}_{what}")));
            let classes = base.figure(&format!("scheme{steps}_classes"));
            let cells = [
                lists.to_string(),
                used.into(),
                classes.map_or("-".into(), |c| format!("{c:.0}")),
                get("expected"),
                get("used"),
                get("replace"),
                get("moves"),
            ];
            let label = format!("scheme, {steps} a doubling");
            table.row(std::iter::once(label).chain(cells));
        }
    }
    for subject in subjects {
        let get = |name| cell(subject.figure(name));
        let [used, replace, moves] = ["malloc_used", "malloc_replace", "malloc_moves"].map(get);
        let cells = ["-", "-", "-", "-", &used, &replace, &moves];
        row(&mut table, &subject.allocator.key, &cells);
    }
    format!(
        "\n2. unalloc's fill table: classes from 32 B to 8 MiB; used = asked for, of what was given, all doublings\n   \
         weighing the same; replace = one of 1,024 places freed and allocated anew, to 64 KiB; a block grows by an\n   \
         eighth at a time from 32 B to 8 MiB.\n{}",
        table.render()
    )
}

fn cpe357(subjects: &[Subject]) -> String {
    let mut table = Table::new([
        "",
        "all calls us",
        "fastest us",
        "slowest call us",
        "hole reused %",
        "full KiB",
        "kept KiB",
    ]);
    row(
        &mut table,
        "published, 1st of 30",
        &["160", "-", "-", "-", "-", "-"],
    );
    row(
        &mut table,
        "published, 2nd of 30",
        &["169", "-", "every call O(1)", "expected", "-", "0"],
    );
    row(
        &mut table,
        "published, before",
        &["about 200", "-", "-", "-", "-", "-"],
    );
    for subject in subjects {
        let names = [
            "cold_process",
            "fastest",
            "slowest_call",
            "hole_reused",
            "full",
            "kept",
        ];
        let cells = names.map(|name| cell(subject.figure(name)));
        table.row(std::iter::once(subject.allocator.key.clone()).chain(cells));
    }
    format!(
        "\n3. CPE357's class benchmark, each run in a cold process: 100 x malloc(1000), free of the first 90, a[95]\n   \
         freed and allocated anew (does it get its old place?), free of the rest. full, kept: anonymous memory more\n   \
         than before, with all blocks written, and after the last free and malloc_trim(0) (where there is one).\n{}",
        table.render()
    )
}

fn nedmalloc_pairs(subjects: &[Subject]) -> String {
    let mut table = Table::new([
        "",
        "1 thread",
        "2 threads",
        "5 threads",
        "x glibc, 1 thread",
    ]);
    row(
        &mut table,
        "published, Athlon 64, 2.2 GHz",
        &["7.3 to 8.2", "-", "-", "up to 2 (ptmalloc2)"],
    );
    let glibc = subjects.iter().find(|s| s.allocator.key == "glibc");
    let base = glibc.and_then(|s| s.figure("threads_1"));
    for subject in subjects {
        let threads = ["threads_1", "threads_2", "threads_5"];
        let cells = threads.map(|name| cell(subject.figure(name)));
        let ratio = times(subject.figure("threads_1"), base);
        table.row(
            std::iter::once(subject.allocator.key.clone())
                .chain(cells)
                .chain([ratio]),
        );
    }
    format!(
        "\n4. nedmalloc's figure: million pairs of malloc and free a second, random sizes below 8 KiB (its home page;\n   \
         there also 4 to 10 times FreeBSD 6 and 125 times Windows XP, which are not here to compare with).\n{}",
        table.render()
    )
}

/// Did mallow fail in one of them?
pub fn mallow_failed(classics: &Classics) -> bool {
    let all = classics.programs.values().flatten();
    all.filter(|s| s.allocator.key == "mallow")
        .any(|s| s.error.is_some())
}

/// Writes the result file.
pub fn write(classics: &Classics, path: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("cannot write '{}': {e}", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    let text = serde_json::to_string_pretty(classics).map_err(|e| e.to_string())?;
    std::fs::write(path, text + "\n").map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(key: &str, values: &[(&str, &[f64])]) -> Subject {
        Subject {
            allocator: Allocator {
                key: key.into(),
                title: key.into(),
                version: String::new(),
                preload: Vec::new(),
                hardened: false,
            },
            figures: values
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_vec()))
                .collect(),
            error: None,
        }
    }

    #[test]
    fn figure_lines_are_read_and_others_are_not() {
        let text = "x\nfigure malloc      35.5 ns\nfigure moves 1e2\nscore 3 ns\nfigure bad one\n";
        assert_eq!(
            figures(text),
            [("malloc".to_string(), 35.5), ("moves".to_string(), 100.0)]
        );
    }

    #[test]
    fn published_and_measured_figures_stand_in_one_table() {
        let subjects = [
            subject("mallow", &[("threads_1", &[30.0, 10.0, 20.0])]),
            subject("glibc", &[("threads_1", &[10.0])]),
        ];
        let text = nedmalloc_pairs(&subjects);
        let mallow = text.lines().find(|l| l.starts_with("mallow")).unwrap();
        let words: Vec<&str> = mallow.split_whitespace().collect();
        assert_eq!(words, ["mallow", "20.0", "-", "-", "2.00"]);
        assert!(text.contains("7.3 to 8.2"));
    }

    #[test]
    fn the_schemes_rows_come_from_glibc_and_each_allocator_has_its_own() {
        let of = |used| [("scheme8_classes", &[145.0][..]), ("malloc_used", used)];
        let subjects = [
            subject("mallow", &of(&[96.5])),
            subject("glibc", &of(&[98.25])),
        ];
        let text = unalloc_fill(&subjects);
        let eight = text.lines().find(|l| l.starts_with("scheme, 8")).unwrap();
        assert!(
            eight.contains("80") && eight.contains("97") && eight.contains("145"),
            "{eight}"
        );
        assert!(text
            .lines()
            .any(|l| l.starts_with("mallow") && l.contains("96.5")));
        assert!(text
            .lines()
            .any(|l| l.starts_with("glibc") && l.contains("98.2")));
    }

    #[test]
    fn a_program_that_fails_is_named() {
        let mut broken = subject("mallow", &[]);
        broken.error = Some("killed by signal 11".into());
        let classics = Classics {
            format: FORMAT.into(),
            date: String::new(),
            commit: String::new(),
            machine: Machine::default(),
            rounds: 1,
            programs: [("cpe357".to_string(), vec![broken])].into(),
        };
        assert!(render(&classics).contains("PROBLEM: cpe357: mallow: killed"));
        assert!(mallow_failed(&classics));
    }
}
