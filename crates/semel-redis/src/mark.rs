//! The mark of the store: whose records these are, and since when.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use semel_core::{
    env::Env,
    identity::{Birth, Mark, MarkError, Secret},
    store::{Did, StoreError, StoreErrorKind},
};

/// What this process knows of the mark. It is read at every new connection, before anything else is sent on it.
pub(crate) struct Marks {
    configured: Option<Secret>,
    env: Env,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<Mark>,
    /// Of a Cluster the births of its parts, as far as they were seen.
    parts: BTreeMap<usize, Birth>,
    /// The last of the births that changed.
    birth: Option<Birth>,
    refused: Option<MarkError>,
}

impl Marks {
    pub(crate) fn new(configured: Option<Secret>, env: Env) -> Arc<Self> {
        Arc::new(Self { configured, env, state: Mutex::default() })
    }

    /// What to put where there is no mark: the first one, or the known one born anew.
    pub(crate) fn offer(&self) -> Mark {
        match &self.state.lock().known {
            Some(known) => known.reborn(&*self.env.rng),
            None => Mark::new(self.configured.as_ref(), &*self.env.rng),
        }
    }

    /// Takes note of the mark that is there.
    pub(crate) fn found(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let checked = Mark::decode(bytes).and_then(|mark| {
            // A store that made its own secret anew is as foreign as one with another configured secret.
            let before = state.known.as_ref().map(|known| known.secret(self.configured.as_ref()));
            let secret = match before {
                Some(before) => before.ok(),
                None => self.configured.clone(),
            };
            mark.secret(secret.as_ref()).map(|_| mark)
        });
        match checked {
            Ok(mark) => {
                if let Some(known) = &state.known
                    && known.birth() != mark.birth()
                {
                    let (before, now) = (known.birth().short(), mark.birth().short());
                    tracing::warn!("the store lost its records: its mark was {before} and is {now} now");
                }
                if state.known.as_ref().is_none_or(|known| known.birth() != mark.birth()) {
                    state.birth = Some(mark.birth());
                }
                state.known = Some(mark);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the store is closed");
                state.refused = Some(error);
                Err(closed(error))
            }
        }
    }

    /// Takes note of the mark of one part of a Cluster. A part that lost its mark lost its records; a slot that moves takes
    /// its mark along.
    pub(crate) fn found_in_part(&self, part: usize, bytes: &[u8]) -> Result<(), StoreError> {
        let mark = Mark::decode(bytes).map_err(closed)?;
        let secret = self.secret();
        mark.secret(secret.as_ref()).map_err(closed)?;
        let mut state = self.state.lock();
        let before = state.parts.insert(part, mark.birth());
        if let Some(before) = before.filter(|before| *before != mark.birth()) {
            let (before, now) = (before.short(), mark.birth().short());
            tracing::warn!("a part of the store lost its records: its mark was {before} and is {now} now");
            state.birth = Some(mark.birth());
        }
        Ok(())
    }

    /// Refuses where the mark forbids to work on these records.
    pub(crate) fn allow(&self) -> Result<(), StoreError> {
        self.state.lock().refused.map_or(Ok(()), |error| Err(closed(error)))
    }

    /// Why the mark forbids it, if it does.
    pub(crate) fn refused(&self) -> Option<MarkError> {
        self.state.lock().refused
    }

    /// The secret that the store's records are made with.
    pub(crate) fn secret(&self) -> Option<Secret> {
        self.state.lock().known.as_ref().and_then(|known| known.secret(self.configured.as_ref()).ok())
    }

    /// Since when the store has its records: another one than before says that it lost some.
    pub(crate) fn birth(&self) -> Option<Birth> {
        self.state.lock().birth
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marks({:?})", self.state.lock().known)
    }
}

fn closed(error: MarkError) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Closed, error)
}

#[cfg(test)]
mod tests {
    use semel_core::identity::Mark;

    use super::*;

    fn marks(secret: Option<&str>) -> Arc<Marks> {
        Marks::new(secret.map(|text| Secret::from_material(text.as_bytes()).unwrap()), Env::system())
    }

    #[test]
    fn a_store_that_lost_its_mark_gets_it_back_with_another_birth() {
        let marks = marks(None);
        let first = marks.offer();
        marks.found(&first.encode()).unwrap();
        let again = marks.offer();
        assert_ne!(again.birth(), first.birth());
        marks.found(&again.encode()).unwrap();
        assert_eq!(marks.birth(), Some(again.birth()));
    }

    #[test]
    fn a_store_with_another_secret_of_its_own_closes_this_process() {
        let marks = marks(None);
        marks.found(&marks.offer().encode()).unwrap();
        let foreign = Mark::new(None, &*Env::system().rng);
        let error = marks.found(&foreign.encode()).unwrap_err();
        assert_eq!((error.did, error.kind), (Did::Nothing, StoreErrorKind::Closed));
        assert!(marks.allow().is_err() && marks.refused() == Some(MarkError::OtherSecret));
    }

    #[test]
    fn a_secret_that_differs_is_refused_at_once() {
        let theirs = marks(Some("sixteen bytes at least"));
        let mine = marks(Some("sixteen other bytes at least"));
        assert!(mine.found(&theirs.offer().encode()).is_err());
        assert_eq!(mine.secret().map(|_| ()), None);
    }
}
