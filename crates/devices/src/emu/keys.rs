//! The keys of an emulated disk in a specification: the only place for their names, ranges and defaults.

use zoneplug_core::form::DefaultValue::{Is, Means};
use zoneplug_core::form::{DefaultValue, Form, Key};
use zoneplug_core::zone::MAX_ZONES;

/// The largest number that fits 32 bits; also the most sectors of a zone.
const MAX: u64 = u32::MAX as u64;
/// Most sectors of a logical block: 64 MiB. A program has at least one block in memory.
const MAX_BLOCK: u64 = 1 << 17;

const fn key(
    name: &'static str,
    aliases: &'static [&'static str],
    form: Form,
    default: DefaultValue,
    about: &'static str,
) -> Key {
    Key { name, aliases, form, default, about }
}

const fn count(min: u64, max: u64, unit: &'static str) -> Form {
    Form::Number { min, max, unit }
}

const fn size(min: u64, max: u64) -> Form {
    Form::Size { min, max }
}

macro_rules! keys {
    ($($id:ident = $key:expr;)*) => {
        $(pub(super) const $id: Key = $key;)*

        /// The keys of an emulated disk, in the order in which they are explained.
        ///
        /// ```
        /// assert!(zoneplug_devices::emu::KEYS.iter().any(|k| k.is("max_open_zones")));
        /// ```
        pub static KEYS: [Key; [$(stringify!($id)),*].len()] = [$($id),*];
    };
}

