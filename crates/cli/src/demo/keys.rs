//! What the keys of the live view mean.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::scenario::Scenario;

/// What lies over the view and takes the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Overlay {
    #[default]
    None,
    Help,
    /// Which scenario?
    Scenarios,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Previous,
    Next,
    More,
    Less,
    Kill,
    Pause,
    Break,
    Reset,
    Play(Scenario),
    Show(Overlay),
    Quit,
}

/// The keys as the help shows them.
pub(crate) const HELP: [(&str, &str); 9] = [
    ("up, down", "select the demand of a cluster"),
    ("+, -", "change it by one level: 7 pods that fill a machine"),
    ("k", "kill a machine of the cluster, as a spot reclaim would"),
    ("p", "pause: the file PAUSE stops every action; again to go on"),
    ("b", "break the provider: every call fails; again to heal it"),
    ("s", "play a scenario: m move, a saturate, c critical"),
    ("0", "back to the demand of the beginning"),
    ("?", "this help"),
    ("q", "quit"),
];

/// Reads a terminal event; `None` when it means nothing here.
pub(crate) fn command(event: &Event, overlay: Overlay) -> Option<Command> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return None };
    if modifiers.contains(KeyModifiers::CONTROL) {
        return (*code == KeyCode::Char('c')).then_some(Command::Quit);
    }
    if overlay != Overlay::None {
        return match (overlay, code) {
            (Overlay::Scenarios, KeyCode::Char('m')) => Some(Command::Play(Scenario::Move)),
            (Overlay::Scenarios, KeyCode::Char('a')) => Some(Command::Play(Scenario::Saturate)),
            (Overlay::Scenarios, KeyCode::Char('c')) => Some(Command::Play(Scenario::Critical)),
            (_, KeyCode::Char('q')) => Some(Command::Quit),
            _ => Some(Command::Show(Overlay::None)),
        };
    }
    Some(match code {
        KeyCode::Up | KeyCode::BackTab => Command::Previous,
        KeyCode::Down | KeyCode::Tab => Command::Next,
        KeyCode::Char('+' | '=') | KeyCode::Right => Command::More,
        KeyCode::Char('-' | '_') | KeyCode::Left => Command::Less,
        KeyCode::Char('k') => Command::Kill,
        KeyCode::Char('p') => Command::Pause,
        KeyCode::Char('b') => Command::Break,
        KeyCode::Char('s') => Command::Show(Overlay::Scenarios),
        KeyCode::Char('0') => Command::Reset,
        KeyCode::Char('?' | 'h') => Command::Show(Overlay::Help),
        KeyCode::Char('q') | KeyCode::Esc => Command::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, overlay: Overlay) -> Option<Command> {
        command(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)), overlay)
    }

    #[test]
    fn keys_mean_what_the_help_says() {
        for (key, wanted) in [
            ('+', Command::More),
            ('-', Command::Less),
            ('k', Command::Kill),
            ('p', Command::Pause),
            ('b', Command::Break),
            ('s', Command::Show(Overlay::Scenarios)),
            ('0', Command::Reset),
            ('?', Command::Show(Overlay::Help)),
            ('q', Command::Quit),
        ] {
            assert_eq!(press(KeyCode::Char(key), Overlay::None), Some(wanted), "{key}");
            assert!(HELP.iter().any(|(keys, _)| keys.contains(key)), "{key} is not in the help");
        }
        assert_eq!(press(KeyCode::Char('x'), Overlay::None), None);
    }

    #[test]
    fn an_overlay_takes_the_keys_and_control_c_always_quits() {
        assert_eq!(press(KeyCode::Char('m'), Overlay::Scenarios), Some(Command::Play(Scenario::Move)));
        assert_eq!(press(KeyCode::Char('k'), Overlay::Scenarios), Some(Command::Show(Overlay::None)));
        assert_eq!(press(KeyCode::Esc, Overlay::Help), Some(Command::Show(Overlay::None)));
        let control_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(command(&control_c, Overlay::Help), Some(Command::Quit));
    }
}
