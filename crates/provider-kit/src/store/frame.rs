//! The file format: a header, then frames. A frame is a marker, the payload's length, a checksum over length and
//! payload, and the payload: one batch of changes, each with its length before it.
//!
//! A frame is written whole by one append, so a crash can damage only the last one. Damage with a whole frame after
//! it is something else, and is never cut away.

use bytes::Bytes;
use prost::Message as _;

use crate::table::Change;

/// What a file begins with; the last byte is the version.
pub(super) const HEADER: &[u8; 8] = b"BFSTORE\x01";
const MARKER: &[u8; 4] = b"\xB1\xF1BF";
const FRAME_HEAD: usize = 4 + 4 + 4;

/// What was read from a file's frames.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) changes: Vec<Change>,
    /// Bytes of header and whole frames.
    pub(super) good: usize,
    pub(super) end: End,
}

/// What follows the last frame that is whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Clean,
    /// A write that did not complete.
    Torn(String),
    /// Damage before other frames.
    Corrupt(String),
}

/// Appends one batch to `out`.
///
/// # Errors
/// When the batch is too long for a frame (4 GiB).
pub(super) fn write<'a>(
    out: &mut Vec<u8>,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Result<(), String> {
    let start = out.len();
    out.extend_from_slice(MARKER);
    out.extend_from_slice(&[0; 8]);
    for change in changes {
        change.encode_length_delimited(out).map_err(|e| e.to_string())?;
    }
    let payload = start + FRAME_HEAD;
    let length = u32::try_from(out.len() - payload).map_err(|e| e.to_string())?.to_le_bytes();
    let sum = checksum(&length, &out[payload..]).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&length);
    out[start + 8..start + 12].copy_from_slice(&sum);
    Ok(())
}

/// Reads the frames of a whole file, header included and already checked. What is read shares the file's bytes.
pub(super) fn read(file: &Bytes) -> Read {
    let mut changes = Vec::new();
    let mut at = HEADER.len();
    while at < file.len() {
        let decoded = frame(&file[at..]).and_then(|payload| {
            decode(file.slice_ref(payload), &mut changes)?;
            Ok(payload.len())
        });
        let problem = match decoded {
            Ok(length) => {
                at += FRAME_HEAD + length;
                continue;
            }
            Err(problem) => problem,
        };
        let end = if frame_follows(&file[at + 1..]) { End::Corrupt(problem) } else { End::Torn(problem) };
        return Read { changes, good: at, end };
    }
    Read { changes, good: at, end: End::Clean }
}

fn frame_follows(rest: &[u8]) -> bool {
    let mut starts = rest.windows(MARKER.len()).enumerate().filter(|(_, bytes)| bytes == MARKER);
    starts.any(|(at, _)| frame(&rest[at..]).is_ok())
}

/// The payload of the frame that `bytes` begins with.
fn frame(bytes: &[u8]) -> Result<&[u8], String> {
    let (head, rest) = bytes.split_at_checked(FRAME_HEAD).ok_or("the file ends within a frame's head")?;
    if &head[..4] != MARKER {
        return Err("no frame begins here".into());
    }
    let length = [head[4], head[5], head[6], head[7]];
    let sum = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    let len = usize::try_from(u32::from_le_bytes(length)).map_err(|e| e.to_string())?;
    let payload = rest.get(..len).ok_or("the file ends within a frame")?;
    if checksum(&length, payload) == sum { Ok(payload) } else { Err("the checksum does not match".into()) }
}

/// Takes all changes of a batch, or none.
fn decode(mut payload: Bytes, changes: &mut Vec<Change>) -> Result<(), String> {
    let before = changes.len();
    while !payload.is_empty() {
        match Change::decode_length_delimited(&mut payload) {
            Ok(change) => changes.push(change),
            Err(error) => {
                changes.truncate(before);
                return Err(format!("a record is unreadable: {error}"));
            }
        }
    }
    Ok(())
}

fn checksum(length: &[u8; 4], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(length);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(frames: u64) -> (Vec<u8>, Vec<usize>) {
        let mut out = HEADER.to_vec();
        let mut ends = vec![out.len()];
        for revision in 1..=frames {
            let removed = format!("machine-{revision}");
            write(&mut out, [&Change { removed, revision, ..Change::default() }]).unwrap();
            ends.push(out.len());
        }
        (out, ends)
    }

    #[test]
    fn every_cut_gives_the_whole_frames_before_it() {
        let (bytes, ends) = file(3);
        for cut in HEADER.len()..=bytes.len() {
            let read = read(&Bytes::copy_from_slice(&bytes[..cut]));
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!((read.changes.len(), read.good), (whole, ends[whole]), "cut at {cut}");
            assert_eq!(read.end == End::Clean, ends.contains(&cut));
            assert!(!matches!(read.end, End::Corrupt(_)));
        }
    }

    #[test]
    fn every_flipped_bit_is_found_and_only_the_last_frame_counts_as_torn() {
        let (bytes, ends) = file(3);
        for at in HEADER.len()..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let read = read(&damaged.into());
            let hit = ends.iter().filter(|end| **end <= at).count() - 1;
            assert_eq!(read.changes.len(), hit, "byte {at}");
            assert_eq!(matches!(read.end, End::Torn(_)), hit == 2, "byte {at}: {:?}", read.end);
        }
    }
}
