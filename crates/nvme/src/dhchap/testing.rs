//! The transactions of `vectors.txt`, which another implementation has computed (`vectors.py`).

use super::{DhGroup, Key, Random};
use std::collections::BTreeMap;

pub(crate) const VECTORS: &str = include_str!("vectors.txt");

/// One transaction: the values that each side knows and sends.
pub(crate) struct Vector {
    fields: BTreeMap<&'static str, &'static str>,
}

impl Vector {
    pub(crate) fn text(&self, name: &str) -> &'static str {
        self.fields[name]
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let digits = self.text(name).as_bytes().as_chunks::<2>().0;
        let byte = |d: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap();
        digits.iter().map(byte).collect()
    }

    /// Returns the key with this name; `None` if the transaction has none.
    pub(crate) fn key(&self, name: &str) -> Option<Key> {
        Some(self.text(name)).filter(|t| *t != "-").map(|t| Key::parse(t).unwrap())
    }

    pub(crate) fn random(&self, name: &str) -> Random {
        Random::new(&self.bytes(name).try_into().unwrap())
    }

    pub(crate) fn group(&self) -> DhGroup {
        DhGroup::from_id(self.text("group").parse().unwrap()).unwrap()
    }
}

/// Returns all transactions. Each has the names of both sides.
pub(crate) fn transactions() -> Vec<Vector> {
    let pairs = |block: &'static str| {
        block.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once(' '))
    };
    let mut blocks = VECTORS.split("\n\n");
    let names: BTreeMap<_, _> = pairs(blocks.next().unwrap()).collect();
    let blocks =
        blocks.map(|b| Vector { fields: names.clone().into_iter().chain(pairs(b)).collect() });
    blocks.filter(|v| v.fields.contains_key("challenge")).collect()
}
