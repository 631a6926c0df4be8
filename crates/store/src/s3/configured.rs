//! Where AWS's tools were told that S3 is: endpoint and region, out of the environment and the files of profiles.
//!
//! The files are read line by line, because what is indented below `s3 =` of a section of services belongs to it, and to no
//! other service. Invariant: of keys and tokens nothing is looked at.

use block::{Error, Result};
use std::path::PathBuf;

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
    let files = if needs_file || needs.0 && ignored.is_none() && found.endpoint.is_some() {
        Files::read(&variable)?
    } else {
        Files::default()
    };
    let name = named().unwrap_or_else(|| "default".into());
    let is_ignored = ignored.unwrap_or_else(|| {
        files.get(&name, "ignore_configured_endpoint_urls").is_some_and(|told| is_true(&told.value))
    });
    if is_ignored {
        found.endpoint = None;
    } else if found.endpoint.is_none() {
        found.endpoint = files.service(&name).or_else(|| files.get(&name, "endpoint_url"));
    }
    found.region = found.region.or_else(|| files.get(&name, "region"));
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

/// The two files, each with its path.
#[derive(Default)]
struct Files {
    config: (String, String),
    credentials: (String, String),
}

impl Files {
    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Files> {
        let read = |name: &str, usual: &str| {
            let place = variable(name).unwrap_or_else(|| usual.into());
            let path = match place.strip_prefix("~/") {
                None => PathBuf::from(place),
                Some(rest) => match variable("HOME") {
                    Some(home) => PathBuf::from(home).join(rest),
                    None => return Ok(Default::default()),
                },
            };
            let shown = path.display().to_string();
            if !path.exists() {
                return Ok((shown, String::new()));
            }
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok((shown, text)),
                // Keys in the environment go before all files, which need not even be readable.
                Err(_) if variable("AWS_ACCESS_KEY_ID").is_some() => Ok((shown, String::new())),
                Err(error) => Err(Error::io("the file of profiles can't be read", shown, &error).hint(
                    "see to its permissions, or name another file by AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE",
                )),
            }
        };
        let config = read("AWS_CONFIG_FILE", "~/.aws/config")?;
        Ok(Files { config, credentials: read("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")? })
    }

    /// A value of a profile. The file of credentials goes first.
    fn get(&self, profile: &str, name: &str) -> Option<Told> {
        let told = |(path, text): &(String, String), section: &str| {
            let value = value(text, section, None, name)?;
            Some(Told { value, by: format!("{path}, [{section}]"), is_variable: false })
        };
        let in_config = || told(&self.config, &format!("profile {profile}"));
        let by_default = || told(&self.config, profile).filter(|_| profile == "default");
        told(&self.credentials, profile).or_else(in_config).or_else(by_default)
    }

    /// The endpoint of S3 in the section of services that a profile names.
    fn service(&self, profile: &str) -> Option<Told> {
        let section = format!("services {}", self.get(profile, "services")?.value);
        let (path, text) = &self.config;
        let value = value(text, &section, Some("s3"), "endpoint_url")?;
        Some(Told { value, by: format!("{path}, [{section}]"), is_variable: false })
    }
}

/// A value in a section, itself or indented below `above`; what comes last counts.
fn value(text: &str, section: &str, above: Option<&str>, name: &str) -> Option<String> {
    let (mut is_here, mut level, mut last, mut found) = (false, None, "", None);
    for line in text.lines() {
        let inside = line.trim();
        if inside.is_empty() || inside.starts_with(['#', ';']) {
            continue;
        }
        if let Some(head) = inside.strip_prefix('[').filter(|_| line.starts_with('[')) {
            let words: Vec<_> = head.split(']').next().unwrap_or_default().split_whitespace().collect();
            (is_here, level) = (words.join(" ").replace(['"', '\''], "") == section, None);
            continue;
        }
        let Some((key, set)) = inside.split_once('=').filter(|_| is_here) else { continue };
        let indent = line.len() - line.trim_start().len();
        let is_below = level.is_some_and(|level| indent > level);
        if !is_below {
            (level, last) = (Some(indent), key.trim());
        }
        let is_meant = key.trim().eq_ignore_ascii_case(name) && is_below == above.is_some();
        if is_meant && above.is_none_or(|above| above.eq_ignore_ascii_case(last)) {
            let set = set.split([' ', '\t']).find(|word| !word.is_empty()).unwrap_or_default();
            found = Some(set.to_owned()).filter(|set| !set.is_empty());
        }
    }
    found
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
}
