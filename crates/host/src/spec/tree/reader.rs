//! Parses the text of a specification from front to back: a [`SpecNode`] at a time, and what may follow it.

use super::super::keys::is_layer;
use super::{JOINER, SpecNode, SpecPart};
use zoneplug_core::Error;
use zoneplug_core::disk::{ATTRIBUTES, TAGS};
use zoneplug_devices::spec::{SpecError, end_of, end_of_option};

/// The largest number of layers in a stack.
pub(super) const MAX_LEVELS: usize = 16;

/// Parses a text from front to back.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// The characters that end a device.
#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    /// A `%`: the device is joined with others.
    pub(super) joined: bool,
    /// A `]`: the device is in a bracket.
    pub(super) bracket: bool,
}

impl Ends {
    fn has(self, c: char) -> bool {
        self.joined && c == JOINER || self.bracket && c == ']'
    }
}

/// Refuses a stack that is too deep.
pub(super) fn check_levels(levels: usize) -> Result<(), Error> {
    if levels > MAX_LEVELS {
        let problem = format!("a stack of more than {MAX_LEVELS} layers");
        return Err(SpecError::syntax(problem, "fewer layers").into());
    }
    Ok(())
}

impl<'a> Reader<'a> {
    pub(super) fn left(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next_is(&self, c: char) -> bool {
        self.left().starts_with(c)
    }

    /// Parses layers and devices up to one of `ends`. Also returns whether a layer of several devices is among them
    /// outside brackets. `depth`: the number of layers above.
    pub(super) fn node(&mut self, depth: usize, ends: Ends) -> Result<(SpecNode, bool), Error> {
        check_levels(depth)?;
        let left = self.left();
        let name = &left[..end_of(left, |c| c == ',' || c == '@' || ends.has(c))];
        if is_layer(name) {
            let layer = &left[..end_of(left, |c| c == '@' || ends.has(c))];
            if left[layer.len()..].starts_with('@') {
                let part = SpecPart::parse(layer)?;
                self.at += layer.len() + 1;
                return self.layer(part, depth, ends);
            }
        }
        let device = &left[..end_of(left, |c| ends.has(c))];
        let part = SpecPart::parse(device)?;
        self.at += device.len();
        Ok((SpecNode::Device(part), false))
    }

    /// Parses a layer, from behind its `@`.
    fn layer(
        &mut self,
        part: SpecPart,
        depth: usize,
        ends: Ends,
    ) -> Result<(SpecNode, bool), Error> {
        let joins = part.joins();
        // A `%` belongs to the outermost layer of several devices.
        let takes_more = joins && !ends.joined;
        let ends = Ends { joined: ends.joined || joins, ..ends };
        let (first, mut has_inner) = self.below(depth + 1, ends)?;
        let mut below = vec![first];
        while takes_more && self.next_is(JOINER) {
            self.at += JOINER.len_utf8();
            let (next, has) = self.below(depth + 1, ends)?;
            has_inner |= has;
            below.push(next);
        }
        if below.len() > 1 && has_inner {
            let problem = format!("{}@...: a layer of several devices on another", part.text);
            let form =
                "brackets around the inner one with its devices: stripe@[linear@A%B]%[linear@C%D]";
            return Err(SpecError::syntax(problem, form).into());
        }
        Ok((SpecNode::Layer(part, below), joins || has_inner))
    }

    /// Parses a node directly behind a `@` or a `%`, perhaps in a bracket.
    fn below(&mut self, depth: usize, ends: Ends) -> Result<(SpecNode, bool), Error> {
        if !self.next_is('[') {
            return self.node(depth, ends);
        }
        self.at += 1;
        let (mut node, _) = self.node(depth, Ends { bracket: true, joined: false })?;
        if !self.next_is(']') {
            let problem = format!("a [ without its ] in '{}'", self.text);
            let form = "stripe@[linear@A%B]%C; a path that begins with [ is quoted: \"[a].zbd\"";
            return Err(SpecError::syntax(problem, form).into());
        }
        self.at += 1;
        let left = self.left();
        if let Some(after) = left.strip_prefix(',') {
            let options = &left[..1 + end_of_option(after, |c| ends.has(c))];
            self.of_disk(node.disk_mut(), options)?;
            self.at += options.len();
        } else if !(left.is_empty() || left.starts_with(|c| ends.has(c))) {
            return Err(SpecError::syntax(
                format!("'{left}' follows a bracket"),
                "% and the next device, or options of the disk; a path that begins with [ is quoted: \"[a].zbd\"",
            )
            .into());
        }
        Ok((node, false))
    }

    /// Adds options behind a bracket. They belong to the disk.
    fn of_disk(&self, disk: &mut SpecPart, options: &str) -> Result<(), Error> {
        let given = SpecPart::parse(&format!("{}{options}", "disk"))?;
        let is_of_disk =
            |name: &str| TAGS.is(name) || ATTRIBUTES.iter().any(|a| a.is_key() && a.key.is(name));
        if let Some((key, _)) = given.spec.options().find(|(key, _)| !is_of_disk(key)) {
            return Err(SpecError::syntax(
                format!("{key} behind a bracket in '{}'", self.text),
                "options of the disk alone are there; those of a device are in the bracket, behind the device",
            )
            .into());
        }
        disk.add(&given.spec, options)
    }
}
