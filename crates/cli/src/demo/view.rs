//! The live view: draws a [`Picture`] and nothing else, so that it can be tested without a terminal.

mod panels;
mod tables;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::keys::{HELP, Overlay};
use super::picture::Picture;

/// What the person at the keys has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Choice {
    /// A row of the demand table: one for each tier of a cluster.
    pub(crate) row: usize,
    pub(crate) overlay: Overlay,
}

/// The width of the demand table with its border, and of both tables side by side.
const DEMAND_WIDTH: u16 = 60;
const TABLES_WIDTH: u16 = DEMAND_WIDTH + 78;
/// Heights of the tables with their borders.
const DEMAND_HEIGHT: u16 = 10;
const MACHINES_HEIGHT: u16 = 10;

/// Where everything goes.
struct Areas {
    head: Rect,
    demand: Rect,
    machines: Rect,
    lists: Rect,
    honesty: Rect,
    foot: Rect,
}

/// On a narrow terminal the tables are below each other. What is simulated is always there; the lists get what is left.
fn areas(screen: Rect) -> Areas {
    let honest_lines = if screen.width < 112 { 7 } else { 5 };
    let room = screen.height.saturating_sub(2 + honest_lines);
    let side_by_side = screen.width >= TABLES_WIDTH;
    let tables = if side_by_side { MACHINES_HEIGHT } else { DEMAND_HEIGHT + MACHINES_HEIGHT }.min(room);
    let lengths = [1, tables, room - tables, honest_lines, 1].map(Constraint::Length);
    let [head, tables, lists, honesty, foot] = Layout::vertical(lengths).areas(screen);
    let [demand, machines] = if side_by_side {
        Layout::horizontal([Constraint::Length(DEMAND_WIDTH), Constraint::Fill(1)]).areas(tables)
    } else {
        Layout::vertical([Constraint::Length(DEMAND_HEIGHT), Constraint::Fill(1)]).areas(tables)
    };
    Areas { head, demand, machines, lists, honesty, foot }
}

/// Draws everything. Small terminals see the upper left part.
pub(crate) fn render(frame: &mut Frame<'_>, picture: &Picture, choice: Choice) {
    let Areas { head, demand, machines, lists, honesty, foot } = areas(frame.area());
    let [actions, told] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(lists);
    let unmet_lines = u16::try_from(picture.unmet.len().clamp(1, 4)).unwrap_or(4);
    let [unmet, story] =
        Layout::vertical([Constraint::Length(unmet_lines + 2), Constraint::Min(3)]).areas(told);
    frame.render_widget(header(picture), head);
    tables::demand(frame, demand, picture, choice.row);
    tables::machines(frame, machines, picture);
    panels::actions(frame, actions, picture);
    panels::unmet(frame, unmet, picture);
    panels::story(frame, story, picture);
    panels::honesty(frame, honesty);
    frame.render_widget(footer(), foot);
    match choice.overlay {
        Overlay::None => {}
        Overlay::Help => help(frame, picture),
        Overlay::Scenarios => scenarios(frame),
    }
}

/// A framed panel's border with its title.
fn framed(title: &'static str) -> Block<'static> {
    Block::bordered().title(Span::styled(format!(" {title} "), Style::new().add_modifier(Modifier::BOLD)))
}

fn header(picture: &Picture) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![
        Span::styled(" BigFleet demo ", bold.add_modifier(Modifier::REVERSED)),
        Span::raw(format!("  {:.0} s up  ", picture.uptime.as_secs_f64())),
        Span::styled(format!("${:.2} an hour", picture.dollars_per_hour), bold.fg(Color::Yellow)),
    ];
    match picture.cycle {
        Some(cycle) => spans.push(Span::raw(format!("  cycle {cycle}"))),
        None => spans.push(Span::styled("  the shard does not answer", bold.fg(Color::Red))),
    }
    if let Some(after) = picture.first_bound {
        spans.push(Span::raw(format!("  first machine bound after {:.1} s", after.as_secs_f64())));
    }
    if picture.paused {
        spans.push(Span::styled("  PAUSED", bold.fg(Color::Magenta)));
    }
    if picture.broken {
        spans.push(Span::styled("  PROVIDER BROKEN", bold.fg(Color::Red)));
    }
    Line::from(spans)
}

fn footer() -> Line<'static> {
    let keys =
        " up/down select   +/- demand   k kill   p pause   b break   s scenario   0 reset   ? help   q quit";
    Line::styled(keys, Style::new().fg(Color::DarkGray))
}

fn help(frame: &mut Frame<'_>, picture: &Picture) {
    let keys = HELP.map(|(keys, what)| Line::from(format!("{keys:>9}  {what}")));
    let mut lines: Vec<Line<'_>> = keys.into();
    lines.push(Line::default());
    lines.extend(picture.hints.iter().map(|hint| Line::from(hint.as_str())));
    over(frame, "Keys and addresses", lines);
}

fn scenarios(frame: &mut Frame<'_>) {
    let lines = [
        "m  move: demand leaves cluster-a and comes to cluster-b; machines travel, nothing is bought",
        "c  critical: no more machines can be had, and batch gives way to what matters more",
        "a  saturate: more demand than owned machines; spot and on-demand machines are bought",
        "",
        "any other key: none of them. One that plays already ends.",
    ];
    over(frame, "Which scenario?", lines.map(Line::from).into());
}

/// Draws lines in a box over the middle.
fn over(frame: &mut Frame<'_>, title: &'static str, lines: Vec<Line<'_>>) {
    let area = frame.area();
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let middle =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, middle);
    frame.render_widget(Paragraph::new(lines).block(framed(title)), middle);
}

#[cfg(test)]
mod tests;
