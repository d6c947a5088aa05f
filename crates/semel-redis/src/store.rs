//! The store: calls become scripts, replies become answers.

mod admin;
mod calls;
mod claim;

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use redis::Value;
use semel_core::{
    env::Env,
    identity::{Identity, MarkError, Secret},
    store::{Durability, FenceStrength, Finding, Grade, StoreError, StoreFacts},
};

use crate::{
    Options,
    address::Address,
    error::ConnectError,
    inspect,
    link::{Confirm, Dialer},
    mark::Marks,
    names::Names,
    reply::Told,
    scan::Sweep,
    script::{Arg, Call, SCRIPTS, Script},
    topology::Topology,
    wake::Wakes,
};

/// The largest `rest` of a record: a script copies it while the server serves nobody else.
const MAX_REST: u64 = 64 << 20;

/// No duration is longer: 35 years. Sums of them and the clock stay where a script's numbers are exact.
const LONGEST: Duration = Duration::from_micros(1 << 50);

/// Records in Redis or Valkey. See the [crate](crate) for what it promises and costs.
///
/// Every call is one command and one round trip, but for those of people ([`StoreAdmin`]); the connections come back by
/// themselves. Dropping a call's future loses only the answer.
///
/// [`StoreAdmin`]: semel_core::store::StoreAdmin
pub struct RedisStore {
    topology: Arc<Topology>,
    /// Connections for the calls that wait for replicas, where any do.
    confirmed: Option<Topology>,
    replicas: u32,
    dialer: Arc<Dialer>,
    marks: Arc<Marks>,
    more_marks: Vec<String>,
    names: Names,
    wakes: Arc<Wakes>,
    address: Address,
    durability: Durability,
    secret: Secret,
    sweep: tokio::sync::Mutex<Sweep>,
    /// Unknowns that a new token took the place of, and that nobody has been told of yet.
    untold: Mutex<Vec<Identity>>,
}

impl RedisStore {
    /// Opens the store at `url`: looks at the server, and makes or reads its mark. Needs a tokio runtime.
    ///
    /// ```text
    /// redis://[user:password@]host[:6379][/db]
    /// redis+sentinel://[user:password@]host[:26379],host,…/primary[?db=n][&sentinel_user=…&sentinel_password=…]
    /// redis+cluster://[user:password@]host[:6379],host,…
    /// ```
    ///
    /// # Errors
    /// [`ConnectError`]: a URL that names none, no server that answers, another secret, or a server set up in a way that
    /// breaks the promise.
    pub async fn connect(url: &str, env: &Env, options: Options) -> Result<Self, ConnectError> {
        let mut address = Address::parse(url)?;
        let names = Names::new(&options.prefix)?;
        #[cfg(feature = "tls")]
        if address.tls {
            options.tls.check().map_err(ConnectError::Tls)?;
        }
        if options.user.is_some() || options.password.is_some() {
            address.login.user = options.user;
            address.login.password = options.password;
        }
        let marks = Marks::new(options.secret, env.clone());
        let dialer = |confirm| {
            Arc::new(Dialer {
                env: env.clone(),
                login: address.login.clone(),
                db: address.db,
                tls: address.tls,
                #[cfg(feature = "tls")]
                certificates: options.tls.clone(),
                connect_timeout: options.connect_timeout,
                response_timeout: options.response_timeout,
                confirm,
                marks: Arc::clone(&marks),
                mark_key: names.mark(),
                sentinels: Mutex::default(),
            })
        };
        let confirm =
            Confirm { replicas: options.replicas, within: options.replica_timeout.min(options.response_timeout / 2) };
        let confirmed = (confirm.replicas > 0).then(|| Topology::new(&address, dialer(Some(confirm))));
        let dialer = dialer(None);
        let topology = Arc::new(Topology::new(&address, Arc::clone(&dialer)));
        if let Err(error) = read_mark(&topology, &marks, &names).await {
            return Err(marks.refused().map_or(ConnectError::Unavailable(error), ConnectError::Mark));
        }
        let more_marks = topology.more_marks(&names.mark());
        read_more_marks(&topology, &marks, &more_marks).await;
        let channel = names.channel();
        let look = inspect::look(&topology, &dialer, &channel, confirm.replicas);
        let look = look.await.map_err(ConnectError::Unavailable)?;
        let fatal: Vec<_> = look.findings.into_iter().filter(|finding| finding.grade == Grade::Fatal).collect();
        if !fatal.is_empty() {
            return Err(ConnectError::Unfit(fatal));
        }
        if let Some(confirmed) = &confirmed {
            confirmed.reach(&names.mark()).await.map_err(ConnectError::Unavailable)?;
        }
        let secret = marks.secret().ok_or(ConnectError::Mark(MarkError::NeedsSecret))?;
        let durability = look.durability;
        let (wakes, sweep, untold) = (Arc::default(), tokio::sync::Mutex::default(), Mutex::default());
        let replicas = confirm.replicas;
        Ok(Self {
            topology,
            confirmed,
            replicas,
            dialer,
            marks,
            more_marks,
            names,
            wakes,
            address,
            durability,
            secret,
            sweep,
            untold,
        })
    }

