//! The executable as a child process: started, watched through what it prints, ended or killed by its id.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take before a test gives up. Never what decides it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a program may take to end after SIGTERM.
pub(crate) const STOP_WITHIN: Duration = Duration::from_secs(15);

/// The executable, in an environment without settings of ours.
pub(crate) fn bigfleet(args: &[&str]) -> Command {
    clean(Path::new(env!("CARGO_BIN_EXE_bigfleet")), args)
}

fn clean(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BIGFLEET_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command that ends by itself; one that does not is killed and fails the test.
pub(crate) fn finish(command: Command) -> Output {
    finish_within(command, PATIENCE)
}

/// As [`finish`], for what takes longer.
pub(crate) fn finish_within(mut command: Command, patience: Duration) -> Output {
    let shown = format!("{command:?}");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = pid(&child);
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(patience) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            kill_process(id, Signal::KILL).unwrap();
            panic!("{shown} did not end");
        }
    }
}

/// As [`finish`], for the executable.
pub(crate) fn run(args: &[&str]) -> Output {
    finish(bigfleet(args))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// A program that runs until it is ended. Dropping it kills it.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    printed: Vec<String>,
    log: PathBuf,
}

impl Program {
    /// Starts it; what it logs is appended to `log`.
    pub(crate) fn start(args: &[&str], log: &Path) -> Self {
        Self::start_as(Path::new(env!("CARGO_BIN_EXE_bigfleet")), args, log)
    }

    /// As [`Program::start`], under another name of the executable.
    pub(crate) fn start_as(program: &Path, args: &[&str], log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let mut child = clean(program, args).stdout(Stdio::piped()).stderr(file).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // A test that is over reads no more.
                let _ = tell.send(line);
            }
        });
        Self { child, lines, printed: Vec::new(), log: log.to_owned() }
    }

    /// Waits for the line `ready NAME ADDRESS` and gives the address.
    pub(crate) fn ready(&mut self, name: &str) -> SocketAddr {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.printed.iter().find_map(|line| {
                let (which, address) = line.strip_prefix("ready ")?.split_once(' ')?;
                (which == name).then(|| address.parse().unwrap())
            });
            if let Some(address) = found {
                return address;
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.printed.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("no `ready {name}`: {}", self.story()),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().unwrap();
                    panic!("ended with {status} before `ready {name}`: {}", self.story());
                }
            }
        }
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; gives the status and how long the end took.
    pub(crate) fn terminate(mut self) -> (ExitStatus, Duration) {
        let begin = Instant::now();
        kill_process(pid(&self.child), Signal::TERM).unwrap();
        let status = self.ended(PATIENCE);
        (status, begin.elapsed())
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self, within: Duration) -> ExitStatus {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "did not end: {}", self.story());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it has logged so far.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The largest file, in bytes, into which the kernel would dump its memory, as the kernel says it.
    pub(crate) fn core_limit(&self) -> String {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
        line.and_then(|line| line.split_whitespace().next()).unwrap().to_owned()
    }

    fn story(&self) -> String {
        format!("printed {:?}, logged\n{}", self.printed, self.logged())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended already is no failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `look` gives something.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One plain HTTP request: status and body.
pub(crate) fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// The value of a series on `/metrics`, such as `name{label="x"}`; `None` while it is not there.
pub(crate) fn metric(addr: SocketAddr, series: &str) -> Option<f64> {
    let (_, page) = get(addr, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// A port on loopback that stays ours over restarts: below the range from which the system hands out ports, so that no
/// connection takes it while its program is down, and different in every process of tests.
pub(crate) fn lasting_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|low| low.parse::<u16>().ok()).unwrap_or(32_768);
    let (begin, end) = if end > 12_000 { (10_000, end) } else { (61_000, 65_535) };
    let start = u16::try_from(std::process::id() * 16 % u32::from(end - begin)).unwrap();
    for _ in 0..1000 {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = begin + (start + n) % (end - begin);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}
