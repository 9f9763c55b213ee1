//! The meaning of the columns of a table: from its line of titles, or from the caller's names.

use super::number::{shown, wide};
use zoneplug_core::{Error, Nanos};

/// The meaning of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Time,
    Op,
    /// 0 for a read, 1 for a write.
    IsWrite,
    Begin,
    Length,
    Device,
    /// The event of the block layer: `Q`, `D` or `C`.
    Action,
}

/// Number of roles.
const ROLES: usize = 7;

/// The fields of a line by their roles.
pub(super) type Found<'a> = [Option<&'a [u8]>; ROLES];

/// Titles with their roles and the nanoseconds or bytes of their units. If two titles have one
/// role, the one listed first here counts.
const TITLES: [(&str, Role, u64); 16] = [
    ("time_s", Role::Time, 1_000_000_000),
    ("time_ms", Role::Time, 1_000_000),
    ("time_us", Role::Time, 1_000),
    ("time_100ns", Role::Time, 100),
    ("time_ns", Role::Time, 1),
    ("op", Role::Op, 1),
    ("rwbs", Role::Op, 1),
    ("is_write", Role::IsWrite, 1),
    ("offset", Role::Begin, 1),
    ("sector", Role::Begin, 512),
    ("length", Role::Length, 1),
    ("bytes", Role::Length, 1),
    ("sectors", Role::Length, 512),
    ("device", Role::Device, 1),
    ("disk", Role::Device, 1),
    ("action", Role::Action, 1),
];

/// Titles of tables that are public or that tools print, and the columns under them. Such titles name no units.
const KNOWN: [(&str, &str); 3] = [
    // SYSTOR '17.
    ("timestamp,response,iotype,lun,offset,size", "time_s,-,op,device,offset,length"),
    // MSR Cambridge, where the titles were written above the lines.
    ("timestamp,hostname,disknumber,type,offset,size", "time_100ns,-,device,op,offset,length"),
    // biosnoop.
    ("time(s),comm,pid,disk,t,sector,bytes", "time_s,-,-,device,op,sector,length"),
];

/// Separators, in the order in which they are tried. A space stands for any number of blanks.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b' '];

const TRY: &str = "names such as time_us,op,offset,length, with - for a column that is ignored; the page on models lists them";

/// The columns of a table.
///
/// ```
/// use zoneplug_models::time::trace::Columns;
/// assert!(Columns::parse("time_us,op,offset,length").is_ok());
/// // Microsoft's traces of servers: ticks of 100 ns, a host, a disk, the operation and its place.
/// assert!(Columns::parse("time_100ns,-,device,op,offset,length").is_ok());
/// assert!(Columns::parse("time_us,op,offset").unwrap_err().to_string().contains("no column"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// The role of each column, up to the last that has one.
    roles: Vec<Option<Role>>,
    units: [u64; ROLES],
    separator: u8,
    /// A column whose fields may have blanks although blanks separate the fields.
    spaced: Option<Spaced>,
    /// The caller gives them, whatever the titles of the table are.
    named: bool,
    /// The time from which times count, once a line has told it.
    epoch: Option<i128>,
}

/// A column of names, such as those of processes: `jbd2 sda1`. A line has more fields than titles if its name has blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spaced {
    /// The number of the column behind it.
    end: usize,
    /// The number of titles.
    titles: usize,
}

/// The nanoseconds by which times may be earlier than that of the first line: 146 years. Those of a clock that counts
/// from the year 1 (.NET), or that begins below 0, have more than 64 bits.
const BEFORE: i128 = 1 << 62;

impl Columns {
    /// Parses the names of columns, separated by commas, for a table without titles. `-` stands for
    /// an ignored column; columns after the last name are ignored too. Fails if a name is unknown,
    /// or if a required column is missing.
    pub fn parse(names: &str) -> Result<Columns, Error> {
        let wrong = |what: String| Err(Error::invalid(what).hint(TRY));
        let mut columns = Columns::none(b',');
        for (i, name) in names.split(',').map(str::trim).enumerate() {
            if matches!(name, "" | "-") {
                continue;
            }
            let Some((_, role, unit)) = title(name.as_bytes()) else {
                return wrong(format!("{} is no column of a trace", shown(name.as_bytes())));
            };
            // An operation is in one column, whether that is `op` or `is_write`.
            if columns.roles.iter().flatten().any(|r| r.what() == role.what()) {
                return wrong(format!("two columns for the {}", role.what()));
            }
            columns.set(i, role, unit);
        }
        match columns.missing() {
            None => Ok(columns),
            Some(role) => wrong(format!("no column for the {} in '{names}'", role.what())),
        }
    }

