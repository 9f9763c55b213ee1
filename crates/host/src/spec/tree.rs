//! The tree of a specification: layers, the devices that they join, and the options of each. A text is parsed once;
//! all later questions about the specification go to the tree. This module opens nothing.
//!
//! | text | tree |
//! | --- | --- |
//! | `NAME,KEY=VALUE` | a device, or a layer if a `@` follows and a layer has this name |
//! | `LAYER@BELOW` | a layer and what it is on |
//! | `stripe@A%B` | a layer and all devices up to the end, or to the end of its bracket |
//! | `stripe@[LAYERS@A%B]%C` | what is in the bracket is one device of the outer layer |
//! | `"NAME"`, `KEY="VALUE"` | any characters ([`zoneplug_devices::spec`]); a quoted name is a path |
//!
//! The time to parse a text is proportional to its length, and its depth is limited.

use self::reader::{Ends, Reader, check_levels};
use super::keys::{self, Kind, is_kind, is_layer};
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use zoneplug_core::Error;
use zoneplug_core::form::Key;
use zoneplug_devices::spec::{Spec, end_of, is_special, quoted};
use zoneplug_devices::stack::FaultPlan;

/// The character between devices that are joined.
pub(crate) const JOINER: char = '%';

/// A layer or a device: its name and its options.
#[derive(Debug, Clone)]
pub struct SpecPart {
    /// The text as it was written.
    text: String,
    /// The name and all options of that text.
    spec: Spec,
}

/// A layer with everything below it, or a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecNode {
    /// A layer, and the devices below it: several if the layer joins them.
    Layer(SpecPart, Vec<SpecNode>),
    /// A device.
    Device(SpecPart),
}

/// A parsed specification: the text, and its tree.
///
/// ```
/// use zoneplug_host::Specification;
/// let spec = Specification::parse("po2@mem,zones=8,tags=4")?;
/// assert_eq!(spec.disk().text(), "mem,zones=8,tags=4");
/// // One text for each meaning: the order of keys and the units of values are always the same.
/// let other = Specification::parse("po2@mem,tags=4,zones=8")?;
/// assert_eq!(spec.canonical(), other.canonical());
/// assert_eq!(&*spec, "po2@mem,zones=8,tags=4", "it is shown as it was written");
/// # Ok::<(), zoneplug_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Specification {
    text: Arc<str>,
    root: Arc<SpecNode>,
}

impl PartialEq for SpecPart {
    /// Quotation marks count only if without them the name would be that of a kind.
    fn eq(&self, other: &SpecPart) -> bool {
        let is_path = |part: &SpecPart| part.is_quoted() && is_kind(part.name());
        self.name() == other.name()
            && self.spec.options().eq(other.spec.options())
            && is_path(self) == is_path(other)
    }
}

impl Eq for SpecPart {}

/// Whether a name is a path by its characters alone.
pub(super) fn is_clearly_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".zbd")
}

/// Whether a name or a value with this character is printed in quotation marks.
fn takes_quotes(c: char) -> bool {
    is_special(c) || c.is_whitespace()
}

impl SpecPart {
    pub(super) fn parse(text: &str) -> Result<SpecPart, Error> {
        Ok(SpecPart { text: text.to_owned(), spec: Spec::parse(text)? })
    }

    /// A part that no text has yet. [`Specification::of`] writes it.
    pub(super) fn unwritten(spec: Spec) -> SpecPart {
        SpecPart { text: String::new(), spec }
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the layer or of the kind of device, or a path.
    pub fn name(&self) -> &str {
        self.spec.kind()
    }

    /// Whether the name is in quotation marks. It is then a path.
    pub(super) fn is_quoted(&self) -> bool {
        self.spec.is_quoted()
    }

    /// The options, for the caller to take one by one.
    pub fn options(&self) -> Spec {
        self.spec.clone()
    }

    /// Whether an option is given, under any of its names.
    pub fn has(&self, key: &Key) -> bool {
        self.value(key).is_some()
    }

    /// The text of an option, under any of its names.
    pub(super) fn value(&self, key: &Key) -> Option<&str> {
        self.spec.options().find(|(name, _)| key.is(name)).map(|(_, value)| value)
    }

    /// Adds options that were written elsewhere. `text` is how they were written, from a comma on.
    fn add(&mut self, options: &Spec, text: &str) -> Result<(), Error> {
        options.options().try_for_each(|(key, value)| self.spec.add(key, value))?;
        self.text.push_str(text);
        Ok(())
    }

    /// The kind of device that has this name.
    pub(super) fn kind(&self) -> Option<&'static Kind> {
        keys::KINDS.iter().find(|k| !self.is_quoted() && !k.is_path() && k.name == self.name())
    }

