//! The program as a test would use it: started, spoken to, and read.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bigfleet_net::channel;
use bigfleet_proto::v1alpha1::operator_message::Payload as Said;
use bigfleet_proto::v1alpha1::shard_client::ShardClient;
use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_proto::v1alpha1::{Hello, MachineState, OperatorMessage, ReclaimAck};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Only a program that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends with the test, however that ends.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A new and empty script.
fn script(name: &str) -> std::io::Result<(File, PathBuf)> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.jsonl", std::process::id()));
    Ok((File::create(&path)?, path))
}

// Reading what it prints blocks a thread, on which the connection must not depend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_replays_machines_says_the_script_and_prints_what_it_hears() {
    let (mut script, path) = script("speaks").unwrap();
    writeln!(script, r#"{{"machine": {{"id": "m-1", "state": "CONFIGURED", "cluster": "c"}}}}"#).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_scripted-shard"));
    program.arg("127.0.0.1:0").arg(&path).stdout(Stdio::piped());
    let mut program = Ends(program.spawn().unwrap());
    let mut printed = BufReader::new(program.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ready = printed.next().unwrap();
    let address = ready.strip_prefix("ready shard ").unwrap();
    // Nobody was there to hear it; it comes in the replay.
    assert_eq!(printed.next().unwrap(), r#"{"unheard":true}"#);

    let channel = channel::connect_lazy(address, &channel::Options::default()).unwrap();
    let (frames, outgoing) = mpsc::channel(8);
    let say = async |said: Said| frames.send(OperatorMessage { payload: Some(said) }).await.unwrap();
    say(Said::Hello(Hello { cluster_id: "c".to_owned(), ..Hello::default() })).await;
    let mut client = ShardClient::new(channel);
    let mut answers = client.session(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
    let mut hear = async || {
        let frame = tokio::time::timeout(PATIENCE, answers.message()).await.unwrap().unwrap();
        frame.unwrap().payload.unwrap()
    };
    assert!(matches!(hear().await, Payload::Ack(ack) if ack.echo == "hello"));
    match hear().await {
        Payload::NodeStateUpdate(update) => {
            assert_eq!((update.machine_id.as_str(), update.state()), ("m-1", MachineState::Configured));
        }
        other => panic!("expected the machine, not {other:?}"),
    }
    assert!(matches!(hear().await, Payload::Ack(ack) if ack.echo == "resync"));
    assert_eq!(printed.next().unwrap(), r#"{"hello":"c"}"#);

    writeln!(script, r#"{{"reclaim": {{"id": "i-1", "machines": ["m-1"], "grace_seconds": 45}}}}"#).unwrap();
    match hear().await {
        Payload::ReclaimInstruction(told) => {
            assert_eq!((told.instruction_id.as_str(), told.grace_period_seconds), ("i-1", 45));
            assert_eq!(told.machine_ids, ["m-1"]);
        }
        other => panic!("expected the instruction, not {other:?}"),
    }
    let ack = ReclaimAck { instruction_id: "i-1".to_owned(), nodes_started: 1 };
    say(Said::ReclaimAck(ack)).await;
    assert_eq!(printed.next().unwrap(), r#"{"ack":{"id":"i-1","nodes":1}}"#);
}

#[test]
fn a_line_that_it_does_not_understand_ends_it() {
    let (mut script, path) = script("broken").unwrap();
    writeln!(script, r#"{{"machine": {{"id": "m-1", "state": "BROKEN", "cluster": "c"}}}}"#).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_scripted-shard"));
    let output = program.arg("127.0.0.1:0").arg(&path).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("BROKEN"), "{output:?}");
}
