// SPDX-License-Identifier: MIT
//! A pool's configuration: read from a file, written to one, and planned, all by the C library.

use std::ffi::CStr;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::ptr;

use mallow_measure::output;

use super::ffi;
pub use super::ffi::{Class, ClassPlan, Plan};
use crate::Failure;

/// More is no configuration: a device that never ends, say.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Characters of a line in a message.
const LINE_SHOWN: usize = 100;

/// The switches of a configuration, in the order in which they are written.
const SWITCHES: [&str; 5] = ["fallback", "prefault", "lock", "remote", "check_owner"];

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The classes.
    pub classes: Vec<Class>,
    /// All memory; 0 with counts: what they need.
    pub pool_bytes: usize,
    /// fallback, prefault, lock, remote, check_owner.
    pub switches: [bool; 5],
}

/// A configuration that cannot be: why, and which class is to blame, if one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The library's sentence.
    pub text: String,
    /// Index in the configuration.
    pub class: Option<usize>,
}

/// What the library says of a status.
pub fn status_text(status: ffi::Status) -> String {
    // SAFETY: the library returns a constant string for every value.
    let text = unsafe { CStr::from_ptr(ffi::mw_pool_status_text(status)) };
    text.to_string_lossy().into_owned()
}

impl Config {
    /// The C structure; valid as long as `self` is.
    pub fn as_ffi(&self) -> ffi::Config {
        let [fallback, prefault, lock, remote, check_owner] = self.switches;
        ffi::Config {
            classes: self.classes.as_ptr(),
            class_count: self.classes.len(),
            pool_bytes: self.pool_bytes,
            memory: ptr::null_mut(),
            fallback,
            prefault,
            lock,
            remote,
            check_owner,
        }
    }

    /// With all its memory brought in at the start, as is best where nothing says otherwise.
    pub fn brought_in(self) -> Config {
        let [fallback, _, lock, remote, check_owner] = self.switches;
        Config {
            switches: [fallback, true, lock, remote, check_owner],
            ..self
        }
    }

    /// What the library makes of it.
    pub fn plan(&self) -> Result<(Plan, Vec<ClassPlan>), Problem> {
        let mut plan = Plan::default();
        let mut classes = vec![ClassPlan::default(); self.classes.len()];
        // SAFETY: all pointers are to live memory of the right length.
        let status = unsafe { ffi::mw_pool_plan(&self.as_ffi(), &mut plan, classes.as_mut_ptr()) };
        if status == ffi::OK {
            return Ok((plan, classes));
        }
        Err(Problem {
            text: status_text(status),
            class: (plan.problem_class != ffi::NO_CLASS).then_some(plan.problem_class),
        })
    }

    /// Reads a text; the error is the line, from 1, and the library's sentence.
    pub fn parse(text: &str, size: Option<usize>) -> Result<Config, (usize, String)> {
        let mut classes = vec![Class::default(); ffi::CLASSES_MAX];
        let mut raw = Config::default().as_ffi();
        let mut error = ffi::TextError::default();
        // SAFETY: text and classes are as long as stated; raw and error are live.
        let status = unsafe {
            ffi::mw_pool_config_parse(
                text.as_ptr().cast(),
                text.len(),
                &mut raw,
                classes.as_mut_ptr(),
                classes.len(),
                &mut error,
            )
        };
        if status != ffi::OK && (status != ffi::TEXT_NO_SIZE || size.is_none()) {
            return Err((error.line.max(1), status_text(status)));
        }
        // SAFETY: the library points either at `classes` or at a preset of its own.
        let found = unsafe { std::slice::from_raw_parts(raw.classes, raw.class_count) }.to_vec();
        Ok(Config {
            classes: found,
            pool_bytes: size.unwrap_or(raw.pool_bytes),
            switches: [
                raw.fallback,
                raw.prefault,
                raw.lock,
                raw.remote,
                raw.check_owner,
            ],
        })
    }