    /// Whether this is a layer that joins several devices. A `linear` that names the zones to show is a cut of one
    /// device.
    pub fn joins(&self) -> bool {
        match self.name() {
            "stripe" => true,
            "linear" => !self.has(&keys::FIRST) && !self.has(&keys::CUT_ZONES),
            _ => false,
        }
    }

    /// Whether the name is printed in quotation marks.
    fn needs_quotes(&self) -> bool {
        self.is_quoted() || self.name().contains(|c| takes_quotes(c) || c == '=')
    }

    /// Prints the part as it is written in a specification.
    fn print(&self, to: &mut String) {
        let name = self.name();
        to.push_str(&if self.needs_quotes() { quoted(name) } else { name.to_owned() });
        for (key, value) in self.spec.options() {
            to.extend([",", key, "="]);
            let needs = value.contains(takes_quotes);
            to.push_str(&if needs { quoted(value) } else { value.to_owned() });
        }
    }

    /// The options by the first of their names, with values in one spelling, sorted. `known`: the keys that may be
    /// given.
    fn canonical(&self, known: &[&'static Key]) -> SpecPart {
        let mut options: Vec<(String, String)> = Vec::new();
        for (name, value) in self.spec.options() {
            let key = known.iter().find(|key| key.is(name));
            // A key that is given under two names is refused when the disk is opened.
            let is_once = |key: &Key| self.spec.options().filter(|(n, _)| key.is(n)).count() == 1;
            let key = key.filter(|key| is_once(key));
            let shown = key.and_then(|key| Some(key.form.show(&key.form.read(value)?)));
            let value = match name {
                "fault" => {
                    value.parse::<FaultPlan>().map_or(value.to_owned(), |plan| plan.to_string())
                }
                _ => shown.unwrap_or_else(|| value.to_owned()),
            };
            options.push((key.map_or(name, |key| key.name).to_owned(), value));
        }
        options.sort();
        // The name stays quoted only if it would mean something else without quotation marks.
        let is_quoted = self.is_quoted() && !is_clearly_path(self.name());
        SpecPart::unwritten(Spec::new(self.name(), is_quoted, options))
    }

    /// Replaces the text by the printed form. A name that this form has in quotation marks is a path from then on, as if the form were
    /// parsed.
    fn write_again(&mut self) {
        let mut text = String::new();
        self.print(&mut text);
        if self.is_quoted() != self.needs_quotes() {
            let options =
                self.spec.options().map(|(key, value)| (key.to_owned(), value.to_owned()));
            self.spec = Spec::new(self.name(), self.needs_quotes(), options);
        }
        self.text = text;
    }
}

impl SpecNode {
    /// The layer or the device itself.
    pub fn part(&self) -> &SpecPart {
        match self {
            SpecNode::Layer(part, _) | SpecNode::Device(part) => part,
        }
    }

    /// The nodes below a layer; none for a device.
    pub fn below(&self) -> &[SpecNode] {
        match self {
            SpecNode::Layer(_, below) => below,
            SpecNode::Device(_) => &[],
        }
    }

    /// The device whose options are those of the disk: the last one.
    pub fn disk(&self) -> &SpecPart {
        match self {
            SpecNode::Layer(_, below) if !below.is_empty() => below[below.len() - 1].disk(),
            SpecNode::Layer(part, _) | SpecNode::Device(part) => part,
        }
    }

    /// Replaces the text of each part by its printed form.
    fn write_again(&mut self) {
        match self {
            SpecNode::Device(part) => part.write_again(),
            SpecNode::Layer(part, below) => {
                part.write_again();
                below.iter_mut().for_each(SpecNode::write_again);
            }
        }
    }

    /// The number of layers from here to the deepest device.
    fn levels(&self) -> usize {
        let levels = self.below().iter().map(|node| 1 + node.levels());
        levels.max().unwrap_or(0)
    }

