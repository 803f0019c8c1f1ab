//! The two tables: what clusters want, and what the machines do.

use bigfleet_types::MachineState;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Cell, Row, Table};

use super::framed;
use crate::demo::cluster::Tier;
use crate::demo::picture::{ClusterLine, Picture, STATES};

/// Demand by cluster and tier; the chosen row is marked.
pub(super) fn demand(frame: &mut Frame<'_>, area: Rect, picture: &Picture, chosen: usize) {
    let clusters = picture.clusters.iter();
    let rows =
        clusters.flat_map(|c| c.demand.iter().enumerate().map(move |(n, demand)| (c, *demand, n == 0)));
    let rows = rows.enumerate().map(|(row, (c, demand, first))| demand_row(c, demand, row == chosen, first));
    let widths = [10, 13, 4, 5, 9, 11].map(Constraint::Length);
    let header = Row::new(["cluster", "  demand", "want", "nodes", "pods", "evicted"]).style(Modifier::BOLD);
    let table = Table::new(rows, widths).header(header).block(framed("Demand, in machines' worth"));
    frame.render_widget(table, area);
}

fn demand_row(cluster: &ClusterLine, (tier, level): (Tier, u32), chosen: bool, first: bool) -> Row<'static> {
    let mark = if chosen { "> " } else { "  " };
    let once = |text: String| if first { text } else { String::new() };
    let pods = format!("{}/{}", cluster.running, cluster.wanted);
    let pods = if cluster.running == cluster.wanted {
        Cell::from(once(pods))
    } else {
        Cell::from(once(pods)).style(Color::Yellow)
    };
    let moved = match (cluster.evicted, cluster.lost) {
        (evicted, 0) => evicted.to_string(),
        (evicted, lost) => format!("{evicted}, {lost} lost"),
    };
    let row = Row::new([
        Cell::from(once(cluster.name.clone())),
        Cell::from(format!("{mark}{tier}")),
        Cell::from(level.to_string()),
        Cell::from(once(cluster.nodes.to_string())),
        pods,
        Cell::from(once(moved)),
    ]);
    if chosen { row.style(Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)) } else { row }
}

/// Short names of the states, in the order of [`STATES`].
const SHORT: [&str; 8] = ["slot", "make", "idle", "join", "bound", "drain", "del", "fail"];

/// Machines by class and state, with the sums below.
pub(super) fn machines(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let numbers = |counts: [usize; 8]| {
        counts.into_iter().zip(STATES).map(|(count, state)| {
            let text = if count == 0 { "\u{b7}".to_owned() } else { count.to_string() };
            Cell::from(text).style(if count == 0 { Style::new().fg(Color::DarkGray) } else { colour(state) })
        })
    };
    let rows = picture.classes.iter().map(|class| {
        let head = [class.name.clone(), class.capacity_type.to_owned(), format!("{:.2}", class.price)];
        Row::new(head.map(Cell::from).into_iter().chain(numbers(class.counts)))
    });
    let total = ["all", "", ""].map(Cell::from).into_iter().chain(numbers(picture.totals()));
    let rows = rows.chain([Row::new(total).style(Modifier::BOLD)]);
    let widths = [12, 10, 4].into_iter().chain([5; 8]).map(Constraint::Length);
    let header = Row::new(["class", "paid as", "$/h"].into_iter().chain(SHORT)).style(Modifier::BOLD);
    frame.render_widget(Table::new(rows, widths).header(header).block(framed("Machines")), area);
}

fn colour(state: MachineState) -> Style {
    Style::new().fg(match state {
        MachineState::Speculative => Color::DarkGray,
        MachineState::Idle => Color::Blue,
        MachineState::Configured => Color::Green,
        MachineState::Failed => Color::Red,
        MachineState::Creating
        | MachineState::Configuring
        | MachineState::Draining
        | MachineState::Deleting => Color::Yellow,
    })
}
