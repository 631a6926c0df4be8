//! What can be typed.

use crate::{
    bench, cache, check, config, debug, demo, down, emulate, evict, hint, hosts, keep, keys, logs, manifest, observe,
    plan, print, restart, run, umount, up,
};
use ::emulate::parse::{duration, size};
use block::Error;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Keep accelerators fed from the storage you already have.
///
/// Exit codes: 0 done; 1 it failed, and the message says what to try; 2 the command line is wrong, or names what isn't there
/// (`bench`); 130 interrupted;
/// `load` also: 3 not all files fitted into the cache, 4 some files failed; `bench train`: 3 accelerators were not busy
/// enough, 5 no verdict, for the run was too short or a check of it failed; `observe` and `run`: that of their command.
#[derive(Parser)]
#[command(name = "stoker", version, max_term_width = 110)]
pub struct Typed {
    /// Say more; twice, say everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

const MOUNT_EXAMPLES: &str = "\
Examples:
  stoker mount s3://imagenet/train /data/train -d    until it is unmounted
  stoker mount s3://imagenet/train /data/train       until it is interrupted
  stoker mount gs://imagenet/train /data/train -d    Google Cloud Storage; hdfs:// alike
  stoker mount az://imagenet/train /data/train -d    Azure Blob, of AZURE_STORAGE_ACCOUNT
  stoker mount /lustre/imagenet /data/train -d       a folder, through a cache on a faster disk";
const LOAD_EXAMPLES: &str = "\
Examples:
  stoker load /data/train                                 into the cache of its mount
  stoker load /data/train --include '*.jpg' --verify      some of it, compared with the store
  stoker load s3://imagenet/train --to /nvme/train        to a folder, without a mount";
const STATUS_EXAMPLES: &str = "\
Examples:
  stoker status                       all mounts of this user
  stoker status /data/train           with the share of each file and folder that is kept
  stoker status --watch               again and again
  stoker status --json | jq
  stoker status --hosts nodes /data/train     all nodes of a pool by `stoker up`, a line each";

#[derive(Subcommand)]
pub enum Command {
    /// Mount a bucket or a folder, read-only, at the speed of the local disk
    #[command(after_help = MOUNT_EXAMPLES)]
    Mount(Mount),
    /// Serve a cache folder until a signal ends it: mounts join it. Without it the first mount starts one
    Node(Node),
    /// Unmount
    #[command(alias = "unmount")]
    #[command(after_help = umount::EXAMPLES)]
    Umount(umount::Args),
    /// Have another process go on with all mounts of a node, by this very program: after an upgrade, for example
    #[command(after_help = restart::EXAMPLES)]
    Restart(restart::Args),
    /// Hold what outlives a node
    #[command(hide = true)]
    Keep(keep::Args),
    /// Fetch a mounted data set ahead, or copy one to a folder
    #[command(after_help = LOAD_EXAMPLES)]
    Load(Load),
    /// Say what a job will read and in which order, so that it is there in time
    #[command(after_help = hint::EXAMPLES)]
    Hint(hint::Args),
    /// Run a command whose PyTorch loaders say by themselves in which order they read
    #[command(after_help = run::EXAMPLES)]
    Run(run::Args),
    /// List a mounted data set again
    Refresh(Refresh),
    /// Let go of what this machine keeps of a mounted file or folder
    #[command(after_help = evict::EXAMPLES)]
    Evict(evict::Args),
    /// Show mounts, hits, requests and limits
    #[command(after_help = STATUS_EXAMPLES)]
    Status(Status),
    /// Look whether a store, a disk and this machine are fit for a mount, and how fast they are
    #[command(after_help = check::EXAMPLES)]
    Check(Box<check::Args>),
    /// Look into a cache folder of this machine, or empty it
    #[command(subcommand)]
    Cache(cache::Command),
    /// Keep the names of a data set as a file, compare and mount by it
    #[command(subcommand)]
    Manifest(manifest::Command),
    /// Show what a mount from here would go by, and where each value came from
    #[command(after_help = config::EXAMPLES)]
    Config(Box<config::Args>),
    /// Gather what is needed to find out what is wrong
    #[command(subcommand)]
    Debug(debug::Command),
    /// Show where nodes write their logs and what went wrong last, or change how much they write
    Log(logs::Args),
    /// Serve a folder as an S3 endpoint with a service's limits and faults
    Emulate(emulate::Args),
    /// Run the main job on a small data set of its own: two epochs, from the store and through Stoker
    Demo(demo::Args),
    /// Measure whether storage keeps accelerators busy
    #[command(subcommand)]
    Bench(bench::Command),
    /// Record what a program asks of a folder, as a workload
    Observe(observe::Args),
    /// Say what to rent so that accelerators are kept busy, and what it costs
    #[command(after_help = plan::EXAMPLES)]
    Plan(Box<plan::Args>),
    /// Mount a data set on many hosts at once, by ssh, for as long as a job needs it
    #[command(after_help = up::EXAMPLES)]
    Up(Box<up::Args>),
    /// Unmount it there, and leave nothing behind
    Down(down::Args),
    /// Run a command on many hosts, copy files to them and gather files from them, by ssh
    #[command(subcommand)]
    Hosts(hosts::Command),
    /// Make the keys by which the nodes of a cluster know each other
    Keys(keys::Args),
    /// Print a completion script
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
}

/// How to reach a store. Credentials are found as the tools of AWS, Google, Azure or Hadoop find them.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Store")]
pub struct Reach {
    /// Server, such as http://minio:9000; else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, that of the profile, or AWS itself. For gs:// else
    /// STORAGE_EMULATOR_HOST, for az:// that of the account, else AZURE_STORAGE_ENDPOINT
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region to sign for; else AWS_REGION, AWS_DEFAULT_REGION, that of the profile, or found out
    #[arg(long)]
    pub region: Option<String>,
    /// Profile of the AWS configuration files; else AWS_PROFILE, unless the environment has keys
    #[arg(long, conflicts_with = "anonymous")]
    pub profile: Option<String>,
    /// Ask as nobody, for public buckets
    #[arg(long)]
    pub anonymous: bool,
}

/// Whom the files of a mount belong to, and who may do what with them. The kernel goes by these.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Owner and permissions")]
pub struct Shown {
    /// User that everything belongs to, as a number; whoever mounts if none
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub uid: Option<u32>,
    /// Group that everything belongs to, as a number; that of whoever mounts if none
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    pub gid: Option<u32>,
    /// Permissions of files in octal, such as 0755 for programs that are to run; folders may be entered by who may read
    #[arg(long, value_name = "OCTAL", value_parser = permissions, conflicts_with = "umask")]
    pub mode: Option<u32>,
    /// Permissions that files and folders don't have, in octal: 022 leaves 0755
    #[arg(long, value_name = "OCTAL", value_parser = permissions)]
    pub umask: Option<u32>,
}

impl Shown {
    pub fn file_mode(&self) -> Option<u32> {
        self.mode.or(self.unmasked())
    }

