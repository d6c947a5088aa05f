//! The file's listening and upstream settings, as the transport takes them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use semel_http::Bodies;

use crate::config::{Config, Forwarded as InFile, Principal, RuntimeKind, Upstream};
use crate::forward::ForwardConfig;
use crate::pool::{Address, AddressError, PoolConfig};
use crate::serve::{Door, Forwarded, Known, Runtime, ServeConfig, Via};

/// How clients are served.
pub(super) fn serve(config: &Config, via: &Arc<Via>) -> ServeConfig {
    let limits = &config.limits;
    let threads = config.runtime.threads.and_then(|n| NonZeroUsize::new(size(n.value)));
    let threads = threads.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let mut serve = ServeConfig::new(*config.listen.http);
    serve.runtime = match *config.runtime.kind {
        RuntimeKind::PerCore => Runtime::PerCore(threads),
        RuntimeKind::Shared => Runtime::Shared(threads),
    };
    serve.max_connections = size(*limits.connections);
    serve.max_head = bytes(limits.header_bytes.0);
    serve.head_timeout = *limits.header_timeout;
    serve.keep_alive = *limits.keep_alive;
    serve.body_idle = *limits.body_idle;
    serve.write_idle = *limits.write_idle;
    serve.drain = *config.drain.deadline;
    serve.door.read_behind = read_behind(config);
    serve.door.via = Some(Arc::clone(via));
    serve
}

/// What bodies may take. A client that takes nothing of its answer is cut by the connection and by the recorder alike.
pub(super) fn bodies(config: &Config) -> Bodies {
    let limits = &config.limits;
    Bodies::default()
        .requests(bytes(limits.memory.requests.value.0))
        .answers(bytes(limits.memory.responses.value.0))
        .arrive_within(*limits.body_timeout)
        .taken_within(*limits.write_idle)
}

/// Every field that the guard goes by, in any rule.
fn read_behind(config: &Config) -> Known {
    let mut names = Door::default().read_behind.names().to_vec();
    if let Principal::Header(name) | Principal::ApiKey(name) = &config.principal.value {
        names.push(name.clone());
    }
    for rule in &config.rules {
        let p = &rule.policy;
        names.extend([&p.key.0, &p.credentials.0, &p.retry_id.0].into_iter().flatten().cloned());
    }
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    Known::new(names)
}

/// How requests go to an upstream.
pub(super) fn forward(upstream: &Upstream) -> Result<ForwardConfig, AddressError> {
    let mut forward = ForwardConfig::new(Address::parse(&upstream.url.to_string())?);
    forward.first_byte = *upstream.first_byte;
    forward.whole = *upstream.whole;
    forward.idle = *upstream.silence;
    forward.pool = PoolConfig {
        connect_timeout: *upstream.connect,
        idle_timeout: *upstream.idle,
        max_idle: size(*upstream.max_idle),
        reuse_idle: *upstream.reuse_idle,
        ..PoolConfig::default()
    };
    Ok(forward)
}

/// What becomes of `X-Forwarded-*`.
pub(super) fn forwarded(config: &Config) -> Forwarded {
    match *config.listen.forwarded {
        InFile::Append => Forwarded::Append,
        InFile::Replace => Forwarded::Replace,
    }
}

pub(super) fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

pub(super) fn bytes(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
