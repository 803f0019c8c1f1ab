//! `bigfleet demo` as people start it: line by line, live in a terminal, and its stories with their claims.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

use crate::process::{bigfleet, get, run, stderr};

/// How long anything may take before a test gives up. A story has a time-out of its own.
const PATIENCE: Duration = Duration::from_secs(900);

/// A demo as a child process. Dropping it kills it.
struct Demo {
    child: Child,
    output: Receiver<String>,
    seen: String,
    /// Where it makes its temporary folder, which a failure keeps.
    _temporary: TempDir,
}

impl Drop for Demo {
    fn drop(&mut self) {
        // One that has ended already is no failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Demo {
    /// Starts it with lines on a pipe.
    fn plain(args: &[&str]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut child = bigfleet(&[&["demo"], args].concat())
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, output) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        forward(out, tell.clone());
        forward(err, tell);
        Self { child, output, seen: String::new(), _temporary: temporary }
    }

    /// Starts it in a terminal of its own; gives the other end of that, for keys.
    fn in_terminal(args: &[&str]) -> (Self, File) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 40, ws_col: 140, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let child = bigfleet(&[&["demo"], args].concat())
            .env("TMPDIR", temporary.path())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let keys = File::from(master);
        let mut screen = keys.try_clone().unwrap();
        let (tell, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once the last holder of the other end is gone.
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                let _ = tell.send(String::from_utf8_lossy(&bytes[..n]).into_owned());
            }
        });
        (Self { child, output, seen: String::new(), _temporary: temporary }, keys)
    }

    /// Waits until it has drawn this; blanks and what moves the cursor or sets colours do not count.
    fn draws(&mut self, text: &str) {
        let wanted: String = text.split_whitespace().collect();
        let deadline = Instant::now() + PATIENCE;
        while !drawn(&self.seen).contains(&wanted) {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(more) => self.seen.push_str(&more),
                Err(why) => panic!("{text:?} was never drawn ({why}), but\n{}", drawn(&self.seen)),
            }
        }
    }

    /// Waits until it has printed this.
    fn prints(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(more) => self.seen.push_str(&more),
                Err(why) => panic!("{text:?} was never printed ({why}), but\n{}", self.seen),
            }
        }
    }

    /// The line that begins so, without its beginning.
    fn line(&mut self, beginning: &str) -> String {
        self.prints(beginning);
        loop {
            let found = self.seen.lines().find_map(|line| line.strip_prefix(beginning));
            if let Some(rest) = found {
                return rest.to_owned();
            }
            let more = self.output.recv_timeout(PATIENCE).unwrap();
            self.seen.push_str(&more);
        }
    }

    fn signal(&self) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
    }

    /// Waits for its end, and for everything that it printed.
    fn ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while let Ok(more) = self.output.recv_timeout(Duration::from_secs(1)) {
                    self.seen.push_str(&more);
                }
                return status;
            }
            assert!(Instant::now() < deadline, "did not end:\n{}", self.seen);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The visible characters in the order in which they were drawn.
fn drawn(bytes: &str) -> String {
    let mut visible = String::new();
    let mut rest = bytes.chars();
    while let Some(c) = rest.next() {
        if c == '\x1b' {
            // `ESC [ parameters letter`, the only kind that is used here.
            if rest.next() == Some('[') {
                rest.find(|c| c.is_ascii_alphabetic());
            }
        } else if !c.is_whitespace() {
            visible.push(c);
        }
    }
    visible
}

fn forward(from: impl std::io::Read + Send + 'static, to: std::sync::mpsc::Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // A test that is over reads no more.
            let _ = to.send(format!("{line}\n"));
        }
    });
}

#[test]
fn readme_demo_runs() {
    let mut demo = Demo::plain(&[]);
    for line in [
        "ready provider 127.0.0.1:",
        "ready shard 127.0.0.1:",
        "honesty: Simulated: the cloud",
        "demand cluster-a: batch 6, production 16 (154 pods)",
        "first machine bound after ",
        "action Bootstrap ",
        "pods cluster-a: all 154 run on 22 nodes",
        "pods cluster-b: all 42 run on 6 nodes",
        "pods cluster-c: all 42 run on 6 nodes",
    ] {
        demo.prints(line);
    }
    demo.signal();
    assert_eq!(demo.ends().code(), Some(0), "{}", demo.seen);
    assert!(!demo.seen.contains("dollars:"), "owned machines cost nothing:\n{}", demo.seen);
}

#[test]
fn keep_tells_how_to_look_from_outside() {
    let mut demo = Demo::plain(&["--keep"]);
    let metrics = demo.line("ready shard-metrics ");
    let (shard, provider) = (demo.line("ready shard "), demo.line("ready provider "));
    demo.prints(&format!("look from outside: curl http://{metrics}/metrics"));
    demo.prints(&format!("look from outside: bigfleet ctl watch --shard {shard} --provider {provider}"));
    demo.prints("pods cluster-a: all 154 run");
    let (status, page) = get(metrics.parse().unwrap(), "/metrics");
    assert!(status == 200 && page.contains("bigfleet_shard_actions"), "{page}");
    let machines =
        run(&["ctl", "machines", "--provider", &provider, "--cluster", "cluster-b", "--no-headers"]);
    let table = String::from_utf8(machines.stdout.clone()).unwrap();
    assert_eq!(table.lines().count(), 6, "{table}{}", stderr(&machines));
    demo.signal();
    assert_eq!(demo.ends().code(), Some(0), "{}", demo.seen);
}

