// SPDX-License-Identifier: MIT
//! The table of allocators that are known by name.

/// One allocator the tools know by name.
pub struct Known {
    /// Short name.
    pub key: &'static str,
    /// Other names that may be given.
    pub aliases: &'static [&'static str],
    /// Full name.
    pub title: &'static str,
    /// File names in the system's library directories (or absolute, with `*` for one component).
    pub system: &'static [&'static str],
    /// The Debian package of the first, for its version and for the hint how to get it.
    pub package: &'static str,
    /// Built for safety, not for speed.
    pub hardened: bool,
}

const fn known(
    key: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    system: &'static [&'static str],
    package: &'static str,
) -> Known {
    Known {
        key,
        aliases,
        title,
        system,
        package,
        hardened: false,
    }
}

const fn hardened(
    key: &'static str,
    aliases: &'static [&'static str],
    title: &'static str,
    system: &'static [&'static str],
    package: &'static str,
) -> Known {
    Known {
        key,
        aliases,
        title,
        system,
        package,
        hardened: true,
    }
}

const SCUDO_PATHS: &[&str] = &[
    "libscudo.so",
    if cfg!(target_arch = "aarch64") {
        "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-aarch64.so"
    } else {
        "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-x86_64.so"
    },
];

/// In the order in which they are shown.
pub const KNOWN: &[Known] = &[
    known("mallow", &[], "mallow", &[], ""),
    known("glibc", &["sys", "libc", "system"], "glibc", &[], ""),
    known(
        "mi",
        &["mi3", "mimalloc", "mimalloc3"],
        "mimalloc 3",
        &["libmimalloc.so.3"],
        "libmimalloc3",
    ),
    known(
        "mi2",
        &["mimalloc2"],
        "mimalloc 2",
        &["libmimalloc.so.2", "libmimalloc.so.2.0"],
        "libmimalloc2.0",
    ),
    known(
        "je",
        &["jemalloc"],
        "jemalloc",
        &["libjemalloc.so.2"],
        "libjemalloc2",
    ),
    known(
        "tc",
        &["gperftools", "tcmalloc"],
        "tcmalloc (gperftools)",
        &["libtcmalloc_minimal.so.4"],
        "libtcmalloc-minimal4",
    ),
    known("tcg", &["tcmalloc-google"], "TCMalloc (Google)", &[], ""),
    known("sn", &["snmalloc"], "snmalloc", &["libsnmallocshim.so"], ""),
    known("rp", &["rpmalloc"], "rpmalloc", &["librpmallocwrap.so"], ""),
    known(
        "tbb",
        &["tbbmalloc"],
        "oneTBB tbbmalloc",
        &["libtbbmalloc_proxy.so.2"],
        "libtbbmalloc2",
    ),
    hardened(
        "mi-sec",
        &[],
        "mimalloc 3 secure",
        &["libmimalloc-secure.so.3"],
        "",
    ),
    hardened(
        "sn-chk",
        &[],
        "snmalloc, checks",
        &["libsnmallocshim-checks.so"],
        "",
    ),
    hardened("scudo", &[], "scudo", SCUDO_PATHS, "libclang-rt-19-dev"),
    hardened(
        "hml",
        &[],
        "hardened_malloc light",
        &["libhardened_malloc-light.so"],
        "",
    ),
    hardened(
        "hm",
        &["hardened"],
        "hardened_malloc",
        &["libhardened_malloc.so"],
        "",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_no_name_twice() {
        let mut names: Vec<&str> = KNOWN
            .iter()
            .flat_map(|k| std::iter::once(k.key).chain(k.aliases.iter().copied()))
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
