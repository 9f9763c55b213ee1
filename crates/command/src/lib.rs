//! The parts that the programs of zoneplug have in common: one style of help, errors, JSON and signals. `zoneplug` operates
//! disks; `zoneplug-lab` measures and researches.
//!
//! | file | what it does |
//! | --- | --- |
//! | `run.rs` | a program from its first line to its exit code |
//! | `program.rs` | which program this is, and which one has the other commands |
//! | `failure.rs`, `exit.rs` | errors in two lines, exit codes |
//! | `disk.rs` | from a specification to a device, or to a disk in use |
//! | `zones.rs`, `confirm.rs` | ranges of zones; asking first |
//! | `term.rs` | colours, the width of the terminal, lines that fit it |
//! | `json.rs`, `csv.rs` | output for programs |
//! | `interrupt.rs` | Ctrl-C |
//! | `output.rs` | files that commands make, and what they never overwrite |
//! | `pages/` | `help`, `completions`, `man` |
//! | `suggest.rs` | what the completions of a shell offer |
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | data read back was not what was written, I/O failed, or a figure is outside of its band |
//! | 2 | wrong usage, or an impossible device specification |
//! | 3 | a device or address is busy, or a device or file does not exist |
//! | 4 | not supported by this device or build, or not permitted to this user |
//! | 130 | ended by Ctrl-C; 128 and the number of the signal, after another one |

#![forbid(unsafe_code)]

pub mod confirm;
pub mod csv;
pub mod disk;
pub mod exit;
pub mod failure;
pub mod interrupt;
pub mod json;
pub mod output;
pub mod pages;
pub mod program;
pub mod run;
pub mod suggest;
pub mod term;
pub mod zones;
