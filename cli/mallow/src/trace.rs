// SPDX-License-Identifier: MIT
//! Reads the traces that the recorder writes. The format is in docs/design/trace.md; cli/recorder
//! writes it.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use mallow_measure::output;

/// Length of the header, where the records begin.
pub const HEADER_BYTES: usize = 4096;
const COMMAND_AT: usize = 256;
const BUFFER_BYTES: usize = 1 << 18;
const TEXT_BYTES_MAX: u64 = 255;
/// No program has addresses for a larger block.
const BLOCK_BYTES_MAX: u64 = 1 << 57;

const FLAG_CUT: u32 = 1;
const FLAG_ENDED: u32 = 2;
const FLAG_FORKED: u32 = 4;

/// What is known of the recorded process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of records after the header; what follows them in the file is no part of the trace.
    pub record_bytes: u64,
    /// How many records these are.
    pub record_count: u64,
    /// The system's error, if the trace ends before the process did.
    pub cut: Option<i32>,
    /// The process ended by exit or by returning from main.
    pub ended: bool,
    /// The trace begins with the blocks that a fork handed on.
    pub forked: bool,
    /// The process.
    pub pid: u32,
    /// Most bytes asked for alive at once.
    pub live_bytes_peak: u64,
    /// Most blocks alive at once.
    pub live_count_peak: u64,
    /// Blocks given out.
    pub block_count: u64,
    /// Threads that called.
    pub thread_count: u32,
    /// The command's words.
    pub command: Vec<String>,
}

/// What happened. Ids count from 0 in the order of allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A block was given out. `alignment` is 1 where none was asked for.
    Allocate {
        /// The block's id.
        id: u64,
        /// Bytes asked for.
        size: u64,
        /// Alignment asked for.
        alignment: u64,
        /// By calloc.
        zeroed: bool,
        /// It was there when the process was forked.
        inherited: bool,
    },
    /// The program's allocator had no memory for it.
    Refused {
        /// Bytes asked for.
        size: u64,
    },
    /// A block was given back.
    Free {
        /// Which.
        id: u64,
    },
    /// A block was resized; it keeps its id. The old one stays if it failed.
    Resize {
        /// Which.
        id: u64,
        /// Bytes asked for.
        size: u64,
        /// Nothing changed.
        failed: bool,
    },
    /// The program says what is going on: `Trace::text` has the words.
    Mark {
        /// Which text.
        text: usize,
    },
    /// A scope of the thread begins.
    ScopeBegin {
        /// Which text is its name.
        text: usize,
    },
    /// The thread's innermost scope ends.
    ScopeEnd,
    /// A block was freed or resized that had not been recorded.
    Unknown,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Since the trace's start.
    pub time_ns: u64,
    /// 0, 1, 2 ... in the order of the threads' first calls.
    pub thread: u32,
    /// What happened.
    pub operation: Operation,
}

/// A trace that is being read.
pub struct Trace {
    path: PathBuf,
    input: std::io::Take<BufReader<File>>,
    header: Header,
    time_ns: u64,
    thread: u32,
    next_id: u64,
    texts: Vec<String>,
    record: u64,
}

