//! `stoker config`: what a mount from here would go by, value by value, and where each came from.
//!
//! It knows no files of its own: a flag goes before the environment, and both before the default; whose credentials AWS's
//! files hold is told as a mount would find them. In its folder: `value` (one of them). Invariants: a value that may be secret is
//! never shown, only that it is there; no store and nobody who hands out credentials is asked.

mod value;

use crate::args::{NodeFlags, Reach, SetFlags, Shown};
use crate::{place, print, runtime, show};
use std::path::PathBuf;
use std::process::ExitCode;
use store::{Location, Told};
use value::{From, Value, chosen, fixed, set};

pub const EXAMPLES: &str = "\
Examples:
  stoker config                         what `stoker mount` would go by, and why
  stoker config gs://imagenet/train     of a store of another kind than S3
  stoker config --cache /nvme --json    the same with a flag, for programs";

#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// What would be mounted; without it the store is told of as one of S3
    url: Option<String>,
    /// Each value as it takes effect, with where it came from: what is shown anyway
    #[arg(long)]
    #[allow(dead_code, reason = "values are shown as they take effect in any case")]
    effective: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    set: SetFlags,
    #[command(flatten)]
    node: NodeFlags,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    reach: Reach,
}

impl Args {
    /// As nobody typed anything but how a store is reached.
    pub fn of(reach: &Reach) -> Args {
        Args { reach: reach.clone(), ..Args::default() }
    }

    fn location(&self) -> block::Result<Location> {
        self.url.as_deref().unwrap_or(S3).parse()
    }
}

/// In place of what may be secret.
const SECRET: &str = "set (not shown)";

/// Without a data set the store is told of as one of S3.
const S3: &str = "s3://bucket";

