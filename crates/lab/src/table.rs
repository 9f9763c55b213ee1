//! Tables with columns of text, aligned to the left, and then columns of figures, aligned to the right. A table wider
//! than the terminal is shown in parts, one below the other; each part begins with the columns that identify a row.

use crate::term;
use std::fmt;

/// A table. A row may have fewer cells than there are columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Titles above several columns: each text, and the number of its columns.
    groups: Vec<(String, usize)>,
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
    /// Number of columns after the first that are aligned to the left too.
    more_left: usize,
    /// Number of columns after the first that identify a row.
    more_keys: usize,
}

const GAP: usize = 2;

impl Table {
    /// A table with these column titles.
    pub(crate) fn new(titles: &[&str]) -> Table {
        Table { titles: titles.iter().map(|&t| t.to_owned()).collect(), ..Table::default() }
    }

    /// Adds a line above the titles: each text, and the number of columns below it.
    pub(crate) fn groups(mut self, groups: &[(&str, usize)]) -> Table {
        self.groups = groups.iter().map(|&(t, n)| (t.to_owned(), n)).collect();
        self
    }

    /// Aligns the first `n` columns to the left, for text. Default: one.
    pub(crate) fn left_columns(mut self, n: usize) -> Table {
        self.more_left = n.saturating_sub(1);
        self
    }

    /// Declares that the first `n` columns identify a row. Each part of the table begins with them. Default: one.
    pub(crate) fn key_columns(mut self, n: usize) -> Table {
        self.more_keys = n.saturating_sub(1);
        self
    }

