//! The pages of `--explain`, byte for byte, and questions about what is not there.

use bigfleet_decide::explain;

use crate::examples::{FOLD, PREEMPTION};
use crate::read;

const SHORT: &str = include_str!("../../../../examples/decide/short-of-machines.json");

/// Compares with a file; with `BIGFLEET_BLESS` in the environment the file is written anew instead.
fn is_golden(file: &str, about: &str, golden: &str) {
    let (name, text) = match file {
        "preemption" => ("preemption", PREEMPTION),
        "fold" => ("fold", FOLD),
        _ => ("short", SHORT),
    };
    let page = explain(&read(text), about).unwrap();
    if std::env::var_os("BIGFLEET_BLESS").is_some() {
        let cluster = about.split('/').next().unwrap();
        let path = format!("{}/tests/fixtures/{name}.{cluster}.txt", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, &page).unwrap();
        return;
    }
    assert_eq!(page, golden, "--explain {about} on {name}.json");
    assert_eq!(explain(&read(text), about).unwrap(), page);
}

#[test]
fn pages_are_golden() {
    is_golden("preemption", "train", include_str!("../fixtures/preemption.train.txt"));
    is_golden("preemption", "batch", include_str!("../fixtures/preemption.batch.txt"));
    is_golden("fold", "web", include_str!("../fixtures/fold.web.txt"));
    is_golden("fold", "db", include_str!("../fixtures/fold.db.txt"));
    is_golden("short", "web", include_str!("../fixtures/short.web.txt"));
    is_golden("short", "ml", include_str!("../fixtures/short.ml.txt"));
}

#[test]
fn a_fingerprint_picks_needs_by_its_first_digits() {
    let input = read(FOLD);
    let whole = explain(&input, "web").unwrap();
    // The folded Need under its own fingerprint, and under that of its gangs, without the machines of the cluster.
    for digits in ["86bb71f05656d88ad5980b94d3f28156", "86BB", "cdbbc73f"] {
        let page = explain(&input, &format!("web/{digits}")).unwrap();
        assert!(whole.starts_with(&page) && page.len() < whole.len(), "{page}");
    }
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let input = read(FOLD);
    let refused = |about: &str| explain(&input, about).unwrap_err().to_string();
    assert_eq!(refused("nobody"), "no cluster \"nobody\" in the file; there are db, web");
    assert_eq!(refused("nobody/86bb"), "no cluster \"nobody\" in the file; there are db, web");
    assert_eq!(
        refused("db/86bb"),
        "no Need of cluster \"db\" has a fingerprint that begins with \"86bb\"; there are 318200306c086f2775f596f7f0da8527"
    );
    let empty = read(r#"{"format": "bigfleet.decide/v1"}"#);
    assert_eq!(
        explain(&empty, "").unwrap_err().to_string(),
        "no cluster \"\" in the file; it has no cluster at all"
    );
}

#[test]
fn a_cluster_may_have_a_slash_in_its_name() {
    let input =
        read(&crate::file("[]", r#"[{"rollup": {"clusterId": "a/b"}}, {"rollup": {"clusterId": "a"}}]"#));
    let page = |about: &str| explain(&input, about).unwrap();
    assert!(page("a/b").starts_with("a/b wants nothing\n"));
    assert!(page("a").starts_with("a wants nothing\n"));
    let refused = explain(&input, "a/bb").unwrap_err().to_string();
    assert_eq!(
        refused,
        "no Need of cluster \"a\" has a fingerprint that begins with \"bb\"; it wants nothing"
    );
}

/// Every machine is accounted for in every Need's part of the page.
#[test]
fn the_counts_of_a_page_add_up_to_the_fleet() {
    for about in ["web", "ml", "batch"] {
        let input = read(SHORT);
        let page = explain(&input, about).unwrap();
        for need in page.split("the fleet as it sees it").skip(1) {
            let fates = need.lines().take_while(|line| !line.contains("what is")).filter(|line| {
                line.starts_with("      ") && line.trim_start().starts_with(|c: char| c.is_ascii_digit())
            });
            let counts =
                fates.map(|line| line.trim_start().split(' ').next().unwrap().parse::<usize>().unwrap());
            assert_eq!(counts.sum::<usize>(), input.fleet.len(), "{need}");
        }
    }
}
