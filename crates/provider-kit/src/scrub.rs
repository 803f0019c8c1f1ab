//! Error texts from hosts and programs, made fit for `last_error`: short, and without secrets.

use crate::blob::Blob;

/// Longest `last_error`, in bytes.
pub const MAX_ERROR_BYTES: usize = 4096;
/// Shortest piece of a blob that counts as one: shorter lines are words like `EOF`.
const PIECE: usize = 8;
const HIDDEN: &str = "[hidden]";
const CUT: &str = " [cut]";

/// `text` without join tokens (`abcdef.0123456789abcdef`), PEM blocks and lines of `blob`, at most 4 KiB long.
#[must_use]
pub fn scrub(text: &str, blob: Option<&Blob>) -> String {
    let mut out = hide_pem(text);
    if let Some(blob) = blob {
        out = hide_pieces(out, blob.expose());
    }
    out = hide_tokens(&out);
    if out.len() > MAX_ERROR_BYTES {
        let mut end = MAX_ERROR_BYTES - CUT.len();
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push_str(CUT);
    }
    out
}

/// Hides every line of the blob, as it stands and without the blanks around it.
fn hide_pieces(mut text: String, blob: &[u8]) -> String {
    for line in blob.split(|b| *b == b'\n') {
        if let Ok(line) = std::str::from_utf8(line)
            && line.trim().len() >= PIECE
        {
            text = text.replace(line.trim(), HIDDEN);
        }
    }
    // A line of the text may also be part of a longer line of the blob.
    let hidden = |line: &str| line.len() >= PIECE && blob.windows(line.len()).any(|w| w == line.as_bytes());
    let lines: Vec<&str> = text.lines().map(|line| if hidden(line.trim()) { HIDDEN } else { line }).collect();
    lines.join("\n")
}

fn hide_pem(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("-----BEGIN ") {
        out.push_str(&rest[..start]);
        out.push_str(HIDDEN);
        // Without an end the rest of the text is the block.
        let Some(end) = rest[start..].find("-----END ").map(|at| start + at + "-----END ".len()) else {
            return out;
        };
        rest = rest[end..].split_once("-----").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

/// Hides what has the shape of a cluster join token: six, a dot, sixteen, of lower-case letters and digits.
fn hide_tokens(text: &str) -> String {
    const LONG: usize = 6 + 1 + 16;
    let bytes = text.as_bytes();
    let token = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut out = String::with_capacity(text.len());
    let mut kept = 0;
    let mut at = 0;
    while at + LONG <= bytes.len() {
        let piece = &bytes[at..at + LONG];
        if piece[6] == b'.' && piece[..6].iter().all(token) && piece[7..].iter().all(token) {
            out.push_str(&text[kept..at]);
            out.push_str(HIDDEN);
            at += LONG;
            kept = at;
        } else {
            at += 1;
        }
    }
    out.push_str(&text[kept..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden() {
        for (text, clean) in [
            ("join failed: abcdef.0123456789abcdef refused", "join failed: [hidden] refused"),
            ("xxabcdef.0123456789abcdefyy", "xx[hidden]yy"),
            ("a -----BEGIN RSA PRIVATE KEY-----\nxyz\n-----END RSA PRIVATE KEY----- b", "a [hidden] b"),
            ("a -----BEGIN KEY-----\nxyz", "a [hidden]"),
            ("\u{e4}\u{e4}\u{e4}.too short", "\u{e4}\u{e4}\u{e4}.too short"),
        ] {
            assert_eq!(scrub(text, None), clean);
        }
    }

    #[test]
    fn lines_of_the_blob_are_hidden_both_ways() {
        let blob = Blob::new(&b"#!/bin/sh\n  kubeadm join --token very-secret\nEOF\n"[..]);
        assert_eq!(
            scrub("sh: kubeadm join --token very-secret: not found", Some(&blob)),
            "sh: [hidden]: not found"
        );
        assert_eq!(scrub("--token very-secret", Some(&blob)), "[hidden]");
        assert_eq!(scrub("unexpected EOF", Some(&blob)), "unexpected EOF");
    }

    #[test]
    fn long_texts_are_cut_with_a_mark() {
        let out = scrub(&"\u{e4}".repeat(5000), None);
        assert!(out.len() <= MAX_ERROR_BYTES && out.ends_with("[cut]"));
    }
}