    /// Parses a line of titles; `None` if the line is not one.
    pub(super) fn of(titles: &[u8]) -> Option<Columns> {
        SEPARATORS.iter().find_map(|separator| {
            let mut columns = Columns::none(*separator);
            // If two titles have one role, the one first in the list of titles is taken.
            let mut ranks = [usize::MAX; ROLES];
            for (i, field) in Fields::of(titles, *separator).enumerate() {
                if let Some((rank, role, unit)) = title(field)
                    && rank < ranks[role as usize]
                {
                    ranks[role as usize] = rank;
                    columns.roles.iter_mut().filter(|r| **r == Some(role)).for_each(|r| *r = None);
                    columns.set(i, role, unit);
                }
            }
            columns.missing().is_none().then_some(columns).or_else(|| known(titles, *separator))
        })
    }

    /// Returns these columns as those that the caller gives for a table with this first line. Its separator is a guess
    /// until a line [settles](Columns::settle) it: the first line may be a comment, or cut off.
    pub(super) fn separated_as(mut self, first: &[u8]) -> Columns {
        let has_all = |s: &&u8| Fields::of(first, **s).count() >= self.roles.len();
        self.separator = SEPARATORS.iter().find(has_all).copied().unwrap_or(b',');
        self.named = true;
        self
    }

    /// Takes what the first operation of the table tells: the separator, if the caller named the columns, and when
    /// times begin. `operation` returns the time of a line whose fields are one.
    pub(super) fn take_first_operation(
        &mut self,
        line: &[u8],
        operation: impl Fn(&Columns, &Found<'_>) -> Option<i128>,
    ) {
        let first_guess = self.separator;
        let tried = if self.named { &SEPARATORS[..] } else { &[first_guess] };
        for separator in tried {
            self.separator = *separator;
            if let Some(time) = operation(self, &self.find(line)) {
                self.epoch = Some(time - BEFORE);
                return;
            }
        }
        self.separator = first_guess;
    }

    /// Whether a line has settled the columns.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.epoch.is_some()
    }

    /// Whether the caller has named the columns, and no line has been an operation yet.
    pub(super) fn is_guess(&self) -> bool {
        self.named && !self.is_settled()
    }

    /// Parses a time, as nanoseconds since the epoch of the table. `None`: it is no number, or more than a century away.
    #[inline]
    pub(super) fn time(&self, word: &[u8]) -> Option<Nanos> {
        let time = wide(word, self.unit(Role::Time))? - self.epoch.unwrap_or(0);
        u64::try_from(time).ok().map(Nanos)
    }

    /// Whether a line has words where values are numbers: neither its time nor its place is one. A comment has no fields.
    pub(super) fn has_words_for_numbers(&self, line: &[u8]) -> bool {
        let found = self.find(line);
        let numbers = [Role::Time, Role::Begin, Role::Length].map(|role| found[role as usize]);
        let [Some(time), Some(_), Some(_)] = numbers else { return false };
        let has_digits = numbers.iter().flatten().any(|n| n.iter().any(u8::is_ascii_digit));
        !time.is_empty() && !line.starts_with(b"#") && (!has_digits || title(time).is_some())
    }

    /// Whether the caller has named the columns, so that titles mean nothing.
    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    /// Whether the titles in a line further down leave these columns as they are. `None`: the line has no titles, or the
    /// caller has named the columns.
    ///
    /// A table that was appended to this one begins with its titles.
    pub(super) fn titles_agree(&self, line: &[u8]) -> Option<bool> {
        let has_titles = Fields::of(line, self.separator).any(|f| title(f).is_some());
        (!self.named && has_titles && self.has_words_for_numbers(line)).then(|| {
            let same = |other: Columns| other.roles == self.roles && other.units == self.units;
            Columns::of(line).is_some_and(same)
        })
    }

    /// Returns the fields of a line by their roles.
    #[inline]
    pub(super) fn find<'a>(&self, line: &'a [u8]) -> Found<'a> {
        let mut found = [None; ROLES];
        let mut fields = Fields::of(line, self.separator);
        let mut roles = &self.roles[..];
        if let Some(Spaced { end, titles }) = self.spaced {
            let excess = Fields::of(line, self.separator).count().saturating_sub(titles);
            let (first, behind) = roles.split_at(end);
            take(first, fields.by_ref().take(end), &mut found);
            fields.by_ref().take(excess).for_each(drop);
            roles = behind;
        }
        take(roles, fields, &mut found);
        found
    }

    /// The nanoseconds or bytes of the unit of a column.
    pub(super) fn unit(&self, role: Role) -> u64 {
        self.units[role as usize]
    }

    /// Whether the table has such a column.
    pub(super) fn has(&self, role: Role) -> bool {
        self.roles.contains(&Some(role))
    }

    fn none(separator: u8) -> Columns {
        let roles = Vec::new();
        Columns { roles, units: [1; ROLES], separator, spaced: None, named: false, epoch: None }
    }

    fn set(&mut self, i: usize, role: Role, unit: u64) {
        if self.roles.len() <= i {
            self.roles.resize(i + 1, None);
        }
        self.roles[i] = Some(role);
        self.units[role as usize] = unit;
    }

    /// Returns a required column that this table lacks.
    fn missing(&self) -> Option<Role> {
        let needed = [Role::Time, Role::Op, Role::Begin, Role::Length];
        let is_there = |r: &Role| self.has(*r) || *r == Role::Op && self.has(Role::IsWrite);
        needed.into_iter().find(|r| !is_there(r))
    }
}

