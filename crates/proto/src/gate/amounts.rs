//! Resource maps: names to quantity strings on the wire, a vector here.

use std::collections::BTreeMap;

use bigfleet_types::{Quantity, ResourceName, Resources, Rounding};

use super::{Error, MAX_AMOUNT, MAX_TEXT_BYTES, Problem, Texts, shown};

/// Kinds of resources in one map of a roll-up.
const MAX_RESOURCES: usize = 32;

/// What a cluster asks for: bounded, and rounded up.
pub(super) fn demand(map: &BTreeMap<String, String>, texts: &mut Texts) -> Result<Resources, Error> {
    if map.len() > MAX_RESOURCES {
        return Err(Error::at("", Problem::TooMany { found: map.len(), limit: MAX_RESOURCES }));
    }
    let mut amounts = Vec::with_capacity(map.len());
    for (name, text) in map {
        let at = |problem| Error::at(format_args!("[{}]", shown(name)), problem);
        if name.is_empty() {
            return Err(at(Problem::Empty));
        }
        for bytes in [name.len(), text.len()] {
            if bytes > MAX_TEXT_BYTES {
                return Err(at(Problem::TooLong { found: bytes, limit: MAX_TEXT_BYTES }));
            }
        }
        let amount = Resources::amount(name, quantity(text).map_err(at)?, Rounding::Up);
        if amount > MAX_AMOUNT {
            return Err(at(Problem::TooLarge(shown(text))));
        }
        amounts.push((texts.resource(name), amount));
    }
    Ok(Resources::from_amounts(amounts))
}

/// What a machine has: rounded down, and saturating.
pub(super) fn supply<'a>(
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    texts: &mut Texts,
) -> Result<Resources, Error> {
    let amounts: Result<Vec<(ResourceName, i64)>, Error> = entries
        .into_iter()
        .map(|(name, text)| {
            let at = |problem| Error::at(format_args!("[{}]", shown(name)), problem);
            let amount = Resources::amount(name, quantity(text).map_err(at)?, Rounding::Down);
            Ok((texts.resource(name), amount))
        })
        .collect();
    Ok(Resources::from_amounts(amounts?))
}

fn quantity(text: &str) -> Result<Quantity, Problem> {
    let quantity = Quantity::parse(text).map_err(|error| Problem::Quantity { text: shown(text), error })?;
    if quantity.is_negative() { Err(Problem::Negative(shown(text))) } else { Ok(quantity) }
}
