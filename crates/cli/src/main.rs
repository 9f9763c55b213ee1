//! The command line of zoneplug: parses the flags and runs the command. `zoneplug-lab` is the other program.
//!
//! | file | what it does |
//! | --- | --- |
//! | `main.rs` | commands and the way out |
//! | `window.rs` | many operations at a time |
//! | `info.rs`, `report/` | `zoneplug info`, `report` |
//! | `create.rs` | `zoneplug create`, `check` |
//! | `snapshot.rs` | `zoneplug snapshot` |
//! | `manage.rs` | `zoneplug reset`, `open`, `close`, `finish`, `flush`, `resync` |
//! | `copy/` | `zoneplug write`, `read`, `append` |
//! | `attr.rs` | `zoneplug attr`, `zone-wplugs` |
//! | `serve/`, `background.rs` | `zoneplug serve`: flags, the file of settings, words (the crate `zoneplug-server` serves) |
//! | `status.rs`, `status/`, `top/` | `zoneplug status`, `top` |
//! | `doctor.rs` | `zoneplug doctor` |
//! | `mount.rs` | `zoneplug mount` |
//!
//! The crate `zoneplug-command` has the rest: errors, exit codes, JSON, the terminal, help, disks on the command line.

#![forbid(unsafe_code)]

mod attr;
mod background;
mod copy;
mod create;
mod doctor;
mod examples;
mod info;
mod manage;
#[cfg(feature = "mount")]
mod mount;
mod report;
mod serve;
mod snapshot;
mod status;
#[cfg(feature = "top")]
mod top;
mod window;

use clap::{ArgMatches, CommandFactory, Parser, Subcommand};
use failure::Failure;
use interrupt::FirstSignal;
use std::io::Write;
use std::process::ExitCode;
use zoneplug_command::pages::Pages;
use zoneplug_command::program::{self, Program};
use zoneplug_command::run::{self, Commands};
use zoneplug_command::{
    confirm, csv, disk, failure, interrupt, json, output, suggest, term, zones,
};
use zoneplug_control::{client as server_client, said};
use zoneplug_core::Op;

/// The features that are built.
const FEATURES: [(&str, bool); 3] = [
    ("mount", cfg!(feature = "mount")),
    ("probes", cfg!(feature = "probes")),
    ("top", cfg!(feature = "top")),
];

/// This program.
static PROGRAM: Program = Program {
    name: "zoneplug",
    path: "crates/cli",
    command: Cli::command,
    examples: &examples::EXAMPLES,
    note: "zoneplug-lab measures and researches: bench, calibrate, demo, merge, replay,\n\
           reproduce, sim.",
    other: "zoneplug-lab",
    others: &["bench", "calibrate", "demo", "merge", "replay", "reproduce", "sim"],
    left_out: &[
        #[cfg(not(feature = "mount"))]
        "mount",
        #[cfg(not(feature = "top"))]
        "top",
    ],
};

