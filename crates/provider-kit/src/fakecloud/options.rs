//! The fake cloud's options.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::boot::BootCommand;
use super::catalogue::{Class, PROVIDER, Profile, Seeds};
use super::market::{Market, StockOuts};
use crate::instance::{Instance, Invalid};
use crate::kind::Kind;
use crate::seeds;
use crate::table::Binding;

/// The variable that sets how long a Create takes.
const CREATE_LATENCY: &str = "BIGFLEET_FAKE_CREATE_LATENCY";

/// Why options are refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidOptions {
    /// A field is out of its range.
    #[error("fakecloud option {field}: {problem}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The seeds would hold an impossible machine.
    #[error("fakecloud seed {0}")]
    Seed(#[from] Invalid),
}

/// A range of times; each machine gets one of its own from it, always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// The shortest, in milliseconds.
    pub min_ms: u64,
    /// The longest, in milliseconds; not below `min_ms`.
    pub max_ms: u64,
}

impl Latency {
    /// Exactly this long, to the millisecond.
    #[must_use]
    pub fn fixed(duration: Duration) -> Self {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self { min_ms: ms, max_ms: ms }
    }

    /// The time at `fraction` (0 to 999 thousandths) of the range.
    #[must_use]
    pub fn at(self, thousandths: u64) -> Duration {
        let span = self.max_ms.saturating_sub(self.min_ms);
        Duration::from_millis(self.min_ms.saturating_add(span.saturating_mul(thousandths.min(999)) / 999))
    }
}

/// Which time of its range a piece of work takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dwell {
    /// Each machine always the same.
    #[default]
    Same,
    /// Any, all alike.
    Uniform,
    /// Mostly short ones, and now and then one that is near the longest: as clouds are.
    LongTail,
}

impl Dwell {
    /// The place in the range for a piece of work, in thousandths: that of its machine, or what `drawn` (0 to 999) makes
    /// of it.
    #[must_use]
    pub fn place(self, machine: u64, drawn: u64) -> u64 {
        match self {
            Self::Same => machine,
            Self::Uniform => drawn.min(999),
            // The exponential distribution, cut where one in a thousand is longer.
            Self::LongTail => {
                let left = 1.0 - f64::from(u32::try_from(drawn.min(999)).unwrap_or(999)) / 1000.0;
                let part = -left.ln() / 1000_f64.ln();
                (0..999_u32).find(|n| f64::from(*n) >= part * 999.0).map_or(999, u64::from)
            }
        }
    }
}

/// How long work takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latencies {
    /// Create. Default 20 to 60 ms, as for all.
    pub create: Latency,
    /// Configure, before the hook and the boot command.
    pub configure: Latency,
    /// Drain, likewise.
    pub drain: Latency,
    /// Delete.
    pub delete: Latency,
}

impl Default for Latencies {
    fn default() -> Self {
        let short = Latency { min_ms: 20, max_ms: 60 };
        Self { create: short, configure: short, drain: short, delete: short }
    }
}

impl Latencies {
    /// The range for one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Latency {
        match kind {
            Kind::Create => self.create,
            Kind::Configure => self.configure,
            Kind::Drain => self.drain,
            Kind::Delete => self.delete,
        }
    }

    /// Sets the range for one kind.
    pub fn set(&mut self, kind: Kind, latency: Latency) {
        *match kind {
            Kind::Create => &mut self.create,
            Kind::Configure => &mut self.configure,
            Kind::Drain => &mut self.drain,
            Kind::Delete => &mut self.delete,
        } = latency;
    }
}

/// A loss of quota at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shed {
    /// When, in seconds after the start.
    pub at_seconds: u64,
    /// The fraction of Speculative slots that is kept, 0 to 1.
    pub keep: f64,
}

