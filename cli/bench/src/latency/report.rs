// SPDX-License-Identifier: MIT
//! The tables of the latency run, the published figures among them, and the goals they are held against.

use mallow_measure::stats;
use mallow_measure::table::Table;

use super::data::{Figures, Latency, Row, Startup, Subject, BOUNDS, QUANTILES};
use super::published::{Published, OVERHEAD, PUBLISHED, STARTUP, THROUGHPUT};

/// The hot path's goal: P99.9 at most twice P50 at every size.
const FLATNESS_GOAL: f64 = 2.0;
/// Modes in which mallow is to have the lowest P99.99 and the lowest excess at P99.999.
const LOWEST: [&str; 7] = [
    "hot-64",
    "call-64",
    "churn-64",
    "churn-1024",
    "mixed",
    "remote",
    "threads",
];
const P9999: usize = 4;
const P99999: usize = 5;

/// A time in ns, in three digits or so.
fn time(ns: f64) -> String {
    match ns {
        v if v.abs() < 9.995 => format!("{v:.2}"),
        v if v.abs() < 99.95 => format!("{v:.1}"),
        v if v.abs() < 999.5 => format!("{v:.0}"),
        v if v.abs() < 99_950.0 => format!("{:.1}us", v / 1e3),
        v if v.abs() < 999_500.0 => format!("{:.0}us", v / 1e3),
        v => format!("{:.2}ms", v / 1e6),
    }
}

