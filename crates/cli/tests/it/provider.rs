//! The providers as programs, with the flags that a conformance runner starts them with.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use bigfleet_net::channel;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use bigfleet_types::MachineState::{self, Configured, Failed, Idle, Speculative};
use tonic::transport::Channel;

use crate::process::{PATIENCE, Program, run, stderr, stdout};

/// The six calls, without fencing.
pub(crate) struct Client(CapacityProviderClient<Channel>);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let channel = channel::connect_lazy(&addr.to_string(), &channel::Options::default()).unwrap();
        Self(CapacityProviderClient::new(channel).max_decoding_message_size(64 << 20))
    }

    pub(crate) async fn list(&mut self) -> Vec<pb::Machine> {
        self.0.list(pb::ListFilter::default()).await.unwrap().into_inner().machines
    }

    pub(crate) async fn create(&mut self, id: &str) -> Result<pb::TransitionAck, tonic::Status> {
        let request = pb::CreateRequest { machine_id: id.into(), ..pb::CreateRequest::default() };
        Ok(self.0.create(request).await?.into_inner())
    }

    pub(crate) async fn configure(&mut self, id: &str, cluster: &str) -> pb::TransitionAck {
        let request = pb::ConfigureRequest {
            machine_id: id.into(),
            cluster_id: cluster.into(),
            bootstrap_blob: b"secret blob of the test".to_vec().into(),
            ..pb::ConfigureRequest::default()
        };
        self.0.configure(request).await.unwrap().into_inner()
    }

    pub(crate) async fn drain(&mut self, id: &str) {
        let request = pb::DrainRequest { machine_id: id.into(), ..pb::DrainRequest::default() };
        self.0.drain(request).await.unwrap();
    }

    pub(crate) async fn delete(&mut self, id: &str) -> Result<(), tonic::Status> {
        let request = pb::DeleteRequest { machine_id: id.into(), ..pb::DeleteRequest::default() };
        self.0.delete(request).await.map(|_| ())
    }

    pub(crate) async fn get(&mut self, id: &str) -> pb::Machine {
        self.0.get(pb::MachineRef { id: id.into() }).await.unwrap().into_inner()
    }

    /// Waits until a machine is in `state`.
    pub(crate) async fn settled(&mut self, id: &str, state: MachineState) -> pb::Machine {
        let begun = std::time::Instant::now();
        loop {
            let machine = self.get(id).await;
            if machine.state == i32::from(state.number()) {
                return machine;
            }
            assert!(begun.elapsed() < PATIENCE, "{id} never becomes {state}: {machine:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// Starts a provider under its own program name, as the public runner does.
fn by_name(folder: &Path, name: &str, args: &[&str]) -> Program {
    let program = folder.join(format!("bigfleet-provider-{name}"));
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_bigfleet"), &program).unwrap();
    }
    Program::start_as(&program, args, &folder.join("log"))
}

#[tokio::test]
async fn fakecloud_takes_the_flags_of_the_public_runner() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("--state={}", folder.path().join("durable-state.json").display());
    let args = [
        "--addr=127.0.0.1:0",
        "--provider=certify",
        "--use-fake-backend",
        "--seed-count=64",
        "--metrics-addr=0",
        &state,
    ];
    let mut program = by_name(folder.path(), "fakecloud", &args);
    let mut client = Client::connect(program.ready("provider"));
    let machines = client.list().await;
    assert_eq!(machines.len(), 64);
    assert!(machines.iter().all(|m| m.state == i32::from(Speculative.number())));
    let joined = client.create("seed-5").await.unwrap().operation_id;
    assert_eq!(client.settled("seed-5", Idle).await.host.unwrap().provider, "certify");
    program.kill();
    let mut program = by_name(folder.path(), "fakecloud", &args);
    let mut client = Client::connect(program.ready("provider"));
    assert_eq!(client.get("seed-5").await.state, i32::from(Idle.number()));
    assert_eq!(client.create("seed-5").await.unwrap().operation_id, joined);
    client.delete("seed-5").await.unwrap();
    client.settled("seed-5", Speculative).await;
    assert!(program.terminate().0.success());
}

#[tokio::test]
async fn fault_fails_what_the_wire_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("--state={}", folder.path().join("state").display());
    let args = [
        "--addr=127.0.0.1:0",
        "--provider=fault",
        "--seed-count=64",
        "--transition-timeout=1s",
        "--metrics-addr=0",
        &state,
    ];
    let mut program = by_name(folder.path(), "fault", &args);
    let mut client = Client::connect(program.ready("provider"));
    let machines = client.list().await;
    let faulty = |m: &&pb::Machine| m.labels.get("conformance.fault/create").is_some_and(|v| v == "error");
    assert_eq!((machines.len(), machines.iter().filter(faulty).count()), (72, 8));

    let broken = machines.iter().find(faulty).unwrap().id.clone();
    client.create(&broken).await.unwrap();
    assert!(client.settled(&broken, Failed).await.last_error.contains("on purpose"));
    let clusters = ["fault-error", "fault-timeout", "fault-slow-ok", "fault-readiness-block"];
    for (n, cluster) in clusters.iter().enumerate() {
        let id = format!("slot-{n}");
        client.create(&id).await.unwrap();
        client.settled(&id, Idle).await;
        client.configure(&id, cluster).await;
        let failed = client.settled(&id, Failed).await;
        let words = if *cluster == "fault-error" { "on purpose" } else { "timeout: Configure" };
        assert!(failed.last_error.contains(words), "{cluster}: {}", failed.last_error);
    }
    for (n, (cluster, end)) in [("fault-drain-error", Failed), ("sound", Idle)].into_iter().enumerate() {
        let id = format!("slot-1{n}");
        client.create(&id).await.unwrap();
        client.settled(&id, Idle).await;
        client.configure(&id, cluster).await;
        client.settled(&id, Configured).await;
        client.drain(&id).await;
        client.settled(&id, end).await;
    }
    // A Configure that a kill interrupts has failed before the next process answers anybody.
    client.create("slot-20").await.unwrap();
    client.settled("slot-20", Idle).await;
    client.configure("slot-20", "fault-timeout").await;
    program.kill();
    let mut program = by_name(folder.path(), "fault", &args);
    let after = Client::connect(program.ready("provider")).get("slot-20").await;
    assert_eq!(after.state, i32::from(Failed.number()));
    assert!(after.last_error.contains("restart"), "{}", after.last_error);
}

