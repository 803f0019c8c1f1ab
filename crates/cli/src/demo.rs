//! `bigfleet demo`: a simulated cloud, a real shard and three simulated clusters with real operators in one process,
//! shown live in the terminal or line by line.

mod audit;
mod cluster;
mod keys;
mod live;
mod observe;
mod picture;
mod scenario;
mod scrape;
mod show;
mod view;
mod world;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::mpsc;

use crate::command::{Failure, Outcome, print, ready, told};
use crate::logging;
use crate::stop::Signals;
use live::Live;
use scenario::Report;
use show::Show;
use world::World;

pub(crate) use scenario::Scenario;
pub(crate) use world::{Pace, Stage};

/// The largest size of a class.
pub(crate) const MOST_MACHINES: u32 = 100;

/// What is real and what is not.
const HONESTY: [&str; 3] = [
    "Real: the decisions and their costs, the wire (gRPC on loopback), operators, rails, durable files, metrics.",
    "Simulated: the cloud, its machines, prices, probabilities and latencies; the clusters, their nodes and pods.",
    "No saving is measured or claimed.",
];
/// How often it is looked and drawn.
const BEAT: Duration = Duration::from_millis(100);

/// What a demo is started with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) stage: Stage,
    /// `None` for a temporary folder.
    pub(crate) data_dir: Option<PathBuf>,
    /// A story to begin with.
    pub(crate) scenario: Option<Scenario>,
    pub(crate) scenario_timeout: Duration,
    pub(crate) afterwards: Afterwards,
    /// Lines even on a terminal.
    pub(crate) plain: bool,
}

/// What comes after the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// The demo goes on until it is ended.
    Stay,
    /// The same, and how to look at it from outside is printed at the start.
    Keep,
    /// The end.
    Exit,
}

