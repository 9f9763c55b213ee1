//! The command line of zoneplug: parses the flags and runs the command.
//!
//! | file | what it does |
//! | --- | --- |
//! | `main.rs` | commands and the way out |
//! | `failure.rs`, `exit.rs` | errors in two lines, exit codes |
//! | `disk.rs` | from a specification to a device, or to a disk in use |
//! | `zones.rs`, `confirm.rs`, `window.rs` | ranges of zones; asking first; many operations at a time |
//! | `threads.rs` | threads that work together |
//! | `term.rs` | colours, the width of the terminal, lines that fit it |
//! | `json.rs`, `csv.rs` | output for programs |
//! | `html/` | pages with plots |
//! | `interrupt.rs` | Ctrl-C |
//! | `info.rs`, `report/` | `zoneplug info`, `report` |
//! | `create.rs` | `zoneplug create`, `check` |
//! | `snapshot.rs` | `zoneplug snapshot` |
//! | `manage.rs` | `zoneplug reset`, `open`, `close`, `finish`, `flush`, `resync` |
//! | `copy/` | `zoneplug write`, `read`, `append` |
//! | `attr.rs` | `zoneplug attr`, `zone-wplugs` |
//! | `serve/`, `status.rs` | `zoneplug serve`: flags, the file of settings, words (the crate `zoneplug-server` serves); `zoneplug status` |
//! | `mount.rs` | `zoneplug mount` |
//! | `pages/`, `trace.rs` | `zoneplug help`, `completions`, `man`; `--trace`, in builds that have it |
//! | `suggest.rs` | what the completions of a shell offer |
//! | `output.rs` | files that commands make, and what they never overwrite |
//! | `virtual_disk.rs` | disks in virtual time: the flags for ways to open them |
//! | `bench/` | `zoneplug bench` |
//! | `demo.rs` | `zoneplug demo` |
//! | `reproduce/` | `zoneplug reproduce` |
//! | `replay/` | `zoneplug replay` |
//! | `calibrate.rs` | `zoneplug calibrate` |
//! | `sim.rs`, `merge/` | `zoneplug sim`; the results of its shards as those of one run |
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | data read back was not what was written, I/O failed, or a figure is outside of its band |
//! | 2 | wrong usage, or an impossible device specification |
//! | 3 | a device is busy, or does not exist |
//! | 4 | not supported by this device or build |
//! | 130 | ended by Ctrl-C; 128 and the number of the signal, after another one |

#![forbid(unsafe_code)]

mod attr;
mod background;
mod bench;
mod calibrate;
mod confirm;
mod copy;
mod create;
mod csv;
mod demo;
mod disk;
mod exit;
mod failure;
mod html;
mod info;
mod interrupt;
mod json;
mod manage;
mod merge;
#[cfg(feature = "mount")]
mod mount;
mod output;
mod pages;
mod replay;
mod report;
mod reproduce;
mod serve;
mod sim;
mod snapshot;
mod status;
mod suggest;
mod term;
mod threads;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "trace")]
mod trace;
mod virtual_disk;
mod window;
mod zones;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use interrupt::First;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use zoneplug_control::{client as server_client, said};
use zoneplug_core::Op;
use zoneplug_host::signals::{Held, survive_file_limit};

const EXAMPLES: &str = "\
Examples:
  zoneplug demo
  zoneplug create disk.zbd --size 20G --zone-size 256M
  zoneplug write disk.zbd data.tar && zoneplug report --map disk.zbd
  zoneplug read disk.zbd | tar t
  zoneplug reset disk.zbd --offset 0x80000 --count 2
  zoneplug bench
  zoneplug bench --disk mem,zones=64 --rw randwrite --bs 128k --iodepth 16
  zoneplug bench --disk sim-smr30 --rw randwrite --bs 1M --policy off,clook
  zoneplug replay trace.txt --disk sim-smr30 --policy off,fifo,clook+300us
  zoneplug reproduce smr30 --html report.html
  zoneplug serve --ublk disk.zbd
  zoneplug mount disk.zbd /mnt --format -o buffered
  zoneplug info mem,zones=512,zone-size=64M,conv=16,max-open=14
  zoneplug help spec";

/// The text of `zoneplug --version`: the version, the commit of the build, and its features (`build.rs`).
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nbuild: ",
    env!("ZONEPLUG_COMMIT"),
    "\nfeatures: ",
    env!("ZONEPLUG_FEATURES")
);

