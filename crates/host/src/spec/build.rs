//! Specifications that a program puts together, without writing their text.

use super::keys::{is_layer, layer_names};
use super::tree::{SpecNode, SpecPart, Specification};
use zoneplug_core::Error;
use zoneplug_devices::spec::Spec;

impl Specification {
    /// The specification with a layer on top. `options` are those of the layer, with values of any characters.
    ///
    /// ```
    /// use std::path::Path;
    /// use zoneplug_host::Specification;
    /// let disk = Specification::of_path(Path::new("a,b.zbd"))?.with("qd1", "1")?;
    /// let disk = disk.under("crypt", &[("key-file", "/keys/a b")])?;
    /// assert_eq!(&*disk, r#"crypt,key-file="/keys/a b"@"a,b.zbd",qd1=1"#);
    /// assert_eq!(disk.canonical(), Specification::parse(&disk)?.canonical());
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A layer that does not exist, or an option without a value or given twice. Whether the layer accepts the options
    /// is checked when the disk is opened.
    pub fn under(&self, layer: &str, options: &[(&str, &str)]) -> Result<Specification, Error> {
        Specification::joined(layer, options, &[self])
    }

    /// The specification of a layer on several disks, such as `stripe` or `linear`. Options of the joined disk are
    /// those of the last one.
    ///
    /// ```
    /// use zoneplug_host::Specification;
    /// let (a, b) = (Specification::parse("mem,zones=4")?, Specification::parse("null,zones=4")?);
    /// let pair = Specification::joined("linear", &[], &[&a, &b])?;
    /// let both = Specification::joined("stripe", &[], &[&pair, &pair])?;
    /// assert_eq!(&*both, "stripe@[linear@mem,zones=4%null,zones=4]%[linear@mem,zones=4%null,zones=4]");
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Specification::under`], a list without disks, and several disks for a layer that joins none.
    pub fn joined(
        layer: &str,
        options: &[(&str, &str)],
        disks: &[&Specification],
    ) -> Result<Specification, Error> {
        if disks.is_empty() {
            return Err(Error::invalid(format!("{layer} of no disks")).hint("at least one disk"));
        }
        if !is_layer(layer) {
            return Err(Spec::new(layer, true, []).unknown_kind(&layer_names()));
        }
        let mut spec = Spec::new(layer, false, []);
        options.iter().try_for_each(|(key, value)| spec.add(key, value))?;
        let part = SpecPart::unwritten(spec);
        if disks.len() > 1 && !part.joins() {
            let what = format!("{layer} of {} disks", disks.len());
            return Err(Error::invalid(what)
                .hint("one disk; stripe, or linear without first and zones, joins several"));
        }
        let below = disks.iter().map(|disk| disk.root().clone()).collect();
        Specification::built(SpecNode::Layer(part, below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A specification that was built is the one that would have been written.
    #[test]
    fn what_cannot_be_written_cannot_be_built() {
        let disk = Specification::parse("mem,zones=4").unwrap();
        let refused = [
            disk.under("cript", &[]),
            disk.under("mem", &[]),
            disk.under("delay", &[("write", "")]),
            disk.under("delay", &[("write", "1ms"), ("write", "2ms")]),
            disk.under("delay", &[("write=1ms,read", "1ms")]),
            disk.under("delay", &[("write=1ms", "1ms")]),
            disk.under("delay", &[(" write", "1ms")]),
            disk.under("", &[]),
            Specification::joined("stripe", &[], &[]),
            Specification::joined("po2", &[], &[&disk, &disk]),
            Specification::joined("linear", &[("first", "1")], &[&disk, &disk]),
            disk.with("label=a", "b"),
            disk.with("zones", "8"),
            disk.with("label", ""),
        ];
        for built in refused {
            let e = built.unwrap_err();
            assert!(e.what_to_try().is_some(), "{e}");
        }
        let deep = (0..1000).try_fold(disk.clone(), |disk, _| disk.under("po2", &[]));
        assert!(deep.unwrap_err().what().contains("a stack of more than"));
        let layers = |n| (0..n).try_fold(disk.clone(), |disk, _| disk.under("po2", &[]));
        let deepest = layers(16).unwrap();
        assert!(Specification::parse(&deepest).is_ok() && layers(17).is_err());
        let delayed = disk.under("delay", &[("write", "2ms")]).unwrap();
        let written = Specification::parse("delay,write=2ms@mem,zones=4").unwrap();
        assert_eq!(delayed.canonical(), written.canonical());
        assert_eq!(delayed.open().unwrap().device.geometry().nr_zones(), 4);
    }
}
