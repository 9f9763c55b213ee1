//! Files that commands make: `read DISK FILE`, `bench --write-trace`, `--html`, `man DIR`. A file is written under a
//! temporary name and renamed when it is complete, so an older file stays if the command fails. A zoneplug disk or a
//! block device is replaced or written only if the caller allows it.

use crate::failure::{Failure, Kind};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zoneplug_core::Error;
use zoneplug_host::file::Claim;
use zoneplug_host::{Attempt, Part, cannot_make, is_disk_file, os_error, take_after};

/// The things that a command may overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Files, but no disk. The command has no flag to allow a disk.
    Files,
    /// Files, but no disk unless the user adds the command's `--force`.
    FilesUnlessForced,
    /// Also a disk that is not in use (`--force`).
    Disks,
}

/// A file that a command is making.
pub struct Output {
    name: String,
    to: Destination,
}

enum Destination {
    Stdout(io::Stdout),
    /// An existing pipe, terminal or device, or the target of a descriptor of the caller.
    InPlace(File),
    /// A temporary file beside `place`, renamed to it at the end.
    Beside {
        file: File,
        part: Part,
        place: PathBuf,
        /// Keeps other processes from opening the disk that is replaced.
        claim: Option<Box<Claim>>,
    },
}

/// Whether two paths lead to one file.
fn same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whether a path leads through the descriptors of a process.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/fd", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/proc"]
        .iter()
        .any(|p| path.starts_with(p))
}

impl Output {
    /// Begins the file at `path`; `-` is standard output. `from`: files and disks that the command reads. If `path`
    /// is one of them, it is refused.
    pub fn create<'a>(
        path: &Path,
        over: Over,
        from: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Output, Failure> {
        let name = path.display().to_string();
        let stdout =
            || Output { name: "the output".to_owned(), to: Destination::Stdout(io::stdout()) };
        if path.as_os_str() == "-" {
            return Ok(stdout());
        }
        let fail = |e: io::Error| {
            let e = os_error(Attempt::NewFile, &name, e);
            Failure::from(e.and_try("- for stdout"))
        };
        let there = match std::fs::metadata(path) {
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(fail(e)),
        };
        let Some(there) = there else {
            // A link without a target is followed, as other programs do.
            let place = std::fs::read_link(path).map_or_else(
                |_| path.to_owned(),
                |to| path.parent().unwrap_or(Path::new("")).join(to),
            );
            return Self::beside(name, place, None, None);
        };
        let t = there.file_type();
        if t.is_dir() {
            return Err(Failure::usage(format!("{name} is a directory")).hint("name a file"));
        }
        let mut sources = from.into_iter().filter_map(|p| std::fs::metadata(p).ok());
        if (t.is_file() || t.is_block_device()) && sources.any(|s| same(&s, &there)) {
            return Err(Failure::usage(format!("{name} is what is read"))
                .hint("another file, or - for stdout"));
        }
        if t.is_block_device() {
            return Ok(Output { to: Destination::InPlace(Self::device(path, &name, over)?), name });
        }
        let claim = if t.is_file() { claim_disk(path, &name, over)? } else { None };
        if std::fs::metadata("/dev/stdout").is_ok_and(|out| same(&out, &there)) {
            return Ok(stdout());
        }
        if t.is_file() && !is_descriptor(path) {
            let place = std::fs::canonicalize(path).map_err(fail)?;
            return Self::beside(name, place, Some(&there), claim);
        }
        let mut how = OpenOptions::new();
        let file = how.write(true).truncate(t.is_file()).open(path).map_err(fail)?;
        Ok(Output { name, to: Destination::InPlace(file) })
    }

    /// Opens a block device exclusively.
    fn device(path: &Path, name: &str, over: Over) -> Result<File, Failure> {
        if over != Over::Disks {
            return Err(Failure::new(Kind::Device, format!("{name} is a block device"))
                .hint(hint(over, "a file, or - for stdout")));
        }
        let flags = rustix::fs::OFlags::EXCL.bits() as i32;
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
            .map_err(|e| Failure::from(os_error(Attempt::Drive, name, e)))
    }

