// SPDX-License-Identifier: MIT
//! Tables for a terminal, and figures in few digits.

/// A table with one heading line; the first column is aligned left, all others right.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        Table {
            rows: vec![headings.into_iter().map(Into::into).collect()],
        }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text, two spaces between columns, no space at a line's end.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(column))
                .map(|c| c.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                if column == 0 {
                    line.push_str(cell);
                    line.push_str(&padding);
                } else {
                    line.push_str("  ");
                    line.push_str(&padding);
                    line.push_str(cell);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
            if number == 0 {
                let length: usize = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                text.push_str(&"-".repeat(length));
                text.push('\n');
            }
        }
        text
    }
}

/// A time in seconds with three significant digits at least.
pub fn seconds(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.1}")
    } else if value >= 1.0 {
        format!("{value:.2}")
    } else if value >= 0.1 {
        format!("{value:.3}")
    } else {
        format!("{value:.4}")
    }
}

/// Bytes in MiB.
pub fn mebibytes(bytes: f64) -> String {
    let value = bytes / f64::from(1 << 20);
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A count, shortened from 100,000 on.
pub fn count(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.2}G", v / 1e9),
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e5 => format!("{:.0}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// A ratio with two decimals, `-` if there is none.
pub fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["name", "x"]);
        table.row(["a", "1.25"]);
        table.row(["longer", "10"]);
        assert_eq!(
            table.render(),
            "name       x\n------------\na       1.25\nlonger    10\n"
        );
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(seconds(0.01234), "0.0123");
        assert_eq!(seconds(12.345), "12.35");
        assert_eq!(mebibytes(1_572_864.0), "1.50");
        assert_eq!(count(1_234_567.0), "1.23M");
        assert_eq!(ratio(None), "-");
        assert_eq!(ratio(Some(1.0 / 3.0)), "0.33");
    }
}
