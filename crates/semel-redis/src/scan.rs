//! Going over all keys: lists for people, and the end of unknowns.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use redis::{Pipeline, Value};
use semel_core::{
    StoreTime,
    identity::Identity,
    store::{Cursor, Entry, Filter, Page, Purged, StoreError},
};

use crate::{
    link::{Link, Trouble},
    names::Names,
    reply::{Told, YES, odd},
    script::{Call, SCRIPTS},
    store::RedisStore,
    stored::Stored,
    verdict,
};

/// How many keys one SCAN looks at: a fraction of a millisecond of the server's time.
const STEP: usize = 500;
/// Records on one way, bodies included.
const AT_ONCE: usize = 32;
/// How many steps one call takes at most: whatever the size of the store, a call ends, be it with an empty page.
const STEPS: usize = 40;

/// A place in the order of all keys: a server, SCAN's own cursor, and the last key taken from what that cursor shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Position {
    server: String,
    cursor: u64,
    taken: Vec<u8>,
}

impl Position {
    fn read(cursor: &Cursor) -> Option<Self> {
        let text = std::str::from_utf8(&cursor.0).ok()?;
        let mut parts = text.splitn(3, ' ');
        let (server, cursor) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(Self { server, cursor, taken: parts.next()?.as_bytes().to_vec() })
    }

    fn write(&self) -> Cursor {
        let taken = String::from_utf8_lossy(&self.taken);
        Cursor(Bytes::from(format!("{} {} {taken}", self.server, self.cursor)))
    }
}

/// Where the next purge goes on, and the servers that there were when this walk began.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    at: Position,
    servers: Vec<String>,
}

/// A walk over the keys of all servers, from a position on.
struct Walk {
    servers: Vec<(String, Arc<Link>)>,
    pattern: String,
    at: Position,
}

/// What one step shows.
struct Shown {
    server: Arc<Link>,
    /// In the order of their bytes, each once.
    keys: Vec<Vec<u8>>,
    now: StoreTime,
    next: u64,
}

impl Walk {
    async fn new(store: &RedisStore, pattern: String, at: Position) -> Result<Self, StoreError> {
        let named = |link: Arc<Link>| (link.place(), link);
        let mut servers: Vec<_> = store.topology().masters().await?.into_iter().map(named).collect();
        servers.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Self { servers, pattern, at })
    }

    fn places(&self) -> Vec<String> {
        self.servers.iter().map(|(name, _)| name.clone()).collect()
    }

    /// What is to be seen from here; `None` at the end.
    async fn step(&mut self) -> Result<Option<Shown>, StoreError> {
        // A server that is gone: on with the one after it.
        let Some((name, server)) = self.servers.iter().find(|(name, _)| *name >= self.at.server) else {
            return Ok(None);
        };
        if *name != self.at.server {
            self.at = Position { server: name.clone(), ..Position::default() };
        }
        let mut scan = redis::cmd("SCAN");
        scan.arg(self.at.cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(STEP);
        let mut commands = Pipeline::with_capacity(2);
        commands.add_command(scan).add_command(redis::cmd("TIME"));
        let answers = server.ask_all(&commands).await.map_err(Trouble::of_nothing)?;
        let [scanned, time]: [Value; 2] = answers.try_into().map_err(|_| odd(&Value::Nil))?;
        let scanned = crate::link::answer(scanned).map_err(Trouble::of_nothing)?;
        let (next, mut keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value(scanned).map_err(|_| odd(&Value::Nil))?;
        let now = crate::reply::time(&time).ok_or_else(|| odd(&time))?;
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| *key > self.at.taken);
        Ok(Some(Shown { server: Arc::clone(server), keys, now, next }))
    }

    /// Past what was shown. `true` at the end of everything.
    fn go_on(&mut self, next: u64) -> bool {
        self.at.cursor = next;
        self.at.taken.clear();
        if next == 0 {
            // The next name in order.
            self.at.server.push('\0');
        }
        next == 0 && !self.servers.iter().any(|(name, _)| *name >= self.at.server)
    }
}

impl RedisStore {
    /// What each key holds, as far as `command` reads it; nothing for a key that went meanwhile, or that is no record. What
    /// another server has by now, since its slot moved or `server` is a master no more, is read there.
    async fn read(
        &self,
        server: &Arc<Link>,
        keys: &[Vec<u8>],
        command: impl Fn(&[u8]) -> redis::Cmd,
    ) -> Result<Vec<Option<Stored>>, StoreError> {
        let mut commands = Pipeline::with_capacity(keys.len());
        for key in keys {
            commands.add_command(command(key));
        }
        let answers = server.ask_all(&commands).await.map_err(Trouble::of_nothing)?;
        let mut elsewhere = Vec::new();
        let mut records = Vec::with_capacity(keys.len());
        for (n, value) in answers.into_iter().enumerate() {
            records.push(match crate::link::answer(value) {
                Ok(Value::BulkString(bytes)) if !bytes.is_empty() => Some(Stored::read(bytes)),
                Ok(_) => None,
                Err(Trouble::Sent(error)) if matches!(verdict::code(&error), Some("MOVED" | "ASK")) => {
                    elsewhere.extend(self.names().identity(&keys[n]).map(|identity| (n, self.names().key(&identity))));
                    None
                }
                Err(Trouble::Sent(error)) if verdict::code(&error) == Some("WRONGTYPE") => None,
                Err(trouble) => return Err(trouble.of_nothing()),
            });
        }
        let calls: Vec<_> = elsewhere.iter().map(|(_, key)| Call { script: &SCRIPTS.get, key, args: vec![] }).collect();
        for ((n, _), answer) in elsewhere.iter().zip(self.topology().run_all(&calls).await) {
            records[*n] =
                answer.and_then(Told::read).and_then(|mut told| told.stored()).map_err(StoreError::of_nothing)?;
        }
        Ok(records)
    }