    pub fn folder_mode(&self) -> Option<u32> {
        self.mode.map(|mode| mode | (mode & 0o444) >> 2).or(self.unmasked())
    }

    fn unmasked(&self) -> Option<u32> {
        self.umask.map(|mask| 0o777 & !mask)
    }
}

/// The least that a cache may hold: four blocks.
const CACHE_MIN: u64 = 1_000_000;

pub fn cache_size(text: &str) -> Result<u64, Error> {
    let bytes = size(text)?;
    let too_small = || Error::invalid("a cache of less than 1MB holds nothing of use", format!("`{text}`"));
    if bytes < CACHE_MIN { Err(too_small().hint("write it like 500GB or 1TiB")) } else { Ok(bytes) }
}

/// A time that is one.
pub fn some_time(text: &str) -> Result<Duration, Error> {
    let time = duration(text).map_err(|error| error.hint("write it like 500ms, 60s or 10m"))?;
    let none = || Error::invalid("this is no time at all", format!("`{text}`"));
    if time.is_zero() { Err(none().hint("write it like 500ms, 60s or 10m")) } else { Ok(time) }
}

/// A time between two listings.
fn seldom(text: &str) -> Result<Duration, Error> {
    let advice = "write it like 60s, 10m or 1h";
    let time = duration(text).map_err(|error| error.hint(advice))?;
    let too_often = || Error::invalid("a data set is listed at most once a second", format!("`{text}`"));
    if time < Duration::from_secs(1) { Err(too_often().hint(advice)) } else { Ok(time) }
}

fn permissions(text: &str) -> Result<u32, Error> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    let wrong = || Error::invalid("these are no permissions", format!("`{text}`"));
    mode.ok_or_else(|| wrong().hint("give up to three octal digits, such as 644"))
}

/// The number of a user or a group.
fn number(text: &str) -> Result<u32, Error> {
    let wrong = |_| Error::invalid("this is no number of a user or a group", format!("`{text}`"));
    text.parse().map_err(|error| wrong(error).hint("give it as a number: `id NAME` shows those of a user"))
}

