//! Pictures of models, at several sizes.

use super::super::testing::{sample, shown, trouble};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use std::path::PathBuf;
use std::time::Duration;
use zoneplug_core::zone::Condition;

const COLOURS: Theme = Theme { colours: true };

fn press(m: &mut Model, keys: &str) {
    for c in keys.chars() {
        let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
        m.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

fn terminal(width: u16, height: u16) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(width, height)).unwrap()
}

fn picture(t: &mut Terminal<TestBackend>, m: &mut Model, theme: Theme) -> String {
    t.draw(|f| draw(m, f.area(), theme, f.buffer_mut())).unwrap();
    let buf = t.backend().buffer();
    let row = |y| (0..buf.area.width).map(move |x| buf[(x, y)].symbol()).collect::<String>();
    (0..buf.area.height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

/// Draws a picture until its samples fit its room.
fn draw_until_it_fits(t: &mut Terminal<TestBackend>, m: &mut Model, theme: Theme) -> String {
    for n in m.samples + 1..m.samples + 4 {
        let want = m.want();
        m.see(sample(
            n,
            if want.zones.is_empty() { 0..96 } else { want.zones },
            want.cells,
            want.zone,
        ));
        picture(t, m, theme);
    }
    picture(t, m, theme)
}

/// Compares a picture with the text of a file. `ZONEPLUG_GOLDEN=write` writes the file.
fn golden(name: &str, got: &str) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/top");
    let path = dir.join(format!("{name}.txt"));
    if std::env::var_os("ZONEPLUG_GOLDEN").is_some_and(|v| v == "write") {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&path, got).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, want, "{}: ZONEPLUG_GOLDEN=write writes it", path.display());
}

fn model() -> Model {
    Model { selected: Some("tcp4420n1".to_owned()), ..Model::new(1000) }
}

#[test]
fn pictures_are_as_they_were() {
    for (width, height) in [(80, 24), (200, 50), (20, 5)] {
        let (mut t, mut m) = (terminal(width, height), model());
        golden(&format!("map-{width}x{height}"), &draw_until_it_fits(&mut t, &mut m, COLOURS));
        m.cursor = 39;
        press(&mut m, "\n");
        golden(&format!("zone-{width}x{height}"), &draw_until_it_fits(&mut t, &mut m, COLOURS));
        press(&mut m, "v?");
        golden(&format!("help-{width}x{height}"), &draw_until_it_fits(&mut t, &mut m, COLOURS));
        press(&mut m, "x");
        golden(&format!("list-{width}x{height}"), &draw_until_it_fits(&mut t, &mut m, COLOURS));
    }
}

#[test]
fn the_map_shows_waiting_bios_and_rates() {
    let (mut t, mut m) = (terminal(80, 24), model());
    draw_until_it_fits(&mut t, &mut m, COLOURS);
    press(&mut m, "m");
    golden("waiting-80x24", &draw_until_it_fits(&mut t, &mut m, COLOURS));
    press(&mut m, "m");
    golden("rate-80x24", &draw_until_it_fits(&mut t, &mut m, COLOURS));
}

/// The legend explains zones that are open, however they were opened, also where the server does not count them.
#[test]
fn the_legend_explains_open_zones() {
    let (mut t, mut m) = (terminal(80, 24), model());
    draw_until_it_fits(&mut t, &mut m, COLOURS);
    assert!(!zone_map::legend(&m, COLOURS).to_string().contains(" open"));
    for opened in [Condition::ImpOpen, Condition::ExpOpen] {
        m.map.cells[50].zone.condition = Some(opened);
        let legend = zone_map::legend(&m, COLOURS).to_string();
        assert!(legend.contains(" open"), "{opened:?}: {legend}");
    }
}

