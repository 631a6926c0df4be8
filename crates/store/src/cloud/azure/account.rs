//! Which account a container is of, and where that is: from what was typed and from the variables that Azure's own tools
//! read. Pure.
//!
//! Invariant: one container has one identity, however its account was named.

use super::super::Settings;
use crate::s3::endpoint::{Server, named};
use block::{Error, Result};

/// The variable of a connection string.
const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";

/// The usual cloud; national ones have others.
const SUFFIX: &str = "core.windows.net";

/// What hosts of Azure end with. Whatever else a location names is somebody's server, which is to get no credentials
/// unasked.
const SUFFIXES: [&str; 6] = [
    ".blob.core.windows.net",
    ".blob.storage.azure.net",
    ".blob.fabric.microsoft.com",
    ".blob.core.chinacloudapi.cn",
    ".blob.core.usgovcloudapi.net",
    ".blob.core.cloudapi.de",
];

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
    /// The account: that of the location, else of the endpoint, else of the variables. What was typed is never
    /// overruled by a variable.
    pub fn of(host: Option<&str>, settings: &Settings) -> Result<Account> {
        let told = settings.variable(CONNECTION).unwrap_or_default();
        let text = Connection::parse(told);
        if !told.trim().is_empty() && text == Connection::default() {
            // It may be a key: nothing of it is shown.
            let error = Error::invalid("the connection string is not understood", CONNECTION);
            return Err(error.hint("it is written as AccountName=NAME;AccountKey=KEY; unset it if it is not meant"));
        }
        let named =
            settings.variable("AZURE_STORAGE_ACCOUNT_NAME").or_else(|| settings.variable("AZURE_STORAGE_ACCOUNT"));
        let named = named.or(text.account);
        let endpoint = match (settings.endpoint.as_deref(), host, text.endpoint) {
            (Some(endpoint), _, _) | (None, None, Some(endpoint)) => endpoint.to_owned(),
            (None, Some(host), _) if is_azures(host) => format!("https://{host}"),
            (None, Some(host), _) => {
                let error = Error::invalid("this is no host of Azure's", host);
                return Err(error.hint("if it is meant, name it as --endpoint https://HOST, too"));
            }
            (None, None, None) => {
                let named = named.ok_or_else(|| nameless("no account is named"))?;
                let scheme = text.protocol.unwrap_or("https");
                format!("{scheme}://{named}.blob.{}", text.suffix.unwrap_or(SUFFIX))
            }
        };
        let server = server(&endpoint)?;
        let of_location = host.and_then(|host| host.split_once('.')).map(|(name, _)| name);
        let of_endpoint = named_by(&server);
        if let Some((one, other)) = of_location.zip(of_endpoint).filter(|(one, other)| one != other) {
            let error =
                Error::invalid(format!("the endpoint is of the account {other}, and the URL of {one}"), endpoint);
            return Err(error.hint("leave out --endpoint, or name the same account by both"));
        }
        let name = of_location.or(of_endpoint).or(named);
        let name = name.ok_or_else(|| nameless("the endpoint does not say which account it is of"))?.to_owned();
        // What the string holds is of the account that it names, and of the server that it names.
        let of_text = text.endpoint.and_then(|endpoint| self::server(endpoint).ok());
        let is_its = match (text.account, of_text.as_ref().map(|server| (server, named_by(server)))) {
            (Some(account), None | Some((_, None))) => account == name,
            (account, Some((_, Some(own)))) => own == name && account.is_none_or(|account| account == name),
            (None, Some((own, None))) => *own == server,
            (None, None) => true,
        };
        let held = |text: Option<&str>| text.filter(|_| is_its).map(str::to_owned);
        let (key, signature) = (held(text.key), held(text.signature));
        Ok(Account { name, server, key, signature })
    }

    /// `az://container@account`, or with the server where it is not the account's own.
    pub fn identity(&self, container: &str) -> String {
        let Server { scheme, authority, path } = &self.server;
        // A private network has a name of its own for the same account.
        let own = ["", ".privatelink"].map(|private| format!("{}{private}.blob.{SUFFIX}", self.name));
        if *scheme == "https" && own.contains(authority) && path.is_empty() {
            return format!("az://{container}@{}", self.name);
        }
        format!("az://{container}@{}{path}", named(scheme, authority))
    }
}

/// The server at an endpoint. Some write that of folders, which has another interface.
fn server(endpoint: &str) -> Result<Server> {
    let server = Server::parse(endpoint)?;
    let is_of_folders = server.authority.contains(".dfs.core.");
    let authority = if is_of_folders { blob_host(&server.authority) } else { server.authority };
    Ok(Server { authority, ..server })
}

/// The account that a server names. Where it is a step of the path it is known by it, as with emulators.
fn named_by(server: &Server) -> Option<&str> {
    let in_path = server.path.trim_start_matches('/').split('/').next().filter(|step| !step.is_empty());
    let in_host = || server.authority.split_once(".blob.").and_then(|(name, _)| name.split('.').next());
    in_path.or_else(in_host)
}

fn is_azures(host: &str) -> bool {
    SUFFIXES.iter().any(|suffix| host.strip_suffix(suffix).is_some_and(|account| !account.is_empty()))
}

fn nameless(what: &str) -> Error {
    let hint = "set AZURE_STORAGE_ACCOUNT, or write abfss://container@account.dfs.core.windows.net/prefix";
    Error::invalid(what, "the storage account").hint(hint)
}

