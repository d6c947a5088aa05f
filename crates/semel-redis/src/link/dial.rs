//! Making a connection: where the server is, who logs in, what it says of itself, and the mark before all else.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::try_join_all, stream::FuturesUnordered};
use parking_lot::Mutex;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError, Value,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use semel_core::{
    StoreTime,
    env::Env,
    store::{Did, StoreError, StoreErrorKind},
};

use super::{
    confirm::{Confirm, LINES, Pool},
    reckoning::Reckoning,
};
use crate::{
    address::{Host, Login},
    mark::Marks,
    reply::{self, Told},
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
pub(crate) struct Dialer {
    pub(crate) env: Env,
    pub(crate) login: Login,
    pub(crate) db: i64,
    pub(crate) tls: bool,
    #[cfg(feature = "tls")]
    pub(crate) certificates: crate::Tls,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    /// What a call waits for before it counts.
    pub(crate) confirm: Option<Confirm>,
    pub(crate) marks: Arc<Marks>,
    pub(crate) mark_key: String,
    /// Connections to Sentinels, which are asked again and again.
    pub(crate) sentinels: Mutex<HashMap<Host, MultiplexedConnection>>,
}

/// A connection that can be used.
pub(super) struct Dialed {
    pub(super) connection: MultiplexedConnection,
    /// Where calls wait for replicas.
    pub(super) pool: Option<Arc<Pool>>,
    /// The server is of 7.0 or later.
    pub(super) is_modern: bool,
    pub(super) clock: Reckoning,
    pub(super) host: Host,
}

/// Once one Sentinel answered, the others have this long.
const LATE_ANSWERS: Duration = Duration::from_millis(100);

/// While a connection is made, the Sentinels are asked so often whether it leads to the primary still.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// What a server says of itself.
struct Greeting {
    is_modern: bool,
    is_primary: bool,
    /// Its clock; `None` where it does not tell.
    now: Option<StoreTime>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dialer({:?}, db {})", self.login, self.db)
    }
}

impl Dialer {
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// A connection on which the mark was read.
    pub(super) async fn dial(&self, target: &Target) -> Result<Dialed, StoreError> {
        self.marks.allow()?;
        let within = tokio::time::timeout(self.connect_timeout * 2, self.dial_for_long(target));
        within.await.unwrap_or_else(|_| Err(unusable(format!("no connection in {:?}", self.connect_timeout * 2))))
    }

    async fn dial_for_long(&self, target: &Target) -> Result<Dialed, StoreError> {
        let host = self.host(target).await?;
        let connecting = async {
            let mut connection = self.connect(&host, &self.login, self.db).await?;
            let sent = self.env.clock.now();
            let greeting = greet(&mut connection).await?;
            redis::RedisResult::Ok((connection, greeting, (sent, self.env.clock.now())))
        };
        let (mut connection, greeting, when) = tokio::select! {
            biased;
            connected = connecting => connected.map_err(verdict::before)?,
            () = self.is_replaced(target, &host) => return Err(replaced(&host)),
        };
        if !greeting.is_primary && !matches!(target, Target::Node(_)) {
            return Err(unusable(format!("{host} is a replica: it takes no writes")));
        }
        // A primary that hung answers when it goes on, and takes itself for one still: another may be by now.
        if matches!(target, Target::Named { .. }) && self.host(target).await? != host {
            return Err(replaced(&host));
        }
        let is_node = matches!(target, Target::Node(_));
        self.read_mark(&mut connection, greeting.is_modern, is_node).await?;
        let pool = match self.confirm {
            Some(_) => Some(self.pool(&mut connection, &host, greeting.is_modern, is_node).await?),
            None => None,
        };
        let clock = Reckoning::default();
        if let Some(now) = greeting.now {
            clock.heard(when, now);
        }
        Ok(Dialed { connection, pool, is_modern: greeting.is_modern, clock, host })
    }

    /// Connections beside the first one, each with the mark read on it.
    async fn pool(
        &self,
        first: &mut MultiplexedConnection,
        host: &Host,
        is_modern: bool,
        is_node: bool,
    ) -> Result<Arc<Pool>, StoreError> {
        // Whoever may not wait would hear of it after the first claim was made, and of no replica ever.
        let mut wait = redis::cmd("WAIT");
        wait.arg(0).arg(1);
        if let Value::ServerError(error) = first.send_packed_command(&wait).await.map_err(verdict::before)? {
            let error = RedisError::from(error);
            if verdict::code(&error) == Some("NOPERM") {
                return Err(unusable(format!("{error}; allow it: ACL SETUSER … +wait")));
            }
            // A replica, which a node of a Cluster may be, says that it has none: it is not asked to.
            if !is_node {
                return Err(unusable(format!("{error}; calls cannot wait for replicas here: set replicas = 0")));
            }
        }
        let more = try_join_all((1..LINES).map(|_| async {
            let mut connection = self.connect(host, &self.login, self.db).await.map_err(verdict::before)?;
            self.read_mark(&mut connection, is_modern, is_node).await?;
            Ok::<_, StoreError>(connection)
        }));
        Ok(Pool::new(first.clone(), more.await?))
    }