/// How a show ended.
enum End {
    /// A key or a signal.
    Left(&'static str),
    Played(Report),
}

/// Runs a demo to its end.
pub(crate) async fn run(settings: Settings) -> Outcome {
    let temporary = match &settings.data_dir {
        Some(_) => None,
        None => {
            Some(tempfile::Builder::new().prefix("bigfleet-demo-").tempdir().context("a temporary folder")?)
        }
    };
    let folder = settings.data_dir.clone().or_else(|| temporary.as_ref().map(|t| t.path().to_owned()));
    let folder = folder.unwrap_or_default();
    if folder.join("provider").exists() {
        let folder = folder.display();
        return Err(Failure::Usage(format!(
            "--data-dir {folder}: holds the state of an earlier demo, whose clusters are gone; give a new folder"
        )));
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("--data-dir {}", folder.display()))?;
    let log = folder.join("demo.log");
    logging::into_file(&log).with_context(|| format!("the log {}", log.display()))?;

    let outcome = Box::pin(in_folder(settings, &folder, &log)).await;
    if let (Err(_), Some(temporary)) = (&outcome, temporary) {
        print(&format!("kept for you to read: {}\n", temporary.keep().display()))?;
    }
    outcome
}

async fn in_folder(settings: Settings, folder: &Path, log: &Path) -> Outcome {
    let signals = Signals::listen()?;
    let world = Arc::new(World::start(settings.stage.clone(), folder).await?);
    let ended = Box::pin(shown(&settings, &world, log, signals)).await;
    let stopped = world.stop().await;
    let end = ended?;
    stopped?;
    match end {
        End::Left(how) if settings.afterwards == Afterwards::Exit => {
            Err(anyhow::anyhow!("{how} came before the scenario's end; its claims are not known").into())
        }
        End::Left(_) => Ok(()),
        End::Played(report) if report.holds() => Ok(()),
        End::Played(report) => {
            let failed = report.claims.iter().filter(|claim| !claim.holds);
            let failed: Vec<_> = failed.map(ToString::to_string).collect();
            Err(anyhow::anyhow!("scenario {}: {}", report.scenario, failed.join("; ")).into())
        }
    }
}

/// Shows the world until the show ends.
async fn shown(settings: &Settings, world: &Arc<World>, log: &Path, signals: Signals) -> anyhow::Result<End> {
    let live = !settings.plain && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let hints = hints(world, log);
    let mut show = Show::new(Arc::clone(world), hints.clone(), settings.scenario_timeout);
    if let Some(scenario) = settings.scenario {
        show.play(scenario);
    }
    let (mut surface, events) = if live {
        let (live, events) = Live::start().context("the terminal cannot be drawn upon; try --plain")?;
        show.tell("press ? for keys and addresses, s for scenarios");
        (Surface::Live(live), events)
    } else {
        introduce(world, log, &hints, settings.afterwards)?;
        (Surface::Plain, mpsc::channel(1).1)
    };
    let end = Box::pin(perform(&mut show, &mut surface, events, world, settings.afterwards, signals)).await;
    drop(surface);
    if let (true, Ok(End::Played(report))) = (live, &end) {
        say(report.lines())?;
    }
    end
}

/// Where the picture goes.
enum Surface {
    Plain,
    Live(Live),
}

impl Surface {
    fn show(&mut self, show: &mut Show) -> anyhow::Result<()> {
        let lines = show.look()?;
        match self {
            Self::Plain => say(lines),
            Self::Live(live) => Ok(live.draw(show.picture(), show.choice())?),
        }
    }
}

async fn perform(
    show: &mut Show,
    surface: &mut Surface,
    mut events: mpsc::Receiver<ratatui::crossterm::event::Event>,
    world: &World,
    afterwards: Afterwards,
    mut signals: Signals,
) -> anyhow::Result<End> {
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = beats.tick() => {}
            Some(event) = events.recv() => {
                if let Some(command) = keys::command(&event, show.choice().overlay)
                    && !show.obey(command).await
                {
                    return Ok(End::Left("q"));
                }
            }
            signal = signals.next() => {
                tracing::info!(signal, "stopping");
                return Ok(End::Left(signal));
            }
            why = world.failed() => anyhow::bail!("{why}; see the log"),
            played = show.played() => match played {
                Ok(report) => {
                    report.lines().into_iter().for_each(|line| show.tell(line));
                    if afterwards == Afterwards::Exit {
                        surface.show(show)?;
                        return Ok(End::Played(report));
                    }
                }
                Err(error) if afterwards == Afterwards::Exit => {
                    surface.show(show)?;
                    return Err(error);
                }
                Err(error) => show.tell(told(&error)),
            },
        }
        surface.show(show)?;
    }
}

/// Prints lines, each at once.
fn say(lines: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

fn hints(world: &World, log: &Path) -> Vec<String> {
    let places = world.places();
    vec![
        format!("bigfleet ctl needs --shard {}", places.shard),
        format!("bigfleet ctl machines --provider {}", places.provider),
        format!("bigfleet ctl watch --shard {} --provider {}", places.shard, places.provider),
        format!("curl http://{}/metrics", places.metrics),
        format!("touch {}", places.pause_file.display()),
        format!("tail -f {}", log.display()),
        format!("tail -f {}", places.audit_log.display()),
    ]
}

/// The first lines without a live view.
fn introduce(world: &World, log: &Path, hints: &[String], afterwards: Afterwards) -> anyhow::Result<()> {
    let places = world.places();
    for (name, address) in
        [("provider", places.provider), ("shard", places.shard), ("shard-metrics", places.metrics)]
    {
        ready(name, address).map_err(|_| anyhow::anyhow!("standard output is closed"))?;
    }
    say([format!("log {}", log.display())])?;
    say(HONESTY.map(|line| format!("honesty: {line}")))?;
    if afterwards == Afterwards::Keep {
        say(hints.iter().map(|hint| format!("look from outside: {hint}")))?;
    }
    Ok(())
}
