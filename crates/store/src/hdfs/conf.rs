//! What Hadoop's own files say of a cluster: `core-site.xml` and `hdfs-site.xml` of HADOOP_CONF_DIR.
//!
//! They are read here and not by the library, which would look into the environment of the node: a node belongs to
//! several mounts, each with a configuration of its own.
//!
//! Invariant: a file that is named and can't be understood is an error, never a shorter configuration.

use super::Settings;
use crate::s3::page;
use block::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Where a name node listens unless it is said, as `fs.defaultFS` has it.
const PORT: u16 = 8020;

/// Bytes of a file at most. Those of large clusters have some tens of kilobytes.
const FILE_MAX: u64 = 4 << 20;

/// Times that `${name}` within a value is replaced, as Hadoop has it.
const SUBSTITUTED_MAX: usize = 20;

/// How long a data node may be silent before the library asks another, in milliseconds. A first try has twenty seconds
/// (`Settings::budget` of an origin), and the library asks a node that fell silent within a body twice.
const DATA_NODE_MS: &str = "5000";

/// The properties of a cluster.
#[derive(Debug, Default)]
pub struct Configuration(BTreeMap<String, String>);

/// One name node of several, or the only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// As errors name it: `host:port`.
    pub address: String,
    /// As the library is to be asked for it.
    pub url: String,
    /// What of the configuration is another for it.
    changed: Option<(String, String)>,
}

