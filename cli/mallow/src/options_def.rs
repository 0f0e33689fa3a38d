// SPDX-License-Identifier: MIT
//! Reads `src/options.def`: rows `MALLOW_OPTION(name, TYPE, "default", "unit", settable, "help")`.
//! Used by build.rs to make the table, and by the tests.

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Lower-case name with underscores.
    pub name: String,
    /// SWITCH, SIZE, COUNT, LIMIT, PERCENT or TEXT.
    pub kind: String,
    /// The default as it would be written.
    pub default: String,
    /// Unit, possibly empty.
    pub unit: String,
    /// START or ALWAYS.
    pub settable: String,
    /// One sentence.
    pub help: String,
}

impl Row {
    /// The row as a Rust expression of type `LibraryOption`, with a comma and a new line.
    pub fn as_rust(&self) -> String {
        let kind = match self.kind.as_str() {
            "SWITCH" => "Kind::Switch",
            "SIZE" => "Kind::Size",
            "COUNT" => "Kind::Count",
            "LIMIT" => "Kind::Limit",
            "PERCENT" => "Kind::Percent",
            _ => "Kind::Text",
        };
        format!(
            "    LibraryOption {{ name: {:?}, flag: {:?}, variable: {:?}, kind: {kind}, default: {:?}, \
             unit: {:?}, help: {:?} }},\n",
            self.name,
            self.name.replace('_', "-"),
            format!("MALLOW_{}", self.name.to_uppercase()),
            self.default,
            self.unit,
            self.help
        )
    }
}

const MACRO: &str = "MALLOW_OPTION(";

/// All rows of the file; the error names the line.
pub fn parse(text: &str) -> Result<Vec<Row>, String> {
    let code = without_comments(text);
    let mut rows: Vec<Row> = Vec::new();
    let mut rest = code.as_str();
    while let Some(at) = rest.find(MACRO) {
        let line = 1 + code[..code.len() - rest.len() + at].matches('\n').count();
        let fail = |what: String| format!("line {line}: {what}");
        rest = &rest[at + MACRO.len()..];
        let (fields, length) = arguments(rest).map_err(fail)?;
        rest = &rest[length..];
        let row = row_of(&fields).map_err(fail)?;
        if rows.iter().any(|r| r.name == row.name) {
            return Err(fail(format!("option '{}' is there twice", row.name)));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err("no MALLOW_OPTION rows".into());
    }
    Ok(rows)
}

fn row_of(fields: &[String]) -> Result<Row, String> {
    let [name, kind, default, unit, settable, help] = fields else {
        return Err(format!("{} fields instead of 6", fields.len()));
    };
    if !matches!(
        kind.as_str(),
        "SWITCH" | "SIZE" | "COUNT" | "LIMIT" | "PERCENT" | "TEXT"
    ) {
        return Err(format!("option '{name}' has the unknown type '{kind}'"));
    }
    if matches!(name.as_str(), "help" | "lib" | "version") {
        return Err(format!(
            "option '{name}' collides with one of the tool's own"
        ));
    }
    Ok(Row {
        name: name.clone(),
        kind: kind.clone(),
        default: default.clone(),
        unit: unit.clone(),
        settable: settable.clone(),
        help: help.clone(),
    })
}

/// Blanks `//` comments, outside of strings, and preprocessor lines; keeps the lines.
fn without_comments(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut in_string = false;
        let mut previous = ' ';
        let mut end = line.len();
        for (at, c) in line.char_indices() {
            match c {
                '"' if previous != '\\' => in_string = !in_string,
                '/' if previous == '/' && !in_string => {
                    end = at - 1;
                    break;
                }
                _ => {}
            }
            previous = c;
        }
        if !line.trim_start().starts_with('#') {
            out.push_str(&line[..end]);
        }
        out.push('\n');
    }
    out
}

/// The arguments up to the closing parenthesis, and how much text they took. Adjacent strings are one.
fn arguments(text: &str) -> Result<(Vec<String>, usize), String> {
    let mut fields = vec![String::new()];
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        let field = fields.last_mut().expect("never empty");
        match c {
            ')' => return Ok((fields, at + 1)),
            ',' => fields.push(String::new()),
            '"' => loop {
                match chars.next().map(|(_, c)| c) {
                    Some('"') => break,
                    Some('\\') => match chars.next().map(|(_, c)| c) {
                        Some('n') => field.push('\n'),
                        Some(escaped) => field.push(escaped),
                        None => return Err("the string does not end".into()),
                    },
                    Some(other) => field.push(other),
                    None => return Err("the string does not end".into()),
                }
            },
            c if c.is_whitespace() => {}
            c => field.push(c),
        }
    }
    Err("the row does not end".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_comments_and_broken_lines() {
        let rows = parse(
            "// MALLOW_OPTION(no, SWITCH)\n\
             //  name  type\n\
             MALLOW_OPTION(huge_cache, SIZE, \"32M\", \"bytes\", ALWAYS, \"a, \\\"b\\\" // (c)\") // end\n\
             MALLOW_OPTION(stats, SWITCH, \"0\", \"\", START,\n   \"one \"\n   \"two\")\n",
        )
        .unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].help, "a, \"b\" // (c)");
        assert_eq!(
            (rows[1].name.as_str(), rows[1].help.as_str()),
            ("stats", "one two")
        );
        assert!(rows[0]
            .as_rust()
            .contains("flag: \"huge-cache\", variable: \"MALLOW_HUGE_CACHE\""));
    }

    #[test]
    fn faults_name_the_line() {
        let five = "\n\nMALLOW_OPTION(a, SWITCH, \"0\", \"\", START)\n";
        assert_eq!(parse(five).unwrap_err(), "line 3: 5 fields instead of 6");
        let kind = "MALLOW_OPTION(a, FLOAT, \"0\", \"\", START, \"\")";
        assert!(parse(kind).unwrap_err().contains("'FLOAT'"));
        let open = "MALLOW_OPTION(a, TEXT, \"0";
        assert!(parse(open).unwrap_err().contains("does not end"));
        assert!(parse("int x;").is_err());
        let twice = "MALLOW_OPTION(a, TEXT, \"\", \"\", START, \"\")\n".repeat(2);
        assert!(parse(&twice).unwrap_err().contains("twice"));
    }
}