impl Trace {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a trace; the error names the file.
    pub fn open(path: &Path) -> Result<Trace, String> {
        let named = |text: String| format!("{}: {text}", path.display());
        let mut file = File::open(path).map_err(|e| named(e.to_string()))?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact(&mut bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => named("is no trace: too short".into()),
            _ => named(e.to_string()),
        })?;
        let header = Header::parse(&bytes).map_err(named)?;
        let input = BufReader::with_capacity(BUFFER_BYTES, file).take(header.record_bytes);
        Ok(Trace {
            path: path.to_path_buf(),
            input,
            header,
            time_ns: 0,
            thread: 0,
            next_id: 0,
            texts: Vec::new(),
            record: 0,
        })
    }

    /// What is known of the process.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// A warning, if the trace ends before the process did: what is made of it holds for a part.
    pub fn warning(&self) -> Option<String> {
        let error = std::io::Error::from_raw_os_error(self.header.cut?);
        let path = self.path.display();
        Some(format!("mallow: warning: {path} ends early: {error}"))
    }

    fn byte(&mut self) -> Result<u8, String> {
        let mut byte = [0];
        self.input
            .read_exact(&mut byte)
            .map_err(|e| match e.kind() {
                ErrorKind::UnexpectedEof => "ends within a record".to_string(),
                _ => e.to_string(),
            })?;
        Ok(byte[0])
    }

    /// Seven bits a byte, least significant first, the top bit set in all but the last.
    fn number(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err("a number is too long".into())
    }

    /// The size of a block that is there.
    fn block_bytes(size: u64) -> Result<u64, String> {
        match size <= BLOCK_BYTES_MAX {
            true => Ok(size),
            false => Err(format!("a block of {size} bytes")),
        }
    }

    fn known_id(&mut self) -> Result<u64, String> {
        let distance = self.number()?;
        if distance == 0 {
            return Err("a block that was never given out".into());
        }
        self.next_id
            .checked_sub(distance)
            .ok_or_else(|| "a block that was never given out".into())
    }

    /// A text of a record that has been read.
    pub fn text(&self, number: usize) -> &str {
        &self.texts[number]
    }

    /// The number of a text, which follows where it is a new one.
    fn known_text(&mut self) -> Result<usize, String> {
        let number = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if number == self.texts.len() {
            let length = self.number()?;
            if length > TEXT_BYTES_MAX {
                return Err(format!("a text of {length} bytes"));
            }
            let bytes = (0..length)
                .map(|_| self.byte())
                .collect::<Result<Vec<_>, _>>()?;
            self.texts
                .push(String::from_utf8_lossy(&bytes).into_owned());
        }
        match number < self.texts.len() {
            true => Ok(number),
            false => Err("a text that was never said".into()),
        }
    }

    fn read_note(&mut self) -> Result<Operation, String> {
        Ok(match self.number()? {
            0 => Operation::Mark {
                text: self.known_text()?,
            },
            1 => Operation::ScopeBegin {
                text: self.known_text()?,
            },
            2 => Operation::ScopeEnd,
            other => return Err(format!("note {other} is none")),
        })
    }

    fn read_event(&mut self) -> Result<Event, String> {
        let first = self.byte()?;
        self.time_ns = self.time_ns.wrapping_add(self.number()?);
        if first & 8 != 0 {
            self.thread = u32::try_from(self.number()?).map_err(|_| "bad thread".to_string())?;
        }
        let failed = first & 64 != 0;
        let operation = match first & 7 {
            kind @ (1 | 4) => {
                let size = self.number()?;
                let shift = if first & 16 != 0 { self.number()? } else { 0 };
                if shift > 62 {
                    return Err(format!("bad alignment 2^{shift}"));
                }
                if failed {
                    Operation::Refused { size }
                } else {
                    self.next_id += 1;
                    Operation::Allocate {
                        id: self.next_id - 1,
                        size: Trace::block_bytes(size)?,
                        alignment: 1 << shift,
                        zeroed: first & 32 != 0,
                        inherited: kind == 4,
                    }
                }
            }
            2 => Operation::Free {
                id: self.known_id()?,
            },
            3 => {
                let (id, size) = (self.known_id()?, self.number()?);
                let size = match failed {
                    true => size,
                    false => Trace::block_bytes(size)?,
                };
                Operation::Resize { id, size, failed }
            }
            5 => Operation::Unknown,
            6 => self.read_note()?,
            other => return Err(format!("operation {other} is none")),
        };
        Ok(Event {
            time_ns: self.time_ns,
            thread: self.thread,
            operation,
        })
    }
}

