// SPDX-License-Identifier: MIT
//! What the tests of the recorder have in common: recorder and programs are compiled here, run, and the
//! traces read.

#![allow(dead_code)] // no file of tests uses all of it

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub const PRELUDE: &str = "#include <fcntl.h>\n#include <malloc.h>\n#include <pthread.h>\n\
    #include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    #include <sched.h>\n#include <sys/mman.h>\n#include <sys/ptrace.h>\n#include <sys/resource.h>\n\
    #include <sys/stat.h>\n#include <sys/syscall.h>\n#include <sys/wait.h>\n#include <unistd.h>\n";

pub fn scratch() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    })
}

pub fn compile(out: &Path, arguments: &[&str], sources: &[PathBuf]) {
    let built = Command::new("cc")
        .args(["-std=gnu17", "-O1", "-fno-builtin", "-D_GNU_SOURCE", "-w"])
        .args(arguments)
        .arg("-o")
        .arg(out)
        .args(sources)
        .status()
        .unwrap();
    assert!(built.success(), "cc {}", out.display());
}

pub fn recorder() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../recorder");
        let sources: Vec<PathBuf> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "c"))
            .collect();
        assert!(sources.len() >= 3);
        let out = scratch().join("libmallow-record.so");
        compile(&out, &["-shared", "-fPIC", "-fvisibility=hidden"], &sources);
        out
    })
}

pub fn program(name: &str, code: &str) -> PathBuf {
    let source = scratch().join(format!("{name}.c"));
    fs::write(&source, format!("{PRELUDE}{code}")).unwrap();
    let out = scratch().join(name);
    compile(&out, &["-pthread"], &[source]);
    out
}

pub struct Run {
    pub output: Output,
    pub traces: Vec<Recorded>,
}

pub struct Recorded {
    pub name: String,
    pub head: String,
    pub lines: Vec<String>,
}

pub fn mallow(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(arguments)
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap()
}

/// Records the command; its traces in the order of their names.
pub fn record(name: &str, command: &[&str]) -> Run {
    let folder = scratch().join(format!("{name}-traces"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let prefix = folder.join("t");
    let recorder = recorder().to_str().unwrap();
    let mut arguments = vec![
        "record",
        "-o",
        prefix.to_str().unwrap(),
        "--recorder",
        recorder,
        "--",
    ];
    arguments.extend(command);
    let output = mallow(&arguments);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let traces = paths.iter().map(|path| shown(path)).collect();
    Run { output, traces }
}

pub fn shown(path: &Path) -> Recorded {
    let text = mallow(&["trace", path.to_str().unwrap()]);
    assert!(
        text.status.success(),
        "{}",
        String::from_utf8_lossy(&text.stderr)
    );
    let text = String::from_utf8(text.stdout).unwrap();
    let (heads, lines): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    let recorded = Recorded {
        name: path.file_name().unwrap().to_str().unwrap().to_string(),
        head: heads.join("\n"),
        lines: lines
            .iter()
            .map(|line| line.splitn(3, ' ').nth(2).unwrap().to_string())
            .collect(),
    };
    recorded.live(); // every trace must be one that could have been
    recorded
}

impl Recorded {
    /// What lives at the end, id -> size; panics where a record cannot be.
    pub fn live(&self) -> BTreeMap<u64, u64> {
        let mut live = BTreeMap::new();
        for line in &self.lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "allocate" => assert_eq!(live.insert(number(1), number(2)), None, "{line}"),
                "free" => assert!(live.remove(&number(1)).is_some(), "{line}"),
                "resize" => assert!(live.insert(number(1), number(2)).is_some(), "{line}"),
                "resize-refused" => assert!(live.contains_key(&number(1)), "{line}"),
                _ => {}
            }
        }
        live
    }

    pub fn count(&self, start: &str) -> usize {
        self.lines.iter().filter(|l| l.starts_with(start)).count()
    }

    pub fn sizes(&self) -> Vec<u64> {
        let words = self
            .lines
            .iter()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        words
            .filter(|words| words[0] == "allocate")
            .map(|words| words[2].parse().unwrap())
            .collect()
    }
}

impl Run {
    /// The traces of one process each, without those of shells and the like.
    pub fn with(&self, size: u64) -> Vec<&Recorded> {
        let own = self.traces.iter();
        own.filter(|trace| trace.sizes().contains(&size)).collect()
    }
}