/// Files of AWS's own tools, unless the environment names others.
const FILES: [(&str, &str); 2] =
    [("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config")];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let values = values(args)?;
    if args.json {
        say!("{}", serde_json::json!({ "values": values }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = values.iter().map(|value| value.value.chars().count()).max().unwrap_or(0).min(48);
    print::out(format_args!("{}", values.iter().map(|value| value.line(width)).collect::<String>()))?;
    Ok(ExitCode::SUCCESS)
}

/// All of them, as a mount with these flags would have them.
pub fn values(args: &Args) -> anyhow::Result<Vec<Value>> {
    let location = args.location()?;
    Ok([
        of_node(&args.node),
        of_cluster(&args.node),
        of_set(&args.set),
        of_files(&args.shown),
        of_store(&location, &args.reach),
        vec![of_credentials(args, &location)?],
        of_variables(),
    ]
    .concat())
}

fn bytes(bytes: u64) -> String {
    format!("{bytes} bytes ({})", show::bytes(bytes))
}

/// A folder, or why there is none.
fn path(folder: block::Result<PathBuf>) -> String {
    folder.map_or_else(|error| error.what, |folder| folder.display().to_string())
}

/// A switch that was typed.
fn switch(is_given: bool, flag: &'static str) -> Option<(&'static str, String)> {
    is_given.then(|| (flag, "yes".into()))
}

fn of_node(node: &NodeFlags) -> Vec<Value> {
    // What the environment says comes as a flag from clap.
    let named = set("STOKER_CACHE").map(PathBuf::from);
    let typed = node.cache.clone().filter(|cache| named.as_ref() != Some(cache));
    let folder = || place::cache_named(node.cache.as_deref().or(named.as_deref()));
    let free = || {
        let folder = folder().ok()?;
        let there = folder.ancestors().find(|above| above.is_dir())?;
        Some(bytes(place::limits(there, None).ok()?.bytes))
    };
    let size = || free().unwrap_or_else(|| "what is free there, less a tenth".into());
    let memory = || place::memory(None).map_or_else(|error| error.what, bytes);
    let log = || "beside the control socket".to_owned();
    let from_there = set("STOKER_LOG_FORMAT");
    let form =
        node.log_format.clone().filter(|form| from_there.as_ref() != Some(form)).map(|form| ("--log-format", form));
    vec![
        chosen("cache", typed.map(|cache| ("--cache", cache.display().to_string())), &["STOKER_CACHE"], || {
            path(folder())
        }),
        chosen("cache size", node.cache_size.map(|size| ("--cache-size", bytes(size))), &[], size),
        chosen("group cache", switch(node.group_cache, "--group-cache"), &[], || "no".into()),
        chosen("memory", node.memory.map(|size| ("--memory", bytes(size))), &[], memory),
        chosen("patience", node.patience.map(|time| ("--patience", format!("{time:?}"))), &[], || "60s".into()),
        chosen("log", node.log.as_ref().map(|log| ("--log", log.display().to_string())), &[], log),
        chosen("log format", form, &["STOKER_LOG_FORMAT"], || "text".into()),
        Value { value: path(place::runtime()), ..sockets() },
    ]
}

/// By what the folder of control sockets is named: for root not by what it has of who called sudo.
fn sockets() -> Value {
    let both: &[&str] = &["STOKER_RUNTIME_DIR", "XDG_RUNTIME_DIR"];
    let names = if rustix::process::geteuid().is_root() { &both[..1] } else { both };
    chosen("control sockets", None, names, String::new)
}

/// Alone unless members are named; with these, how it speaks with them.
fn of_cluster(node: &NodeFlags) -> Vec<Value> {
    let cluster = &node.cluster;
    let typed = |flag, value: &Option<String>| value.clone().map(|value| (flag, value));
    let members = chosen("members", typed("--members", &cluster.members), &[], || "none: it is alone".into());
    if cluster.members.is_none() {
        return vec![members];
    }
    let identity = cluster.identity.as_ref().map(|keys| ("--identity", keys.display().to_string()));
    let weight = cluster.weight.map(|weight| ("--weight", weight.to_string()));
    vec![
        members,
        chosen("listen", typed("--listen", &cluster.listen), &[], || "the member whose address is here".into()),
        chosen("interface", typed("--interface", &cluster.interface), &[], || "any".into()),
        chosen("name", typed("--name", &cluster.name), &[], || "as the members are told".into()),
        chosen("weight", weight, &[], || "as the members are told".into()),
        chosen("identity", identity, &[], || "none".into()),
        chosen("plaintext", switch(cluster.plaintext, "--plaintext"), &[], || "no".into()),
    ]
}

fn of_set(set: &SetFlags) -> Vec<Value> {
    let refresh = set.refresh.map(|time| ("--refresh", format!("{time:?}")));
    let manifest = set.manifest.as_ref().map(|path| ("--manifest", path.display().to_string()));
    vec![
        chosen("refresh", refresh, &[], || "by `stoker refresh` alone".into()),
        chosen("manifest", manifest, &[], || "none: the store is listed".into()),
        chosen("fill", set.fill.clone().map(|fill| ("--fill", fill)), &[], || "auto".into()),
        chosen("immutable", switch(set.immutable, "--immutable"), &[], || "no".into()),
    ]
}

fn of_files(shown: &Shown) -> Vec<Value> {
    let typed = |flag, number: Option<u32>| number.map(|number| (flag, number.to_string()));
    let mode = match (shown.mode, shown.umask) {
        (Some(mode), _) => Some(("--mode", format!("{mode:04o}"))),
        (None, Some(_)) => shown.file_mode().map(|mode| ("--umask", format!("{mode:04o}"))),
        (None, None) => None,
    };
    let user = || rustix::process::geteuid().as_raw().to_string();
    let group = || rustix::process::getegid().as_raw().to_string();
    vec![
        chosen("owner", typed("--uid", shown.uid), &[], user),
        chosen("group", typed("--gid", shown.gid), &[], group),
        chosen("mode of files", mode, &[], || "0444".into()),
    ]
}

/// Each kind of store by the variables that its own tools read.
fn of_store(location: &Location, reach: &Reach) -> Vec<Value> {
    let (endpoint, usual): (&[&'static str], _) = match location {
        Location::S3 { .. } => return of_s3(reach),
        Location::Google { .. } => (&["STORAGE_EMULATOR_HOST"], "Google Cloud Storage"),
        Location::Azure { host: None, .. } => (&["AZURE_STORAGE_ENDPOINT"], "the account's"),
        Location::Azure { host: Some(_), .. } => (&[], "as the URL has it"),
        // Nothing of it can be told but what the URL and, for HDFS, Hadoop's own files say.
        Location::Web { .. } | Location::Hdfs { .. } | Location::Folder(_) => return Vec::new(),
    };
    vec![chosen("endpoint", typed("--endpoint", &reach.endpoint), endpoint, || usual.into()), anonymous(reach)]
}

fn typed(by: &'static str, value: &Option<String>) -> Option<(&'static str, String)> {
    value.clone().map(|value| (by, value))
}

fn anonymous(reach: &Reach) -> Value {
    chosen("anonymous", switch(reach.anonymous, "--anonymous"), &[], || "no".into())
}

/// A bucket of S3, as its variables and the files of profiles have it.
fn of_s3(reach: &Reach) -> Vec<Value> {
    let configured = place::aws::configured(reach);
    let known = configured.as_ref();
    let of = |name, flag, value: &Option<String>, told: Option<&Told>, usual: &str| match (value, told) {
        (None, Some(told)) => {
            let from = if told.is_variable { From::Environment } else { From::File };
            fixed(name, &told.value, from, &told.by)
        }
        _ => chosen(name, typed(flag, value), &[], || known.map_or_else(|error| error.what.clone(), |_| usual.into())),
    };
    let (endpoint, region) = known.map_or((None, None), |known| (known.endpoint.as_ref(), known.region.as_ref()));
    // Keys in the environment go before a profile that is named there.
    let profile: &[&str] = if place::aws::profile(reach).is_some() { &["AWS_PROFILE"] } else { &[] };
    vec![
        of("endpoint", "--endpoint", &reach.endpoint, endpoint, "AWS"),
        of("region", "--region", &reach.region, region, "found out"),
        chosen("profile", typed("--profile", &reach.profile), profile, || "none".into()),
        anonymous(reach),
    ]
}

/// Who a mount would be to the store, as far as it is known without asking.
fn of_credentials(args: &Args, location: &Location) -> anyhow::Result<Value> {
    let url = args.url.as_deref().unwrap_or(S3);
    let reach = place::reach(&args.reach, url);
    let Reach { endpoint, region, profile, anonymous } = match reach {
        Ok(reach) => reach,
        Err(error) => return Ok(chosen("credentials", None, &[], || error.what)),
    };
    // As they are looked for: keys of the environment are found there, and not handed over.
    let variables = if matches!(location, Location::S3 { .. }) { Default::default() } else { place::variables(url) };
    let settings = daemon::reach::settings(endpoint, region, profile, anonymous, None, variables);
    let found = runtime()?.block_on(store::lender(location, &settings));
    let profiles = || {
        let places = FILES.map(|(variable, usual)| set(variable).unwrap_or_else(|| usual.into()));
        places.join(", ")
    };
    let plain = |value: String| Value {
        value: value.clone(),
        ..chosen("credentials", None, by(location, &value), String::new)
    };
    Ok(match found {
        Ok(None) if args.reach.anonymous => {
            fixed("credentials", "none: requests are not signed", From::Flag, "--anonymous")
        }
        Ok(None) => plain("none".into()),
        Ok(Some(name)) if name == "the environment" => {
            fixed("credentials", &format!("keys, {SECRET}"), From::Environment, "AWS_ACCESS_KEY_ID")
        }
        Ok(Some(name)) if name.starts_with("AWS_") => fixed("credentials", "a role's", From::Environment, &name),
        Ok(Some(name)) if is_variable(&name) => fixed("credentials", "as it says", From::Environment, &name),
        Ok(Some(name)) if name.starts_with("profile ") => fixed("credentials", &name, From::File, &profiles()),
        Ok(Some(name)) => plain(name),
        Err(error) => plain(error.what),
    })
}

/// The variables that decide whose credentials of this name they are, the first that is set.
fn by(location: &Location, name: &str) -> &'static [&'static str] {
    match location {
        Location::Hdfs { .. } if name.starts_with("user ") => &["HADOOP_USER_NAME"],
        Location::Hdfs { .. } => &["KRB5_CLIENT_KTNAME", "KRB5CCNAME"],
        Location::Azure { .. } if name.contains("key") => &["AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"],
        Location::Azure { .. } if name.contains("signature") => {
            &["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING"]
        }
        _ => &[],
    }
}

fn is_variable(name: &str) -> bool {
    name.contains('_')
        && name.bytes().all(|letter| matches!(letter, b'A'..=b'Z' | b'_' | b'0'..=b'9'))
        && set(name).is_some()
}

/// What else is set of credentials and certificates.
fn of_variables() -> Vec<Value> {
    let secrets = [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "ETCDCTL_USER",
        "ETCDCTL_PASSWORD",
    ];
    let paths = [
        "AWS_CA_BUNDLE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_STORAGE_ACCOUNT",
        "CLOUDSDK_CONFIG",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "HADOOP_PROXY_USER",
        "HADOOP_USER_NAME",
        "KRB5CCNAME",
        "KRB5_CLIENT_KTNAME",
        "STORAGE_EMULATOR_HOST",
        "ETCDCTL_CACERT",
        "ETCDCTL_CERT",
        "ETCDCTL_KEY",
        "STOKER_SSH_CONFIG",
    ];
    let secrets = secrets.into_iter().filter_map(|name| set(name).map(|_| (name, SECRET.to_owned())));
    let paths = paths.into_iter().filter_map(|name| Some((name, set(name)?)));
    secrets.chain(paths).map(|(name, value)| fixed("also", &value, From::Environment, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_flag_goes_before_all_and_no_password_is_shown() {
        let reach = Reach { endpoint: Some("http://me:SECRET@minio:9000".into()), anonymous: true, ..Reach::default() };
        let node = NodeFlags { cache: Some("/elsewhere".into()), memory: Some(1 << 30), ..NodeFlags::default() };
        let sets = SetFlags { refresh: Some(Duration::from_secs(90)), ..SetFlags::default() };
        let shown = Shown { umask: Some(0o022), ..Shown::default() };
        let args = Args { node, shown, set: sets, ..Args::of(&reach) };
        let all = values(&args).expect("values");
        let of = |name: &str| all.iter().find(|value| value.name == name).expect("a value").clone();
        assert_eq!(
            (of("endpoint").value, of("endpoint").by.as_deref()),
            ("http://minio:9000".into(), Some("--endpoint"))
        );
        assert_eq!((of("cache").value, of("cache").from), ("/elsewhere".into(), From::Flag));
        assert!(of("memory").value.starts_with("1073741824 bytes"));
        assert_eq!((of("patience").value, of("patience").from), ("60s".into(), From::Default));
        assert_eq!((of("refresh").value, of("refresh").from), ("90s".into(), From::Flag));
        assert_eq!((of("fill").value, of("fill").from), ("auto".into(), From::Default));
        assert_eq!((of("mode of files").value, of("mode of files").from), ("0755".into(), From::Flag));
        assert_eq!((of("credentials").from, of("credentials").by.as_deref()), (From::Flag, Some("--anonymous")));
        assert!(!serde_json::to_string(&all).expect("JSON").contains("SECRET"));
    }
}
