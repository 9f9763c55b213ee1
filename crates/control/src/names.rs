//! Names of served disks. Clients tell them from specifications by their form.

/// The form of the names of a door's disks: a word, the number of a port, a letter, and the number of a disk.
#[derive(Debug, Clone, Copy)]
pub struct NameForm {
    word: &'static str,
    letter: char,
}

/// Namespaces: `tcp4420n1` for namespace 1 at port 4420.
pub const NAMESPACE: NameForm = NameForm { word: "tcp", letter: 'n' };
/// Logical units: `iscsi3260l0` for LUN 0 at port 3260.
pub const LOGICAL_UNIT: NameForm = NameForm { word: "iscsi", letter: 'l' };

const FORMS: [NameForm; 2] = [NAMESPACE, LOGICAL_UNIT];

/// The number that is all of a text. Unlike `parse` alone, it takes no sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

impl NameForm {
    /// The name of a disk.
    ///
    /// ```
    /// assert_eq!(zoneplug_control::names::LOGICAL_UNIT.name(3260, 0), "iscsi3260l0");
    /// ```
    pub fn name(self, port: u16, disk: u64) -> String {
        format!("{}{port}{}{disk}", self.word, self.letter)
    }

    /// The number of the disk, if this is a name of this form.
    ///
    /// ```
    /// use zoneplug_control::names::NAMESPACE;
    /// assert_eq!((NAMESPACE.disk("tcp4420n1"), NAMESPACE.disk("tcpn1")), (Some(1), None));
    /// ```
    pub fn disk(self, name: &str) -> Option<u64> {
        let (port, disk) = name.strip_prefix(self.word)?.split_once(self.letter)?;
        number(port).and(number(disk))
    }
}

/// The name of a disk, without `/dev/`.
pub fn name_of(disk: &str) -> &str {
    disk.strip_prefix("/dev/").unwrap_or(disk)
}

/// Whether an argument can only name a served disk.
pub fn is_name(disk: &str) -> bool {
    let name = name_of(disk);
    let is_block_device = name.strip_prefix("ublkb").and_then(number).is_some();
    is_block_device || FORMS.iter().any(|form| form.disk(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_served_disks_are_names() {
        for name in ["ublkb0", "/dev/ublkb12", "tcp4420n1", "iscsi3260l0", "/dev/iscsi3260l12"] {
            assert!(is_name(name), "{name}");
        }
        let specs = ["mem,zones=8", "ublkb", "disk.zbd", "/dev/sda", "ublkb0.zbd", "null", "tcp1"];
        for spec in specs.iter().chain(&["tcpn1", "iscsi1n0", "iscsi3260", "ublkb+1", "tcp1n-1"]) {
            assert!(!is_name(spec), "{spec}");
        }
        for form in FORMS {
            assert_eq!(form.disk(&form.name(3260, 12)), Some(12), "{form:?}");
        }
    }
}
