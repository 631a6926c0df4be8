//! Where AWS's tools were told that S3 is: endpoint and region, out of the environment and the files of profiles.
//!
//! Invariant: of keys and tokens nothing is looked at.

use super::credentials::profiles::{Profile, Profiles};
use super::wire::{causes, finds};
use block::{Error, Result};
use reqsign_core::{Context, StaticEnv};
use std::io::ErrorKind;

/// A value, and where it was read: a variable, or a file with the section in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub value: String,
    pub by: String,
    pub is_variable: bool,
}

/// What was told of S3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    pub endpoint: Option<Told>,
    pub region: Option<Told>,
}

/// What is told for this profile, or the one that is meant where none is named. Whoever has a value already `needs` no file
/// for it.
pub fn configured(
    variable: &dyn Fn(&str) -> Option<String>,
    profile: Option<&str>,
    needs: (bool, bool),
) -> Result<Configured> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let first = |names: &[&str]| {
        names.iter().find_map(|name| Some(Told { value: variable(name)?, by: (*name).into(), is_variable: true }))
    };
    let named =
        || profile.map(str::to_owned).or_else(|| variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE")));
    let ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").map(|value| is_true(&value));
    let mut found = Configured {
        endpoint: first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
        region: first(&["AWS_REGION", "AWS_DEFAULT_REGION"]),
    };
    let needs_file = needs.0 && found.endpoint.is_none() && ignored != Some(true) || needs.1 && found.region.is_none();
    let needs_file = needs_file || needs.0 && ignored.is_none() && found.endpoint.is_some();
    let files = if needs_file { read(&variable)? } else { None };
    let name = named().unwrap_or_else(|| "default".into());
    let profile = files.as_ref().and_then(|files| files.profile(&name));
    let get = |name: &str| {
        let (value, by) = profile.as_ref()?.told(name)?;
        Told::by_file(value, by)
    };
    let is_ignored =
        ignored.unwrap_or_else(|| get("ignore_configured_endpoint_urls").is_some_and(|told| is_true(&told.value)));
    if is_ignored {
        found.endpoint = None;
    } else if found.endpoint.is_none() {
        found.endpoint = service(files.as_ref(), profile.as_ref()).or_else(|| get("endpoint_url"));
    }
    found.region = found.region.or_else(|| get("region"));
    Ok(found)
}

/// The profile whose credentials are meant, if one is named. AWS's keys in the environment go before AWS_PROFILE, one that was
/// asked for before both.
pub fn profile(variable: &dyn Fn(&str) -> Option<String>, asked: Option<&str>) -> Option<String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let is_somebody = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"];
    let is_somebody = is_somebody.into_iter().any(|name| set(name).is_some());
    asked.map(str::to_owned).or_else(|| set("AWS_PROFILE").filter(|_| !is_somebody))
}

fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

/// The files. Keys in the environment go before all of them, which need not even be readable then; what is read has to be understood.
fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Profiles>> {
    let set = ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"];
    let envs = set.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))).collect();
    let environment = StaticEnv { home_dir: variable("HOME").map(Into::into), envs };
    match Profiles::read_at_once(&Context::new().with_env(environment)) {
        Ok(files) => Ok(Some(files)),
        Err(error) if finds(&error, |cause: &std::io::Error| cause.kind() == ErrorKind::TimedOut) => {
            Err(Error::unavailable(causes(&error), "the files of profiles"))
        }
        Err(error) if variable("AWS_ACCESS_KEY_ID").is_some() && finds(&error, |_: &std::io::Error| true) => {
            tracing::warn!("no endpoint and no region is taken from the files of profiles: {}", causes(&error));
            Ok(None)
        }
        Err(error) => {
            let error = Error::invalid(causes(&error), "the files of profiles");
            Err(error.hint("mend it, or name another file by AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE"))
        }
    }
}

/// The endpoint of S3 in the section of services that a profile names.
fn service(files: Option<&Profiles>, profile: Option<&Profile<'_>>) -> Option<Told> {
    let name = Told::by_file(profile?.get("services")?, "")?.value;
    let (by, services) = files?.services(&name)?;
    Told::by_file(services.below("s3", "endpoint_url")?, &by)
}

