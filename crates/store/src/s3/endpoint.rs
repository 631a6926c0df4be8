//! Where a bucket is: from an endpoint and a name to URLs, and to an identity that doesn't depend on how the
//! endpoint was spelled. Pure.
//!
//! Invariant: a key is encoded byte for byte and never normalised: `a//b`, `..` and a leading slash stay.

use super::Settings;
use block::{Error, Result};
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What AWS's signature encodes in a value of a query: all but the unreserved characters.
pub const STRICT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same for a path, where a slash stays.
pub const STRICT_PATH: AsciiSet = STRICT.remove(b'/');

/// Region signed for where none is known. Servers other than AWS take any; AWS tells the right one.
const REGION: &str = "us-east-1";

/// As what S3 of AWS is called in its hosts, such as `bucket.s3.eu-west-1.amazonaws.com`. What answers with something
/// else than the objects as they are, such as websites, is left out.
const OWN_LABELS: [&str; 6] =
    ["s3", "s3-accelerate", "s3-accesspoint", "s3-accesspoint-fips", "s3-external-1", "s3-fips"];

/// The way to a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    scheme: &'static str,
    /// Host, and port unless it is the scheme's own.
    pub authority: String,
    /// `/bucket`, or nothing where the bucket is in the host.
    path: String,
    pub region: String,
    /// Whether the endpoint was given, rather than derived from the region.
    is_given: bool,
}

impl Route {
    pub fn of(bucket: &str, settings: &Settings) -> Result<Route> {
        check_name(bucket)?;
        let region = settings.region.clone().unwrap_or_else(|| REGION.into());
        let Some(endpoint) = &settings.endpoint else {
            return Ok(Route::aws(bucket, region, settings.path_style.unwrap_or(false)));
        };
        let (scheme, host) = parse(endpoint)?;
        let is_path = settings.path_style.unwrap_or(true);
        let (authority, path) =
            if is_path { (host, format!("/{bucket}")) } else { (format!("{bucket}.{host}"), String::new()) };
        Ok(Route { scheme, authority, path, region, is_given: true })
    }

    fn aws(bucket: &str, region: String, is_path: bool) -> Route {
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let host = format!("s3.{region}.{suffix}");
        // A dot in the bucket's name does not fit the wildcard of the server's certificate.
        let is_path = is_path || bucket.contains('.');
        let (authority, path) =
            if is_path { (host, format!("/{bucket}")) } else { (format!("{bucket}.{host}"), String::new()) };
        Route { scheme: "https", authority, path, region, is_given: false }
    }

    /// The same bucket in another region. A given endpoint stays; only the signature changes.
    pub fn in_region(&self, bucket: &str, region: &str) -> Route {
        if self.is_given {
            return Route { region: region.into(), ..self.clone() };
        }
        Route::aws(bucket, region.into(), !self.path.is_empty())
    }

    /// Whether the endpoint was given, rather than derived from the region.
    pub fn is_given(&self) -> bool {
        self.is_given
    }

    pub fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    /// The region, or how those of its partition begin, if this is S3 of AWS, where the names of buckets are global.
    /// What the host tells of it counts before what was given. A load balancer or a machine at AWS is somebody's own
    /// server.
    fn region_at_aws(&self) -> Option<&str> {
        let host = self.authority.strip_suffix(".amazonaws.com.cn");
        let (host, given) = match host {
            Some(host) => (host, "cn-"),
            None => (self.authority.strip_suffix(".amazonaws.com")?, self.region.as_str()),
        };
        let mut labels = host.strip_suffix(".vpce").unwrap_or(host).rsplit('.').peekable();
        let region = labels.next_if(|label| is_region(label));
        labels.next_if_eq(&"dualstack");
        let service = labels.next().filter(|_| self.is_secure())?;
        if service.starts_with("s3express-") || OWN_LABELS.contains(&service) {
            return Some(region.unwrap_or(given));
        }
        let old = service.strip_prefix("s3-").map(|rest| rest.strip_prefix("fips-").unwrap_or(rest));
        old.filter(|old| region.is_none() && is_region(old))
    }

    /// URL of an object.
    pub fn object(&self, key: &str) -> String {
        let key = utf8_percent_encode(key, &STRICT_PATH);
        format!("{}://{}{}/{key}", self.scheme, self.authority, self.path)
    }

    /// URL of an object with a query.
    pub fn object_with(&self, key: &str, query: &[(&str, &str)]) -> String {
        let url = self.object(key);
        if query.is_empty() { url } else { format!("{url}?{}", encode(query)) }
    }

    /// URL of the bucket with a query.
    pub fn bucket(&self, query: &[(&str, &str)]) -> String {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        format!("{}://{}{path}?{}", self.scheme, self.authority, encode(query))
    }
}

pub fn encode(query: &[(&str, &str)]) -> String {
    let query = query.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, &STRICT)));
    query.collect::<Vec<_>>().join("&")
}

