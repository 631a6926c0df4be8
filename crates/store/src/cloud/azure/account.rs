//! Which account a container is of, and where that is: from what was typed and from the variables that Azure's own tools
//! read. Pure.
//!
//! Invariant: one container has one identity, however its account was named.

use super::super::Settings;
use crate::s3::endpoint::Server;
use block::{Error, Result};

/// The usual cloud; national ones have others.
const SUFFIX: &str = "core.windows.net";

/// The account of emulators, which everybody knows, and its key.
const EMULATED: (&str, &str) =
    ("devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==");

/// Where emulators listen.
const EMULATOR: &str = "http://127.0.0.1:10000/devstoreaccount1";

/// An account.
#[derive(Clone)]
pub struct Account {
    pub name: String,
    pub server: Server,
    /// A key or a signature that the connection string holds.
    pub key: Option<String>,
    pub signature: Option<String>,
}

impl Account {
    /// The account: that of the location, else of the endpoint, else of the variables.
    pub fn of(host: Option<&str>, settings: &Settings) -> Result<Account> {
        let text = Connection::parse(settings.variable("AZURE_STORAGE_CONNECTION_STRING").unwrap_or_default());
        let named =
            settings.variable("AZURE_STORAGE_ACCOUNT_NAME").or_else(|| settings.variable("AZURE_STORAGE_ACCOUNT"));
        let named = named.or(text.account);
        let endpoint = match (host, settings.endpoint.as_deref().or(text.endpoint)) {
            (Some(host), None) => format!("https://{host}"),
            (_, Some(endpoint)) => endpoint.to_owned(),
            (None, None) => {
                let named = named.ok_or_else(|| nameless("no account is named"))?;
                let scheme = text.protocol.unwrap_or("https");
                format!("{scheme}://{named}.blob.{}", text.suffix.unwrap_or(SUFFIX))
            }
        };
        let server = Server::parse(&endpoint)?;
        // Some write the endpoint of folders, which has another interface.
        let authority =
            if server.authority.contains(".dfs.core.") { blob_host(&server.authority) } else { server.authority };
        let server = Server { authority, ..server };
        // Where the account is a step of the path it is known by it, as with emulators.
        let in_path = server.path.trim_start_matches('/').split('/').next().filter(|step| !step.is_empty());
        let in_host = server.authority.split_once(".blob.").and_then(|(name, _)| name.split('.').next());
        let of_location = host.and_then(|host| host.split_once('.')).map(|(name, _)| name);
        let name = of_location.or(in_path).or(in_host).or(named);
        let name = name.ok_or_else(|| nameless("the endpoint does not say which account it is of"))?.to_owned();
        // What the string holds is of the account that it names.
        let (key, signature) = match text.account.is_none_or(|account| account == name) {
            true => (text.key.map(str::to_owned), text.signature.map(str::to_owned)),
            false => (None, None),
        };
        Ok(Account { name, server, key, signature })
    }

    /// `az://container@account`, or with the server where it is not the account's own.
    pub fn identity(&self, container: &str) -> String {
        let Server { authority, path, .. } = &self.server;
        // A private network has a name of its own for the same account.
        let own = ["", ".privatelink"].map(|private| format!("{}{private}.blob.{SUFFIX}", self.name));
        if own.contains(authority) && path.is_empty() {
            return format!("az://{container}@{}", self.name);
        }
        format!("az://{container}@{authority}{path}")
    }
}

fn nameless(what: &str) -> Error {
    let hint = "set AZURE_STORAGE_ACCOUNT, or write abfss://container@account.dfs.core.windows.net/prefix";
    Error::invalid(what, "the storage account").hint(hint)
}

/// What a connection string says.
#[derive(Default)]
struct Connection<'a> {
    account: Option<&'a str>,
    key: Option<&'a str>,
    signature: Option<&'a str>,
    endpoint: Option<&'a str>,
    protocol: Option<&'a str>,
    suffix: Option<&'a str>,
}

impl<'a> Connection<'a> {
    fn parse(text: &'a str) -> Connection<'a> {
        let mut found = Connection::default();
        for (name, value) in text.split(';').filter_map(|part| part.trim().split_once('=')) {
            let value = Some(value.trim()).filter(|value| !value.is_empty());
            match name {
                "AccountName" => found.account = value,
                "AccountKey" => found.key = value,
                "SharedAccessSignature" => found.signature = value,
                "BlobEndpoint" => found.endpoint = value,
                "DefaultEndpointsProtocol" => found.protocol = value,
                "EndpointSuffix" => found.suffix = value,
                "UseDevelopmentStorage" if value == Some("true") => {
                    found = Connection {
                        account: Some(EMULATED.0),
                        key: Some(EMULATED.1),
                        endpoint: Some(EMULATOR),
                        ..Connection::default()
                    };
                }
                _ => {}
            }
        }
        found
    }
}

/// The host of the account of `abfss://container@account.dfs.core.windows.net`: blobs have their own.
pub fn blob_host(host: &str) -> String {
    host.to_ascii_lowercase().replacen(".dfs.", ".blob.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(host: Option<&str>, endpoint: Option<&str>, variables: &[(&str, &str)]) -> Result<Account> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Account::of(host, &Settings { endpoint: endpoint.map(Into::into), variables, ..Settings::default() })
    }

    fn identity(host: Option<&str>, endpoint: Option<&str>, variables: &[(&str, &str)]) -> String {
        account(host, endpoint, variables).expect("an account").identity("c")
    }

    const TEXT: &str = "AZURE_STORAGE_CONNECTION_STRING";

    #[test]
    fn an_account_has_one_identity_however_it_is_named() {
        let host = blob_host("Acc.dfs.core.windows.net");
        assert_eq!(identity(Some(&host), None, &[]), "az://c@acc");
        assert_eq!(identity(None, None, &[("AZURE_STORAGE_ACCOUNT", "acc")]), "az://c@acc");
        assert_eq!(identity(None, Some("https://acc.blob.core.windows.net/"), &[]), "az://c@acc");
        assert_eq!(identity(None, Some("https://acc.dfs.core.windows.net/"), &[]), "az://c@acc");
        assert_eq!(identity(None, Some("https://acc.privatelink.blob.core.windows.net"), &[]), "az://c@acc");
        let text = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.windows.net";
        assert_eq!(identity(None, None, &[(TEXT, text)]), "az://c@acc");
        assert_eq!(
            identity(None, Some("http://127.0.0.1:10000/dev"), &[("AZURE_STORAGE_ACCOUNT", "other")]),
            "az://c@127.0.0.1:10000/dev"
        );
        let china = Some("acc.blob.core.chinacloudapi.cn");
        assert_eq!(identity(china, None, &[]), "az://c@acc.blob.core.chinacloudapi.cn");
    }

    #[test]
    fn a_key_is_used_for_the_account_that_its_string_names_and_no_other() {
        let text = "AccountName=acc;AccountKey=a2V5";
        let key = |host| account(host, None, &[(TEXT, text)]).expect("an account").key;
        assert_eq!(key(None).as_deref(), Some("a2V5"));
        assert_eq!(key(Some("other.blob.core.windows.net")), None);
        let emulated = account(None, None, &[(TEXT, "UseDevelopmentStorage=true")]).expect("an account");
        assert_eq!((&*emulated.name, &*emulated.server.authority), ("devstoreaccount1", "127.0.0.1:10000"));
    }

    #[test]
    fn a_location_without_an_account_says_how_to_name_it() {
        let error = account(None, None, &[]).err().expect("no account");
        assert!(error.hint.contains("AZURE_STORAGE_ACCOUNT"), "{error}");
    }
}
