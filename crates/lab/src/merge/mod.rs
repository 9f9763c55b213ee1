//! `zoneplug-lab merge`: merges the results of shards, from several machines, into those of one run.
//!
//! | file | what it does |
//! | --- | --- |
//! | `worlds.rs` | documents of `zoneplug-lab sim --shard I/N --json` |
//! | `cells.rs` | files of `zoneplug.sweep(..., shard=(i, n))` of the Python package |

mod cells;
mod worlds;

use crate::failure::Failure;
use crate::input::unreadable;
use crate::sim::Shard;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use zoneplug_host::open_regular;

/// Flags of `zoneplug-lab merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What zoneplug-lab sim --shard I/N --json printed, each shard once; or the files of a sweep in shards. - is stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// A file with its whole text.
struct Input {
    name: String,
    text: String,
}

impl Input {
    fn read(path: &Path) -> Result<Input, Failure> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let read = match path.as_os_str() == "-" {
            true => std::io::stdin().lock().read_to_end(&mut bytes),
            false => open_regular(path).and_then(|mut file| file.read_to_end(&mut bytes)),
        };
        let what = "what zoneplug-lab sim --shard I/N --json printed, in a file";
        read.map_err(|e| unreadable(&name, &e, what))?;
        let text = String::from_utf8(bytes).map_err(|_| no_results(&name))?;
        Ok(Input { name, text })
    }
}

/// The failure for a file without results of a shard.
fn no_results(name: &str) -> Failure {
    Failure::usage(format!("{name} has no results of a shard"))
        .hint("what zoneplug-lab sim --shard I/N --json printed, or the file of a sweep")
}

/// The results of a shard, and the name of their file.
struct Part<T> {
    name: String,
    results: T,
}

/// The parts of one run, by shard.
struct Parts<T>(BTreeMap<Shard, Part<T>>);

impl<T> Parts<T> {
    /// Adds a part, and returns its results. Fails if the shard has one already.
    fn put(&mut self, shard: Shard, name: String, results: T) -> Result<&mut T, Failure> {
        if let Some(other) = self.0.get(&shard) {
            let what = format!("{shard} is there twice: in {} and in {name}", other.name);
            return Err(Failure::usage(what).hint("leave one of them out"));
        }
        Ok(&mut self.0.entry(shard).or_insert(Part { name, results }).results)
    }

    /// Fails if one of the `of` shards is missing. `run_it`: how the first missing one is run, and
    /// whether others are missing too.
    fn all_there(
        &self,
        of: u64,
        run_it: impl FnOnce(Shard, bool) -> String,
    ) -> Result<(), Failure> {
        let there = |number: &u64| self.0.contains_key(&Shard { number: *number, of });
        // At most 1000 missing shards are listed, however large `of` is.
        let absent: Vec<u64> = (1..=of).filter(|n| !there(n)).take(1000).collect();
        let &[number, ref rest @ ..] = &absent[..] else { return Ok(()) };
        let (noun, verb) = if rest.is_empty() { ("shard", "is") } else { ("shards", "are") };
        let what = format!("{noun} {} of {of} {verb} missing", list(&absent));
        Err(Failure::usage(what).hint(run_it(Shard { number, of }, !rest.is_empty())))
    }
}

/// Formats sorted numbers as a list: `3, 7-9`.
fn list(numbers: &[u64]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        parts.push(match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => continue,
        });
        if parts.len() > 20 {
            parts.push("more".to_owned());
            break;
        }
    }
    parts.join(", ")
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let inputs = args.files.iter().map(|f| Input::read(f)).collect::<Result<Vec<_>, _>>()?;
    match inputs.iter().any(|i| cells::is_header(i.text.lines().next().unwrap_or_default())) {
        true if args.json => Err(Failure::usage("the results of a sweep are JSON lines")
            .hint("without --json: what is printed is a file of the sweep")),
        true => cells::merge(&inputs, out),
        false => worlds::merge(&inputs, args.json, out),
    }
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn missing_numbers_are_a_short_list() {
        assert_eq!(list(&[3, 7, 8, 9]), "3, 7-9");
        assert_eq!(list(&[1, 2]), "1-2");
        assert_eq!(list(&[]), "");
        let odd: Vec<u64> = (0..500).map(|n| 2 * n).collect();
        assert!(list(&odd).ends_with("40, more"));
    }
}
