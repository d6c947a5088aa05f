//! Redis under Sentinel. A failover may lose what was acknowledged last, unless all replicas are awaited: that is measured, not
//! hidden.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::{Collector, Fences, Promise},
    servers::{
        proxy::Speaks,
        redis::{Redis, Sentinels, Setup},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, REMEMBERS, Wire, forgotten},
    calls::are_told_apart,
    end::{SEEN, SHARED},
    field::{LEASE, Plan, play},
    redis::is,
    storms::storms,
};

/// What is to happen to a set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing that could lose anything, however long a server of a busy machine says nothing.
    Stays,
    /// Failovers, which lose what the replicas did not have.
    FailsOver,
    /// The same, where what counts is on both replicas: nothing may be lost.
    Awaits,
}

struct Watched {
    set: Sentinels,
    kind: Kind,
}

/// After so long a server is down where one is to be; longer than one of a busy machine says nothing, else.
pub(super) const DOWN: Duration = Duration::from_secs(1);
pub(super) const BUSY: Duration = Duration::from_secs(60);

impl Watched {
    async fn start(kind: Kind) -> Self {
        let mut setup = Setup::new().keeps();
        if kind != Kind::Stays {
            // A primary that nobody follows any more takes no writes: without this it goes on until it is told.
            setup = setup.set("min-replicas-to-write", "1").set("min-replicas-max-lag", "1");
        }
        let set = Sentinels::start(&setup).await;
        set.down_after(BUSY).await;
        Self { set, kind }
    }

    async fn promoted(&self, before: usize) {
        self.set.down_after(DOWN).await;
        self.set.promoted(before).await;
        self.set.down_after(BUSY).await;
    }
}

/// Waits until a server has become a replica and has all that its primary had then.
pub(super) async fn follows(server: &Redis) {
    for _ in 0..300 {
        if server.info("replication", "master_link_status").await == "up" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it follows nobody: {}", server.tell(&["INFO", "replication"]).await.text());
}

impl Backing for Watched {
    fn url(&self, through: &[SocketAddr]) -> String {
        let own = self.set.url();
        match through.get(self.set.servers.len()..) {
            None | Some([]) => own,
            Some(sentinels) => {
                let (_, name) = own.rsplit_once('/').expect("the name stands at its end");
                let hosts: Vec<_> = sentinels.iter().map(ToString::to_string).collect();
                format!("redis+sentinel://{}/{name}", hosts.join(","))
            }
        }
    }

    fn wire(&self) -> Option<Wire> {
        let all = self.set.servers.iter().chain(&self.set.sentinels);
        let servers = all.map(|server| server.address().parse().unwrap()).collect();
        (self.kind == Kind::Stays).then_some(Wire { servers, speaks: Speaks::Redis, is })
    }

    fn of_store(&self) -> &'static str {
        if self.kind == Kind::Awaits { "local_ttl = \"1s\"\nreplicas = 2" } else { REMEMBERS }
    }

    fn only_its_own(&self) -> bool {
        self.kind == Kind::Awaits
    }

    fn fates(&self) -> &'static [&'static str] {
        if self.kind == Kind::Stays {
            return &[];
        }
        &["failover ordered", "primary killed, a replica promoted", "primary hung, a replica promoted"]
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, _: &Seeded) {
        let loss = (self.kind != Kind::Awaits).then(|| collector.forgets(None));
        let (before, epoch) = (self.set.primary().await, self.set.epoch().await);
        match fate {
            "failover ordered" => {
                self.set.fail_over().await;
            }
            "primary killed, a replica promoted" => {
                self.set.servers[before].kill();
                self.promoted(before).await;
                self.set.servers[before].start_again().await;
            }
            // It goes on later, and believes for a moment that it is the primary still.
            "primary hung, a replica promoted" => {
                self.set.servers[before].pause();
                self.promoted(before).await;
                self.set.servers[before].resume();
            }
            other => panic!("{other}"),
        }
        follows(&self.set.servers[before]).await;
        let promotions = usize::try_from(self.set.epoch().await - epoch).unwrap();
        match loss {
            // What the old primary took meanwhile is gone with its turning into a replica.
            Some(loss) => forgotten(collector, loss, promotions).await,
            // Outcomes that waited for a replica are told again by then.
            None => tokio::time::sleep(3 * LEASE).await,
        }
    }
}

const PROMISE: Promise = Promise { fences: Fences::Advisory, ..SHARED };

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_faults_meet_the_calls_they_are_about() {
    are_told_apart(Watched::start(Kind::Stays).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_storms_over_gateways_have_one_effect_per_key() {
    storms(Watched::start(Kind::Stays).await).await;
}

/// Gateways and the network between them and all servers: what their primary has, it keeps.
#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_no_fault_but_a_failover_doubles_anything() {
    let plan = Plan { gateways: 2, rule: "", promise: PROMISE, expected: SEEN };
    let report = play(Watched::start(Kind::Stays).await, &plan).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_only_what_a_failover_lost_runs_again() {
    let plan = Plan { gateways: 2, rule: "", promise: PROMISE, expected: SEEN };
    play(Watched::start(Kind::FailsOver).await, &plan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_what_all_replicas_have_never_runs_again() {
    let expected = &["fresh", "replayed", "store-unavailable"];
    let plan = Plan { gateways: 2, rule: "", promise: PROMISE, expected };
    let report = play(Watched::start(Kind::Awaits).await, &plan).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}
