//! Tests of what Kubernetes sees of us, without a Kubernetes.

mod crd_manifest;
mod crd_objects;
