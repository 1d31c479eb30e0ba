//! Where a database is, and who asks: from the URL, the options and the environment.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lakemark::{Error, Result};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use super::passfile::{self, Found};
use crate::name::{TableName, segment};
use crate::options::Options;

const OPTIONS: &[&str] =
    &["user", "password", "passfile", "sslmode", "sslrootcert", "connect_timeout", "application_name"];
/// Those that the URL may have too.
const IN_URL: &[&str] = &["sslmode", "sslrootcert", "connect_timeout", "application_name"];
const SHAPE: &str = "postgres://host:port/database?sslmode=verify-full";

/// Reads one variable of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How a server is to be trusted, in PostgreSQL's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyFull,
}

/// One database of one server, and the credentials for it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) ssl_mode: SslMode,
    pub(super) root_certificate: Option<PathBuf>,
    pub(super) timeout: Duration,
    pub(super) application: String,
    /// A password file that was left alone because others can read it.
    pub(super) unsafe_passfile: Option<PathBuf>,
}

impl Address {
    pub(super) fn of(url: &str, mut options: Options, environment: Environment<'_>) -> Result<Self> {
        let url = parse(url)?;
        let place = place(&url);
        let bad = |why: String| Error::invalid(why).at(&place);
        let mut setting = |key: &str, variable: &str| {
            let in_url = url.query_pairs().find(|(name, _)| name == key).map(|(_, value)| value.into_owned());
            options.take(key).or(in_url).or_else(|| environment(variable))
        };
        let ssl_mode = match setting("sslmode", "PGSSLMODE").as_deref() {
            Some("disable") => SslMode::Disable,
            None | Some("prefer") => SslMode::Prefer,
            Some("require") => SslMode::Require,
            Some("verify-full") => SslMode::VerifyFull,
            Some(other) => {
                return Err(bad(format!("`{}` is no sslmode that is supported", other.escape_debug()))
                    .way("sslmode is one of disable, prefer, require, verify-full"));
            }
        };
        let root_certificate =
            setting("sslrootcert", "PGSSLROOTCERT").filter(|path| path != "system").map(PathBuf::from);
        if root_certificate.is_some() && matches!(ssl_mode, SslMode::Prefer | SslMode::Require) {
            return Err(bad("a root certificate is given, but the server would not be checked against it".into())
                .way("sslmode = verify-full"));
        }
        let timeout = match setting("connect_timeout", "PGCONNECT_TIMEOUT") {
            None => 30,
            Some(text) => match text.parse::<u64>() {
                Ok(seconds) if seconds > 0 => seconds,
                _ => return Err(bad("connect_timeout is a number of seconds, at least 1".into())),
            },
        };
        let application = setting("application_name", "PGAPPNAME").unwrap_or_else(|| "lakemark".into());
        let user = options.take("user").or(decoded(url.username())).or_else(|| environment("PGUSER"));
        let user = user.filter(|user| !user.is_empty()).ok_or_else(|| {
            bad("no user is given for the database".into())
                .way("postgres://user@host/database")
                .way("storage_options = { user = \"…\" }")
                .way("set PGUSER")
        })?;
        let password = options.take("password").or_else(|| environment("PGPASSWORD")).filter(|text| !text.is_empty());
        let passfile = options.take("passfile");
        options.none_left(OPTIONS)?;

        let mut address = Self {
            host: url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_lowercase(),
            port: url.port().unwrap_or(5432),
            database: decoded(url.path().trim_start_matches('/')).unwrap_or_default(),
            user,
            password,
            ssl_mode,
            root_certificate,
            timeout: Duration::from_secs(timeout),
            application,
            unsafe_passfile: None,
        };
        if address.password.is_none() {
            let path = passfile.or_else(|| environment("PGPASSFILE")).map(PathBuf::from);
            let path = path.or_else(|| Some(PathBuf::from(environment("HOME")?).join(".pgpass")));
            match path.map(|path| passfile::find(&path, &address)) {
                Some(Found::Password(password)) => address.password = Some(password),
                Some(Found::Unsafe(path)) => address.unsafe_passfile = Some(path),
                Some(Found::Nothing) | None => {}
            }
        }
        Ok(address)
    }

    /// For messages: no credentials, but the user.
    pub(super) fn place(&self) -> String {
        format!("postgres://{}@{}/{}", self.user, self.server(), self.database)
    }

    /// The root of `table`.
    pub(super) fn root(&self, table: &TableName) -> String {
        let encode = |raw: String| utf8_percent_encode(&raw, NON_ALPHANUMERIC).to_string();
        let (database, table) = (encode(segment(&self.database)), encode(table.segment()));
        format!("postgres://{}/{database}/{table}", self.server())
    }

    fn server(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

/// Without the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.place())
    }
}

