//! Making a connection: where the server is, who logs in, what it says of itself, and the mark before all else.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError, Value,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use semel_core::{
    env::Env,
    store::{Did, StoreError, StoreErrorKind},
};

use crate::{
    address::{Host, Login},
    mark::Marks,
    reply::Told,
    script::{Arg, By, Call, SCRIPTS},
    verdict,
};

/// Where to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// One server, which has to be a primary.
    Primary(Host),
    /// A node of a Cluster, whatever it is now.
    Node(Host),
    /// Whatever the Sentinels call the primary.
    Named { sentinels: Vec<Host>, name: String, login: Login },
}

/// All that connections have in common.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) env: Env,
    pub(crate) login: Login,
    pub(crate) db: i64,
    pub(crate) tls: bool,
    #[cfg(feature = "tls")]
    pub(crate) certificates: crate::options::Tls,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) marks: Arc<Marks>,
    pub(crate) mark_key: String,
}

/// What a server says of itself.
struct Greeting {
    is_modern: bool,
    is_primary: bool,
}

impl Dialer {
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// A connection on which the mark was read; and whether the server is of 7.0 or later.
    pub(super) async fn dial(&self, target: &Target) -> Result<(MultiplexedConnection, bool), StoreError> {
        self.marks.allow()?;
        let within = tokio::time::timeout(self.connect_timeout * 2, self.dial_for_long(target));
        within.await.unwrap_or_else(|_| Err(unusable(format!("no connection in {:?}", self.connect_timeout * 2))))
    }

    async fn dial_for_long(&self, target: &Target) -> Result<(MultiplexedConnection, bool), StoreError> {
        let host = self.host(target).await?;
        let mut connection = self.connect(&host, &self.login, self.db).await.map_err(verdict::before)?;
        let greeting = greet(&mut connection).await.map_err(verdict::before)?;
        if !greeting.is_primary && !matches!(target, Target::Node(_)) {
            return Err(unusable(format!("{host} is a replica: it takes no writes")));
        }
        self.read_mark(&mut connection, greeting.is_modern, matches!(target, Target::Node(_))).await?;
        Ok((connection, greeting.is_modern))
    }

    /// Where the target is now.
    pub(crate) async fn host(&self, target: &Target) -> Result<Host, StoreError> {
        match target {
            Target::Primary(host) | Target::Node(host) => Ok(host.clone()),
            Target::Named { sentinels, name, login } => self.ask_sentinels(sentinels, name, login).await,
        }
    }

    async fn ask_sentinels(&self, sentinels: &[Host], name: &str, login: &Login) -> Result<Host, StoreError> {
        let mut last = unusable("no Sentinel is named".to_owned());
        let share = self.connect_timeout / u32::try_from(sentinels.len().max(1)).unwrap_or(1);
        for sentinel in sentinels {
            let asked = tokio::time::timeout(share, self.ask_sentinel(sentinel, name, login)).await;
            match asked {
                Ok(Ok(host)) => return Ok(host),
                Ok(Err(error)) => last = error,
                Err(_) => last = unusable(format!("the Sentinel {sentinel} does not answer")),
            }
        }
        Err(last)
    }

    async fn ask_sentinel(&self, sentinel: &Host, name: &str, login: &Login) -> Result<Host, StoreError> {
        let mut connection = self.connect(sentinel, login, 0).await.map_err(verdict::before)?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let said: Option<(String, u16)> = command.query_async(&mut connection).await.map_err(verdict::before)?;
        let (host, port) =
            said.ok_or_else(|| unusable(format!("the Sentinel {sentinel} knows no primary by the name of {name}")))?;
        Ok(Host::new(host, port))
    }

    /// Asks a Sentinel something about the primary it watches.
    pub(crate) async fn sentinel(&self, sentinel: &Host, login: &Login) -> Result<MultiplexedConnection, StoreError> {
        self.connect(sentinel, login, 0).await.map_err(verdict::before)
    }

    async fn connect(&self, host: &Host, login: &Login, db: i64) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        self.client(host, login, db)?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// A client of one server, for what needs a connection of its own.
    pub(crate) fn client(&self, host: &Host, login: &Login, db: i64) -> Result<Client, RedisError> {
        let address = if self.tls {
            let (host, port) = (host.name.clone(), host.port);
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host.name.clone(), host.port)
        };
        let mut redis = RedisConnectionInfo::default().set_db(db).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &login.password {
            redis = redis.set_password(password);
        }
        let info = address.into_connection_info()?;
        let info = info.set_redis_settings(redis).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        #[cfg(feature = "tls")]
        if self.tls {
            return Client::build_with_tls(info, self.certificates());
        }
        Client::open(info)
    }

    #[cfg(feature = "tls")]
    fn certificates(&self) -> redis::TlsCertificates {
        let pair = |(certificate, key): &(Vec<u8>, Vec<u8>)| redis::ClientTlsConfig {
            client_cert: certificate.clone(),
            client_key: key.clone(),
        };
        redis::TlsCertificates {
            client_tls: self.certificates.client.as_ref().map(pair),
            root_cert: self.certificates.authority.clone(),
        }
    }

    /// Reads the mark, or puts it where there is none. A node of a Cluster that does not have it says so.
    async fn read_mark(
        &self,
        connection: &mut MultiplexedConnection,
        is_modern: bool,
        is_node: bool,
    ) -> Result<(), StoreError> {
        let offer = self.marks.offer().encode();
        let call = Call { script: &SCRIPTS.mark, key: &self.mark_key, args: vec![Arg::Bytes(&offer)] };
        match connection.send_packed_command(&call.command(By::Text, is_modern)).await {
            Ok(Value::ServerError(error)) => {
                let error = RedisError::from(error);
                let elsewhere = matches!(verdict::code(&error), Some("MOVED" | "ASK" | "CLUSTERDOWN" | "TRYAGAIN"));
                if is_node && elsewhere { Ok(()) } else { Err(verdict::before(error)) }
            }
            Ok(value) => {
                let bytes = Told::read(value)?.bytes()?.unwrap_or_default();
                self.marks.found(&bytes)
            }
            Err(error) => Err(verdict::before(error)),
        }
    }
}

/// `HELLO` without a version changes nothing and tells version and role. A user who may not ask gets the older scripts.
async fn greet(connection: &mut MultiplexedConnection) -> Result<Greeting, RedisError> {
    let said = match connection.send_packed_command(&redis::cmd("HELLO")).await? {
        Value::ServerError(error) => {
            let error = RedisError::from(error);
            if verdict::code(&error) == Some("NOPERM") {
                return Ok(Greeting { is_modern: false, is_primary: true });
            }
            return Err(error);
        }
        said => said,
    };
    let said: std::collections::HashMap<String, Value> = redis::from_redis_value(said)?;
    let text = |name: &str| said.get(name).and_then(|value| redis::from_redis_value_ref::<String>(value).ok());
    let major = text("version").and_then(|v| v.split('.').next().and_then(|major| major.parse::<u32>().ok()));
    let is_primary = text("role").is_none_or(|role| role == "master" || role == "primary");
    Ok(Greeting { is_modern: major.is_some_and(|major| major >= 7), is_primary })
}

fn unusable(words: String) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, words)
}