/// Ordered writes at any queue depth for zoned disks, in user space.
#[derive(Debug, Parser)]
#[command(name = "zoneplug", version, long_version = VERSION, disable_help_subcommand = true, max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{}", failure::EXIT_CODES))]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Show what the plugs do on stderr
    #[cfg(feature = "trace")]
    #[arg(long, global = true, help_heading = "Global options")]
    trace: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show in ten seconds what zoneplug is for, on disks in memory
    #[command(after_help = failure::EXIT_CODES)]
    Demo(demo::Args),
    /// Make a zoned disk in a file
    #[command(after_help = failure::EXIT_CODES)]
    Create(create::CreateArgs),
    /// Measure what plugging costs and show what it is for; or run a workload of one's own
    #[command(after_help = failure::EXIT_CODES)]
    Bench(bench::Args),
    /// Show a disk: geometry, limits, attributes, the conditions of its zones
    #[command(after_help = failure::EXIT_CODES)]
    Info(info::Args),
    /// Run the engine in virtual time, world after world, until one breaks a promise
    #[command(after_help = failure::EXIT_CODES)]
    Sim(sim::Args),
    /// Put the results of shards together, which several machines have computed
    ///
    /// Prints what one run of all seeds would have printed. Fails if a shard is missing, is there twice, or has not run
    /// all of its seeds, and says how to run it; and if a promise was broken in one of them. Of the files of a sweep of
    /// the Python package in shards it prints the file of the whole sweep.
    #[command(after_help = failure::EXIT_CODES)]
    Merge(merge::Args),
    /// Print the published tables beside what the engine gives on models of the drives, and on this machine
    ///
    /// The exit code is 1 if a cell with a band is outside of it, or a claim does not hold.
    #[command(after_help = failure::EXIT_CODES)]
    Reproduce(reproduce::Args),
    /// Send a block trace to models of drives, or to a drive: what each disk and policy gives
    ///
    /// A trace is a file of `blktrace`, what `blkparse` prints, what `fio --write_iolog` writes, or a table with the titles
    /// time_us,op,offset,length, or whose columns --columns names. Its lines may stand in any order. A trace of a
    /// conventional disk is laid over zones: see --map. All in virtual time, so an hour of a trace takes seconds. With --real-time the trace goes to any disk by the clock: zeroes replace what is in
    /// the zones that it writes.
    #[command(after_help = failure::EXIT_CODES)]
    Replay(replay::Args),
    /// Measure a drive and print the profile of a model that behaves like it
    ///
    /// Writes only zones that are named, and asks before that; what is in them is lost. Reads and writes for some minutes. Each number
    /// says how near it is, and some measurements are held back to show how well the profile predicts. Of a model, in virtual time, the
    /// numbers that it has are printed beside those that were found.
    #[command(after_help = failure::EXIT_CODES)]
    Calibrate(calibrate::Args),
    /// Show the zones: where they are, what they hold, their write pointers
    ///
    /// All zones, or those that the range touches. In the table start, len, cap and wptr are sectors of 512 bytes, and
    /// wptr counts from the start of the zone, as in `blkzone report`.
    #[command(after_help = failure::EXIT_CODES)]
    Report(report::Args),
    /// Empty zones: their data is gone
    ///
    /// All sequential zones, or those of a range, which must be whole zones.
    #[command(after_help = failure::EXIT_CODES)]
    Reset(manage::Args),
    /// Open zones explicitly
    ///
    /// All sequential zones, or those of a range, which must be whole zones. When the command ends the disk is closed,
    /// as by a power cycle: a disk in a file closes its zones then.
    #[command(after_help = failure::EXIT_CODES)]
    Open(manage::Args),
    /// Close open zones
    #[command(after_help = failure::EXIT_CODES)]
    Close(manage::Args),
    /// Make zones full: what is not written yet cannot be written
    #[command(after_help = failure::EXIT_CODES)]
    Finish(manage::Args),
    /// Copy a file or standard input to the disk, from a write pointer on, across zones
    ///
    /// Without --offset it starts at the write pointer of the first sequential zone that has room; with the start of a
    /// zone, at the write pointer of that zone. Data that do not fit into the zone go on in the next one with room:
    /// the stream is laid over what can be written of each zone. The last block is filled with zeroes. What was
    /// written is durable when the command ends.
    #[command(after_help = failure::EXIT_CODES)]
    Write(copy::WriteArgs),
    /// Copy what was written to a file or standard output
    ///
    /// Takes up what `zoneplug write` laid down: sequential zones in order, each up to its write pointer. With --length
    /// or --len it is so much from the start of the range on, written or not, laid over the zones in the same way. An
    /// --offset in a conventional zone includes those.
    #[command(after_help = failure::EXIT_CODES)]
    Read(copy::ReadArgs),
    /// Append a file or standard input with zone appends, and say where each landed
    ///
    /// To the zone that --offset names, or the first sequential one that has room, and on to the next. A line for each
    /// append: its zone, its first sector, its length in sectors.
    #[command(after_help = failure::EXIT_CODES)]
    Append(copy::AppendArgs),
    /// Make durable what was acknowledged
    #[command(after_help = failure::EXIT_CODES)]
    Flush(manage::FlushArgs),
    /// Read the zones of the device again and correct what the layer knows of them
    #[command(after_help = failure::EXIT_CODES)]
    Resync(manage::ResyncArgs),
    /// Check the file of a disk, and repair it
    #[command(after_help = failure::EXIT_CODES)]
    Check(create::CheckArgs),
    /// Copy the file of a disk as it is at one moment, also while it is served
    ///
    /// The copy has everything that was acknowledged before the command, and nothing torn. On btrfs and XFS it shares its
    /// blocks with the disk. Elsewhere most is copied while the disk is in use; its I/O waits for the last part. There is
    /// no file of that name until the copy is complete and durable, also after a power cut.
    #[command(after_help = failure::EXIT_CODES)]
    Snapshot(snapshot::Args),
    /// Serve disks as block devices (/dev/ublkbN) or over NVMe/TCP
    ///
    /// Zoned block devices of this machine (--ublk) need Linux 6.6 or newer, and root; zoned namespaces for this machine
    /// and others (--nvme-tcp) need neither. Stays in the foreground and prints a line for each disk once all are there;
    /// systemd is told with Type=notify. SIGINT, SIGTERM and SIGHUP end the server when what was written is durable: its
    /// block devices are removed, and its connections closed; a second one ends at once. When the process dies otherwise,
    /// Linux keeps the block devices of disks that outlive it (files, drives), and hosts go on connecting. Their I/O waits,
    /// until the same command is started again and goes on.
    #[command(after_help = failure::EXIT_CODES)]
    Serve(serve::Args),
    /// Mount the zones of a disk as files, as Linux's zonefs shows them
    ///
    /// DIR/cnv has the conventional zones, DIR/seq the sequential ones, but for the first zone, which holds the super
    /// block of mkzonefs(8). The size of a sequential file is the write pointer of its zone. It takes writes with
    /// O_DIRECT at its end; truncating it to 0 resets the zone, to its largest size finishes it. Stays in the foreground,
    /// and ends when DIR is unmounted (fusermount3 -u DIR) or by SIGINT, SIGTERM or SIGHUP, when what was written is
    /// durable. Needs no root where /dev/fuse is for all and fusermount3 is installed.
    #[cfg(feature = "mount")]
    #[command(after_help = failure::EXIT_CODES)]
    Mount(mount::Args),
    /// Show which disks are served, and what they did
    ///
    /// A server that does not answer within five seconds is named after the disks of the others, and the exit code is 3.
    #[command(after_help = failure::EXIT_CODES)]
    Status(status::Args),
    /// Watch disks at work: rates, latencies, the zones as a map
    ///
    /// Of the disks that are served, or of a zoneplug bench --socket; of the disk in a file the zones, read again and again.
    /// Keys: ? in the view. Needs zoneplug serve --latency for latencies.
    #[cfg(feature = "top")]
    #[command(after_help = failure::EXIT_CODES)]
    Top(top::Args),
    /// List, show or set the attributes of a disk
    ///
    /// Of one that is served, ublkb0 or /dev/ublkb0, while it is in use.
    #[command(after_help = failure::EXIT_CODES)]
    Attr(attr::AttrArgs),
    /// Show the plugs, as Linux shows its own in zone_wplugs
    ///
    /// A disk that is opened for this command has plugs for its partly written zones; one that is served (ublkb0) is
    /// shown as it is in use.
    #[command(after_help = failure::EXIT_CODES)]
    ZoneWplugs(attr::PlugArgs),
    /// Print the completions of a shell
    Completions(pages::CompletionArgs),
    /// Write the man pages
    Man(pages::ManArgs),
    /// Print this help, the help of a command, or how disks are written (spec)
    Help(pages::HelpArgs),
}

