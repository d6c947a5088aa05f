//! What the servers' answers mean.

use std::collections::HashMap;

use semel_core::store::{Durability, Finding};

/// What a server says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    info: HashMap<String, String>,
    config: HashMap<String, String>,
    /// Who asked may not see everything.
    is_partial: bool,
    /// The channel on which who asked may not speak.
    silent_on: Option<String>,
}

impl Answers {
    pub(super) fn new(info: Option<&str>, config: Option<HashMap<String, String>>) -> Self {
        let is_partial = info.is_none() || config.is_none();
        let pair = |line: &str| line.trim().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let info = info.unwrap_or("").lines().filter_map(pair).collect();
        Self { info, config: config.unwrap_or_default(), is_partial, silent_on: None }
    }

    pub(super) fn silent_on(self, channel: Option<String>) -> Self {
        Self { silent_on: channel, ..self }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.config.get(name).or_else(|| self.info.get(name)).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Valkey says of itself that it is a Redis of a version, and which Valkey it is.
    fn version(&self) -> Option<(u32, u32, String)> {
        let redis = self.text("redis_version")?;
        let mut parts = redis.split('.').map(|part| part.parse().unwrap_or(0));
        let (major, minor) = (parts.next()?, parts.next().unwrap_or(0));
        let name = self.text("valkey_version").map_or_else(|| format!("Redis {redis}"), |v| format!("Valkey {v}"));
        Some((major, minor, name))
    }

    /// `None` where who asked may not see it.
    fn appends(&self) -> Option<bool> {
        let configured = self.text("appendonly").map(|value| value == "yes");
        configured.or_else(|| self.text("aof_enabled").map(|value| value == "1"))
    }

    /// As [`appends`](Self::appends).
    fn snapshots(&self) -> Option<bool> {
        self.text("save").map(|points| !points.is_empty())
    }
}

/// Who replaces a server that is down, and after how many milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// `None` where nobody does.
    by: Option<&'static str>,
    down_after: Option<u64>,
    sentinels: Option<u64>,
}

impl Watch {
    pub(super) fn nobody() -> Self {
        Self::default()
    }

    /// What `SENTINEL MASTER` says.
    pub(super) fn sentinel(known: &HashMap<String, String>) -> Self {
        let number = |name: &str| known.get(name).and_then(|value| value.parse::<u64>().ok());
        let sentinels = number("num-other-sentinels").map(|others| others + 1);
        Self { by: Some("Sentinel"), down_after: number("down-after-milliseconds"), sentinels }
    }

    pub(super) fn cluster(answers: &Answers) -> Self {
        Self { by: Some("the Cluster"), down_after: answers.number("cluster-node-timeout"), sentinels: None }
    }
}

/// What an acknowledged write survives on this server.
pub(super) fn durability(answers: &Answers) -> Durability {
    match (answers.appends(), answers.text("appendfsync")) {
        (Some(true), Some("always")) => Durability::Power,
        (Some(true), _) => Durability::Process,
        (Some(false) | None, _) => Durability::None,
    }
}

/// Everything that is to be said about one server.
pub(super) fn judge(answers: &Answers, watch: &Watch, awaited: u32, place: Option<&str>, findings: &mut Vec<Finding>) {
    let from = findings.len();
    version(answers, findings);
    memory(answers, findings);
    persistence(answers, findings);
    replicas(answers, watch, findings);
    confirming(answers, watch, u64::from(awaited), findings);
    if answers.is_partial {
        findings.push(Finding::warning(
            "this user may not ask INFO or CONFIG GET",
            "the set-up could not be looked at in full",
            "Allow it: ACL SETUSER … +info +config|get",
        ));
    }
    if let Some(channel) = &answers.silent_on {
        findings.push(Finding::warning(
            format!("this user may not use the channel {channel}"),
            "copies that wait at another gateway are not woken and look by themselves, some time after the answer is there; \
             and what a person deletes is told to nobody, so that it is replayed for as long as it is remembered (local_ttl)",
            format!("Allow it: ACL SETUSER … &{channel} +publish +subscribe"),
        ));
    }
    if let Some(place) = place {
        for finding in &mut findings[from..] {
            finding.what = format!("{place}: {}", finding.what);
        }
    }
}

fn version(answers: &Answers, findings: &mut Vec<Finding>) {
    let Some((major, minor, name)) = answers.version() else { return };
    findings.push(if (major, minor) < (6, 2) {
        let why = "the scripts need PXAT, which came with 6.2";
        Finding::fatal(name, why, "Upgrade the server: to 7.0 or later at best")
    } else if major < 7 {
        let why = "at the memory limit it also refuses to record the outcome of work that has been done: such outcomes \
                   end as unknown";
        Finding::warning(name, why, "Upgrade to 7.0 or later, or keep the memory far from its limit")
    } else {
        Finding::note(name, "supported")
    });
}

