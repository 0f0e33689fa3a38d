// SPDX-License-Identifier: MIT
//! Tests of reading what the program and /proc say.

use super::*;

const OUTPUT: &str = "begin 0 0 morning 4\nlive 240 1000000 77\nbegin 1000 0 idle 2\n\
                      live 1000 500000 99\nbegin 2000 1 end 2\nend 123 00ff\nown 250 4000 12\n";

#[test]
fn the_programs_course_is_read() {
    let (course, own) = parse(OUTPUT).unwrap();
    assert_eq!(course.begins.len(), 3);
    assert_eq!((course.begins[1].at_ms, course.begins[1].day), (1000, 0));
    assert_eq!(
        (course.begins[1].phase.as_str(), course.begins[0].threads),
        ("idle", 4)
    );
    assert_eq!(course.live, [(240, 1_000_000), (1000, 500_000)]);
    assert_eq!((course.operations, course.checksum.as_str()), (123, "00ff"));
    assert_eq!((own.cpu_ms, own.faults, own.late_ms), (250, 4000, 12));
}

#[test]
fn what_is_cut_short_or_not_understood_is_refused() {
    let cut = OUTPUT.lines().take(5).collect::<Vec<_>>().join("\n");
    assert!(parse(&cut).unwrap_err().contains("did not come to its end"));
    for line in [
        "live 12",
        "begin 1 2",
        "live x 1 1",
        "bench: oh no",
        "own 1 2",
    ] {
        let error = parse(&format!("{line}\n{OUTPUT}")).unwrap_err();
        assert!(error.contains(line), "{error}");
    }
}

#[test]
fn a_figure_of_proc_is_read_by_its_whole_name() {
    let text = "VmHWM:\t  900 kB\nVmRSS:\t  812 kB\nRssAnon:\t 4 kB\n";
    assert_eq!(field_kib(text, "VmRSS:"), Some(812));
    assert_eq!(field_kib(text, "Pss:"), None);
    assert_eq!(field_kib("", "VmRSS:"), None);
}
