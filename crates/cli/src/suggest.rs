//! Values that the completions of a shell offer where others are taken too: a policy may have times, and a table is named by
//! the beginning of its name. The help does not list them; the errors of the parser do.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

/// A parser, and the values that completions offer for it.
#[derive(Clone)]
pub(crate) struct Suggest<P> {
    parser: P,
    names: fn() -> Vec<&'static str>,
}

impl<P: TypedValueParser> Suggest<P> {
    pub(crate) fn new(parser: P, names: fn() -> Vec<&'static str>) -> Suggest<P> {
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
pub(crate) fn attributes() -> Vec<&'static str> {
    zoneplug_core::disk::ATTRIBUTES.iter().map(|a| a.key.name).collect()
}

/// The kinds of device that are no paths: emulated disks and modelled drives.
pub(crate) fn disks() -> Vec<&'static str> {
    zoneplug_host::KINDS.iter().filter(|k| !k.is_path()).map(|k| k.name).collect()
}

/// The drives that are modelled.
pub(crate) fn drives() -> Vec<&'static str> {
    disks().into_iter().filter(|name| name.starts_with("sim")).collect()
}