impl Iterator for Trace {
    type Item = Result<Event, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.record == self.header.record_count {
            return None;
        }
        self.record += 1;
        let event = self.read_event().map_err(|text| {
            let (path, record) = (self.path.display().to_string(), self.record);
            self.record = self.header.record_count; // nothing can be read after it
            format!("{path}: record {record}: {text}")
        });
        Some(event)
    }
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, String> {
        if !bytes.starts_with(b"mwtrace\0") {
            return Err("is no trace of `mallow record`".into());
        }
        let u32_at = |at| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (version, length) = (u32_at(8), u32_at(12));
        if version != 1 || length as usize != HEADER_BYTES {
            return Err(format!(
                "is a trace of version {version}; this program reads version 1"
            ));
        }
        let flags = u32_at(40);
        let words = &bytes[COMMAND_AT..];
        let end = words.iter().rposition(|&byte| byte != 0);
        let command = words[..end.map_or(0, |last| last + 1)]
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        Ok(Header {
            record_bytes: u64_at(16),
            record_count: u64_at(24),
            cut: (flags & FLAG_CUT != 0).then_some(u32_at(44) as i32),
            ended: flags & FLAG_ENDED != 0,
            forked: flags & FLAG_FORKED != 0,
            pid: u32_at(48),
            live_bytes_peak: u64_at(56),
            live_count_peak: u64_at(64),
            block_count: u64_at(72),
            thread_count: u32_at(80),
            command,
        })
    }

    /// The command as one line, at most `width` characters of it.
    pub fn command_line(&self, width: usize) -> String {
        let line = output::printable(&self.command.join(" "));
        if line.chars().count() <= width {
            return line;
        }
        line.chars().take(width - 3).collect::<String>() + "..."
    }
}

/// Traces for the tests of this crate.
#[cfg(test)]
pub mod made {
    use std::path::{Path, PathBuf};

    /// Writes records as the recorder does.
    #[derive(Default)]
    pub struct Writer {
        records: Vec<u8>,
        count: u64,
        blocks: u64,
    }

    impl Writer {
        fn number(&mut self, mut value: u64) {
            while value >= 128 {
                self.records.push(value as u8 | 128);
                value >>= 7;
            }
            self.records.push(value as u8);
        }

        /// Any record: its first byte and its numbers, the time's step first.
        pub fn raw(&mut self, first: u8, numbers: &[u64]) {
            self.records.push(first);
            self.count += 1;
            for &number in numbers {
                self.number(number);
            }
        }

        /// A mark (0), or a scope's begin (1) or end (2), with the text if it is a new one.
        pub fn note(&mut self, kind: u64, number: u64, text: Option<&str>) {
            let all = [10, kind, number];
            self.raw(6, if kind == 2 { &all[..2] } else { &all });
            if let Some(text) = text {
                self.number(text.len() as u64);
                self.records.extend_from_slice(text.as_bytes());
            }
        }

        /// A block of `size` bytes; its id.
        pub fn allocate(&mut self, size: u64) -> u64 {
            self.raw(1, &[10, size]);
            self.blocks += 1;
            self.blocks - 1
        }

        /// An aligned one.
        pub fn allocate_aligned(&mut self, size: u64, shift: u64) -> u64 {
            self.raw(1 | 16, &[10, size, shift]);
            self.blocks += 1;
            self.blocks - 1
        }

        /// The block back.
        pub fn free(&mut self, id: u64) {
            self.raw(2, &[10, self.blocks - id]);
        }

        /// The block in another size.
        pub fn resize(&mut self, id: u64, size: u64) {
            self.raw(3, &[10, self.blocks - id, size]);
        }