/// Takes the fields of these columns that have roles.
#[inline]
fn take<'a>(roles: &[Option<Role>], fields: impl Iterator<Item = &'a [u8]>, found: &mut Found<'a>) {
    for (role, field) in roles.iter().zip(fields) {
        if let Some(role) = role {
            found[*role as usize] = Some(field);
        }
    }
}

impl Role {
    fn what(self) -> &'static str {
        match self {
            Role::Time => "time",
            Role::Op | Role::IsWrite => "operation",
            Role::Begin => "place",
            Role::Length => "length",
            Role::Device => "device",
            Role::Action => "action",
        }
    }
}

/// Returns the rank of a title among [`TITLES`], its role and its unit. A unit may also stand in
/// brackets: `TIME(us)`.
fn title(name: &[u8]) -> Option<(usize, Role, u64)> {
    let bare = |b: &u8| !matches!(b, b'(' | b'[' | b')' | b']' | b' ');
    let is = |title: &str| {
        let with_unit = title.starts_with("time_");
        let plain = name.eq_ignore_ascii_case(title.as_bytes());
        let in_brackets = with_unit
            && matches!(name.last(), Some(b')' | b']'))
            && name
                .iter()
                .copied()
                .filter(bare)
                .map(|b| b.to_ascii_lowercase())
                .eq(title.bytes().filter(|b| *b != b'_'));
        plain || in_brackets
    };
    TITLES.iter().enumerate().find(|(_, t)| is(t.0)).map(|(i, t)| (i, t.1, t.2))
}

/// Returns the columns of a table whose titles are, or begin with, [`KNOWN`] ones.
fn known(titles: &[u8], separator: u8) -> Option<Columns> {
    let begins = |with: &str| {
        let mut fields = Fields::of(titles, separator);
        with.split(',').all(|t| fields.next().is_some_and(|f| f.eq_ignore_ascii_case(t.as_bytes())))
    };
    let (_, columns) = KNOWN.iter().find(|(with, _)| begins(with))?;
    let titles: Vec<&[u8]> = Fields::of(titles, separator).collect();
    let name = titles.iter().position(|t| t.eq_ignore_ascii_case(b"comm"));
    let spaced = name.filter(|_| separator == b' ');
    let spaced = spaced.map(|at| Spaced { end: at + 1, titles: titles.len() });
    Some(Columns { separator, spaced, ..Columns::parse(columns).ok()? })
}

/// The fields of a line, without the blanks and the quotes around them.
struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    fn of(line: &'a [u8], separator: u8) -> Fields<'a> {
        Fields { rest: Some(line.trim_ascii_end()), separator }
    }

    fn ends(&self, byte: u8) -> bool {
        byte == self.separator || self.separator == b' ' && byte.is_ascii_whitespace()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let mut rest = self.rest?;
        while let [b, behind @ ..] = rest
            && b.is_ascii_whitespace()
            && (*b != self.separator || *b == b' ')
        {
            rest = behind;
        }
        if self.separator == b' ' && rest.is_empty() {
            self.rest = None;
            return None;
        }
        if let [b'"', quoted @ ..] = rest
            && let Some(n) = closing(quoted)
        {
            let behind = &quoted[n + 1..];
            let next = behind.iter().position(|b| self.ends(*b));
            self.rest = next.map(|i| &behind[i + 1..]);
            return Some(quoted[..n].trim_ascii());
        }
        match rest.iter().position(|b| self.ends(*b)) {
            Some(i) => {
                self.rest = Some(&rest[i + 1..]);
                Some(rest[..i].trim_ascii_end())
            }
            None => {
                self.rest = None;
                Some(rest)
            }
        }
    }
}