/// Parts in a million.
fn ppm(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if v < 9.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn cell(value: Option<f64>, form: impl Fn(f64) -> String) -> String {
    value.map_or("-".into(), form)
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

/// The columns of a mode's table after the first.
fn headings() -> Vec<&'static str> {
    let mut all = vec!["mean"];
    all.extend(QUANTILES);
    all.extend(["max", "/P50"]);
    all.extend(BOUNDS);
    all.extend(["drift", "excess"]);
    all
}

fn figures(row: &Row, excess: Option<f64>) -> Vec<String> {
    let mut cells = vec![cell(row.median(|f| Some(f.mean)), time)];
    cells.extend((0..QUANTILES.len()).map(|at| cell(row.quantile(at), time)));
    cells.push(cell(row.median(|f| Some(f.max)), time));
    cells.push(cell(row.flatness(), two));
    for at in 0..BOUNDS.len() {
        // Several calls together say nothing about the length of one.
        let single = (row.unit == 1).then_some(());
        let value = single.and_then(|()| row.median(|f| f.ppm.get(at).copied()));
        cells.push(cell(value, ppm));
    }
    cells.push(cell(row.median(|f| Some(f.drift)), two));
    cells.push(cell(excess, time));
    cells
}

fn published_cells(published: &Published) -> Vec<String> {
    let find = |heading: &&str| {
        let found = published.cells.iter().find(|(name, _)| name == heading);
        found.map_or("-".to_string(), |(_, value)| (*value).to_string())
    };
    headings().iter().map(find).collect()
}

/// The floors of all allocators taken together, as one row.
fn floor_row(subjects: &[&Subject], mode: &str) -> Option<Row> {
    let mut floors = subjects.iter().filter_map(|s| s.floor(mode));
    let mut all = floors.next()?.clone();
    all.rounds.extend(floors.flat_map(|row| row.rounds.clone()));
    Some(all)
}

fn mode_table(subjects: &[&Subject], mode: &str) -> String {
    let head = std::iter::once(mode).chain(headings());
    let mut table = Table::new(head);
    if let Some(floor) = floor_row(subjects, mode) {
        table.row(std::iter::once("(floor)".to_string()).chain(figures(&floor, None)));
    }
    for subject in subjects {
        let Some(row) = subject.own(mode) else {
            continue;
        };
        let cells = figures(row, subject.excess(mode, P99999));
        table.row(std::iter::once(subject.allocator.key.clone()).chain(cells));
    }
    for published in PUBLISHED.iter().filter(|p| p.mode == mode) {
        let label = format!("published: {}", published.who);
        table.row(std::iter::once(label).chain(published_cells(published)));
    }
    table.render()
}

/// A table with a column for each allocator, and a row for each of `rows`.
fn by_allocator<T>(
    subjects: &[&Subject],
    title: &str,
    rows: &[T],
    label: impl Fn(&T) -> String,
    figure: impl Fn(&Subject, &T) -> String,
) -> String {
    let keys = subjects.iter().map(|s| s.allocator.key.clone());
    let mut table = Table::new(std::iter::once(title.to_string()).chain(keys));
    for row in rows {
        let cells: Vec<String> = subjects.iter().map(|s| figure(s, row)).collect();
        if cells.iter().any(|cell| cell != "-") {
            table.row(std::iter::once(label(row)).chain(cells));
        }
    }
    table.render()
}

fn hot_sizes(subjects: &[&Subject]) -> Vec<f64> {
    let rows = subjects.iter().flat_map(|s| &s.rows);
    let mut sizes: Vec<f64> = rows
        .filter(|row| row.mode.starts_with("hot-"))
        .map(|row| row.size)
        .collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    sizes
}

fn hot_tables(subjects: &[&Subject]) -> String {
    let sizes = hot_sizes(subjects);
    if sizes.is_empty() {
        return String::new();
    }
    let own = |s: &Subject, size: &f64, value: &dyn Fn(&Row) -> Option<f64>| {
        s.own(&format!("hot-{size}")).and_then(value)
    };
    let label = |size: &f64| format!("{size} B");
    let median = by_allocator(subjects, "P50, ns a pair", &sizes, label, |s, size| {
        cell(own(s, size, &|row| row.quantile(0)), time)
    });
    let tail = by_allocator(subjects, "P99.9, ns a pair", &sizes, label, |s, size| {
        cell(own(s, size, &|row| row.quantile(3)), time)
    });
    let flat = by_allocator(subjects, "P99.9 / P50", &sizes, label, |s, size| {
        cell(own(s, size, &Row::flatness), two)
    });
    let rate = |size: &f64| {
        let published = THROUGHPUT.iter().find(|(of, _)| of == size);
        let said = published.map_or(String::new(), |(_, value)| format!(", PMAD: {value}"));
        format!("{size} B{said}")
    };
    let speed = by_allocator(
        subjects,
        "million pairs a second",
        &sizes,
        rate,
        |s, size| {
            let mean = own(s, size, &|row| row.median(|f| Some(f.mean)));
            cell(mean, |ns| format!("{:.0}", 1e3 / ns))
        },
    );
    format!(
        "\nHot path: one block taken and given back at once, 32 pairs timed together\n{median}\n{tail}\n{flat}\n\
         {speed}"
    )
}

/// The cost of a malloc and a free, together, after each order.
fn order_table(subjects: &[&Subject]) -> String {
    let pair = |s: &Subject, mode: &str| -> Option<f64> {
        let mean = |call| s.row(mode, "malloc", call)?.median(|f| Some(f.mean));
        Some(mean("malloc")? + mean("free")?)
    };
    let orders = ["order-lifo", "order-fifo", "order-random"];
    if !subjects.iter().any(|s| pair(s, orders[2]).is_some()) {
        return String::new();
    }
    let first = by_allocator(
        subjects,
        "ns, malloc + free",
        &orders,
        |mode| (*mode).to_string(),
        |s, mode| cell(pair(s, mode), time),
    );
    let second = by_allocator(
        subjects,
        "random / LIFO",
        &[()],
        |()| "1.00 = the order does not matter".into(),
        |s, ()| {
            let ratio = pair(s, orders[2]).zip(pair(s, orders[0]));
            cell(ratio.and_then(|(v, base)| stats::ratio(v, base)), two)
        },
    );
    format!("\nFree order: blocks of 64 B taken, given back in an order, and taken again\n{first}\n{second}")
}

fn startup_table(subjects: &[&Subject]) -> String {
    if subjects.iter().all(|s| s.startup.is_empty()) {
        return String::new();
    }
    let mut table = Table::new([
        "start-up",
        "main after",
        "first malloc",
        "1 M x 64 B",
        "P99.99 of these",
        "max",
    ]);
    let median = |s: &Subject, value: fn(&Startup) -> f64| {
        let values: Vec<f64> = s.startup.iter().map(value).collect();
        stats::median(&values)
    };
    for s in subjects {
        let cells = [
            cell(median(s, |s| s.ready_us), |us| format!("{us:.0}us")),
            cell(median(s, |s| s.first_ns), time),
            cell(median(s, |s| s.fill_ms), |ms| format!("{ms:.1}ms")),
            cell(median(s, |s| s.fill_p9999_ns), time),
            cell(median(s, |s| s.fill_max_ns), time),
        ];
        table.row(std::iter::once(s.allocator.key.clone()).chain(cells));
    }
    for (who, what) in STARTUP {
        let label = format!("published: {who}");
        table.row([label.as_str(), "-", "-", what, "-", "-"]);
    }
    format!(
        "\nStart-up: a fresh process (main after: exec, loader and the allocator's own start)\n{}",
        table.render()
    )
}

fn memory_table(subjects: &[&Subject]) -> String {
    let all = subjects.iter().flat_map(|s| &s.memory);
    let mut sizes: Vec<f64> = all.map(|m| m.size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    if sizes.is_empty() {
        return String::new();
    }
    let cells = |s: &Subject, size: &f64| {
        let of = |value: fn(&super::data::Memory) -> f64| {
            let rows = s.memory.iter().filter(|m| m.size == *size);
            stats::median(&rows.map(value).collect::<Vec<f64>>())
        };
        let (over, kept) = (of(|m| m.overhead_percent), of(|m| m.kept_percent));
        match (over, kept) {
            (Some(over), Some(kept)) => format!("{over:.1} ({kept:.0})"),
            _ => "-".into(),
        }
    };
    let label = |size: &f64| {
        let published = OVERHEAD.iter().find(|(of, _)| of == size);
        let said = published.map_or(String::new(), |(_, value)| format!(", PMAD: {value}"));
        format!("{size} B{said}")
    };
    let table = by_allocator(subjects, "block", &sizes, label, cells);
    format!(
        "\nMemory: RSS over what was asked for, in percent (in brackets: RSS at once after all was freed)\n{table}"
    )
}

fn spread(row: Option<&Row>, at: usize) -> String {
    let values: Option<Vec<f64>> =
        row.and_then(|row| row.rounds.iter().map(|f| f.quantile(at)).collect());
    match values.as_deref() {
        Some(values @ [_, _, ..]) => {
            let (low, high) = range(values);
            format!("{}..{}", time(low), time(high))
        }
        _ => "-".into(),
    }
}

/// The least and the largest of the rounds: what a difference has to be larger than.
fn spread_tables(latency: &Latency, subjects: &[&Subject]) -> String {
    let modes = latency.modes();
    let shown: Vec<&String> = modes
        .iter()
        .filter(|mode| {
            let sized = mode.starts_with("hot-") || mode.starts_with("call-");
            !sized || mode.ends_with("-64")
        })
        .collect();
    if latency.rounds < 2 {
        return String::new();
    }
    let table = |at: usize| {
        let title = format!("{}, rounds", QUANTILES[at]);
        let label = |mode: &&String| (*mode).clone();
        by_allocator(subjects, &title, &shown, label, |s, mode| {
            spread(s.own(mode), at)
        })
    };
    let floors = by_allocator(
        subjects,
        "floor's P99.999, rounds",
        &shown,
        |mode| (*mode).clone(),
        |s, mode| spread(s.floor(mode), P99999),
    );
    format!(
        "\nLeast and largest of {} rounds\n{}\n{}\n{floors}",
        latency.rounds,
        table(P9999),
        table(P99999)
    )
}

/// The least and the largest of the rounds.
fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| {
        (low.min(*v), high.max(*v))
    })
}