    /// The secret that this store's records are made with: the configured one, or the store's own.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Looks at how the servers are set up now.
    ///
    /// Cost: a handful of commands to each master.
    ///
    /// # Errors
    /// [`StoreError`] where one of them does not answer.
    pub async fn inspect(&self) -> Result<Vec<Finding>, StoreError> {
        let channel = self.names.channel();
        Ok(inspect::look(&self.topology, &self.dialer, &channel, self.replicas).await?.findings)
    }

    /// Whether calls may go out now; and hears what others change, where nobody listens.
    fn may_call(&self) -> Result<(), StoreError> {
        self.marks.allow()?;
        if self.wakes.is_deaf() {
            self.listen();
        }
        Ok(())
    }

    /// Runs a script on a record.
    async fn run(&self, script: &'static Script, id: &Identity, args: Vec<Arg<'_>>) -> Result<Told, StoreError> {
        self.run_on(script, &self.names.key(id), args).await
    }

    /// The same for a call that claims, tells an outcome, or shows one: it counts where the replicas have it.
    async fn run_kept(&self, script: &'static Script, id: &Identity, args: Vec<Arg<'_>>) -> Result<Told, StoreError> {
        let Some(confirmed) = &self.confirmed else { return self.run(script, id, args).await };
        self.may_call()?;
        Told::read(confirmed.run(&Call { script, key: &self.names.key(id), args }).await?)
    }

    /// Waits until the replicas have a record that a refusal shows. The refused call itself has changed nothing.
    async fn may_show(&self, id: &Identity) -> Result<(), StoreError> {
        if self.confirmed.is_some() {
            self.run_kept(&SCRIPTS.get, id, Vec::new()).await.map_err(StoreError::of_nothing)?;
        }
        Ok(())
    }

    async fn run_on(&self, script: &'static Script, key: &str, args: Vec<Arg<'_>>) -> Result<Told, StoreError> {
        self.may_call()?;
        Told::read(self.topology.run(&Call { script, key, args }).await?)
    }

    /// Hears of what other processes change.
    fn listen(&self) {
        self.wakes.listen(&self.dialer, &self.topology, &self.names.channel());
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn sweep(&self) -> &tokio::sync::Mutex<Sweep> {
        &self.sweep
    }

    pub(crate) fn untold(&self) -> &Mutex<Vec<Identity>> {
        &self.untold
    }

    fn what_it_is(&self) -> StoreFacts {
        StoreFacts {
            name: "redis",
            durability: self.durability,
            fence: FenceStrength::Advisory,
            max_rest: MAX_REST,
            shared: true,
            tells_changes: true,
        }
    }
}

/// Reads the mark where its key is, or puts it there.
async fn read_mark(topology: &Topology, marks: &Marks, names: &Names) -> Result<Told, StoreError> {
    marks.allow()?;
    let key = names.mark();
    // A new connection reads the mark too: what is offered after that has the same secret.
    topology.reach(&key).await?;
    let offer = marks.offer().encode();
    let call = Call { script: &SCRIPTS.mark, key: &key, args: vec![Arg::Bytes(&offer)] };
    let value: Value = topology.run(&call).await?;
    let mut told = Told::read(value)?;
    let bytes = told.bytes()?.unwrap_or_default();
    marks.found(&bytes)?;
    Ok(told)
}

/// Reads the marks of a Cluster's parts, or puts them there. A part that does not answer is looked at the next time.
async fn read_more_marks(topology: &Topology, marks: &Marks, keys: &[String]) {
    if keys.is_empty() {
        return;
    }
    let offer = marks.offer().encode();
    let call = |key| Call { script: &SCRIPTS.mark, key, args: vec![Arg::Bytes(&offer)] };
    let calls: Vec<_> = keys.iter().map(|key| call(key.as_str())).collect();
    for (part, answer) in topology.run_all(&calls).await.into_iter().enumerate() {
        let found = answer.and_then(Told::read).and_then(|mut told| told.bytes());
        if let Ok(Some(bytes)) = found
            && let Err(error) = marks.found_in_part(part, &bytes)
        {
            tracing::error!(%error, key = %keys[part], "this mark is somebody else's");
        }
    }
}

/// A span of time as scripts count: in microseconds.
fn micros(span: Duration) -> Arg<'static> {
    Arg::Number(in_micros(span))
}

fn in_micros(span: Duration) -> i64 {
    i64::try_from(span.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

fn flag(set: bool) -> Arg<'static> {
    Arg::Number(i64::from(set))
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({:?}, {:?})", self.address.layout, self.address.hosts)
    }
}