    pub(crate) async fn list_page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        max: usize,
    ) -> Result<Page, StoreError> {
        let names: &Names = self.names();
        let at = after.and_then(Position::read).unwrap_or_default();
        let mut walk = Walk::new(self, names.pattern(filter.namespace.as_deref()), at).await?;
        let mut page = Page { entries: Vec::new(), next: None, now: StoreTime::default() };
        // While the server resizes its table it may show a key twice.
        let mut listed = HashSet::new();
        for _ in 0..STEPS {
            let Some(shown) = walk.step().await? else { return Ok(page) };
            page.now = shown.now;
            for keys in shown.keys.chunks(AT_ONCE.min(max.max(1))) {
                let whole = |key: &[u8]| {
                    let mut get = redis::cmd("GET");
                    get.arg(key);
                    get
                };
                let records = self.read(&shown.server, keys, whole).await?;
                for (key, record) in keys.iter().zip(records) {
                    if page.entries.len() == max {
                        page.next = Some(walk.at.write());
                        return Ok(page);
                    }
                    walk.at.taken.clone_from(key);
                    let identity = names.identity(key);
                    let record = record
                        .and_then(Stored::into_record)
                        .filter(|r| r.is_here(shown.now) && filter.passes(r, shown.now));
                    if let (Some(identity), Some(record)) = (identity, record)
                        && listed.insert(identity)
                    {
                        page.entries.push(Entry { identity, record });
                    }
                }
            }
            if walk.go_on(shown.next) {
                return Ok(page);
            }
        }
        page.next = Some(walk.at.write());
        Ok(page)
    }

    pub(crate) async fn purge_some(&self, max: usize) -> Result<Purged, StoreError> {
        let mut sweep = self.sweep().lock().await;
        // Whatever ends this call early, an error or its caller: the next one begins from the front.
        let Sweep { mut at, servers } = std::mem::take(&mut *sweep);
        let mut walk = Walk::new(self, self.names().pattern(None), Position::default()).await?;
        let places = walk.places();
        if places != servers {
            // A cursor is one server's own, and keys came from one that is gone: what was looked at is no whole any more.
            at = Position::default();
        }
        walk.at = at;
        let (removed, more) = self.sweep_on(&mut walk, max).await?;
        if more {
            *sweep = Sweep { at: walk.at, servers: places };
        }
        Ok(Purged { removed, unresolved: std::mem::take(&mut *self.untold().lock()), more })
    }

    /// How many were removed, and whether the walk stopped before its end.
    async fn sweep_on(&self, walk: &mut Walk, max: usize) -> Result<(usize, bool), StoreError> {
        let mut removed = 0;
        for _ in 0..STEPS {
            let Some(shown) = walk.step().await? else { return Ok((removed, false)) };
            let header = |key: &[u8]| {
                let mut command = redis::cmd("GETRANGE");
                command.arg(key).arg(0).arg(semel_core::record::HEADER_LEN - 1);
                command
            };
            let headers = self.read(&shown.server, &shown.keys, header).await?;
            let ended = |stored: &Option<Stored>| stored.as_ref().is_some_and(|s| s.is_over(shown.now));
            let ended: Vec<_> = shown.keys.iter().zip(&headers).filter(|(_, r)| ended(r)).map(|(key, _)| key).collect();
            let room = max.saturating_sub(removed);
            removed += self.remove(&ended[..ended.len().min(room)]).await?;
            if ended.len() > room {
                // The rest of what this step showed is for the next call.
                return Ok((removed, true));
            }
            if walk.go_on(shown.next) {
                return Ok((removed, false));
            }
            if removed >= max {
                break;
            }
        }
        Ok((removed, true))
    }

    /// Removes those of `keys` that are still over when their server looks. Whose outcome nobody told is kept to be told,
    /// also where this fails later on.
    async fn remove(&self, keys: &[&Vec<u8>]) -> Result<usize, StoreError> {
        let identities: Vec<Identity> = keys.iter().filter_map(|key| self.names().identity(key)).collect();
        let keys: Vec<_> = identities.iter().map(|id| self.names().key(id)).collect();
        let calls: Vec<_> = keys.iter().map(|key| Call { script: &SCRIPTS.sweep, key, args: vec![] }).collect();
        let (mut removed, mut failed) = (0, None);
        for (identity, answer) in identities.into_iter().zip(self.topology().run_all(&calls).await) {
            match answer.and_then(Told::read) {
                Ok(mut told) if told.code == YES => {
                    removed += 1;
                    if matches!(told.number(), Ok(1)) {
                        self.untold().lock().push(identity);
                    }
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(removed), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_cursor() {
        let at = Position { server: "127.0.0.1:7000".to_owned(), cursor: 4711, taken: b"semel:http:a:k:00".to_vec() };
        assert_eq!(Position::read(&at.write()), Some(at));
        assert_eq!(Position::read(&Position::default().write()), Some(Position::default()));
        assert_eq!(Position::read(&Cursor(Bytes::from_static(b"\xff"))), None);
    }
}