    /// Resolves when the Sentinels name another: nobody waits longer for a server that hangs.
    async fn is_replaced(&self, target: &Target, host: &Host) {
        let Target::Named { .. } = target else { return std::future::pending().await };
        loop {
            self.env.clock.sleep_until(self.env.clock.now() + BETWEEN_LOOKS).await;
            if self.host(target).await.is_ok_and(|named| named != *host) {
                return;
            }
        }
    }

    /// Where the target is now.
    pub(crate) async fn host(&self, target: &Target) -> Result<Host, StoreError> {
        match target {
            Target::Primary(host) | Target::Node(host) => Ok(host.clone()),
            Target::Named { sentinels, name, login } => self.ask_sentinels(sentinels, name, login).await,
        }
    }

    /// Asks all at once; the one that knows of the latest failover counts. A Sentinel that is cut off still names the
    /// primary of before.
    async fn ask_sentinels(&self, sentinels: &[Host], name: &str, login: &Login) -> Result<Host, StoreError> {
        let mut asked: FuturesUnordered<_> =
            sentinels.iter().map(|sentinel| self.ask_sentinel(sentinel, name, login)).collect();
        let mut late = self.env.clock.sleep_until(self.env.clock.now() + self.connect_timeout);
        let mut latest: Option<(u64, Host)> = None;
        let mut trouble = unusable("no Sentinel answers".to_owned());
        loop {
            let said = tokio::select! {
                biased;
                said = asked.next() => said,
                () = &mut late => None,
            };
            match said {
                Some(Ok((epoch, host))) => {
                    if latest.as_ref().is_none_or(|(known, _)| *known < epoch) {
                        latest = Some((epoch, host));
                    }
                    // The others have a moment more: those that work answer in no time.
                    late = self.env.clock.sleep_until(self.env.clock.now() + LATE_ANSWERS);
                }
                Some(Err(error)) => trouble = error,
                None => break,
            }
        }
        latest.map(|(_, host)| host).ok_or(trouble)
    }

    /// Who is primary to this Sentinel, and since which failover.
    async fn ask_sentinel(&self, sentinel: &Host, name: &str, login: &Login) -> Result<(u64, Host), StoreError> {
        let known = self.sentinels.lock().get(sentinel).cloned();
        let is_known = known.is_some();
        let mut connection = match known {
            Some(connection) => connection,
            None => self.connect(sentinel, login, 0).await.map_err(verdict::before)?,
        };
        let mut address = redis::cmd("SENTINEL");
        address.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let mut more = redis::cmd("SENTINEL");
        more.arg("MASTER").arg(name);
        let mut commands = redis::Pipeline::with_capacity(2);
        commands.add_command(address).add_command(more);
        let said = match connection.send_packed_commands(&commands, 0, 2).await {
            Ok(said) => said,
            Err(error) => {
                // The next one asks on a new connection.
                self.sentinels.lock().remove(sentinel);
                return Err(verdict::before(error));
            }
        };
        if !is_known {
            self.sentinels.lock().insert(sentinel.clone(), connection);
        }
        let [address, more]: [Value; 2] =
            said.try_into().map_err(|_| unusable(format!("{sentinel} is no Sentinel")))?;
        let address: Option<(String, u16)> =
            redis::from_redis_value(crate::link::answer(address).map_err(|trouble| trouble.of_nothing())?)
                .map_err(|_| unusable(format!("{sentinel} is no Sentinel")))?;
        let (host, port) = address
            .ok_or_else(|| unusable(format!("the Sentinel {sentinel} knows no primary by the name of {name}")))?;
        // A user who may not ask for more gets what each Sentinel says, as of the same time.
        let more: HashMap<String, String> = redis::from_redis_value(more).unwrap_or_default();
        let epoch = more.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok((epoch, Host::new(host, port)))
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
        match connection.send_packed_command(&call.command(By::Text, is_modern, None)).await {
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

/// `HELLO` without a version changes nothing and tells version and role. Where nobody may ask, the older scripts do.
async fn greet(connection: &mut MultiplexedConnection) -> Result<Greeting, RedisError> {
    let mut commands = redis::Pipeline::with_capacity(2);
    commands.add_command(redis::cmd("HELLO")).add_command(redis::cmd("TIME"));
    let mut said = connection.send_packed_commands(&commands, 0, 2).await?.into_iter();
    let (hello, time) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
    let now = reply::time(&time);
    let said = match hello {
        Value::ServerError(error) => {
            let error = RedisError::from(error);
            if verdict::code(&error) == Some("NOPERM") || verdict::is_not_understood(&error) {
                return Ok(Greeting { is_modern: false, is_primary: true, now });
            }
            return Err(error);
        }
        said => said,
    };
    let said: HashMap<String, Value> = redis::from_redis_value(said)?;
    let text = |name: &str| said.get(name).and_then(|value| redis::from_redis_value_ref::<String>(value).ok());
    let major = text("version").and_then(|v| v.split('.').next().and_then(|major| major.parse::<u32>().ok()));
    let is_primary = text("role").is_none_or(|role| role == "master" || role == "primary");
    Ok(Greeting { is_modern: major.is_some_and(|major| major >= 7), is_primary, now })
}

pub(super) fn unusable(words: String) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, words)
}

fn replaced(host: &Host) -> StoreError {
    unusable(format!("{host} is no longer the primary"))
}
