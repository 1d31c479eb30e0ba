//! What the server or the connection said, as errors of ours. None of it holds a password.

use std::error::Error as _;

use lakemark::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

use super::address::{Address, SslMode};

/// `error` met while connecting.
pub(super) fn connecting(error: tokio_postgres::Error, address: &Address) -> Error {
    let place = address.place();
    if let Some(code) = error.code() {
        let refused = matches!(*code, SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        return if refused {
            not_let_in(address, "the server does not let the user in").caused_by(error)
        } else {
            reading(error, &place)
        };
    }
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    if cause.contains("password missing") {
        return not_let_in(address, "the server asks for a password, and none is given");
    }
    if cause.contains("server does not support TLS") {
        return Error::invalid("the server has no TLS, and sslmode asks for it")
            .at(place)
            .way("turn TLS on in the server")
            .way("sslmode = disable, where nobody can listen");
    }
    let handshake = error.to_string().contains("TLS");
    if handshake && address.ssl_mode == SslMode::VerifyFull {
        return Error::invalid("the certificate or the TLS of the server is not accepted")
            .at(place)
            .caused_by(error)
            .way("sslrootcert = the file with the certificate of its authority (PEM)")
            .way("use the host name that its certificate has");
    }
    Error::new(ErrorKind::Unavailable, "the database cannot be reached")
        .at(place)
        .caused_by(error)
        .way("check that the server runs there and lets this machine in")
}

/// No answer in time.
pub(super) fn silent(address: &Address) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the database did not answer in {} s", address.timeout.as_secs()))
        .at(address.place())
        .way("check host and port, and what stands between")
        .way("connect_timeout = more seconds")
}

/// `error` met while reading. What can pass by itself is unavailable; the rest is for a person.
pub(super) fn reading(error: tokio_postgres::Error, place: &str) -> Error {
    let Some(code) = error.code() else {
        return Error::new(ErrorKind::Unavailable, "the connection to the database was lost")
            .at(place)
            .caused_by(error)
            .safe("no more rows were read; those before count only for what is sealed");
    };
    // Classes of SQLSTATE: connection, rollback, resources, operator (shutdown, timeouts, cancelled), system.
    let passes = ["08", "40", "53", "57", "58"].iter().any(|class| code.code().starts_with(class));
    let kind = if passes { ErrorKind::Unavailable } else { ErrorKind::Invalid };
    let what = match *code {
        SqlState::INVALID_CATALOG_NAME => "there is no such database",
        SqlState::INSUFFICIENT_PRIVILEGE => "the user may not read this",
        SqlState::QUERY_CANCELED => "the database stopped the query",
        _ => "the database refused",
    };
    Error::new(kind, what).at(place).caused_by(error)
}

fn not_let_in(address: &Address, what: &str) -> Error {
    let mut error = Error::invalid(what).at(address.place());
    if let Some(file) = &address.unsafe_passfile {
        error = error.way(format!("chmod 600 {}: it was left alone, since others can read it", file.display()));
    }
    error
        .way("set PGPASSWORD")
        .way("a line in the password file: PGPASSFILE, or ~/.pgpass with mode 0600")
        .way("storage_options = { user = \"…\", password = \"${NAME}\" }")
}