/// Is mallow the lowest? In words, with the figure and the best other's; `value` is of one round.
fn lowest(
    subjects: &[&Subject],
    mode: &str,
    what: &str,
    value: impl Fn(&Figures) -> Option<f64>,
) -> Option<String> {
    let of = |s: &&Subject| {
        let rounds: Option<Vec<f64>> = s.own(mode)?.rounds.iter().map(&value).collect();
        let rounds = rounds?;
        Some((
            s.allocator.key.clone(),
            stats::median(&rounds)?,
            range(&rounds),
        ))
    };
    let ours = subjects.iter().find(|s| s.allocator.key == "mallow");
    let (_, ours, our_range) = ours.and_then(of)?;
    let general = subjects
        .iter()
        .filter(|s| s.allocator.key != "mallow" && !s.allocator.hardened);
    let (key, best, range) = general.filter_map(of).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let verdict = match ours.total_cmp(&best) {
        std::cmp::Ordering::Less => "lowest",
        std::cmp::Ordering::Equal => "level",
        std::cmp::Ordering::Greater => "BEHIND",
    };
    // One round alone has no range.
    let ranges = our_range.0 < our_range.1 || range.0 < range.1;
    let overlap = ranges && our_range.0 <= range.1 && range.0 <= our_range.1;
    let doubt = if overlap {
        "; their rounds overlap"
    } else {
        ""
    };
    Some(format!(
        "{verdict:7} {mode}, {what}: mallow {}, best other {} ({key}){doubt}\n",
        time(ours),
        time(best),
    ))
}