        /// The file `name` in the tests' directory.
        pub fn write(&self, name: &str) -> PathBuf {
            let mut bytes = vec![0; super::HEADER_BYTES];
            bytes[..8].copy_from_slice(b"mwtrace\0");
            bytes[8] = 1;
            bytes[12..16].copy_from_slice(&(super::HEADER_BYTES as u32).to_le_bytes());
            bytes[16..24].copy_from_slice(&(self.records.len() as u64).to_le_bytes());
            bytes[24..32].copy_from_slice(&self.count.to_le_bytes());
            bytes[256..260].copy_from_slice(b"job\0");
            bytes.extend_from_slice(&self.records);
            let directory = std::env::temp_dir().join("mallow-trace-tests");
            std::fs::create_dir_all(&directory).unwrap();
            let path = directory.join(format!("{}-{name}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    /// All events of a file, or the first error.
    pub fn read(path: &Path) -> Result<Vec<super::Event>, String> {
        super::Trace::open(path)?.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::made::{read, Writer};
    use super::*;

    #[test]
    fn ids_times_and_threads_are_restored() {
        let mut writer = Writer::default();
        let first = writer.allocate(300);
        writer.allocate_aligned(64, 12);
        writer.raw(2 | 8, &[1_000_000, 5, 2 - first]);
        let path = writer.write("ids");
        let events = read(&path).unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!((events[0].time_ns, events[0].thread), (10, 0));
        assert_eq!((events[2].time_ns, events[2].thread), (1_000_020, 5));
        assert_eq!(events[2].operation, Operation::Free { id: 0 });
        let aligned = Operation::Allocate {
            id: 1,
            size: 64,
            alignment: 4096,
            zeroed: false,
            inherited: false,
        };
        assert_eq!(events[1].operation, aligned);
    }

    #[test]
    fn a_refused_request_takes_no_id() {
        let mut writer = Writer::default();
        writer.raw(1 | 64, &[1, u64::MAX]);
        writer.allocate(8);
        writer.resize(0, 20);
        let events = read(&writer.write("refused")).unwrap();
        assert_eq!(events[0].operation, Operation::Refused { size: u64::MAX });
        assert!(matches!(
            events[1].operation,
            Operation::Allocate { id: 0, .. }
        ));
        assert!(matches!(
            events[2].operation,
            Operation::Resize {
                id: 0,
                size: 20,
                ..
            }
        ));
    }

    #[test]
    fn bad_files_are_named_with_the_record() {
        let mut writer = Writer::default();
        writer.allocate(8);
        writer.raw(2, &[1, 9]);
        let error = read(&writer.write("far")).unwrap_err();
        assert!(
            error.contains("record 2") && error.contains("never given out"),
            "{error}"
        );

        let mut writer = Writer::default();
        writer.raw(7, &[1]);
        let error = read(&writer.write("kind")).unwrap_err();
        assert!(error.contains("operation 7"), "{error}");

        let path = Writer::default().write("short");
        std::fs::write(&path, b"mwtrace").unwrap();
        assert!(read(&path).unwrap_err().contains("too short"));
        std::fs::write(&path, vec![b'x'; 5000]).unwrap();
        assert!(read(&path).unwrap_err().contains("no trace"));
    }

    #[test]
    fn blocks_larger_than_any_address_space_are_none() {
        for size in [BLOCK_BYTES_MAX + 1, u64::MAX] {
            let mut writer = Writer::default();
            writer.allocate(size);
            let error = read(&writer.write("large")).unwrap_err();
            assert!(
                error.contains(&format!("record 1: a block of {size} bytes")),
                "{error}"
            );
            let mut writer = Writer::default();
            writer.allocate(8);
            writer.resize(0, size);
            assert!(read(&writer.write("larger")).is_err());
        }
    }

    #[test]
    fn the_command_is_shown_with_all_its_words_and_does_nothing_to_the_terminal() {
        let path = Writer::default().write("words");
        let mut bytes = std::fs::read(&path).unwrap();
        let words = b"job\0\0a\x1b[31mb\0last\0";
        bytes[COMMAND_AT..COMMAND_AT + words.len()].copy_from_slice(words);
        std::fs::write(&path, bytes).unwrap();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.header().command.len(), 4);
        assert_eq!(trace.header().command_line(100), "job  a\\u{1b}[31mb last");
    }

    #[test]
    fn what_follows_the_records_is_not_read() {
        let mut writer = Writer::default();
        writer.allocate(8);
        let path = writer.write("slack");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend_from_slice(&[0; 1000]);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
    }
}
