//! Finds and opens the files of a trace. blktrace writes one for each processor: `sda.blktrace.0` and so on. The name
//! of one of them, or `sda` as for blkparse, stands for all of them. A pipe is copied first, because a trace is read
//! more than once.

use crate::failure::Failure;
use crate::input;
use crate::interrupt;
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zoneplug_core::Error;
use zoneplug_host::{open_regular, scratch_file};

/// The number of missing files that are named. A processor's number may be any.
pub(super) const MAX_MISSING: usize = 64;

/// The files of a trace, which can be read more than once.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// A copy of the data that came through a pipe, and where the trace begins in it.
    copied: Option<(Arc<File>, u64)>,
    /// Names that the files of processors between others would have, if they were there.
    missing: Vec<String>,
    /// Length of all files together.
    pub(super) bytes: u64,
    bar: ProgressBar,
}

impl Files {
    /// Finds the files of the trace `path`. `-` is standard input. `begins` refuses what does not begin as a trace.
    pub(super) fn of(
        path: &Path,
        bar: ProgressBar,
        begins: impl Fn(&[u8]) -> Result<(), Error>,
    ) -> Result<Files, Failure> {
        let mut files =
            Files { paths: Vec::new(), copied: None, missing: Vec::new(), bytes: 0, bar };
        if path == Path::new("-") {
            let input = io::stdin().as_fd().try_clone_to_owned();
            let input = input.map_err(|e| unreadable(path, &e))?;
            return files.keep(path, File::from(input), begins);
        }
        let mut paths = vec![path.to_owned()];
        if let Some(PerProcessor { base, by_processor }) = siblings(path)?
            && let [.., (last, _)] = by_processor[..]
        {
            let is_missing = |n: &u32| by_processor.binary_search_by_key(n, |(of, _)| *of).is_err();
            let missing = (0..last).filter(is_missing).take(MAX_MISSING);
            files.missing = missing.map(|n| format!("{base}.{n}")).collect();
            paths = by_processor.into_iter().map(|(_, path)| path).collect();
        }
        for path in paths {
            let meta = std::fs::metadata(&path).map_err(|e| unreadable(&path, &e))?;
            if meta.file_type().is_fifo() || path == Path::new("/dev/stdin") {
                let pipe = interrupt::while_waiting(|| File::open(&path));
                let pipe = pipe.map_err(|e| unreadable(&path, &e))?;
                return files.keep(&path, pipe, begins);
            }
            if !meta.is_file() {
                return Err(Failure::usage(format!("{} is no file", path.display()))
                    .hint("a file, a pipe, or - for standard input"));
            }
            // Empty files are left out: most processors of a large machine are idle, and a process may open few
            // files.
            if meta.len() > 0 || files.paths.is_empty() {
                files.bytes += meta.len();
                files.paths.push(path);
            }
        }
        Ok(files)
    }

    /// Copies a pipe to an unnamed temporary file. Standard input that is a file is used as it is.
    fn keep(
        mut self,
        path: &Path,
        mut input: File,
        begins: impl Fn(&[u8]) -> Result<(), Error>,
    ) -> Result<Files, Failure> {
        let meta = input.metadata().map_err(|e| unreadable(path, &e))?;
        if meta.is_dir() {
            return Err(Failure::usage(format!("{} is no file", path.display()))
                .hint("a file, a pipe, or - for standard input"));
        }
        if meta.is_file() {
            let begin = input.stream_position().map_err(|e| unreadable(path, &e))?;
            self.bytes = meta.len().saturating_sub(begin);
            // The path is noted so that no output replaces the file.
            self.paths.push("/dev/stdin".into());
            self.copied = Some((Arc::new(input), begin));
            return Ok(self);
        }
        let mut file = scratch_file().map_err(|e| no_room(path, &e))?;
        // The writer of the pipe decides when it ends, so the first signal ends the process.
        self.bytes = interrupt::while_waiting(|| copy(path, &mut input, &mut file, begins))?;
        self.copied = Some((Arc::new(file), 0));
        Ok(self)
    }

    /// The number of files.
    pub(super) fn count(&self) -> usize {
        self.paths.len().max(1)
    }

