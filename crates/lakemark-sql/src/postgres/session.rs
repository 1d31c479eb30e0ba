//! One connection, in one read-only transaction.

use lakemark::Result;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, config};

use super::address::{Address, SslMode};
use super::{failure, tls};

/// Each statement sees the table as it is when it starts; what is parsed stays locked against `ALTER` to the end.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";

/// A connection; dropping it cuts it, also in the middle of an answer.
pub(super) struct Session {
    pub(super) client: Client,
    _connection: Connection,
}

impl Session {
    pub(super) async fn start(address: &Address) -> Result<Self> {
        let starting = async {
            let mut config = Config::new();
            config
                .host(&address.host)
                .port(address.port)
                .dbname(&address.database)
                .user(&address.user)
                .application_name(&address.application)
                .ssl_mode(match address.ssl_mode {
                    SslMode::Disable => config::SslMode::Disable,
                    SslMode::Prefer => config::SslMode::Prefer,
                    SslMode::Require | SslMode::VerifyFull => config::SslMode::Require,
                });
            if let Some(password) = &address.password {
                config.password(password);
            }
            let tls = tls::Tls::of(address)?;
            let connected = config.connect(tls).await.map_err(|error| failure::connecting(error, address));
            let (client, connection) = connected?;
            let connection = Connection(tokio::spawn(async move {
                // The client hears of it by the end of its channel.
                if let Err(error) = connection.await {
                    tracing::debug!("a connection to a database ended: {error}");
                }
            }));
            client.batch_execute(BEGIN).await.map_err(|error| failure::reading(error, &address.place()))?;
            Ok(Self { client, _connection: connection })
        };
        tokio::time::timeout(address.timeout, starting).await.unwrap_or_else(|_| Err(failure::silent(address)))
    }
}

/// The task that moves the bytes. Left alone it would read an answer to its end though nobody wants it.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}
