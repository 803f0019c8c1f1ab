//! The fuzz targets over their corpus and over random bytes. `fuzz/` drives the same functions with libFuzzer.

use std::path::Path;

use proptest::prelude::*;

#[path = "../fuzz/bytes.rs"]
pub(crate) mod bytes;
#[path = "../fuzz/decide_file.rs"]
mod decide_file;
#[path = "../fuzz/sequence.rs"]
mod sequence;
#[path = "../fuzz/world.rs"]
mod world;

/// Every file of a folder of the corpus, in the order of names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn the_corpus() {
    let (files, worlds) = (corpus("decide_file"), corpus("world"));
    let sequences = corpus("sequence");
    assert!(sequences.len() >= 3, "{} sequences", sequences.len());
    sequences.iter().chain(&worlds).for_each(|bytes| sequence::run(bytes));
    assert!(files.len() >= 3 && worlds.len() >= 3, "{} and {} inputs", files.len(), worlds.len());
    files.iter().for_each(|bytes| decide_file::run(bytes));
    worlds.iter().for_each(|bytes| world::run(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A file of the corpus with some bytes overwritten, removed or repeated.
    #[test]
    fn mutated_files(
        file in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
    ) {
        let files = corpus("decide_file");
        let mut bytes = file.get(&files).clone();
        for (at, byte, edit) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => {
                    let piece = bytes[at..bytes.len().min(at + usize::from(byte))].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        decide_file::run(&bytes);
    }

    #[test]
    fn random_worlds(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        world::run(&bytes);
    }
}
