//! `zoneplug top`: a live view of disks in a terminal.
//!
//! | file | what it does |
//! | --- | --- |
//! | `sample.rs` | asks servers, or reads the file of a disk |
//! | `rates.rs` | what a disk did between two samples |
//! | `model.rs`, `keys.rs` | what is known and shown; samples and keys change it |
//! | `view.rs`, `zone_map.rs`, `theme.rs`, `numbers.rs` | the model on the screen |
//! | `screen.rs` | the terminal, and signals |
//! | `once.rs` | one picture as text or JSON |

mod keys;
mod model;
mod once;
mod rates;
mod sample;
mod screen;
#[cfg(test)]
mod testing;
mod theme;
mod view;
mod zone_map;

use crate::failure::{Attempt, Failure};
use crate::{server_client, term};
use keys::KeyEffect;
use model::{Model, Sample, Want};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sample::{Sampler, Source};
use screen::Screen;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use theme::Theme;
use zoneplug_control::names::is_name;
use zoneplug_core::form;

/// The longest wait for keys. Samples and signals are checked between waits.
const TICK: Duration = Duration::from_millis(50);

/// Flags of `zoneplug top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A served disk, as in ublkb0, or a disk in a file, which is only read; without one all that are served
    #[arg(value_name = "DISK")]
    disk: Option<String>,

    /// The socket of one server or of a bench, instead of all in /run/zoneplug
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Time between two looks, from 100ms to 10s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Look twice, print what was seen, and end
    #[arg(long)]
    once: bool,

    /// With --once: print one JSON document
    #[arg(long, requires = "once")]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, zoneplug_core::Error> {
    form::parse_time(text)
        .filter(|n| (100_000_000..=10_000_000_000).contains(n))
        .map(Duration::from_nanos)
        .ok_or_else(|| {
            zoneplug_core::Error::invalid("not a time from 100ms to 10s").hint("--interval 500ms")
        })
}

impl Args {
    fn source(&self) -> Result<Source, Failure> {
        Ok(match &self.disk {
            Some(d) if !is_name(d) && self.socket.is_none() => Source::Disk { spec: d.parse()? },
            disk => Source::Servers { socket: self.socket.clone(), disk: disk.clone() },
        })
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let source = args.source()?;
    let is_of_servers = matches!(source, Source::Servers { .. });
    let sampler = Sampler::new(source);
    let mut model = Model::new(args.interval.as_millis() as u64);
    let first = once::checked(sampler.take(&model.want()))?;
    if let Some(disk) = &args.disk
        && is_of_servers
        && first.disks.is_empty()
    {
        return Err(server_client::not_served(disk));
    }
    if args.once {
        model.see(first);
        std::thread::sleep(args.interval);
        model.see(sampler.take(&model.want()));
        return match args.json {
            true => once::print_json(&model, args.interval.as_secs_f64(), out),
            false => once::print(&mut model, out),
        };
    }
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb" || t.is_empty());
    if dumb || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage("zoneplug top needs a terminal that can be drawn on")
            .hint("zoneplug top --once prints one picture"));
    }
    out.flush()?;
    let theme = Theme { colours: term::colours() };
    let screen = Screen::take()?;
    let ended = live(model, first, sampler, screen, theme)?;
    match ended {
        None => Ok(()),
        Some(signal) => Err(Failure::interrupted(signal, format!("ended by signal {signal}"))
            .hint("the same command again")),
    }
}

/// Starts the thread that takes samples, so that keys work meanwhile.
fn start_sampler(sampler: Sampler) -> Result<(Sender<Want>, Receiver<Sample>), Failure> {
    let (ask, asked) = channel::<Want>();
    let (tell, told) = channel();
    let body = move || {
        while let Ok(mut want) = asked.recv() {
            while let Ok(newer) = asked.try_recv() {
                want = newer;
            }
            if tell.send(sampler.take(&want)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("zoneplug-top".to_owned())
        .spawn(body)
        .map_err(|e| Failure::of_system(Attempt::Thread, "no thread", e))?;
    Ok((ask, told))
}

/// Draws, samples and handles keys until a key or a signal asks for the end. Returns the signal, unless it is SIGINT.
/// Ends the process if the terminal has gone: nothing can be restored or printed then.
fn live(
    model: Model,
    first: Sample,
    sampler: Sampler,
    mut screen: Screen,
    theme: Theme,
) -> Result<Option<i32>, Failure> {
    let ended = listen(model, first, sampler, &mut screen, theme);
    if ended.is_err() && !screen.wait(Duration::ZERO) {
        std::process::exit(128 + signal_hook::consts::SIGHUP);
    }
    ended
}

fn listen(
    mut model: Model,
    first: Sample,
    sampler: Sampler,
    screen: &mut Screen,
    theme: Theme,
) -> Result<Option<i32>, Failure> {
    let gone = |e: io::Error| Failure::io(format!("the terminal: {e}")).hint("zoneplug top --once");
    let (ask, told) = start_sampler(sampler)?;
    model.see(first);
    let (mut due, mut underway, mut wanted) = (Instant::now(), false, Want::default());
    let mut draw = true;
    loop {
        if let Some(signal) = screen.signals.end() {
            return Ok(Some(signal).filter(|s| *s != signal_hook::consts::SIGINT));
        }
        draw |= screen.stop_if_asked()?;
        match told.try_recv() {
            Ok(sample) => {
                underway = false;
                model.see(sample);
                draw = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(Failure::io("the thread that looks has ended").hint("please report it"));
            }
        }
        if draw {
            let picture = |f: &mut ratatui::Frame<'_>| {
                let area = f.area();
                view::draw(&mut model, area, theme, f.buffer_mut());
            };
            screen.draw(picture)?;
            draw = false;
        }
        // If other zones are wanted than in the last sample, the next one is taken at once.
        let other = model.want() != wanted;
        if !underway && (other || Instant::now() >= due) {
            wanted = model.want();
            underway = ask.send(wanted.clone()).is_ok();
            due = Instant::now() + Duration::from_millis(model.interval_ms);
        }
        if !screen.wait(if draw { Duration::ZERO } else { TICK }) {
            return Err(gone(io::ErrorKind::BrokenPipe.into()));
        }
        while event::poll(Duration::ZERO).map_err(gone)? {
            match event::read().map_err(gone)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match model.key(key) {
                    KeyEffect::Draw => {}
                    KeyEffect::Sample => due = Instant::now(),
                    KeyEffect::Redraw => screen.redraw()?,
                    KeyEffect::Suspend => screen.suspend()?,
                },
                Event::Resize(..) => {}
                _ => continue,
            }
            draw = true;
            if model.quits {
                return Ok(None);
            }
        }
    }
}