    fn disk_mut(&mut self) -> &mut SpecPart {
        match self {
            SpecNode::Device(part) => part,
            SpecNode::Layer(part, below) => match below.last_mut() {
                Some(last) => last.disk_mut(),
                None => part,
            },
        }
    }

    /// Collects the layers here and below, the topmost first, and the devices in written order.
    fn parts<'a>(&'a self, layers: &mut Vec<&'a SpecPart>, devices: &mut Vec<&'a SpecPart>) {
        match self {
            SpecNode::Layer(part, _) => layers.push(part),
            SpecNode::Device(part) => devices.push(part),
        }
        self.below().iter().for_each(|node| node.parts(layers, devices));
    }

    /// The devices, in the order in which they are written.
    pub fn devices(&self) -> impl Iterator<Item = &SpecPart> + use<'_> {
        let (mut layers, mut devices) = (Vec::new(), Vec::new());
        self.parts(&mut layers, &mut devices);
        devices.into_iter()
    }

    /// Whether there is a layer of several devices here or below.
    fn has_joins(&self) -> bool {
        let is_layer = matches!(self, SpecNode::Layer(..));
        is_layer && self.part().joins() || self.below().iter().any(SpecNode::has_joins)
    }

    /// Prints the node as it is written in a specification.
    fn print(&self, to: &mut String) {
        self.part().print(to);
        for (n, node) in self.below().iter().enumerate() {
            to.push(if n == 0 { '@' } else { JOINER });
            // Without a bracket, the outer layer would take the devices of the inner one.
            match self.part().joins() && node.has_joins() {
                true => {
                    to.push('[');
                    node.print(to);
                    to.push(']');
                }
                false => node.print(to),
            }
        }
    }

    fn canonical(&self) -> SpecNode {
        match self {
            SpecNode::Layer(part, below) => {
                let kind = keys::LAYERS.iter().find(|k| k.name == part.name());
                let known: Vec<_> = kind.iter().flat_map(|k| k.keys()).collect();
                SpecNode::Layer(
                    part.canonical(&known),
                    below.iter().map(SpecNode::canonical).collect(),
                )
            }
            SpecNode::Device(part) => {
                let kinds: Vec<&Kind> = match part.kind() {
                    Some(kind) => vec![kind],
                    None => keys::KINDS.iter().filter(|k| k.is_path()).collect(),
                };
                let own = kinds.iter().flat_map(|k| k.keys());
                SpecNode::Device(part.canonical(&own.chain(keys::disk_keys()).collect::<Vec<_>>()))
            }
        }
    }
}

impl Specification {
    /// Parses a text.
    ///
    /// # Errors
    ///
    /// A text that is not a specification. Whether the devices exist and accept the keys is checked when they are
    /// opened.
    pub fn parse(text: &str) -> Result<Specification, Error> {
        let mut reader = Reader { text, at: 0 };
        let (root, _) = reader.node(0, Ends::default())?;
        Ok(Specification { text: text.into(), root: Arc::new(root) })
    }

    /// The specification of the disk in the file, or of the drive, at a path. The path may have any characters.
    ///
    /// ```
    /// use std::path::Path;
    /// use zoneplug_host::Specification;
    /// let spec = Specification::of_path(Path::new("a,b.zbd"))?;
    /// assert_eq!((&*spec, spec.file()), (r#""a,b.zbd""#, Some(Path::new("a,b.zbd"))));
    /// assert!(!Specification::of_path(Path::new("mem"))?.is_volatile(), "a file of that name");
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A path that is not UTF-8, or an empty one.
    pub fn of_path(path: &Path) -> Result<Specification, Error> {
        let Some(name) = path.to_str() else {
            let what = format!("{} is no text in UTF-8", path.display());
            return Err(Error::invalid(what).hint("a path in UTF-8"));
        };
        Ok(Specification::parse(&quoted(name))?.canonical())
    }

    /// The topmost layer, or the device.
    pub fn root(&self) -> &SpecNode {
        &self.root
    }

    /// The device whose options are those of the disk: the last one.
    pub fn disk(&self) -> &SpecPart {
        self.root.disk()
    }