/// A metrics port that somebody else has must neither stop a provider nor keep it from ending.
#[test]
fn a_taken_metrics_port_does_not_keep_a_provider_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = format!("--metrics-addr={}", taken.local_addr().unwrap());
    let mut program = by_name(folder.path(), "fakecloud", &["--addr=127.0.0.1:0", &metrics]);
    program.ready("provider");
    let (status, took) = program.terminate();
    assert!(status.success() && took < crate::process::STOP_WITHIN, "{status} after {took:?}");
}

/// The root of the repository, where examples are run from.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Takes a machine through its whole life and back.
async fn whole_life(client: &mut Client, id: &str, cluster: &str) {
    client.create(id).await.unwrap();
    assert!(client.settled(id, Idle).await.host.is_some());
    client.configure(id, cluster).await;
    assert_eq!(client.settled(id, Configured).await.cluster, cluster);
    client.drain(id).await;
    assert_eq!(client.settled(id, Idle).await.cluster, "");
}

async fn example(script: &str, interpreter: &str) {
    let folder = tempfile::tempdir().unwrap();
    // A blank in an argument, as paths may have.
    let machines = folder.path().join("my machines");
    let script = root().join("examples/providers").join(script);
    let command =
        format!("--command=env 'MACHINES={}' {interpreter} {}", machines.display(), script.display());
    let state = format!("--state={}", folder.path().join("state").display());
    let args = [
        "--addr=127.0.0.1:0",
        "--provider=certify",
        "--use-fake-backend",
        "--seed-count=100",
        "--metrics-addr=0",
        &state,
        &command,
    ];
    let mut program = by_name(folder.path(), "exec", &args);
    let mut client = Client::connect(program.ready("provider"));
    assert_eq!(client.list().await.len(), 100);
    whole_life(&mut client, "slot-7", "cluster-a").await;
    assert!(machines.join("slot-7").is_dir() && !machines.join("slot-7/cluster").exists());
    client.delete("slot-7").await.unwrap();
    client.settled("slot-7", Speculative).await;
    assert!(!machines.join("slot-7").exists());
    // What it made is there for the next process too.
    client.create("slot-8").await.unwrap();
    client.settled("slot-8", Idle).await;
    client.configure("slot-8", "cluster-b").await;
    client.settled("slot-8", Configured).await;
    assert_eq!(std::fs::read_to_string(machines.join("slot-8/cluster")).unwrap().trim(), "cluster-b");
    program.kill();
    let mut program = by_name(folder.path(), "exec", &args);
    let mut client = Client::connect(program.ready("provider"));
    let machine = client.get("slot-8").await;
    assert_eq!((machine.state, machine.cluster.as_str()), (i32::from(Configured.number()), "cluster-b"));
    assert!(!program.logged().contains("secret blob"), "{}", program.logged());
}

