//! Text styles, with colours and without.

use ratatui::style::{Color, Modifier, Style};

/// Without colours, bold, dim, underlined and reversed text remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) colours: bool,
}

impl Theme {
    /// The style of SGR numbers such as `33;1`.
    pub(crate) fn sgr(self, sgr: &str) -> Style {
        style(sgr, self.colours)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of a zone with waiting BIOs.
    pub(crate) fn waiting(self, style: Style) -> Style {
        match self.colours {
            true => style.fg(Color::Black).bg(Color::Yellow),
            false => style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
        }
    }

    /// The style of a bad sign.
    pub(crate) fn wrong(self) -> Style {
        self.sgr("31;1")
    }
}

/// Colours of SGR numbers such as `33;1`.
fn style(sgr: &str, colours: bool) -> Style {
    let mut style = Style::new();
    for part in sgr.split(';') {
        style = match part {
            "1" => style.add_modifier(Modifier::BOLD),
            "2" => style.add_modifier(Modifier::DIM),
            "31" if colours => style.fg(Color::Red),
            "32" if colours => style.fg(Color::Green),
            "33" if colours => style.fg(Color::Yellow),
            "35" if colours => style.fg(Color::Magenta),
            "36" if colours => style.fg(Color::Cyan),
            _ => style,
        };
    }
    style
}
