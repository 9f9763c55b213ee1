//! What the text of a specification says of its devices before any is opened: which outlive the process, which take
//! writes, and which file names it can contain. Also the error for a name of nothing.

use super::drives::is_protected;
use super::keys::{READ_ONLY, is_kind, is_layer, kind_names, layer_names};
use super::{bases, is_path, paths_of, split_layer};
use crate::paths::{is_drive, may_write};
use std::path::Path;
use zoneplug_core::{Error, ErrorKind};
use zoneplug_devices::spec::{Spec, nearest};

/// Whether a device that a specification names is lost when the process ends: a disk in memory, or one that keeps no
/// data.
///
/// ```
/// assert!(zoneplug_host::is_volatile("linear@./a.zbd%mem"));
/// assert!(!zoneplug_host::is_volatile("po2@./a.zbd"));
/// assert!(!zoneplug_host::is_volatile("./sim-logs"), "a file, and no modelled drive");
/// ```
pub fn is_volatile(text: &str) -> bool {
    let kind = |base: &str| !is_path(base) && !is_drive(base);
    bases(text).iter().any(|base| kind(base.split(',').next().unwrap_or_default()))
}

/// Whether a disk could be written if it were opened for writing. A disk that was opened only to inspect it always says
/// that it is read-only, so it cannot answer this.
///
/// ```
/// assert!(zoneplug_host::takes_writes("mem,zones=8"));
/// assert!(!zoneplug_host::takes_writes("mem,zones=8,read-only=1"));
/// ```
pub fn takes_writes(text: &str) -> bool {
    bases(text).iter().all(|base| {
        let kind = base.split(',').next().unwrap_or_default();
        let path = Path::new(kind);
        !is_to_read(base)
            && match (is_drive(kind), is_path(kind)) {
                (true, _) => !is_protected(path),
                (_, true) => may_write(path).is_ok(),
                _ => true,
            }
    })
}

/// The paths of the durable disks and drives that a specification has opened for writing.
///
/// ```
/// let paths: Vec<_> = zoneplug_host::writes_to("linear@./a.zbd%./b.zbd,read-only=1").collect();
/// assert_eq!(paths, [std::path::Path::new("./a.zbd")]);
/// ```
pub fn writes_to(text: &str) -> impl Iterator<Item = &Path> {
    bases(text).into_iter().filter(|base| !is_to_read(base)).flat_map(paths_of)
}

/// Whether a device is to be opened for reading only.
fn is_to_read(base: &str) -> bool {
    let read_only = Spec::parse(base).and_then(|mut spec| spec.flag(&READ_ONLY));
    read_only.is_ok_and(|asked| asked == Some(true))
}

/// Checks that a specification can contain the name of a new file. Commas, `=` and the names of layers have a meaning
/// of their own there.
///
/// ```
/// use std::path::Path;
/// assert!(zoneplug_host::check_name(Path::new("my disk.zbd")).is_ok());
/// assert!(zoneplug_host::check_name(Path::new("a,b.zbd")).is_err());
/// ```
pub fn check_name(path: &Path) -> Result<(), Error> {
    let shown = path.display();
    let wrong = |hint: String| {
        Err(Error::invalid(format!("no specification names a file that is called {shown}"))
            .hint(hint))
    };
    let Some(text) = path.to_str() else {
        return wrong("a name in UTF-8".to_owned());
    };
    if text.contains([',', '=']) {
        return wrong(format!("a path without commas and =: {}", text.replace([',', '='], "-")));
    }
    if let Some((layer, _)) = split_layer(text) {
        return wrong(format!("a path that does not begin with {layer}@, as in ./{text}"));
    }
    if is_kind(text) {
        return wrong(format!("./{text} or {text}.zbd: {text} alone is another kind of device"));
    }
    Ok(())
}

/// The error for a kind that is neither a kind of device nor the name of a file.
pub(super) fn neither(spec: &Spec) -> Error {
    let kind = spec.kind();
    if Path::new(kind).is_dir() {
        return Error::invalid(format!("{kind} is a directory")).hint("the file of a disk in it");
    }
    let not_found = |what: String, hint: String| Error::new(ErrorKind::NotFound, what).hint(hint);
    if is_layer(kind) {
        return not_found(
            format!("{kind} is a layer, and on no device"),
            format!("the device behind an @, as in {kind}@mem,zones=8"),
        );
    }
    if let Some((layer, _)) = kind.split_once('@') {
        let hint = match nearest(layer, &layer_names()) {
            Some(k) => format!("did you mean {k}@? There are: {}", layer_names().join(", ")),
            None => format!("check the path; layers are {}", layer_names().join(", ")),
        };
        let what = format!("there is no file '{kind}', and no layer is called '{layer}'");
        return not_found(what, hint);
    }
    let hint = match nearest(kind, &kind_names()) {
        Some(k) => format!("did you mean {k}? There are: {}", kind_names().join(", ")),
        None => format!(
            "check the path; zoneplug create makes a disk. Kinds of device are {}",
            kind_names().join(", ")
        ),
    };
    let what = format!("there is no file '{kind}', and no kind of device of that name");
    not_found(what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U9. The next server can take over what is in a file, whatever the name of the file.
    #[test]
    fn only_what_is_in_memory_ends_with_its_process() {
        for spec in [
            "null",
            "mem,zones=8",
            "po2@mem,zone-size=96M",
            "sim-smr30",
            "sim,profile=x",
            "linear@d.zbd%mem",
        ] {
            assert!(is_volatile(spec), "{spec}");
        }
        for spec in ["disk.zbd", "/srv/disk.zbd,io=ring", "po2@./d.zbd", "stripe@a.zbd%b.zbd"] {
            assert!(!is_volatile(spec), "{spec}");
        }
        for spec in ["./sim-logs", "sim-logs.zbd,qd1=1", "po2@./mem", "./null"] {
            assert!(!is_volatile(spec), "{spec}: a file with the name of a kind");
        }
    }
}
