//! The bootstrap blob of simulated machines: one `name: value` a line, made by [`TEMPLATE`].

use std::collections::BTreeMap;

use bigfleet_types::{ClusterId, IdError, MachineId};

/// The bootstrap template whose blobs [`Blob::parse`] reads.
pub const TEMPLATE: &str = "\
# how a simulated machine joins a simulated cluster
cluster-id: {{ .ClusterID }}
machine-id: {{ .MachineID }}
{{- range $key, $value := .NodeLabels }}
label: {{ $key }}={{ $value }}
{{- end }}
";

/// A blob that tells no machine how to join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// Not text.
    #[error("the bootstrap blob is not UTF-8")]
    NotText,
    /// A line of another form.
    #[error("line {line} of the bootstrap blob is wrong: {problem}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A line that has to be there.
    #[error("the bootstrap blob has no {0} line")]
    Missing(&'static str),
}

/// Which machine joins which cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The cluster to join.
    pub cluster: ClusterId,
    /// The machine that joins.
    pub machine: MachineId,
    /// Labels for its node.
    pub labels: BTreeMap<String, String>,
}

impl Blob {
    /// Reads a blob. Empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// The first line that cannot be read, or what is missing. Contents are not repeated: a blob is a secret.
    pub fn parse(bytes: &[u8]) -> Result<Self, BlobError> {
        let text = std::str::from_utf8(bytes).map_err(|_| BlobError::NotText)?;
        let (mut cluster, mut machine, mut labels) = (None, None, BTreeMap::new());
        for (i, line) in text.lines().enumerate() {
            let fail = |problem: String| BlobError::Line { line: i + 1, problem };
            let id = |error: IdError| fail(format!("the id {error}"));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| fail("it is no name: value".to_owned()))?;
            let value = value.trim();
            match name {
                "cluster-id" => cluster = Some(ClusterId::parse(value).map_err(id)?),
                "machine-id" => machine = Some(MachineId::parse(value).map_err(id)?),
                "label" => {
                    let (key, value) =
                        value.split_once('=').ok_or_else(|| fail("the label is no key=value".to_owned()))?;
                    labels.insert(key.to_owned(), value.to_owned());
                }
                _ => return Err(fail("its name is none of cluster-id, machine-id, label".to_owned())),
            }
        }
        Ok(Self {
            cluster: cluster.ok_or(BlobError::Missing("cluster-id"))?,
            machine: machine.ok_or(BlobError::Missing("machine-id"))?,
            labels,
        })
    }
}
