//! The stamps that a bound machine carries in its `shard_metadata`: for which Need it was bound. The provider stores the
//! map for us, and after a restart it is all that we know.

use std::collections::BTreeMap;

use bigfleet_types::{Attribution, NanoDollars, StampedPenalty};

use super::Texts;

/// The Need's priority, a decimal 32-bit integer.
pub const PRIORITY: &str = "bigfleet.lucy.sh/assigned-priority";
/// The Need's interruption penalty in dollars, a decimal number or `+Inf`.
pub const INTERRUPTION: &str = "bigfleet.lucy.sh/assigned-interruption-penalty-dollars";
/// The Need's reclamation penalty in dollars, a decimal number or `+Inf`.
pub const RECLAMATION: &str = "bigfleet.lucy.sh/assigned-reclamation-penalty-dollars";
/// The fingerprint of the Need's profile.
pub const FINGERPRINT: &str = "bigfleet.lucy.sh/assigned-need-fingerprint";
/// The Need's group, empty for none.
pub const GROUP: &str = "bigfleet.lucy.sh/assigned-group";

/// The map to send with Configure. Stamps that are unknown are left out.
///
/// Dollars are the shortest decimal that reads back as the same double; a pinned workload is `+Inf`.
#[must_use]
pub fn encode(attribution: &Attribution) -> BTreeMap<String, String> {
    let dollars = |penalty: StampedPenalty| match penalty {
        StampedPenalty::Finite(dollars) => dollars.dollars().to_string(),
        StampedPenalty::Infinite => "+Inf".to_owned(),
    };
    let stamps = [
        (PRIORITY, attribution.priority.map(|priority| priority.to_string())),
        (INTERRUPTION, attribution.interruption.map(dollars)),
        (RECLAMATION, attribution.reclamation.map(dollars)),
        (FINGERPRINT, attribution.fingerprint.as_deref().map(str::to_owned)),
        (GROUP, attribution.group.as_deref().map(str::to_owned)),
    ];
    stamps.into_iter().filter_map(|(key, stamp)| Some((key.to_owned(), stamp?))).collect()
}

/// Reads a map that a provider gave back. Every key stands for itself: unknown ones mean nothing, and a malformed one is
/// skipped. The second value names the malformed keys, sorted, for the log.
#[must_use]
pub fn decode(metadata: &BTreeMap<String, String>) -> (Attribution, Vec<&'static str>) {
    let entries = metadata.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    decode_into(entries, &mut Texts::default())
}

/// The keys come sorted.
pub(super) fn decode_into<'a>(
    metadata: impl IntoIterator<Item = (&'a str, &'a str)>,
    texts: &mut Texts,
) -> (Attribution, Vec<&'static str>) {
    let mut attribution = Attribution::default();
    let mut malformed = Vec::new();
    for (key, value) in metadata {
        let known = match key {
            PRIORITY => {
                attribution.priority = value.parse().ok();
                attribution.priority.map_or(Err(PRIORITY), |_| Ok(()))
            }
            INTERRUPTION => {
                attribution.interruption = dollars(value);
                attribution.interruption.map_or(Err(INTERRUPTION), |_| Ok(()))
            }
            RECLAMATION => {
                attribution.reclamation = dollars(value);
                attribution.reclamation.map_or(Err(RECLAMATION), |_| Ok(()))
            }
            FINGERPRINT => {
                attribution.fingerprint = Some(texts.text(value));
                Ok(())
            }
            GROUP => {
                attribution.group = Some(texts.text(value));
                Ok(())
            }
            _ => Ok(()),
        };
        malformed.extend(known.err());
    }
    (attribution, malformed)
}

/// Accepts decimals with or without exponent, and the usual spellings of infinity. A pinned stamp that was skipped would
/// make its machine the best victim, so the spelling does not matter.
fn dollars(text: &str) -> Option<StampedPenalty> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word)) {
        return Some(StampedPenalty::Infinite);
    }
    // Words are no numbers, and an overflow to infinity is no pinned workload.
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
    NanoDollars::from_dollars(number).map(StampedPenalty::Finite)
}