impl Command {
    /// The effect of the first signal on this command. `None`: signals keep their usual effect.
    fn on_signal(&self) -> Option<First> {
        match self {
            Command::Demo(_)
            | Command::Bench(_)
            | Command::Sim(_)
            | Command::Reproduce(_)
            | Command::Calibrate(_)
            | Command::Replay(_) => Some(First::Asks),
            // These commands have a temporary file beside the file that they make.
            Command::Create(_) | Command::Read(_) | Command::Snapshot(_) | Command::Man(_) => {
                Some(First::Ends)
            }
            _ => None,
        }
    }
}

/// Runs the command. `matches`: the parsed command line, for a command that needs to know where a value came from.
fn run(cli: &Cli, matches: &ArgMatches, held: Option<Held>) -> Result<(), Failure> {
    #[cfg(feature = "trace")]
    if cli.trace {
        trace::start()?;
    }
    output::refuse_disk_as_stdout()?;
    match cli.command.on_signal() {
        Some(first) => interrupt::listen(first, held),
        None => held.into_iter().for_each(Held::release),
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    match &cli.command {
        Command::Demo(args) => demo::run(args, &mut out)?,
        Command::Bench(args) => bench::run(args, &mut out)?,
        Command::Info(args) => info::run(args, &mut out)?,
        Command::Sim(args) => sim::main(args, &mut out)?,
        Command::Merge(args) => merge::run(args, &mut out)?,
        Command::Reproduce(args) => reproduce::run(args, &mut out)?,
        Command::Replay(args) => replay::run(args, &mut out)?,
        Command::Calibrate(args) => calibrate::run(args, &mut out)?,
        Command::Create(args) => create::create(args, &mut out)?,
        Command::Report(args) => report::run(args, &mut out)?,
        Command::Reset(args) => manage::run(Op::ZoneReset, args, &mut out)?,
        Command::Open(args) => manage::run(Op::ZoneOpen, args, &mut out)?,
        Command::Close(args) => manage::run(Op::ZoneClose, args, &mut out)?,
        Command::Finish(args) => manage::run(Op::ZoneFinish, args, &mut out)?,
        Command::Write(args) => copy::write(args, &mut out)?,
        Command::Read(args) => copy::read(args, &mut out)?,
        Command::Append(args) => copy::append(args, &mut out)?,
        Command::Flush(args) => manage::flush(args)?,
        Command::Resync(args) => manage::resync(args, &mut out)?,
        Command::Check(args) => create::check(args, &mut out)?,
        Command::Snapshot(args) => snapshot::run(args, &mut out)?,
        Command::Serve(args) => {
            serve::run(args, matches.subcommand_matches("serve").unwrap_or(matches), &mut out)?;
        }
        #[cfg(feature = "mount")]
        Command::Mount(args) => mount::run(args, &mut out)?,
        Command::Status(args) => status::run(args, &mut out)?,
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(args, &mut out)?,
        Command::Attr(args) => attr::attr(args, &mut out)?,
        Command::ZoneWplugs(args) => attr::zone_wplugs(args, &mut out)?,
        Command::Completions(args) => pages::completions(args, Cli::command(), &mut out)?,
        Command::Man(args) => pages::man(args, Cli::command(), &mut out)?,
        Command::Help(args) => pages::help(args, Cli::command(), &mut out)?,
    }
    Ok(out.flush()?)
}

fn main() -> ExitCode {
    // Blocks signals until the command is known and says what they do. If the system refuses this, a signal ends the
    // process at once.
    let held = Held::begin().ok();
    survive_file_limit();
    let given: Vec<OsString> = std::env::args_os().collect();
    let json = json::is_wanted(&given);
    let matches = Cli::command().try_get_matches_from(given);
    let (cli, matches) = match matches.and_then(|m| Ok((Cli::from_arg_matches(&m)?, m))) {
        Ok(both) => both,
        Err(e) if e.exit_code() == 0 => {
            // Help or version. A reader that has gone is no error.
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
        Err(e) if e.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            return ExitCode::from(failure::Kind::Usage as u8);
        }
        Err(e) => return exit::report(&failure::from_clap(&e, &Cli::command()), json),
    };
    match run(&cli, &matches, held) {
        Ok(()) => ExitCode::SUCCESS,
        Err(f) => {
            let code = exit::report(&f, json);
            background::failed(f.exit_code());
            code
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_fit_together() {
        Cli::command().debug_assert();
    }
}