/// What the fake cloud has and how it behaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// A catalogue by name. Default none.
    pub profile: Profile,
    /// Machines of the default shapes. Default none.
    pub seeds: Seeds,
    /// Slots `seed-N`, a quarter each of on-demand and spot in two zones. Default none.
    pub slots: u64,
    /// The provider's name in hosts. Default `fakecloud`.
    pub label: String,
    /// A catalogue of one's own, beside the others.
    pub classes: Vec<Class>,
    /// Allocatable cpu, memory and ephemeral storage of the default shapes and `classes`, times this. Default 1.
    pub density_multiplier: u64,
    /// Answer each call when its work has ended, and take no time for it. For tests only. Default false.
    pub instant: bool,
    /// How long work takes; without effect when `instant`.
    pub latency: Latencies,
    /// A program that makes hosts join and leave.
    pub boot: Option<BootCommand>,
    /// Whether Delete works. Default true.
    pub can_delete: bool,
    /// Whether work goes on after a restart; otherwise its machines fail. Default true.
    pub resume: bool,
    /// A loss of quota.
    pub shed: Option<Shed>,
    /// Which time of its range each piece of work takes. Default the same for each machine.
    pub dwell: Dwell,
    /// Spot prices that move and hosts that are taken away; default none of it.
    pub market: Option<Market>,
    /// Classes that run out by themselves; default none.
    pub stock_outs: Option<StockOuts>,
    /// Mutating calls a second that are let through, the others being `UNAVAILABLE`; 0, the default, for all.
    pub calls_per_second: f64,
    /// How far List is behind, in milliseconds. It then takes no cursor and gives none. Default 0.
    pub list_lag_ms: u64,
    /// Expected failures a second for each Configured machine. Default 0.
    pub failures_per_second: f64,
    /// Where chance begins.
    pub random_seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: Profile::None,
            seeds: Seeds::default(),
            slots: 0,
            label: PROVIDER.into(),
            classes: Vec::new(),
            density_multiplier: 1,
            instant: false,
            latency: Latencies::default(),
            boot: None,
            can_delete: true,
            resume: true,
            shed: None,
            dwell: Dwell::Same,
            market: None,
            stock_outs: None,
            calls_per_second: 0.0,
            list_lag_ms: 0,
            failures_per_second: 0.0,
            random_seed: 1,
        }
    }
}

