//! What each cluster wants, and how that moves from roll-up to roll-up.

use bigfleet_types::{Group, Need};

use super::portion;
use super::tables::Tables;
use crate::catalogue::CATALOGUE;
use crate::sizing::Sizing;

/// One gang in so many lacks a pod in each round, so that with those that get theirs back and the plain rows, which
/// all move, 7 of 100 rows change.
const GANG_PERIOD: u64 = 111;

/// The demand of one cluster.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) plain: Vec<Plain>,
    pub(super) gangs: Vec<Gang>,
}

/// All pods of a kind that ask for one type, with or without spread.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) kind: usize,
    pub(super) at: usize,
    pub(super) spread: bool,
    /// By size.
    pub(super) pods: Vec<u64>,
}

/// One gang.
#[derive(Debug)]
pub(super) struct Gang {
    pub(super) kind: usize,
    pub(super) at: usize,
    /// Among all gangs of its kind.
    pub(super) number: u64,
    pub(super) pods: u64,
}

impl Plan {
    /// Cuts the share of one cluster out of the fleet's pods and gangs.
    pub(super) fn of(sizing: &Sizing, clusters: u64, cluster: u64) -> Self {
        let mut plan = Self { plain: Vec::new(), gangs: Vec::new() };
        for (kind, spec) in CATALOGUE.iter().enumerate() {
            let types = spec.types.len() as u64;
            if let Some((least, most)) = spec.gang {
                let span = most - least + 1;
                let all = sizing.gangs[kind];
                for number in all * cluster / clusters..all * (cluster + 1) / clusters {
                    let at = usize::try_from(number / span % types).unwrap_or(0);
                    plan.gangs.push(Gang { kind, at, number, pods: least + number % span });
                }
                continue;
            }
            let pods = portion(sizing.pods[kind], clusters, cluster);
            for (at, number) in (0..types).enumerate() {
                let pods = portion(pods, types, number);
                let hard = pods * spec.hard_spread / 100;
                for (spread, pods) in [(false, pods - hard), (true, hard)] {
                    let mut left = pods;
                    let mut by_size = Vec::with_capacity(spec.sizes.len());
                    for size in spec.sizes.iter().skip(1).rev() {
                        let part = pods * size.percent / 100;
                        by_size.push(part);
                        left -= part;
                    }
                    by_size.push(left);
                    by_size.reverse();
                    if pods > 0 {
                        plan.plain.push(Plain { kind, at, spread, pods: by_size });
                    }
                }
            }
        }
        plan
    }

    pub(super) fn rows(&self) -> u64 {
        (self.plain.len() + self.gangs.len()) as u64
    }

    /// The rows of a round.
    pub(super) fn needs(&self, tables: &Tables, cluster: u64, round: u64) -> Vec<Need> {
        self.rows_without(tables, cluster, |row| plain_lost(row, round), |_, gang| gang_lost(gang, round))
    }

    /// The rows of a round in which the first `rows` rows change and no other: each lacks a pod in every other round.
    pub(super) fn needs_changing(&self, tables: &Tables, cluster: u64, round: u64, rows: u64) -> Vec<Need> {
        let lost = |row: usize| if (row as u64) < rows { round % 2 } else { 0 };
        self.rows_without(tables, cluster, lost, |row, _| lost(self.plain.len() + row))
    }

    fn rows_without(
        &self,
        tables: &Tables,
        cluster: u64,
        plain_lost: impl Fn(usize) -> u64,
        gang_lost: impl Fn(usize, &Gang) -> u64,
    ) -> Vec<Need> {
        let plain = self.plain.iter().enumerate().map(|(row, plain)| {
            let kind = tables.kind(plain.kind);
            let mut pods = plain.pods.clone();
            pods[0] = pods[0].saturating_sub(plain_lost(row)).max(1);
            let profile = &kind.profiles[plain.at][usize::from(plain.spread)].profile;
            kind.need(profile, &pods, kind.group.clone())
        });
        let gangs = self.gangs.iter().enumerate().map(|(row, gang)| {
            let kind = tables.kind(gang.kind);
            let pods = gang.pods - gang_lost(row, gang);
            kind.need(&kind.profiles[gang.at][0].profile, &[pods], gang.group(cluster))
        });
        plain.chain(gangs).collect()
    }

    /// How many rows of a round differ from those of the round before.
    pub(super) fn changed(&self, round: u64) -> u64 {
        let before = round.saturating_sub(1);
        let plain = (0..self.plain.len()).filter(|row| plain_lost(*row, round) != plain_lost(*row, before));
        let gangs = self.gangs.iter().filter(|gang| gang_lost(gang, round) != gang_lost(gang, before));
        (plain.count() + gangs.count()) as u64
    }
}

impl Gang {
    /// As long as the group of a real gang: a namespace and 32 hex digits.
    pub(super) fn group(&self, cluster: u64) -> Group {
        let scrambled = (self.number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Group::new(&format!("apps/{scrambled:016x}{:08x}{cluster:08x}", self.kind))
    }
}

/// How many pods of a plain row are just being replaced.
fn plain_lost(row: usize, round: u64) -> u64 {
    if round == 0 { 0 } else { (round + row as u64) % 3 }
}

/// The same for a gang.
fn gang_lost(gang: &Gang, round: u64) -> u64 {
    u64::from(round > 0 && gang.number % GANG_PERIOD == round % GANG_PERIOD)
}
