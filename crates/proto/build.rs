//! Compiles `proto/` with a compiler written in Rust (no `protoc` needed) and keeps the descriptor set.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;
use tonic_prost_build::manual::{Builder, Method, Service};

/// Order does not matter; a file that is not listed here is not part of the protocol.
const FILES: [&str; 5] = ["capacity", "provider", "shard", "shardread", "coordinator"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let files: Vec<PathBuf> =
        FILES.iter().map(|name| root.join(format!("bigfleet/v1alpha1/{name}.proto"))).collect();
    let set = protox::compile(&files, [root])?;

    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptor.binpb"), set.encode_to_vec())?;

    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // Ordered maps: the same message always has the same bytes.
        .btree_map(".")
        // A blob or a revision is shared, not copied, on its way through.
        .bytes(".")
        .compile_fds(set)?;

    // The same service once more, with frames whose roll-ups stay bytes; only a server of ours is interested.
    let session = Method::builder()
        .name("session")
        .route_name("Session")
        .input_type("crate::frames::OperatorFrame")
        .output_type("crate::v1alpha1::ShardMessage")
        .codec_path("tonic_prost::ProstCodec")
        .client_streaming()
        .server_streaming()
        .build();
    let shard = Service::builder().name("Shard").package("bigfleet.v1alpha1").method(session).build();
    Builder::new().build_client(false).compile(&[shard]);
    Ok(())
}