/// `text` as a URL that can be shown but for its user: no password is in it.
fn parse(text: &str) -> Result<Url> {
    // Nothing of the text is shown: what cannot be parsed can hold a password anywhere.
    let bad = |why: &str| Error::invalid(format!("the URL of the database cannot be used: {why}")).way(SHAPE);
    let url = Url::parse(text).map_err(|_| bad("it is no URL"))?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(bad("its scheme is neither `postgres` nor `postgresql`"));
    }
    if url.password().is_some() || url.query_pairs().any(|(key, _)| key.eq_ignore_ascii_case("password")) {
        return Err(Error::invalid("there is a password in the URL of the database")
            .safe("it was not used, and it is not shown here")
            .way("set PGPASSWORD")
            .way("a password file: PGPASSFILE, or ~/.pgpass with mode 0600")
            .way("storage_options = { password = \"${NAME}\" }, from the environment"));
    }
    match url.host_str() {
        None | Some("") => return Err(bad("it names no host; Unix sockets are not supported")),
        Some(hosts) if hosts.contains(',') || hosts.contains("%2C") => return Err(bad("it names several hosts")),
        Some(_) => {}
    }
    let database = decoded(url.path().trim_start_matches('/'));
    if database.as_deref().is_none_or(|name| name.contains('\0')) {
        return Err(bad("it names no database"));
    }
    if url.fragment().is_some() {
        return Err(bad("it has a fragment"));
    }
    if let Some((key, _)) = url.query_pairs().find(|(key, _)| !IN_URL.contains(&key.as_ref())) {
        let known = IN_URL.join(", ");
        return Err(bad(&format!("`{}` is no setting of it", key.escape_debug())).way(format!("settings: {known}")));
    }
    Ok(url)
}

fn place(url: &Url) -> String {
    format!("postgres://{}:{}{}", url.host_str().unwrap_or_default(), url.port().unwrap_or(5432), url.path())
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use lakemark::StorageOptions;

    use super::*;

    fn address(url: &str, options: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<Address> {
        let options = Options::new(&StorageOptions::from_iter(options.iter().copied()));
        Address::of(url, options, &|name| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn options_win_over_the_url_and_the_url_over_the_environment() {
        let environment = [("PGUSER", "three"), ("PGPASSWORD", "e"), ("PGSSLMODE", "disable")];
        let found = |url: &str, options: &[(&str, &str)]| {
            let found = address(url, options, &environment).unwrap();
            (found.user, found.password.unwrap(), found.ssl_mode)
        };
        let (url, named) = ("postgres://h/d", "postgres://two@h/d?sslmode=require");
        assert_eq!(found(url, &[]), ("three".into(), "e".into(), SslMode::Disable));
        assert_eq!(found(named, &[]), ("two".into(), "e".into(), SslMode::Require));
        let options = [("user", "one"), ("password", "o"), ("sslmode", "prefer")];
        assert_eq!(found(named, &options), ("one".into(), "o".into(), SslMode::Prefer));
    }

    #[test]
    fn the_root_has_no_credentials_and_no_two_tables_share_one() {
        let address = address("postgresql://me@DB.Example/sh%2Fop", &[("password", "hush")], &[]).unwrap();
        let name = |text| TableName::parse(text).unwrap();
        let root = |text| lakemark::Root::parse(&address.root(&name(text))).unwrap();
        assert_eq!(root("s.t").to_string(), "postgres://db.example:5432/sh%252Fop/s.t");
        assert_eq!(lakemark::Root::parse(&root("s.\"a.b\"").to_string()).unwrap(), root("s.\"a.b\""));
        assert_ne!(root("s.\"t/u\""), root("s.\"t%2Fu\""));
        assert!(!format!("{address:?} {}", address.place()).contains("hush"));
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_shown() {
        for url in [
            "postgres://u:hush@h/d",
            "postgres://u:hu%73h@h/d",
            "postgres://h/d?password=hush",
            "postgres://u:hush@h:port/d",
            "postgres://u:hush@@h/d?x=hush",
            "mysql://u:hush@h/d",
            "u:hush@h/d",
        ] {
            let error = address(url, &[], &[]).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{url}: {error}");
        }
    }

    #[test]
    fn a_user_and_a_database_can_have_any_characters() {
        let address = address("postgres://a%40b@[::1]:1/my%20db", &[], &[]).unwrap();
        assert_eq!((address.user.as_str(), address.database.as_str(), address.host.as_str()), ("a@b", "my db", "::1"));
        assert_eq!(address.place(), "postgres://a@b@[::1]:1/my db");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (url, options) in [
            ("postgres:///d", &[][..]),
            ("postgres://u@h", &[]),
            ("postgres://u@h/", &[]),
            ("postgres://u@a,b/d", &[]),
            ("postgres://h/d", &[]),
            ("postgres://u@h/d?host=x", &[]),
            ("postgres://u@h/d?sslmode=allow", &[]),
            ("postgres://u@h/d?sslmode=require&sslrootcert=x", &[]),
            ("postgres://u@h/d?connect_timeout=0", &[]),
            ("postgres://u@h/d", &[("pasword", "hush")]),
        ] {
            let error = address(url, options, &[]).unwrap_err();
            assert_eq!(error.kind(), lakemark::ErrorKind::Invalid, "{url}");
            assert!(!error.ways().is_empty() || url.contains("timeout"), "{url}: {error}");
            assert!(!error.to_string().contains("hush"));
        }
    }
}
