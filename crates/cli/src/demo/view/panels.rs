//! The lists under the tables, and what is simulated.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::framed;
use crate::demo::HONESTY;
use crate::demo::picture::Picture;

/// What the shard did and why, the newest first.
pub(super) fn actions(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let lines = picture.actions.iter().rev().map(|action| {
        let good = action.outcome == "success";
        let outcome = Style::new().fg(if good { Color::Green } else { Color::Red });
        Line::from(vec![
            Span::styled(format!("{} ", action.clock), Style::new().fg(Color::DarkGray)),
            Span::raw(action.headline.clone()),
            Span::styled(format!(" {} ", if good { "ok" } else { &action.outcome }), outcome),
            Span::styled(action.why.clone(), Style::new().fg(Color::DarkGray)),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(framed("Actions")), area);
}

/// Demand without machines.
pub(super) fn unmet(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let mut lines: Vec<Line<'_>> = picture
        .unmet
        .iter()
        .map(|line| {
            let whose = format!("{} (priority {}) lacks {}: ", line.cluster, line.priority, line.missing);
            Line::from(vec![Span::styled(whose, Style::new().fg(Color::Yellow)), Span::raw(line.why.clone())])
        })
        .collect();
    if lines.is_empty() {
        let text = if picture.cycle.is_some() { "none: every Need is satisfied" } else { "not known" };
        lines.push(Line::styled(text, Style::new().fg(Color::DarkGray)));
    }
    frame.render_widget(Paragraph::new(lines).block(framed("Shortfalls")), area);
}

/// What was told, the newest at the bottom.
pub(super) fn story(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let room = usize::from(area.height.saturating_sub(2));
    let newest = picture.story.len().saturating_sub(room);
    let lines: Vec<_> = picture.story[newest..].iter().map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(lines).block(framed("What happens")), area);
}

/// What is real and what is not.
pub(super) fn honesty(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<_> = HONESTY.into_iter().map(Line::from).collect();
    let panel = Paragraph::new(lines).wrap(Wrap { trim: true }).block(framed("What is simulated"));
    frame.render_widget(panel, area);
}