impl Told {
    /// Behind the first word there may be a comment.
    fn by_file(value: &str, by: &str) -> Option<Told> {
        let value = value.split_whitespace().next()?.to_owned();
        Some(Told { value, by: by.into(), is_variable: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const CONFIG: &str = "[default]\nregion = eu-west-1\n# endpoint_url = http://no\n\
        [profile  \"inside\"]\n  services = ours\n  region=eu-central-1 # ours\n  endpoint_url = http://general:1\n\
        [profile plain]\nendpoint_url = http://general:2\ns3 =\n  endpoint_url = http://no\n  max_concurrent_requests = 20\n\
        [profile shut]\nendpoint_url = http://general:3\nignore_configured_endpoint_urls = true\n\
        [services ours]\ndynamodb =\n  endpoint_url = http://no\ns3 =\n  endpoint_url = http://store:9000\nsqs =\n  endpoint_url = http://no\n";

    fn told(variables: &[(&str, &str)], profile: Option<&str>) -> (Option<String>, Option<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(".aws")).expect("made");
        std::fs::write(folder.path().join(".aws/config"), CONFIG).expect("written");
        std::fs::write(folder.path().join(".aws/credentials"), "[keyed]\nregion = eu-north-1\n").expect("written");
        let mut all: BTreeMap<_, _> = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        all.insert("HOME", folder.path().display().to_string());
        let found = configured(&|name| all.get(name).cloned(), profile, (true, true)).expect("it is read");
        (found.endpoint.map(|told| told.value), found.region.map(|told| told.value))
    }

    #[test]
    fn endpoint_and_region_are_those_that_aws_tools_take() {
        for (variables, profile, endpoint, region) in [
            (&[][..], None, "", "eu-west-1"),
            (&[], Some("inside"), "http://store:9000", "eu-central-1"),
            (&[("AWS_PROFILE", "inside")], None, "http://store:9000", "eu-central-1"),
            (&[("AWS_DEFAULT_PROFILE", "plain")], None, "http://general:2", ""),
            (&[("AWS_PROFILE", "inside")], Some("plain"), "http://general:2", ""),
            (&[], Some("keyed"), "", "eu-north-1"),
            (&[], Some("shut"), "", ""),
            (&[("AWS_ENDPOINT_URL", "http://v:1")], Some("inside"), "http://v:1", "eu-central-1"),
            (&[("AWS_ENDPOINT_URL", "http://v:1")], Some("shut"), "", ""),
            (&[("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false")], Some("shut"), "http://general:3", ""),
            (
                &[("AWS_ENDPOINT_URL", "http://v:1"), ("AWS_ENDPOINT_URL_S3", "http://v:2")],
                None,
                "http://v:2",
                "eu-west-1",
            ),
            (&[("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "TRUE")], Some("inside"), "", "eu-central-1"),
            (&[("AWS_DEFAULT_REGION", "eu-south-1")], Some("inside"), "http://store:9000", "eu-south-1"),
            (&[("AWS_DEFAULT_REGION", "eu-south-1"), ("AWS_REGION", "eu-south-2")], None, "", "eu-south-2"),
            (&[("AWS_REGION", "")], None, "", "eu-west-1"),
            (&[], Some("nobody"), "", ""),
        ] {
            let (found_endpoint, found_region) = told(variables, profile);
            let found = (found_endpoint.unwrap_or_default(), found_region.unwrap_or_default());
            assert_eq!((found.0.as_str(), found.1.as_str()), (endpoint, region), "{variables:?} {profile:?}");
        }
    }

    #[test]
    fn a_file_that_cant_be_looked_at_is_an_error_and_no_reason_to_ask_another_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).expect("a link");
        let at = circle.display().to_string();
        let with = |key: Option<&str>| {
            let variable = |name: &str| match name {
                "AWS_CONFIG_FILE" => Some(at.clone()),
                "AWS_ACCESS_KEY_ID" => key.map(str::to_owned),
                "AWS_REGION" => Some("eu-west-1".into()),
                _ => None,
            };
            configured(&variable, None, (true, true))
        };
        let error = with(None).expect_err("it can't be known where the store is").to_string();
        assert!(error.contains(&at), "{error}");
        let odd = folder.path().join("odd");
        std::fs::write(&odd, "[default]\nendpoint_url\n").expect("written");
        let variable = |name: &str| match name {
            "AWS_CONFIG_FILE" => Some(odd.display().to_string()),
            "AWS_ACCESS_KEY_ID" => Some("a".into()),
            _ => None,
        };
        configured(&variable, None, (true, true)).expect_err("keys say nothing of where the store is");
        assert_eq!(
            with(Some("a")).expect("as AWS's tools go on").region.map(|told| told.value).as_deref(),
            Some("eu-west-1")
        );
    }
}
