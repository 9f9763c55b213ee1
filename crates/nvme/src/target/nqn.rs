//! The names of hosts and subsystems.

use crate::spec::fabrics::{DISCOVERY_NQN, MAX_NQN};
use std::fmt;
use zoneplug_core::{Error, is_plain};

/// An NVMe Qualified Name: 1 to 223 bytes of UTF-8 that begin with `nqn.`, without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(String);

impl Nqn {
    /// Fails with [`ErrorKind::Invalid`](zoneplug_core::ErrorKind::Invalid) if `text` is no NQN.
    ///
    /// ```
    /// use zoneplug_nvme::target::Nqn;
    /// assert!(Nqn::new("nqn.2014-08.org.nvmexpress:uuid:6f1f").is_ok());
    /// assert!(Nqn::new("disk1").is_err());
    /// ```
    pub fn new(text: &str) -> Result<Nqn, Error> {
        let plain = !text.chars().any(char::is_control);
        if text.starts_with("nqn.") && text.len() <= MAX_NQN && plain {
            return Ok(Nqn(text.to_owned()));
        }
        Err(Error::invalid(format!("\"{text}\" is no NVMe qualified name"))
            .hint("nqn.YYYY-MM.DOMAIN:NAME, at most 223 bytes"))
    }

    /// Accepts a name that this program gives itself, if people can read it: a name that looks like another one, or
    /// that steers a terminal, is refused. Names of hosts come from outside, so [`Nqn::new`] accepts all that the
    /// specification allows, and whatever displays such a name makes it [plain](zoneplug_core::plain).
    ///
    /// ```
    /// use zoneplug_nvme::target::Nqn;
    /// assert!(Nqn::own("nqn.2026-11.dev.example:z\u{fc}rich").is_ok());
    /// assert!(Nqn::own("nqn.2026-11.dev.example:\u{202e}a").is_err());
    /// assert!(Nqn::own("nqn.2014-08.org.nvmexpress.discovery").is_err());
    /// ```
    pub fn own(text: &str) -> Result<Nqn, Error> {
        let nqn = Nqn::new(text)?;
        if text == DISCOVERY_NQN {
            return Err(Error::invalid(format!(
                "{text} is the name of every discovery controller"
            ))
            .hint("a name of its own: nqn.YYYY-MM.DOMAIN:NAME"));
        }
        if text.chars().all(is_plain) {
            return Ok(nqn);
        }
        Err(Error::invalid(format!("{text} has characters that cannot be seen"))
            .hint("nqn.YYYY-MM.DOMAIN:NAME, of what can be printed"))
    }

    /// Decodes a field of a command's data: the bytes up to the first 0.
    pub fn decode(field: &[u8; 256]) -> Option<Nqn> {
        let end = field.iter().position(|b| *b == 0)?;
        Nqn::new(std::str::from_utf8(&field[..end]).ok()?).ok()
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::text;

    #[test]
    fn names() {
        for bad in ["", "nqn", "disk", "nqn.a\nb", &format!("nqn.{}", "x".repeat(220))] {
            assert!(Nqn::new(bad).is_err(), "{bad}");
        }
        assert!(Nqn::new(&format!("nqn.{}", "x".repeat(219))).is_ok());
        assert_eq!(Nqn::decode(&text("nqn.a", 0)), Nqn::new("nqn.a").ok());
        assert_eq!(Nqn::decode(&text("nqn.a", b'a')), None, "no end");
        let mut field = text("nqn.a", 0);
        field[3] = 0xff;
        assert_eq!(Nqn::decode(&field), None, "no UTF-8");
    }
}
