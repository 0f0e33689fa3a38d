// SPDX-License-Identifier: MIT
//! Makes the table of the library's options from the one place where they are written down, and
//! compiles the library's pools for `mallow pool`: freestanding, as they stand in libmallow-pool.a.

#[path = "src/options_def.rs"]
#[allow(dead_code)]
mod options_def;

use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// The sources of the pools, and what they include.
fn compile_pools(root: &Path) {
    let folder = root.join("src/pool");
    let mut sources: Vec<PathBuf> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .filter(|path| !path.ends_with("pool_host.c")) // the tool gives pools its own memory
        .collect();
    sources.sort();
    sources.push(root.join("src/base/format.c"));
    sources.push("src/pool/layout.c".into());
    for folder in ["src/pool", "src/base", "include/mallow"] {
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
    }
    println!("cargo:rerun-if-changed=src/pool/layout.c");
    cc::Build::new()
        .files(sources)
        .include(root.join("include"))
        .include(root.join("src"))
        .define("_GNU_SOURCE", None)
        .define("MALLOW_ASSERT", "0")
        .std("gnu17")
        .opt_level(2)
        .cargo_metadata(true)
        .compile("mallow_tool_pool");
}

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    compile_pools(&manifest.join("../.."));
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
