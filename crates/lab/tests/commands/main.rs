//! The commands that measure, and those that work in virtual time.

#![allow(clippy::unwrap_used)]

mod bounds;
mod calibrate;
#[path = "../../../cli/tests/common/commands.rs"]
mod common;
mod merge;
mod replay;
mod replay_asks;
mod replay_real;
mod threads;
mod timed;
mod traces;

use common::*;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
