// SPDX-License-Identifier: MIT
//! What PMAD's author published (dev.to and the repository, 2026; Apple M4 Pro, macOS, a clock of 41.67
//! ns), as rows under ours. Another machine and another system: they stand there to be compared in
//! shape, not in ns.

/// A published row.
pub struct Published {
    /// The mode that it is put under.
    pub mode: &'static str,
    /// Of which allocator.
    pub who: &'static str,
    /// Heading of the column and what was published.
    pub cells: &'static [(&'static str, &'static str)],
}

const fn row(
    mode: &'static str,
    who: &'static str,
    cells: &'static [(&'static str, &'static str)],
) -> Published {
    Published { mode, who, cells }
}

/// All of them.
pub const PUBLISHED: &[Published] = &[
    row(
        "hot-64",
        "PMAD",
        &[
            ("mean", "2.31"),
            ("P50", "2.59"),
            ("P90", "2.62"),
            ("P99", "3.91"),
            ("P99.9", "6.50"),
            ("/P50", "2.5"),
        ],
    ),
    row(
        "hot-64",
        "tcmalloc",
        &[("P50", "3.91"), ("P99.9", "7.81"), ("/P50", "2.0")],
    ),
    row(
        "hot-64",
        "mimalloc",
        &[("P50", "2.62"), ("P99.9", "9.09"), ("/P50", "3.5")],
    ),
    row(
        "hot-64",
        "jemalloc",
        &[("P50", "7.81"), ("P99.9", "145"), ("/P50", "18.5")],
    ),
    row(
        "hot-64",
        "macOS",
        &[("P50", "15.6"), ("P99.9", "240"), ("/P50", "15.3")],
    ),
    row("call-64", "PMAD", &[("max", "29us"), (">=100ns", "83")]),
    row("churn-64", "PMAD", &[(">=100ns", "17881")]),
    row("churn-64", "jemalloc", &[(">=100ns", "816")]),
    row("churn-64", "tcmalloc", &[(">=100ns", "1002")]),
    row(
        "churn-1024",
        "PMAD",
        &[("max", "39.9us"), (">=100ns", "29000")],
    ),
    row("churn-1024", "macOS", &[("max", "6.95ms")]),
    row("mixed", "PMAD", &[("mean", "16.2"), ("max", "18.7us")]),
    row("order-lifo", "PMAD", &[("mean", "2.10")]),
    row("order-fifo", "PMAD", &[("mean", "2.22")]),
    row("order-random", "PMAD", &[("mean", "80.4")]),
    row("order-random", "mimalloc", &[("mean", "2.59")]),
];

/// Millions of operations a second by size of the block.
pub const THROUGHPUT: &[(f64, &str)] = &[
    (16.0, "748.9"),
    (64.0, "690.6"),
    (256.0, "96.1"),
    (1024.0, "84.5"),
    (4096.0, "95.9"),
];

/// Overhead by size of the block, in percent.
pub const OVERHEAD: &[(f64, &str)] = &[(16.0, "50 to 100"), (4096.0, "0.39")];

/// Start-up with a million blocks of 64 B, in ms.
pub const STARTUP: &[(&str, &str)] = &[
    ("PMAD", "10.3 (8.07 start, 2.24 fill)"),
    ("mimalloc", "5.5"),
];