/// Returns the index of the quote that closes a field. Two quotes are one of its text.
fn closing(quoted: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += quoted[at..].iter().position(|b| *b == b'"')?;
        if quoted.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, separator: u8) -> Vec<String> {
        let text = |f: &[u8]| String::from_utf8_lossy(f).into_owned();
        Fields::of(line.as_bytes(), separator).map(text).collect()
    }

    #[test]
    fn a_line_has_fields() {
        for (line, separator, are) in [
            ("a,b,,c\r\n", b',', vec!["a", "b", "", "c"]),
            (" a , b ,c ", b',', vec!["a", "b", "c"]),
            ("a,", b',', vec!["a", ""]),
            ("\"a\",\"b,c\", \"d\"\"e\" ,f", b',', vec!["a", "b,c", "d\"\"e", "f"]),
            ("\"a,b", b',', vec!["\"a", "b"]),
            ("a;1,5;\"b;c\"", b';', vec!["a", "1,5", "b;c"]),
            ("a\t\tb c\t d", b'\t', vec!["a", "", "b c", "d"]),
            ("  a   b\tc  ", b' ', vec!["a", "b", "c"]),
            ("", b',', vec![""]),
        ] {
            assert_eq!(fields(line, separator), are, "{line:?}");
        }
    }

    #[test]
    fn titles_say_what_columns_are() {
        let with = |titles: &str| Columns::of(titles.as_bytes());
        let plain = with("time_us,op,offset,length").unwrap();
        for same in [
            "TIME_US, Op ,offset,Length\r\n",
            "\"time_us\",\"op\",\"offset\",\"length\"",
            "time(us),op,offset,length",
            "time [us],rwbs,offset,bytes",
        ] {
            assert_eq!(with(same), Some(plain.clone()), "{same}");
        }
        for (other, separator) in [
            ("time_us;op;offset;length", b';'),
            ("time_us\top\toffset\tlength", b'\t'),
            ("time_us  op  offset  length", b' '),
        ] {
            assert_eq!(with(other), Some(Columns { separator, ..plain.clone() }), "{other}");
        }
        // A byte offset is exact; a sector may be rounded.
        let both = with("sector,time_s,op,offset,length,sectors").unwrap();
        assert_eq!((both.unit(Role::Begin), both.unit(Role::Length)), (1, 1));
        for (titles, are) in [
            ("Timestamp,Response,IOType,LUN,Offset,Size\r\n", "time_s,-,op,device,offset,length"),
            (
                "\"Timestamp\",\"Hostname\",\"DiskNumber\",\"Type\",\"Offset\",\"Size\",\"ResponseTime\"",
                "time_100ns,-,device,op,offset,length",
            ),
            (
                "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES   QUE(ms) LAT(ms)\n",
                "time_s,-,-,device,op,sector,length",
            ),
        ] {
            let comm = Spaced { end: 2, titles: 9 };
            let (separator, spaced) =
                if titles.contains(',') { (b',', None) } else { (b' ', Some(comm)) };
            let named = Columns { separator, spaced, ..Columns::parse(are).unwrap() };
            assert_eq!(with(titles), Some(named), "{titles}");
        }
        for none in
            ["time,op,offset,length", "time_us,op,offset", "8,0 1 2 0.0 697 Q W 8 + 8 [x]", ""]
        {
            assert_eq!(with(none), None, "{none}");
        }
    }

    #[test]
    fn columns_may_be_named() {
        let msr = Columns::parse("time_100ns,-,device,op,offset,length").unwrap();
        assert_eq!(msr.unit(Role::Time), 100);
        let line = b"128166372003061629,hm,0,Read,383496192,32768,413";
        let found = msr.clone().separated_as(line).find(line);
        assert_eq!(found[Role::Op as usize], Some(&b"Read"[..]));
        assert_eq!(found[Role::Device as usize], Some(&b"0"[..]));
        assert!(
            !msr.has_words_for_numbers(line)
                && msr.has_words_for_numbers(b"Timestamp,Host,Disk,Type,Offset,Size")
        );
        assert!(!msr.has_words_for_numbers(b"x,hm,0,Read,383496192,32768"));
        assert_eq!(msr.clone().separated_as(b"1\tb\t3\tR\t5\t6").separator, b'\t');
        assert_eq!(msr.separated_as(b"  1  b  3  R  5  6").separator, b' ');
        assert!(Columns::parse("time_s,sector,sectors,is_write,device").is_ok());
        for (names, says) in [
            ("", "no column for the time"),
            ("time_us,op,offset", "no column for the length"),
            ("time_us,offset,length", "no column for the operation"),
            ("time_us,op,offset,length,size", "'size' is no column"),
            ("time_us,time_s,op,offset,length", "two columns for the time"),
            ("time_us,op,is_write,offset,length", "two columns for the operation"),
        ] {
            let e = Columns::parse(names).unwrap_err();
            assert!(e.to_string().contains(says) && e.what_to_try().is_some(), "{names}: {e}");
        }
    }
}