    /// The devices, in the order in which they are written.
    pub fn devices(&self) -> impl Iterator<Item = &SpecPart> + use<'_> {
        self.root.devices()
    }

    /// The layers, the topmost first.
    pub(super) fn layers(&self) -> impl Iterator<Item = &SpecPart> + use<'_> {
        let (mut layers, mut devices) = (Vec::new(), Vec::new());
        self.root.parts(&mut layers, &mut devices);
        layers.into_iter()
    }

    /// Adds an option to the last device.
    ///
    /// # Errors
    ///
    /// A key that is given already, or no value.
    pub fn with(&self, key: &str, value: &str) -> Result<Specification, Error> {
        let mut root = (*self.root).clone();
        root.disk_mut().spec.add(key, value)?;
        Ok(Specification::of(root))
    }

    /// Takes an option off the last device, for a program that has an option of its own. Returns the specification
    /// without it, and its value. `None`: it is not given.
    ///
    /// ```
    /// let spec = zoneplug_host::Specification::parse("po2@mem,own=1,zones=8")?;
    /// let (spec, value) = spec.without("own").unwrap();
    /// assert_eq!((&*spec, &*value), ("po2@mem,zones=8", "1"));
    /// assert_eq!(spec.without("own"), None);
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn without(&self, key: &str) -> Option<(Specification, String)> {
        let mut root = (*self.root).clone();
        let value = root.disk_mut().spec.remove(key)?;
        Some((Specification::of(root), value))
    }

    /// The names of layers and devices, without options, for messages.
    ///
    /// ```
    /// let spec = zoneplug_host::Specification::parse("crypt,key-file=k@disk.zbd,qd1=1")?;
    /// assert_eq!(spec.names(), "crypt@disk.zbd");
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn names(&self) -> String {
        let layers = self.layers().map(|layer| format!("{}@", layer.name()));
        let devices: Vec<&str> = self.devices().map(SpecPart::name).collect();
        layers.chain([devices.join(&JOINER.to_string())]).collect()
    }

    /// The last part of an unfinished text: a device, or a layer before its `@`. Options may be unfinished too.
    ///
    /// ```
    /// assert_eq!(zoneplug_host::Specification::unfinished("stripe@mem%mem,zone-s"), "mem,zone-s");
    /// ```
    pub fn unfinished(text: &str) -> &str {
        let (mut left, mut joined) = (text, false);
        loop {
            let ends = |c: char| c == ']' && left.len() < text.len() || c == JOINER && joined;
            let name = &left[..end_of(left, |c| c == ',' || c == '@' || ends(c))];
            let at = match is_layer(name) {
                true => end_of(left, |c| c == '@' || ends(c)),
                false => end_of(left, ends),
            };
            if at == left.len() {
                return left;
            }
            if left[at..].starts_with('@') {
                joined |= SpecPart::parse(&left[..at]).is_ok_and(|layer| layer.joins());
            }
            left = left[at + 1..].trim_start_matches('[');
        }
    }

    /// The one spelling of this meaning: keys sorted and by their first names, values in the largest unit that fits,
    /// quotation marks and brackets only if they are needed.
    ///
    /// ```
    /// let of = |text| zoneplug_host::Specification::parse(text).map(|s| s.canonical().to_string());
    /// assert_eq!(of("mem,qd1=1,latency=1000us,zones=8")?, of("mem,zones=8,latency=1ms,zoned_qd1_writes=1")?);
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    #[must_use]
    pub fn canonical(&self) -> Specification {
        Specification::of(self.root.canonical())
    }

    /// The specification of a tree, which is written again.
    ///
    /// # Errors
    ///
    /// A stack that is too deep to be parsed.
    pub(super) fn built(root: SpecNode) -> Result<Specification, Error> {
        check_levels(root.levels())?;
        Ok(Specification::of(root))
    }

    /// Like [`Specification::built`], for a tree that is no deeper than one that was parsed.
    fn of(mut root: SpecNode) -> Specification {
        root.write_again();
        let mut text = String::new();
        root.print(&mut text);
        Specification { text: text.into(), root: Arc::new(root) }
    }
}

/// The text as it was written.
impl Deref for Specification {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Specification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Specification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

/// Two specifications are equal if their texts are equal.
impl PartialEq for Specification {
    fn eq(&self, other: &Specification) -> bool {
        self.text == other.text
    }
}

impl Eq for Specification {}

impl std::hash::Hash for Specification {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl std::str::FromStr for Specification {
    type Err = Error;

    fn from_str(text: &str) -> Result<Specification, Error> {
        Specification::parse(text)
    }
}

mod reader;
#[cfg(test)]
mod tests;