keys! {
    ZONES = key("zones", &["nr_zones"], count(1, MAX_ZONES, "zones"), Is("64"),
        "Zones of the disk. Each takes about 100 bytes of memory, written or not.");
    SIZE = key("size", &[], size(1, u64::MAX), Means("zones times zone-size"),
        "The whole disk, instead of zones=; the rest becomes a shorter last zone.");
    ZONE_SIZE = key("zone-size", &[], size(1, MAX), Means("16M; 256M for null"),
        "From the start of a zone to the start of the next.");
    ZONE_CAPACITY = key("zone-capacity", &[], size(1, MAX), Means("zone-size"),
        "What can be written of a zone.");
    CONV = key("conv", &[], count(0, MAX_ZONES - 1, "zones"), Is("0"),
        "Conventional zones at the front, which are written anywhere.");
    LAST_ZONE_SIZE = key("last-zone-size", &[], size(1, MAX), Means("zone-size"),
        "The length of a shorter last zone.");
    LAST_ZONE_CAPACITY = key("last-zone-capacity", &[], size(1, MAX), Means("last-zone-size"),
        "What can be written of the last zone.");
    MAX_OPEN = key("max-open", &["max_open_zones"], count(0, MAX, "zones"), Is("0"),
        "Most open zones; 0: no limit.");
    MAX_ACTIVE = key("max-active", &["max_active_zones"], count(0, MAX, "zones"), Is("0"),
        "Most active zones, open or closed; 0: no limit.");
    LBA_SIZE = key("lba-size", &["logical_block_size"], Form::Block { max: MAX_BLOCK }, Is("4K"),
        "The logical block: I/O is a multiple of it. A power of two.");
    GRANULARITY = key("granularity", &["zone_write_granularity"], Form::Block { max: MAX_BLOCK },
        Means("lba-size"), "Writes to sequential zones are multiples of this.");
    MAX_TRANSFER = key("max-transfer", &[], size(0, MAX), Is("0"),
        "The longest command with data; 0: no limit.");
    MAX_BIOS = key("max-bios", &[], count(0, MAX, "BIOs"), Is("0"),
        "Most BIOs that are merged into a command; 0: no limit.");
    APPEND = key("append", &[], Form::Choice(&["emulated", "native"]), Is("emulated"),
        "Whether the disk has zone append, or the layer emulates it.");
    APPEND_MAX = key("append-max", &["zone_append_max_bytes"], size(1, MAX),
        Means("max-transfer with append=native"),
        "The longest native append; makes append=native.");
    MAX_WRITE_ZEROES = key("max-write-zeroes", &["write_zeroes_max_bytes"], size(0, MAX),
        Means("no limit"), "The longest command that writes zeroes; 0: the disk has none.");
    DISCARD = key("discard", &[], Form::Flag, Is("1"), "Whether the disk takes discards.");
    WRITE_CACHE = key("write-cache", &[], Form::Flag, Is("0"),
        "Whether the disk has a cache that a flush makes durable.");
    FUA = key("fua", &[], Form::Flag, Is("1"),
        "Whether the disk carries out FUA; if not, a flush follows the write.");
    ROTATIONAL = key("rotational", &[], Form::Flag, Is("0"),
        "Whether the medium turns; the disk has a single writer then.");
    READ_ONLY = key("read-only", &[], Form::Flag, Is("0"), "The disk refuses what changes it.");
    ORDERED = key("ordered", &[], Form::Flag, Is("0"),
        "The disk keeps the order of the writes that a queue is given.");
    LATENCY = key("latency", &[], Form::Time { min: 0, max: u64::MAX }, Is("0"),
        "The time that each command takes.");
    REORDER = key("reorder", &[], count(0, u64::MAX, ""), Means("in order"),
        "A seed: queued commands execute in a random order, as real devices may.");
    PARANOID = key("paranoid", &[], Form::Flag, Is("0"),
        "Also check buffers, and count overlapping writes.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emu::EmuConfig;
    use crate::spec::Spec;
    use DefaultValue::Required;

    fn read(text: &str) -> Result<EmuConfig, zoneplug_core::Error> {
        let mut spec = Spec::parse(text)?;
        let config = EmuConfig::from_spec(&mut spec)?;
        spec.finish().map(|()| config)
    }

    #[test]
    fn the_table_has_every_key_that_the_parser_asks_for() {
        let mut spec = Spec::parse("mem").unwrap();
        EmuConfig::from_spec(&mut spec).unwrap();
        let mut table: Vec<_> = KEYS.iter().map(|k| k.name).collect();
        table.sort_unstable();
        assert_eq!(spec.known(), table);
    }

    /// A specification with the default of a key gives the same disk as one without the key.
    #[test]
    fn a_default_may_as_well_be_written() {
        for kind in ["mem", "null"] {
            for key in KEYS.iter().filter(|k| k.form != Form::Text("")) {
                match key.default {
                    Is(value) => {
                        let written = read(&format!("{kind},{}={value}", key.name)).unwrap();
                        assert_eq!(written, read(kind).unwrap(), "{}", key.name);
                    }
                    Means(words) => assert!(!words.is_empty()),
                    Required => panic!("{} has no default", key.name),
                }
            }
        }
    }

    /// A value one beyond a bound is refused, under each name of the key.
    #[test]
    fn a_value_beyond_a_bound_is_refused_under_every_name() {
        for key in &KEYS {
            for name in std::iter::once(&key.name).chain(key.aliases) {
                for bad in key.form.edges().bad {
                    let e = read(&format!("mem,{name}={bad}")).unwrap_err();
                    assert_eq!(e.what(), format!("{name}={bad} is not possible"));
                }
            }
        }
    }

    /// A value at a bound is accepted as the value of its key. Whether it agrees with the rest of the disk is checked
    /// later, with another error text.
    #[test]
    fn a_value_at_a_bound_is_read() {
        for key in &KEYS {
            for good in key.form.edges().good {
                if let Err(e) = read(&format!("mem,{}={good}", key.name)) {
                    let what = format!("{}={good} is not possible", key.name);
                    assert!(
                        e.what() != what || !e.what_to_try().unwrap().contains("help spec"),
                        "{e}: {:?}",
                        e.what_to_try()
                    );
                }
            }
        }
    }
}
