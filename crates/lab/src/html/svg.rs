//! Plots as SVG, without a plotting library: libraries fix colours and sizes when they draw. Here colours are classes
//! of `style.css`, so that plots follow the reader's light or dark theme, and sizes fit a narrow page.

use std::fmt::Write;
use zoneplug_control::html::{PALETTE, escape};

/// Width of every plot. Browsers show it at about this size: two or three beside each other, or one on a narrow page.
pub(crate) const WIDTH: f64 = 410.0;
/// Number of colour classes.
pub(crate) const COLOURS: usize = 8;
pub(crate) const STYLE: &str = include_str!("style.css");

/// Puts the light colours of the palette into a picture that stands alone: viewers other than browsers know no
/// variables of CSS, and draw all in black.
pub(crate) fn with_colours(picture: &str) -> String {
    let light = PALETTE.split_once('}').map_or(PALETTE, |(light, _)| light);
    let settings = light.split([';', '{']).filter_map(|setting| setting.trim().split_once(':'));
    settings
        .filter(|(name, _)| name.starts_with("--"))
        .fold(picture.to_owned(), |all, (name, colour)| {
            all.replace(&format!("var({name})"), colour.trim())
        })
}

/// A plot that is being drawn.
pub(crate) struct Svg {
    height: f64,
    title: String,
    body: String,
}

impl Svg {
    pub(crate) fn new(height: f64, title: &str) -> Svg {
        Svg { height, title: escape(title), body: String::new() }
    }

    pub(crate) fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub(crate) fn rect(&mut self, class: &str, x: f64, y: f64, w: f64, h: f64) {
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}"/>"#
        );
    }

    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{d}"/>"#);
    }

    pub(crate) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#,
            escape(text)
        );
    }

    /// Draws a mark of a series: a disc, or a hollow square for published figures. Shows `says` when pointed at.
    pub(crate) fn mark(&mut self, class: &str, hollow: bool, x: f64, y: f64, says: &str) {
        let title = escape(says);
        let _ = if hollow {
            let (x, y) = (x - 3.5, y - 3.5);
            write!(
                self.body,
                r#"<rect class="hollow {class}" x="{x:.1}" y="{y:.1}" width="7" height="7"><title>{title}</title></rect>"#
            )
        } else {
            write!(
                self.body,
                r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.6"><title>{title}</title></circle>"#
            )
        };
    }

    /// Draws the range of a figure's runs, from left to right.
    pub(crate) fn reach(&mut self, class: &str, y: f64, from: f64, to: f64) {
        self.line(class, from, y, to, y);
        self.line(class, from, y - 3.0, from, y + 3.0);
        self.line(class, to, y - 3.0, to, y + 3.0);
    }

    /// Draws the range of a figure's runs, from bottom to top.
    pub(crate) fn span(&mut self, class: &str, x: f64, from: f64, to: f64) {
        self.line(class, x, from, x, to);
        self.line(class, x - 3.0, from, x + 3.0, from);
        self.line(class, x - 3.0, to, x + 3.0, to);
    }

    pub(crate) fn finish(self) -> String {
        let Svg { height, title, body } = self;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{title}">{body}</svg>"#
        )
    }
}

/// Round numbers that cover `min` to `max`, about `n` of them.
pub(crate) fn ticks(min: f64, max: f64, n: f64) -> Vec<f64> {
    let max = if max - min < 1e-9 { min + 1.0 } else { max };
    let rough = (max - min) / n;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|f| f * power)
        .find(|s| *s >= rough)
        .unwrap_or(rough);
    let first = (min / step).floor() as i64;
    let last = (max / step).ceil() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

/// The label of a tick, without needless digits.
pub(crate) fn label(x: f64) -> String {
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Powers of ten that cover some values, which are above 0: at least two powers. Also 2 and 5 times each but the
/// last.
pub(crate) fn decades(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let (low, high) = values
        .into_iter()
        .filter(|v| v.is_finite() && *v > 0.0)
        .fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
    let first = low.log10().floor() as i32;
    let last = (high.log10().ceil() as i32).max(first + 1);
    let power = |e| 10f64.powi(e);
    match last - first {
        1 => [1.0, 2.0, 5.0, 10.0].map(|f| f * power(first)).into(),
        _ => (first..=last).map(power).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each colour of the style has its value in a picture that stands alone, also where one name begins another.
    #[test]
    fn a_picture_that_stands_alone_has_no_variables() {
        assert_eq!(with_colours("fill:var(--paper)"), "fill:#ffffff");
        let style = with_colours(STYLE);
        assert!(!style.contains("var("), "{style}");
    }

    #[test]
    fn ticks_are_round_and_span_what_they_are_for() {
        assert_eq!(ticks(0.0, 244.0, 5.0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        assert_eq!(ticks(-12.0, 12.0, 6.0), [-15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0]);
        let t = ticks(0.0, 0.0, 4.0);
        assert!(t.len() >= 2 && t.iter().all(|x| x.is_finite()));
        assert_eq!(
            (label(2.5), label(100.0), label(0.0)),
            ("2.5".into(), "100".into(), "0".into())
        );
    }

    #[test]
    fn decades_span_what_they_are_for() {
        assert_eq!(decades([2.0, 350.0]), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(decades([10.0]), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(decades([]), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(decades([0.0, 5.0]), [1.0, 2.0, 5.0, 10.0]);
    }
}
