//! How the system's `ssh` is called.
//!
//! Keys, agents, jump hosts and known hosts are what the user's configuration says. Nothing here weakens the check of host
//! keys: an unknown one is refused, since nobody is asked.
//! Invariant: what runs on the host comes by standard input; the words on the command line are the same for all.

use crate::Host;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Connections at the same time by default: each is a process of some MB here, and 32 start within a second.
pub const AT_ONCE: usize = 32;

/// And at most: `MaxStartups` of one jump host is 100 by default.
pub const AT_ONCE_MAX: usize = 256;

/// Until a connection stands. A machine that answers at all does within a round trip and a key exchange.
const CONNECT_S: u32 = 15;

/// A host that says nothing three times in a row is dead: 45 s.
const ALIVE_EVERY_S: u32 = 15;
const ALIVE_TIMES: u32 = 3;

/// What the login shell of the host is given, whatever shell that is: neither a quote nor a backslash stands inside. `sh`
/// reads how long the script is, then the script, byte by byte so that what follows it is left to it.
const BOOTSTRAP: &str = "exec sh -c 'read -r n; eval \"$(dd bs=1 count=$n 2>/dev/null)\"'";

/// What is said where there is none.
pub(crate) const NO_SUDO: &str = "there is no sudo there";

/// How hosts are reached.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// Another configuration than the user's: `ssh -F`.
    pub config: Option<PathBuf>,
    /// Connections at the same time.
    pub at_once: usize,
    /// How long one host may take for all of it.
    pub timeout: Option<Duration>,
    /// Scripts run as root there, by a `sudo` that asks nothing.
    pub as_root: bool,
}

impl Default for Ssh {
    fn default() -> Ssh {
        Ssh { config: None, at_once: AT_ONCE, timeout: None, as_root: false }
    }
}

impl Ssh {
    /// A connection to a host, not begun yet. It is in a process group of its own: an interrupt that is typed here reaches
    /// it by way of us alone.
    pub(crate) fn command(&self, host: &Host) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("ssh");
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        command.args(["-T", "-a", "-x"]);
        for option in [
            "BatchMode=yes".to_owned(),
            format!("ConnectTimeout={CONNECT_S}"),
            format!("ServerAliveInterval={ALIVE_EVERY_S}"),
            format!("ServerAliveCountMax={ALIVE_TIMES}"),
            // One that this process began would outlive it.
            "ControlMaster=no".to_owned(),
            "ClearAllForwardings=yes".to_owned(),
            "PermitLocalCommand=no".to_owned(),
            "RemoteCommand=none".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        if let Some(port) = host.port() {
            command.arg("-p").arg(port.to_string());
        }
        if let Some(user) = host.user() {
            command.arg("-l").arg(user);
        }
        command.arg("--").arg(host.name()).arg(BOOTSTRAP);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command
    }
}

/// What the bootstrap reads: the length, then a script that is one command, so that half of it is none. As root it is a
/// second bootstrap, which reads the script itself.
pub(crate) fn scripted(script: &[u8], as_root: bool) -> Vec<u8> {
    let one = |script: &[u8]| {
        let whole = [b"{\n".as_slice(), script, b"\n}\n"].concat();
        [format!("{}\n", whole.len()).into_bytes(), whole].concat()
    };
    let missing = format!("command -v sudo >/dev/null || {{ echo '{NO_SUDO}' >&2; exit 127; }}\n");
    let sudo = missing + &BOOTSTRAP.replacen("exec ", "exec sudo -n -H ", 1);
    [if as_root { one(sudo.as_bytes()) } else { Vec::new() }, one(script)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn host_keys_stay_checked_and_a_host_stands_behind_all_options() {
        let mut host = Host::named("me@a").expect("a host");
        host.set("port", "22").expect("a port");
        let command = Ssh { config: Some("/c".into()), ..Ssh::default() }.command(&host);
        let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(words.iter().all(|word| !word.contains("StrictHostKeyChecking") && !word.contains("UserKnownHosts")));
        assert!(words.contains(&"BatchMode=yes".into()));
        assert_eq!(words[words.len() - 7..], ["-p", "22", "-l", "me", "--", "a", BOOTSTRAP]);
    }

    #[test]
    fn half_a_script_runs_nothing_and_what_follows_a_whole_one_is_left_to_it() {
        let run = |input: &[u8]| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(BOOTSTRAP).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("a shell");
            let _ = child.stdin.take().expect("it is piped").write_all(input);
            child.wait_with_output().expect("it ends").stdout
        };
        let whole = scripted(b"echo one\necho two", false);
        assert_eq!(run(&whole), b"one\ntwo\n");
        assert_eq!(run(&[scripted(b"cat", false), b"the rest".to_vec()].concat()), b"the rest");
        for end in 0..whole.len() - 2 {
            assert_eq!(run(&whole[..end]), b"", "{end}");
        }
    }

    #[test]
    fn as_root_the_script_is_run_by_sudo_and_what_follows_is_left_to_it() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().expect("a folder");
        let sudo = scratch.path().join("sudo");
        let text = "#!/bin/sh\n[ \"$1$2\" = -n-H ] || exit 9\nshift 2\nROOT=yes exec \"$@\"\n";
        std::fs::write(&sudo, text).expect("a program");
        std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let path = format!("{}:/usr/bin:/bin", scratch.path().display());
        let mut command = Command::new("sh");
        command.arg("-c").arg(BOOTSTRAP).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let input = [scripted(b"echo $ROOT; cat", true), b"the rest".to_vec()].concat();
        child.stdin.take().expect("it is piped").write_all(&input).expect("it reads");
        assert_eq!(child.wait_with_output().expect("it ends").stdout, b"yes\nthe rest");
    }
}
