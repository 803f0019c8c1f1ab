//! Tables for people: left-aligned columns, two spaces apart, nothing else.

use comfy_table::{Table, presets};

/// Renders rows under a header row, which can be left out.
pub(super) fn render<const N: usize>(
    headers: Option<[&str; N]>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(headers) = headers {
        table.set_header(headers.map(str::to_owned));
    }
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    if text == "\n" {
        text.clear();
    }
    text
}

/// An empty cell.
pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() { "\u{2014}".to_owned() } else { text.to_owned() }
}
