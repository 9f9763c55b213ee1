//! The files of a trace. blktrace writes one for each processor, `sda.blktrace.0` and so on. The name of one of them, or
//! `sda` as blkparse has it, stands for all of them.

use crate::failure::Failure;
use indicatif::ProgressBar;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zoneplug_core::Error;
use zoneplug_host::open_regular;

/// Files that are read more than once.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// Of all of them.
    pub(super) bytes: u64,
    bar: ProgressBar,
}

impl Files {
    /// Finds the files of the trace that is called `path`.
    pub(super) fn of(path: &Path, bar: ProgressBar) -> Result<Files, Failure> {
        let paths = siblings(path).filter(|all| !all.is_empty()).unwrap_or(vec![path.to_owned()]);
        let mut files = Files { paths: Vec::new(), bytes: 0, bar };
        for path in paths {
            let meta = std::fs::metadata(&path).map_err(|e| unreadable(&path, &e))?;
            if !meta.is_file() {
                return Err(Failure::usage(format!("{} is no file", path.display()))
                    .hint("a file: a trace is read more than once"));
            }
            // Most processors of a large machine do nothing, and open files are few.
            if meta.len() > 0 || files.paths.is_empty() {
                files.bytes += meta.len();
                files.paths.push(path);
            }
        }
        Ok(files)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.paths.len()
    }

    /// Where they are.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Opens them, from their beginnings.
    pub(super) fn open(&self) -> Result<Vec<Box<dyn Read>>, Error> {
        let open = |path: &PathBuf| -> Result<Box<dyn Read>, Error> {
            let file = open_regular(path).map_err(|e| unreadable(path, &e))?;
            Ok(Box::new(self.bar.wrap_read(file)))
        };
        self.paths.iter().map(open).collect()
    }
}

fn unreadable(path: &Path, e: &io::Error) -> Error {
    Error::invalid(format!("reading {}: {e}", path.display()))
        .hint("a file of blktrace, the output of blkparse or of fio --write_iolog, or CSV")
}

/// The files beside `path` that are of the same trace of blktrace's, by their numbers. `None`: the name is no such one.
fn siblings(path: &Path) -> Option<Vec<PathBuf>> {
    const MARK: &str = ".blktrace";
    let name = path.file_name()?.to_str()?;
    let base = match name.rsplit_once('.') {
        Some((base, n)) if base.ends_with(MARK) && number(n).is_some() => base.to_owned(),
        _ if path.exists() => return None,
        _ if name.ends_with(MARK) => name.to_owned(),
        _ => format!("{name}{MARK}"),
    };
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let of = entry.file_name();
        let n = of.to_str().and_then(|n| n.strip_prefix(&base)?.strip_prefix('.'));
        if let Some(n) = n.and_then(number) {
            found.push((n, path.with_file_name(of)));
        }
    }
    found.sort();
    Some(found.into_iter().map(|(_, path)| path).collect())
}

/// The number of a processor.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
