// SPDX-License-Identifier: MIT
//! Makes the table of the library's options from the one place where they are written down.

#[path = "src/options_def.rs"]
#[allow(dead_code)]
mod options_def;

use std::path::PathBuf;
use std::{env, fs, process};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let source = manifest.join("../../src/options.def");
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-changed=src/options_def.rs");
    let table = fs::read_to_string(&source)
        .map_err(|error| error.to_string())
        .and_then(|text| options_def::parse(&text))
        .unwrap_or_else(|error| {
            eprintln!("{}: {error}", source.display());
            process::exit(1);
        });
    let rows: Vec<String> = table.iter().map(options_def::Row::as_rust).collect();
    let code = format!("const ROWS: &[LibraryOption] = &[\n{}];\n", rows.concat());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("options.rs"), code).expect("OUT_DIR is writable");
}