fn memory(answers: &Answers, findings: &mut Vec<Finding>) {
    let limit = answers.number("maxmemory");
    match answers.text("maxmemory_policy").or_else(|| answers.text("maxmemory-policy")) {
        Some("noeviction") | None => {}
        Some(policy) => findings.push(Finding::fatal(
            format!("maxmemory-policy is {policy}"),
            "the server throws away claims and outcomes when memory is short, and their requests run a second time",
            "Set it: CONFIG SET maxmemory-policy noeviction, and in the configuration file. Where other applications \
             need eviction, take a server of its own",
        )),
    }
    if limit == Some(0) {
        findings.push(Finding::warning(
            "maxmemory is not set",
            "the server grows until the system ends it, and what it did not write to disk is lost",
            "Set maxmemory below what the machine has; at the limit new claims are refused and running work still settles",
        ));
    }
}

fn persistence(answers: &Answers, findings: &mut Vec<Finding>) {
    const KEEP: &str = "Set it: CONFIG SET appendonly yes, and in the configuration file; appendfsync always where a power cut \
                        may cost nothing";
    match (answers.appends(), answers.snapshots()) {
        (Some(true), _) => {}
        (Some(false), Some(true)) => {
            let why =
                "a restart forgets what came after the last snapshot: requests of that time can run a second time";
            findings.push(Finding::warning("no append-only file, only snapshots", why, KEEP));
            return;
        }
        (Some(false), Some(false)) => {
            let why = "a restart forgets every record: requests can run a second time";
            findings.push(Finding::warning("nothing is kept on disk", why, KEEP).forgetting());
            return;
        }
        // Who may not see it is told so.
        (None, _) | (Some(false), None) => return,
    }
    match answers.text("appendfsync") {
        Some("always") => findings.push(Finding::note("appendfsync is always", "a power cut loses nothing")),
        Some("no") => findings.push(Finding::warning(
            "appendfsync is no",
            "a power cut loses what the system had not written yet, half a minute as a rule",
            "Set it: CONFIG SET appendfsync everysec, or always",
        )),
        Some(policy) => {
            findings.push(Finding::note(
                format!("appendfsync is {policy}"),
                "a power cut, or the end of the process while the disk is slow, loses up to two seconds",
            ));
        }
        None => {}
    }
}

fn replicas(answers: &Answers, watch: &Watch, findings: &mut Vec<Finding>) {
    let (connected, wanted) =
        (answers.number("connected_slaves").unwrap_or(0), answers.number("min-replicas-to-write"));
    let Some(by) = watch.by else {
        if connected > 0 && wanted == Some(0) {
            findings.push(Finding::note(
                format!("{connected} replicas"),
                "whoever promotes one by hand loses what it had not received yet",
            ));
        }
        return;
    };
    if connected == 0 {
        findings.push(Finding::warning(
            "no replica is connected",
            format!("{by} has nobody to put in its place"),
            "Start a replica",
        ));
    }
    if let Some(sentinels) = watch.sentinels.filter(|n| *n < 3) {
        findings.push(Finding::warning(
            format!("{sentinels} Sentinels"),
            "fewer than three cannot tell a dead primary from a cut line",
            "Run three, on three machines",
        ));
    }
    let Some(wanted) = wanted else { return };
    let (lag, down_after) = (answers.number("min-replicas-max-lag"), watch.down_after);
    if wanted == 0 {
        findings.push(Finding::warning(
            "min-replicas-to-write is 0",
            "a primary that is cut off goes on granting claims while another one is promoted: two owners for one claim",
            "Set it: CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag below the time after which it is called \
             down",
        ));
    } else if let (Some(lag), Some(down_after)) = (lag, down_after)
        && lag * 1_000 >= down_after
    {
        findings.push(Finding::warning(
            format!("min-replicas-max-lag is {lag} s, and {by} acts after {down_after} ms"),
            "a primary that is cut off still grants claims when another one is promoted: two owners for one claim",
            format!("Make it less: CONFIG SET min-replicas-max-lag {}", (down_after / 1_000).saturating_sub(1).max(1)),
        ));
    }
}

/// Whether the replicas that calls wait for are there, and whether a failover can put one in charge that did not confirm.
fn confirming(answers: &Answers, watch: &Watch, awaited: u64, findings: &mut Vec<Finding>) {
    let Some(connected) = answers.number("connected_slaves").filter(|_| awaited > 0) else { return };
    if connected < awaited {
        findings.push(Finding::warning(
            format!("calls wait for {awaited} replicas, and {connected} are connected"),
            "every new key is refused, and no outcome can be recorded, until there are so many",
            format!("Start the missing replicas, or set replicas = {connected}"),
        ));
    } else if connected > awaited && watch.by.is_some() {
        findings.push(Finding::warning(
            format!("calls wait for {awaited} of {connected} replicas"),
            "a failover that is ordered while all work can promote one that did not confirm: what the others confirmed is lost",
            format!("Set replicas = {connected}"),
        ));
    } else {
        findings.push(Finding::note(
            format!("calls wait for {awaited} of {connected} replicas"),
            "a failover loses nothing that was acknowledged; without all of these replicas new keys are refused",
        ));
    }
}

#[cfg(test)]
mod tests {
    use semel_core::store::Grade;

