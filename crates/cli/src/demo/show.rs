//! The demo while it runs: what keys and scenarios do to the world, and what is shown of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, MOST_LEVELS, Tier};
use super::keys::Command;
use super::observe::Observer;
use super::picture::Picture;
use super::scenario::{self, Report, Scenario};
use super::view::Choice;
use super::world::World;

/// A running demo.
pub(crate) struct Show {
    world: Arc<World>,
    observer: Observer,
    choice: Choice,
    limit: Duration,
    teller: mpsc::UnboundedSender<String>,
    told: mpsc::UnboundedReceiver<String>,
    playing: Option<JoinHandle<anyhow::Result<Report>>>,
}

impl Drop for Show {
    fn drop(&mut self) {
        if let Some(playing) = &self.playing {
            playing.abort();
        }
    }
}

impl Show {
    /// A show of a world; a scenario may take `limit`.
    pub(crate) fn new(world: Arc<World>, hints: Vec<String>, limit: Duration) -> Self {
        // As many lines as a story tells, and it is read at every beat.
        let (teller, told) = mpsc::unbounded_channel();
        let observer = Observer::new(Arc::clone(&world), hints);
        Self { world, observer, choice: Choice::default(), limit, teller, told, playing: None }
    }

    pub(crate) fn picture(&self) -> &Picture {
        self.observer.picture()
    }

    pub(crate) fn choice(&self) -> Choice {
        self.choice
    }

    /// Looks at the world, and gives a line for everything new.
    pub(crate) fn look(&mut self) -> anyhow::Result<Vec<String>> {
        let mut lines = self.observer.look()?;
        while let Ok(line) = self.told.try_recv() {
            self.observer.tell(line.clone());
            lines.push(line);
        }
        Ok(lines)
    }

    /// Has something told at the next look.
    pub(crate) fn tell(&self, line: impl Into<String>) {
        // The receiver lives as long as the show.
        let _ = self.teller.send(line.into());
    }

    /// Begins a scenario; one that plays already ends.
    pub(crate) fn play(&mut self, scenario: Scenario) {
        self.cancel();
        let (world, say, limit) = (Arc::clone(&self.world), self.teller.clone(), self.limit);
        let story = async move { scenario::play(scenario, &world, say, limit).await };
        self.playing = Some(tokio::spawn(story));
    }

    fn cancel(&mut self) {
        if let Some(playing) = self.playing.take() {
            playing.abort();
            self.tell("the scenario that was playing ends unfinished");
        }
    }

    /// Waits until the scenario that plays has ended; for ever while none does.
    pub(crate) async fn played(&mut self) -> anyhow::Result<Report> {
        let Some(playing) = &mut self.playing else { return std::future::pending().await };
        let ended = playing.await;
        self.playing = None;
        ended?
    }

    /// Does what a key asks for; whether the show goes on. What does not work is told.
    pub(crate) async fn obey(&mut self, command: Command) -> bool {
        if command == Command::Quit {
            return false;
        }
        if let Err(error) = self.carry_out(command).await {
            self.tell(format!("did not work: {error:#}"));
        }
        true
    }

    async fn carry_out(&mut self, command: Command) -> anyhow::Result<()> {
        let world = Arc::clone(&self.world);
        let tiers = |cluster: &Cluster| cluster.demand().into_iter().map(|(tier, _)| tier);
        let rows: Vec<(&Cluster, Tier)> =
            world.clusters().iter().flat_map(|cluster| tiers(cluster).map(move |t| (cluster, t))).collect();
        let Some(&(cluster, tier)) = rows.get(self.choice.row) else { return Ok(()) };
        let rows = rows.len();
        match command {
            Command::Previous => self.choice.row = (self.choice.row + rows - 1) % rows,
            Command::Next => self.choice.row = (self.choice.row + 1) % rows,
            Command::More | Command::Less => {
                let level = cluster.level(tier);
                let level = if command == Command::More { level + 1 } else { level.saturating_sub(1) };
                if level > MOST_LEVELS {
                    anyhow::bail!("{MOST_LEVELS} levels are the most");
                }
                let level = cluster.set_level(tier, level)?;
                self.tell(format!("{} wants {tier} {level}", cluster.name()));
            }
            Command::Kill => match world.kill(cluster).await? {
                Some(machine) => self.tell(format!("{machine} is taken away; the cloud replaces it later")),
                None => self.tell(format!("{} has no machine to kill", cluster.name())),
            },
            Command::Pause => {
                let pause = !world.is_paused();
                world.pause(pause)?;
                self.tell(if pause { "paused: nothing is executed" } else { "going on" });
            }
            Command::Break => {
                if world.control().is_broken() {
                    world.control().heal();
                    self.tell("the provider answers again");
                } else {
                    world.control().break_provider();
                    self.tell("every call to the provider fails now");
                }
            }
            Command::Reset => {
                self.cancel();
                world.reset()?;
                self.tell("demand is as in the beginning");
            }
            Command::Play(scenario) => {
                self.choice.overlay = super::keys::Overlay::None;
                self.play(scenario);
            }
            Command::Show(overlay) => self.choice.overlay = overlay,
            Command::Quit => {}
        }
        Ok(())
    }
}