/// Ordered writes at any queue depth for zoned disks, in user space.
#[derive(Debug, Parser)]
#[command(name = "zoneplug", version, long_version = program::version(&FEATURES), disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a zoned disk in a file
    Create(create::CreateArgs),
    /// Show a disk: geometry, limits, attributes, the conditions of its zones
    Info(info::Args),
    /// Show the zones: where they are, what they hold, their write pointers
    ///
    /// All zones, or those that the range touches. In the table start, len, cap and wptr are sectors of 512 bytes, and
    /// wptr counts from the start of the zone, as in `blkzone report`.
    Report(report::Args),
    /// Empty zones: their data is gone
    ///
    /// All sequential zones, or those of a range, which must be whole zones.
    Reset(manage::Args),
    /// Open zones explicitly
    ///
    /// All sequential zones, or those of a range, which must be whole zones. When the command ends the disk is closed,
    /// as by a power cycle: a disk in a file closes its zones then.
    Open(manage::Args),
    /// Close open zones
    Close(manage::Args),
    /// Make zones full: what is not written yet cannot be written
    Finish(manage::Args),
    /// Copy a file or standard input to the disk, from a write pointer on, across zones
    ///
    /// Without --offset it starts at the write pointer of the first sequential zone that has room; with the start of a
    /// zone, at the write pointer of that zone. Data that do not fit into the zone go on in the next one with room:
    /// the stream is laid over what can be written of each zone. The last block is filled with zeroes. What was
    /// written is durable when the command ends.
    Write(copy::WriteArgs),
    /// Copy what was written to a file or standard output
    ///
    /// Takes up what `zoneplug write` laid down: sequential zones in order, each up to its write pointer. With --length
    /// or --len it is so much from the start of the range on, written or not, laid over the zones in the same way. An
    /// --offset in a conventional zone includes those.
    Read(copy::ReadArgs),
    /// Append a file or standard input with zone appends, and say where each landed
    ///
    /// To the zone that --offset names, or the first sequential one that has room, and on to the next. A line for each
    /// append: its zone, its first sector, its length in sectors.
    Append(copy::AppendArgs),
    /// Make durable what was acknowledged
    Flush(manage::FlushArgs),
    /// Read the zones of the device again and correct what the layer knows of them
    Resync(manage::ResyncArgs),
    /// Check the file of a disk, and repair it
    Check(create::CheckArgs),
    /// Copy the file of a disk as it is at one moment, also while it is served
    ///
    /// The copy has everything that was acknowledged before the command, and nothing torn. On btrfs and XFS it shares its
    /// blocks with the disk. Elsewhere most is copied while the disk is in use; its I/O waits for the last part. There is
    /// no file of that name until the copy is complete and durable, also after a power cut.
    Snapshot(snapshot::Args),
    /// Serve disks as block devices (/dev/ublkbN), over NVMe/TCP or over iSCSI
    ///
    /// Zoned block devices of this machine (--ublk) need Linux 6.6 or newer, and root; zoned namespaces and SMR disks for
    /// this machine and others (--nvme-tcp, --iscsi) need neither. Stays in the foreground and prints a line for each disk once all are there;
    /// systemd is told with Type=notify. SIGINT, SIGTERM and SIGHUP end the server when what was written is durable: its
    /// block devices are removed, and its connections closed; a second one ends at once. When the process dies otherwise,
    /// Linux keeps the block devices of disks that outlive it (files, drives), and hosts go on connecting. Their I/O waits,
    /// until the same command is started again and goes on.
    Serve(Box<serve::Args>),
    /// Mount the zones of a disk as files, as Linux's zonefs shows them
    ///
    /// DIR/cnv has the conventional zones, DIR/seq the sequential ones, but for the first zone, which holds the super
    /// block of mkzonefs(8). The size of a sequential file is the write pointer of its zone. It takes writes with
    /// O_DIRECT at its end; truncating it to 0 resets the zone, to its largest size finishes it. Stays in the foreground,
    /// and ends when DIR is unmounted (fusermount3 -u DIR) or by SIGINT, SIGTERM or SIGHUP, when what was written is
    /// durable. Needs no root where /dev/fuse is for all and fusermount3 is installed.
    #[cfg(feature = "mount")]
    Mount(mount::Args),
    /// Show which disks are served, and what they did
    ///
    /// A server that does not answer within five seconds is named after the disks of the others, and the exit code is 3.
    Status(status::Args),
    /// Say what zoneplug can do on this machine, and what to try where it cannot
    ///
    /// Tries io_uring, the driver of ublk and FUSE as this user, looks for limits, servers and zoned drives, and changes
    /// nothing. Each line is shown as soon as it is known; a drive that does not answer keeps the last ones waiting. The exit
    /// code is 0, whatever it finds.
    Doctor(doctor::Args),
    /// Watch disks at work: rates, latencies, the zones as a map
    ///
    /// Of the disks that are served, or of a zoneplug-lab bench --socket; of the disk in a file the zones, read again and again.
    /// Keys: ? in the view. Needs zoneplug serve --latency for latencies.
    #[cfg(feature = "top")]
    Top(top::Args),
    /// List, show or set the attributes of a disk
    ///
    /// Of one that is served, ublkb0 or /dev/ublkb0, while it is in use.
    Attr(attr::AttrArgs),
    /// Show the plugs, as Linux shows its own in zone_wplugs
    ///
    /// A disk that is opened for this command has plugs for its partly written zones; one that is served (ublkb0) is
    /// shown as it is in use.
    ZoneWplugs(attr::PlugArgs),
    #[command(flatten)]
    Pages(Pages),
}

impl Commands for Cli {
    fn on_signal(&self) -> Option<FirstSignal> {
        match &self.command {
            // These commands have a temporary file beside the file that they make.
            Command::Create(_) | Command::Read(_) | Command::Snapshot(_) => Some(FirstSignal::Ends),
            Command::Pages(pages) => pages.makes_files().then_some(FirstSignal::Ends),
            _ => None,
        }
    }

    fn run(&self, matches: &ArgMatches, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.command {
            Command::Info(args) => info::run(args, out),
            Command::Create(args) => create::create(args, out),
            Command::Report(args) => report::run(args, out),
            Command::Reset(args) => manage::run(Op::ZoneReset, args, out),
            Command::Open(args) => manage::run(Op::ZoneOpen, args, out),
            Command::Close(args) => manage::run(Op::ZoneClose, args, out),
            Command::Finish(args) => manage::run(Op::ZoneFinish, args, out),
            Command::Write(args) => copy::write(args, out),
            Command::Read(args) => copy::read(args, out),
            Command::Append(args) => copy::append(args, out),
            Command::Flush(args) => manage::flush(args),
            Command::Resync(args) => manage::resync(args, out),
            Command::Check(args) => create::check(args, out),
            Command::Snapshot(args) => snapshot::run(args, out),
            Command::Serve(args) => {
                serve::run(args, matches.subcommand_matches("serve").unwrap_or(matches), out)
            }
            #[cfg(feature = "mount")]
            Command::Mount(args) => mount::run(args, out),
            Command::Status(args) => status::run(args, out),
            Command::Doctor(args) => doctor::run(args, out),
            #[cfg(feature = "top")]
            Command::Top(args) => top::run(args, out),
            Command::Attr(args) => attr::attr(args, out),
            Command::ZoneWplugs(args) => attr::zone_wplugs(args, out),
            Command::Pages(pages) => pages.run(PROGRAM.definition(), out),
        }
    }
}

fn main() -> ExitCode {
    let (code, failure) = run::main::<Cli>(&PROGRAM);
    if let Some(f) = failure {
        background::failed(f.exit_code());
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_fit_together() {
        PROGRAM.definition().debug_assert();
    }

    /// Each command has examples, and the parser takes them.
    #[test]
    fn examples_are_command_lines() {
        PROGRAM.check_examples();
    }
}
