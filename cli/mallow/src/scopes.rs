// SPDX-License-Identifier: MIT
//! Scopes of a trace: which part of the program a record belongs to, and what each part asked for.

use std::collections::HashMap;

use mallow_measure::output;
use mallow_measure::table::Table;

use crate::trace::{Event, Operation, Trace};

/// What `mallow trace --scopes` calls records outside of any scope.
const NONE: &str = "(none)";

/// Bytes of a path's beginning, and of its end, that are always shown; of what lies between only if
/// there is no more. A program that never ends its scopes nests as many as it begins.
const PATH_HALF_BYTES: usize = 1000;

/// The scopes that each thread is in.
#[derive(Default)]
pub struct Scopes {
    open: HashMap<u32, Vec<usize>>,
    sought: Option<String>,
    within: HashMap<u32, usize>, // how many scopes are open with the first that is sought
}

impl Scopes {
    /// Those of which one is sought, by its name or its path.
    pub fn seeking(sought: Option<String>) -> Scopes {
        Scopes {
            sought,
            ..Scopes::default()
        }
    }

    /// Takes a record in.
    pub fn follow(&mut self, event: &Event, trace: &Trace) {
        let open = self.open.entry(event.thread).or_default();
        match event.operation {
            Operation::ScopeBegin { text } => {
                open.push(text);
                if let Some(sought) = &self.sought {
                    if ends_within(open, sought, trace) {
                        self.within.entry(event.thread).or_insert(open.len());
                    }
                }
            }
            Operation::ScopeEnd => {
                open.pop(); // one too many ends nothing
                let within = self.within.get(&event.thread);
                if within.is_some_and(|&count| open.len() < count) {
                    self.within.remove(&event.thread);
                }
            }
            _ => {}
        }
    }

    /// Whether the thread is in the scope that is sought, or in one within it.
    pub fn is_within(&self, thread: u32) -> bool {
        self.within.contains_key(&thread)
    }

    /// The names from the outermost in, with slashes between; empty outside of any. Of very many the
    /// first and the last.
    pub fn path(&self, thread: u32, trace: &Trace) -> String {
        let open = self.open.get(&thread).map(Vec::as_slice).unwrap_or(&[]);
        let names = |some: &[usize]| {
            let names: Vec<&str> = some.iter().map(|&text| trace.text(text)).collect();
            names.join("/")
        };
        let first = count_that_fits(open.iter(), trace);
        let last = count_that_fits(open.iter().rev(), trace);
        if first + last >= open.len() {
            return names(open);
        }
        format!(
            "{}/.../{}",
            names(&open[..first]),
            names(&open[open.len() - last..])
        )
    }
}

/// Whether the innermost name completes the one that is sought, which may be the end of a path.
fn ends_within(open: &[usize], sought: &str, trace: &Trace) -> bool {
    let Some((&last, outer)) = open.split_last() else {
        return false;
    };
    let mut tail = format!("/{}/", trace.text(last));
    let enough = tail.len() + sought.len();
    for &text in outer.iter().rev() {
        if tail.len() > enough {
            break;
        }
        tail.insert_str(0, trace.text(text));
        tail.insert(0, '/');
    }
    tail.contains(&format!("/{sought}/"))
}

/// How many of these names, with a slash each, have room in half a path.
fn count_that_fits<'a>(texts: impl Iterator<Item = &'a usize>, trace: &Trace) -> usize {
    let mut used = 0;
    texts
        .take_while(|&&text| {
            used += trace.text(text).len() + 1;
            used <= PATH_HALF_BYTES
        })
        .count()
}

/// What one scope asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Share {
    path: String,
    blocks: u64,
    bytes: u64,
    live: u64,
    most: u64,
}

impl Share {
    fn resize(&mut self, before: u64, after: u64) {
        self.live = self.live - before + after;
        self.most = self.most.max(self.live);
    }
}

/// Shares by path; a block counts for the scope that it was allocated in, however it is resized.
fn shares(trace: &mut Trace) -> Result<Vec<Share>, String> {
    let mut scopes = Scopes::default();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut shares: Vec<Share> = Vec::new();
    let mut blocks: HashMap<u64, (usize, u64)> = HashMap::new();
    while let Some(event) = trace.next() {
        let event = event?;
        scopes.follow(&event, trace);
        match event.operation {
            Operation::Allocate { id, size, .. } => {
                let path = scopes.path(event.thread, trace);
                let place = *places.entry(path.clone()).or_insert_with(|| {
                    shares.push(Share {
                        path,
                        ..Share::default()
                    });
                    shares.len() - 1
                });
                shares[place].blocks += 1;
                shares[place].bytes += size;
                shares[place].resize(0, size);
                blocks.insert(id, (place, size));
            }
            Operation::Resize {
                id,
                size,
                failed: false,
            } => {
                if let Some((place, before)) = blocks.get_mut(&id) {
                    shares[*place].bytes += size.saturating_sub(*before);
                    shares[*place].resize(*before, size);
                    *before = size;
                }
            }
            Operation::Free { id } => {
                if let Some((place, size)) = blocks.remove(&id) {
                    shares[place].resize(size, 0);
                }
            }
            _ => {}
        }
    }
    shares.sort_by(|a, b| b.most.cmp(&a.most).then_with(|| a.path.cmp(&b.path)));
    Ok(shares)
}