    /// Names of the first files that are missing between others: blktrace writes one for each processor that is online.
    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The paths of the files that have names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Opens each file at its beginning.
    pub(super) fn open(&self) -> Result<Vec<Box<dyn Read>>, Error> {
        if let Some((file, begin)) = &self.copied {
            let reader = ReadAt { file: file.clone(), at: *begin };
            return Ok(vec![Box::new(self.bar.wrap_read(reader))]);
        }
        let open = |path: &PathBuf| -> Result<Box<dyn Read>, Error> {
            let file = open_regular(path).map_err(|e| unreadable(path, &e))?;
            Ok(Box::new(self.bar.wrap_read(file)))
        };
        self.paths.iter().map(open).collect()
    }
}

/// A reader with its own position in a file that is shared.
struct ReadAt {
    file: Arc<File>,
    at: u64,
}

impl Read for ReadAt {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Bytes of a pipe that are looked at before the rest is copied: what never ends would fill the disk.
const HEAD: usize = 256 << 10;

/// Copies a pipe to its end. Returns the number of bytes.
fn copy(
    path: &Path,
    from: &mut File,
    to: &mut File,
    begins: impl Fn(&[u8]) -> Result<(), Error>,
) -> Result<u64, Failure> {
    let mut piece = vec![0; HEAD];
    let mut bytes = 0;
    let mut is_checked = false;
    loop {
        if bytes >= HEAD as u64 && !std::mem::replace(&mut is_checked, true) {
            to.read_exact_at(&mut piece, 0).map_err(|e| no_room(path, &e))?;
            begins(&piece)?;
        }
        let n = match from.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(unreadable(path, &e).into()),
        };
        to.write_all(&piece[..n]).map_err(|e| no_room(path, &e))?;
        bytes += n as u64;
    }
}

fn no_room(path: &Path, e: &io::Error) -> Failure {
    let dir = std::env::temp_dir();
    Failure::io(format!("copying {} to {}: {e}", path.display(), dir.display()))
        .hint("TMPDIR=DIR, a directory with room for the trace; or a file")
}

fn unreadable(path: &Path, e: &io::Error) -> Error {
    let what = "a file of blktrace, the output of blkparse or of fio --write_iolog, or CSV";
    input::unreadable(&path.display().to_string(), e, what)
}

/// The common beginning of the names of all processors' files, if `path` is such a name or stands for all.
fn base_of(path: &Path) -> Option<String> {
    const MARK: &str = ".blktrace";
    let name = path.file_name()?.to_str()?;
    // The files may be compressed with gzip.
    let name = if path.exists() { unpacked(name) } else { name };
    match name.rsplit_once('.') {
        Some((base, n)) if base.ends_with(MARK) && number(n).is_some() => Some(base.to_owned()),
        _ if path.exists() => None,
        _ if name.ends_with(MARK) => Some(name.to_owned()),
        _ => Some(format!("{name}{MARK}")),
    }
}

/// The files of one blktrace trace.
struct PerProcessor {
    /// The common beginning of their names.
    base: String,
    /// Each processor and its file, in order.
    by_processor: Vec<(u32, PathBuf)>,
}

/// The files of the same blktrace trace as `path`. `None`: blktrace gives no such name. Fails if one processor has two
/// files, because its events would be sent twice.
fn siblings(path: &Path) -> Result<Option<PerProcessor>, Failure> {
    let Some(base) = base_of(path) else { return Ok(None) };
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(None) };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let of = entry.file_name();
        let n = of.to_str().and_then(|n| unpacked(n).strip_prefix(&base)?.strip_prefix('.'));
        if let Some(n) = n.and_then(number) {
            found.push((n, path.with_file_name(of)));
        }
    }
    found.sort();
    if let Some([(n, one), (_, other)]) = found.array_windows().find(|[a, b]| a.0 == b.0) {
        let (one, other) = (one.display(), other.display());
        let what = format!("{one} and {other} are both of processor {n}");
        return Err(Failure::usage(what).hint(format!("mv {other} to another directory, or rm it")));
    }
    Ok(Some(PerProcessor { base, by_processor: found }))
}

/// A name without the suffix of gzip.
fn unpacked(name: &str) -> &str {
    name.strip_suffix(".gz").unwrap_or(name)
}

/// Parses the number of a processor.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
