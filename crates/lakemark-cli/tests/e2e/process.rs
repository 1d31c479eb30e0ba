//! The `lakemark` process: started, followed step by step, signalled.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;

/// A process that says nothing for so long hangs.
const HANGS: Duration = Duration::from_secs(120);

/// The program under test, kept open: a build that replaces the file meanwhile does not change what is tested.
static PROGRAM: LazyLock<File> = LazyLock::new(|| File::open(env!("CARGO_BIN_EXE_lakemark")).unwrap());

/// `lakemark`, with the trace of its steps.
pub(crate) fn command() -> Command {
    let mut command = Command::new(format!("/proc/{}/fd/{}", std::process::id(), PROGRAM.as_raw_fd()));
    command.arg0("lakemark").env("LAKEMARK_LOG", "warn,lakemark::step=debug").stdin(Stdio::null());
    for fault in ["LAKEMARK_KILL_AT", "LAKEMARK_STOP_AT", "NO_COLOR"] {
        command.env_remove(fault);
    }
    command
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    /// Without the trace of steps.
    pub(crate) stderr: String,
    pub(crate) steps: Vec<String>,
}

impl Ended {
    /// The exit code; -1 when a signal ended it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    pub(crate) fn was_killed(&self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        self.status.signal() == Some(Signal::KILL.as_raw())
    }

    /// The one JSON document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("stdout is not one JSON document: {error}\n{}\n{}", self.stdout, self.stderr)
        })
    }

    /// The phase of the last step it reached.
    pub(crate) fn phase(&self) -> Option<&str> {
        self.steps.last().map(|step| phase(step))
    }
}

/// The part of a step's name before the dot.
pub(crate) fn phase(step: &str) -> &str {
    step.split('.').next().unwrap_or(step)
}

/// A process that was started. Dropped, it is killed.
pub(crate) struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    lines: Receiver<String>,
    stderr: String,
    steps: Vec<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, stdout: Some(stdout), lines, stderr: String::new(), steps: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// The next line of stderr; the step, if it says one. `None` at the end.
    fn next(&mut self) -> Option<Option<String>> {
        let line = match self.lines.recv_timeout(HANGS) {
            Ok(line) => line,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                panic!("the process hangs after {:?}\n{}", self.steps.last(), self.stderr)
            }
        };
        let step = line.split_once(" step=\"").and_then(|(_, rest)| rest.strip_suffix('"'));
        if let Some(step) = step {
            self.steps.push(step.to_owned());
            return Some(Some(step.to_owned()));
        }
        self.stderr.push_str(&line);
        self.stderr.push('\n');
        Some(None)
    }

    /// Follows the steps until one fulfils `wanted`; false if the process ended before.
    pub(crate) fn until(&mut self, mut wanted: impl FnMut(&str) -> bool) -> bool {
        while let Some(step) = self.next() {
            if step.is_some_and(|step| wanted(&step)) {
                return true;
            }
        }
        false
    }

    /// Waits until the process is stopped; false if it ended instead.
    pub(crate) fn until_stopped(&mut self) -> bool {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(pid), options).unwrap();
        status.is_some_and(|status| status.stopped())
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ended {
        while self.next().is_some() {}
        let status = self.child.wait().unwrap();
        let stdout = self.stdout.take().unwrap().join().unwrap();
        let (stderr, steps) = (std::mem::take(&mut self.stderr), std::mem::take(&mut self.steps));
        Ended { status, stdout, stderr, steps }
    }

    pub(crate) fn kill(self) -> Ended {
        // It may have ended by itself; then it waits to be reaped and the signal changes nothing.
        self.signal(Signal::KILL);
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end.
pub(crate) fn run(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
    Running::start(command().args(args)).wait()
}