/// `s3://bucket` on AWS; elsewhere with the host, for another server may have a bucket of the same name.
/// Partitions of AWS (China, GovCloud) are worlds of their own, too.
pub fn identity(bucket: &str, route: &Route) -> String {
    let Some(region) = route.region_at_aws() else {
        let own_host = route.authority.strip_prefix(bucket).and_then(|rest| rest.strip_prefix('.'));
        let host = if route.path.is_empty() { own_host.unwrap_or(&route.authority) } else { &route.authority };
        return format!("s3://{bucket}@{}", named(route.scheme, host));
    };
    match ["cn-", "us-gov-", "us-iso"].iter().find(|&partition| region.starts_with(partition)) {
        Some(partition) => format!("s3://{bucket}@aws-{}", partition.trim_end_matches('-')),
        None => format!("s3://{bucket}"),
    }
}

/// How identities begin to name a server that proved by TLS who it is.
const PROVED: &str = "@https://";

/// A server, as an identity names it: what came over plain HTTP, where anybody on the way may have answered, is never taken
/// for what came over TLS.
pub fn named(scheme: &str, server: &str) -> String {
    let proved = if scheme == "https" { &PROVED[1..] } else { "" };
    format!("{proved}{server}")
}

/// The same identity in the words of earlier versions, which named servers without what they prove.
pub fn named_before(identity: &str) -> String {
    identity.replacen(PROVED, "@", 1)
}

/// Whether this is written as regions are: `us-gov-west-1`.
fn is_region(label: &str) -> bool {
    let is_letters = label.split_once('-').is_some_and(|(begins, _)| begins.len() == 2 && begins != "s3");
    is_letters && label.ends_with(|last: char| last.is_ascii_digit())
}

/// Scheme and authority of an endpoint, in one spelling.
fn parse(endpoint: &str) -> Result<(&'static str, String)> {
    let Server { scheme, authority, path } = Server::parse(endpoint)?;
    if !path.is_empty() {
        return Err(Error::invalid("the endpoint has a path", endpoint).hint(WRITTEN));
    }
    Ok((scheme, authority))
}

/// How an endpoint is written.
const WRITTEN: &str = "write it as https://host or http://host:port";

/// An endpoint in one spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub scheme: &'static str,
    /// Host, and port unless it is the scheme's own.
    pub authority: String,
    /// Without a slash at its end.
    pub path: String,
}

