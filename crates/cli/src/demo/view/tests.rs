//! The view over pictures, drawn into memory.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::demo::cluster::Tier;
use crate::demo::picture::{ActionLine, ClassLine, ClusterLine, UnmetLine};

fn picture() -> Picture {
    Picture {
        uptime: Duration::from_secs(12),
        first_bound: Some(Duration::from_millis(1234)),
        clusters: vec![
            ClusterLine {
                name: "cluster-a".to_owned(),
                demand: vec![(Tier::Batch, 6), (Tier::Production, 16)],
                wanted: 154,
                running: 147,
                pending: 7,
                nodes: 21,
                evicted: 3,
                lost: 7,
            },
            ClusterLine {
                name: "cluster-b".to_owned(),
                demand: vec![(Tier::Batch, 6), (Tier::Production, 0), (Tier::Critical, 3)],
                wanted: 42,
                running: 42,
                ..ClusterLine::default()
            },
        ],
        classes: vec![
            ClassLine {
                name: "onprem".to_owned(),
                capacity_type: "bare-metal",
                price: 0.0,
                counts: [0, 0, 1, 2, 25, 0, 0, 0],
            },
            ClassLine {
                name: "gcp-spot".to_owned(),
                capacity_type: "spot",
                price: 0.1,
                counts: [10, 1, 0, 0, 1, 0, 0, 0],
            },
        ],
        dollars_per_hour: 4.92,
        actions: vec![
            ActionLine {
                clock: "01:02:03".to_owned(),
                headline: "Bootstrap onprem-3 for cluster-a".to_owned(),
                why: "a Need lacks it".to_owned(),
                outcome: "success".to_owned(),
            },
            ActionLine {
                clock: "01:02:04".to_owned(),
                headline: "Reclaim onprem-9 from cluster-b".to_owned(),
                why: "excess".to_owned(),
                outcome: "drain_error".to_owned(),
            },
        ],
        unmet: vec![UnmetLine {
            cluster: "cluster-c".to_owned(),
            priority: 100,
            missing: "cpu 7".to_owned(),
            why: "others go first".to_owned(),
        }],
        cycle: Some(45),
        paused: true,
        broken: true,
        story: vec!["scenario move: waiting".to_owned()],
        hints: vec!["curl http://127.0.0.1:1/metrics".to_owned()],
    }
}

fn drawn(picture: &Picture, choice: Choice, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| render(frame, picture, choice)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn everything_of_a_picture_is_on_the_screen() {
    let screen = drawn(&picture(), Choice { row: 1, overlay: Overlay::None }, (140, 40));
    for text in [
        "$4.92 an hour",
        "cycle 45",
        "first machine bound after 1.2 s",
        "PAUSED",
        "PROVIDER BROKEN",
        "cluster-a",
        "> production",
        "critical    3",
        "147/154",
        "3, 7 lost",
        "onprem       bare-metal 0.00",
        "gcp-spot",
        "0.10",
        "Bootstrap onprem-3 for cluster-a ok a Need lacks it",
        "Reclaim onprem-9 from cluster-b drain_error excess",
        "cluster-c (priority 100) lacks cpu 7",
        "scenario move: waiting",
        "What is simulated",
        "No saving is measured",
        "q quit",
    ] {
        assert!(screen.contains(text), "{text:?} is not in\n{screen}");
    }
    let newest = screen.find("Reclaim onprem-9").unwrap();
    assert!(newest < screen.find("Bootstrap onprem-3").unwrap(), "the newest action is not on top");
}

#[test]
fn states_are_summed_in_their_columns() {
    let screen = drawn(&picture(), Choice::default(), (140, 40));
    let all = screen.lines().find(|line| line.contains("all  ")).unwrap();
    let columns: Vec<_> = all.split("all").nth(1).unwrap().split_whitespace().take(8).collect();
    assert_eq!(columns, ["10", "1", "1", "2", "26", "\u{b7}", "\u{b7}", "\u{b7}"]);
}

#[test]
fn a_shard_that_does_not_answer_is_said() {
    let silent = Picture { cycle: None, unmet: Vec::new(), ..picture() };
    let screen = drawn(&silent, Choice::default(), (140, 40));
    assert!(screen.contains("the shard does not answer") && screen.contains("not known"), "{screen}");
    let content = Picture { unmet: Vec::new(), ..picture() };
    assert!(drawn(&content, Choice::default(), (140, 40)).contains("every Need is satisfied"));
}

#[test]
fn overlays_lie_over_the_rest() {
    let help = drawn(&picture(), Choice { row: 0, overlay: Overlay::Help }, (140, 40));
    assert!(
        help.contains("Keys and addresses") && help.contains("curl http://127.0.0.1:1/metrics"),
        "{help}"
    );
    let menu = drawn(&picture(), Choice { row: 0, overlay: Overlay::Scenarios }, (140, 40));
    assert!(menu.contains("Which scenario?") && menu.contains("a  saturate"), "{menu}");
}

#[test]
fn a_narrow_terminal_has_both_tables_and_what_is_simulated() {
    let screen = drawn(&picture(), Choice::default(), (80, 24));
    for text in ["> batch", "147/154", "gcp-spot", "Simulated: the cloud", "No saving is measured"] {
        assert!(screen.contains(text), "{text:?} is not in\n{screen}");
    }
}

#[test]
fn no_terminal_is_too_small() {
    for size in [(1, 1), (20, 5), (80, 24), (300, 100)] {
        for overlay in [Overlay::None, Overlay::Help, Overlay::Scenarios] {
            drawn(&picture(), Choice { row: 5, overlay }, size);
        }
    }
    drawn(&Picture::default(), Choice::default(), (80, 24));
}
