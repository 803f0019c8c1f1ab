//! No core dumps. The memory of a process of ours holds the private key of its certificate and, for a moment, bootstrap
//! blobs, which let whoever has them join a cluster.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Makes the kernel write no dump of this process when it dies, neither to a file nor to a collecting program. Programs
/// that it starts write no file either, unless they raise their limit themselves. Debuggers of other users than root
/// cannot attach from here on.
///
/// # Errors
/// The kernel refuses; dumps may be written then.
pub fn disable() -> io::Result<()> {
    // A collecting program gets a dump whatever this limit is; only the process's own mark keeps it from one.
    let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
    setrlimit(Resource::Core, limit)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_its_children_leave_no_dump() {
        disable().unwrap();
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        let child = std::process::Command::new("cat").arg("/proc/self/limits").output().unwrap();
        let limits = String::from_utf8(child.stdout).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(line.split_whitespace().nth(4), Some("0"), "{line}");
    }
}
