//! Fuzz target: the bytes of a file. Whatever they are, reading ends with an answer or a refusal, and deciding and
//! explaining never panic.

/// Runs the target on an input.
pub(crate) fn run(bytes: &[u8]) {
    match bigfleet_decide::read(bytes) {
        Err(refused) => {
            let line = refused.to_string();
            assert!(refused.path.starts_with('$') && !line.contains('\n'), "{line}");
        }
        Ok(input) => {
            let printed = bigfleet_decide::decide(&input).to_json();
            assert_eq!(printed.ok(), bigfleet_decide::decide(&input).to_json().ok());
            for (cluster, _) in &input.demand {
                let page = bigfleet_decide::explain(&input, cluster.as_str());
                assert!(page.is_ok_and(|page| page.ends_with('\n')), "{cluster}");
            }
        }
    }
}
