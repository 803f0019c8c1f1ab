//! 25,000 CapacityRequests in one cluster, measured: what a roll-up costs, what the operator holds, what it asks of the
//! API server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::world::{World, ensure};
use super::rights;

const COUNT: usize = 25_000;
/// How many requests come one by one when all the others are there.
const MORE: usize = 200;
const NAMESPACE: &str = "scale";
/// What one operator may hold, in MiB.
const MEMORY_MIB: u64 = 150;
/// What a turn that builds a roll-up may take on average, in milliseconds.
const TURN_MILLIS: f64 = 10.0;
/// Calls that have nothing to do with how much there is: the lease, and watches that the API server ended.
const BESIDE: usize = 20;

pub(super) fn run(world: &mut World) -> Result<()> {
    super::pods::namespace(world, NAMESPACE)?;
    world.fleet()?.start()?;
    let before = Measured::now(world)?;
    let start = Instant::now();
    // In parts: kubectl reads all that it is given before it begins.
    for some in (0..COUNT).map(request).collect::<Vec<_>>().chunks(5000) {
        world.kubectl.create(some)?;
    }
    println!("       {COUNT} created in {:.0} s", start.elapsed().as_secs_f64());
    acknowledged(world, &before, COUNT)?;
    println!("       all acknowledged {:.0} s after the first was there", start.elapsed().as_secs_f64());
    let full = Measured::now(world)?;
    full.tell(&before, "while they came")?;
    full.judge(&before, COUNT)?;

    // One after the other, each to be told of while all the others stay as they are.
    let start = Instant::now();
    for n in COUNT..COUNT + MORE {
        world.kubectl.create(&[request(n)])?;
    }
    acknowledged(world, &full, MORE)?;
    println!("       {MORE} more, one by one, in {:.0} s", start.elapsed().as_secs_f64());
    let more = Measured::now(world)?;
    more.tell(&full, "for those")?;
    more.judge(&full, MORE)?;
    let turn = more.turn_millis(&full)?;
    ensure(turn <= TURN_MILLIS, || {
        format!("a roll-up took {turn:.2} ms on average, at most {TURN_MILLIS} ms expected")
    })?;

    let start = Instant::now();
    world.kubectl.run(&["delete", "namespace", NAMESPACE, "--wait=false"])?;
    world.until("the operator to know that all are gone", |world| {
        let left = world.fleet()?.operators[0].metric("bigfleet_operator_crs", &[])?;
        ensure(left == 0.0, || format!("it counts {left}"))
    })?;
    println!("       all deleted in {:.0} s", start.elapsed().as_secs_f64());
    let gone = Measured::now(world)?;
    gone.tell(&more, "for that")?;
    gone.judge(&more, 0)
}

fn acknowledged(world: &mut World, before: &Measured, count: usize) -> Result<()> {
    world.until("every request to be acknowledged", |world| {
        let operator = &world.fleet()?.operators[0];
        let done = operator.metric("bigfleet_operator_acknowledged_total", &[])? - before.acknowledged;
        let count = f64::from(u32::try_from(count)?);
        ensure(done >= count, || format!("{done} of {count} are"))
    })?;
    // Patches that nobody needs would come now.
    world.pass(Duration::from_secs(3))
}

/// Where the operator stands.
struct Measured {
    /// Requests acknowledged since its start.
    acknowledged: f64,
    /// Roll-ups, and the seconds that their turns took.
    rollups: (f64, f64),
    /// Resident now, and at most so far.
    memory_mib: (u64, u64),
    /// What the API server was asked for: status patches of CapacityRequests, and all else.
    patches: usize,
    beside: usize,
}

impl Measured {
    fn now(world: &mut World) -> Result<Self> {
        let asked = rights::requests(world)?;
        let (patches, beside): (Vec<&Value>, Vec<&Value>) = rights::asked_by(&asked, "bigfleet-operator")
            .partition(|r| {
                r["objectRef"]["resource"] == "capacityrequests" && r["objectRef"]["subresource"] == "status"
            });
        let operator = &world.fleet()?.operators[0];
        let metric = |name: &str| operator.metric(&format!("bigfleet_operator_{name}"), &[]);
        let id = operator.process.id();
        Ok(Self {
            acknowledged: metric("acknowledged_total")?,
            rollups: (metric("rollup_duration_seconds_count")?, metric("rollup_duration_seconds_sum")?),
            memory_mib: (memory_mib(id, "VmRSS:")?, memory_mib(id, "VmHWM:")?),
            patches: patches.len(),
            beside: beside.iter().filter(|r| r["objectRef"]["resource"] != "leases").count(),
        })
    }

    fn turn_millis(&self, before: &Self) -> Result<f64> {
        let count = self.rollups.0 - before.rollups.0;
        ensure(count > 0.0, || "no roll-up was measured".to_owned())?;
        Ok((self.rollups.1 - before.rollups.1) / count * 1000.0)
    }

    fn tell(&self, before: &Self, when: &str) -> Result<()> {
        println!(
            "       {when}: {} roll-ups of {:.2} ms on average, {} status patches, {} other calls; {} MiB resident, {} at most",
            self.rollups.0 - before.rollups.0,
            self.turn_millis(before)?,
            self.patches - before.patches,
            self.beside - before.beside,
            self.memory_mib.0,
            self.memory_mib.1,
        );
        Ok(())
    }

    /// One status patch for each request that came, hardly anything else, and not too much memory.
    fn judge(&self, before: &Self, came: usize) -> Result<()> {
        let (patches, beside) = (self.patches - before.patches, self.beside - before.beside);
        ensure(patches == came, || {
            format!("expected {came} status patches, one for each new request; there were {patches}")
        })?;
        ensure(beside <= BESIDE, || {
            format!("{beside} calls beside the status patches, at most {BESIDE} expected")
        })?;
        let memory = self.memory_mib.0;
        ensure(memory <= MEMORY_MIB, || format!("{memory} MiB resident, at most {MEMORY_MIB} expected"))
    }
}

/// Of a thousand shapes; no machine matches, so that nothing is bought.
fn request(n: usize) -> Value {
    json!({
        "apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
        "metadata": {"name": format!("r-{n}"), "namespace": NAMESPACE},
        "spec": {
            "priority": n % 10,
            "resources": {"cpu": format!("{}m", 100 + n / 10 % 100), "memory": "64Mi"},
            "requirements": [{"key": "nowhere", "operator": "In", "values": [format!("v{}", n % 10)]}],
        },
    })
}

/// What a process holds in memory, by the line of its status that begins so.
fn memory_mib(id: u32, line: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let found = status.lines().find_map(|l| l.strip_prefix(line)).with_context(|| format!("no {line}"))?;
    let kib: u64 = found.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}