impl Configuration {
    /// What the variables lead to; empty where they name nothing.
    pub fn read(settings: &Settings) -> Result<Configuration> {
        let named = settings.variable("HADOOP_CONF_DIR").map(PathBuf::from);
        let home = || settings.variable("HADOOP_HOME").map(|home| Path::new(home).join("etc/hadoop"));
        let Some(folder) = named.clone().or_else(home) else { return Ok(Configuration::default()) };
        let (mut all, mut found) = (BTreeMap::new(), false);
        for name in ["core-site.xml", "hdfs-site.xml"] {
            let path = folder.join(name);
            match text(&path)? {
                Some(text) => {
                    all.extend(parse(&text, &path)?);
                    found = true;
                }
                None => continue,
            }
        }
        if !found && named.is_some() {
            let error = Error::invalid("the folder that HADOOP_CONF_DIR names has no core-site.xml", folder.display());
            return Err(error.hint("name the folder that Hadoop's own tools go by, or unset it"));
        }
        let whole = all.keys().map(|name| (name.clone(), substituted(&all, name))).collect();
        Ok(Configuration(whole))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether a name node wants to know by Kerberos who asks.
    pub fn is_secure(&self) -> bool {
        self.get("hadoop.security.authentication").is_some_and(|way| !way.eq_ignore_ascii_case("simple"))
    }

    /// Identity of a cluster, and its name nodes. The authority is that of a URL; an empty one means `fs.defaultFS`.
    pub fn servers(&self, authority: &str) -> Result<(String, Vec<Server>)> {
        let authority = match authority {
            "" => self.usual()?,
            authority => authority,
        };
        if let Some(members) = self.get(&format!("dfs.ha.namenodes.{authority}")) {
            let server = |name: &str| {
                let address = self.get(&format!("dfs.namenode.rpc-address.{authority}.{name}"));
                let changed = Some((format!("dfs.ha.namenodes.{authority}"), name.to_owned()));
                Some(Server { address: address?.into(), url: format!("hdfs://{authority}"), changed })
            };
            let names = members.split(',').map(str::trim).filter(|name| !name.is_empty());
            let servers: Option<Vec<Server>> = names.map(server).collect();
            return match servers {
                Some(servers) if !servers.is_empty() => {
                    // The name alone is a nickname, which elsewhere leads to another cluster.
                    let mut all: Vec<_> = servers.iter().map(|server| with_port(&server.address)).collect();
                    all.sort_unstable();
                    Ok((format!("hdfs://{authority}@{}", all.join(",")), servers))
                }
                _ => {
                    let what = "a name node of this name service has no dfs.namenode.rpc-address";
                    Err(Error::invalid(what, format!("hdfs://{authority}")).hint("look into hdfs-site.xml"))
                }
            };
        }
        let address = with_port(self.get(&format!("dfs.namenode.rpc-address.{authority}")).unwrap_or(authority));
        let url = format!("hdfs://{address}");
        Ok((url.clone(), vec![Server { address, url, changed: None }]))
    }

    /// Whether it names an authority itself: as a name service, or as what `hdfs:///path` means.
    pub fn names(&self, authority: &str) -> bool {
        let of_it = ["dfs.ha.namenodes", "dfs.namenode.rpc-address"].map(|what| format!("{what}.{authority}"));
        let is_usual = || self.usual().is_ok_and(|usual| with_port(usual) == with_port(authority));
        of_it.iter().any(|name| self.get(name).is_some()) || is_usual()
    }

    /// What `hdfs:///path` means.
    fn usual(&self) -> Result<&str> {
        let named = self.get("fs.defaultFS").or_else(|| self.get("fs.default.name"));
        let authority = named.and_then(|url| url.strip_prefix("hdfs://")).map(|rest| rest.trim_end_matches('/'));
        let authority = authority.filter(|authority| !authority.is_empty() && !authority.contains('/'));
        authority.ok_or_else(|| {
            let error = Error::invalid("no name node is named, and no fs.defaultFS of hdfs://", "hdfs:///");
            error.hint("write hdfs://namenode:port/path, or set HADOOP_CONF_DIR")
        })
    }

    /// All that the library is to know for one name node. Who is asked next, and when, is decided here and not by it.
    pub fn of(&self, server: &Server) -> HashMap<String, String> {
        let is_ours = |name: &str| name.starts_with("dfs.client.failover.");
        let mut all: HashMap<String, String> = self
            .0
            .iter()
            .filter(|(name, _)| !is_ours(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        all.entry("dfs.client.socket-timeout".into()).or_insert_with(|| DATA_NODE_MS.into());
        all.insert("dfs.client.failover.max.attempts".into(), "0".into());
        all.extend(server.changed.clone());
        all
    }
}

/// An address as all spellings of it have it.
fn with_port(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { address } else { format!("{address}:{PORT}") }
}

/// A file, if it is there.
fn text(path: &Path) -> Result<Option<String>> {
    let read = || {
        if std::fs::metadata(path)?.len() > FILE_MAX {
            return Err(std::io::Error::other(format!("it has more than {FILE_MAX} bytes")));
        }
        std::fs::read_to_string(path)
    };
    match read() {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("Hadoop's configuration can't be read", path.display(), &error)),
    }
}

/// The properties of one file.
fn parse(text: &str, path: &Path) -> Result<BTreeMap<String, String>> {
    let wrong =
        |what: String, hint: &str| Error::invalid(format!("Hadoop's configuration {what}"), path.display()).hint(hint);
    let (mut found, mut includes) = (BTreeMap::new(), false);
    let (mut name, mut value) = (String::new(), String::new());
    let walked = page::walk(text.as_bytes(), &mut |way, text| match (way, text) {
        ("configuration/property", None) => (name, value) = Default::default(),
        ("configuration/property/name", Some(text)) => text.trim().clone_into(&mut name),
        ("configuration/property/value", Some(text)) => text.trim().clone_into(&mut value),
        ("configuration/property", Some(_)) if !name.is_empty() => {
            found.insert(std::mem::take(&mut name), std::mem::take(&mut value));
        }
        (way, None) => includes |= way.ends_with("/include"),
        _ => {}
    });
    walked.map_err(|error| wrong(format!("is no XML: {error}"), "see whether Hadoop's own tools take it"))?;
    if includes {
        let hint = "copy the properties of the other file into this one";
        return Err(wrong("includes another file, which is not followed".into(), hint));
    }
    Ok(found)
}

/// A value with `${other}` replaced by the values of others; what isn't known stays.
fn substituted(all: &BTreeMap<String, String>, name: &str) -> String {
    let mut value = all[name].clone();
    let mut from = 0;
    for _ in 0..SUBSTITUTED_MAX {
        let Some(start) = value[from..].find("${").map(|at| from + at) else { break };
        let Some(end) = value[start..].find('}').map(|at| start + at) else { break };
        match all.get(&value[start + 2..end]) {
            Some(other) => value.replace_range(start..=end, &other.clone()),
            None => from = end,
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "<?xml version=\"1.0\"?><!-- of a cluster --><configuration>
      <property><name>fs.defaultFS</name><value>hdfs://blue/</value><final>true</final></property>
      <property><name>dfs.ha.namenodes.blue</name><value>nn1, nn2</value></property>
      <property><name>host</name><value>one&amp;only.example</value></property>
      <property><name>dfs.namenode.rpc-address.blue.nn1</name><value>${host}:8020</value></property>
      <property><name>dfs.namenode.rpc-address.blue.nn2</name><value>two:9000</value></property>
      <property><name>dfs.client.failover.max.attempts</name><value>99</value></property>
      <property><name>round</name><value>${round}${absent}</value></property></configuration>";

    fn read(text: &str) -> Result<Configuration> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("hdfs-site.xml"), text).expect("written");
        let variables = [("HADOOP_CONF_DIR".to_owned(), folder.path().to_str().expect("a path").to_owned())];
        Configuration::read(&Settings { variables: variables.into(), ..Settings::default() })
    }

    #[test]
    fn a_name_service_leads_to_its_name_nodes_each_of_which_is_asked_alone() {
        let all = read(FILE).expect("a configuration");
        let (identity, servers) = all.servers("").expect("servers");
        assert_eq!(identity, "hdfs://blue@one&only.example:8020,two:9000");
        assert_eq!(all.servers("blue").expect("servers"), (identity, servers.clone()));
        let addresses: Vec<_> = servers.iter().map(|server| server.address.as_str()).collect();
        assert_eq!(addresses, ["one&only.example:8020", "two:9000"]);
        let told = all.of(&servers[1]);
        assert_eq!(told["dfs.ha.namenodes.blue"], "nn2");
        assert_eq!(told["dfs.client.failover.max.attempts"], "0");
    }

    #[test]
    fn clusters_of_one_nickname_are_two_and_one_cluster_is_one_however_its_nodes_are_ordered() {
        let identity = |text: &str| read(text).expect("a configuration").servers("blue").expect("servers").0;
        let turned = FILE.replace("nn1, nn2", "nn2,nn1").replace("${host}:8020", "One&amp;Only.example");
        assert_eq!(identity(FILE), identity(&turned));
        assert_ne!(identity(FILE), identity(&FILE.replace("two:9000", "three:9000")));
    }

    #[test]
    fn a_name_node_without_a_port_has_the_usual_one() {
        let identity = |authority| Configuration::default().servers(authority).expect("a server").0;
        assert_eq!([identity("Host"), identity("host:8020")], ["hdfs://host:8020", "hdfs://host:8020"]);
        assert_eq!(identity("10.0.0.1:9000"), "hdfs://10.0.0.1:9000");
        assert!(Configuration::default().servers("").expect_err("no default").hint.contains("HADOOP_CONF_DIR"));
    }

    #[test]
    fn a_configuration_that_cant_be_understood_is_refused_and_named() {
        for (text, said) in [
            ("<configuration><property>", "cut short"),
            ("<configuration><property><name>a</value>", "is no XML"),
            ("<configuration><xi:include href=\"b.xml\"/></configuration>", "includes another file"),
            ("<configuration><property><name>&x;</name></property></configuration>", "entity"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.what.contains(said) && error.on.ends_with("hdfs-site.xml"), "{error}");
        }
        let variables = [("HADOOP_CONF_DIR".to_owned(), "/absent".to_owned())];
        let settings = Settings { variables: variables.into(), ..Settings::default() };
        assert!(Configuration::read(&settings).expect_err("absent").what.contains("core-site.xml"));
    }
}