#[derive(Args, Clone, Debug)]
pub struct Mount {
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix (or abfss://), hdfs://namenode/path, file:///folder, a folder, or
    /// https://host/prefix with --manifest
    pub url: String,
    /// Where to mount it
    pub dir: PathBuf,
    #[command(flatten)]
    pub set: SetFlags,
    /// Return once it is mounted, and serve in the background
    #[arg(short, long)]
    pub detach: bool,
    #[command(flatten)]
    pub node: NodeFlags,
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub reach: Reach,
}

/// How a data set is listed, filled and kept.
#[derive(Args, Clone, Debug, Default)]
pub struct SetFlags {
    /// List the data set again this often, such as 60s, 10m or 1h; by default only by `stoker refresh`
    #[arg(long, value_name = "TIME", value_parser = seldom, allow_hyphen_values = true)]
    pub refresh: Option<Duration>,
    /// Take the names from this file of `stoker manifest` and never list: the same bytes each time, or an error
    #[arg(long, value_name = "FILE", conflicts_with = "refresh")]
    pub manifest: Option<PathBuf>,
    /// Fetch the rest of the set in the background at spare bandwidth: once reads show an epoch (auto, the default), never
    /// (off), or at once (all)
    #[arg(long, value_name = "WHEN", value_parser = ["auto", "off", "all"])]
    pub fill: Option<String>,
    /// Keep the page cache of files that are never replaced; best for many small files that fit into memory
    #[arg(long)]
    pub immutable: bool,
}

/// The process that serves all mounts of a cache folder. The first mount starts it; those that join must agree with it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Node")]
pub struct NodeFlags {
    /// Folder of the cache; mounts with the same one share a process, the node
    #[arg(long, value_name = "DIR", env = "STOKER_CACHE")]
    pub cache: Option<PathBuf>,
    /// Bytes that the cache may hold, such as 500GB or 1TiB; by default what is free and what the cache holds already, less
    /// a tenth of the file system
    #[arg(long, value_name = "SIZE", value_parser = cache_size, allow_hyphen_values = true)]
    pub cache_size: Option<u64>,
    /// Anonymous memory that the node may use; by default 256 MiB, or a quarter of its cgroup's limit if that is less
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub memory: Option<u64>,
    /// How long a request to the store is repeated before its reader gets an error; 60s by default
    #[arg(long, value_name = "TIME", value_parser = some_time, allow_hyphen_values = true)]
    pub patience: Option<Duration>,
    /// Write what happens to this file, begun anew at 16 MB; by default one beside the control socket
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Write it for people (text, the default) or for programs (json): an object in a line, with time, level and message
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], env = "STOKER_LOG_FORMAT")]
    pub log_format: Option<String>,
    /// A group of yours may write into the cache folder too, and root may own it (fsGroup of Kubernetes)
    #[arg(long)]
    pub group_cache: bool,
    /// Until when it may go on, as `stoker up` writes it; what lies beside this file goes with the node
    #[arg(long, value_name = "FILE", hide = true)]
    pub lease: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// The other nodes with which this one is one cache: each byte of the set leaves the store once for all of them.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterFlags {
    /// Who tells of all nodes of the cluster: a file with a line for each, HOST[:PORT] [name=NAME] [weight=NUMBER];
    /// dns:NAME[:PORT], whose addresses or services (_service._proto.name) they are; or etcd://HOST[:PORT]/PREFIX, where each
    /// writes itself (etcds:// with TLS; ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER and ETCDCTL_PASSWORD count)
    #[arg(long, value_name = "MEMBERS")]
    pub members: Option<String>,
    /// Which of them this node is, HOST:PORT or NAME; by default the one whose address this machine has. With etcd the address
    /// at which the others reach it
    #[arg(long, value_name = "MEMBER", requires = "members")]
    pub listen: Option<String>,
    /// The network on which this node and the others speak, like ib0: its address says which member this node is, or becomes
    /// that of the member; with --listen :PORT at another port
    #[arg(long, value_name = "NAME", requires = "members")]
    pub interface: Option<String>,
    /// What this node is called, with etcd; by default its address and port
    #[arg(long, value_name = "NAME", requires = "members")]
    pub name: Option<String>,
    /// Its part of all bytes beside those of the others, with etcd; by default 1
    #[arg(long, value_name = "NUMBER", requires = "members")]
    pub weight: Option<u32>,
    /// Folder with the keys of this member, which `stoker keys` makes: ca.pem, node.pem and node.key
    #[arg(long, value_name = "DIR", requires = "members", conflicts_with = "plaintext")]
    pub identity: Option<PathBuf>,
    /// Speak unencrypted with the others, and with anybody who reaches the port: for a network that only members are on
    #[arg(long, requires = "members")]
    pub plaintext: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Node {
    /// Data sets to have for the other members of a cluster, without mounting them: s3://bucket/prefix, gs://, az:// and hdfs:// alike
    #[arg(value_name = "URL", requires = "members")]
    pub urls: Vec<String>,
    /// Fetch what this node is to keep of them in the background: once others ask for it, or at once
    #[arg(long, value_name = "WHEN", default_value = "off", value_parser = ["off", "all"], requires = "urls")]
    pub fill: String,
    #[command(flatten)]
    pub node: NodeFlags,
    #[command(flatten)]
    pub reach: Reach,
    /// End with the last mount
    #[arg(long, hide = true)]
    pub for_mounts: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Load {
    /// A mount point, or a folder or a file below it; with --to, the URL of a data set
    pub what: String,
    /// Copy the data set to this folder instead of a cache
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
    /// Only files whose path below the mount point matches; `*` takes slashes too, so "*.jpg" is every JPEG; may be
    /// given again
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Not files that match, by the same rule; may be given again
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Only the files named on standard input, one a line, relative to the mount point or from the top on
    #[arg(long)]
    pub stdin: bool,
    /// Compare everything with the store's checksums, also what is there already
    #[arg(long)]
    pub verify: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Print how far it is too, as lines of JSON
    #[arg(long, hide = true)]
    pub tell: bool,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub struct Refresh {
    /// The mount point
    pub dir: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct Status {
    /// A mount point or a cache folder; by default every node of this user, as root of all users
    pub dir: Option<PathBuf>,
    /// Show it again and again: in place on a terminal, one line for each node otherwise
    #[arg(long)]
    pub watch: bool,
    /// Time between two looks of --watch
    #[arg(long, value_name = "TIME", value_parser = some_time, default_value = "1s", requires = "watch")]
    pub interval: Duration,
    /// All nodes of the pool at this mount point, by ssh: the file of hosts that `stoker up` was given
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Another configuration of ssh than the user's, as `ssh -F` has it
    #[arg(long, value_name = "FILE", env = "STOKER_SSH_CONFIG")]
    pub ssh_config: Option<PathBuf>,
    /// As root there, as the pool was brought up
    #[arg(long, requires = "hosts")]
    pub sudo: bool,
    /// Print JSON: one object for each node, one a line
    #[arg(long)]
    pub json: bool,
}

impl ClusterFlags {
    /// What tells of the members, as a process in another folder finds it.
    pub fn members_from_here(&self) -> Result<Option<String>, Error> {
        let absolute = |typed: &String| match peer::Members::is_path(typed) {
            false => Ok(typed.clone()),
            true => crate::place::absolute(typed.as_ref()).map(|path| path.to_string_lossy().into_owned()),
        };
        self.members.as_ref().map(absolute).transpose()
    }
}

pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Typed::command(), "stoker", &mut script);
    print::out(format_args!("{}", String::from_utf8(script)?))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound_and_no_command_has_too_many_flags() {
        fn check(command: &clap::Command) {
            // Groups that several commands share (a store, the output) have a heading, and are learnt once.
            let own =
                |flag: &&clap::Arg| !flag.is_positional() && !flag.is_global_set() && flag.get_help_heading().is_none();
            let flags = command.get_arguments().filter(own).count();
            assert!(flags <= 12, "{} has {flags} flags: more than twelve", command.get_name());
            command.get_subcommands().for_each(check);
        }
        Typed::command().debug_assert();
        check(&Typed::command());
    }

    /// As wide as clap takes a terminal to be that is none.
    const COLUMNS: usize = 100;

    #[test]
    fn no_example_is_wrapped_and_no_flag_stands_under_the_heading_of_others() {
        fn check(command: &clap::Command) {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = below.lines().filter(|line| line.starts_with("  "));
            examples.for_each(|line| assert!(line.chars().count() <= COLUMNS, "{line}"));
            for positional in command.get_positionals() {
                assert_eq!(positional.get_help_heading(), None, "{} {positional}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Typed::command());
    }

    #[test]
    fn permissions_are_octal_and_folders_can_be_entered_by_who_may_read() {
        let shown = |words: &[&str]| {
            let words = ["stoker", "mount", "s3://b", "/mnt"].iter().chain(words);
            match Typed::try_parse_from(words).ok()?.command {
                Command::Mount(mount) => Some((mount.shown.file_mode(), mount.shown.folder_mode())),
                _ => None,
            }
        };
        assert_eq!(shown(&[]), Some((None, None)));
        assert_eq!(shown(&["--mode", "0644"]), Some((Some(0o644), Some(0o755))));
        assert_eq!(shown(&["--mode", "440"]), Some((Some(0o440), Some(0o550))));
        assert_eq!(shown(&["--umask", "027"]), Some((Some(0o750), Some(0o750))));
        for wrong in [&["--mode", "0999"][..], &["--mode", "7777"], &["--mode", "644", "--umask", "022"]] {
            assert_eq!(shown(wrong), None, "{wrong:?}");
        }
    }
}