#[tokio::test]
async fn the_shell_example_is_a_provider() {
    example("directory.sh", "sh").await;
}

#[tokio::test]
async fn the_python_example_is_a_provider() {
    example("directory.py", "python3").await;
}

#[tokio::test]
async fn the_rack_example_is_a_provider() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("rack.log");
    let inventory = folder.path().join("rack.yaml");
    let text = std::fs::read_to_string(root().join("examples/providers/rack.yaml")).unwrap();
    let hook = root().join("examples/providers/rack-hook.sh");
    let command = format!("[env, RACK_LOG={}, sh, {}]", log.display(), hook.display());
    std::fs::write(&inventory, text.replace("[sh, examples/providers/rack-hook.sh]", &command)).unwrap();
    let inventory = format!("--inventory={}", inventory.display());
    let mut program =
        by_name(folder.path(), "baremetal", &["--addr=127.0.0.1:0", "--metrics-addr=0", &inventory]);
    let mut client = Client::connect(program.ready("provider"));
    assert_eq!(client.get("rack-1-b").await.state, i32::from(Idle.number()), "switched on already");
    whole_life(&mut client, "rack-1-a", "cluster-a").await;
    let host = client.get("rack-1-a").await.host.unwrap();
    assert_eq!((host.provider.as_str(), host.r#ref.as_str()), ("rack-1", "10.0.1.10"));
    assert_eq!(
        std::fs::read_to_string(&log).unwrap(),
        "10.0.1.10: power_on\n10.0.1.10: join cluster-a with 23 bytes of user data\n10.0.1.10: ready\n\
         10.0.1.10: release\n"
    );
    assert_eq!(client.delete("rack-1-a").await.unwrap_err().code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn baremetal_pretends_for_those_who_certify_it() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "--addr=127.0.0.1:0",
        "--metrics-addr=0",
        "--use-fake-backend",
        "--seed-count=100",
        "--provider=certify",
    ];
    let mut program = by_name(folder.path(), "baremetal", &args);
    let mut client = Client::connect(program.ready("provider"));
    assert_eq!(client.list().await.len(), 100);
    whole_life(&mut client, "metal-3", "a").await;
    assert_eq!(client.delete("metal-3").await.unwrap_err().code(), tonic::Code::Unimplemented);
    drop(program);

    for (args, words) in [
        (&["provider", "baremetal"][..], "--inventory: is missing"),
        (&["provider", "exec"], "--command: is missing"),
        (
            &["provider", "exec", "--command=sh 'run it"],
            "--command \"sh 'run it\": the ' at character 4 has no end",
        ),
        (
            &["provider", "fakecloud", "--boot-command=sh \"x"],
            "--boot-command \"sh \\\"x\": the \" at character 4 has no end",
        ),
        (&["provider", "fakecloud", "--require-tls"], "--require-tls: there is no TLS"),
        (&["provider", "fakecloud", "--tls-crl=x"], "--tls-crl: there is no TLS"),
        (&["provider", "baremetal", "--use-fake-backend", "--inventory=x"], "exclude each other"),
        (&["provider", "baremetal", "--inventory=/nowhere.yaml"], "/nowhere.yaml: No such file"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
    }
}

#[tokio::test]
async fn only_the_owner_repairs_and_only_what_failed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let flag = format!("--state={}", state.display());
    let args = ["--addr=127.0.0.1:0", "--metrics-addr=0", &flag];
    let mut program = by_name(folder.path(), "fault", &args);
    let mut client = Client::connect(program.ready("provider"));
    client.create("faulty-0").await.unwrap();
    client.settled("faulty-0", Failed).await;
    assert_eq!(client.create("faulty-0").await.unwrap_err().code(), tonic::Code::Internal, "not by the wire");
    let repair = |ids: &[&str]| run(&[&["provider", "repair", &flag], ids].concat());
    let output = repair(&["faulty-0", "slot-0", "nobody"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), "faulty-0 Speculative\n"));
    for words in
        ["slot-0: not repaired: \"slot-0\" is Speculative", "nobody: not repaired: there is no machine"]
    {
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let repaired = client.get("faulty-0").await;
    assert_eq!((repaired.state, repaired.last_error.as_str()), (i32::from(Speculative.number()), ""));
    // A killed provider leaves its socket behind; the next one takes it over.
    program.kill();
    let unanswered = repair(&["faulty-0"]);
    assert_eq!(unanswered.status.code(), Some(1));
    assert!(stderr(&unanswered).contains("does the provider run"), "{}", stderr(&unanswered));
    let mut program = by_name(folder.path(), "fault", &args);
    program.ready("provider");
    assert!(stderr(&repair(&["faulty-0"])).contains("only Failed machines"));
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(state.join("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(program.terminate().0.success());
    assert!(!state.join("admin.sock").exists());
    // A file of somebody else is left alone.
    std::fs::write(folder.path().join("mine"), "text").unwrap();
    let socket = format!("--admin-socket={}", folder.path().join("mine").display());
    let refused = run(&["provider", "fault", "--addr=127.0.0.1:0", "--metrics-addr=0", &socket]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_eq!(std::fs::read_to_string(folder.path().join("mine")).unwrap(), "text");
}

#[test]
fn the_published_schema_is_the_one_that_is_spoken() {
    let output = run(&["provider", "exec", "--print-schema"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let path = root().join("docs/exec-provider.schema.json");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let hint = "write it anew: cargo run -- provider exec --print-schema > docs/exec-provider.schema.json";
    assert_eq!(stdout(&output), committed, "{hint}");
}

/// From an empty folder to a provider with a certificate, without editing a line.
#[tokio::test]
async fn a_new_provider_compiles_and_is_certified_unedited() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("mine");
    let (made_text, kit) = (made.display().to_string(), root().canonicalize().unwrap().display().to_string());
    let output = run(&["provider", "new", "my-cloud", &made_text, "--kit", &kit]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let again = run(&["provider", "new", "my-cloud", &made_text, "--kit", &kit]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("is not empty"), "{}", stderr(&again));
    // The versions that were tested, without asking a registry.
    std::fs::copy(root().join("Cargo.lock"), made.join("Cargo.lock")).unwrap();
    // Where the workspace is built and with its profile, so that what both need is built once.
    let target = Path::new(env!("CARGO_BIN_EXE_bigfleet")).ancestors().nth(2).unwrap();
    let built = std::process::Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet"])
        .args(["--config", "profile.dev.debug='line-tables-only'"])
        .args(["--config", "profile.dev.package.'*'.debug=false"])
        .current_dir(&made)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    assert_eq!(stderr(&built), "", "no warning either");
    let program = target.join("debug/bigfleet-provider-my-cloud");

    let log = folder.path().join("log");
    let state = format!("--state={}", folder.path().join("state").display());
    let args = [
        "--addr=127.0.0.1:0",
        "--metrics-addr=0",
        "--use-fake-backend",
        "--seed-count=64",
        "--provider=certify",
        &state,
    ];
    let mut running = Program::start_as(&program, &args, &log);
    let mut client = Client::connect(running.ready("provider"));
    assert_eq!(client.list().await.len(), 64);
    whole_life(&mut client, "slot-0", "a").await;
    // What our own programs do, this one does too: it logs, it is repaired by its owner, it leaves no core dump.
    assert!(running.logged().contains("WARN no TLS"), "{}", running.logged());
    let repair = run(&["provider", "repair", &state, "slot-0"]);
    assert!(stderr(&repair).contains("slot-0: not repaired: \"slot-0\" is Idle"), "{}", stderr(&repair));
    assert_eq!(running.core_limit(), "0");
    assert!(running.terminate().0.success());
    let exec = format!("'{}' --metrics-addr=0", program.display());
    crate::conformance::certified(&exec, "core,cloud,spot");
    let refused = std::process::Command::new(&program).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--use-fake-backend"), "{}", stderr(&refused));
}

#[test]
fn a_new_provider_asks_for_its_kit_when_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = crate::process::bigfleet(&["provider", "new", "mine", "here"]);
    command.current_dir(folder.path());
    let output = crate::process::finish(command);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--kit: no checkout of BigFleet"), "{}", stderr(&output));
    for (name, kit) in [("Mine", "."), ("9mine", "."), ("mine-", "."), ("mine", "/tmp")] {
        let output = run(&["provider", "new", name, "/tmp/never-written", "--kit", kit]);
        assert_eq!(output.status.code(), Some(2), "{name}");
    }
    assert!(!Path::new("/tmp/never-written").exists());
}
