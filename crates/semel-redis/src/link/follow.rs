//! Following the primary: what the Sentinels say of it ends a connection that leads to another.
//!
//! A server that was cut off or that hung takes itself for the primary until a Sentinel tells it otherwise, ten seconds and
//! more; what it takes until then is lost. Whoever listens to the Sentinels leaves it as soon as they name another.

use std::{
    convert::Infallible,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all};
use tokio::sync::Notify;

use super::{Dialer, Link, Target};
use crate::address::{Host, Login};

/// How often the Sentinels are asked, whatever they say by themselves.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// How long a Sentinel that cannot be listened to is left alone.
const REST: Duration = Duration::from_secs(1);

/// What a Sentinel says on when another server is primary.
const SWITCHED: &str = "+switch-master";

impl Link {
    /// Starts to follow, where the Sentinels name the server and nobody follows yet.
    pub(super) fn follow(self: &Arc<Self>) {
        let Target::Named { sentinels, login, .. } = &self.target else { return };
        if self.is_followed.swap(true, Ordering::AcqRel) {
            return;
        }
        let following = Following(Arc::downgrade(self));
        let (dialer, sentinels, login) = (Arc::clone(&self.dialer), sentinels.clone(), login.clone());
        let task = async move {
            let said = Notify::new();
            let ears = join_all(sentinels.iter().map(|sentinel| hear(&dialer, sentinel, &login, &said)));
            tokio::select! {
                () = following.look(&dialer, &said) => {}
                _never = ears => {}
            }
        };
        self.dialer.env().tasks.spawn("semel redis sentinels", Box::pin(task));
    }
}

/// The task ends with its runtime or with the link; then the next connection starts another.
struct Following(Weak<Link>);

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.is_followed.store(false, Ordering::Release);
        }
    }
}

impl Following {
    /// Ends with the link.
    async fn look(&self, dialer: &Dialer, said: &Notify) {
        loop {
            tokio::select! {
                () = said.notified() => {}
                () = dialer.env().clock.sleep_until(dialer.env().clock.now() + BETWEEN_LOOKS) => {}
            }
            let Some(target) = self.0.upgrade().map(|link| link.target.clone()) else { return };
            // Where no Sentinel answers nobody knows better than the server itself.
            let Ok(host) = dialer.host(&target).await else { continue };
            let Some(link) = self.0.upgrade() else { return };
            if !link.is_at(&host) && link.hang_up() {
                tracing::info!(%host, "another server is the primary");
            }
        }
    }
}

/// Rings whenever a Sentinel says that a primary was replaced, and whenever it could not have said so.
async fn hear(dialer: &Dialer, sentinel: &Host, login: &Login, said: &Notify) -> Infallible {
    loop {
        let _broke = hear_once(dialer, sentinel, login, said).await;
        dialer.env().clock.sleep_until(dialer.env().clock.now() + REST).await;
    }
}

async fn hear_once(dialer: &Dialer, sentinel: &Host, login: &Login, said: &Notify) -> Option<Infallible> {
    let client = dialer.client(sentinel, login, 0).ok()?;
    let subscribing = async {
        let mut listener = client.get_async_pubsub().await?;
        listener.subscribe(SWITCHED).await?;
        redis::RedisResult::Ok(listener)
    };
    let listener = tokio::time::timeout(dialer.connect_timeout, subscribing).await.ok()?.ok()?;
    said.notify_one();
    let mut messages = listener.into_on_message();
    loop {
        messages.next().await?;
        said.notify_one();
    }
}