    /// Reads a file as the library does, and plans; `size` instead of the size in it, which may be
    /// missing then. A configuration that cannot be names file, line and what stands there, and has the
    /// exit code `refused`; a file that cannot be read is the tool's failure.
    pub fn read_and_plan(
        path: &Path,
        size: Option<usize>,
        refused: i32,
    ) -> Result<(Config, Plan, Vec<ClassPlan>), Failure> {
        let name = path.display().to_string();
        let text = read_text(path).map_err(|e| Failure::tool(format!("{name}: {e}")))?;
        Config::parse_and_plan(&name, &text, size).map_err(|text| Failure::with_code(refused, text))
    }

    /// The same of a text that is called `name`; the error is the message.
    pub fn parse_and_plan(
        name: &str,
        text: &str,
        size: Option<usize>,
    ) -> Result<(Config, Plan, Vec<ClassPlan>), String> {
        let read = Config::parse(text, size).map_err(|(line, what)| {
            match text.lines().nth(line.saturating_sub(1)) {
                Some(words) => format!("{name}:{line}: '{}': {what}", shown(words)),
                None => format!("{name}: {what}"), // its end
            }
        });
        read.and_then(|config| match config.plan() {
            Ok((plan, classes)) => Ok((config, plan, classes)),
            Err(problem) => Err(
                match problem.class.and_then(|class| class_line(text, class)) {
                    Some((line, words)) => {
                        format!("{name}:{line}: '{}': {}", shown(words), problem.text)
                    }
                    None => {
                        let passed_over = passed_over(text);
                        format!("{name}: {}{}{passed_over}", problem.text, config.sums())
                    }
                },
            ),
        })
    }

    /// What a problem of the whole configuration is about, as figures.
    fn sums(&self) -> String {
        let shares: u64 = self.classes.iter().map(|c| u64::from(c.share_ppm)).sum();
        format!(
            " (pool_size={}, {} classes, shares of {} %)",
            self.pool_bytes,
            self.classes.len(),
            percent(shares)
        )
    }

    /// The configuration as a text that the library reads.
    pub fn text(&self, heading: &str) -> String {
        let mut text = String::new();
        for line in heading.lines() {
            let _ = writeln!(text, "{}", format!("# {line}").trim_end());
        }
        text.push_str("[pool]\n");
        if self.pool_bytes != 0 {
            let _ = writeln!(text, "pool_size={}", self.pool_bytes);
        }
        for class in &self.classes {
            let _ = write!(text, "class={}", class.size_bytes);
            let _ = match class.block_count {
                0 => write!(text, ",{}", percent(u64::from(class.share_ppm))),
                count => write!(text, ",count={count}"),
            };
            if class.alignment_bytes != 0 {
                let _ = write!(text, ",align={}", class.alignment_bytes);
            }
            text.push('\n');
        }
        for (name, on) in SWITCHES.iter().zip(self.switches) {
            if on {
                let _ = writeln!(text, "{name}=on");
            }
        }
        text
    }
}

/// Parts per million in percent, no digit more than needed.
pub fn percent(ppm: u64) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The file; what is not UTF-8, in a comment, say, does no harm.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(std::io::Error::other(format!(
            "is no configuration: larger than {TEXT_BYTES_MAX} bytes"
        )));
    }
    let text = String::from_utf8_lossy(&bytes);
    // Without a byte order mark, as the library has it: lines are told by how they begin.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_string())
}

/// A line of a file for a message: what a terminal might take for a command escaped, and cut.
fn shown(line: &str) -> String {
    let line = line.trim_matches([' ', '\t', '\r']); // as the library does
    let mut text = output::printable(&line.chars().take(LINE_SHOWN).collect::<String>());
    if line.chars().nth(LINE_SHOWN).is_some() {
        text.push_str("...");
    }
    text
}

/// Whether a section's lines are the pool's, by its first line as the library reads it.
fn is_ours(section: &str) -> bool {
    let name = section.split('#').next().unwrap_or_default().trim_end();
    matches!(name, "[pool]" | "[allocator]")
}

/// What a problem of the whole file may come from: a section of another's, or one that is misspelt.
fn passed_over(text: &str) -> String {
    let mut lines = (1..).zip(text.lines().map(str::trim));
    match lines.find(|(_, line)| line.starts_with('[') && !is_ours(line)) {
        Some((number, line)) => {
            let line = shown(line);
            format!(
                "; line {number}: what follows '{line}' is passed over, not [pool] or [allocator]"
            )
        }
        None => String::new(),
    }
}

