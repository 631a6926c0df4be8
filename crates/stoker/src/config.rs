//! `stoker config`: what a mount from here would go by, value by value, and where each came from.
//!
//! It knows no files of its own: a flag goes before the environment, and both before the default; what AWS's own tools read
//! from their files is told as they have it. Invariant: a value that may be secret is never shown, only that it is there.

use crate::args::{NodeFlags, Reach};
use crate::bench::typed::without_user;
use crate::{place, print, show};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Examples:
  stoker config                         what `stoker mount` would go by, and why
  stoker config --cache /nvme --json    the same with a flag, for programs";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Each value as it takes effect, with where it came from: what is shown anyway
    #[arg(long)]
    #[allow(dead_code, reason = "values are shown as they take effect in any case")]
    effective: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeFlags,
    #[command(flatten)]
    reach: Reach,
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    Flag,
    Environment,
    Default,
}

/// A value as it takes effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Value {
    pub name: &'static str,
    pub value: String,
    pub from: From,
    /// The variable or the flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
}

/// In place of what may be secret.
const SET: &str = "set (not shown)";

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let values = values(&args.node, &args.reach);
    if args.json {
        say!("{}", serde_json::json!({ "values": values }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = values.iter().map(|value| value.value.chars().count()).max().unwrap_or(0).min(48);
    let line = |value: &Value| {
        let from = match (value.from, value.by) {
            (From::Flag, Some(by)) => format!("flag {by}"),
            (From::Environment, Some(by)) => format!("environment {by}"),
            _ => "default".into(),
        };
        format!("{:<20} {:<width$}  {from}\n", value.name, show::line(&value.value))
    };
    print::out(format_args!("{}", values.iter().map(line).collect::<String>()))?;
    Ok(ExitCode::SUCCESS)
}

/// A variable that is set.
fn set(name: &str) -> Option<String> {
    place::variable(name).filter(|value| !value.is_empty())
}

/// The flag with its value if it was typed, else the first of the variables that is set, else the default.
fn value(
    name: &'static str,
    flag: Option<(&'static str, String)>,
    variables: &[&'static str],
    default: impl FnOnce() -> String,
) -> Value {
    let variable = variables.iter().find_map(|name| Some((*name, set(name)?)));
    let (value, from, by) = match (flag, variable) {
        (Some((by, value)), _) => (value, From::Flag, Some(by)),
        (None, Some((by, value))) => (value, From::Environment, Some(by)),
        (None, None) => (default(), From::Default, None),
    };
    Value { name, value: without_user(&value), from, by }
}

fn bytes(bytes: u64) -> String {
    format!("{bytes} bytes ({})", show::bytes(bytes))
}

/// A folder, or why there is none.
fn path(folder: block::Result<PathBuf>) -> String {
    folder.map_or_else(|error| error.what, |folder| folder.display().to_string())
}

/// All of them, as a mount with these flags would have them.
pub fn values(node: &NodeFlags, reach: &Reach) -> Vec<Value> {
    [of_node(node), of_store(reach), of_credentials()].concat()
}

fn of_node(node: &NodeFlags) -> Vec<Value> {
    // What the environment says comes as a flag from clap.
    let is_typed = |cache: &PathBuf| set("STOKER_CACHE").is_none_or(|set| PathBuf::from(set) != *cache);
    let cache = node.cache.clone().filter(is_typed).map(|cache| ("--cache", cache.display().to_string()));
    let free = || {
        let folder = place::cache_named(node.cache.as_deref()).ok()?;
        let there = folder.ancestors().find(|above| above.is_dir())?;
        Some(bytes(place::limits(there, None).ok()?.bytes))
    };
    let size = || free().unwrap_or_else(|| "what is free there, less a tenth".into());
    let memory = || place::memory(None).map_or_else(|error| error.what, bytes);
    let sockets = Value { value: path(place::runtime()), ..sockets() };
    vec![
        value("cache", cache, &["STOKER_CACHE"], || path(place::cache_named(None))),
        value("cache size", node.cache_size.map(|size| ("--cache-size", bytes(size))), &[], size),
        value("memory", node.memory.map(|size| ("--memory", bytes(size))), &[], memory),
        value("patience", node.patience.map(|time| ("--patience", format!("{time:?}"))), &[], || "60s".into()),
        value("log", node.log.as_ref().map(|log| ("--log", log.display().to_string())), &[], || {
            "beside the control socket".into()
        }),
        sockets,
        value("members", node.cluster.members.clone().map(|members| ("--members", members)), &[], || "none".into()),
    ]
}

/// By what the folder of control sockets is named: for root not by what it has of who called sudo.
fn sockets() -> Value {
    let both: &[&str] = &["STOKER_RUNTIME_DIR", "XDG_RUNTIME_DIR"];
    let names = if rustix::process::geteuid().is_root() { &both[..1] } else { both };
    value("control sockets", None, names, String::new)
}

fn of_store(reach: &Reach) -> Vec<Value> {
    let effective = place::reach(reach);
    let flag = |by, value: &Option<String>| value.clone().map(|value| (by, value));
    // Keys in the environment go before a profile that is named there.
    let profile: &[&str] = if effective.profile.is_some() { &["AWS_PROFILE"] } else { &[] };
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
    vec![
        value("endpoint", flag("--endpoint", &reach.endpoint), &endpoint, || "AWS".into()),
        value("region", flag("--region", &reach.region), &["AWS_REGION"], || "found out".into()),
        value("profile", flag("--profile", &reach.profile), profile, || "none".into()),
        value("anonymous", reach.anonymous.then(|| ("--anonymous", "yes".into())), &[], || "no".into()),
    ]
}

/// What is set of credentials and certificates.
fn of_credentials() -> Vec<Value> {
    let keys = [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    let paths = ["AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"];
    let of = |name, by, value| Value { name, value, from: From::Environment, by: Some(by) };
    let keys = keys.into_iter().filter(|name| set(name).is_some()).map(|by| of("credentials", by, SET.into()));
    keys.chain(paths.into_iter().filter_map(|by| Some(of("files", by, set(by)?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_goes_before_all_and_no_password_is_shown() {
        let reach = Reach { endpoint: Some("http://me:SECRET@minio:9000".into()), ..Reach::default() };
        let node = NodeFlags { cache: Some("/elsewhere".into()), memory: Some(1 << 30), ..NodeFlags::default() };
        let all = values(&node, &reach);
        let of = |name: &str| all.iter().find(|value| value.name == name).expect("a value").clone();
        assert_eq!((of("endpoint").value, of("endpoint").by), ("http://minio:9000".into(), Some("--endpoint")));
        assert_eq!((of("cache").value, of("cache").from), ("/elsewhere".into(), From::Flag));
        assert!(of("memory").value.starts_with("1073741824 bytes"));
        assert_eq!((of("patience").value, of("patience").from), ("60s".into(), From::Default));
        assert!(!serde_json::to_string(&all).expect("JSON").contains("SECRET"));
    }
}
