//! Elements shared by several views.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Paragraph, Wrap};

pub fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// Draws a wrapped text in an area.
pub fn note(frame: &mut Frame<'_>, area: Rect, text: &str) {
    frame.render_widget(
        Paragraph::new(text.to_owned()).wrap(Wrap { trim: false }),
        area,
    );
}

pub fn percent(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.1} %"))
}
