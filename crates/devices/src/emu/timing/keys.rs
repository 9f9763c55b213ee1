//! The keys of a profile: the only place for their names, ranges and defaults. A profile that lacks a key without a
//! default is an error.

use zoneplug_core::disk::MAX_TAGS;
use zoneplug_core::form::DefaultValue::{self, Is, Means, Required};
use zoneplug_core::form::{Form, Key};
use zoneplug_core::zone::MAX_ZONES;

/// The largest number that fits 32 bits; also the most sectors of a zone.
const MAX: u64 = u32::MAX as u64;
/// A time of a drive. It fits 32 bits of nanoseconds, so the parts of an access are added without overflow.
const SPAN: Form = Form::Time { min: 0, max: 1_000_000_000 };

const fn key(name: &'static str, form: Form, default: DefaultValue, about: &'static str) -> Key {
    Key { name, aliases: &[], form, default, about }
}

const fn count(min: u64, max: u64, unit: &'static str) -> Form {
    Form::Number { min, max, unit }
}

const fn size(min: u64, max: u64) -> Form {
    Form::Size { min, max }
}

macro_rules! keys {
    ($(#[$doc:meta])* $table:ident: $($id:ident = $key:expr;)*) => {
        $(pub(super) const $id: Key = $key;)*

        $(#[$doc])*
        pub static $table: [Key; [$(stringify!($id)),*].len()] = [$($id),*];
    };
}

keys! {
    /// The keys of every profile.
    PROFILE_KEYS:
    MODEL = key("model", Form::Choice(&["smr", "zns"]), Required, "The kind of drive.");
    ZONES = key("zones", count(1, MAX_ZONES, "zones"), Required, "Zones of the drive.");
    ZONE_SIZE = key("zone-size", size(1, MAX), Required, "The size of a zone.");
    ZONE_CAPACITY = key("zone-capacity", size(1, MAX), Means("zone-size"),
        "What can be written of a zone.");
    MAX_OPEN = key("max-open", count(0, MAX, "zones"), Is("0"), "Maximum number of open zones; 0: no limit.");
    MAX_ACTIVE = key("max-active", count(0, MAX, "zones"), Is("0"),
        "Maximum number of active zones; 0: no limit.");
    MAX_TRANSFER = key("max-transfer", size(1, MAX), Required, "The longest command with data.");
    APPEND_MAX = key("append-max", size(0, MAX), Is("0"), "The longest zone append; 0: none.");
    QUEUE_DEPTH = key("queue-depth", count(1, MAX_TAGS as u64, "commands"), Required,
        "Maximum number of commands at the drive; a specification says tags= instead.");
}

keys! {
    /// The additional keys of an SMR disk.
    SMR_KEYS:
    RPM = key("rpm", count(1, 1_000_000, "turns a minute"), Required, "How fast the disk turns.");
    OUTER_RATE = key("outer-rate", Form::Rate, Required, "The rate of the outermost track.");
    INNER_RADIUS = key("inner-radius", Form::Fraction, Required,
        "The radius of the innermost track, as a part of the outermost.");
    SEEK_SETTLE = key("seek-settle", SPAN, Required, "The shortest seek.");
    SEEK_SQRT = key("seek-sqrt", SPAN, Required,
        "The part of the longest seek that grows with the root of the distance.");
    SEEK_LINEAR = key("seek-linear", SPAN, Required,
        "The part of the longest seek that grows with the distance.");
    LINK_RATE = key("link-rate", Form::Rate, Required, "The rate of the link.");
    COMMAND_TIME = key("command-time", SPAN, Required, "What a command costs beside its data.");
    CACHE = key("cache", size(0, 1 << 40), Required, "The write cache.");
    PROTECTED = key("protected", size(0, 1 << 40), Is("0"),
        "How much of the cache survives a power cut.");
    WRITE_CACHE = key("write-cache", Form::Flag, Is("1"),
        "Whether the cache is on; off: a write is answered when it is safe.");
    CACHE_ENTRIES = key("cache-entries", count(0, MAX, "writes"), Is("0"),
        "Maximum number of writes in the cache; 0: no limit.");
    MAX_RUN = key("max-run", size(0, MAX), Is("0"),
        "The longest run of writes that goes to the medium at once; 0: no limit.");
    DESTAGE = key("destage", Form::Choice(&["satf", "fifo"]), Is("satf"),
        "Which cached write goes to the medium next: the nearest, or the oldest.");
    QUEUED_FIFO = key("queued-fifo", count(0, MAX, "commands"), Is("0"),
        "With this many writes not acknowledged, the order of arrival is kept; 0: never.");
    QUEUED_WINDOW = key("queued-window", count(1, MAX, "runs"), Is("1"),
        "In that order: the number of oldest runs of which the nearest is taken.");
    QUEUED_RUNS = key("queued-runs", Form::Flag, Is("0"),
        "In that order: whether the head finishes its run, as far as max-run.");
    READ_BURST = key("read-burst", count(1, MAX, "reads"), Is("8"),
        "Reads in a row while writes wait.");
    WRITE_BURST = key("write-burst", size(0, MAX), Is("4M"),
        "How much is written in a row while reads wait.");
}

keys! {
    /// The additional keys of a ZNS SSD.
    ZNS_KEYS:
    LATENCY = key("latency", SPAN, Required, "What a write costs beside its data.");
    ZONE_RATE = key("zone-rate", Form::Rate, Required, "The rate of a zone.");
    DRIVE_RATE = key("drive-rate", Form::Rate, Required, "The rate of the whole drive.");
    READ_LATENCY = key("read-latency", SPAN, Required, "What a read costs beside its data.");
    WRITE_OCCUPANCY = key("write-occupancy", SPAN, Is("0"),
        "How long a write keeps the drive from the next one, beside its data.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emu::timing::Profile;
    use crate::spec::Spec;

    fn known(name: &str) -> Vec<&'static str> {
        let mut spec = Spec::parse(&format!("sim-{name}")).unwrap();
        Profile::from_spec(&mut spec).unwrap().unwrap();
        spec.known()
    }

    #[test]
    fn the_tables_have_every_key_that_the_parser_asks_for() {
        for (name, more) in [("smr30", &SMR_KEYS[..]), ("zns1", &ZNS_KEYS)] {
            let all = PROFILE_KEYS.iter().chain(more);
            let mut all: Vec<_> = all.map(|k| k.name).collect();
            all.sort_unstable();
            assert_eq!(known(name), all);
        }
    }

    #[test]
    fn a_value_beyond_a_bound_is_refused_and_a_default_may_be_written() {
        for (name, more) in [("smr30", &SMR_KEYS[..]), ("zns1", &ZNS_KEYS)] {
            let text = Profile::builtin_text(name).unwrap();
            for key in PROFILE_KEYS.iter().chain(more) {
                let read = |value: &str| {
                    let mut spec =
                        Spec::parse(&format!("sim-{name},{}={value}", key.name)).unwrap();
                    Profile::from_spec(&mut spec).unwrap()
                };
                for bad in key.form.edges().bad {
                    let what = format!("{}={bad} is not possible", key.name);
                    assert_eq!(read(&bad).unwrap_err().what(), what);
                }
                // Without a line, its key has its default, or the profile is refused.
                let start = format!("{} =", key.name);
                let without: Vec<&str> = text.lines().filter(|l| !l.starts_with(&start)).collect();
                let mut spec = Spec::parse(&format!("sim-{name}")).unwrap();
                let without = Profile::with_options(&mut spec, name, name, &without.join("\n"));
                match key.default {
                    Is(value) => {
                        let (a, b) = (without.unwrap(), read(value).unwrap());
                        let same = (&a.model, a.limits(), a.geometry().unwrap(), a.queue_depth);
                        let other = (&b.model, b.limits(), b.geometry().unwrap(), b.queue_depth);
                        assert_eq!(same, other, "{}", key.name);
                    }
                    Means(_) => assert!(without.is_ok()),
                    Required => {
                        let what = format!("profile {name} has no {}", key.name);
                        assert_eq!(without.unwrap_err().what(), what);
                    }
                }
            }
        }
    }
}