impl Options {
    /// Checks every field and every machine that they make.
    ///
    /// # Errors
    /// The first field that is out of its range, or machine that cannot be.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        let field =
            |field: &str, problem: String| Err(InvalidOptions::Field { field: field.into(), problem });
        if self.density_multiplier == 0 {
            return field("density_multiplier", "is 0, must be at least 1".into());
        }
        let rate = self.failures_per_second;
        if !(rate.is_finite() && rate >= 0.0) {
            return field("failures_per_second", format!("is {rate}, must be finite and at least 0"));
        }
        if !(self.calls_per_second.is_finite() && self.calls_per_second >= 0.0) {
            return field(
                "calls_per_second",
                format!("is {}, must be finite and at least 0", self.calls_per_second),
            );
        }
        if let Some(Market { every_ms, swing, speed }) = self.market
            && (every_ms == 0 || !(0.0..1.0).contains(&swing) || !(speed.is_finite() && speed >= 0.0))
        {
            let rule = "every_ms must be above 0, swing from 0 to below 1, speed finite and at least 0";
            return field("market", format!("is {every_ms} ms, swing {swing}, speed {speed}; {rule}"));
        }
        if let Some(StockOuts { chance, period_ms }) = self.stock_outs
            && (period_ms == 0 || !(0.0..=1.0).contains(&chance))
        {
            let rule = "period_ms must be above 0, chance from 0 to 1";
            return field("stock_outs", format!("is {chance} for {period_ms} ms; {rule}"));
        }
        if let Some(shed) = self.shed
            && !(0.0..=1.0).contains(&shed.keep)
        {
            return field("shed.keep", format!("is {}, must be from 0 to 1", shed.keep));
        }
        for kind in Kind::ALL {
            let Latency { min_ms, max_ms } = self.latency.of(kind);
            if min_ms > max_ms {
                let name = format!("latency.{}", kind.name().to_lowercase());
                return field(&name, format!("min_ms {min_ms} is above max_ms {max_ms}"));
            }
        }
        for (at, class) in self.classes.iter().enumerate() {
            if class.name.is_empty() {
                return field(
                    &format!("classes[{at}].name"),
                    "is empty; machine ids are made from it".into(),
                );
            }
        }
        let (instances, bound) = self.seeds();
        let mut ids = std::collections::BTreeSet::new();
        for instance in instances.iter().chain(bound.iter().map(|(instance, _)| instance)) {
            if !ids.insert(instance.validate(false)?) {
                return Err(Invalid::Duplicate { id: instance.id.clone() }.into());
            }
        }
        Ok(())
    }

    /// Takes what the environment says: `BIGFLEET_FAKE_CREATE_LATENCY`, such as `30s`. What cannot be read is
    /// ignored with a warning.
    #[must_use]
    pub fn take_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        if let Some(text) = variable(CREATE_LATENCY) {
            match bigfleet_types::duration::parse(&text) {
                Ok(duration) => self.latency.create = Latency::fixed(duration),
                Err(problem) => tracing::warn!(value = text, "{CREATE_LATENCY} {problem}; it is ignored"),
            }
        }
        self
    }

    pub(super) fn seeds(&self) -> (Vec<Instance>, Vec<(Instance, Binding)>) {
        let mut instances = self.profile.instances();
        instances.extend(seeds::quarters("seed", self.slots));
        instances.extend(self.seeds.instances(self.density_multiplier));
        instances.extend(self.classes.iter().flat_map(|class| class.instances(self.density_multiplier)));
        let mut bound = self.seeds.bound(self.density_multiplier);
        for instance in instances.iter_mut().chain(bound.iter_mut().map(|(instance, _)| instance)) {
            if let Some(host) = &mut instance.host {
                host.provider.clone_from(&self.label);
            }
        }
        (instances, bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_the_create_latency_or_is_ignored() {
        for (text, ms) in [("30s", 30_000), ("1m30s", 90_000), ("250ms", 250), ("0", 0)] {
            let options = Options::default().take_environment(|_| Some(text.into()));
            assert_eq!(options.latency.create, Latency { min_ms: ms, max_ms: ms }, "{text}");
        }
        for text in ["", "soon", "5", "-1s", "10 s"] {
            let options = Options::default().take_environment(|_| Some(text.into()));
            assert_eq!(options, Options::default(), "{text}");
        }
    }

    #[test]
    fn a_long_tail_is_mostly_short() {
        let places: Vec<u64> = (0..1000).map(|drawn| Dwell::LongTail.place(0, drawn)).collect();
        assert!(places.is_sorted() && places[0] == 0 && places[999] > 990);
        assert!(places[500] < 150, "half of them take less than a seventh of the range: {}", places[500]);
        assert_eq!((Dwell::Same.place(7, 900), Dwell::Uniform.place(7, 900)), (7, 900));
    }

    #[test]
    fn bad_options_name_their_field() {
        type Case = (&'static str, fn(&mut Options));
        let bad: [Case; 8] = [
            ("calls_per_second", |o| o.calls_per_second = -1.0),
            ("market", |o| o.market = Some(Market { every_ms: 0, swing: 0.5, speed: 1.0 })),
            ("stock_outs", |o| o.stock_outs = Some(StockOuts { chance: 2.0, period_ms: 1 })),
            ("density_multiplier", |o| o.density_multiplier = 0),
            ("failures_per_second", |o| o.failures_per_second = f64::NAN),
            ("shed.keep", |o| o.shed = Some(Shed { at_seconds: 1, keep: 1.5 })),
            ("latency.drain", |o| o.latency.drain = Latency { min_ms: 2, max_ms: 1 }),
            ("classes[0].name", |o| o.classes.push(Class::default())),
        ];
        for (field, breaks) in bad {
            let mut options = Options::default();
            breaks(&mut options);
            let error = options.validate().unwrap_err().to_string();
            assert!(error.contains(field), "{field}: {error}");
        }
    }

    #[test]
    fn options_read_from_a_file_refuse_unknown_fields() {
        let options: Options = serde_json::from_str(r#"{"profile": "dev", "seeds": {"spot": 3}}"#).unwrap();
        assert_eq!((options.profile, options.seeds.spot, options.can_delete), (Profile::Dev, 3, true));
        assert!(serde_json::from_str::<Options>(r#"{"seeds": {"spott": 3}}"#).is_err());
    }
}
