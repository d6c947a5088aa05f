//! How a store tells what people did, so that other processes let go of what they remember.

/// Is told which records people have changed: what an engine gives to a store that other processes work on too.
///
/// Must not block. A store holds it weakly: it goes with its engine.
pub trait Changes: Send + Sync + 'static {
    /// A person settled, deleted or withdrew the record of this digest.
    fn changed(&self, digest: &[u8; 32]);

    /// Some may have changed without a word: the connection that tells was broken for a while.
    fn missed(&self);
}
