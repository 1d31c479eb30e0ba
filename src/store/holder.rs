//! Who holds an epoch, and whether it lives: courtesy, never safety.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A process that opened an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Host name.
    pub host: String,
    /// The kernel's boot id, when readable.
    pub boot_id: Option<String>,
    /// The pid namespace, when readable.
    pub pid_namespace: Option<String>,
    /// Process id in that namespace.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot, when readable: pids are used again.
    pub started_ticks: Option<u64>,
    /// When the epoch was opened, milliseconds since 1970.
    pub since: i64,
}

impl Holder {
    /// This process, at `now` milliseconds since 1970.
    pub fn current(now: i64) -> Self {
        // The pid of the machine would make two runs of one seed differ.
        #[cfg(feature = "testing")]
        if crate::injected::is_here() {
            let host = "simulation".to_owned();
            return Self { host, boot_id: None, pid_namespace: None, pid: 0, started_ticks: None, since: now };
        }
        let pid = std::process::id();
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot_id: boot_id(),
            pid_namespace: pid_namespace(),
            pid,
            started_ticks: started_ticks(pid).at(),
            since: now,
        }
    }

    /// Whether the process is certainly gone: same boot and pid namespace, and no process of that pid and start.
    pub fn is_provably_dead(&self) -> bool {
        let same_place = self.boot_id.is_some()
            && self.boot_id == boot_id()
            && self.pid_namespace.is_some()
            && self.pid_namespace == pid_namespace();
        let Some(started) = self.started_ticks.filter(|_| same_place) else { return false };
        match started_ticks(self.pid) {
            Started::At(now) => now != started,
            Started::Never => true,
            // Hidden processes, too many open files: nothing is proven.
            Started::Unknown => false,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} on {} since {}", self.pid, self.host, crate::time::text(self.since))
    }
}

fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

fn pid_namespace() -> Option<String> {
    std::fs::read_link("/proc/self/ns/pid").ok().map(|link| link.to_string_lossy().into_owned())
}

/// When a process began, in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Started {
    At(u64),
    /// No process of that pid runs; a zombie runs no more.
    Never,
    /// It could not be read.
    Unknown,
}

impl Started {
    fn at(self) -> Option<u64> {
        match self {
            Self::At(ticks) => Some(ticks),
            _ => None,
        }
    }
}

/// Field 22 of `/proc/<pid>/stat`.
fn started_ticks(pid: u32) -> Started {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(_) if is_no_process(pid) => return Started::Never,
        Err(_) => return Started::Unknown,
    };
    // The command name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    match fields.next() {
        Some("Z" | "X") => Started::Never,
        _ => fields.nth(18).and_then(|ticks| ticks.parse().ok()).map_or(Started::Unknown, Started::At),
    }
}

/// Whether the kernel says that there is no such process; a hidden one is there, and not ours to signal.
fn is_no_process(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Beat and lease.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// A holder writes a beat this often.
    pub beat: Duration,
    /// An observer that saw no new beat for this long takes over.
    pub lease: Duration,
}

impl Default for Lease {
    fn default() -> Self {
        Self { beat: Duration::from_secs(10), lease: Duration::from_secs(60) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_a_reaped_child_is_dead() {
        assert!(!Holder::current(0).is_provably_dead());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ticks = started_ticks(child.id()).at();
        child.wait().unwrap();
        let dead = Holder { pid: child.id(), started_ticks: ticks.or(Some(1)), ..Holder::current(0) };
        assert!(dead.is_provably_dead());
        let elsewhere = Holder { boot_id: Some("other".into()), ..dead };
        assert!(!elsewhere.is_provably_dead(), "another boot proves nothing");
        assert_eq!(started_ticks(u32::MAX), Started::Unknown, "what cannot be read proves nothing");
    }
}