fn goals(subjects: &[&Subject]) -> String {
    let mut text = String::new();
    for mode in LOWEST {
        let tail = lowest(subjects, mode, "P99.99", |f| f.quantile(P9999));
        let excess = lowest(subjects, mode, "excess over the floor at P99.999", |f| {
            f.excess(P99999)
        });
        text.extend([tail, excess].into_iter().flatten());
    }
    let ours = subjects.iter().find(|s| s.allocator.key == "mallow");
    let flat: Vec<(f64, f64)> = hot_sizes(subjects)
        .into_iter()
        .filter_map(|size| Some((size, ours?.own(&format!("hot-{size}"))?.flatness()?)))
        .collect();
    if let Some((size, worst)) = flat.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
        let verdict = if *worst <= FLATNESS_GOAL {
            "met"
        } else {
            "NOT MET"
        };
        text.push_str(&format!(
            "{verdict:7} hot path, P99.9 / P50 at most {FLATNESS_GOAL} at every size: largest {worst:.2}, at {size} B\n"
        ));
    }
    match text.is_empty() {
        true => text,
        false => format!("\nThe goals\n{text}"),
    }
}

fn head(latency: &Latency) -> String {
    let (c, t) = (&latency.conditions, &latency.timer);
    let or_none = |text: &str| {
        if text.is_empty() {
            "none".into()
        } else {
            text.to_string()
        }
    };
    let mut text = format!(
        "Latency of malloc and free, commit {}, {}\n{}, {}, {}; {} round(s), interleaved; medians of the rounds\n\
         timer {}: {:.1} ns an empty pair of reads (least {:.1}, median {:.1}), taken off; step {:.2} ns\n\
         processor {} of {}, isolated: {}, nohz_full: {}, SCHED_FIFO: {}, load before: {:.2}, clock: {}\n",
        latency.commit,
        latency.date,
        latency.machine.cpu,
        latency.machine.kernel,
        latency.machine.compiler,
        latency.rounds,
        t.source,
        t.overhead_ns,
        t.least_ns,
        t.typical_ns,
        t.step_ns,
        c.pinned,
        c.processors,
        or_none(&c.isolated),
        or_none(&c.nohz_full),
        if c.fifo { "yes" } else { "no" },
        c.load,
        c.clocksource
    );
    let (low, high) = latency.overheads_ns;
    if high - low > 0.9 * t.step_ns.max(2.0) {
        text.push_str(&format!(
            "NOTE: processes took off {low:.1} to {high:.1} ns as the clock's cost: single calls differ by that much \
             without reason\n"
        ));
    }
    let stolen: f64 = latency.subjects.iter().map(|s| s.stolen_ms).sum();
    if !c.on_isolated {
        text.push_str(&format!(
            "NOT AN ISOLATED PROCESSOR: the floor's rows show the machine's own pauses, which are in every other row \
             too; the hypervisor took {stolen:.0} ms. To isolate one: boot with isolcpus=managed_irq,domain,{0} \
             nohz_full={0} rcu_nocbs={0}, then sysctl kernel.sched_rt_runtime_us=-1 (docs/method/latency.md)\n",
            c.pinned.max(1)
        ));
    } else if c.fifo && c.rt_runtime_us >= 0 {
        text.push_str(
            "note: SCHED_FIFO is throttled (kernel.sched_rt_runtime_us); set it to -1 for the far percentiles\n",
        );
    }
    text.push_str(
        "ns of one call, malloc and free together (hot: of a pair); ppm of calls that took so long; drift: last tenth\n\
         of the time / first; floor: the same loop without a call; excess: P99.999 less what the machine alone would do to\n\
         it: the floor's in the same process, as much further out as the floor's loop spends less time in what is timed\n",
    );
    text
}

/// The whole report.
pub fn render(latency: &Latency) -> String {
    let shown: Vec<&Subject> = latency
        .subjects
        .iter()
        .filter(|s| !s.rows.is_empty() || !s.startup.is_empty())
        .collect();
    let mut text = head(latency);
    text.push_str(&hot_tables(&shown));
    for mode in latency.modes() {
        let sized = mode.starts_with("hot-") || mode.starts_with("call-");
        if !sized || mode.ends_with("-64") {
            text.push('\n');
            text.push_str(&mode_table(&shown, &mode));
        }
    }
    text.push_str(&order_table(&shown));
    text.push_str(&startup_table(&shown));
    text.push_str(&memory_table(&shown));
    text.push_str(&spread_tables(latency, &shown));
    text.push_str(&goals(&shown));
    for subject in &latency.subjects {
        let key = &subject.allocator.key;
        for note in &subject.notes {
            text.push_str(&format!("note: {key} fails the gate's check '{note}'\n"));
        }
        if let Some(error) = &subject.error {
            text.push_str(&format!("PROBLEM: {key}: {error}\n"));
        }
    }
    text
}
