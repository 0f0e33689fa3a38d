// SPDX-License-Identifier: MIT
//! A stand-in for libmallow.so, compiled here, writes reports as the real one does, so that every verdict
//! can be provoked.

#![allow(dead_code)] // no file of tests uses all of it

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const STAND_IN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
const char *mw_version_text(void) { return "0.0.9"; } // what the tool knows the library by
__attribute__((destructor)) static void report(void) {
    const char *path = getenv("MALLOW_REPORT");
    const char *bad = getenv("STAND_IN_BAD");
    if (path == NULL) {
        return;
    }
    char name[512];
    const char *percent = strstr(path, "%p");
    snprintf(name, sizeof name, "%.*s%d%s", (int)(percent - path), path, (int)getpid(), percent + 2);
    FILE *file = fopen(name, "w");
    const char *begun = getenv("STAND_IN_SLOW"); // made when the report is there, and empty
    if (begun != NULL) {
        fflush(file);
        fclose(fopen(begun, "w"));
        usleep(400000);
    }
    fprintf(file, "{\"mallow\":\"0.0.9\",\"pid\":%d,\"exe\":\"/stand/\\u001bin\",\"symbols\":{\"malloc\":%s,"
                  "\"free\":true},\"probe_owned\":true,\"stats\":{\"live_count\":5},"
                  "\"process\":{\"peak_rss_bytes\":3145728}}",
            (int)getpid(), bad != NULL ? "false" : "true");
    fclose(file);
}
"#;

pub fn scratch() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mallow-cli");
        fs::create_dir_all(&path).unwrap();
        path
    })
}

pub fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (code, out) = (scratch().join(format!("{name}.c")), scratch().join(name));
    fs::write(&code, source).unwrap();
    let built = Command::new("cc")
        .args(flags)
        .arg("-o")
        .arg(&out)
        .arg(&code)
        .status()
        .unwrap();
    assert!(built.success(), "cc {name}");
    out
}

pub fn stand_in() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = compile("libmallow.so", STAND_IN, &["-shared", "-fPIC"]);
        path.canonicalize().unwrap()
    })
}

pub fn mallow(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mallow"))
        .args(arguments)
        .env("MALLOW_LIB", stand_in())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap()
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}