/// Without colours bold, dim, underlined and reversed text remains, and the text is the same.
#[test]
fn without_colours_there_are_none() {
    let (mut t, mut m) = (terminal(80, 24), model());
    let with = draw_until_it_fits(&mut t, &mut m, COLOURS);
    let coloured = |t: &Terminal<TestBackend>| {
        let cells = &t.backend().buffer().content;
        cells.iter().filter(|c| c.fg != Color::Reset || c.bg != Color::Reset).count()
    };
    assert!(coloured(&t) > 40);
    // A picture of the same state, without colours.
    let mut again = terminal(80, 24);
    assert_eq!(picture(&mut again, &mut m, Theme { colours: false }), with);
    assert_eq!(coloured(&again), 0);
    let cell = |x| again.backend().buffer().content.iter().filter(move |c| c.modifier.contains(x));
    assert!(cell(Modifier::REVERSED).count() > 0);
}

/// Every size of a terminal works, and a picture does not depend on earlier sizes.
#[test]
fn any_size_will_do() {
    let mut m = model();
    let mut keys = "\nvm?".chars().cycle();
    for height in 0..30 {
        for width in (0..90).step_by(7).chain([1, 2, 3]) {
            let mut t = terminal(width, height);
            picture(&mut t, &mut m, COLOURS);
            if height % 4 == 0 {
                draw_until_it_fits(&mut t, &mut m, COLOURS);
                press(&mut m, &keys.next().unwrap_or(' ').to_string());
            }
        }
    }
    let mut fresh = model();
    let first = draw_until_it_fits(&mut terminal(80, 24), &mut fresh, COLOURS);
    draw_until_it_fits(&mut terminal(33, 7), &mut fresh, COLOURS);
    fresh.samples = 0;
    let mut again = terminal(80, 24);
    draw_until_it_fits(&mut again, &mut fresh, COLOURS);
    fresh.samples = 0;
    assert_eq!(draw_until_it_fits(&mut again, &mut fresh, COLOURS), first);
}

/// With a hundred thousand zones, as many cells as fit share the zones.
#[test]
fn many_zones_share_cells() {
    let (mut t, mut m) = (terminal(80, 24), model());
    let mut s = sample(1, 0..100_000, 64, None);
    s.disks.iter_mut().for_each(|d| d.shown.zones = 100_000);
    m.see(s);
    picture(&mut t, &mut m, COLOURS);
    let want = m.want();
    assert_eq!((want.zones.clone(), want.cells), (0..100_000, u32::from(m.room.0 * m.room.1)));
    assert!(want.cells > 300, "{}", want.cells);
    let mut s2 = sample(2, want.zones, want.cells, None);
    s2.disks.iter_mut().for_each(|d| d.shown.zones = 100_000);
    m.see(s2);
    assert!(m.map.cells.len() <= want.cells as usize);
    let text = picture(&mut t, &mut m, COLOURS);
    let per_cell = m.map.table.per_cell;
    assert!(
        text.contains(&format!(
            "zones 0-99999: filled to the write pointer, {per_cell} zones a cell"
        )),
        "{text}"
    );
    assert!(text.lines().all(|l| l.chars().count() <= 80));
}

/// Text from a socket cannot control the terminal.
#[test]
fn names_from_outside_are_plain() {
    let (mut t, mut m) = (terminal(200, 30), Model::new(1000));
    let mut s = sample(1, 0..96, 64, None);
    let mut d = shown("x\u{1b}]0;title\u{7}\u{202e}");
    d.spec = "mem\u{1b}[2J".to_owned();
    s.disks.truncate(1);
    s.disks[0].shown = d;
    s.trouble = Some(trouble("no\u{1b}[31m"));
    m.see(s);
    let text = picture(&mut t, &mut m, COLOURS);
    assert!(text.contains("mem\\u{1b}[2J") && text.contains("no\\u{1b}[31m"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn a_server_that_has_gone_is_shown_as_gone() {
    let (mut t, mut m) = (terminal(80, 24), model());
    draw_until_it_fits(&mut t, &mut m, COLOURS);
    let trouble = Some(trouble("no server answers at /run/zoneplug/s: refused"));
    m.see(super::super::model::Sample {
        at: Duration::from_secs(60),
        trouble,
        ..Default::default()
    });
    golden("gone-80x24", &picture(&mut t, &mut m, COLOURS));
}