/// What a connection string says.
#[derive(Default, PartialEq)]
struct Connection<'a> {
    account: Option<&'a str>,
    key: Option<&'a str>,
    signature: Option<&'a str>,
    endpoint: Option<&'a str>,
    protocol: Option<&'a str>,
    suffix: Option<&'a str>,
}

impl<'a> Connection<'a> {
    /// Names are those that Azure's own libraries know, which don't care how they are written.
    fn parse(text: &'a str) -> Connection<'a> {
        let mut found = Connection::default();
        for (name, value) in text.split(';').filter_map(|part| part.split_once('=')) {
            let value = Some(value.trim()).filter(|value| !value.is_empty());
            match name.trim().to_ascii_lowercase().as_str() {
                "accountname" => found.account = value,
                "accountkey" => found.key = value,
                "sharedaccesssignature" => found.signature = value,
                "blobendpoint" => found.endpoint = value,
                "defaultendpointsprotocol" => found.protocol = value,
                "endpointsuffix" => found.suffix = value,
                "usedevelopmentstorage" if value.is_some_and(|value| value.eq_ignore_ascii_case("true")) => {
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

    const TEXT: &str = CONNECTION;

    #[test]
    fn a_connection_string_that_is_none_is_named_and_not_shown() {
        for text in ["garbage", "s3cr3t==", "account=acc", "; ;"] {
            let error = account(None, None, &[(TEXT, text), ("AZURE_STORAGE_ACCOUNT", "acc")]);
            let error = error.map(|account| account.name).expect_err(text);
            assert!(error.on == TEXT && !error.to_string().contains(text), "{error}");
        }
        assert!(account(None, None, &[(TEXT, " "), ("AZURE_STORAGE_ACCOUNT", "acc")]).is_ok(), "empty is unset");
    }

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
        assert_eq!(identity(china, None, &[]), "az://c@https://acc.blob.core.chinacloudapi.cn");
        let plain = Some("http://acc.blob.core.windows.net");
        assert_eq!(identity(None, plain, &[]), "az://c@acc.blob.core.windows.net", "nobody proves to be Azure there");
    }

    #[test]
    fn a_key_is_used_for_the_account_that_its_string_names_and_no_other() {
        let text = "AccountName=acc;AccountKey=a2V5";
        let key = |host| account(host, None, &[(TEXT, text)]).expect("an account").key;
        assert_eq!(key(None).as_deref(), Some("a2V5"));
        assert_eq!(key(Some("other.blob.core.windows.net")), None);
        for text in ["UseDevelopmentStorage=true", "usedevelopmentstorage=True;"] {
            let emulated = account(None, None, &[(TEXT, text)]).expect("an account");
            assert_eq!((&*emulated.name, &*emulated.server.authority), ("devstoreaccount1", "127.0.0.1:10000"));
        }
        let odd = "accountname = acc ;\n ACCOUNTKEY= a2V5 ; endpointsuffix =core.chinacloudapi.cn;DefaultEndpointsProtocol=HTTPS";
        let odd = account(None, None, &[(TEXT, odd)]).expect("an account");
        assert_eq!(
            (odd.identity("c").as_str(), odd.key.as_deref()),
            ("az://c@https://acc.blob.core.chinacloudapi.cn", Some("a2V5"))
        );
    }

    #[test]
    fn the_account_that_was_typed_is_asked_whatever_the_variables_name() {
        let host = Some("acc.blob.core.windows.net");
        let text = "BlobEndpoint=https://other.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x";
        let typed = account(host, None, &[(TEXT, text)]).expect("an account");
        assert_eq!((typed.identity("c").as_str(), typed.signature), ("az://c@acc", None));
        for own in ["acc.blob.core.windows.net", "acc.dfs.core.windows.net"] {
            let text = text.replace("other.blob.core.windows.net", own);
            let its = account(host, None, &[(TEXT, &text)]).expect("an account");
            assert_eq!(its.signature.as_deref(), Some("sv=1&sig=x"), "{own}");
        }
        // A domain of one's own names no account: its signature is for it alone.
        let text = "BlobEndpoint=https://data.example/;SharedAccessSignature=sv=1&sig=x";
        let named = [(TEXT, text), ("AZURE_STORAGE_ACCOUNT", "acc")];
        assert!(account(None, None, &named).expect("an account").signature.is_some());
        assert_eq!(account(host, None, &named).expect("an account").signature, None);
        let refused = account(host, Some("http://127.0.0.1:10000/other"), &[]).err().expect("a contradiction");
        assert!(refused.what.contains("account other, and the URL of acc"), "{refused}");
        assert!(account(host, Some("https://10.0.0.1"), &[]).is_ok());
    }

    #[test]
    fn a_host_that_is_not_azures_is_asked_only_if_it_is_named_as_the_endpoint_too() {
        for host in
            ["any.host.example", "acc.blob.core.windows.net.example", ".blob.core.windows.net", "blob.core.windows.net"]
        {
            let refused = account(Some(host), None, &[]).err().expect(host);
            assert!(refused.hint.contains("--endpoint"), "{refused}");
        }
        assert!(account(Some("acc.data.example"), Some("https://acc.data.example"), &[]).is_ok());
        for host in ["acc.privatelink.blob.core.windows.net", "acc.z7.blob.storage.azure.net"] {
            assert!(account(Some(host), None, &[]).is_ok(), "{host}");
        }
    }

    #[test]
    fn a_location_without_an_account_says_how_to_name_it() {
        let error = account(None, None, &[]).err().expect("no account");
        assert!(error.hint.contains("AZURE_STORAGE_ACCOUNT"), "{error}");
    }
}
