// SPDX-License-Identifier: MIT
//! Tests of the page experiment's reading and showing, on made-up figures.

use super::*;

const HEAD: &str = "bytes allocate touch/page grow touch2/page shrink free\n";

fn table(touch: f64) -> String {
    let row = |bytes: f64| format!("{bytes} 100 {touch} 1000 {touch} 2000 50.5\n");
    let sizes = [16, 17, 23, 30].map(|power| row(f64::from(power).exp2()));
    format!("{HEAD}{}", sizes.concat())
}

fn subject(key: &str, rounds: &[f64]) -> Subject {
    Subject {
        allocator: plain(key, key),
        rounds: rounds
            .iter()
            .map(|touch| parse(&table(*touch)).unwrap())
            .collect(),
        error: None,
    }
}

fn pages() -> Pages {
    Pages {
        format: FORMAT.into(),
        date: "2026-11-22".into(),
        commit: "abc".into(),
        machine: Machine::default(),
        phases: Vec::new(),
        subjects: vec![
            subject(KERNEL, &[2000.0, 1000.0, 1500.0]),
            subject("mallow", &[5.0, 15.0, 10.0]),
            subject("je", &[]),
        ],
    }
}

#[test]
fn the_programs_table_is_read_and_anything_else_is_refused() {
    let rows = parse(&table(7.5)).unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(
        (rows[0].bytes, rows[0].ns[1], rows[0].ns[5]),
        (65536.0, 7.5, 50.5)
    );
    assert!(parse("bytes allocate\n1 2\n")
        .unwrap_err()
        .contains("wanted"));
    assert!(parse(&format!("{HEAD}1 2 3\n"))
        .unwrap_err()
        .contains("not a row"));
}

#[test]
fn a_figure_is_the_median_over_the_rounds() {
    assert_eq!(pages().subjects[1].ns(1, 65536.0), Some(10.0));
    assert_eq!(pages().subjects[1].ns(1, 3.0), None);
}

#[test]
fn the_report_has_every_phase_and_the_papers_statements() {
    let text = render(&pages());
    for (_, title) in PHASES {
        assert!(text.contains(title), "{text}");
    }
    let touch = text
        .lines()
        .find(|l| l.starts_with("first touch of a page at 8 MiB"))
        .unwrap();
    // 1500 ns by the kernel, 10 ns by mallow; je has no rounds, so no column.
    let words: Vec<&str> = touch.split_whitespace().rev().take(2).collect();
    assert_eq!(words, ["150", "10"], "{touch}");
    assert!(!text.contains(" je"), "{text}");
}

#[test]
fn the_kernel_and_the_second_mallow_run_their_own_way() {
    let mallow = Allocator {
        preload: vec!["/lib/x.so".into()],
        ..plain("mallow", "mallow")
    };
    let keys: Vec<String> = subjects(&[mallow, plain("je", "")])
        .into_iter()
        .map(|s| s.allocator.key)
        .collect();
    assert_eq!(keys, [KERNEL, "mallow", CACHED, "je"]);
    assert_eq!(job("p", KERNEL).command, ["p", "kernel=1"]);
    assert_eq!(job("p", "je").command, ["p"]);
    assert_eq!(job("p", CACHED).set[0].0, "MALLOW_HUGE_CACHE");
}

#[test]
fn a_written_file_is_read_back_with_its_picture_beside_it() {
    let path = std::env::temp_dir().join(format!("pages-{}.json", std::process::id()));
    write(&pages(), &path).unwrap();
    let again = read(&path).unwrap();
    assert_eq!(render(&again), render(&pages()));
    assert!(path.with_extension("svg").exists());
    std::fs::write(&path, "{}").unwrap();
    assert!(read(&path).unwrap_err().contains("pages-"));
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(path.with_extension("svg")).unwrap();
}

#[test]
fn the_picture_draws_what_was_measured() {
    let svg = picture(&pages()).unwrap();
    assert!(svg.contains("\nmallow\n") && svg.contains("\nkernel\n") && !svg.contains("\nje\n"));
}