    fn beside(
        name: String,
        place: PathBuf,
        there: Option<&Metadata>,
        claim: Option<Claim>,
    ) -> Result<Output, Failure> {
        let fail = |e: io::Error| {
            let e = cannot_make(&place, e);
            let what = format!("{name}: a file beside it cannot be made: {}", e.what());
            let way = "a directory in which you may make files; or - for stdout";
            Failure::from(
                Error::new(e.kind(), what).hint(e.what_to_try().unwrap_or_default()).and_try(way),
            )
        };
        let (part, file) = Part::beside(&place, 0o666).map_err(fail)?;
        let output = Output {
            name: name.clone(),
            to: Destination::Beside { file, part, place, claim: claim.map(Box::new) },
        };
        if let (Some(there), Destination::Beside { file, place, .. }) = (there, &output.to) {
            take_after(file, there).map_err(|e| Failure::from(cannot_make(place, e)))?;
        }
        Ok(output)
    }

    /// Refuses command lines that send two files, or a file and the document, to standard output. Returns whether a
    /// file goes there; the command then prints nothing else.
    ///
    /// `files` have the flags that name them; `document` is the flag that asks for a document.
    pub fn have_stdout(
        files: &[(&str, Option<&Output>)],
        document: Option<&str>,
    ) -> Result<bool, Failure> {
        let files = files.iter().filter(|(_, file)| {
            file.is_some_and(|output| matches!(output.to, Destination::Stdout(_)))
        });
        let flags: Vec<&str> = files.map(|(flag, _)| *flag).chain(document).collect();
        match flags[..] {
            [one, other, ..] => {
                Err(Failure::usage(format!("{one} and {other} would both be on standard output"))
                    .hint(format!("{one} FILE")))
            }
            [one] => Ok(Some(one) != document),
            [] => Ok(false),
        }
    }

    /// Writes `text` and finishes the file.
    pub fn end_with(mut self, text: &[u8]) -> Result<(), Failure> {
        self.write_all(text).map_err(|e| self.failed(&e))?;
        self.finish()
    }

    /// The failure to write the file.
    pub fn failed(&self, e: &io::Error) -> Failure {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(Kind::BrokenPipe, "");
        }
        Failure::io(format!("writing {}: {e}", self.name))
            .hint("look at the room and the rights there")
    }

    /// Finishes the file: a temporary file replaces the file at its place.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush().map_err(|e| self.failed(&e))?;
        if let Destination::Beside { part, place, claim, .. } =
            std::mem::replace(&mut self.to, Destination::Stdout(io::stdout()))
        {
            let renamed = part.replace(&place);
            drop(claim);
            renamed.map_err(|e| self.failed(&e))?;
        }
        Ok(())
    }
}

fn hint(over: Over, otherwise: &str) -> String {
    match over {
        Over::FilesUnlessForced => format!("{otherwise}; --force to lose what is on it"),
        _ => otherwise.to_owned(),
    }
}

/// Refuses a file that is a disk, or with `--force` a disk in use. The returned claim keeps other processes from
/// opening it.
fn claim_disk(path: &Path, name: &str, over: Over) -> Result<Option<Claim>, Failure> {
    // A file that cannot be read may be a disk.
    if is_disk_file(path).is_ok_and(|is| !is) {
        return Ok(None);
    }
    if over != Over::Disks {
        return Err(Failure::new(Kind::Device, format!("{name} is a zoneplug disk"))
            .hint(hint(over, "another file; rm removes a disk that is not needed any more")));
    }
    match Claim::of(path) {
        Err(e) if e.kind() == zoneplug_core::ErrorKind::Busy => Err(Failure::from(e)),
        claim => Ok(claim.ok()),
    }
}

/// Refuses to write to standard output if that is a disk: `zoneplug info >> disk.zbd`.
pub fn refuse_disk_as_stdout() -> Result<(), Failure> {
    let stdout = Path::new("/proc/self/fd/1");
    let is_file = std::fs::metadata(stdout).is_ok_and(|m| m.is_file() && m.len() > 0);
    // A file that cannot be opened again is not checked: the caller had it open.
    if !is_file || !is_disk_file(stdout).unwrap_or(false) {
        return Ok(());
    }
    Err(Failure::new(Kind::Device, "standard output is a zoneplug disk").hint("another file"))
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            Destination::Stdout(out) => out.write(buf),
            Destination::InPlace(file) | Destination::Beside { file, .. } => file.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            Destination::Stdout(out) => out.flush(),
            Destination::InPlace(file) | Destination::Beside { file, .. } => file.flush(),
        }
    }
}
