// SPDX-License-Identifier: MIT
//! The report and the picture on made-up rows.

use super::*;

fn row(policy: &str, seed: u64, delay: u32, refused: u64) -> Row {
    Row {
        policy: policy.into(),
        seed,
        cores: 8,
        delay,
        work: 1000,
        refused,
        refused_routed: refused,
        blocks: 10_000,
        remote: 1_000,
        p50: 10,
        p99: 20,
        p999: 30,
        max: 40,
        spread: 0.1,
        fullest: 0.7,
    }
}

fn results(refused: [u64; 4]) -> Results {
    let names = ["round-robin", "least-occupied", "trend", "learned"];
    let rows = |seeds: u64, delay: u32| {
        let named = names.iter().zip(refused);
        named
            .flat_map(|(name, refused)| (1..=seeds).map(move |s| row(name, s, delay, refused + s)))
            .collect::<Vec<Row>>()
    };
    Results {
        format: FORMAT.into(),
        date: "2026-01-01T00:00:00Z".into(),
        commit: "abc".into(),
        machine: mallow_measure::machine::machine(),
        rows: rows(20, 8),
        delays: DELAYS.iter().flat_map(|&d| rows(2, d)).collect(),
    }
}

#[test]
fn the_claims_are_counted_by_seed() {
    let text = render(&results([40, 20, 10, 30]));
    for line in [
        "least-occupied refuses less than round-robin in 20 of 20 seeds: 3.050 % against 5.050 %",
        "trend refuses less than least-occupied in 20 of 20 seeds",
        "learned refuses less than least-occupied in 0 of 20 seeds",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn what_does_not_hold_is_said() {
    assert!(holds(&results([40, 20, 10, 30])));
    assert!(holds(&results([40, 20, 30, 10])));
    assert!(
        !holds(&results([40, 20, 30, 30])),
        "neither forecasts better"
    );
    assert!(!holds(&results([20, 40, 10, 10])), "round-robin is better");
}

#[test]
fn a_written_file_is_read_back_with_its_picture_beside_it() {
    let path = std::env::temp_dir().join(format!("dispatch-{}.json", std::process::id()));
    let made = results([40, 20, 10, 5]);
    write(&made, &path).unwrap();
    assert_eq!(render(&read(&path).unwrap()), render(&made));
    let svg = std::fs::read_to_string(path.with_extension("svg")).unwrap();
    assert!(svg.contains("\nlearned\n") && svg.contains("20 seeds"));
    std::fs::write(&path, "{}").unwrap();
    assert!(read(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(path.with_extension("svg")).unwrap();
}

/// What each run is told last holds: the table by delay has every delay, whatever the user gave.
#[test]
fn a_delay_of_the_users_is_not_that_of_the_series() {
    let path = std::env::temp_dir().join(format!("dispatch-{}.sh", std::process::id()));
    let script = "for word; do case $word in seed=*) seed=${word#*=} ;; delay=*) delay=${word#*=} ;; esac; done\n\
                  echo '{\"policy\":\"trend\",\"cores\":1,\"work\":1,\"refused\":0,\"refused_routed\":0,\
                  \"blocks\":1,\"remote\":0,\"p50\":1,\"p99\":1,\"p999\":1,\"max\":1,\"spread\":0,\
                  \"fullest\":0,\"seed\":'$seed',\"delay\":'$delay'}'\n";
    std::fs::write(&path, script).unwrap();
    let head = (
        String::new(),
        String::new(),
        mallow_measure::machine::machine(),
    );
    let more = [path.display().to_string(), "delay=4".to_string()];
    let found = run(Path::new("/bin/sh"), 2, &more, head, &Progress::new(true));
    std::fs::remove_file(&path).unwrap();
    let found = found.unwrap();
    assert!(found.rows.iter().all(|row| row.delay == 4));
    let delays: Vec<u32> = found.delays.iter().map(|row| row.delay).collect();
    assert_eq!(delays, DELAYS.map(|delay| [delay; 2]).concat());
    assert!(refusal("seed=7").is_some() && refusal("policy=3").is_some());
    assert!(refusal("7").is_some() && refusal("delay=4").is_none());
}
