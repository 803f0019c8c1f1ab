//! What the command line means before it is parsed: program names by which `bigfleet` also answers, and flags with a
//! single dash, which the public programs accept.

use std::ffi::OsString;
use std::path::Path;

/// Other names of the executable and the subcommands that they stand for.
const ALIASES: [(&str, &[&str]); 4] = [
    ("bigfleetctl", &["ctl"]),
    ("bigfleet-operator", &["operator"]),
    ("bigfleet-unschedulable-pod-controller", &["pod-controller"]),
    ("bigfleet-pod-controller", &["pod-controller"]),
];
const PROVIDER_PREFIX: &str = "bigfleet-provider-";

/// Gives the arguments as if `bigfleet SUBCOMMAND` had been typed, with two dashes before every long flag.
pub(crate) fn normalise(arguments: impl Iterator<Item = OsString>) -> Result<Vec<String>, String> {
    let mut texts = arguments.map(|argument| {
        argument.into_string().map_err(|bytes| format!("argument {} is not UTF-8", bytes.to_string_lossy()))
    });
    let program = texts.next().transpose()?.unwrap_or_default();
    let name =
        Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut out = vec!["bigfleet".to_owned()];
    if let Some((_, words)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        out.extend(words.iter().map(|word| (*word).to_owned()));
    } else if let Some(provider) = name.strip_prefix(PROVIDER_PREFIX) {
        out.extend(["provider".to_owned(), provider.to_owned()]);
    }
    for text in texts {
        let text = text?;
        let single = text.len() > 2 && text.starts_with('-') && text.as_bytes()[1].is_ascii_alphabetic();
        out.push(if single { format!("-{text}") } else { text });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(words: &[&str]) -> Vec<String> {
        normalise(words.iter().map(OsString::from)).unwrap()
    }

    #[test]
    fn other_names_stand_for_subcommands() {
        assert_eq!(normal(&["/usr/bin/bigfleetctl", "needs"]), ["bigfleet", "ctl", "needs"]);
        assert_eq!(normal(&["bigfleet-provider-fakecloud"]), ["bigfleet", "provider", "fakecloud"]);
        assert_eq!(normal(&["./bigfleet", "shard"]), ["bigfleet", "shard"]);
    }

    #[test]
    fn a_single_dash_is_enough() {
        assert_eq!(
            normal(&["bigfleet", "shard", "-listen=:0", "-h", "--id", "-1"]),
            ["bigfleet", "shard", "--listen=:0", "-h", "--id", "-1"]
        );
    }
}