    use super::*;

    const SOUND: &[(&str, &str)] = &[
        ("maxmemory", "1000000"),
        ("maxmemory-policy", "noeviction"),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("save", ""),
        ("min-replicas-to-write", "1"),
        ("min-replicas-max-lag", "2"),
    ];

    fn answers(version: &str, changes: &[(&str, &str)]) -> Answers {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut config: HashMap<_, _> = SOUND.iter().map(own).collect();
        config.extend(changes.iter().map(own));
        Answers::new(Some(&format!("redis_version:{version}\r\nconnected_slaves:2\r\n")), Some(config))
    }

    fn sentinel() -> Watch {
        let known = [("num-other-sentinels", "2"), ("down-after-milliseconds", "5000")];
        Watch::sentinel(&known.map(|(n, v)| (n.to_owned(), v.to_owned())).into())
    }

    fn worst(answers: &Answers, watch: &Watch) -> (Grade, String) {
        let mut findings = Vec::new();
        judge(answers, watch, 0, None, &mut findings);
        let worst = findings.into_iter().max_by_key(|f| f.grade).expect("the version is always told");
        (worst.grade, worst.what)
    }

    #[test]
    fn a_sound_server_has_nothing_but_notes() {
        assert_eq!(worst(&answers("7.0.15", &[]), &sentinel()).0, Grade::Note);
        assert_eq!(worst(&answers("7.0.15", &[]), &Watch::nobody()).0, Grade::Note);
    }

    #[test]
    fn every_policy_but_noeviction_is_refused() {
        for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl"] {
            let (grade, what) = worst(&answers("7.0.15", &[("maxmemory-policy", policy)]), &Watch::nobody());
            assert_eq!((grade, what), (Grade::Fatal, format!("maxmemory-policy is {policy}")));
        }
    }

    #[test]
    fn versions_are_graded() {
        for (version, grade) in [("5.0.7", Grade::Fatal), ("6.0.16", Grade::Fatal), ("6.2.0", Grade::Warning)] {
            assert_eq!(worst(&answers(version, &[]), &Watch::nobody()).0, grade, "{version}");
        }
        assert_eq!(worst(&answers("10.0.1", &[]), &Watch::nobody()).0, Grade::Note);
    }

    #[test]
    fn what_weakens_the_promise_is_a_warning() {
        for (name, value, what) in [
            ("appendonly", "no", "nothing is kept on disk"),
            ("appendfsync", "no", "appendfsync is no"),
            ("maxmemory", "0", "maxmemory is not set"),
            ("min-replicas-to-write", "0", "min-replicas-to-write is 0"),
            ("min-replicas-max-lag", "10", "min-replicas-max-lag is 10 s, and Sentinel acts after 5000 ms"),
        ] {
            let found = worst(&answers("7.0.15", &[(name, value)]), &sentinel());
            assert_eq!(found, (Grade::Warning, what.to_owned()));
        }
    }

    #[test]
    fn a_server_forgets_where_it_is_known_to_keep_nothing() {
        let own =
            |pairs: &[(&str, &str)]| Some(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect());
        let (nothing, snapshots) = ([("appendonly", "no"), ("save", "")], [("appendonly", "no"), ("save", "3600 1")]);
        for (answers, forgets, told) in [
            (answers("7.0.15", &nothing), true, "nothing is kept on disk"),
            (answers("7.0.15", &snapshots), false, "no append-only file, only snapshots"),
            (answers("7.0.15", &[("appendonly", "yes")]), false, "appendfsync is everysec"),
            (Answers::new(None, own(&nothing)), true, "nothing is kept on disk"),
            (Answers::new(None, own(&snapshots)), false, "no append-only file, only snapshots"),
            // The one who asks sees that there is no append-only file, and not whether there are snapshots.
            (Answers::new(Some("aof_enabled:0\r\n"), None), false, "this user may not ask INFO or CONFIG GET"),
            (Answers::new(None, None), false, "this user may not ask INFO or CONFIG GET"),
        ] {
            let mut findings = Vec::new();
            judge(&answers, &Watch::nobody(), 0, None, &mut findings);
            assert!(findings.iter().any(|finding| finding.what == told), "{findings:?}");
            assert_eq!(findings.iter().any(|finding| finding.forgets), forgets, "{findings:?}");
        }
    }

    #[test]
    fn durability_is_what_the_server_says() {
        assert_eq!(durability(&answers("7.0.15", &[])), Durability::Process);
        assert_eq!(durability(&answers("7.0.15", &[("appendfsync", "always")])), Durability::Power);
        assert_eq!(durability(&answers("7.0.15", &[("appendonly", "no")])), Durability::None);
        assert_eq!(durability(&Answers::new(Some("aof_enabled:1\r\n"), None)), Durability::Process);
    }

    #[test]
    fn who_may_not_ask_is_told_so() {
        let (grade, what) = worst(&Answers::new(None, None), &Watch::nobody());
        assert_eq!((grade, what.as_str()), (Grade::Warning, "this user may not ask INFO or CONFIG GET"));
    }
}