/// The table of `mallow trace --scopes`, those that held most first.
pub fn table(trace: &mut Trace) -> Result<String, String> {
    let mut table = Table::new(["scope", "blocks", "bytes", "most live", "live at the end"]);
    for share in shares(trace)? {
        table.row([
            match share.path.is_empty() {
                true => NONE.to_string(),
                false => output::printable(&share.path),
            },
            share.blocks.to_string(),
            share.bytes.to_string(),
            share.most.to_string(),
            share.live.to_string(),
        ]);
    }
    Ok(table.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::made::Writer;

    fn share(path: &str, blocks: u64, bytes: u64, live: u64, most: u64) -> Share {
        Share {
            path: path.to_string(),
            blocks,
            bytes,
            live,
            most,
        }
    }

    #[test]
    fn blocks_count_for_the_scope_of_their_thread_in_which_they_were_born() {
        let mut writer = Writer::default();
        writer.allocate(5);
        writer.note(1, 0, Some("load"));
        let first = writer.allocate(100);
        writer.note(1, 1, Some("image"));
        let second = writer.allocate(1000);
        writer.raw(5 | 8, &[10, 1]); // another thread, in no scope
        writer.allocate(7);
        writer.raw(5 | 8, &[10, 0]);
        writer.note(2, 0, None);
        writer.resize(first, 150);
        writer.free(second);
        writer.note(2, 0, None);
        writer.note(2, 0, None); // one too many
        let path = writer.write("scopes");
        let found = shares(&mut Trace::open(&path).unwrap()).unwrap();
        let expected = [
            share("load/image", 1, 1000, 0, 1000),
            share("load", 1, 150, 150, 150),
            share("", 2, 12, 12, 12),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_scope_is_found_by_name_and_by_path_however_deep() {
        let mut writer = Writer::default();
        writer.note(1, 0, Some("deep"));
        (0..1000).for_each(|_| writer.note(1, 0, None));
        writer.note(1, 1, Some("load/all"));
        writer.note(1, 2, Some("image"));
        (0..1000).for_each(|_| writer.note(1, 0, None));
        writer.allocate(1); // within all of them
        (0..1001).for_each(|_| writer.note(2, 0, None));
        writer.allocate(2); // not in the image
        let path = writer.write("sought");
        let found = |name: &str| {
            let mut scopes = Scopes::seeking(Some(name.to_string()));
            let mut trace = Trace::open(&path).unwrap();
            let mut sizes = Vec::new();
            while let Some(event) = trace.next() {
                let event = event.unwrap();
                scopes.follow(&event, &trace);
                if let (Operation::Allocate { size, .. }, true) =
                    (event.operation, scopes.is_within(event.thread))
                {
                    sizes.push(size);
                }
            }
            sizes
        };
        for name in [
            "deep",
            "load",
            "all",
            "load/all",
            "deep/load/all",
            "deep/deep",
        ] {
            assert_eq!(found(name), [1, 2], "{name}");
        }
        for name in ["image", "all/image", "deep/load/all/image", "image/deep"] {
            assert_eq!(found(name), [1], "{name}");
        }
        for name in ["", "dee", "load/image", "image/load", "/image", "image/"] {
            assert!(found(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn scopes_that_never_end_have_paths_of_bounded_length() {
        let mut writer = Writer::default();
        writer.note(1, 0, Some("request"));
        for _ in 0..20_000 {
            writer.note(1, 0, None);
            writer.allocate(1);
        }
        let path = writer.write("unended");
        let found = shares(&mut Trace::open(&path).unwrap()).unwrap();
        assert!(found.len() < 1000, "{}", found.len());
        let longest = found.iter().map(|share| share.path.len()).max();
        assert!(longest < Some(2 * PATH_HALF_BYTES + 5), "{longest:?}");
        assert_eq!(found.iter().map(|share| share.blocks).sum::<u64>(), 20_000);
        let deep = &found[0].path; // that of most records
        assert!(deep.starts_with("request/request/"), "{deep}");
        assert!(deep.contains("/request/.../request/"), "{deep}");
    }

    #[test]
    fn what_stands_in_a_trace_does_not_reach_the_terminal_as_it_is() {
        let mut writer = Writer::default();
        writer.note(1, 0, Some("a\u{1b}[31m\nb"));
        writer.allocate(1);
        let path = writer.write("escaped");
        let text = table(&mut Trace::open(&path).unwrap()).unwrap();
        assert!(text.contains("a\\u{1b}[31m\\nb  "), "{text}");
    }

    #[test]
    fn texts_that_cannot_be_are_named_with_the_record() {
        for (numbers, word) in [
            (vec![1, 1, 3], "never said"),
            (vec![1, 0, 0, 300], "300 bytes"),
            (vec![1, 7], "note 7"),
        ] {
            let mut writer = Writer::default();
            writer.raw(6, &numbers);
            let path = writer.write("notes");
            let error = shares(&mut Trace::open(&path).unwrap()).unwrap_err();
            assert!(
                error.contains("record 1") && error.contains(word),
                "{error}"
            );
        }
    }
}