/// Plays a story to its end; it must hold, and tell these things.
fn holds(scenario: &str, told: &[&str]) {
    let mut demo = Demo::plain(&["--scenario", scenario, "--exit", "--scenario-timeout=10m"]);
    let status = demo.ends();
    assert_eq!(status.code(), Some(0), "{}", demo.seen);
    for line in told {
        assert!(demo.seen.contains(line), "{line:?} is not in\n{}", demo.seen);
    }
}

#[test]
fn saturate_buys_and_accounts_for_every_dollar() {
    // 12 spot machines at $0.10, 12 at $0.12, 6 on demand at $0.38.
    let told = [
        "claim holds  on-demand machines are bought: 6",
        "the provider's List $4.92",
        "scenario saturate holds: 6 claims",
    ];
    holds("saturate", &told);
}

#[test]
fn move_takes_machines_from_one_cluster_to_another_under_the_default_rails() {
    holds("move", &["claim holds  no Create reaches the provider: 0 calls", "scenario move holds: 6 claims"]);
}

#[test]
fn critical_takes_machines_from_batch_when_nothing_can_be_bought() {
    let told = [
        "bought 2 on-demand; spot $0.10, on demand $0.38",
        ": a more important Need waits (success)",
        "action Preempt ",
        "42 evicted, 42 wait; others undisturbed: true",
        "scenario critical holds: 6 claims",
    ];
    holds("critical", &told);
}

#[test]
fn a_claim_that_fails_is_a_failure() {
    // Nothing is offered as spot, so none can be bought.
    let sizes = ["--aws-spot=0", "--gcp-spot=0", "--onprem=30"];
    let mut demo =
        Demo::plain(&[&["--scenario=saturate", "--exit", "--scenario-timeout=10m"][..], &sizes].concat());
    assert_eq!(demo.ends().code(), Some(1), "{}", demo.seen);
    assert!(
        demo.seen.contains("bigfleet: scenario saturate: FAILS  spot machines are bought: 0"),
        "{}",
        demo.seen
    );
}

#[test]
fn a_story_that_never_ends_is_a_failure() {
    // 34 machines' worth of demand, and room for ten.
    let sizes =
        ["--onprem=10", "--aws-reserved=0", "--aws-od=0", "--gcp-od=0", "--aws-spot=0", "--gcp-spot=0"];
    let mut demo =
        Demo::plain(&[&["--scenario=move", "--exit", "--scenario-timeout=4s"][..], &sizes].concat());
    assert_eq!(demo.ends().code(), Some(1), "{}", demo.seen);
    for text in ["not within 4 s (--scenario-timeout)", "unmet cluster-", "kept for you to read: "] {
        assert!(demo.seen.contains(text), "{text:?} is not in\n{}", demo.seen);
    }
    assert!(std::path::Path::new(&demo.line("kept for you to read: ")).join("demo.log").exists());
}

#[test]
fn what_is_not_there_yet_is_refused() {
    for (args, text) in [
        (["--scenario=move", "--dashboard-addr=:0"], "no dashboard yet"),
        (["--scenario=move", "--tls-cert=x"], "no TLS yet"),
    ] {
        let output = run(&[&["demo"][..], &args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(text), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_demo_does_not_go_on_from_the_state_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let flag = format!("--data-dir={}", folder.path().display());
    let mut demo = Demo::plain(&[&flag]);
    demo.prints("first machine bound after ");
    demo.signal();
    assert_eq!(demo.ends().code(), Some(0), "{}", demo.seen);
    for name in ["demo.log", "audit.jsonl", "provider", "shard"] {
        assert!(folder.path().join(name).exists(), "{name} was not kept");
    }
    let again = run(&["demo", &flag]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("state of an earlier demo"), "{}", stderr(&again));
}

#[test]
fn a_terminal_shows_it_live_obeys_keys_and_is_restored() {
    let (mut demo, mut keys) = Demo::in_terminal(&[]);
    for text in ["BigFleet demo", "Demand, in machines", "What is simulated", "first machine bound after"] {
        demo.draws(text);
    }
    for (key, answer) in [
        ("+", "cluster-a wants batch 7"),
        ("p", "PAUSED"),
        ("p", "going on"),
        ("b", "PROVIDER BROKEN"),
        ("b", "answers again"),
        ("k", "is taken away"),
        ("?", "Keys and addresses"),
    ] {
        keys.write_all(key.as_bytes()).unwrap();
        demo.draws(answer);
    }
    keys.write_all(b"q").unwrap();
    assert_eq!(demo.ends().code(), Some(0), "{}", demo.seen);
    assert!(demo.seen.contains("\x1b[?1049l"), "the terminal was left as it was drawn upon");
}

#[test]
fn a_signal_restores_the_terminal() {
    let (mut demo, _keys) = Demo::in_terminal(&[]);
    demo.draws("BigFleet demo");
    demo.signal();
    assert_eq!(demo.ends().code(), Some(0), "{}", demo.seen);
    assert!(demo.seen.contains("\x1b[?1049l"), "the terminal was left as it was drawn upon");
}
