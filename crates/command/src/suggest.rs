//! Values that shell completions offer. The parser takes other values too: a policy may have times, and the beginning
//! of a name selects a table. The help does not list the values; the errors of the parser do.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;
use zoneplug_core::form::{Form, Key};
use zoneplug_host::{KINDS, LAYERS, SpecPart, Specification};

/// A parser, and the values that completions offer for it.
#[derive(Clone)]
pub struct Suggest<P> {
    parser: P,
    names: fn() -> Vec<&'static str>,
}

impl<P: TypedValueParser> Suggest<P> {
    /// A parser of values, with the names that completions offer.
    pub fn new(parser: P, names: fn() -> Vec<&'static str>) -> Suggest<P> {
        Suggest { parser, names }
    }
}

impl<P: TypedValueParser> TypedValueParser for Suggest<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// The names of attributes.
pub fn attributes() -> Vec<&'static str> {
    zoneplug_core::disk::ATTRIBUTES.iter().map(|a| a.key.name).collect()
}

/// The kinds of device that are not paths: emulated disks and modelled drives.
pub fn disks() -> Vec<&'static str> {
    KINDS.iter().filter(|k| !k.is_path()).map(|k| k.name).collect()
}

/// The modelled drives.
pub fn drives() -> Vec<&'static str> {
    disks().into_iter().filter(|name| name.starts_with("sim")).collect()
}

/// Completes `word` to the next key, value or device: `mem,zone-s` becomes `mem,zone-size=`. Empty for a word that
/// has neither a key nor a layer.
pub fn specifications(word: &str) -> Vec<String> {
    let base = Specification::unfinished(word);
    let mut offered: Vec<String> = Vec::new();
    let typed = match base.rsplit_once(',') {
        Some((before, typed)) => {
            let part = Specification::parse(before).ok();
            let part = part.as_ref().map(Specification::disk);
            let keys: Vec<_> = part.into_iter().flat_map(SpecPart::keys).collect();
            if let Some((name, value)) = typed.split_once('=') {
                let values: &[&str] = match keys.iter().find(|k| k.is(name)).map(|k| k.form) {
                    Some(Form::Flag) => &["0", "1"],
                    Some(Form::Choice(names)) => names,
                    _ => &[],
                };
                let fitting = values.iter().filter(|v| v.starts_with(value));
                offered.extend(fitting.map(|v| format!("{name}={v}")));
            } else {
                let given = |k: &Key| part.is_some_and(|part| part.has(k));
                // Offers an alias only if the name of the key does not fit.
                let names = keys.iter().filter(|k| !given(k)).filter_map(|k| {
                    std::iter::once(k.name)
                        .chain(k.aliases.iter().copied())
                        .find(|n| n.starts_with(typed))
                });
                offered.extend(names.map(|n| format!("{n}=")));
            }
            typed
        }
        None if base.len() < word.len() => {
            let layers = LAYERS.iter().map(|l| format!("{}@", l.name));
            let all = disks().into_iter().map(str::to_owned).chain(layers);
            offered.extend(all.filter(|name| name.starts_with(base)));
            base
        }
        None => "",
    };
    let before = &word[..word.len() - typed.len()];
    offered.iter().map(|end| format!("{before}{end}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_host::disk_keys;

    #[test]
    fn a_specification_goes_on_with_the_keys_of_its_last_device() {
        let of = |word: &str| specifications(word);
        assert_eq!(of("mem,zone-s"), ["mem,zone-size="]);
        assert_eq!(of("mem,zones=64,zone-c"), ["mem,zones=64,zone-capacity="]);
        assert!(of("mem,zones=64,").iter().all(|s| !s.ends_with(",zones=")), "it is given");
        assert_eq!(of("mem,mode="), ["mem,mode=plug", "mem,mode=none", "mem,mode=lock"]);
        assert_eq!(of("delay,wr"), ["delay,write="]);
        assert_eq!(of("delay,write=1ms@mem,zone-s"), ["delay,write=1ms@mem,zone-size="]);
        assert_eq!(of("stripe@mem%mem,zone-s"), ["stripe@mem%mem,zone-size="]);
        assert_eq!(of("po2@sim-z"), ["po2@sim-zns1"]);
        assert_eq!(of("po2@del"), ["po2@delay@"]);
        assert_eq!(of("./disk.zbd,read-"), ["./disk.zbd,read-only="]);
        assert_eq!(
            of("./disk.zbd,read-only="),
            ["./disk.zbd,read-only=0", "./disk.zbd,read-only=1"]
        );
        assert!(of("sim-smr30,").contains(&"sim-smr30,cache=".to_owned()));
        for word in ["", "mem", "fifo,c", "nosuch,zo", "FILE,read-", "mem,zones=", "mem,nosuch=1"] {
            assert_eq!(of(word), [""; 0], "{word}");
        }
    }

    /// The completions offer each key that the parser knows of each kind, without its value.
    #[test]
    fn every_key_of_a_kind_is_offered() {
        for kind in KINDS.iter().filter(|k| !k.is_path()) {
            let offered = specifications(&format!("{},", kind.name));
            for key in kind.keys().chain(disk_keys()) {
                assert!(offered.contains(&format!("{},{}=", kind.name, key.name)), "{}", key.name);
            }
        }
    }
}
