//! Policies of the single writer given as expressions: `[wait_us + bytes / 4K]`, `[-sweep; waits < 2]`.

use crate::expression::{Expression, SHOWN, is_true};
use crate::own_policy::{Choose, Own};
use std::sync::Arc;
use zoneplug_core::sched::policy::{Candidate, View};
use zoneplug_core::{Error, Nanos};

type Of = fn(&View<'_>, &Candidate) -> f64;

/// The variables of an expression. docs/models.md describes each.
const VARIABLES: [(&str, Of); 11] = [
    ("wait_us", |view, c| micros(view.now, c.since)),
    ("bytes", |_, c| c.bytes.0 as f64),
    ("distance", |view, c| part(view, c.sector.0.abs_diff(view.head.0) as f64)),
    ("sweep", sweep),
    ("zone", |_, c| f64::from(c.zone.0)),
    ("same", |view, c| f64::from(u8::from(view.last == Some(c.zone)))),
    ("zones", |view, _| view.listed.len() as f64),
    ("longest_us", |view, _| micros(view.longest_wait(), Nanos(0))),
    ("written", |view, _| view.turn.written.0 as f64),
    ("turn_us", |view, _| micros(view.now, view.turn.began)),
    ("waits", |view, _| f64::from(view.turn.waits)),
];

fn micros(until: Nanos, since: Nanos) -> f64 {
    until.0.saturating_sub(since.0) as f64 / 1e3
}

/// Converts sectors to a fraction of the disk.
fn part(view: &View<'_>, sectors: f64) -> f64 {
    sectors / view.capacity.0.max(1) as f64
}

/// The distance upward from the head, past the end and on from the first zone. The zone of the last
/// turn was already visited in this sweep, so its distance is the whole disk.
fn sweep(view: &View<'_>, c: &Candidate) -> f64 {
    if view.last == Some(c.zone) {
        return 1.0;
    }
    let up = c.sector.0 as f64 - view.head.0 as f64;
    let is_above = view.last.is_none_or(|last| c.zone > last);
    part(view, if is_above { up } else { up + view.capacity.0 as f64 })
}

/// A policy given as an expression, with an optional second one for waits.
#[derive(Debug)]
struct PolicyExpression {
    pick: Expression,
    stay: Option<Expression>,
}

fn value(expression: &Expression, view: &View<'_>, c: &Candidate) -> f64 {
    expression.value(|i| VARIABLES[i].1(view, c))
}

impl Choose for PolicyExpression {
    fn pick(&self, view: &View<'_>) -> usize {
        let mut best = (0, f64::NAN);
        for (i, c) in view.listed.iter().enumerate() {
            let n = value(&self.pick, view, c);
            // NaN counts as the lowest value.
            if n > best.1 || (best.1.is_nan() && !n.is_nan()) {
                best = (i, n);
            }
        }
        best.0
    }

    /// The expression refers to the zone that would be next.
    fn stay(&self, view: &View<'_>) -> bool {
        let Some(stay) = &self.stay else { return true };
        view.listed.get(self.pick(view)).is_some_and(|c| is_true(value(stay, view, c)))
    }

    fn decides_waits(&self) -> bool {
        self.stay.is_some()
    }
}

/// Parses the policy at the beginning of `text`, `[PICK]` or `[PICK; STAY]`. Also returns the rest
/// of the text. Places in errors count from the start of a text in which `before` characters
/// precede `text`.
pub(crate) fn parse(text: &str, before: usize) -> Result<(Own, &str), Error> {
    let names = VARIABLES.map(|v| v.0);
    let wrong = |at: usize, what: String| {
        let place = before + text[..at].chars().count() + 1;
        let names = names.join(", ");
        Error::invalid(format!("{what} at character {place}"))
            .hint(format!("{names}; + - * / < <= > >= == != && || ! ( ); {SHOWN}"))
    };
    let read = |start: usize| match Expression::parse(&text[start..], &names) {
        Ok((expression, length)) => Ok((expression, start + length)),
        Err((place, what)) => Err(wrong(start + place, what)),
    };
    let (pick, mut at) = read(1)?;
    let mut stay = None;
    if text[at..].starts_with(';') {
        let (expression, end) = read(at + 1)?;
        (stay, at) = (Some(expression), end);
    }
    match text[at..].chars().next() {
        Some(']') => at += 1,
        None => return Err(wrong(at, "']' is missing".to_owned())),
        Some(c) => return Err(wrong(at, format!("'{c}' is not expected"))),
    }
    // The name has runs of blanks and line breaks as one blank, so it is one line.
    let name = text[..at].split_whitespace().collect::<Vec<_>>().join(" ");
    Ok((Own::new(&name, Arc::new(PolicyExpression { pick, stay })), &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::sched::Policy;
    use zoneplug_core::sched::policy::Turn;
    use zoneplug_core::{Bytes, Sector, ZoneNo};

    /// Candidates from pairs of zone and waiting KiB; zones have 256 MiB. The first has waited
    /// longest.
    fn candidates(of: &[(u32, u64)]) -> Vec<Candidate> {
        let one = |(i, &(zone, kib)): (usize, &(u32, u64))| Candidate {
            zone: ZoneNo(zone),
            sector: Sector((u64::from(zone) << 19) + 8),
            bytes: Bytes(kib << 10),
            since: Nanos(i as u64 * 1000),
        };
        of.iter().enumerate().map(one).collect()
    }

    fn view(listed: &[Candidate], last: Option<u32>) -> View<'_> {
        let turn = Turn { began: Nanos(2_000), written: Bytes(1 << 20), waits: 1 };
        View {
            now: Nanos(5_000),
            listed,
            last: last.map(ZoneNo),
            turn,
            head: Sector(last.map_or(0, |z| (u64::from(z) << 19) + 64)),
            capacity: Sector(1024 << 19),
        }
    }

    fn read(text: &str) -> Own {
        parse(text, 0).unwrap().0
    }

    fn picks(text: &str, view: &View<'_>) -> usize {
        read(text).during(|| Own::policy().pick()(view))
    }

    #[test]
    fn variables_have_these_values() {
        let listed = candidates(&[(9, 8), (2, 4), (512, 16)]);
        let v = view(&listed, Some(2));
        let of = |name: &str| {
            let variable = VARIABLES.iter().find(|v| v.0 == name).unwrap();
            [0, 1, 2].map(|i| variable.1(&v, &listed[i]))
        };
        assert_eq!(of("wait_us"), [5.0, 4.0, 3.0]);
        assert_eq!(of("bytes"), [8192.0, 4096.0, 16384.0]);
        assert_eq!(of("zone"), [9.0, 2.0, 512.0]);
        assert_eq!(of("same"), [0.0, 1.0, 0.0]);
        let part = |sectors: f64| sectors / f64::from(1 << 29);
        let up = |zone: u32| part(f64::from(((zone - 2) << 19) - 56));
        assert_eq!(of("distance"), [up(9), part(56.0), up(512)]);
        assert_eq!(of("sweep"), [up(9), 1.0, up(512)]);
        for (name, is) in [
            ("zones", 3.0),
            ("longest_us", 5.0),
            ("written", 1048576.0),
            ("turn_us", 3.0),
            ("waits", 1.0),
        ] {
            assert_eq!(of(name), [is; 3], "{name}");
        }
    }

    #[test]
    fn the_highest_is_next_and_of_equals_the_first() {
        let listed = candidates(&[(9, 8), (2, 4), (5, 16), (7, 16)]);
        let v = view(&listed, Some(6));
        for (text, next) in [
            ("[0]", 0),
            ("[wait_us]", 0),
            ("[-wait_us]", 3),
            ("[bytes]", 2),
            ("[-distance]", 3),
            ("[-sweep]", 3),
            ("[0 / 0]", 0),
            ("[if(zone == 5, -1 / 0, 0 / 0)]", 2),
            ("[sqrt(bytes - 4K) / (zone != 2)]", 2),
        ] {
            assert_eq!(picks(text, &v), next, "{text}");
        }
    }

    #[test]
    fn the_second_is_about_the_zone_that_would_be_next() {
        let listed = candidates(&[(9, 8), (2, 4)]);
        let v = view(&listed, Some(3));
        let stays = |text: &str| read(text).during(|| Own::policy().stay()(&v));
        assert!(stays("[bytes]") && stays("[bytes; waits < 2]") && stays("[bytes; bytes == 8K]"));
        assert!(
            !stays("[0; waits < 1]") && !stays("[-bytes; bytes == 8K]") && !stays("[0; 0 / 0]")
        );
    }

    /// Expression and engine agree on a sweep, wherever the head is and whatever waits.
    #[test]
    fn clook_is_an_expression() {
        for seed in 0..200u32 {
            let zones = (0..1 + seed % 9).map(|i| ((seed * 37 + i * 101) % 1024, 4));
            let listed = candidates(&zones.collect::<Vec<_>>());
            for last in [None, Some(seed * 5), Some(listed[0].zone.0), Some(1023)] {
                let v = view(&listed, last);
                assert_eq!(picks("[-sweep]", &v), Policy::Clook.pick()(&v), "{v:?}");
            }
        }
    }

    #[test]
    fn what_is_wrong_has_its_place_and_names_what_there_is() {
        for (text, what) in [
            ("[", "a value is missing at character 2"),
            ("[]", "a value is missing at character 2"),
            ("[wait_us", "']' is missing at character 9"),
            ("[wait us]", "'wait' is no variable at character 2"),
            ("[bytes = 4]", "'=' is not expected at character 8"),
            ("[bytes; 1; 2]", "';' is not expected at character 10"),
            ("[bytes; é]", "'é' is no variable at character 9"),
            ("[0; zonen < 1]", "'zonen' is no variable at character 5"),
        ] {
            let e = parse(text, 0).unwrap_err();
            assert_eq!(e.what(), what, "{text}");
            assert!(VARIABLES.iter().all(|v| e.what_to_try().unwrap().contains(v.0)), "{text}");
        }
        assert_eq!(parse("[x]", 5).unwrap_err().what(), "'x' is no variable at character 7");
    }
}