    /// A table of these columns only, without the notes.
    fn of(&self, columns: &[usize]) -> Table {
        let cells = |row: &[String]| -> Vec<String> {
            columns.iter().map(|&c| row.get(c).cloned().unwrap_or_default()).collect()
        };
        let group_of = self.groups.iter().enumerate().flat_map(|(i, (_, n))| vec![i; *n]);
        let group_of: Vec<usize> = group_of.collect();
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for group in columns.iter().filter_map(|&c| group_of.get(c)) {
            match groups.last_mut() {
                Some((last, n)) if last == group => *n += 1,
                _ => groups.push((*group, 1)),
            }
        }
        Table {
            groups: groups.into_iter().map(|(g, n)| (self.groups[g].0.clone(), n)).collect(),
            titles: cells(&self.titles),
            rows: self.rows.iter().map(|r| cells(r)).collect(),
            more_left: columns.iter().filter(|&&c| c <= self.more_left).count().saturating_sub(1),
            ..Table::default()
        }
    }

    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP * widths.len()
    }

    /// Splits the table into parts that are at most `width` wide. A part has at least one column beside the keys.
    fn parts(&self, width: usize) -> Vec<Table> {
        let nr_columns = self.titles.len();
        let keys: Vec<usize> = (0..nr_columns.min(1 + self.more_keys)).collect();
        let mut parts = Vec::new();
        let mut columns = keys.clone();
        for c in keys.len()..nr_columns {
            columns.push(c);
            if columns.len() > keys.len() + 1 && self.of(&columns).width() > width {
                columns.pop();
                parts.push(self.of(&columns));
                columns = [&keys[..], &[c]].concat();
            }
        }
        parts.push(self.of(&columns));
        parts
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.titles.iter().map(|t| t.chars().count()).collect();
        for row in &self.rows {
            for (w, cell) in widths.iter_mut().zip(row) {
                *w = (*w).max(cell.chars().count());
            }
        }
        // A group title that is wider than its columns widens the first of them.
        let mut first = 0;
        for (text, n) in &self.groups {
            let n = (*n).min(widths.len() - first);
            let span = &mut widths[first..first + n];
            let have = span.iter().sum::<usize>() + GAP * n.saturating_sub(1);
            let want = text.chars().count();
            if let Some(w) = span.first_mut()
                && want > have
            {
                *w += want - have;
            }
            first += n;
        }
        widths
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, cells: &[String], widths: &[usize]) -> fmt::Result {
        let mut text = String::new();
        for (i, (cell, &w)) in cells.iter().zip(widths).enumerate() {
            if i == 0 {
                text += &format!("  {cell:<w$}");
            } else if i <= self.more_left {
                text += &format!("{:GAP$}{cell:<w$}", "");
            } else {
                text += &format!("{:GAP$}{cell:>w$}", "");
            }
        }
        writeln!(f, "{}", text.trim_end())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = term::width();
        if self.width() <= width {
            self.draw(f)?;
        } else {
            for (i, part) in self.parts(width).iter().enumerate() {
                if i > 0 {
                    writeln!(f)?;
                }
                part.draw(f)?;
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

impl Table {
    fn draw(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        if self.groups.iter().any(|(title, _)| !title.is_empty()) {
            let mut text = String::from("  ");
            let mut first = 0;
            for (title, n) in &self.groups {
                let n = (*n).min(widths.len() - first);
                let w = widths[first..first + n].iter().sum::<usize>() + GAP * n.saturating_sub(1);
                // Dashes before the title fill the width of its columns.
                let dashes = w - title.chars().count();
                let cell = match (title.is_empty(), dashes) {
                    (true, _) => " ".repeat(w),
                    (false, 0 | 1) => format!("{title:>w$}"),
                    (false, _) => format!("{} {title}", "─".repeat(dashes - 1)),
                };
                if first > 0 {
                    text += &" ".repeat(GAP);
                }
                text += &cell;
                first += n;
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        self.line(f, &self.titles, &widths)?;
        self.rows.iter().try_for_each(|row| self.line(f, row, &widths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_is_shown_in_parts_with_the_keys_in_each() {
        let titles = ["name", "kind", "one", "two", "three", "four"];
        let mut t = Table::new(&titles)
            .groups(&[("", 2), ("a rate", 3), ("", 1)])
            .left_columns(2)
            .key_columns(2);
        t.row(["seq", "write", "1,000", "2,000", "3,000", "4,000"].map(str::to_owned));
        let parts = t.parts(30);
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(|p| p.width() <= 30), "{parts:?}");
        assert_eq!(parts[1].titles, ["name", "kind", "three", "four"]);
        assert_eq!(
            parts[1].groups,
            [(String::new(), 2), ("a rate".to_owned(), 1), (String::new(), 1)]
        );
        assert_eq!(parts[1].rows[0], ["seq", "write", "3,000", "4,000"]);
        // A part shows at least one column beside the keys, however wide it is.
        assert_eq!(t.parts(5).len(), 4);
        assert_eq!(t.parts(1000).len(), 1);
    }

    #[test]
    fn columns_are_aligned_and_groups_stand_over_them() {
        let mut t = Table::new(&["work", "plug", "none"]).groups(&[("", 1), ("a rate", 2)]);
        t.row(["seq".to_owned(), "1,234".to_owned(), "5".to_owned()]);
        t.row(["random".to_owned(), "7".to_owned()]);
        let want = [
            "          ──── a rate",
            "  work     plug  none",
            "  seq     1,234     5",
            "  random      7",
            "",
        ]
        .join("\n");
        assert_eq!(t.to_string(), want);
    }

    #[test]
    fn words_are_aligned_to_the_left() {
        let mut t = Table::new(&["a", "word", "n"]).left_columns(2);
        t.row(["x".to_owned(), "b".to_owned(), "12".to_owned()]);
        assert_eq!(t.to_string(), "  a  word   n\n  x  b     12\n");
    }

    #[test]
    fn a_wide_group_widens_its_columns() {
        let mut t = Table::new(&["w", "a"]).groups(&[("", 1), ("a long title", 1)]);
        t.row(["x".to_owned(), "1".to_owned()]);
        assert!(t.to_string().lines().all(|l| l.chars().count() == 2 + 1 + 2 + 12));
    }
}