/// Line number and text of the class with this index: of its own line, or that of its preset.
fn class_line(text: &str, class: usize) -> Option<(usize, &str)> {
    let mut ours = true;
    let mut at = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            ours = is_ours(line);
        } else if let (true, Some((key, value))) = (ours, line.split_once('=')) {
            at += match key.trim() {
                "class" => 1,
                "preset" => preset_class_count(value),
                _ => 0,
            };
            if at > class {
                return Some((number + 1, line));
            }
        }
    }
    None
}

/// How many classes a line `preset=` stands for.
fn preset_class_count(value: &str) -> usize {
    let name = value.split('#').next().unwrap_or_default().trim();
    let found = presets().into_iter().find(|preset| preset.name == name);
    found.map_or(0, |preset| preset.classes.len())
}

/// A preset of the library.
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub text: String,
    /// Its classes.
    pub classes: Vec<Class>,
}

/// All presets.
pub fn presets() -> Vec<Preset> {
    let mut found = Vec::new();
    // SAFETY: the library returns NULL after the last, and constants before.
    unsafe {
        while let Some(preset) = ffi::mw_pool_preset_at(found.len()).as_ref() {
            let text = |words| CStr::from_ptr(words).to_string_lossy().into_owned();
            found.push(Preset {
                name: text(preset.name),
                text: text(preset.text),
                classes: std::slice::from_raw_parts(preset.classes, preset.class_count).to_vec(),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(size_bytes: usize, share_ppm: u32) -> Class {
        Class {
            size_bytes,
            share_ppm,
            ..Class::default()
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let shares = Config {
            classes: vec![
                class(64, 333_333),
                Class {
                    alignment_bytes: 4096,
                    ..class(8192, 666_666)
                },
                class(100, 1),
            ],
            pool_bytes: 123_456_789,
            switches: [true, false, false, true, false],
        };
        assert_eq!(Config::parse(&shares.text("a\n\nb"), None), Ok(shares));
        let counts = Config {
            classes: vec![Class {
                size_bytes: 48,
                block_count: 12345,
                ..Class::default()
            }],
            ..Config::default()
        };
        assert_eq!(Config::parse(&counts.text(""), None), Ok(counts));
    }

    #[test]
    fn shares_are_written_without_loss() {
        for (ppm, text) in [
            (1_000_000, "100"),
            (1, "0.0001"),
            (123_450, "12.345"),
            (0, "0"),
        ] {
            assert_eq!(percent(ppm), text);
        }
    }

    #[test]
    fn the_class_of_a_problem_has_its_line() {
        let text =
            "[pool]\npool_size=1M\nclass=16,50\n[other]\nclass=1,1\n[allocator]\n class = 0,50\n";
        assert_eq!(class_line(text, 0), Some((3, "class=16,50")));
        assert_eq!(class_line(text, 1), Some((7, "class = 0,50")));
        assert_eq!(class_line(text, 2), None);
        let text =
            "[pool] # mine\nclass=16,50\n[ pool ]\nclass=1,1\n[allocator]# too\nclass=0,50\n";
        assert_eq!(class_line(text, 0), Some((2, "class=16,50")));
        assert_eq!(class_line(text, 1), Some((6, "class=0,50")));
        assert_eq!(passed_over("[pool] # mine\n"), "");
        assert!(passed_over(text).contains("line 3: what follows '[ pool ]'"));
        let text = "preset = low-latency # two\nclass=0,1\n";
        assert_eq!(class_line(text, 1), Some((1, "preset = low-latency # two")));
        assert_eq!(class_line(text, 2), Some((2, "class=0,1")));
    }

    #[test]
    fn every_preset_has_a_plan() {
        let all = presets();
        assert!(all.len() >= 7, "{}", all.len());
        for preset in all {
            let config = Config {
                classes: preset.classes,
                pool_bytes: 1 << 20,
                ..Config::default()
            };
            let (plan, classes) = config.plan().unwrap();
            let payload: usize = classes
                .iter()
                .map(|c| c.block_bytes * c.capacity_count)
                .sum();
            assert_eq!(plan.payload_bytes, payload, "{}", preset.name);
        }
    }
}
