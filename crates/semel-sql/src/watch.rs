//! Work that may take as long as it takes, on a server that may stop answering.
//!
//! A change of tables takes the longer the more they hold: no time is right for it. But who waits for a server that hangs, or for
//! an answer that was lost, waits for ever. So a second connection asks every second whether the server is still at work on
//! it: what bounds the wait is how long the server is silent, and not how long it works.

use std::{future::Future, pin::pin, time::Duration};

/// How long after one look the next one comes.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks in a row that find the server not at work on it before the answer counts as lost: one may fall between two statements.
const IDLE: u32 = 3;

/// A second way to the server.
pub(crate) trait Watch {
    /// Whether the server is at work on what is watched; a statement that waits for a lock counts.
    fn is_at_work(&mut self) -> impl Future<Output = sqlx::Result<bool>> + Send;
}

/// The end of `work`, as long as the server is at work on it.
///
/// # Errors
/// Those of `work`; that of a look that fails, or does not answer within `patience`; and that nobody works on it any more. What
/// became of the work is then unknown.
pub(crate) async fn watched<T>(
    work: impl Future<Output = sqlx::Result<T>>,
    watch: &mut impl Watch,
    patience: Duration,
) -> sqlx::Result<T> {
    let mut work = pin!(work);
    let mut idle = 0;
    loop {
        let looking = async {
            tokio::time::sleep(PAUSE).await;
            within(patience, watch.is_at_work()).await
        };
        tokio::select! {
            biased;
            done = &mut work => return done,
            found = looking => match found? {
                true => idle = 0,
                false => idle += 1,
            },
        }
        if idle == IDLE {
            return Err(lost("the server is not at work on it any more, and no answer came"));
        }
    }
}

/// An answer in time.
///
/// # Errors
/// As the call; and that there was none.
pub(crate) async fn within<T>(time: Duration, call: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let late = |_| Err(lost("the server does not answer any more"));
    tokio::time::timeout(time, call).await.unwrap_or_else(late)
}

fn lost(why: &str) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, why))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    async fn long(seconds: u64) -> sqlx::Result<u64> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(seconds)
    }

    /// Answers after so many seconds; at work in every so manieth look, never where that is 0.
    struct Looks {
        take: u64,
        at_work: u64,
        made: u64,
    }

    impl Watch for Looks {
        async fn is_at_work(&mut self) -> sqlx::Result<bool> {
            self.made += 1;
            tokio::time::sleep(Duration::from_secs(self.take)).await;
            Ok(self.at_work > 0 && self.made.is_multiple_of(self.at_work))
        }
    }

    fn looks(take: u64, at_work: u64) -> Looks {
        Looks { take, at_work, made: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn work_may_take_as_long_as_the_server_is_at_it() {
        // Between two statements nobody is seen at work.
        let mut looks = looks(0, 3);
        assert_eq!(watched(long(36_000), &mut looks, PATIENCE).await.unwrap(), 36_000);
        assert!(looks.made > 30_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_is_given_up() {
        let error = watched(long(36_000), &mut looks(40_000, 1), PATIENCE).await.unwrap_err();
        assert!(error.to_string().contains("does not answer any more"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_lost_is_given_up() {
        let error = watched(pending::<sqlx::Result<()>>(), &mut looks(0, 0), PATIENCE).await.unwrap_err();
        assert!(error.to_string().contains("not at work on it any more"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_came_during_a_look_counts() {
        assert_eq!(watched(long(2), &mut looks(4, 0), PATIENCE).await.unwrap(), 2);
    }
}