impl Server {
    pub fn parse(endpoint: &str) -> Result<Server> {
        let wrong = |what: &str| Error::invalid(what, endpoint).hint(WRITTEN);
        let uri: Uri = endpoint.trim().parse().map_err(|_| wrong("the endpoint is not a URL"))?;
        let (scheme, usual_port) = match uri.scheme_str() {
            Some("http") => ("http", 80),
            Some("https") => ("https", 443),
            Some(other) => return Err(wrong(&format!("`{other}` is not http or https"))),
            None => return Err(wrong("the endpoint has no scheme")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("the endpoint has no host"))?;
        if uri.query().is_some() {
            return Err(Error::invalid("the endpoint has a query", host).hint(WRITTEN));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(Error::invalid("the endpoint holds a user name", host)
                .hint("give credentials by a profile or the environment"));
        }
        let host = host.to_ascii_lowercase();
        let host = host.trim_end_matches('.');
        let port = uri.port_u16().filter(|&port| port != usual_port);
        let authority = port.map_or(host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Server { scheme, authority, path: uri.path().trim_end_matches('/').to_owned() })
    }
}

/// Refuse what can't be the name of a bucket before it becomes part of a host name.
fn check_name(bucket: &str) -> Result<()> {
    let is_fine = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'.' | b'_');
    if (1..=255).contains(&bucket.len()) && bucket.bytes().all(is_fine) && !bucket.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(Error::invalid("this can't be the name of a bucket", bucket).hint("write s3://bucket/prefix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(endpoint: &str) -> Result<Route> {
        Route::of("b", &Settings { endpoint: Some(endpoint.into()), ..Settings::default() })
    }

    #[test]
    fn an_identity_does_not_depend_on_the_spelling_of_the_endpoint() {
        for endpoint in ["http://Minio.Local:80", "http://minio.local", "http://minio.local/", "http://minio.local."] {
            assert_eq!(identity("b", &route(endpoint).expect("valid")), "s3://b@minio.local", "{endpoint}");
        }
        for endpoint in ["https://Minio.Local:443/", "https://minio.local"] {
            assert_eq!(identity("b", &route(endpoint).expect("valid")), "s3://b@https://minio.local", "{endpoint}");
        }
        assert_eq!(identity("b", &route("http://minio.local:9000").expect("valid")), "s3://b@minio.local:9000");
        let virtual_style =
            Settings { endpoint: Some("http://minio.local".into()), path_style: Some(false), ..Settings::default() };
        let virtual_style = Route::of("b", &virtual_style).expect("valid");
        assert_eq!(identity("b", &virtual_style), "s3://b@minio.local");
        assert_eq!(virtual_style.object("k"), "http://b.minio.local/k");
    }

    #[test]
    fn what_came_over_plain_http_is_of_another_store_than_what_came_over_tls() {
        for host in ["minio.local", "minio.local:9000", "s3.us-east-1.amazonaws.com", "[::1]:9000"] {
            let [plain, proved] = ["http", "https"].map(|scheme| {
                let endpoint = format!("{scheme}://{host}");
                identity("b", &route(&endpoint).expect("valid"))
            });
            assert_ne!(plain, proved, "{host}");
            assert_eq!(named_before(&plain), plain, "as it was always named");
        }
        assert_eq!(named_before("s3://b@https://minio.local:9000"), "s3://b@minio.local:9000");
        assert_eq!(named_before("https://host"), "https://host");
    }

    #[test]
    fn aws_is_one_world_and_its_partitions_are_others() {
        let plain = Route::of("b", &Settings::default()).expect("valid");
        assert_eq!(identity("b", &plain), "s3://b");
        assert_eq!(identity("b", &route("https://s3.eu-west-1.amazonaws.com").expect("valid")), "s3://b");
        let china = Settings { region: Some("cn-north-1".into()), ..Settings::default() };
        let china = Route::of("b", &china).expect("valid");
        assert_eq!(identity("b", &china), "s3://b@aws-cn");
        assert_eq!(china.object("k"), "https://b.s3.cn-north-1.amazonaws.com.cn/k");
        assert_eq!(plain.in_region("b", "eu-west-1").object("k"), "https://b.s3.eu-west-1.amazonaws.com/k");
    }

    #[test]
    fn only_hosts_of_s3_itself_are_aws_and_tell_its_partition() {
        for (host, expected) in [
            ("s3", "s3://b"),
            ("s3-eu-west-1", "s3://b"),
            ("s3-external-1", "s3://b"),
            ("s3-accelerate", "s3://b"),
            ("s3-accelerate.dualstack", "s3://b"),
            ("s3.dualstack.eu-west-1", "s3://b"),
            ("s3-fips.us-east-2", "s3://b"),
            ("s3-fips.dualstack.us-gov-east-1", "s3://b@aws-us-gov"),
            ("s3-us-gov-west-1", "s3://b@aws-us-gov"),
            ("s3-fips-us-gov-west-1", "s3://b@aws-us-gov"),
            ("data.s3.us-gov-west-1", "s3://b@aws-us-gov"),
            ("bucket.vpce-1a2b-3c.s3.us-east-1.vpce", "s3://b"),
            ("point-123456789012.s3-accesspoint.us-west-2", "s3://b"),
            ("s3express-use1-az4.us-east-1", "s3://b"),
        ] {
            let own = route(&format!("https://{host}.amazonaws.com")).expect(host);
            assert_eq!(identity("b", &own), expected, "{host}");
        }
        for host in ["s3.cn-north-1", "s3.dualstack.cn-northwest-1", "s3"] {
            let china = route(&format!("https://{host}.amazonaws.com.cn")).expect(host);
            assert_eq!(identity("b", &china), "s3://b@aws-cn", "{host}");
        }
        for endpoint in [
            "http://minio-123.us-east-1.elb.amazonaws.com",
            "https://s3-123.us-east-1.elb.amazonaws.com",
            "https://s3.elb.amazonaws.com",
            "https://ec2-3-4-5-6.compute-1.amazonaws.com",
            "https://ec2-3-4-5-6.eu-west-1.compute.amazonaws.com",
            "https://vpce-1a-2b.vpce-svc-3c.us-east-1.vpce.amazonaws.com",
            "https://b.s3-website-us-east-1.amazonaws.com",
            "https://p-1.s3-object-lambda.us-east-1.amazonaws.com",
            "https://s3.us-east-1.amazonaws.com:9000",
            "http://s3.us-east-1.amazonaws.com",
            "https://s3.us-east-1.amazonaws.com.example.org",
        ] {
            let other = route(endpoint).expect(endpoint);
            let server = endpoint.strip_prefix("http://").unwrap_or(endpoint);
            assert_eq!(identity("b", &other), format!("s3://b@{server}"));
        }
    }

    #[test]
    fn a_key_is_encoded_and_never_normalised() {
        let route = route("http://h:1").expect("valid");
        let odd = "/a//b/../c d+e%f\u{e9}?#&=~";
        assert_eq!(route.object(odd), "http://h:1/b//a//b/../c%20d%2Be%25f%C3%A9%3F%23%26%3D~");
        assert_eq!(route.bucket(&[("prefix", "a/ b")]), "http://h:1/b?prefix=a%2F%20b");
    }

    #[test]
    fn a_wrong_endpoint_or_bucket_says_what_would_do() {
        for endpoint in ["minio:9000", "ftp://h", "http://h/path", "http://user:secret@h", "http://", ""] {
            let error = route(endpoint).expect_err(endpoint);
            assert!(!error.hint.is_empty() && !error.to_string().contains("user:secret"), "{error}");
        }
        assert!(Route::of("a/b", &Settings::default()).is_err());
        assert!(Route::of("", &Settings::default()).is_err());
    }
}
