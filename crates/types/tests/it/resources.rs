//! Vectors: worked example 2, printing, and the arithmetic that every phase relies on.

use bigfleet_types::{ResourceName, Resources, Rounding, is_extended};
use proptest::prelude::*;

fn vector(pairs: &[(&str, &str)]) -> Resources {
    Resources::parse(pairs.iter().copied(), Rounding::Up).unwrap()
}

#[test]
fn ex02_covers_sub_and_sum() {
    assert!(vector(&[("cpu", "4"), ("memory", "16Gi")]).covers(&vector(&[("memory", "17179869184")])));
    assert!(!vector(&[("cpu", "4")]).covers(&vector(&[("gpu", "1")])));
    assert_eq!(vector(&[("cpu", "4")]).saturating_sub(&vector(&[("cpu", "16")])), Resources::EMPTY);
    let sum = vector(&[("cpu", "2")]).add(&vector(&[("cpu", "500m")]));
    assert_eq!(sum.to_strings()["cpu"], "2500m");
}

#[test]
fn vectors_print_in_the_family_of_the_resource_name() {
    for (name, text, printed) in [
        ("cpu", "0.5", "500m"),
        ("cpu", "1000m", "1"),
        ("cpu", "32", "32"),
        ("memory", "1024Mi", "1Gi"),
        ("memory", "1.5Gi", "1536Mi"),
        ("memory", "3072Gi", "3Ti"),
        ("memory", "2304Mi", "2304Mi"),
        // 10^9 is 2^9 x 5^9: no binary suffix leaves an integer.
        ("memory", "1G", "1000000000"),
        ("hugepages-2Mi", "4Mi", "4Mi"),
        // Below 1024 a binary amount prints decimal, as in Kubernetes.
        ("ephemeral-storage", "1000", "1k"),
        ("nvidia.com/gpu", "8000", "8k"),
        ("nvidia.com/gpu", "8192", "8192"),
    ] {
        assert_eq!(vector(&[(name, text)]).to_strings()[name], printed, "{name} {text}");
    }
    assert_eq!(vector(&[("memory", "64Gi")]).scale(3).to_strings()["memory"], "192Gi");
    assert_eq!(vector(&[("gpu", "8")]).scale(32).to_strings()["gpu"], "256");
    assert!(vector(&[("cpu", "0")]).to_strings().is_empty());
}

#[test]
fn demand_rounds_up_and_capacity_down() {
    for (rounding, milli, bytes) in [(Rounding::Up, 2, 2), (Rounding::Down, 1, 1)] {
        let v = Resources::parse([("cpu", "1.5m"), ("memory", "1500m")], rounding).unwrap();
        assert_eq!((v.get("cpu"), v.get("memory")), (milli, bytes), "{rounding:?}");
    }
}

#[test]
fn arithmetic_saturates() {
    let most = Resources::from_amounts([(ResourceName::new("memory"), i64::MAX)]);
    assert_eq!(most.add(&most), most);
    assert_eq!(most.scale(7), most);
    assert_eq!(most.scale(0), Resources::EMPTY);
    assert_eq!(most.scale(-1), Resources::EMPTY);
    assert_eq!(Resources::parse([("cpu", "9Ei")], Rounding::Up).unwrap().get("cpu"), i64::MAX);
}

#[test]
fn bad_quantities_name_the_resource() {
    let (name, error) = Resources::parse([("cpu", "1"), ("memory", "lots")], Rounding::Up).unwrap_err();
    assert_eq!(name, "memory");
    assert!(error.to_string().contains("number"), "{error}");
}

#[test]
fn extended_resources_are_all_but_the_native_ones() {
    for (name, extended) in [
        ("cpu", false),
        ("memory", false),
        ("pods", false),
        ("storage", false),
        ("hugepages-1Gi", false),
        ("attachable-volumes-aws-ebs", false),
        ("nvidia.com/gpu", true),
        ("example.com/foo", true),
    ] {
        assert_eq!(is_extended(name), extended, "{name}");
    }
}

fn any_vector() -> impl Strategy<Value = Resources> {
    proptest::collection::vec(("[abc]", 0i64..1000), 0..4)
        .prop_map(|pairs| Resources::from_amounts(pairs.into_iter().map(|(n, a)| (ResourceName::new(&n), a))))
}

proptest! {
    #[test]
    fn vectors_form_what_the_phases_assume(a in any_vector(), b in any_vector()) {
        prop_assert_eq!(a.add(&b), b.add(&a));
        prop_assert_eq!(a.max(&b), b.max(&a));
        prop_assert!(a.max(&b).covers(&a) && a.max(&b).covers(&b));
        prop_assert!(a.add(&b).covers(&a));
        prop_assert_eq!(a.add(&b).saturating_sub(&b), a.clone());
        prop_assert_eq!(a.covers(&b), b.saturating_sub(&a).is_empty());
        prop_assert!(a.iter().all(|(_, amount)| amount > 0));
        prop_assert!(a.iter().zip(a.iter().skip(1)).all(|(x, y)| x.0 < y.0));
    }
}
